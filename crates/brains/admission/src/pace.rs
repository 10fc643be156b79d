//! How often it is looked for threads that do not come to run.
//!
//! A look asks the kernel of each thread, of a few at once: there may be thousands, and whoever looks is as urgent as those who are not to wait.
//!
//! Invariants: looking takes no more than one part in [`RESTS`] of a processor, what those cost aside that are helped; a look begins no sooner than half the patience after the last one
//! began, unless somebody is helped; who is helped is looked at every two milliseconds, whatever is due else.
//! What it deliberately does not do: read a clock, look.

use crate::admission::Moment;
use std::time::Duration;

/// How often it is looked within the time for which a thread may stand.
const LOOKS_A_PATIENCE: u32 = 2;
/// How often those are looked at that are helped, and how soon after the last a look begins while there are any.
const HELPING_INTERVAL: Duration = Duration::from_millis(2);
/// How long who looks rests after each few threads, in times of what they took.
const RESTS: u32 = 50;

/// When it is looked next.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When it is looked further.
    due: Moment,
    /// When the look under way began, or the next one may.
    began: Moment,
}

impl Pace {
    /// It may be looked at once.
    pub fn new(now: Moment) -> Self {
        Self { due: now, began: now }
    }

    /// For how long there is nothing to do.
    pub fn rest(&self, now: Moment, helps: bool) -> Duration {
        let until_due = self.due.saturating_sub(now);
        if helps { until_due.min(HELPING_INTERVAL) } else { until_due }
    }

    /// Whether it is to be looked further now.
    pub fn is_due(&self, now: Moment) -> bool {
        now >= self.due
    }

    /// There is nobody to look at, which may be otherwise after a patience.
    pub fn skip(&mut self, now: Moment, patience: Duration) {
        self.due = now + patience;
        self.began = self.due;
    }

    /// A few threads were asked at `now`, which took so much of a processor's time.
    pub fn asked(&mut self, now: Moment, took: Duration) {
        self.due = now + took * RESTS;
    }

    /// All have been asked; whether somebody is helped.
    pub fn end_look(&mut self, patience: Duration, helps: bool) {
        let interval = if helps { HELPING_INTERVAL } else { patience / LOOKS_A_PATIENCE };
        self.due = self.due.max(self.began + interval);
        self.began = self.due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PATIENCE: Duration = Duration::from_millis(100);

    #[test]
    fn it_is_looked_twice_in_a_patience_and_further_once_the_few_have_been_paid_for() {
        let mut pace = Pace::new(7 * MS);
        assert!(pace.is_due(7 * MS));
        pace.asked(7 * MS, MS / 10);
        assert_eq!((pace.rest(7 * MS, false), pace.is_due(11 * MS)), (5 * MS, false));
        pace.asked(12 * MS, MS / 10);
        pace.end_look(PATIENCE, false);
        assert_eq!(pace.rest(12 * MS, false), 45 * MS, "fifty after it began");
        assert!(!pace.is_due(56 * MS) && pace.is_due(57 * MS));
        pace.asked(57 * MS, MS / 10);
        pace.end_look(PATIENCE, false);
        assert_eq!(pace.rest(57 * MS, false), 50 * MS, "and so on");
    }

    #[test]
    fn a_look_that_takes_long_is_begun_as_seldom_as_its_cost_is_to_be_paid_for() {
        let mut pace = Pace::new(Moment::ZERO);
        for few in 0..100 {
            pace.asked(few * 5 * MS, MS / 10);
        }
        pace.end_look(PATIENCE, false);
        assert_eq!(pace.rest(495 * MS, false), 5 * MS);
    }

    #[test]
    fn who_is_helped_is_looked_at_every_two_milliseconds_and_others_with_him() {
        let mut pace = Pace::new(Moment::ZERO);
        pace.asked(Moment::ZERO, MS / 50);
        pace.end_look(PATIENCE, true);
        assert_eq!(pace.rest(Moment::ZERO, true), 2 * MS);
        pace.asked(2 * MS, MS / 10);
        pace.end_look(PATIENCE, true);
        assert_eq!(pace.rest(2 * MS, true), 2 * MS, "those alone");
        assert_eq!(pace.rest(2 * MS, false), 5 * MS, "all");
    }

    #[test]
    fn where_nobody_is_to_be_looked_at_it_is_asked_again_after_a_patience() {
        let mut pace = Pace::new(Moment::ZERO);
        pace.skip(30 * MS, PATIENCE);
        assert_eq!(pace.rest(30 * MS, false), PATIENCE);
        pace.asked(130 * MS, Duration::ZERO);
        pace.end_look(PATIENCE, false);
        assert_eq!(pace.rest(130 * MS, false), 50 * MS, "and not a patience after the last one of long ago");
    }
}
