//! A disk that fails slowly: its syncs take far longer than they did, and than the others' do, for a while.
//!
//! Both are asked for: where all are slow it is the load, or the machine they share, and a move would help nobody.
//!
//! Invariant: what a sick disk measures does not become what is normal.

use crate::step::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How many times slower than usual, and than the others, is out of line.
const FACTOR: u32 = 5;
/// Syncs faster than this are healthy, whatever they were.
const HEALTHY: Duration = Duration::from_millis(10);
/// For how long a disk must be out of line.
const SICK_AFTER: Duration = Duration::from_secs(10);
/// A member that has measured nothing for so long does not know.
const MEASURED_WITHIN: Duration = Duration::from_secs(10);
/// So many measurements make what is usual.
const USUAL_AFTER: u32 = 30;
/// The weight of one measurement in what is usual.
const WEIGHT: f64 = 0.02;

/// See the file's header.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DiskWatch {
    usual_secs: f64,
    measured: u32,
    measured_at: Moment,
    out_of_line_since: Option<Moment>,
}

impl DiskWatch {
    /// Takes one measurement of this member, and what is known of the others.
    pub fn measure(&mut self, now: Moment, latency: Duration, others: &mut [Duration]) {
        let has_gap = now.saturating_sub(self.measured_at) > MEASURED_WITHIN;
        self.measured_at = now;
        if has_gap {
            self.out_of_line_since = None;
        }
        others.sort_unstable();
        // The faster half counts: one other that is sick, too, hides nothing.
        let others_latency = (!others.is_empty()).then(|| others[(others.len() - 1) / 2]);
        let usual = Duration::from_secs_f64(self.usual_secs);
        let is_out_of_line = self.measured >= USUAL_AFTER
            && latency > HEALTHY
            && latency >= usual.saturating_mul(FACTOR)
            && others_latency.is_some_and(|others| latency >= others.saturating_mul(FACTOR));
        if is_out_of_line {
            self.out_of_line_since.get_or_insert(now);
            return;
        }
        self.out_of_line_since = None;
        let secs = latency.min(Duration::from_secs(3600)).as_secs_f64();
        self.usual_secs += (secs - self.usual_secs) * WEIGHT.max(1.0 / f64::from(self.measured + 1));
        self.measured = self.measured.saturating_add(1);
    }

    /// Whether it has been out of line for long enough, by measurements until now.
    pub fn is_sick(&self, now: Moment) -> bool {
        now.saturating_sub(self.measured_at) <= MEASURED_WITHIN
            && self.out_of_line_since.is_some_and(|since| now.saturating_sub(since) >= SICK_AFTER)
    }

    /// When it will be, if measurements go on as they are.
    pub fn sick_at(&self) -> Option<Moment> {
        self.out_of_line_since.map(|since| since + SICK_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(1);
    const SLOW: Duration = Duration::from_millis(80);

    /// A minute of what is usual, then `secs` seconds of this; whether it is sick then.
    fn after(secs: u64, latency: Duration, others: &[Duration]) -> bool {
        let mut disk = DiskWatch::default();
        let at = Duration::from_secs;
        (0..60).for_each(|sec| disk.measure(at(sec), USUAL, &mut [USUAL, USUAL]));
        (60..=60 + secs).for_each(|sec| disk.measure(at(sec), latency, &mut others.to_vec()));
        disk.is_sick(at(60 + secs))
    }

    #[test]
    fn a_disk_is_sick_that_is_slower_than_it_was_and_than_the_others_and_for_a_while() {
        assert!(after(10, SLOW, &[USUAL, USUAL]));
        assert!(after(3600, SLOW, &[USUAL, USUAL]), "it does not become usual");
        assert!(after(10, SLOW, &[USUAL, SLOW]), "another sick one does not hide it");
        assert!(!after(9, SLOW, &[USUAL, USUAL]), "not for long enough");
        assert!(!after(60, SLOW, &[SLOW, SLOW]), "all are slow");
        assert!(!after(60, SLOW, &[]), "nobody to compare with");
        assert!(!after(60, Duration::from_millis(9), &[USUAL / 100]), "fast enough");
    }

    #[test]
    fn a_disk_that_was_always_slow_is_not_sick_and_one_good_sync_begins_the_while_anew() {
        let at = Duration::from_secs;
        let mut disk = DiskWatch::default();
        (0..600).for_each(|sec| disk.measure(at(sec), SLOW, &mut [USUAL]));
        assert!(!disk.is_sick(at(600)));
        let mut disk = DiskWatch::default();
        (0..60).for_each(|sec| disk.measure(at(sec), USUAL, &mut [USUAL]));
        for sec in 60..120 {
            disk.measure(at(sec), if sec % 9 == 0 { USUAL } else { SLOW }, &mut [USUAL]);
            assert!(!disk.is_sick(at(sec)));
        }
    }

    #[test]
    fn who_measures_nothing_knows_nothing() {
        let at = Duration::from_secs;
        let mut disk = DiskWatch::default();
        (0..60).for_each(|sec| disk.measure(at(sec), USUAL, &mut [USUAL]));
        disk.measure(at(60), SLOW, &mut [USUAL]);
        disk.measure(at(90), SLOW, &mut [USUAL]);
        assert!(!disk.is_sick(at(90)), "in between nothing was measured");
        (91..=100).for_each(|sec| disk.measure(at(sec), SLOW, &mut [USUAL]));
        assert!(disk.is_sick(at(100)) && !disk.is_sick(at(111)));
    }
}
