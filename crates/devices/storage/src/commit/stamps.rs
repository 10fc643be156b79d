//! What versions of documents and index entries are stamped with: the timestamp of the entry that made them. But the highest
//! stamp is the newest version, and a rollback leaves versions behind whose stamps may exceed the timestamps of the entries
//! that come next, from another primary. So until the log has passed them, stamps are counted on from the highest given.
//!
//! Invariants:
//! - Stamps never fall, over a restart neither.
//! - A stamp is its entry's timestamp, unless a rollback left a higher one; the log passes those within a second or two.
//!
//! Only the thread that writes asks for stamps.

use std::sync::atomic::{AtomicU64, Ordering};

/// One second, as timestamps count.
const SECOND: u64 = 1 << 32;

pub(super) struct Stamps(AtomicU64);

impl Stamps {
    /// `highest`: what was kept of [`Self::reserve`], or the newest entry's timestamp.
    pub fn new(highest: u64) -> Self {
        Self(AtomicU64::new(highest))
    }

    /// The stamp of what an entry with this timestamp makes.
    pub fn of(&self, timestamp: u64) -> u64 {
        let stamp = timestamp.max(self.0.load(Ordering::Relaxed) + 1);
        self.0.store(stamp, Ordering::Relaxed);
        stamp
    }

    /// The highest given.
    pub fn highest(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A stamp that all will exceed after a restart: no log grows by so many entries before it passes them.
    pub fn reserve(&self) -> u64 {
        self.highest() + SECOND
    }

    /// From this timestamp on, stamps are timestamps again.
    pub fn settle_at(&self) -> u64 {
        self.highest() + 2 * SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_timestamps_until_a_rollback_and_again_once_the_log_has_passed() {
        let stamps = Stamps::new(10 * SECOND);
        assert_eq!(stamps.of(10 * SECOND + 7), 10 * SECOND + 7);
        // Rolled back to 10 s: the next entries' timestamps begin there again.
        assert_eq!(stamps.of(10 * SECOND + 1), 10 * SECOND + 8);
        assert_eq!(stamps.of(10 * SECOND + 2), 10 * SECOND + 9);
        assert_eq!(stamps.of(11 * SECOND + 1), 11 * SECOND + 1);
        assert!(stamps.reserve() > stamps.highest() && stamps.settle_at() > stamps.reserve());
    }
}
