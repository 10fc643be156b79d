//! Every change of a member's state is a transition of the paper's Figure 1, told one after the other.

use super::Checker;
use crate::world::World;
use baton_consensus::MemberId;
use baton_leadership::{Effect, State, Transition};
use std::collections::BTreeMap;

const STATES: [State; 5] =
    [State::PrimaryFree, State::PrimaryBusy, State::SecondaryFree, State::SecondaryBusy, State::Apart];

/// See the file's header.
#[derive(Default)]
pub struct Figure1 {
    /// Where each process is, by what it told.
    states: BTreeMap<(MemberId, u64), State>,
}

impl Checker for Figure1 {
    fn name(&self) -> &'static str {
        "every change of state is a transition of Figure 1"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for acted in world.acted() {
            let process = (acted.member, world.boot(acted.member));
            let state = self.states.entry(process).or_insert(State::Apart);
            let Effect::Transition(transition) = acted.effect else { continue };
            let next = match transition {
                Transition::Postpone => (*state == State::PrimaryFree).then_some(*state),
                // Whereto it does not say.
                Transition::Join => (*state == State::Apart).then_some(acted.state),
                _ => STATES.into_iter().find(|next| Transition::between(*state, *next) == Some(transition)),
            };
            let Some(next) = next else {
                return Err(format!("member {} tells {transition:?} in {}", acted.member, state.name()));
            };
            *state = next;
        }
        for member in world.acted().iter().map(|acted| acted.member) {
            let Some(brain) = world.brain(member) else { continue };
            let told = self.states.get(&(member, world.boot(member))).copied().unwrap_or(State::Apart);
            if told != brain.state() {
                return Err(format!("member {member} is in {} and has told {}", brain.state().name(), told.name()));
            }
        }
        Ok(())
    }
}
