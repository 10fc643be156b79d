//! Threads that are ready and do not come to run, because more urgent ones want the processors all the time.
//!
//! Niceness gives everybody a part of the time, however small: beside one that is 39 levels less nice and never idle, a five-thousandth, so that
//! a request of 0.3 ms lasts for two seconds. No queue sees that: the thread may not even have read the request that it was woken for.
//! So somebody [looks](Starving::look) now and then which threads have been ready for a while and have not run, and lends them the niceness of high
//! class until they have nothing to do or have had [`ENOUGH`], who has stood for the longest first.
//!
//! Invariants: as many are helped at once as there are processors, and all that are helped have a [`PART`]th of the processors' time together, so that
//! helping cannot turn the order of the classes round, however many there are and however long they compute. Who has nothing to do has no loan for
//! longer than until he is looked at. Threads of the background, nicer than the process and of no class, are left to themselves.
//!
//! Source: `proc_pid_stat(5)`; `/proc/[pid]/task/[tid]/schedstat`, Documentation/scheduler/sched-stats.rst of the kernel.

use crate::niceness::{Bearer, Loan, Right, bearers, right};
use baton_types::Class;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// After so much of a processor's time it is the next one's turn.
const ENOUGH: Duration = Duration::from_millis(5);
/// All that are helped have one part in so many of the processors' time.
const PART: u32 = 20;
/// What is not used up is kept for later, up to so much for each processor.
const SAVED: Duration = Duration::from_millis(50);

/// A thread, as the kernel numbers it.
type Thread = i32;

/// What is known of a thread that was ready when it was looked at last.
#[derive(Clone, Copy, Debug)]
struct Stands {
    /// How long it had run, in all.
    ran: Duration,
    /// When it was first seen to be ready with that.
    since: Instant,
}

/// Decides who is helped. It knows what it is told, and when that was.
#[derive(Debug)]
struct Helper {
    processors: u32,
    ready: HashMap<Thread, Stands>,
    /// Those that are helped, with how long they had run when that began.
    helped: HashMap<Thread, Duration>,
    /// What may be used before anybody else is helped, and when that was so. The last one may have had more, which is owed then.
    saved: Duration,
    owed: Duration,
    counted: Option<Instant>,
}

impl Helper {
    fn new(processors: u32) -> Self {
        let (ready, helped) = Default::default();
        Self { processors, ready, helped, saved: Duration::ZERO, owed: Duration::ZERO, counted: None }
    }

    /// These are ready now, and no others, and have run for so long. Who is to be helped from now on: of those that have stood for so long.
    fn look(
        &mut self,
        now: Instant,
        patience: Duration,
        ready: impl IntoIterator<Item = (Thread, Duration)>,
    ) -> Vec<Thread> {
        self.save(now);
        let before = std::mem::take(&mut self.ready);
        let stands = |(thread, ran)| match before.get(&thread) {
            Some(stands) if stands.ran == ran => (thread, *stands),
            _ => (thread, Stands { ran, since: now }),
        };
        self.ready = ready.into_iter().map(stands).collect();
        let starves = |(thread, stands): (&Thread, &Stands)| {
            (now >= stands.since + patience && !self.helped.contains_key(thread)).then_some((stands.since, *thread))
        };
        let mut starving: Vec<_> = self.ready.iter().filter_map(starves).collect();
        starving.sort_unstable();
        let room = if self.saved.is_zero() { 0 } else { (self.processors as usize).saturating_sub(self.helped.len()) };
        let helped: Vec<_> = starving.into_iter().take(room).map(|(_, thread)| thread).collect();
        self.helped.extend(helped.iter().map(|thread| (*thread, self.ready[thread].ran)));
        helped
    }

    /// Whether one that is helped is ready, and how long it has run; nothing, if it has ended. Whether it is helped further.
    fn check(&mut self, thread: Thread, seen: Option<(bool, Duration)>) -> bool {
        let Some(before) = self.helped.get(&thread) else { return false };
        let (is_ready, used) = seen.map_or((false, ENOUGH), |(is_ready, ran)| (is_ready, ran.saturating_sub(*before)));
        if is_ready && used < ENOUGH {
            return true;
        }
        self.helped.remove(&thread);
        self.pay(used);
        false
    }

    fn save(&mut self, now: Instant) {
        let since = self.counted.replace(now).map_or(Duration::ZERO, |before| now.saturating_duration_since(before));
        let earned = since * self.processors / PART;
        let paid = earned.min(self.owed);
        self.owed -= paid;
        self.saved = (self.saved + earned - paid).min(SAVED * self.processors);
    }

    fn pay(&mut self, used: Duration) {
        self.owed += used.saturating_sub(self.saved);
        self.saved = self.saved.saturating_sub(used);
    }
}

/// Whoever looks, and what was lent.
#[derive(Debug)]
pub struct Starving {
    helper: Helper,
    loans: HashMap<Thread, Loan>,
}

/// How often a thread was ready and did not come to run, and was helped, since the start.
static STARVED: AtomicU64 = AtomicU64::new(0);

/// How often a thread was ready and did not come to run, and was helped, since the start.
pub fn starved() -> u64 {
    STARVED.load(Relaxed)
}

impl Default for Starving {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { helper: Helper::new(u32::try_from(processors).unwrap_or(u32::MAX)), loans: HashMap::new() }
    }
}

impl Starving {
    /// Looks at all threads that serve requests of low or normal class. One that has been seen to be ready for so long, and has not run, is helped.
    /// Says whether anybody is.
    pub fn look(&mut self, now: Instant, patience: Duration) -> bool {
        if right() == Right::None {
            return false;
        }
        let may_starve = |bearer: &Arc<Bearer>| matches!(bearer.class(), Some(Class::Low | Class::Normal));
        let bearers = bearers().into_iter().filter(may_starve).map(|bearer| (bearer.thread(), bearer));
        let bearers: HashMap<_, _> = bearers.collect();
        let ready = bearers.keys().filter_map(|thread| match seen(*thread)? {
            (true, ran) => Some((*thread, ran)),
            (false, _) => None,
        });
        for thread in self.helper.look(now, patience, ready) {
            if let Some(loan) = bearers[&thread].lend_as(Class::High) {
                STARVED.fetch_add(1, Relaxed);
                self.loans.insert(thread, loan);
            }
        }
        !self.helper.helped.is_empty()
    }

    /// Looks at those that are helped, and says whether there are any left.
    pub fn check(&mut self) -> bool {
        let helped: Vec<_> = self.helper.helped.keys().copied().collect();
        for thread in helped {
            if !self.helper.check(thread, seen(thread)) {
                self.loans.remove(&thread);
            }
        }
        !self.helper.helped.is_empty()
    }

    /// Nobody is looked at any more: what was lent is given back.
    pub fn forget(&mut self) {
        self.loans.clear();
        self.helper = Helper::new(self.helper.processors);
    }
}

/// Whether a thread of this process is ready, and how long it has run. One that runs just now is ready.
fn seen(thread: Thread) -> Option<(bool, Duration)> {
    let told = |what: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}")).ok();
    Some((is_ready(&told("stat")?), ran(&told("schedstat")?)?))
}

fn is_ready(stat: &str) -> bool {
    // The name before it may have anything in it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

fn ran(schedstat: &str) -> Option<Duration> {
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::niceness::as_class;
    use std::sync::atomic::{AtomicBool, AtomicI32};

    const MS: Duration = Duration::from_millis(1);

    /// One that looks every 50 ms.
    struct Times {
        helper: Helper,
        now: Instant,
    }

    impl Times {
        fn new(processors: u32) -> Self {
            let mut times = Self { helper: Helper::new(processors), now: Instant::now() };
            times.look([]);
            times
        }

        fn look<const N: usize>(&mut self, ready: [(Thread, u32); N]) -> Vec<Thread> {
            self.now += 50 * MS;
            self.helper.look(self.now, 50 * MS, ready.map(|(thread, ms)| (thread, ms * MS)))
        }
    }

    #[test]
    fn who_is_ready_and_does_not_run_is_helped_until_he_has_run_enough_or_has_nothing_to_do() {
        let mut times = Times::new(1);
        assert!(times.look([(1, 7)]).is_empty(), "it may have become ready just now");
        assert!(times.look([(1, 8)]).is_empty(), "it has run in between");
        assert_eq!(times.look([(1, 8)]), [1]);
        assert!(times.look([(1, 8)]).is_empty(), "it is helped already");
        assert!(times.helper.check(1, Some((true, 10 * MS))), "it is at it");
        assert!(!times.helper.check(1, Some((true, 13 * MS))), "it has had enough");
        assert!(!times.helper.check(1, Some((true, 13 * MS))), "and is not helped any more");
        assert!(times.look([(1, 13)]).is_empty());
        assert_eq!(times.look([(1, 13)]), [1], "from the beginning");
        assert!(!times.helper.check(1, Some((false, 14 * MS))), "nothing to do");
        times.look([(1, 14)]);
        assert_eq!(times.look([(1, 14)]), [1]);
        assert!(!times.helper.check(1, None), "it has ended");
    }

    #[test]
    fn who_stands_is_helped_after_a_while_however_often_it_is_looked() {
        let mut times = Times::new(1);
        for _ in 0..5 {
            assert!(times.helper.look(times.now, 50 * MS, [(1, 7 * MS)]).is_empty());
            times.now += 10 * MS;
        }
        assert_eq!(times.helper.look(times.now, 50 * MS, [(1, 7 * MS)]), [1]);
    }

    #[test]
    fn who_has_stood_for_the_longest_is_first_and_there_are_no_more_than_processors() {
        let mut times = Times::new(2);
        times.look([(9, 0)]);
        assert_eq!(times.look([(1, 0), (2, 0), (9, 0)]), [9]);
        assert_eq!(times.look([(1, 0), (2, 0), (3, 0), (9, 0)]), [1], "two are helped");
        assert!(!times.helper.check(9, Some((false, MS))));
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
                assert!(!times.helper.check(thread, Some((true, ran[thread as usize] * MS))));
            }
        }
        let part = 1000 * SECONDS * times.helper.processors / PART;
        assert!(helped > part * 8 / 10 && helped <= part + 116, "{helped} ms of {part}");
        assert!(ran.iter().all(|ms| *ms > part / 5), "{ran:?}");
    }

    #[test]
    fn what_the_kernel_tells_is_read_as_it_is() {
        assert!(is_ready("7 (a) S (b) R 1 7 7 0 -1 64\n") && !is_ready("7 (R) S 1 7 7 0 -1 64\n") && !is_ready(""));
        assert_eq!(ran("2345678 99 3\n"), Some(Duration::from_nanos(2_345_678)));
        assert_eq!(ran("\n"), None);
    }

    /// Beside two urgent threads that are never idle one of low class has half a millisecond in a second.
    #[test]
    fn one_of_low_class_gets_to_run_beside_urgent_ones_that_are_never_idle() {
        if right() != Right::All {
            return;
        }
        let (stop, low) = (AtomicBool::new(false), AtomicI32::new(0));
        std::thread::scope(|scope| {
            let spin = |class| {
                let mut one = rustix::thread::CpuSet::new();
                one.set(0);
                // Where the first processor is not for this process, wherever it likes.
                let _ = rustix::thread::sched_setaffinity(None, &one);
                as_class(class);
                if class == Class::Low {
                    low.store(rustix::thread::gettid().as_raw_nonzero().get(), Relaxed);
                }
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            };
            scope.spawn(move || spin(Class::Low));
            while low.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            scope.spawn(move || spin(Class::High));
            scope.spawn(move || spin(Class::High));
            as_class(Class::High);
            let computed = || seen(low.load(Relaxed)).expect("it is there").1;
            let (mut starving, began, before) = (Starving::default(), Instant::now(), computed());
            while computed() < before + 4 * MS && began.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(5 * MS);
                starving.look(Instant::now(), 50 * MS);
                starving.check();
            }
            starving.forget();
            stop.store(true, Relaxed);
            as_class(Class::Normal);
            assert!(computed() >= before + 4 * MS, "helped {} times", starved());
        });
    }
}
