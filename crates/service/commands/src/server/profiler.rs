//! What counts as slow, and which databases keep a profile.
//!
//! Invariant: with no database profiled, deciding costs a comparison.
//! What it deliberately does not do: write the log line or the profile's document; the dispatcher does.

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The profiler's settings.
pub struct Profiler {
    /// Milliseconds from which on an operation is slow; for all databases, as in mongod.
    slow_ms: AtomicI64,
    /// The share of slow operations that is logged, as a double's bits.
    sample_rate: AtomicU64,
    level_default: i32,
    levels: RwLock<BTreeMap<String, i32>>,
    profiled: AtomicUsize,
}

/// What to do with an operation that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Write a line to the log.
    pub log: bool,
    /// Keep it in the database's profile.
    pub profile: bool,
}

impl Profiler {
    /// With the limit and the level from the command line.
    pub fn new(slow_ms: i64, level: i32) -> Self {
        Self {
            slow_ms: AtomicI64::new(slow_ms),
            sample_rate: AtomicU64::new(1f64.to_bits()),
            level_default: level,
            levels: RwLock::default(),
            profiled: AtomicUsize::new(usize::from(level > 0)),
        }
    }

    /// Level, limit in milliseconds, sample rate of a database.
    pub fn settings(&self, db: &str) -> (i32, i64, f64) {
        let level = self.levels.read().get(db).copied().unwrap_or(self.level_default);
        (level, self.slow_ms.load(Relaxed), f64::from_bits(self.sample_rate.load(Relaxed)))
    }

    /// Changes a database's level.
    pub fn set_level(&self, db: &str, level: i32) {
        let mut levels = self.levels.write();
        levels.insert(db.to_owned(), level);
        let profiled = levels.values().filter(|l| **l > 0).count() + usize::from(self.level_default > 0);
        self.profiled.store(profiled, Relaxed);
    }

    /// Changes the limit.
    pub fn set_slow_ms(&self, slow_ms: i64) {
        self.slow_ms.store(slow_ms, Relaxed);
    }

    /// Changes the share that is logged.
    pub fn set_sample_rate(&self, rate: f64) {
        self.sample_rate.store(rate.to_bits(), Relaxed);
    }

    /// Whether any database keeps a profile.
    pub fn is_active(&self) -> bool {
        self.profiled.load(Relaxed) > 0
    }

    /// What to do with an operation on `db` that took `time`.
    pub fn judge(&self, db: &str, time: Duration) -> Verdict {
        let limit = self.slow_ms.load(Relaxed);
        let slow = limit >= 0 && time.as_millis() as i64 >= limit;
        if self.profiled.load(Relaxed) == 0 && !slow {
            return Verdict { log: false, profile: false };
        }
        let rate = f64::from_bits(self.sample_rate.load(Relaxed));
        let sampled = slow && (rate >= 1.0 || rand::random::<f64>() < rate);
        let level = self.levels.read().get(db).copied().unwrap_or(self.level_default);
        Verdict { log: sampled, profile: level >= 2 || (level == 1 && sampled) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_1_keeps_what_is_slow_and_level_2_everything() {
        let profiler = Profiler::new(100, 0);
        let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(100));
        assert_eq!(profiler.judge("a", fast), Verdict { log: false, profile: false });
        assert_eq!(profiler.judge("a", slow), Verdict { log: true, profile: false });
        profiler.set_level("a", 1);
        assert_eq!(profiler.judge("a", fast), Verdict { log: false, profile: false });
        assert_eq!(profiler.judge("a", slow), Verdict { log: true, profile: true });
        profiler.set_level("b", 2);
        assert_eq!(profiler.judge("b", fast), Verdict { log: false, profile: true });
        profiler.set_sample_rate(0.0);
        assert_eq!(profiler.judge("a", slow), Verdict { log: false, profile: false });
    }
}
