//! Every move is explained: it says to whom, and how each other member stood, those that could not lead last. What is kept of
//! decisions is bounded.

use super::Checker;
use crate::world::World;
use baton_leadership::{Effect, KEPT_MAX, Outcome};

/// See the file's header.
pub struct Explained;

impl Checker for Explained {
    fn name(&self) -> &'static str {
        "every move is explained, and what is kept is bounded"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for acted in world.acted() {
            let (Effect::HandOver { to, decision } | Effect::Resume { to, decision }) = &acted.effect else { continue };
            let chosen = decision.candidates.iter().find(|candidate| candidate.member == *to);
            let is_explained = decision.outcome == Outcome::Moving { to: *to }
                && chosen.is_some_and(|chosen| chosen.obstacle.is_none())
                && acted.seen.is_some_and(|seen| decision.candidates.len() + 1 == seen.members)
                && decision.candidates.is_sorted_by_key(|candidate| candidate.obstacle.is_some());
            if !is_explained {
                return Err(format!("member {} hands over to {to} by {decision:?}", acted.member));
            }
            if let Some(history) = world.brain(acted.member).map(|brain| brain.history())
                && history.moves().len().max(history.stays().len()) > KEPT_MAX
            {
                return Err(format!("member {} keeps more than {KEPT_MAX} decisions", acted.member));
            }
        }
        Ok(())
    }
}
