//! The machine as one whose steps can be kept and taken again. Two questions change it as inputs do: it notes their time, and what it
//! says to others carries a number that grows.

use crate::{Decision, Effect, Gossip, Input, Leadership, Moment};
use baton_replay::Machine;
use serde::{Deserialize, Serialize};

/// Everything that is done to the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Call {
    /// It takes an input.
    Take(Input),
    /// It is asked what to say to others.
    Gossip,
    /// It is asked where leadership would move.
    Explain,
}

/// Everything that comes of it.
#[derive(Clone, Debug, Serialize)]
pub enum Outcome {
    /// What is to be done.
    Effect(Effect),
    /// Answers [`Call::Gossip`].
    Said(Box<Gossip>),
    /// Answers [`Call::Explain`].
    Explained(Option<Box<Decision>>),
}

impl Machine for Leadership {
    const NAME: &'static str = "leadership";
    type Input = Call;
    type Effect = Outcome;

    fn step(&mut self, now: Moment, call: Call) -> Vec<Outcome> {
        match call {
            Call::Take(input) => Self::step(self, now, input).into_iter().map(Outcome::Effect).collect(),
            Call::Gossip => vec![Outcome::Said(Box::new(self.gossip(now)))],
            Call::Explain => vec![Outcome::Explained(self.explain(now).map(Box::new))],
        }
    }

    fn bytes_behind(call: &Call) -> usize {
        match call {
            Call::Take(Input::Gossip { gossip, .. }) => {
                size_of_val(&**gossip) + size_of_val(gossip.tasks.as_slice()) + size_of_val(gossip.grants.as_slice())
            }
            Call::Take(Input::Configured(set)) => size_of_val(&**set) + size_of_val(set.members.as_slice()),
            Call::Take(Input::Figures(figures)) => size_of_val(&**figures),
            Call::Take(Input::Followers(followers)) => followers.len() * size_of::<crate::Follower>(),
            Call::Gossip
            | Call::Explain
            | Call::Take(
                Input::Tick
                | Input::Role { .. }
                | Input::Wanted { .. }
                | Input::Begun { .. }
                | Input::Ended { .. }
                | Input::WallClock(_)
                | Input::Handoff(_),
            ) => 0,
        }
    }

    fn bytes_behind_effect(outcome: &Outcome) -> usize {
        let of_decision = |decision: &Decision| size_of_val(decision) + size_of_val(decision.candidates.as_slice());
        match outcome {
            Outcome::Said(gossip) => {
                size_of_val(&**gossip) + size_of_val(gossip.tasks.as_slice()) + size_of_val(gossip.grants.as_slice())
            }
            Outcome::Explained(decision) => decision.as_deref().map_or(0, of_decision),
            Outcome::Effect(Effect::HandOver { decision, .. } | Effect::Resume { decision, .. }) => {
                of_decision(decision)
            }
            Outcome::Effect(
                Effect::Admit { .. }
                | Effect::Defer { .. }
                | Effect::End { .. }
                | Effect::Claim { .. }
                | Effect::Release { .. }
                | Effect::Transition(_)
                | Effect::Gossip,
            ) => 0,
        }
    }
}
