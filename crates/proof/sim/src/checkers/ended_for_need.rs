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
            // Whoever has taken that back since in the same moment had said so.
            if !acted.is_named && !brain.is_some_and(|brain| brain.is_named(acted.member)) {
                return Err(format!("member {} ({:?}), and no primary has named it", acted.member, acted.effect));
            }
        }
        Ok(())
    }
}
