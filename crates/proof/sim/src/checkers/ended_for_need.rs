//! A task that runs is told to end only on the member that a primary named: one whose disk is nearly full.

use super::Checker;
use crate::world::World;
use baton_leadership::Effect;

/// See the file's header.
pub struct EndedForNeed;

impl Checker for EndedForNeed {
    fn name(&self) -> &'static str {
        "a task is ended before its time only where a primary needs its member"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for acted in world.acted().iter().filter(|acted| matches!(acted.effect, Effect::End { .. })) {
            let brain = world.brains().find(|(id, _)| *id == acted.member).map(|(_, brain)| brain);
            let is_needed = brain.is_some_and(|brain| {
                brain.heard().any(|gossip| gossip.is_primary && gossip.asks_to_end == Some(acted.member.0))
            });
            if !is_needed {
                return Err(format!("member {} ({:?}), and no primary has named it", acted.member, acted.effect));
            }
        }
        Ok(())
    }
}
