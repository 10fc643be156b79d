//! Between a move that a primary knows of, its own or another's, and the next one that it makes lies the cooldown.

use super::Checker;
use crate::world::World;

/// See the file's header.
pub struct Spacing;

impl Checker for Spacing {
    fn name(&self) -> &'static str {
        "between two moves lies the cooldown, whoever made them"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let Some(duties) = world.duties() else { return Ok(()) };
        for acted in world.acted() {
            let Some(seen) = acted.seen else { continue };
            let Some(last) = seen.moves_known.checked_sub(1).map(|last| world.moves()[last]) else { continue };
            if world.now() < last.at + duties.settings.cooldown {
                return Err(format!("member {} moves leadership and knew of {last:?}", acted.member));
            }
        }
        Ok(())
    }
}
