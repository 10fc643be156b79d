//! How much of this member's own log no majority has yet, the urgent entries left out: what an urgent entry may have to follow to other
//! members.
//!
//! It is known to a few kilobytes, from the entries' bytes, and only while somebody follows the log.
//!
//! Invariant: what is counted is taken off once the commit point is past it, whatever became of it.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is written together, or one after the other, is taken off together, up to so many bytes.
const GRAIN_BYTES: usize = 4 * 1024;
/// Grains that are kept, at most. Where more is outstanding they are coarser.
const GRAINS_MAX: usize = 4096;

/// See the file's header.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// Each with the timestamp of its last entry.
    grains: Mutex<VecDeque<(u64, usize)>>,
    bytes: AtomicUsize,
}

impl Outstanding {
    /// So many bytes, the last of them in the entry with this timestamp.
    pub fn add(&self, bytes: usize, last: u64) {
        let mut grains = self.grains.lock();
        let is_full = grains.len() >= GRAINS_MAX;
        match grains.back_mut() {
            Some(grain) if is_full || grain.1 + bytes <= GRAIN_BYTES => *grain = (last, grain.1 + bytes),
            _ => grains.push_back((last, bytes)),
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The set has committed all up to there.
    pub fn committed(&self, until: u64) {
        if self.bytes() == 0 {
            return;
        }
        let mut grains = self.grains.lock();
        while let Some((last, bytes)) = grains.front().copied()
            && last <= until
        {
            grains.pop_front();
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// How much it is now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_outstanding_no_more() {
        let outstanding = Outstanding::default();
        outstanding.add(3000, 1);
        outstanding.add(1000, 2);
        outstanding.add(5000, 3);
        assert_eq!(outstanding.bytes(), 9000);
        outstanding.committed(1);
        assert_eq!(outstanding.bytes(), 9000, "the first two are one grain");
        outstanding.committed(2);
        assert_eq!(outstanding.bytes(), 5000);
        outstanding.committed(9);
        assert_eq!(outstanding.bytes(), 0);
    }

    #[test]
    fn however_long_nothing_is_committed_little_is_kept() {
        let outstanding = Outstanding::default();
        (1..=2 * GRAINS_MAX as u64).for_each(|at| outstanding.add(GRAIN_BYTES, at));
        assert_eq!(outstanding.grains.lock().len(), GRAINS_MAX);
        assert_eq!(outstanding.bytes(), 2 * GRAINS_MAX * GRAIN_BYTES);
        outstanding.committed(2 * GRAINS_MAX as u64);
        assert_eq!(outstanding.bytes(), 0);
    }
}
