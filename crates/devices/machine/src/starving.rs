//! Threads that are ready and do not come to run, because more urgent ones want the processors all the time.
//!
//! Niceness gives everybody a part of the time, however small: beside one that is 39 levels less nice and never idle, a five-thousandth, so that
//! a request of 0.3 ms lasts for two seconds. No queue sees that: the thread may not even have read the request that it was woken for.
//! So somebody [looks](Starving::look) now and then, and lends whoever has been ready twice in a row, and has not run in between, the niceness of
//! the next class, and of the one after that if it does not help.
//!
//! Invariants: who has nothing to do is lent nothing, and nobody for more than [`ENOUGH`] of a processor's time. Threads of the background, nicer
//! than the process and of no class, are left to themselves.
//!
//! Source: `proc_pid_stat(5)`; `/proc/[pid]/task/[tid]/schedstat`, Documentation/scheduler/sched-stats.rst of the kernel.

use crate::niceness::{Bearer, Loan, Right, bearers, right};
use baton_types::Class;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// After so much of a processor's time a thread is on its own again: what takes longer is not starving, but of low class.
const ENOUGH: Duration = Duration::from_millis(5);

/// What is known of a thread that was ready when it was looked at last.
#[derive(Debug, Default)]
struct Ready {
    /// How long it had run.
    ran: Duration,
    loan: Option<(Lent, Loan)>,
}

/// Of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lent {
    class: Class,
    /// How long the thread had run when it got the first.
    since: Duration,
}

/// What becomes of a thread's loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Take,
    Lend(Class),
}

/// Of one that is of this class by itself, is ready now, and was ready at the last look. `ran`: until then, and until now.
fn judge(own: Class, lent: Option<Lent>, ran: (Duration, Duration)) -> Verdict {
    let (before, now) = ran;
    match lent {
        Some(lent) if now >= lent.since + ENOUGH => Verdict::Take,
        _ if now > before => Verdict::Keep,
        _ => match lent.map_or(own, |lent| lent.class) {
            Class::Low => Verdict::Lend(Class::Normal),
            Class::Normal => Verdict::Lend(Class::High),
            Class::High | Class::Background => Verdict::Keep,
        },
    }
}

/// Whoever looks. The longest that a thread is ready and does not run is about five times what is between two looks.
#[derive(Debug, Default)]
pub struct Starving {
    /// By the kernel's number of the thread.
    ready: HashMap<i32, Ready>,
}

/// How often a thread was lent something because it did not come to run, since the start.
static STARVED: AtomicU64 = AtomicU64::new(0);

/// How often a thread was ready and did not come to run, and was helped, since the start.
pub fn starved() -> u64 {
    STARVED.load(Relaxed)
}

impl Starving {
    /// Looks at all threads that serve requests.
    pub fn look(&mut self) {
        if right() == Right::None {
            return;
        }
        let mut before = std::mem::take(&mut self.ready);
        for bearer in bearers() {
            let Some(own @ (Class::Low | Class::Normal)) = bearer.class() else { continue };
            let thread = bearer.thread();
            if let Some(ran) = ran_if_ready(thread) {
                let ready = judged(&bearer, own, before.remove(&thread), ran);
                self.ready.insert(thread, ready);
            }
        }
    }

    /// Nobody is looked at any more: what was lent is given back.
    pub fn forget(&mut self) {
        self.ready.clear();
    }
}

fn judged(bearer: &Arc<Bearer>, own: Class, was_ready: Option<Ready>, ran: Duration) -> Ready {
    let Some(Ready { ran: ran_before, loan }) = was_ready else { return Ready { ran, loan: None } };
    let loan = match judge(own, loan.as_ref().map(|(lent, _)| *lent), (ran_before, ran)) {
        Verdict::Keep => loan,
        Verdict::Take => None,
        Verdict::Lend(class) => {
            let since = loan.map_or(ran, |(lent, _)| lent.since);
            let loan = bearer.lend_as(class).map(|loan| (Lent { class, since }, loan));
            STARVED.fetch_add(u64::from(loan.is_some()), Relaxed);
            loan
        }
    };
    Ready { ran, loan }
}

/// What the kernel tells of a thread of this process.
fn told(thread: i32, what: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}")).ok()
}

/// How long a thread has run, if it is ready. One that runs just now is.
fn ran_if_ready(thread: i32) -> Option<Duration> {
    is_ready(&told(thread, "stat")?).then(|| told(thread, "schedstat"))?.as_deref().and_then(ran)
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
    use std::time::Instant;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_is_ready_and_does_not_run_is_of_the_next_class_until_he_has_run_enough() {
        let lent = |class| Some(Lent { class, since: 10 * MS });
        let stands = (10 * MS, 10 * MS);
        assert_eq!(judge(Class::Low, None, stands), Verdict::Lend(Class::Normal));
        assert_eq!(judge(Class::Low, lent(Class::Normal), stands), Verdict::Lend(Class::High));
        assert_eq!(judge(Class::Low, lent(Class::High), stands), Verdict::Keep, "there is no more than that");
        assert_eq!(judge(Class::Normal, None, stands), Verdict::Lend(Class::High));
        assert_eq!(judge(Class::Low, None, (10 * MS, 11 * MS)), Verdict::Keep, "it runs");
        assert_eq!(judge(Class::Low, lent(Class::Normal), (10 * MS, 11 * MS)), Verdict::Keep, "it is at it");
        assert_eq!(judge(Class::Low, lent(Class::Normal), (14 * MS, 15 * MS)), Verdict::Take, "it has had enough");
        assert_eq!(judge(Class::Low, lent(Class::High), (15 * MS, 15 * MS)), Verdict::Take, "whether it runs or not");
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
            let computed = || told(low.load(Relaxed), "schedstat").as_deref().and_then(ran).expect("it is there");
            let (mut starving, began, before) = (Starving::default(), Instant::now(), computed());
            while computed() < before + 10 * MS && began.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(20 * MS);
                starving.look();
            }
            starving.forget();
            stop.store(true, Relaxed);
            as_class(Class::Normal);
            assert!(computed() >= before + 10 * MS, "helped {} times", starved());
        });
    }
}
