//! How long requests of a kind take, learnt from those that have ended.
//!
//! Invariants: memory is bounded; who was never seen is expected to take no time at all, so that nothing is refused by a guess.
//!
//! Source: the smoothed mean and deviation of V. Jacobson, "Congestion Avoidance and Control" (SIGCOMM 1988).

use std::collections::HashMap;
use std::time::Duration;

/// The most kinds of requests; who comes later is not learnt of until there is room.
const KINDS_MAX: usize = 4096;
/// The part of the mean, and of the deviation, that one more makes.
const MEAN_SHARE: f64 = 1.0 / 8.0;
const DEVIATION_SHARE: f64 = 1.0 / 4.0;

/// How long a request is expected to take once it has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// In the mean.
    pub mean: Duration,
    /// Hardly any takes less.
    pub least: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Learnt {
    mean: f64,
    deviation: f64,
}

/// What was learnt, by the kind's number.
#[derive(Debug, Default)]
pub struct Estimates {
    kinds: HashMap<u64, Learnt>,
}

impl Estimates {
    /// One of this kind took so long.
    pub fn note(&mut self, kind: u64, took: Duration) {
        let took = took.as_secs_f64();
        let has_room = self.kinds.len() < KINDS_MAX;
        match self.kinds.get_mut(&kind) {
            Some(learnt) => {
                let error = took - learnt.mean;
                learnt.mean += MEAN_SHARE * error;
                learnt.deviation += DEVIATION_SHARE * (error.abs() - learnt.deviation);
            }
            // The first says nothing of how much they differ.
            None if has_room => {
                self.kinds.insert(kind, Learnt { mean: took, deviation: took / 2.0 });
            }
            None => {}
        }
    }

    /// How long one of this kind will take.
    pub fn of(&self, kind: u64) -> Estimate {
        self.kinds.get(&kind).map_or_else(Estimate::default, |learnt| Estimate {
            mean: Duration::from_secs_f64(learnt.mean.max(0.0)),
            least: Duration::from_secs_f64((learnt.mean - 2.0 * learnt.deviation).max(learnt.mean / 4.0).max(0.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_always_the_same_is_known_and_what_differs_is_expected_to() {
        let ms = Duration::from_millis;
        let mut estimates = Estimates::default();
        assert_eq!(estimates.of(1), Estimate::default());
        for _ in 0..50 {
            estimates.note(1, ms(10));
        }
        for i in 0..50 {
            estimates.note(2, ms(if i % 2 == 0 { 1 } else { 19 }));
        }
        let (same, different) = (estimates.of(1), estimates.of(2));
        assert!(same.least > ms(9) && same.mean >= same.least && same.mean < ms(11), "{same:?}");
        assert!(different.mean > ms(8) && different.mean < ms(12), "{different:?}");
        assert!(different.least < ms(4), "{different:?}");
    }

    #[test]
    fn kinds_beyond_the_bound_are_not_learnt() {
        let mut estimates = Estimates::default();
        for kind in 0..2 * KINDS_MAX as u64 {
            estimates.note(kind, Duration::from_millis(1));
        }
        assert_eq!(estimates.kinds.len(), KINDS_MAX);
    }
}
