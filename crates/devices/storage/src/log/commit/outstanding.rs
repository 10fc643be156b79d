//! How much of this member's own log no majority has yet, the urgent entries left out: what an urgent entry may have to follow to other
//! members.
//!
//! It is known to a few kilobytes, from the entries' bytes, and only while somebody follows the log; normal class and what is below it each
//! for themselves.
//!
//! Invariant: what is counted is taken off once the commit point is past it, whatever became of it.

use baton_types::Class;
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
    normal: Grains,
    lower: Grains,
}

impl Outstanding {
    /// So many bytes of that class, the last of them in the entry with this timestamp or before it.
    pub fn add(&self, class: Class, bytes: usize, last: u64) {
        match class {
            Class::High => {}
            Class::Normal => self.normal.add(bytes, last),
            Class::Low | Class::Background => self.lower.add(bytes, last),
        }
    }

    /// The set has committed all up to there.
    pub fn committed(&self, until: u64) {
        self.normal.committed(until);
        self.lower.committed(until);
    }

    /// How much it is now of those classes that one of this class may be kept waiting by: its own, and higher ones.
    pub fn bytes_before(&self, class: Class) -> usize {
        match class {
            Class::High => 0,
            Class::Normal => self.normal.bytes(),
            Class::Low | Class::Background => self.normal.bytes() + self.lower.bytes(),
        }
    }
}

/// Of some entries.
#[derive(Debug, Default)]
struct Grains {
    /// Each with the timestamp of its last entry.
    grains: Mutex<VecDeque<(u64, usize)>>,
    bytes: AtomicUsize,
}

impl Grains {
    fn add(&self, bytes: usize, last: u64) {
        let mut grains = self.grains.lock();
        let is_full = grains.len() >= GRAINS_MAX;
        match grains.back_mut() {
            Some(grain) if is_full || grain.1 + bytes <= GRAIN_BYTES => *grain = (last, grain.1 + bytes),
            _ => grains.push_back((last, bytes)),
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn committed(&self, until: u64) {
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

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_outstanding_no_more() {
        let grains = Grains::default();
        grains.add(3000, 1);
        grains.add(1000, 2);
        grains.add(5000, 3);
        assert_eq!(grains.bytes(), 9000);
        grains.committed(1);
        assert_eq!(grains.bytes(), 9000, "the first two are one grain");
        grains.committed(2);
        assert_eq!(grains.bytes(), 5000);
        grains.committed(9);
        assert_eq!(grains.bytes(), 0);
    }

    #[test]
    fn nobody_is_kept_waiting_by_a_lower_class() {
        let outstanding = Outstanding::default();
        for (n, class) in [Class::Low, Class::Background, Class::Normal, Class::High].into_iter().enumerate() {
            outstanding.add(class, 5000, n as u64);
        }
        let before =
            [Class::High, Class::Normal, Class::Low, Class::Background].map(|class| outstanding.bytes_before(class));
        assert_eq!(before, [0, 5000, 15_000, 15_000]);
        outstanding.committed(1);
        assert_eq!(outstanding.bytes_before(Class::Low), 5000);
        outstanding.committed(3);
        assert_eq!(outstanding.bytes_before(Class::Low), 0);
    }

    #[test]
    fn however_long_nothing_is_committed_little_is_kept() {
        let grains = Grains::default();
        (1..=2 * GRAINS_MAX as u64).for_each(|at| grains.add(GRAIN_BYTES, at));
        assert_eq!(grains.grains.lock().len(), GRAINS_MAX);
        assert_eq!(grains.bytes(), 2 * GRAINS_MAX * GRAIN_BYTES);
        grains.committed(2 * GRAINS_MAX as u64);
        assert_eq!(grains.bytes(), 0);
    }
}
