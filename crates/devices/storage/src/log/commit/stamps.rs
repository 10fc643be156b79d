//! What versions of documents and index entries are stamped with: the timestamp of the entry that made them. But the highest
//! stamp is the newest version, and a rollback leaves versions behind whose stamps may exceed the timestamps of the entries
//! that come next, from another primary. So until the log has passed them, stamps are counted on from the highest given.
//!
//! ```text
//!  log         c   p   q   s        c: a rollback ended here, and what it restored has the stamp 40: a base (10, 40)
//!  timestamps 10  11  12  50
//!  stamps     10  41  42  50        an entry's stamp follows from the base and from the log since then
//! ```
//!
//! Invariants:
//! - Stamps never fall, over a restart neither.
//! - A stamp is its entry's timestamp, unless a rollback left a higher one; the log passes those within a second or two.
//! - The stamp of every entry that may be rolled back to can be told.
//!
//! Only the thread that writes asks for new stamps.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// One second, as timestamps count.
const SECOND: u64 = 1 << 32;

/// Entries after this timestamp were stamped from above this stamp on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Base {
    after: u64,
    stamp: u64,
}

impl Base {
    /// From this timestamp on, it changes no stamp.
    fn reserve(self) -> u64 {
        self.stamp + SECOND
    }
}

/// What is kept of stamps: `set/stamp`, and `set/stamp-bases`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptStamps {
    /// No stamp that differs from its entry's timestamp is as high. No log grows by so many entries before it passes that.
    reserve: u64,
    /// The oldest first.
    bases: Vec<Base>,
}

impl KeptStamps {
    pub fn decode(reserve: Option<&[u8]>, bases: Option<&[u8]>) -> Self {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let base = |pair: &[u8]| Base { after: number(&pair[..8]), stamp: number(&pair[8..]) };
        Self {
            reserve: reserve.map_or(0, number),
            bases: bases.unwrap_or_default().chunks_exact(16).map(base).collect(),
        }
    }

    pub fn reserve_bytes(&self) -> [u8; 8] {
        self.reserve.to_le_bytes()
    }

    pub fn base_bytes(&self) -> Vec<u8> {
        self.bases.iter().flat_map(|base| [base.after, base.stamp]).flat_map(u64::to_le_bytes).collect()
    }

    /// At a start: what is to be kept before anything is written, if the log, whose newest entry this is, has not passed the stamps.
    pub fn at_start(&self, newest: u64) -> Option<Self> {
        // What is committed is not known yet.
        (newest < self.reserve).then(|| self.and_from(newest, self.reserve, 0))
    }

    /// Above every stamp that was given, when nothing has been written since the start.
    pub fn highest(&self, newest: u64) -> u64 {
        newest.max(self.bases.last().map_or(0, |base| base.stamp))
    }

    /// From this timestamp on, stamps are timestamps.
    pub fn settled_from(&self) -> u64 {
        self.reserve
    }

    /// With a base more; those go whose entries are gone, or all of them `committed`: nobody goes back to before that. That the log
    /// has passed their stamps is no reason: another rollback may go back to where it had not.
    fn and_from(&self, after: u64, stamp: u64, committed: u64) -> Self {
        let mut bases = self.bases.clone();
        bases.retain(|base| base.after < after && committed < base.reserve());
        bases.push(Base { after, stamp });
        Self { reserve: Base { after, stamp }.reserve(), bases }
    }
}

pub(super) struct Stamps {
    highest: AtomicU64,
    kept: Mutex<KeptStamps>,
}

impl Stamps {
    /// `newest`: the newest entry's timestamp.
    pub fn new(newest: u64, kept: KeptStamps) -> Self {
        Self { highest: AtomicU64::new(kept.highest(newest)), kept: Mutex::new(kept) }
    }

    /// The stamp of what an entry with this timestamp makes.
    pub fn of(&self, timestamp: u64) -> u64 {
        let stamp = timestamp.max(self.highest() + 1);
        self.highest.store(stamp, Ordering::Relaxed);
        stamp
    }

    /// The highest given.
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// The log ends at this timestamp now, and nobody goes back to before `committed`. What is restored has the highest stamp from
    /// here on; gives what is to be kept.
    pub fn truncated(&self, to: u64, committed: u64) -> KeptStamps {
        let stamp = self.of(0);
        let mut kept = self.kept.lock();
        *kept = kept.and_from(to, stamp, committed);
        kept.clone()
    }

    /// From this timestamp on, stamps are timestamps again.
    pub fn settle_at(&self) -> u64 {
        self.highest() + 2 * SECOND
    }

    /// Tells the stamps of a log's entries, in their order, from one on at which [`Self::needed_from`] is.
    pub fn teller(&self) -> StampTeller {
        StampTeller { bases: self.kept.lock().bases.clone().into_iter().peekable(), highest: 0 }
    }

    /// The timestamp after which the log is needed to tell the stamps of entries that come after `committed`.
    pub fn needed_from(&self, committed: u64) -> Option<u64> {
        let kept = self.kept.lock();
        kept.bases.first().filter(|_| committed < kept.reserve).map(|base| base.after)
    }
}

/// See [`Stamps::teller`].
pub(crate) struct StampTeller {
    bases: std::iter::Peekable<std::vec::IntoIter<Base>>,
    highest: u64,
}

impl StampTeller {
    /// The stamp of the next entry.
    pub fn next(&mut self, timestamp: u64) -> u64 {
        while let Some(base) = self.bases.next_if(|base| base.after < timestamp) {
            self.highest = self.highest.max(base.stamp);
        }
        self.highest = timestamp.max(self.highest + 1);
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(stamps: &Stamps, log: &[u64]) -> Vec<u64> {
        let mut teller = stamps.teller();
        log.iter().map(|entry| teller.next(*entry)).collect()
    }

    #[test]
    fn stamps_are_timestamps_until_a_rollback_and_again_once_the_log_has_passed() {
        let stamps = Stamps::new(10 * SECOND, KeptStamps::default());
        assert_eq!(stamps.of(10 * SECOND + 7), 10 * SECOND + 7);
        // Rolled back to 10 s: the next entries' timestamps begin there again.
        stamps.truncated(10 * SECOND, 0);
        let log = [10 * SECOND + 1, 10 * SECOND + 2, 11 * SECOND + 1];
        let given: Vec<_> = log.iter().map(|entry| stamps.of(*entry)).collect();
        assert_eq!(given, [10 * SECOND + 9, 10 * SECOND + 10, 11 * SECOND + 1]);
        assert!(stamps.settle_at() > stamps.kept.lock().reserve && stamps.kept.lock().reserve > given[1]);
        assert_eq!(told(&stamps, &log), given);
        assert_eq!(told(&stamps, &[10 * SECOND]), [10 * SECOND]);
    }

    /// They began at the same stamp after each start: of a document that was written after two of them, an older version was the newest.
    #[test]
    fn stamps_never_fall_over_restarts_and_those_of_before_can_still_be_told() {
        let stamps = Stamps::new(100 * SECOND, KeptStamps::default());
        let mut kept = stamps.truncated(10 * SECOND, 0);
        let (mut log, mut given) = (vec![10 * SECOND], vec![10 * SECOND]);
        for _ in 0..3 {
            let newest = *log.last().unwrap();
            kept = KeptStamps::decode(Some(&kept.reserve_bytes()), Some(&kept.base_bytes()));
            kept = kept.at_start(newest).unwrap_or(kept);
            let stamps = Stamps::new(newest, kept.clone());
            for _ in 0..3 {
                log.push(log.last().unwrap() + 1);
                given.push(stamps.of(*log.last().unwrap()));
            }
            assert_eq!(told(&stamps, &log), given);
        }
        assert!(given.is_sorted_by(|a, b| a < b));
        // Another rollback, into the middle: what was told of those that are left stays, and of the others is gone.
        let stamps = Stamps::new(*log.last().unwrap(), kept);
        stamps.truncated(log[5], 0);
        log.truncate(6);
        given.truncate(6);
        log.push(log[5] + 1);
        given.push(stamps.of(log[6]));
        assert_eq!(told(&stamps, &log), given);
        // And one to where the log has passed all stamps needs none of that.
        let passed = 200 * SECOND;
        assert_eq!((stamps.needed_from(log[5]), stamps.needed_from(passed)), (Some(10 * SECOND), None));
        assert_eq!(stamps.truncated(passed, passed).bases.len(), 1);
    }

    /// The stamps of an older stretch were forgotten once the log had passed them, though nothing of it was committed: a rollback into it
    /// read documents as of timestamps, at which they were what an entry that is gone had made of them.
    #[test]
    fn the_stamps_of_what_is_not_committed_can_be_told_after_the_log_has_passed_them() {
        let stamps = Stamps::new(20 * SECOND, KeptStamps::default());
        stamps.truncated(10 * SECOND, 0);
        let mut log = vec![11 * SECOND, 12 * SECOND, 100 * SECOND, 101 * SECOND];
        let mut given: Vec<_> = log.iter().map(|entry| stamps.of(*entry)).collect();
        assert_eq!(given[..2], [20 * SECOND + 2, 20 * SECOND + 3]);
        for left in [3, 2] {
            stamps.truncated(log[left - 1], 10 * SECOND);
            log.truncate(left);
            given.truncate(left);
            assert_eq!(stamps.needed_from(log[left - 1]), Some(10 * SECOND));
            assert_eq!(told(&stamps, &log), given);
        }
        // All of it committed: of the older stretches nothing is kept.
        assert_eq!(stamps.truncated(log[1], 22 * SECOND).bases.len(), 1);
    }

    #[test]
    fn a_start_whose_log_has_passed_the_stamps_keeps_nothing_new() {
        let kept = Stamps::new(100 * SECOND, KeptStamps::default()).truncated(10 * SECOND, 0);
        assert_eq!(kept.at_start(200 * SECOND), None);
        assert_eq!(Stamps::new(200 * SECOND, kept).highest(), 200 * SECOND);
        let none = KeptStamps::decode(None, None);
        assert_eq!((none.at_start(0), none.highest(7), none.settled_from()), (None, 7, 0));
    }
}
