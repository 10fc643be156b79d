//! How fast compactions go on while urgent writes come: their part of the disk yields to those.
//!
//! What a compaction writes at once stands in front of the next sync of the log. RocksDB's own limiter follows what it is asked for, and cannot
//! be told another rate through its C interface; so compactions are held back on their own threads, by a filter that is shown the newest
//! entry of each key and keeps it.
//!
//! Invariants:
//! - Nothing is changed or dropped by it.
//! - Only while urgent writes come, and only where compactions are not behind: a client never waits for one that was held back here.
//! - A rest is short: who stops the member, or ends a compaction, does not wait for it.

use rust_rocksdb::CompactionDecision;
use rust_rocksdb::compaction_filter::CompactionFilter;
use rust_rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What each compaction takes in of such entries, in bytes a second, while it yields: beside that a sync takes no longer than alone
/// (docs/spikes/background-writes.md).
const YIELDING_BYTES_PER_SEC: f64 = (32 << 20) as f64;
/// After so many bytes it is seen whether to rest.
const PIECE_BYTES: usize = 64 << 10;
/// The longest rest.
const REST_MAX: Duration = Duration::from_millis(20);

/// Whether compactions yield now. Shared by all of them.
#[derive(Debug, Default)]
pub(crate) struct CompactionPace {
    yields: AtomicBool,
}

impl CompactionPace {
    /// From now on compactions yield, or do not.
    pub fn set(&self, yields: bool) {
        self.yields.store(yields, Ordering::Relaxed);
    }

    fn yields(&self) -> bool {
        self.yields.load(Ordering::Relaxed)
    }
}

/// Gives each compaction a filter of its own.
pub(crate) struct Pacing(pub Arc<CompactionPace>);

const NAME: &CStr = c"baton.CompactionPace";

impl CompactionFilterFactory for Pacing {
    type Filter = Paced;

    fn create(&mut self, _: CompactionFilterContext) -> Paced {
        Paced { pace: Arc::clone(&self.0), bytes: 0, since: Instant::now() }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// One compaction, or one of its parts.
pub(crate) struct Paced {
    pace: Arc<CompactionPace>,
    /// What it has taken in since then.
    bytes: usize,
    since: Instant,
}

impl CompactionFilter for Paced {
    fn filter(&mut self, _: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        self.bytes += key.len() + value.len();
        if self.bytes >= PIECE_BYTES {
            if self.pace.yields() {
                std::thread::sleep(rest_after(self.bytes, self.since.elapsed()));
            }
            (self.bytes, self.since) = (0, Instant::now());
        }
        CompactionDecision::Keep
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// How long to rest after so many bytes that took so long.
fn rest_after(bytes: usize, took: Duration) -> Duration {
    Duration::from_secs_f64(bytes as f64 / YIELDING_BYTES_PER_SEC).saturating_sub(took).min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_slow_does_not_rest_and_nobody_rests_for_long() {
        assert_eq!(rest_after(PIECE_BYTES, Duration::from_millis(2)), Duration::ZERO);
        assert_eq!(rest_after(1 << 30, Duration::ZERO), REST_MAX);
        let rest = rest_after(PIECE_BYTES, Duration::ZERO);
        assert!(rest > Duration::from_micros(1900) && rest < Duration::from_micros(2000), "{rest:?}");
    }

    #[test]
    fn a_compaction_that_yields_takes_in_no_more_than_its_part_and_keeps_everything() {
        let pace = Arc::new(CompactionPace::default());
        let takes = |pieces: usize| {
            let mut paced = Pacing(Arc::clone(&pace))
                .create(CompactionFilterContext { is_full_compaction: true, is_manual_compaction: true });
            let (value, began) = (vec![0; 1024], Instant::now());
            for _ in 0..pieces * PIECE_BYTES / 1024 {
                assert!(matches!(paced.filter(1, b"key", &value), CompactionDecision::Keep));
            }
            began.elapsed()
        };
        pace.set(true);
        assert!(takes(10) >= Duration::from_millis(18), "ten pieces of two milliseconds");
        pace.set(false);
        let _ = takes(10);
    }
}
