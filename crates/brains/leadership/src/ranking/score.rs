//! A score of what makes a member a bad primary for the next minutes: its debt will have it compact, its lag makes the handoff
//! longer, its cold caches and its load make clients wait, and so do its syncs.
//!
//! Invariant: a score lies in 0 to 1, and grows with each of its parts.

use crate::candidates::{Candidate, LAG_MAX};
use crate::figures::Figures;
use std::cmp::Ordering;
use std::time::Duration;

/// The weights. They add up to 1.
const DEBT: f64 = 0.3;
const COLDNESS: f64 = 0.25;
const SYNC_LATENCY: f64 = 0.2;
const LOAD: f64 = 0.15;
const LAG: f64 = 0.1;
/// Syncs that take so long count for half of their weight.
const SYNC_SECS_HALF: f64 = 0.02;

/// The better one is the lesser.
pub fn order(one: &Candidate, other: &Candidate) -> Ordering {
    one.score.total_cmp(&other.score)
}

/// See the file's header.
pub fn score(figures: &Figures, lag: Duration, debt_bytes_max: u64) -> f64 {
    let figures = figures.bounded();
    let debt = (figures.debt_bytes as f64 / debt_bytes_max.max(1) as f64).min(1.0).max(figures.stall_nearness);
    let sync_secs = figures.sync_latency.as_secs_f64();
    let sync = sync_secs / (sync_secs + SYNC_SECS_HALF);
    let lag = (lag.as_secs_f64() / LAG_MAX.as_secs_f64()).min(1.0);
    DEBT * debt + COLDNESS * (1.0 - figures.cache_hit_ratio) + SYNC_LATENCY * sync + LOAD * figures.load + LAG * lag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_score_is_0_the_worst_1_and_every_part_counts() {
        let good = Figures::default();
        let of = |figures: Figures, lag_ms| score(&figures, Duration::from_millis(lag_ms), 100);
        assert_eq!(of(good, 0), 0.0);
        let bad = Figures {
            debt_bytes: u64::MAX,
            cache_hit_ratio: 0.0,
            sync_latency: Duration::from_secs(1 << 40),
            load: 1.0,
            ..good
        };
        assert!((of(bad, 1 << 40) - 1.0).abs() < 1e-9);
        let worse = [
            of(Figures { debt_bytes: 10, ..good }, 0),
            of(Figures { stall_nearness: 0.5, ..good }, 0),
            of(Figures { cache_hit_ratio: 0.5, ..good }, 0),
            of(Figures { sync_latency: Duration::from_millis(1), ..good }, 0),
            of(Figures { load: 0.1, ..good }, 0),
            of(good, 1),
        ];
        assert!(worse.iter().all(|score| *score > 0.0), "{worse:?}");
    }
}
