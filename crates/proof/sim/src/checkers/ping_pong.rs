//! Nobody hands leadership on that it has only just got: not before the least tenure is over, nor before the election timeout is,
//! whatever the settings say. So where every member is due at once leadership does not go round.

use super::Checker;
use crate::world::World;

/// See the file's header.
pub struct PingPong;

impl Checker for PingPong {
    fn name(&self) -> &'static str {
        "nobody hands leadership on that it has only just got"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for acted in world.acted() {
            let Some(seen) = acted.seen else { continue };
            if world.now() < seen.won_at + seen.tenure {
                return Err(format!(
                    "member {} was elected at {:?} and hands on: {:?}",
                    acted.member, seen.won_at, acted.effect
                ));
            }
        }
        Ok(())
    }
}
