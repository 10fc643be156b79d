//! Figures over time: sums of the last minute, latencies and shares that are smoothed. Pure; time is what has passed since any fixed
//! moment.

use std::collections::VecDeque;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Samples closer together than this replace each other, so that there are few.
const SAMPLES_APART: Duration = Duration::from_millis(500);
/// Latencies are smoothed over this time.
const LATENCY_OVER: Duration = Duration::from_secs(1);
/// Shares are smoothed over this time.
const SHARE_OVER: Duration = Duration::from_secs(5);

/// How much a value measured after so long counts against what was before.
fn weight(elapsed: Duration, over: Duration) -> f64 {
    1.0 - (-elapsed.as_secs_f64() / over.as_secs_f64()).exp()
}

/// What was added to sums within the last minute.
#[derive(Debug, Default)]
pub(super) struct LastMinute(VecDeque<(Duration, [u64; 3])>);

impl LastMinute {
    /// Takes the sums as of now; gives what was added since a minute ago, or since the first time.
    pub fn measure(&mut self, now: Duration, sums: [u64; 3]) -> [u64; 3] {
        while self.0.len() > 1 && now.saturating_sub(self.0[1].0) >= MINUTE {
            self.0.pop_front();
        }
        let first = self.0.front().map_or(sums, |(_, first)| *first);
        if self.0.back().is_none_or(|(last, _)| now.saturating_sub(*last) >= SAMPLES_APART) {
            self.0.push_back((now, sums));
        }
        std::array::from_fn(|at| sums[at].saturating_sub(first[at]))
    }
}

/// The time that one sync takes.
#[derive(Debug, Default)]
pub(super) struct SyncLatency {
    secs: f64,
    counted: u64,
    time: Duration,
    measured_at: Option<Duration>,
    synced_at: Option<Duration>,
}

impl SyncLatency {
    /// Takes how many syncs there were and how long they took together, and how long the one under way has lasted.
    pub fn measure(
        &mut self,
        now: Duration,
        count: u64,
        time: Duration,
        under_way: Option<Duration>,
    ) -> Option<Duration> {
        let (syncs, took) = (count.saturating_sub(self.counted), time.saturating_sub(self.time));
        if syncs > 0 {
            let mean = took.as_secs_f64() / syncs as f64;
            let weight = match (self.synced_at, self.measured_at) {
                (Some(_), Some(before)) => weight(now.saturating_sub(before), LATENCY_OVER),
                _ => 1.0,
            };
            self.secs += (mean - self.secs) * weight;
            self.synced_at = Some(now);
        }
        (self.counted, self.time, self.measured_at) = (count, time, Some(now));
        let smoothed = self.synced_at.filter(|at| now.saturating_sub(*at) <= MINUTE).map(|_| self.secs);
        let smoothed = smoothed.map(Duration::from_secs_f64);
        // One that hangs has no end that could be measured.
        under_way.filter(|lasted| smoothed.is_none_or(|smoothed| *lasted > smoothed)).or(smoothed)
    }
}

/// A share between 0 and 1.
#[derive(Debug, Default)]
pub(super) struct Share(Option<f64>);

impl Share {
    /// Takes what was used of one second of all in each second of the time elapsed.
    pub fn measure(&mut self, elapsed: Duration, used: Option<f64>) -> Option<f64> {
        if let Some(used) = used
            && !elapsed.is_zero()
        {
            let now = (used / elapsed.as_secs_f64()).clamp(0.0, 1.0);
            self.0 = Some(self.0.map_or(now, |old| old + (now - old) * weight(elapsed, SHARE_OVER)));
        }
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn sums_are_those_of_the_last_minute() {
        let mut minute = LastMinute::default();
        assert_eq!(minute.measure(at(5), [100, 7, 0]), [0; 3], "what was before nobody has seen");
        for sec in 6..=200 {
            let found = minute.measure(at(sec), [100 + 10 * (sec - 5), 7, 0]);
            assert_eq!(found, [10 * (sec - 5).min(60), 0, 0], "{sec}");
        }
        for _ in 0..10_000 {
            minute.measure(at(200), [0; 3]);
        }
        assert!(minute.0.len() < 130);
    }

    #[test]
    fn a_sync_counts_with_its_second_and_one_that_hangs_while_it_does() {
        let millis = Duration::from_millis;
        let mut latency = SyncLatency::default();
        assert_eq!(latency.measure(at(1), 0, millis(0), None), None);
        assert_eq!(latency.measure(at(2), 10, millis(20), None), Some(millis(2)));
        let risen = latency.measure(at(3), 20, millis(1020), None).unwrap();
        assert!(risen > millis(60) && risen < millis(70), "{risen:?}");
        assert_eq!(latency.measure(at(4), 20, millis(1020), Some(millis(900))), Some(millis(900)));
        assert_eq!(latency.measure(at(5), 20, millis(1020), Some(millis(1))), Some(risen), "it is as it was");
        assert_eq!(latency.measure(at(70), 20, millis(1020), None), None, "nobody knows any more");
        assert_eq!(latency.measure(at(71), 20, millis(1020), Some(millis(5))), Some(millis(5)));
        let recovered = latency.measure(at(80), 21, millis(1021), None).unwrap();
        assert!(recovered < millis(2), "after so long what was before counts for nothing: {recovered:?}");
    }

    #[test]
    fn a_share_follows_within_some_seconds_and_stays_one() {
        let mut share = Share::default();
        assert_eq!(share.measure(at(1), None), None);
        assert_eq!(share.measure(at(0), Some(3.0)), None, "no time has passed");
        assert_eq!(share.measure(at(2), Some(1.0)), Some(0.5));
        let risen = share.measure(at(5), Some(50.0)).unwrap();
        assert!(risen > 0.8 && risen < 0.85, "{risen}");
        (0..100).for_each(|_| _ = share.measure(at(5), Some(50.0)));
        assert!(share.0.is_some_and(|share| share <= 1.0));
    }
}
