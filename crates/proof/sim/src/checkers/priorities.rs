//! Leadership passes over nobody with a higher priority of the configuration who could have led.

use super::Checker;
use crate::world::World;
use baton_leadership::Effect;

/// See the file's header.
pub struct Priorities;

impl Checker for Priorities {
    fn name(&self) -> &'static str {
        "priorities of the configuration stand above every ranking"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for acted in world.acted() {
            let (Effect::HandOver { to, decision } | Effect::Resume { to, decision }) = &acted.effect else { continue };
            let able = || decision.candidates.iter().filter(|candidate| candidate.obstacle.is_none());
            let Some(chosen) = able().find(|candidate| candidate.member == *to) else { continue };
            if let Some(better) = able().find(|candidate| candidate.priority > chosen.priority) {
                return Err(format!("member {} hands over to {to} and not to {better:?}", acted.member));
            }
        }
        Ok(())
    }
}
