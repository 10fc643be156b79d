//! Whoever writes memtables out is urgent while so many stand full that one more of them would stop all writes.
//!
//! Memtables are memory that everybody who writes draws on, and a flush gives it back: it holds what writers of every class wait for.
//! By itself it weighs as much as one client, so that where many compute it takes as many times longer: beside 31 clients on one
//! processor 1 to 3 s in place of 0.3, in which the next four were full and nobody wrote for half a second.
//!
//! Invariants:
//! - While [`PRESSING`] memtables of a family are full and not written out, every thread that flushes is as urgent as the high class;
//!   while there are fewer, none is.
//! - It never holds the database: the thread that lets that go last would wait for itself.

use crate::options::MEMTABLES_MAX;
use baton_machine::{Bearer, Loan, bearer};
use baton_types::Class;
use parking_lot::Mutex;
use rust_rocksdb::event_listener::{EventListener, FlushJobInfo, MemTableInfo};
use std::collections::HashMap;
use std::sync::Arc;

/// With one more of a family RocksDB lets nobody write until one is written out.
const PRESSING: usize = MEMTABLES_MAX as usize - 1;

/// Full memtables of each family, by their first sequence numbers.
#[derive(Default)]
struct Full(HashMap<Vec<u8>, Vec<u64>>);

impl Full {
    fn sealed(&mut self, family: Vec<u8>, first: u64) {
        self.0.entry(family).or_default().push(first);
    }

    /// A table of that family has all up to this number.
    fn written(&mut self, family: &[u8], last: u64) {
        if let Some(full) = self.0.get_mut(family) {
            full.retain(|first| *first > last);
        }
    }

    fn are_pressing(&self) -> bool {
        self.0.values().any(|full| full.len() >= PRESSING)
    }
}

#[derive(Default)]
struct State {
    full: Full,
    flushing: Vec<Arc<Bearer>>,
    loans: Vec<Loan>,
}

impl State {
    fn begin(&mut self, flushing: Arc<Bearer>) {
        // Of one that made no table RocksDB does not tell the end.
        self.end(&flushing);
        self.flushing.push(flushing);
    }

    fn end(&mut self, flushing: &Arc<Bearer>) {
        self.flushing.retain(|bearer| bearer.thread() != flushing.thread());
    }

    /// What was lent before, to be given back when nothing is locked any more.
    #[must_use = "it is given back"]
    fn lend(&mut self) -> Vec<Loan> {
        let lent = match self.full.are_pressing() {
            true => self.flushing.iter().filter_map(|bearer| bearer.lend_as(Class::High)).collect(),
            false => Vec::new(),
        };
        std::mem::replace(&mut self.loans, lent)
    }
}

/// See the file's header.
#[derive(Clone, Default)]
pub(crate) struct FullMemtables(Arc<Mutex<State>>);

impl FullMemtables {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        change(&mut state);
        let before = state.lend();
        drop(state);
        drop(before);
    }
}

impl EventListener for FullMemtables {
    fn on_memtable_sealed(&self, info: &MemTableInfo) {
        let Some(family) = info.cf_name().filter(|_| info.num_entries() > 0) else { return };
        self.change(|state| state.full.sealed(family, info.first_seqno()));
    }

    fn on_flush_begin(&self, _: &FlushJobInfo) {
        let own = bearer();
        self.change(|state| state.begin(own));
    }

    fn on_flush_completed(&self, info: &FlushJobInfo) {
        let own = bearer();
        self.change(|state| {
            state.end(&own);
            if let Some(family) = info.cf_name() {
                state.full.written(&family, info.largest_seqno());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_machine::{Right, as_class, niceness, right};

    #[test]
    fn the_last_but_one_presses_until_one_is_written_out() {
        let mut full = Full::default();
        let fill = |full: &mut Full, family: &str, first| full.sealed(family.as_bytes().to_vec(), first);
        for first in [10, 20] {
            fill(&mut full, "oplog", first);
            fill(&mut full, "documents", first + 1);
        }
        assert!(!full.are_pressing(), "of each family there may be as many");
        fill(&mut full, "oplog", 30);
        assert!(full.are_pressing());
        full.written(b"documents", 40);
        assert!(full.are_pressing());
        full.written(b"oplog", 19);
        assert!(!full.are_pressing());
        fill(&mut full, "oplog", 40);
        assert!(full.are_pressing(), "two were left");
    }

    #[test]
    fn whoever_flushes_is_urgent_while_they_press() {
        as_class(Class::Normal);
        let own = niceness();
        let memtables = FullMemtables::default();
        let is_urgent = || niceness() < own;
        let fill = |first| memtables.change(|state| state.full.sealed(b"oplog".to_vec(), first));
        memtables.change(|state| state.begin(bearer()));
        fill(1);
        fill(2);
        assert!(!is_urgent());
        fill(3);
        assert_eq!(is_urgent(), right() != Right::None);
        fill(4);
        memtables.change(|state| state.full.written(b"oplog", 2));
        assert!(!is_urgent());
        // One that begins while they press, and ends.
        memtables.change(|state| state.end(&bearer()));
        fill(5);
        assert!(!is_urgent());
        memtables.change(|state| state.begin(bearer()));
        assert_eq!(is_urgent(), right() != Right::None);
        memtables.change(|state| state.end(&bearer()));
        assert!(!is_urgent());
    }
}
