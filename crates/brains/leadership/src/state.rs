//! The states of a member and the transitions between them: Figure 1 of the paper.
//!
//! ```text
//!                     Demote
//!    ┌────────┐ ───────────────────▶ ┌────────┐
//!  ┌▶│ P, NC  │ ◀─────────────────── │ S, NC  │
//!  │ └────────┘       Promote        └────────┘
//!  └───┘ │  ▲                         │      ▲
//! Post-  │  │ EndAsPrimary BeginAsSec-│      │ EndAsSecondary
//! pone   ▼  │                    ondary      │
//!    ┌────────┐                      ▼      │
//!    │ P, C   │                      ┌────────┐
//!    └────────┘                      │ S, C   │
//!  BeginAsPrimary                    └────────┘
//! ```
//!
//! "C" is any heavy task, not a compaction alone. Beyond the figure: a primary with a failing disk is demoted with its task, and a
//! busy secondary is promoted when nobody else stands.

use crate::step::Role;
use serde::{Deserialize, Serialize};

/// Where a member is in Figure 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// "P, NC": primary, no heavy task.
    PrimaryFree,
    /// "P, C": primary, in a heavy task.
    PrimaryBusy,
    /// "S, NC": secondary, no heavy task.
    SecondaryFree,
    /// "S, C": secondary, in a heavy task. Not eligible to become primary.
    SecondaryBusy,
    /// Neither primary nor secondary: not in the figure.
    Apart,
}

/// A change of state, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Transition {
    /// P, NC → S, NC: leadership has moved away.
    Demote,
    /// S, NC → P, NC: leadership has moved here.
    Promote,
    /// P, NC → P, NC: a task waits.
    Postpone,
    /// P, NC → P, C: a task begins although this member is primary.
    BeginAsPrimary,
    /// P, C → P, NC: it has ended.
    EndAsPrimary,
    /// S, NC → S, C: a task begins.
    BeginAsSecondary,
    /// S, C → S, NC: it has ended.
    EndAsSecondary,
    /// P, C → S, C. Not in the figure.
    DemoteBusy,
    /// S, C → P, C. Not in the figure.
    PromoteBusy,
    /// Into the figure: from neither primary nor secondary.
    Join,
    /// Out of the figure.
    Leave,
}

impl State {
    /// The state of a member in this role.
    pub(crate) fn of(role: Role, is_busy: bool) -> Self {
        match (role, is_busy) {
            (Role::Primary { .. }, false) => Self::PrimaryFree,
            (Role::Primary { .. }, true) => Self::PrimaryBusy,
            (Role::Secondary, false) => Self::SecondaryFree,
            (Role::Secondary, true) => Self::SecondaryBusy,
            (Role::Other, _) => Self::Apart,
        }
    }

    /// As in the figure.
    pub fn name(self) -> &'static str {
        match self {
            Self::PrimaryFree => "P, NC",
            Self::PrimaryBusy => "P, C",
            Self::SecondaryFree => "S, NC",
            Self::SecondaryBusy => "S, C",
            Self::Apart => "-",
        }
    }

    /// The states that lead from this one to `to`, `to` last, each one transition away from the one before.
    pub(crate) fn path(self, to: Self) -> Vec<Self> {
        use State::{PrimaryBusy, PrimaryFree, SecondaryBusy, SecondaryFree};
        match (self, to) {
            // Two things at once: a role changes, and a task begins or ends.
            (PrimaryFree, SecondaryBusy) => vec![SecondaryFree, to],
            (PrimaryBusy, SecondaryFree) => vec![SecondaryBusy, to],
            (SecondaryFree, PrimaryBusy) => vec![PrimaryFree, to],
            (SecondaryBusy, PrimaryFree) => vec![SecondaryFree, to],
            _ if self == to => Vec::new(),
            _ => vec![to],
        }
    }
}

impl Transition {
    /// What leads from one state to another; none if that takes two steps, or none.
    pub fn between(from: State, to: State) -> Option<Self> {
        use State::{Apart, PrimaryBusy, PrimaryFree, SecondaryBusy, SecondaryFree};
        match (from, to) {
            (PrimaryFree, SecondaryFree) => Some(Self::Demote),
            (SecondaryFree, PrimaryFree) => Some(Self::Promote),
            (PrimaryFree, PrimaryBusy) => Some(Self::BeginAsPrimary),
            (PrimaryBusy, PrimaryFree) => Some(Self::EndAsPrimary),
            (SecondaryFree, SecondaryBusy) => Some(Self::BeginAsSecondary),
            (SecondaryBusy, SecondaryFree) => Some(Self::EndAsSecondary),
            (PrimaryBusy, SecondaryBusy) => Some(Self::DemoteBusy),
            (SecondaryBusy, PrimaryBusy) => Some(Self::PromoteBusy),
            (Apart, PrimaryFree | PrimaryBusy | SecondaryFree | SecondaryBusy) => Some(Self::Join),
            (PrimaryFree | PrimaryBusy | SecondaryFree | SecondaryBusy, Apart) => Some(Self::Leave),
            (PrimaryFree, PrimaryFree)
            | (PrimaryBusy, PrimaryBusy | SecondaryFree)
            | (SecondaryFree, SecondaryFree | PrimaryBusy)
            | (SecondaryBusy, SecondaryBusy | PrimaryFree)
            | (PrimaryFree, SecondaryBusy)
            | (Apart, Apart) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_state_is_a_path_of_named_transitions() {
        let all = [State::PrimaryFree, State::PrimaryBusy, State::SecondaryFree, State::SecondaryBusy, State::Apart];
        for from in all {
            for to in all {
                let mut at = from;
                for next in from.path(to) {
                    assert!(Transition::between(at, next).is_some(), "{at:?} to {next:?}");
                    at = next;
                }
                assert_eq!(at, to);
            }
        }
    }
}
