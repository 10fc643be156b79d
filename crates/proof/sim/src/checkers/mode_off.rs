//! With the mode off nothing waits, nothing is claimed and nothing moves.

use super::Checker;
use crate::world::World;
use baton_leadership::{Effect, Mode};

/// See the file's header.
pub struct ModeOff;

impl Checker for ModeOff {
    fn name(&self) -> &'static str {
        "with the mode off nothing waits and nothing moves"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if world.duties().is_none_or(|duties| duties.settings.mode != Mode::Off) {
            return Ok(());
        }
        let is_wrong = |effect: &Effect| match effect {
            Effect::Defer { .. } | Effect::HandOver { .. } | Effect::Resume { .. } | Effect::Claim { .. } => true,
            Effect::Admit { .. }
            | Effect::End { .. }
            | Effect::Release { .. }
            | Effect::Transition(_)
            | Effect::Gossip => false,
        };
        match world.acted().iter().find(|acted| is_wrong(&acted.effect)) {
            Some(acted) => Err(format!("member {}: {:?}", acted.member, acted.effect)),
            None => Ok(()),
        }
    }
}
