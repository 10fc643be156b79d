//! How much the successor may read before leadership is handed to it, so that its caches have what clients ask for.
//!
//! The primary serves meanwhile as before: warming costs clients little, but the task that leadership moves for waits so much longer.
//!
//! Invariants:
//! - Warming takes no longer than a part of what the move gains, and never more than [`TIME_MAX`].
//! - A move that gains nothing by the model (`mode: always`, an operator's order) is warmed for all that, for [`TIME_MIN`]: a handoff
//!   takes that long anyway, while the successor catches up.

use crate::figures::{Figures, within};
use std::time::Duration;

/// See the file's header.
const TIME_MIN: Duration = Duration::from_millis(250);
const TIME_MAX: Duration = Duration::from_secs(3);
/// The part of the gain that warming may take.
const GAIN_PART: f64 = 0.5;
/// So much is read from memory in that time, whatever the disk does.
const BYTES_MIN: u64 = 16 << 20;

/// What warming may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warming {
    /// How long the successor may read.
    pub time: Duration,
    /// Bytes of documents that it may read.
    pub bytes: u64,
}

impl Warming {
    /// For a move from here to there that gains so many seconds of service; not known: as if it gained nothing.
    pub fn of_move(here: &Figures, there: Option<&Figures>, gain_secs: Option<f64>) -> Self {
        let secs = within(gain_secs.unwrap_or(0.0) * GAIN_PART, TIME_MIN.as_secs_f64(), TIME_MAX.as_secs_f64(), 0.0);
        let time = Duration::from_secs_f64(secs).max(TIME_MIN);
        let disk = there.unwrap_or(here).bounded().disk_bytes_per_sec;
        let bytes = here.cache_hot_bytes.min((disk * time.as_secs_f64()) as u64).max(BYTES_MIN);
        Self { time, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        Figures { cache_hot_bytes: 1 << 30, disk_bytes_per_sec: 1e8, ..Figures::default() }
    }

    #[test]
    fn a_move_that_gains_nothing_is_warmed_for_as_long_as_a_handoff_takes_anyway() {
        for gain in [None, Some(0.0), Some(-7.0), Some(f64::NAN), Some(f64::NEG_INFINITY)] {
            let warming = Warming::of_move(&figures(), None, gain);
            assert_eq!(warming, Warming { time: TIME_MIN, bytes: 25_000_000 }, "{gain:?}");
        }
    }

    #[test]
    fn a_gain_pays_for_more_and_nothing_pays_for_ever() {
        let of = |gain| Warming::of_move(&figures(), None, Some(gain));
        assert_eq!(of(2.0), Warming { time: Duration::from_secs(1), bytes: 100_000_000 });
        assert_eq!(of(1e9).time, TIME_MAX);
        assert_eq!(of(f64::INFINITY).time, TIME_MAX);
        let slow = Figures { disk_bytes_per_sec: 1e6, ..figures() };
        assert_eq!(Warming::of_move(&figures(), Some(&slow), Some(2.0)).bytes, BYTES_MIN, "its disk is what reads");
        let cold = Figures { cache_hot_bytes: 0, ..figures() };
        assert_eq!(Warming::of_move(&cold, None, Some(2.0)).bytes, BYTES_MIN);
    }
}
