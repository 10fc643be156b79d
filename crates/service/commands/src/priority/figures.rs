//! What is counted of each class: how many, how long they waited and were served, who was refused.
//!
//! Invariant: a count is of requests that the door has seen; where nothing is to be told apart, they pass it unseen.

use baton_admission::Refusal;
use baton_types::Class;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper bounds of a histogram's buckets, in microseconds; what is longer is in one more.
pub(crate) const BUCKETS_MICROS: [u64; 20] = [
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
];

/// How many took how long, counted by whoever was served, without waiting for anybody.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    counts: [AtomicU64; BUCKETS_MICROS.len() + 1],
    sum_micros: AtomicU64,
}

impl Counting {
    pub fn note(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket_of(micros)].fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    pub fn so_far(&self) -> Histogram {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].load(Relaxed));
        Histogram { counts, count: counts.iter().sum(), sum_micros: self.sum_micros.load(Relaxed) }
    }
}

fn bucket_of(micros: u64) -> usize {
    BUCKETS_MICROS.partition_point(|bound| *bound < micros)
}

/// How many took how long.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    pub(crate) counts: [u64; BUCKETS_MICROS.len() + 1],
    /// How many there were.
    pub count: u64,
    pub(crate) sum_micros: u64,
}

impl FromIterator<Duration> for Histogram {
    fn from_iter<T: IntoIterator<Item = Duration>>(times: T) -> Self {
        let mut histogram = Self::default();
        times.into_iter().for_each(|time| histogram.note(time));
        histogram
    }
}

impl Histogram {
    pub(crate) fn note(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket_of(micros)] += 1;
        self.count += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
    }

    /// Those that came since another look.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].saturating_sub(before.counts[bucket]));
        Self { counts, count: counts.iter().sum(), sum_micros: self.sum_micros.saturating_sub(before.sum_micros) }
    }

    /// The bound of the bucket that has this part of them, in microseconds; 0 of none.
    pub fn quantile_micros(&self, part: f64) -> u64 {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return BUCKETS_MICROS.get(index).or(BUCKETS_MICROS.last()).copied().unwrap_or(0);
            }
        }
        0
    }
}

/// Of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfClass {
    /// From the arrival to the beginning.
    pub waits: Histogram,
    /// From the beginning to the reply; also of those that passed the door unseen though there was something to tell apart.
    pub services: Histogram,
    /// How many had to wait at all.
    pub waited: u64,
    /// The longest wait.
    pub worst_wait: Duration,
    /// How many began because their wait was at its end.
    pub aged: u64,
    /// Refused because they could not be in time.
    pub refused_late: u64,
    /// Refused because too many waited, or computed.
    pub refused_overload: u64,
    /// Killed, timed out or hung up while they waited.
    pub gave_up: u64,
}

/// How long requests of each class took.
#[derive(Debug, Default)]
pub(crate) struct Services([Counting; 3]);

impl Services {
    pub fn ended(&self, class: Class, served: Duration) {
        self.0[class.rank()].note(served);
    }

    pub fn so_far(&self) -> [(Class, Histogram); 3] {
        Figures::CLASSES.map(|class| (class, self.0[class.rank()].so_far()))
    }
}

/// Of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    classes: [OfClass; 3],
}

impl Figures {
    /// The classes that clients have, the most urgent first.
    pub const CLASSES: [Class; 3] = [Class::High, Class::Normal, Class::Low];

    pub fn of(&self, class: Class) -> &OfClass {
        &self.classes[class.rank()]
    }

    fn of_mut(&mut self, class: Class) -> &mut OfClass {
        &mut self.classes[class.rank()]
    }

    pub fn began(&mut self, class: Class, waited: Option<Duration>, aged: bool) {
        let of = self.of_mut(class);
        let wait = waited.unwrap_or_default();
        of.waits.note(wait);
        of.waited += u64::from(waited.is_some());
        of.worst_wait = of.worst_wait.max(wait);
        of.aged += u64::from(aged);
    }

    /// How they were served, which is counted elsewhere.
    pub fn set_services(&mut self, services: &Services) {
        for (of, counting) in self.classes.iter_mut().zip(&services.0) {
            of.services = counting.so_far();
        }
    }

    pub fn refused(&mut self, class: Class, why: Refusal, waited: Duration) {
        let of = self.of_mut(class);
        of.worst_wait = of.worst_wait.max(waited);
        match why {
            Refusal::Deadline => of.refused_late += 1,
            Refusal::Overload => of.refused_overload += 1,
        }
    }

    pub fn gave_up(&mut self, class: Class, waited: Duration) {
        let of = self.of_mut(class);
        of.gave_up += 1;
        of.worst_wait = of.worst_wait.max(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_tells_within_which_bound_a_part_is() {
        let (mut histogram, counting) = (Histogram::default(), Counting::default());
        assert_eq!(histogram.quantile_micros(0.99), 0);
        let times =
            [Duration::from_micros(40); 98].into_iter().chain([Duration::from_millis(3), Duration::from_secs(3600)]);
        for time in times {
            histogram.note(time);
            counting.note(time);
        }
        assert_eq!((counting.so_far().counts, counting.so_far().count), (histogram.counts, histogram.count));
        assert_eq!((histogram.count, histogram.counts[0]), (100, 98));
        assert_eq!(histogram.quantile_micros(0.5), 50);
        assert_eq!(histogram.quantile_micros(0.99), 5_000);
        assert_eq!(histogram.quantile_micros(1.0), 100_000_000);
    }
}
