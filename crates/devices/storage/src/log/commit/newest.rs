//! The newest entries of the log in memory, for those who follow it: a batch of a few entries costs them no iterator.
//!
//! Invariants: what is kept is the log's end without a gap: all entries after `before`. An entry is kept before it is readable, so
//! who knows that a position is readable finds here all up to it, or is told to look on disk. Nothing is kept while nobody follows.

use crate::log::oplog;
use bson::RawDocument;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are kept, at most: well over what comes while a follower sends what it has.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Entries that are given at once, at most: the committing thread waits meanwhile.
const GIVEN_MAX: usize = 256;

/// An entry as it is on disk.
pub type SharedEntry = Arc<Vec<u8>>;

struct Kept {
    /// The timestamp of the last entry that is not kept.
    before: u64,
    entries: VecDeque<(u64, SharedEntry)>,
    bytes: usize,
}

/// See the file's header.
pub(super) struct NewestEntries {
    followers: AtomicUsize,
    kept: Mutex<Kept>,
}

impl NewestEntries {
    /// Of a log that ends at this timestamp.
    pub fn new(end: u64) -> Self {
        let kept = Kept { before: end, entries: VecDeque::new(), bytes: 0 };
        Self { followers: AtomicUsize::new(0), kept: Mutex::new(kept) }
    }

    /// Somebody begins to follow.
    pub fn follow(&self) {
        self.followers.fetch_add(1, Ordering::SeqCst);
    }

    /// Somebody follows no more.
    pub fn leave(&self) {
        self.followers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody does.
    pub fn is_followed(&self) -> bool {
        self.followers.load(Ordering::SeqCst) > 0
    }

    /// Adds the entries that follow the last ones, and of which the last has this timestamp.
    pub fn extend(&self, entries: impl Iterator<Item = Vec<u8>>, end: u64) {
        let mut kept = self.kept.lock();
        if !self.is_followed() {
            kept.forget_all(end);
            return;
        }
        for entry in entries {
            let optime = RawDocument::from_bytes(&entry).ok().and_then(oplog::optime_of);
            let optime = optime.unwrap_or_else(|| unreachable!("given when it was written"));
            kept.bytes += entry.len();
            kept.entries.push_back((optime.timestamp.as_u64(), Arc::new(entry)));
        }
        while kept.bytes > KEPT_BYTES_MAX
            && let Some((timestamp, oldest)) = kept.entries.pop_front()
        {
            kept.bytes -= oldest.len();
            kept.before = timestamp;
        }
    }

    /// Forgets everything: the log ends here now, whatever it held before.
    pub fn restart(&self, end: u64) {
        self.kept.lock().forget_all(end);
    }

    /// The first entries with timestamps from the one to the other; `None` if some of them may be on disk only.
    pub fn range(&self, from: u64, to: u64) -> Option<Vec<(u64, SharedEntry)>> {
        let kept = self.kept.lock();
        if from <= kept.before {
            return None;
        }
        let first = kept.entries.partition_point(|(timestamp, _)| *timestamp < from);
        let readable = kept.entries.range(first..).take_while(|(timestamp, _)| *timestamp <= to);
        Some(readable.take(GIVEN_MAX).cloned().collect())
    }
}

impl Kept {
    fn forget_all(&mut self, end: u64) {
        self.before = end;
        self.entries.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Timestamp, rawdoc};

    fn entry(at: u32, size: usize) -> Vec<u8> {
        rawdoc! { "o": "x".repeat(size), "ts": Timestamp { time: 0, increment: at }, "t": 1_i64 }.into_bytes()
    }

    fn extend(newest: &NewestEntries, sizes: &[(u32, usize)]) {
        let end = sizes.last().map_or(0, |(at, _)| u64::from(*at));
        newest.extend(sizes.iter().map(|(at, size)| entry(*at, *size)), end);
    }

    fn range(newest: &NewestEntries, from: u64, to: u64) -> Option<Vec<u64>> {
        newest.range(from, to).map(|entries| entries.iter().map(|(at, _)| *at).collect())
    }

    #[test]
    fn followers_find_what_came_since_they_follow() {
        let newest = NewestEntries::new(5);
        extend(&newest, &[(6, 1)]);
        newest.follow();
        assert_eq!(range(&newest, 6, 9), None, "written while nobody followed");
        assert_eq!(range(&newest, 7, 9), Some(vec![]));
        extend(&newest, &[(7, 1), (9, 1)]);
        assert_eq!(range(&newest, 7, 9), Some(vec![7, 9]));
        assert_eq!(range(&newest, 8, 9), Some(vec![9]));
        assert_eq!(range(&newest, 7, 8), Some(vec![7]), "what is not readable yet is not given");
        newest.leave();
        extend(&newest, &[(10, 1)]);
        assert_eq!(range(&newest, 9, 10), None);
        assert_eq!(range(&newest, 11, 11), Some(vec![]));
    }

    #[test]
    fn what_is_too_much_is_on_disk_only() {
        let newest = NewestEntries::new(0);
        newest.follow();
        extend(&newest, &[(1, KEPT_BYTES_MAX / 2), (2, 1), (3, KEPT_BYTES_MAX / 2)]);
        assert_eq!(range(&newest, 1, 3), None);
        assert_eq!(range(&newest, 2, 3), Some(vec![2, 3]));
        extend(&newest, &[(4, KEPT_BYTES_MAX)]);
        assert_eq!(range(&newest, 4, 4), None, "an entry larger than all that is kept");
        assert_eq!(range(&newest, 5, 5), Some(vec![]));
        assert_eq!(newest.kept.lock().bytes, 0);
    }

    #[test]
    fn many_entries_are_given_a_part_at_a_time() {
        let newest = NewestEntries::new(0);
        newest.follow();
        let all: Vec<(u32, usize)> = (1..=GIVEN_MAX as u32 + 2).map(|at| (at, 1)).collect();
        extend(&newest, &all);
        assert_eq!(range(&newest, 1, u64::MAX).map(|part| part.len()), Some(GIVEN_MAX));
        assert_eq!(range(&newest, GIVEN_MAX as u64 + 1, u64::MAX).map(|part| part.len()), Some(2));
    }

    #[test]
    fn after_a_truncation_nothing_is_known_of_what_was_before() {
        let newest = NewestEntries::new(0);
        newest.follow();
        extend(&newest, &[(1, 1), (2, 1), (3, 1)]);
        newest.restart(1);
        assert_eq!(range(&newest, 1, 3), None);
        assert_eq!(range(&newest, 2, 3), Some(vec![]));
    }
}
