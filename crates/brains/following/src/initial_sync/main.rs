//! The main lane: from connecting to the end. Which way is taken, and what comes after what.

use super::{Answer, HoldPoint, InitialSync, Lane, Method, Piece, Progress, Task};
use crate::mutant::Mutant;
use crate::step::{Copying, Here};
use baton_types::OpTime;

/// Statements of retryable writes are taken over from this much of the source's log: longer ago than any driver tries again.
const STATEMENTS_SECS: u32 = 120;

impl InitialSync {
    /// The main lane has done a task, and goes on to the next.
    pub(super) fn main_lane(&mut self, here: Here, task: Task, answer: Answer) {
        match (task, answer) {
            (Task::Connect { .. }, Answer::Connected(settings)) => {
                self.settings = settings;
                self.give(Lane::Main, Task::AskRollbackId);
            }
            (Task::AskRollbackId, Answer::RollbackId(id)) => match self.until {
                None => {
                    self.rollback_id = id;
                    self.tell(Progress::RollbackId(id));
                    self.give(Lane::Main, Task::AskNewest);
                }
                Some(_) if id == self.rollback_id || self.is_mutant(Mutant::TrustsARolledBackSource) => {
                    self.give(Lane::Main, Task::EndClone);
                }
                Some(_) => self.fail_for_rollback(),
            },
            (Task::AskNewest, Answer::Newest(newest)) => match (self.from == OpTime::ZERO, self.what) {
                (true, Copying::Everything) if self.is_behind(here, newest) => {
                    self.fail("the source does not have all that this member had".to_owned());
                }
                (true, Copying::Everything) => self.choose_method(newest),
                (true, Copying::CollectionOf(refused)) => self.begin_collection(here, refused, newest),
                (false, _) => self.begin_catching_up(here, newest),
            },
            (Task::AskBytes, Answer::Bytes(bytes)) => match self.settings.method {
                Method::Auto { file_bytes_min } if bytes < file_bytes_min => self.give(Lane::Main, Task::BeginClone),
                Method::Auto { .. } | Method::File => self.begin_files(),
                Method::Cloning => self.give(Lane::Main, Task::BeginClone),
            },
            (Task::BeginClone, _) => {
                self.open_log(self.from);
                self.give(Lane::Main, Task::CopyStatements { until: self.from, secs: STATEMENTS_SECS });
            }
            (Task::CopyStatements { .. }, _) => self.give(Lane::Main, Task::BeginLog),
            (Task::BeginLog, _) => self.give(Lane::Main, Task::Hold(HoldPoint::BeforeCopying)),
            (Task::Hold(HoldPoint::BeforeCopying) | Task::DropOwn, _) => {
                self.give(Lane::Main, Task::List(self.what));
            }
            (Task::List(_), Answer::Listed(listed)) => {
                self.pieces = listed.iter().map(|listed| Piece { bytes: 0, is_capped: listed.is_capped }).collect();
                self.measure_from(0);
            }
            (Task::Measure { place }, Answer::Bytes(bytes)) => {
                if let Some(piece) = self.pieces.get_mut(place) {
                    piece.bytes = bytes;
                }
                self.measure_from(place + 1);
            }
            (Task::CreateViews, _) => self.give(Lane::Main, Task::Sync),
            (Task::Sync, _) => match self.what {
                Copying::Everything => self.give(Lane::Main, Task::Hold(HoldPoint::AfterCopying)),
                Copying::CollectionOf(_) => self.give(Lane::Main, Task::AskNewest),
            },
            (Task::Hold(HoldPoint::AfterCopying), _) if self.by_file => self.give(Lane::Main, Task::Arrive),
            (Task::Hold(HoldPoint::AfterCopying), _) => self.give(Lane::Main, Task::AskNewest),
            (Task::LookUp { .. }, Answer::Found(true)) => self.give(Lane::Main, Task::AskRollbackId),
            (Task::LookUp { .. }, _) => self.fail_for_rollback(),
            (Task::EndClone, _) => self.end_with(Ok(())),
            (Task::BeginCheckpoint, Answer::Checkpoint { newest, .. }) if self.is_behind(here, newest) => {
                self.has_checkpoint = true;
                self.fail("the source's checkpoint does not have all that this member had".to_owned());
            }
            (Task::BeginCheckpoint, Answer::Checkpoint { file_bytes, .. }) => {
                self.has_checkpoint = true;
                self.pieces = file_bytes.into_iter().map(|bytes| Piece { bytes, is_capped: false }).collect();
                self.give(Lane::Main, Task::BeginIncoming);
            }
            (Task::BeginIncoming, _) => {
                self.has_files = true;
                self.tell(Progress::Files { bytes: self.pieces.iter().map(|piece| piece.bytes).sum() });
                self.begin_copiers();
            }
            (Task::EndCheckpoint, _) => {
                self.has_checkpoint = false;
                self.give(Lane::Main, Task::Hold(HoldPoint::AfterCopying));
            }
            (Task::Arrive, _) => {
                self.has_files = false;
                self.give(Lane::Main, Task::Restart);
            }
            (Task::Restart, _) => self.fail("the process could not start itself anew".to_owned()),
            (task @ (Task::Take { .. } | Task::Apply { .. } | Task::PassOver { .. }), answer) => {
                self.catching_up(here, task, answer);
            }
            (
                task @ (Task::Create { .. }
                | Task::AskIndexes { .. }
                | Task::BuildIndexes { .. }
                | Task::Read { .. }
                | Task::Drop { .. }),
                answer,
            ) => self.copier_lane(Lane::Main, task, &answer),
            (task, answer) => self.misanswered(&task, &answer),
        }
    }

    /// A driver's fault: nothing follows from an answer to another question.
    pub(super) fn misanswered(&mut self, task: &Task, answer: &Answer) {
        // Batches and lists of files are long; which answer it was says enough, and the recording has all of it.
        let whole = format!("{answer:?}");
        let kind = whole.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        self.fail(format!("{task:?} was answered with {kind}"));
    }

    /// Whether a log that ends there may lack what this member counted for, or knows to be committed.
    fn is_behind(&self, here: Here, newest: OpTime) -> bool {
        newest < self.given_up || newest.timestamp < here.committed
    }

    fn fail_for_rollback(&mut self) {
        self.fail("the source has rolled back what may be in the copy".to_owned());
    }

    fn choose_method(&mut self, newest: OpTime) {
        self.begin_at(newest);
        match (self.settings.method, self.settings.can_restart) {
            (Method::Cloning, _) | (Method::Auto { .. }, false) => self.give(Lane::Main, Task::BeginClone),
            (Method::Auto { .. }, true) => self.give(Lane::Main, Task::AskBytes),
            (Method::File, true) => self.begin_files(),
            (Method::File, false) => {
                self.fail("this process cannot start itself anew, which a copy by file takes".to_owned());
            }
        }
    }

    fn begin_at(&mut self, from: OpTime) {
        self.from = from;
        self.tell(Progress::From(from));
    }

    fn begin_files(&mut self) {
        self.by_file = true;
        self.give(Lane::Main, Task::BeginCheckpoint);
    }

    fn begin_collection(&mut self, here: Here, refused: OpTime, newest: OpTime) {
        if newest < refused {
            self.fail("the source does not have the entry that cannot be applied".to_owned());
            return;
        }
        self.read_after = newest;
        self.begin_at(here.last);
        self.open_log(here.last);
        self.give(Lane::Main, Task::DropOwn);
    }

    /// Asks how large each collection is, from this one on; then copies them.
    fn measure_from(&mut self, place: usize) {
        if place < self.pieces.len() {
            self.give(Lane::Main, Task::Measure { place });
        } else {
            self.begin_copiers();
        }
    }
}
