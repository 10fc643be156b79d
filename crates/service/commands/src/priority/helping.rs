//! Threads that serve requests and do not come to run are helped, as [`Starving`] decides: with the niceness of high class.
//!
//! Threads of the background, nicer than the process and of no class, are left to themselves.

use baton_admission::{Starving, Thread};
use baton_machine::{Bearer, Loan, Readiness, Right, bearers, ran_if_busy, right};
use baton_types::Class;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Whoever looks, and what was lent.
pub(crate) struct Helping {
    starving: Starving,
    began: Instant,
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
        Self { starving, began: Instant::now(), loans: HashMap::new() }
    }

    /// Looks at all threads that serve requests of low or normal class. One that has stood for so long is helped.
    /// Says whether anybody is.
    pub fn look(&mut self, patience: Duration) -> bool {
        if right() == Right::None {
            return false;
        }
        let may_starve = |bearer: &Arc<Bearer>| matches!(bearer.class(), Some(Class::Low | Class::Normal));
        let bearers = bearers().into_iter().filter(may_starve).map(|bearer| (bearer.thread(), bearer));
        let bearers: HashMap<_, _> = bearers.collect();
        // There may be very many, and few of them have something to do.
        let busy = bearers.keys().filter_map(|thread| Some((*thread, ran_if_busy(*thread)?)));
        for thread in self.starving.look(self.began.elapsed(), patience, busy) {
            if let Some(loan) = bearers[&thread].lend_as(Class::High) {
                STARVED.fetch_add(1, Relaxed);
                self.loans.insert(thread, loan);
            }
        }
        self.helps()
    }

    /// Looks at those that are helped, and says whether there are any left.
    pub fn check(&mut self) -> bool {
        for thread in self.starving.helped().collect::<Vec<_>>() {
            let seen = Readiness::of(thread).map(|seen| (seen.is_busy, seen.ran));
            if !self.starving.check(self.began.elapsed(), thread, seen) {
                self.loans.remove(&thread);
            }
        }
        self.helps()
    }

    /// Nobody is looked at any more: what was lent is given back.
    pub fn forget(&mut self) {
        self.loans.clear();
        self.starving.forget();
    }

    fn helps(&self) -> bool {
        self.starving.helped().next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_machine::as_class;
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
                helping.look(50 * MS);
                helping.check();
            }
            // Once it may, it ends.
            let after = computed();
            helping.forget();
            stop.store(true, Relaxed);
            as_class(Class::Normal);
            assert!(after >= before + 2 * MS, "helped {} times", starved());
        });
    }
}
