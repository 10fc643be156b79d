//! Threads that serve requests and do not come to run are helped, as [`Starving`] decides: with the niceness of high class. They are looked at as
//! often as [`Pace`] says.
//!
//! Threads of the background, nicer than the process and of no class, are left to themselves.
//!
//! Whoever looks has to come to run himself, so he is as urgent as those who are not to wait for anybody, and asks of a few threads at once.

use baton_admission::{Moment, Pace, Starving, Thread};
use baton_machine::{Bearer, Loan, Readiness, Right, ThreadTime, bearers, ran_if_busy, right};
use baton_types::Class;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// So many threads are asked at once. One costs some 7 µs.
const ASKED_AT_ONCE: usize = 4;

/// Whoever looks, and what was lent.
pub(crate) struct Helping {
    starving: Starving,
    pace: Pace,
    began: Instant,
    /// Those who are to be asked yet in the look under way, and those of the others that were busy, with what they had run.
    to_ask: Vec<Arc<Bearer>>,
    busy: HashMap<Thread, (Arc<Bearer>, Duration)>,
    loans: HashMap<Thread, Loan>,
}

/// How often a thread was ready and did not come to run, and was helped, since the start.
static STARVED: AtomicU64 = AtomicU64::new(0);

/// How often a thread was ready and did not come to run, and was helped, since the start.
pub(super) fn starved() -> u64 {
    STARVED.load(Relaxed)
}

impl Helping {
    pub fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let starving = Starving::new(u32::try_from(processors).unwrap_or(u32::MAX));
        let pace = Pace::new(Moment::ZERO);
        Self { starving, pace, began: Instant::now(), to_ask: Vec::new(), busy: HashMap::new(), loans: HashMap::new() }
    }

    fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// For how long there is nothing to do.
    pub fn rest(&self) -> Duration {
        self.pace.rest(self.now(), self.helps())
    }

    /// Whether it is to be looked further.
    pub fn is_due(&self) -> bool {
        self.pace.is_due(self.now())
    }

    /// Looks at a few of the threads that serve requests of low or normal class. Once it has looked at all, those that have stood for so long
    /// are helped; says whether that is so. The next call begins from the beginning then.
    pub fn look(&mut self, patience: Duration) -> bool {
        let (now, before) = (self.now(), ThreadTime::now());
        let is_over = right() == Right::None || self.ask_a_few(patience);
        self.pace.asked(now, before.elapsed().unwrap_or_default());
        if is_over {
            self.pace.end_look(patience, self.helps());
        }
        is_over
    }

    fn ask_a_few(&mut self, patience: Duration) -> bool {
        if self.to_ask.is_empty() {
            let may_starve = |bearer: &Arc<Bearer>| matches!(bearer.class(), Some(Class::Low | Class::Normal));
            self.to_ask = bearers().into_iter().filter(may_starve).collect();
        }
        // There may be very many, and few of them have something to do.
        let left = self.to_ask.len().saturating_sub(ASKED_AT_ONCE);
        for bearer in self.to_ask.drain(left..) {
            if let Some(ran) = ran_if_busy(bearer.thread()) {
                self.busy.insert(bearer.thread(), (bearer, ran));
            }
        }
        if !self.to_ask.is_empty() {
            return false;
        }
        let busy = std::mem::take(&mut self.busy);
        let ran = busy.iter().map(|(thread, (_, ran))| (*thread, *ran));
        for thread in self.starving.look(self.now(), patience, ran) {
            if let Some(loan) = busy[&thread].0.lend_as(Class::High) {
                STARVED.fetch_add(1, Relaxed);
                self.loans.insert(thread, loan);
            }
        }
        true
    }

    /// Looks at those that are helped.
    pub fn check(&mut self) {
        for thread in self.starving.helped().collect::<Vec<_>>() {
            let seen = Readiness::of(thread).map(|seen| (seen.is_busy, seen.ran));
            if !self.starving.check(self.now(), thread, seen) {
                self.loans.remove(&thread);
            }
        }
    }

    /// Nobody is to be looked at, for a patience at least: what was lent is given back.
    pub fn forget(&mut self, patience: Duration) {
        self.pace.skip(self.now(), patience);
        self.loans.clear();
        self.to_ask.clear();
        self.busy.clear();
        self.starving.forget();
    }

    /// Whether anybody is helped.
    fn helps(&self) -> bool {
        self.starving.helped().next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_machine::as_class;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicI32};

    const MS: Duration = Duration::from_millis(1);

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
            let computed = || Readiness::of(low.load(Relaxed)).expect("it is there").ran;
            let (mut helping, began, before) = (Helping::new(), Instant::now(), computed());
            while computed() < before + 2 * MS && began.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(5 * MS);
                while !helping.look(50 * MS) {}
                helping.check();
            }
            // Once it may, it ends.
            let after = computed();
            helping.forget(50 * MS);
            stop.store(true, Relaxed);
            as_class(Class::Normal);
            assert!(after >= before + 2 * MS, "helped {} times", starved());
        });
    }

    #[test]
    fn a_few_threads_are_asked_at_once_until_all_have_been() {
        if right() == Right::None {
            return;
        }
        const THREADS: usize = 3 * ASKED_AT_ONCE;
        let (began, ends) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    as_class(Class::Low);
                    began.wait();
                    ends.wait();
                });
            }
            began.wait();
            let mut helping = Helping::new();
            let calls = 1 + (0..).take_while(|_| !helping.look(50 * MS)).count();
            // Once they may, they end.
            ends.wait();
            assert!(calls >= THREADS / ASKED_AT_ONCE && helping.to_ask.is_empty(), "{calls}");
        });
    }
}
