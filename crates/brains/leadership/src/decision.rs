//! Decisions as data: what made one, by which rule it fell, how each candidate stood, what was predicted, and what came of it.
//!
//! Invariants:
//! - What is kept is bounded: the last hundred moves, and the last hundred decisions against one.
//! - A decision that falls the same way again and again is kept once, with how often it fell.

use crate::candidates::Candidate;
use crate::ranking::Ranking;
use crate::rule::Rule;
use crate::set::MemberId;
use crate::settings::Mode;
use crate::step::{HandoffOutcome, Moment, TaskId};
use baton_types::TaskKind;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// How many moves, and how many decisions against one, are kept.
pub const KEPT_MAX: usize = 100;

/// What made this member decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trigger {
    /// A task wants to begin.
    Task {
        /// Which.
        task: TaskId,
        /// What kind of work.
        kind: TaskKind,
    },
    /// This member's disk syncs slowly.
    DiskSlow,
    /// This member's disk is nearly full.
    DiskNearlyFull,
    /// The preferred primary is free.
    PreferredFree,
    /// An operator asked.
    Operator,
}

impl Trigger {
    /// For status, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Task { kind, .. } => kind.name(),
            Self::DiskSlow => "diskSlow",
            Self::DiskNearlyFull => "diskNearlyFull",
            Self::PreferredFree => "preferredFree",
            Self::Operator => "operator",
        }
    }
}

/// What came of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Nothing is to be done: somebody asked what would be.
    WouldMove {
        /// To whom; none: leadership would stay.
        to: Option<MemberId>,
    },
    /// The handoff is under way.
    Moving {
        /// To whom.
        to: MemberId,
    },
    /// Leadership has moved.
    Moved {
        /// To whom.
        to: MemberId,
        /// For how long nobody took writes.
        gap: Duration,
    },
    /// The handoff failed.
    Failed {
        /// To whom leadership was to move.
        to: MemberId,
        /// What went wrong.
        why: String,
    },
    /// Leadership stays, and the task begins.
    Stayed,
    /// Leadership stays for now, and the task waits.
    Postponed {
        /// Until then at the latest.
        until: Moment,
    },
}

/// See the file's header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When it fell.
    pub at: Moment,
    /// When it fell last, the same way.
    pub last_at: Moment,
    /// How often.
    pub count: u64,
    /// What made it.
    pub trigger: Trigger,
    /// The mode.
    pub mode: Mode,
    /// The ranking.
    pub ranking: Ranking,
    /// The rule that decided.
    pub rule: Rule,
    /// Every other member, best first, those that cannot lead last.
    pub candidates: Vec<Candidate>,
    /// What staying is predicted to cost: seconds of service. None if nothing is to be done here.
    pub staying_secs: Option<f64>,
    /// What moving is predicted to cost, to the member chosen, or to the first.
    pub moving_secs: Option<f64>,
    /// What the gap is predicted to be, in seconds.
    pub gap_secs: f64,
    /// What came of it.
    pub outcome: Outcome,
}

impl Decision {
    fn falls_like(&self, other: &Self) -> bool {
        (self.trigger, self.rule, &self.outcome) == (other.trigger, other.rule, &other.outcome)
    }
}

/// The last decisions, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    moves: VecDeque<Decision>,
    stays: VecDeque<Decision>,
}

impl History {
    /// Moves, and attempts at one.
    pub fn moves(&self) -> impl DoubleEndedIterator<Item = &Decision> + ExactSizeIterator {
        self.moves.iter()
    }

    /// Decisions against a move.
    pub fn stays(&self) -> impl DoubleEndedIterator<Item = &Decision> + ExactSizeIterator {
        self.stays.iter()
    }

    pub(crate) fn add_move(&mut self, decision: Decision) {
        push(&mut self.moves, decision);
    }

    pub(crate) fn add_stay(&mut self, decision: Decision) {
        // What waits in turn with others is looked at as often as they are.
        let alike = self.stays.iter_mut().rev().take(8).find(|known| known.falls_like(&decision));
        match alike {
            Some(known) => {
                let (at, count) = (known.at, known.count + 1);
                *known = Decision { at, count, ..decision };
            }
            None => push(&mut self.stays, decision),
        }
    }

    /// What came of the move under way; whether there was one.
    pub(crate) fn conclude(&mut self, outcome: &HandoffOutcome) -> bool {
        let Some(last) = self.moves.back_mut().filter(|last| matches!(last.outcome, Outcome::Moving { .. })) else {
            return false;
        };
        last.outcome = outcome.into();
        true
    }
}

impl From<&HandoffOutcome> for Outcome {
    fn from(outcome: &HandoffOutcome) -> Self {
        match outcome {
            HandoffOutcome::Done { to, gap } => Self::Moved { to: *to, gap: *gap },
            HandoffOutcome::Failed { to, why } => Self::Failed { to: *to, why: why.clone() },
        }
    }
}

fn push(kept: &mut VecDeque<Decision>, decision: Decision) {
    if kept.len() == KEPT_MAX {
        kept.pop_front();
    }
    kept.push_back(decision);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(secs: u64, task: TaskId, outcome: Outcome) -> Decision {
        let at = Duration::from_secs(secs);
        Decision {
            at,
            last_at: at,
            count: 1,
            trigger: Trigger::Task { task, kind: TaskKind::Backup },
            mode: Mode::CostBased,
            ranking: Ranking::Mrc,
            rule: Rule::NoCandidate,
            candidates: Vec::new(),
            staying_secs: None,
            moving_secs: None,
            gap_secs: 0.1,
            outcome,
        }
    }

    #[test]
    fn a_hundred_of_each_are_kept_and_repetitions_are_counted() {
        let mut history = History::default();
        for secs in 0..1000 {
            history.add_stay(decision(secs, secs / 500, Outcome::Stayed));
            history.add_move(decision(secs, 0, Outcome::Moving { to: 1 }));
        }
        let stays: Vec<_> =
            history.stays().map(|stay| (stay.count, stay.at.as_secs(), stay.last_at.as_secs())).collect();
        assert_eq!(stays, [(500, 0, 499), (500, 500, 999)]);
        assert_eq!((history.moves().len(), history.moves().next().unwrap().at.as_secs()), (KEPT_MAX, 900));
    }

    #[test]
    fn an_outcome_belongs_to_the_move_under_way_and_to_no_other() {
        let mut history = History::default();
        let done = HandoffOutcome::Done { to: 2, gap: Duration::from_millis(15) };
        assert!(!history.conclude(&done));
        history.add_move(decision(1, 0, Outcome::Moving { to: 2 }));
        assert!(history.conclude(&done) && !history.conclude(&done));
        let last = history.moves().next_back().unwrap();
        assert_eq!(last.outcome, Outcome::Moved { to: 2, gap: Duration::from_millis(15) });
    }
}
