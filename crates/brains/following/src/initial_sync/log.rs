//! Reading the source's log into the buffer, from the entry on at which the copy begins.
//!
//! Invariant: what is in the buffer follows that entry without a gap.
//!
//! Not here: the buffer, and how much it holds (the machinery).

use super::lanes::{PATIENCE, TRY_AGAIN};
use super::{Answer, Fault, FaultKind, InitialSync, Lane, Progress, Task};
use crate::mutant::Mutant;
use crate::step::Here;
use baton_consensus::Moment;
use baton_types::OpTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a batch may take. A source that has nothing says so after 5 s.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// How far the reading is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct LogReading {
    /// The last entry that is kept.
    newest: OpTime,
    /// The batch that came last.
    batch: Vec<OpTime>,
    /// So many of it are kept, or need not be.
    kept: usize,
    /// More can be asked for behind it.
    is_open: bool,
    /// A stream that is lost is opened again until then.
    patient_until: Moment,
    /// Entries in the buffer.
    pub buffered: usize,
    /// Why no more will come.
    pub failed: Option<String>,
}

impl InitialSync {
    pub(super) fn open_log(&mut self, after: OpTime) {
        self.log.newest = after;
        self.log.patient_until = self.now + PATIENCE;
        self.give(Lane::Log, Task::Open { after, within: READ_WITHIN });
    }

    pub(super) fn log_lane(&mut self, here: Here, task: Task, answer: Answer) {
        match (task, answer) {
            (Task::Open { after, .. }, Answer::LogRead { optimes, is_open }) => {
                if optimes.first() == Some(&after) || self.is_mutant(Mutant::LeavesAGapInTheCopiedLog) {
                    self.keep(here, optimes, 1, is_open);
                } else {
                    let reason = format!("the source's log has no entry {after} any more, at which the copy is");
                    self.log_failed(here, reason);
                }
            }
            (Task::ReadLog { .. }, Answer::LogRead { optimes, is_open }) => self.keep(here, optimes, 0, is_open),
            (Task::Keep { from }, Answer::Kept { until }) => self.kept(here, from, until),
            (task, answer) => self.misanswered(&task, &answer),
        }
    }

    fn keep(&mut self, here: Here, batch: Vec<OpTime>, from: usize, is_open: bool) {
        (self.log.batch, self.log.kept, self.log.is_open) = (batch, from, is_open);
        self.keep_on(here);
    }

    fn keep_on(&mut self, here: Here) {
        let from = self.log.kept;
        if from < self.log.batch.len() {
            self.give(Lane::Log, Task::Keep { from });
        } else if self.log.is_open {
            self.give(Lane::Log, Task::ReadLog { within: READ_WITHIN });
        } else {
            let reason = "the sync source does not answer: it closed the cursor on its log".to_owned();
            self.log_lost(here, Fault { kind: FaultKind::Lost, reason });
        }
    }

    fn kept(&mut self, here: Here, from: usize, until: usize) {
        if let Some(last) = self.log.batch.get(from..until).and_then(<[OpTime]>::last) {
            self.log.newest = *last;
            self.log.patient_until = self.now + PATIENCE;
        }
        self.log.buffered += until.saturating_sub(from);
        self.log.kept = until;
        if until < self.log.batch.len() {
            self.await_room(Task::Keep { from: until });
        } else {
            self.keep_on(here);
        }
        self.go_on_catching_up(here);
    }

    /// The stream is lost. It is opened again for a while, at the last entry that is kept.
    pub(super) fn log_lost(&mut self, here: Here, fault: Fault) {
        self.release(Lane::Log);
        let may_answer = matches!(fault.kind, FaultKind::Lost | FaultKind::Forgotten);
        if may_answer && self.now < self.log.patient_until {
            self.tell(Progress::Retried);
            let open = Task::Open { after: self.log.newest, within: READ_WITHIN };
            self.pause(Lane::Log, open, TRY_AGAIN, Some(fault.reason));
        } else {
            self.log_failed(here, fault.reason);
        }
    }

    /// No more will come. What is in the buffer may be enough.
    fn log_failed(&mut self, here: Here, reason: String) {
        self.log.failed = Some(reason);
        self.go_on_catching_up(here);
    }
}
