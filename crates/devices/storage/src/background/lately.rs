//! When something happened last, for those who ask whether it still goes on.
//!
//! Invariant: noting and asking take no lock and wait for nobody. Of two who note at the same moment either may be the last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the file's header.
#[derive(Debug)]
pub(crate) struct Lately {
    since: Instant,
    /// Milliseconds after `since`, and one more. Zero: never.
    at: AtomicU64,
}

impl Default for Lately {
    fn default() -> Self {
        Self { since: Instant::now(), at: AtomicU64::new(0) }
    }
}

impl Lately {
    /// It happened now.
    pub fn note(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.since).as_millis() as u64 + 1;
        // Most of what is noted is noted many times in a millisecond: reading it leaves it in the caches of all processors.
        if self.at.load(Ordering::Relaxed) != millis {
            self.at.store(millis, Ordering::Relaxed);
        }
    }

    /// Whether it happened less than so long ago.
    pub fn is_within(&self, time: Duration, now: Instant) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        let elapsed = now.saturating_duration_since(self.since);
        at != 0 && elapsed.saturating_sub(Duration::from_millis(at - 1)) < time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_lately_is_forgotten_after_a_while() {
        let (lately, second) = (Lately::default(), Duration::from_secs(1));
        let after = |millis| lately.since + Duration::from_millis(millis);
        assert!(!lately.is_within(second, after(0)), "it never happened");
        lately.note(after(500));
        assert!(lately.is_within(second, after(500)) && lately.is_within(second, after(1499)));
        assert!(!lately.is_within(second, after(1500)));
        lately.note(after(1500));
        assert!(lately.is_within(second, after(1499)), "another thread's clock was read first");
    }
}
