//! Out of the buffer into the copy, until that is whole.
//!
//! Of one collection alone, entries that cannot be applied are passed over: the copy is as it was after them. The entry for which it was
//! copied is, too.

use super::{Answer, InitialSync, Lane, Progress, Task};
use crate::mutant::Mutant;
use crate::step::{Attempt, Copying, Here};
use baton_types::OpTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Entries applied in one go.
const APPLY_BYTES: u64 = 4 * 1024 * 1024;
/// How long to wait before an entry is tried again that completes an index not built here yet.
const NOT_YET_INTERVAL: Duration = Duration::from_millis(20);

/// Entries that were taken out of the buffer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Hand {
    optimes: Vec<OpTime>,
    /// The next to be applied.
    at: usize,
    /// They are applied one by one up to there.
    singly_until: usize,
}

impl InitialSync {
    /// All there was is copied: it is whole once what was written until now is applied.
    pub(super) fn begin_catching_up(&mut self, here: Here, newest: OpTime) {
        let until = if self.is_mutant(Mutant::CountsAsWholeTooEarly) { here.last } else { newest };
        self.until = Some(until);
        self.tell(Progress::Until(until));
        self.go_on_catching_up(here);
    }

    /// If nothing is in hand: ends, or takes more, or waits until more has come.
    pub(super) fn go_on_catching_up(&mut self, here: Here) {
        let Some(until) = self.until else { return };
        if !self.is_idle(Lane::Main) || self.ending.is_some() {
            return;
        }
        if here.last >= until {
            self.give(Lane::Main, Task::LookUp { optime: until });
        } else if self.log.buffered > 0 {
            self.give(Lane::Main, Task::Take { bytes_max: APPLY_BYTES });
        } else if let Some(reason) = self.log.failed.clone() {
            self.fail(reason);
        }
    }

    pub(super) fn catching_up(&mut self, here: Here, task: Task, answer: Answer) {
        match (task, answer) {
            (Task::Take { .. }, Answer::Taken { optimes }) => {
                self.log.buffered = self.log.buffered.saturating_sub(optimes.len());
                self.hand = Hand { optimes, at: 0, singly_until: 0 };
                self.apply_next(here);
                self.end_wait_for_room();
            }
            (Task::PassOver { at }, _) => self.applied_until(here, at + 1),
            (Task::Apply { from, until }, Answer::Applied(attempt)) => match (attempt, self.what) {
                (Attempt::Done, _) => self.applied_until(here, until),
                (Attempt::NotYet, _) => self.pause(Lane::Main, Task::Apply { from, until }, NOT_YET_INTERVAL, None),
                (Attempt::Failed { .. } | Attempt::Passing { .. }, Copying::CollectionOf(_)) if until - from > 1 => {
                    self.hand.singly_until = until;
                    self.give(Lane::Main, Task::Apply { from, until: from + 1 });
                }
                (Attempt::Failed { is_of_collection: true, .. }, Copying::CollectionOf(_)) if self.is_in_copy(from) => {
                    self.give(Lane::Main, Task::PassOver { at: from });
                }
                (Attempt::Failed { reason, .. } | Attempt::Passing { reason }, _) => self.fail(reason),
            },
            (task, answer) => self.misanswered(&task, &answer),
        }
    }

    /// Whether what this entry in hand did is in the collection as it was read. What came later may not be.
    fn is_in_copy(&self, at: usize) -> bool {
        self.hand.optimes.get(at).is_some_and(|optime| *optime <= self.read_after)
    }

    fn applied_until(&mut self, here: Here, until: usize) {
        self.hand.at = until;
        self.apply_next(here);
    }

    /// Applies what may be applied together of what is in hand.
    fn apply_next(&mut self, here: Here) {
        let Hand { optimes, at, singly_until } = &self.hand;
        let (at, singly) = (*at, at < singly_until);
        let left = optimes.get(at..).unwrap_or_default();
        let until_refused = match self.what {
            Copying::Everything => left.len(),
            Copying::CollectionOf(refused) => left.iter().take_while(|optime| **optime != refused).count(),
        };
        match (left.is_empty(), until_refused) {
            (true, _) => {
                self.tell(Progress::Applied(at));
                self.go_on_catching_up(here);
            }
            (false, 0) => self.give(Lane::Main, Task::PassOver { at }),
            (false, _) if singly => self.give(Lane::Main, Task::Apply { from: at, until: at + 1 }),
            (false, entries) => self.give(Lane::Main, Task::Apply { from: at, until: at + entries }),
        }
    }
}
