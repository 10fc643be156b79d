//! What a member measures of itself, as its own machine and the others are told.
//!
//! Invariant: every figure that is used has passed [`Figures::bounded`], so that none is NaN, infinite or negative, whatever was
//! gossiped.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// See the file's header.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Bytes that wait to be compacted.
    pub debt_bytes: u64,
    /// Levels of RocksDB that are above their target.
    pub debt_levels: u32,
    /// How near RocksDB is to slowing writers down: 0 far, 1 there. The nearest of its triggers counts.
    #[serde(with = "baton_replay::numbers")]
    pub stall_nearness: f64,
    /// Share of reads that the caches served, over the last minute.
    #[serde(with = "baton_replay::numbers")]
    pub cache_hit_ratio: f64,
    /// Bytes of the caches that were read within the last minute.
    pub cache_hot_bytes: u64,
    /// Recent time of one sync of the log, smoothed over a second or so.
    pub sync_latency: Duration,
    /// Share of the disk that is free.
    #[serde(with = "baton_replay::numbers")]
    pub disk_free: f64,
    /// Share of the member's capacity that clients use.
    #[serde(with = "baton_replay::numbers")]
    pub load: f64,
    /// Processors that the member may use.
    #[serde(with = "baton_replay::numbers")]
    pub cpus: f64,
    /// What the disk reads or writes at most.
    #[serde(with = "baton_replay::numbers")]
    pub disk_bytes_per_sec: f64,
    /// Seconds that clients' large statements under way have taken so far, together: a move ends them, and nobody repeats them for the
    /// client. Of no matter to other members.
    #[serde(with = "baton_replay::numbers")]
    pub undone_secs: f64,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            debt_bytes: 0,
            debt_levels: 0,
            stall_nearness: 0.0,
            cache_hit_ratio: 1.0,
            cache_hot_bytes: 0,
            sync_latency: Duration::ZERO,
            disk_free: 1.0,
            load: 0.0,
            cpus: 1.0,
            disk_bytes_per_sec: (200 << 20) as f64,
            undone_secs: 0.0,
        }
    }
}

impl Figures {
    /// The same with each figure within its bounds; what is no number becomes the worst that it may be.
    pub fn bounded(self) -> Self {
        Self {
            stall_nearness: within(self.stall_nearness, 0.0, 1.0, 1.0),
            cache_hit_ratio: within(self.cache_hit_ratio, 0.0, 1.0, 0.0),
            disk_free: within(self.disk_free, 0.0, 1.0, 0.0),
            load: within(self.load, 0.0, 1.0, 1.0),
            cpus: within(self.cpus, 0.1, 4096.0, 0.1),
            disk_bytes_per_sec: within(self.disk_bytes_per_sec, 1e5, 1e12, 1e5),
            undone_secs: within(self.undone_secs, 0.0, 1e9, 1e9),
            ..self
        }
    }

    /// How long the disk takes to fill a cold cache with what is hot here, in seconds.
    pub fn warm_up_secs(&self) -> f64 {
        /// Beyond this, so much was read again by clients that the rest does not matter.
        const WARM_UP_SECS_MAX: f64 = 60.0;
        (self.cache_hot_bytes as f64 / self.disk_bytes_per_sec).min(WARM_UP_SECS_MAX)
    }
}

/// `value` if it is a number, brought into the range; else `otherwise`.
pub(crate) fn within(value: f64, least: f64, most: f64, otherwise: f64) -> f64 {
    if value.is_nan() { otherwise } else { value.clamp(least, most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_gossiped_becomes_numbers_that_can_be_reckoned_with() {
        for strange in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
            let figures = Figures {
                stall_nearness: strange,
                cache_hit_ratio: strange,
                disk_free: strange,
                load: strange,
                cpus: strange,
                disk_bytes_per_sec: strange,
                undone_secs: strange,
                cache_hot_bytes: u64::MAX,
                ..Figures::default()
            }
            .bounded();
            assert!(
                [figures.stall_nearness, figures.cache_hit_ratio, figures.disk_free, figures.load]
                    .iter()
                    .all(|share| (0.0..=1.0).contains(share))
            );
            assert!(figures.cpus > 0.0 && figures.warm_up_secs().is_finite() && figures.undone_secs >= 0.0);
        }
    }
}
