//! Threads that are ready and do not come to run, because more urgent ones want the processors all the time: who of them is helped.
//!
//! Niceness gives everybody a part of the time, however small: beside one that is 39 levels less nice and never idle, a five-thousandth, so that
//! a request of 0.3 ms lasts for two seconds. No queue sees that: the thread may not even have read the request that it was woken for.
//! So somebody [looks](Starving::look) now and then which threads are busy: ready, or at a disk. Who was so at every look from some time on *stands* from
//! then on, as long as he has had less than [`ENOUGH`]; who has had more computes for long, and stands while he has nothing at all. Who has stood for a
//! while is helped, as if he were of high class, until he has nothing to do or has had [`ENOUGH`], who has stood for the longest first.
//! One who has to go to the disk ten times would else wait ten times for a processor: who opens a file for all does.
//!
//! Invariants: as many are helped at once as there are processors, and all that are helped have a [`PART`]th of the processors' time together, so that
//! helping cannot turn the order of the classes round, however many there are and however long they compute. Who has nothing to do is helped for
//! no longer than until he is looked at, and nobody for longer than [`LASTS_MAX`].
//! What it deliberately does not do: read a clock, know what a thread is or how it is helped.

use crate::admission::Moment;
use crate::mutant::{Fault, Mutant};
use std::collections::BTreeMap;
use std::time::Duration;

/// After so much of a processor's time it is the next one's turn.
pub const ENOUGH: Duration = Duration::from_millis(2);
/// All that are helped have one part in so many of the processors' time.
pub const PART: u32 = 20;
/// What is not used up is kept for later, up to so much for each processor.
pub const SAVED: Duration = Duration::from_millis(50);
/// Whoever has not had enough after so long waits for a disk, and is in others' way.
pub const LASTS_MAX: Duration = Duration::from_millis(50);

/// A thread, as the kernel numbers it.
pub type Thread = i32;

/// What is known of a thread that was busy when it was looked at last.
#[derive(Clone, Copy, Debug)]
struct Stands {
    /// Since when, unless it was helped meanwhile.
    since: Option<Moment>,
    /// How long it had run, in all, when it was seen last.
    ran: Duration,
    /// The same, when it was first seen so.
    ran_before: Duration,
}

impl Stands {
    /// It was not busy before.
    fn new(now: Moment, ran: Duration) -> Self {
        Self { since: Some(now), ran, ran_before: ran }
    }

    /// It is busy still, and has run for so long.
    fn look(&self, now: Moment, ran: Duration, fault: &Fault) -> Self {
        let has_little = ran.saturating_sub(self.ran_before) < ENOUGH;
        let goes_on = has_little || ran == self.ran || fault.is(Mutant::HelpsWhoRuns);
        Self { since: Some(self.since.filter(|_| goes_on).unwrap_or(now)), ran, ..*self }
    }
}

/// What is known of one that is helped.
#[derive(Clone, Copy, Debug)]
struct Helped {
    since: Moment,
    /// How long it had run, in all, when that began.
    ran_before: Duration,
}

/// Decides who is helped. It knows what it is told, and when that was.
#[derive(Debug)]
pub struct Starving {
    processors: u32,
    busy: BTreeMap<Thread, Stands>,
    helped: BTreeMap<Thread, Helped>,
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
        let (busy, helped, fault) = Default::default();
        Self { processors, busy, helped, saved: Duration::ZERO, owed: Duration::ZERO, counted: None, fault }
    }

    /// These are busy now, and no others, and have run for so long, in all. Who is to be helped from now on: of those that have stood for so long.
    pub fn look(
        &mut self,
        now: Moment,
        patience: Duration,
        busy: impl IntoIterator<Item = (Thread, Duration)>,
    ) -> Vec<Thread> {
        self.save(now);
        let before = std::mem::take(&mut self.busy);
        let stands = |(thread, ran)| match before.get(&thread) {
            Some(stands) => (thread, stands.look(now, ran, &self.fault)),
            None => (thread, Stands::new(now, ran)),
        };
        self.busy = busy.into_iter().map(stands).collect();
        let patience = if self.fault.is(Mutant::HelpsAtOnce) { Duration::ZERO } else { patience };
        let starves = |(thread, stands): (&Thread, &Stands)| {
            let since = stands.since.filter(|since| now >= *since + patience)?;
            (!self.helped.contains_key(thread)).then_some((since, *thread))
        };
        let mut starving: Vec<_> = self.busy.iter().filter_map(starves).collect();
        starving.sort_unstable();
        if self.fault.is(Mutant::HelpsTheLastFirst) {
            starving.reverse();
        }
        let is_spent = self.saved.is_zero() && !self.fault.is(Mutant::HelpsForNothing);
        let most = if self.fault.is(Mutant::HelpsEverybody) { usize::MAX } else { self.processors as usize };
        let room =
            if is_spent || self.fault.is(Mutant::HelpsNobody) { 0 } else { most.saturating_sub(self.helped.len()) };
        let helped: Vec<_> = starving.into_iter().take(room).map(|(_, thread)| thread).collect();
        let begins = |thread: &Thread| (*thread, Helped { since: now, ran_before: self.busy[thread].ran });
        self.helped.extend(helped.iter().map(begins));
        helped
    }

    /// Whether one that is helped is busy, and how long it has run; nothing, if it has ended. Whether it is helped further.
    pub fn check(&mut self, now: Moment, thread: Thread, seen: Option<(bool, Duration)>) -> bool {
        let Some(helped) = self.helped.get(&thread) else { return false };
        let (is_busy, used) =
            seen.map_or((false, ENOUGH), |(is_busy, ran)| (is_busy, ran.saturating_sub(helped.ran_before)));
        let is_over = used >= ENOUGH || now >= helped.since + LASTS_MAX;
        if (is_busy || self.fault.is(Mutant::HelpsTheIdle)) && (!is_over || self.fault.is(Mutant::HelpsToTheEnd)) {
            return true;
        }
        self.helped.remove(&thread);
        // From the beginning, if it goes on to stand.
        if let Some(stands) = self.busy.get_mut(&thread) {
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

        /// These are busy, each with the milliseconds that it has run.
        fn look<const N: usize>(&mut self, busy: [(Thread, u32); N]) -> Vec<Thread> {
            self.now += 50 * MS;
            self.starving.look(self.now, 50 * MS, busy.map(|(thread, ms)| (thread, ms * MS)))
        }

        fn check(&mut self, thread: Thread, is_busy: bool, ms: u32) -> bool {
            self.starving.check(self.now, thread, Some((is_busy, ms * MS)))
        }
    }

    #[test]
    fn who_is_ready_and_does_not_run_is_helped_until_he_has_run_enough_or_has_nothing_to_do() {
        let mut times = Times::new(1);
        assert!(times.look([(1, 7)]).is_empty(), "it may have become ready just now");
        assert_eq!(times.look([(1, 7)]), [1]);
        assert!(times.starving.look(times.now, MS, [(1, 7 * MS)]).is_empty(), "it is helped already");
        assert!(times.check(1, true, 8), "it is at it");
        assert!(!times.check(1, true, 9), "it has had enough");
        assert!(!times.check(1, true, 9), "and is not helped any more");
        assert!(times.look([(1, 9)]).is_empty());
        assert_eq!(times.look([(1, 9)]), [1], "from the beginning");
        assert!(!times.check(1, false, 10), "nothing to do");
        times.look([(1, 10)]);
        assert_eq!(times.look([(1, 10)]), [1]);
        assert!(!times.starving.check(times.now, 1, None), "it has ended");
    }

    #[test]
    fn who_has_had_little_stands_though_he_runs_now_and_then_and_who_computes_for_long_while_he_has_nothing() {
        let mut times = Times::new(1);
        assert!(times.look([(1, 7)]).is_empty());
        assert_eq!(times.look([(1, 8)]), [1], "1 ms of 50");
        assert!(!times.check(1, true, 10));
        for ms in [11, 12, 13, 14] {
            assert!(times.look([(1, ms)]).is_empty(), "it has had more, and runs now and then");
        }
        assert_eq!(times.look([(1, 14)]), [1], "it does not run at all");
        assert!(!times.check(1, true, 16));
        times.look([]);
        assert!(times.look([(1, 16)]).is_empty(), "it had nothing to do in between");
        assert_eq!(times.look([(1, 17)]), [1]);
    }

    #[test]
    fn who_waits_for_a_disk_is_not_helped_for_ever() {
        let mut times = Times::new(1);
        times.look([(1, 0)]);
        assert_eq!(times.look([(1, 0)]), [1]);
        times.now += 49 * MS;
        assert!(times.check(1, true, 1));
        times.now += MS;
        assert!(!times.check(1, true, 1));
    }

    #[test]
    fn who_stands_is_helped_after_a_while_however_often_it_is_looked() {
        let mut times = Times::new(1);
        let busy = [(1, 7 * MS)];
        for _ in 0..5 {
            assert!(times.starving.look(times.now, 50 * MS, busy).is_empty());
            times.now += 10 * MS;
        }
        assert_eq!(times.starving.look(times.now, 50 * MS, busy), [1]);
    }

    #[test]
    fn who_has_stood_for_the_longest_is_first_and_there_are_no_more_than_processors() {
        let mut times = Times::new(2);
        times.look([(9, 0)]);
        assert_eq!(times.look([(1, 0), (2, 0), (9, 0)]), [9]);
        assert_eq!(times.look([(1, 0), (2, 0), (3, 0), (9, 0)]), [1], "two are helped");
        assert!(!times.check(9, false, 1));
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
                assert!(!times.check(thread, true, ran[thread as usize]));
            }
        }
        let part = 1000 * SECONDS * times.starving.processors / PART;
        assert!(helped > part * 8 / 10 && helped <= part + 116, "{helped} ms of {part}");
        assert!(ran.iter().all(|ms| *ms > part / 5), "{ran:?}");
    }
}
