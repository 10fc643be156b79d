//! How long requests of a kind take, learnt from those that have ended.
//!
//! Kinds share a place by chance: then they differ much, and [`Estimate::least`] is small. Two who note at once may lose one of the two.
//! Neither makes an estimate wrong for long.
//!
//! To ask what a thread has computed is a call to the kernel, two of them a request. Of a kind that is short it is enough to know that it still
//! is, and whoever had his thread for a short time only was: a kind is measured while it is [in doubt](Estimates::is_in_doubt), which it
//! is until it is known, while it is long, and after one has had his thread for longer.
//!
//! Invariants: memory is bounded, and nobody waits for anybody; who was never seen is expected to take no time at all, so that nothing is
//! refused by a guess.
//!
//! Source: the smoothed mean and deviation of V. Jacobson, "Congestion Avoidance and Control" (SIGCOMM 1988).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many places there are.
const PLACES: usize = 4096;
/// The part of the mean, and of the deviation, that one more makes.
const MEAN_SHARE: f32 = 1.0 / 8.0;
const DEVIATION_SHARE: f32 = 1.0 / 4.0;
/// One that has computed for longer than so many times the mean, and a little more, counts as if it had not: it has done something for others
/// besides, a group's writes or a new memtable, and its kind is what it was.
const FACTOR_MAX: f32 = 4.0;
const EXTRA_MAX: f32 = 50e-6;
/// Who computes for less is short. At the door it would lose about as much as its turn takes: two changes of threads.
const SHORT: Duration = Duration::from_micros(500);

/// How long a request is expected to take once it has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// In the mean.
    pub mean: Duration,
    /// Hardly any takes less.
    pub least: Duration,
    /// Hardly any takes more.
    pub most: Duration,
    /// What it computes of that; nothing, if it was never seen.
    pub computes: Option<Duration>,
}

impl Estimate {
    /// Whether it is known to compute so briefly that to make it wait would cost more than it saves.
    pub fn is_short(&self) -> bool {
        self.computes.is_some_and(|computes| computes < SHORT)
    }

    /// Whether it is known to compute for longer than that.
    pub fn is_long(&self) -> bool {
        self.computes.is_some_and(|computes| computes >= SHORT)
    }
}

/// What one has computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// By the clock of its thread.
    Measured(Duration),
    /// That was not asked; it had its thread for so long.
    AtMost(Duration),
}

/// How far a kind is known.
const UNSEEN: f32 = 0.0;
const KNOWN: f32 = 1.0;
/// The last that was not measured may have been long, or the last that was measured has been.
const DOUBTED: f32 = 2.0;

/// Two numbers in one place, so that nobody sees one without the other.
fn packed(a: f32, b: f32) -> u64 {
    u64::from(a.to_bits()) << 32 | u64::from(b.to_bits())
}

fn unpacked(both: u64) -> (f32, f32) {
    (f32::from_bits((both >> 32) as u32), f32::from_bits(both as u32))
}

/// What was learnt, in seconds.
#[derive(Debug)]
pub struct Estimates {
    /// By the kind's number: mean and deviation of the whole.
    whole: Box<[AtomicU64]>,
    /// Mean of what they compute, and how far that is known.
    computed: Box<[AtomicU64]>,
}

impl Default for Estimates {
    fn default() -> Self {
        let places = || (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { whole: places(), computed: places() }
    }
}

impl Estimates {
    /// One of this kind took so long, and computed for so long of that.
    pub fn note(&self, kind: u64, took: Duration, computed: Computed) {
        let place = kind as usize % PLACES;
        let (of_whole, of_computed) = (&self.whole[place], &self.computed[place]);
        let (mean, known) = unpacked(of_computed.load(Relaxed));
        let took = took.as_secs_f32();
        match computed {
            Computed::Measured(computed) if known == UNSEEN => {
                // The first says nothing of how much they differ.
                of_whole.store(packed(took, took / 2.0), Relaxed);
                of_computed.store(packed(computed.as_secs_f32(), KNOWN), Relaxed);
                return;
            }
            Computed::Measured(computed) => {
                let known = if computed < SHORT { KNOWN } else { DOUBTED };
                let computed = computed.as_secs_f32().min(FACTOR_MAX * mean + EXTRA_MAX);
                of_computed.store(packed(mean + MEAN_SHARE * (computed - mean), known), Relaxed);
            }
            Computed::AtMost(most) if known == KNOWN && most >= SHORT => {
                of_computed.store(packed(mean, DOUBTED), Relaxed);
            }
            Computed::AtMost(_) => {}
        }
        let (mean, deviation) = unpacked(of_whole.load(Relaxed));
        let error = took - mean;
        let deviation = deviation + DEVIATION_SHARE * (error.abs() - deviation);
        of_whole.store(packed(mean + MEAN_SHARE * error, deviation), Relaxed);
    }

    /// Whether the next of this kind is to be measured.
    pub fn is_in_doubt(&self, kind: u64) -> bool {
        let (mean, known) = unpacked(self.computed[kind as usize % PLACES].load(Relaxed));
        known != KNOWN || mean >= SHORT.as_secs_f32()
    }

    /// How long one of this kind will take.
    pub fn of(&self, kind: u64) -> Estimate {
        let place = kind as usize % PLACES;
        let (computes, known) = unpacked(self.computed[place].load(Relaxed));
        if known == UNSEEN {
            return Estimate::default();
        }
        let (mean, deviation) = unpacked(self.whole[place].load(Relaxed));
        let time = |seconds: f32| Duration::try_from_secs_f32(seconds.max(0.0)).unwrap_or(Duration::MAX);
        Estimate {
            mean: time(mean),
            least: time((mean - 2.0 * deviation).max(mean / 4.0)),
            most: time(mean + 2.0 * deviation),
            computes: Some(time(computes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Computed::{AtMost, Measured};
    use super::*;

    #[test]
    fn what_is_always_the_same_is_known_and_what_differs_is_expected_to() {
        let ms = Duration::from_millis;
        let estimates = Estimates::default();
        assert_eq!(estimates.of(1), Estimate::default());
        assert!(!estimates.of(1).is_short(), "nobody knows");
        for i in 0..50 {
            estimates.note(1, ms(10), Measured(ms(2)));
            estimates.note(2, ms(if i % 2 == 0 { 1 } else { 19 }), Measured(Duration::from_micros(20)));
        }
        let (same, different) = (estimates.of(1), estimates.of(2));
        assert!(same.least > ms(9) && same.mean >= same.least && same.most >= same.mean, "{same:?}");
        assert!(same.most < ms(11) && different.most > ms(18), "{same:?}, {different:?}");
        assert!(different.mean > ms(8) && different.mean < ms(12), "{different:?}");
        assert!(different.least < ms(4), "{different:?}");
        assert!(!same.is_short() && different.is_short());
    }

    #[test]
    fn one_that_has_done_something_for_others_does_not_make_its_kind_long_and_those_that_are_long_soon_do() {
        let (short, long) = (Duration::from_micros(40), Duration::from_millis(9));
        let estimates = Estimates::default();
        estimates.note(1, short, Measured(short));
        for i in 0..1000 {
            let took = if i % 50 == 7 { long } else { short };
            estimates.note(1, took, Measured(took));
            assert!(estimates.of(1).is_short(), "after {i}");
        }
        let until_long = (0..100).take_while(|_| {
            estimates.note(1, long, Measured(long));
            estimates.of(1).is_short()
        });
        assert!(until_long.count() < 10);
    }

    #[test]
    fn kinds_that_share_a_place_are_expected_to_take_less() {
        let estimates = Estimates::default();
        for _ in 0..50 {
            estimates.note(1, Duration::from_millis(1), Measured(Duration::ZERO));
            estimates.note(1 + PLACES as u64, Duration::from_millis(100), Measured(Duration::ZERO));
        }
        assert!(estimates.of(1).least < Duration::from_millis(30), "{:?}", estimates.of(1));
    }

    /// As many as are served, measured while they are in doubt, until the kind is long; and how many of them were measured.
    fn until_long(estimates: &Estimates, computes: Duration) -> (usize, usize) {
        let (mut served, mut measured) = (0, 0);
        while estimates.of(1).is_short() {
            served += 1;
            let is_measured = estimates.is_in_doubt(1);
            measured += usize::from(is_measured);
            estimates.note(1, computes, if is_measured { Measured(computes) } else { AtMost(computes) });
            assert!(served < 100);
        }
        (served, measured)
    }

    #[test]
    fn a_kind_is_measured_until_it_is_known_to_be_short_and_again_when_it_may_not_be() {
        let (short, long) = (Duration::from_micros(40), Duration::from_millis(9));
        let estimates = Estimates::default();
        assert!(estimates.is_in_doubt(1), "nobody knows");
        estimates.note(1, short, Measured(short));
        for _ in 0..100 {
            assert!(!estimates.is_in_doubt(1));
            estimates.note(1, 10 * long, AtMost(2 * short));
        }
        assert!(estimates.of(1).least > long, "it waits for long, and computes as little as before");
        estimates.note(1, long, AtMost(long));
        assert!(estimates.is_in_doubt(1) && estimates.of(1).is_short(), "it may have waited for its turn");
        estimates.note(1, long, Measured(short));
        assert!(!estimates.is_in_doubt(1));
        let (served, measured) = until_long(&estimates, long);
        assert_eq!(served, measured + 1, "the first says that they are to be measured");
        assert!(served <= 10, "{served}");
        assert!(estimates.is_in_doubt(1), "long ones are, always");
    }
}
