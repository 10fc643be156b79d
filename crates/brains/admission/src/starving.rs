//! Threads that are ready and do not come to run, because more urgent ones want the processors all the time: who of them is helped.
//!
//! Niceness gives everybody a part of the time, however small: beside one that is 39 levels less nice and never idle, a five-thousandth, so that
//! a request of 0.3 ms lasts for two seconds. No queue sees that: the thread may not even have read the request that it was woken for.
//! So somebody [looks](Starving::look) now and then which threads *stand*: they are ready and have had less than [`ENOUGH`] since they were woken, or,
//! of those that compute for long, nothing at all since he looked last. Who has stood for a while is helped, as if he were of high class, until he has
//! nothing to do or has had [`ENOUGH`], who has stood for the longest first.
//!
//! Invariants: as many are helped at once as there are processors, and all that are helped have a [`PART`]th of the processors' time together, so that
//! helping cannot turn the order of the classes round, however many there are and however long they compute. Who has nothing to do is helped for
//! no longer than until he is looked at.
//! What it deliberately does not do: read a clock, know what a thread is or how it is helped.

use crate::admission::Moment;
use crate::mutant::{Fault, Mutant};
use std::collections::BTreeMap;
use std::time::Duration;

/// After so much of a processor's time it is the next one's turn.
pub const ENOUGH: Duration = Duration::from_millis(5);
/// All that are helped have one part in so many of the processors' time.
pub const PART: u32 = 20;
/// What is not used up is kept for later, up to so much for each processor.
pub const SAVED: Duration = Duration::from_millis(50);

/// A thread, as the kernel numbers it.
pub type Thread = i32;

/// What is seen of a thread that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Which.
    pub thread: Thread,
    /// How long it has run, in all.
    pub ran: Duration,
    /// How often it has gone to sleep, in all.
    pub sleeps: u64,
}

/// What is known of a thread that was ready when it was looked at last.
#[derive(Clone, Copy, Debug)]
struct Stands {
    /// Since when, unless it was helped meanwhile.
    since: Option<Moment>,
    /// As it was seen last.
    seen: Ready,
    /// How long it had run when it was first seen after it was woken.
    ran_before: Duration,
}

impl Stands {
    /// What becomes of it when this is seen.
    fn look(&self, now: Moment, seen: Ready, fault: &Fault) -> Self {
        let is_same = seen.sleeps == self.seen.sleeps;
        let has_little = is_same && seen.ran.saturating_sub(self.ran_before) < ENOUGH;
        let goes_on = has_little || seen.ran == self.seen.ran || fault.is(Mutant::HelpsWhoRuns);
        Self {
            since: Some(self.since.filter(|_| goes_on).unwrap_or(now)),
            seen,
            ran_before: if is_same { self.ran_before } else { seen.ran },
        }
    }
}

/// Decides who is helped. It knows what it is told, and when that was.
#[derive(Debug)]
pub struct Starving {
    processors: u32,
    ready: BTreeMap<Thread, Stands>,
    /// Those that are helped, with how long they had run when that began.
    helped: BTreeMap<Thread, Duration>,
    /// What may be used before anybody else is helped. The last one may have had more, which is owed then.
    saved: Duration,
    owed: Duration,
    /// When that was so.
    counted: Option<Moment>,
    fault: Fault,
}

impl Starving {
    /// Nobody is helped yet, before so many processors.
    pub fn new(processors: u32) -> Self {
        let (ready, helped, fault) = Default::default();
        Self { processors, ready, helped, saved: Duration::ZERO, owed: Duration::ZERO, counted: None, fault }
    }

    /// These are ready now, and no others. Who is to be helped from now on: of those that have stood for so long.
    pub fn look(&mut self, now: Moment, patience: Duration, ready: impl IntoIterator<Item = Ready>) -> Vec<Thread> {
        self.save(now);
        let before = std::mem::take(&mut self.ready);
        let stands = |seen: Ready| match before.get(&seen.thread) {
            Some(stands) => (seen.thread, stands.look(now, seen, &self.fault)),
            None => (seen.thread, Stands { since: Some(now), seen, ran_before: seen.ran }),
        };
        self.ready = ready.into_iter().map(stands).collect();
        let patience = if self.fault.is(Mutant::HelpsAtOnce) { Duration::ZERO } else { patience };
        let starves = |(thread, stands): (&Thread, &Stands)| {
            let since = stands.since.filter(|since| now >= *since + patience)?;
            (!self.helped.contains_key(thread)).then_some((since, *thread))
        };
        let mut starving: Vec<_> = self.ready.iter().filter_map(starves).collect();
        starving.sort_unstable();
        if self.fault.is(Mutant::HelpsTheLastFirst) {
            starving.reverse();
        }
        let is_spent = self.saved.is_zero() && !self.fault.is(Mutant::HelpsForNothing);
        let most = if self.fault.is(Mutant::HelpsEverybody) { usize::MAX } else { self.processors as usize };
        let room = if is_spent || self.fault.is(Mutant::HelpsNobody) { 0 } else { most.saturating_sub(self.helped.len()) };
        let helped: Vec<_> = starving.into_iter().take(room).map(|(_, thread)| thread).collect();
        self.helped.extend(helped.iter().map(|thread| (*thread, self.ready[thread].seen.ran)));
        helped
    }

    /// Whether one that is helped is ready, and how long it has run; nothing, if it has ended. Whether it is helped further.
    pub fn check(&mut self, thread: Thread, seen: Option<(bool, Duration)>) -> bool {
        let Some(before) = self.helped.get(&thread) else { return false };
        let (is_ready, used) = seen.map_or((false, ENOUGH), |(is_ready, ran)| (is_ready, ran.saturating_sub(*before)));
        let has_enough = used >= ENOUGH && !self.fault.is(Mutant::HelpsToTheEnd);
        if (is_ready || self.fault.is(Mutant::HelpsTheIdle)) && !has_enough {
            return true;
        }
        self.helped.remove(&thread);
        // From the beginning, if it goes on to stand.
        if let Some(stands) = self.ready.get_mut(&thread) {
            stands.since = None;
        }
        self.pay(used);
        false
    }

    /// Those that are helped.
    pub fn helped(&self) -> impl Iterator<Item = Thread> {
        self.helped.keys().copied()
    }

    /// Nobody is looked at any more, or helped.
    pub fn forget(&mut self) {
        *self = Self { fault: std::mem::take(&mut self.fault), ..Self::new(self.processors) };
    }

    fn save(&mut self, now: Moment) {
        let since = self.counted.replace(now).map_or(Duration::ZERO, |before| now.saturating_sub(before));
        let earned = since * self.processors / PART;
        let paid = earned.min(self.owed);
        self.owed -= paid;
        self.saved = (self.saved + earned - paid).min(SAVED * self.processors);
    }

    fn pay(&mut self, used: Duration) {
        self.owed += used.saturating_sub(self.saved);
        self.saved = self.saved.saturating_sub(used);
    }

    /// Builds a fault in.
    #[cfg(feature = "mutants")]
    pub fn mutate(&mut self, mutant: Mutant) {
        self.fault = Fault(mutant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One that looks every 50 ms.
    struct Times {
        starving: Starving,
        now: Moment,
    }

    impl Times {
        fn new(processors: u32) -> Self {
            let mut times = Self { starving: Starving::new(processors), now: Moment::ZERO };
            times.look([]);
            times
        }

        /// These are ready, each with the milliseconds that it has run.
        fn look<const N: usize>(&mut self, ready: [(Thread, u32); N]) -> Vec<Thread> {
            self.look_at(ready.map(|(thread, ms)| Ready { thread, ran: ms * MS, sleeps: 0 }))
        }

        fn look_at<const N: usize>(&mut self, ready: [Ready; N]) -> Vec<Thread> {
            self.now += 50 * MS;
            self.starving.look(self.now, 50 * MS, ready)
        }
    }

    #[test]
    fn who_is_ready_and_does_not_run_is_helped_until_he_has_run_enough_or_has_nothing_to_do() {
        let mut times = Times::new(1);
        assert!(times.look([(1, 7)]).is_empty(), "it may have become ready just now");
        assert_eq!(times.look([(1, 7)]), [1]);
        assert!(times.look([(1, 7)]).is_empty(), "it is helped already");
        assert!(times.starving.check(1, Some((true, 11 * MS))), "it is at it");
        assert!(!times.starving.check(1, Some((true, 12 * MS))), "it has had enough");
        assert!(!times.starving.check(1, Some((true, 12 * MS))), "and is not helped any more");
        assert!(times.look([(1, 12)]).is_empty());
        assert_eq!(times.look([(1, 12)]), [1], "from the beginning");
        assert!(!times.starving.check(1, Some((false, 13 * MS))), "nothing to do");
        times.look([(1, 13)]);
        assert_eq!(times.look([(1, 13)]), [1]);
        assert!(!times.starving.check(1, None), "it has ended");
    }

    #[test]
    fn who_has_had_next_to_nothing_since_he_was_woken_stands_and_who_computes_for_long_does_not_while_he_runs() {
        let mut times = Times::new(1);
        let seen = |ms, sleeps| [Ready { thread: 1, ran: ms * MS, sleeps }];
        assert!(times.look_at(seen(7, 1)).is_empty());
        assert!(times.look_at(seen(8, 2)).is_empty(), "it was woken for another request meanwhile");
        assert_eq!(times.look_at(seen(11, 2)), [1], "3 ms of 50");
        assert!(!times.starving.check(1, Some((true, 16 * MS))));
        for ms in [17, 18, 19, 20] {
            assert!(times.look_at(seen(ms, 2)).is_empty(), "it has had more, and runs now and then");
        }
        assert_eq!(times.look_at(seen(20, 2)), [1], "it does not run at all");
    }

    #[test]
    fn who_stands_is_helped_after_a_while_however_often_it_is_looked() {
        let mut times = Times::new(1);
        let ready = [Ready { thread: 1, ran: 7 * MS, sleeps: 0 }];
        for _ in 0..5 {
            assert!(times.starving.look(times.now, 50 * MS, ready).is_empty());
            times.now += 10 * MS;
        }
        assert_eq!(times.starving.look(times.now, 50 * MS, ready), [1]);
    }

    #[test]
    fn who_has_stood_for_the_longest_is_first_and_there_are_no_more_than_processors() {
        let mut times = Times::new(2);
        times.look([(9, 0)]);
        assert_eq!(times.look([(1, 0), (2, 0), (9, 0)]), [9]);
        assert_eq!(times.look([(1, 0), (2, 0), (3, 0), (9, 0)]), [1], "two are helped");
        assert!(!times.starving.check(9, Some((false, MS))));
        assert_eq!(times.look([(1, 0), (2, 0), (3, 0)]), [2]);
    }

    #[test]
    fn all_that_are_helped_have_their_part_of_the_processors_and_no_more() {
        let (mut times, mut ran, mut helped) = (Times::new(2), [0, 0, 0, 0], 0);
        const SECONDS: u32 = 60;
        for _ in 0..SECONDS * 20 {
            for thread in times.look([(0, ran[0]), (1, ran[1]), (2, ran[2]), (3, ran[3])]) {
                // What is looked at late has more.
                ran[thread as usize] += 8;
                helped += 8;
                assert!(!times.starving.check(thread, Some((true, ran[thread as usize] * MS))));
            }
        }
        let part = 1000 * SECONDS * times.starving.processors / PART;
        assert!(helped > part * 8 / 10 && helped <= part + 116, "{helped} ms of {part}");
        assert!(ran.iter().all(|ms| *ms > part / 5), "{ran:?}");
    }
}
