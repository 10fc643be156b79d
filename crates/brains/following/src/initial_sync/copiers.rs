//! The copiers: collection after collection, file after file, the largest first, so that none of them is left for the end.
//!
//! One collection alone is copied by the main lane.

use super::{Answer, InitialSync, Lane, Progress, ReadFrom, Task};
use crate::step::Copying;

/// How often a part that came damaged is asked for.
const TRIES_MAX: u32 = 5;
/// Bytes of one part. It passes through several buffers on its way from disk to disk, which are to stay in a processor's cache: of
/// parts of 8 MB each copy costs 2.5 times as much.
const PART_BYTES: u64 = 512 << 10;

impl InitialSync {
    pub(super) fn begin_copiers(&mut self) {
        let mut order: Vec<usize> = (0..self.pieces.len()).collect();
        order.sort_by_key(|place| std::cmp::Reverse(self.pieces[*place].bytes));
        self.pieces = order.iter().map(|place| self.pieces[*place]).collect();
        self.tell(Progress::Ordered(order));
        if self.pieces.is_empty() {
            self.end_pieces();
        } else if let Copying::CollectionOf(_) = self.what {
            self.begin_piece(Lane::Main);
        } else {
            for copier in 0..self.settings.copiers.clamp(1, self.pieces.len()) {
                self.give(Lane::Copier(copier), Task::Connect { clones: !self.by_file });
            }
        }
    }

    /// A lane turns to the next piece; if there is none, and nobody has one, all of them are here.
    fn begin_piece(&mut self, lane: Lane) {
        let place = self.next_piece;
        if place < self.pieces.len() {
            self.next_piece += 1;
            if self.by_file {
                self.give(lane, Task::CreateFile { place });
            } else {
                self.tell(Progress::CollectionBegun(place));
                self.give(lane, Task::Create { place, again: false });
            }
        } else if !self.has_copiers() {
            self.end_pieces();
        }
    }

    fn end_pieces(&mut self) {
        let task = match self.what {
            Copying::Everything if self.by_file => Task::EndCheckpoint,
            Copying::Everything => Task::CreateViews,
            Copying::CollectionOf(_) => Task::Sync,
        };
        self.give(Lane::Main, task);
    }

    /// A collection is copied, as far as the source has it.
    pub(super) fn end_piece(&mut self, lane: Lane, place: usize) {
        self.tell(Progress::CollectionEnded(place));
        self.begin_piece(lane);
    }

    /// A lane that copies has done a task, and goes on to the next.
    pub(super) fn copier_lane(&mut self, lane: Lane, task: Task, answer: &Answer) {
        match (task, answer) {
            (Task::Connect { .. }, _) => self.begin_piece(lane),
            (Task::Create { place, again: false }, _) => self.give(lane, Task::AskIndexes { place }),
            (Task::Create { place, again: true } | Task::AskIndexes { place }, _) => {
                self.give(lane, Task::BuildIndexes { place });
            }
            (Task::BuildIndexes { place }, _) => self.give(lane, Task::Read { place, from: ReadFrom::Start }),
            (Task::Read { place, .. }, Answer::Batch { is_last: false }) => {
                self.give(lane, Task::Read { place, from: ReadFrom::Cursor });
            }
            (Task::Read { place, .. }, Answer::Batch { is_last: true }) => self.end_piece(lane, place),
            (Task::Drop { place }, _) => {
                self.tell(Progress::CollectionEmptied(place));
                self.give(lane, Task::Create { place, again: true });
            }
            (Task::CreateFile { place }, _) => self.read_part(lane, place, 0, 0),
            (Task::ReadPart { place, offset, damaged, .. }, Answer::Part { bytes }) => {
                self.read_part(lane, place, offset + bytes, damaged);
            }
            (Task::ReadPart { damaged, .. }, Answer::Damaged { file }) if damaged + 1 >= TRIES_MAX => {
                self.fail(format!("{file} comes damaged"));
            }
            (Task::ReadPart { place, offset, damaged, .. }, Answer::Damaged { .. }) => {
                self.read_part(lane, place, offset, damaged + 1);
            }
            (Task::FinishFile { .. }, _) => self.begin_piece(lane),
            (task, answer) => self.misanswered(&task, answer),
        }
    }

    fn read_part(&mut self, lane: Lane, place: usize, offset: u64, damaged: u32) {
        if self.pieces.get(place).is_some_and(|piece| offset < piece.bytes) {
            self.give(lane, Task::ReadPart { place, offset, bytes_max: PART_BYTES, damaged });
        } else {
            self.give(lane, Task::FinishFile { place });
        }
    }
}
