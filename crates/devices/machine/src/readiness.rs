//! Whether a thread of this process has something to do, and how long it has run.
//!
//! Source: `proc_pid_stat(5)`; `/proc/[pid]/task/[tid]/schedstat`, Documentation/scheduler/sched-stats.rst of the kernel.

use std::time::Duration;

/// How long a thread of this process has run, in all, by its number; nothing of one that has nothing to do, or has ended.
pub fn ran_if_busy(thread: i32) -> Option<Duration> {
    is_busy(&told(thread, "stat")?).then(|| ran(&told(thread, "schedstat")?))?
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether it runs, is ready to, or waits for a disk.
    pub is_busy: bool,
    /// How long it has run, in all.
    pub ran: Duration,
}

impl Readiness {
    /// Of a thread of this process, by its number; nothing of one that has ended.
    pub fn of(thread: i32) -> Option<Self> {
        Some(Self { is_busy: is_busy(&told(thread, "stat")?), ran: ran(&told(thread, "schedstat")?)? })
    }
}

fn told(thread: i32, what: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}")).ok()
}

fn is_busy(stat: &str) -> bool {
    // The name before it may have anything in it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['R', 'D']))
}

fn ran(schedstat: &str) -> Option<Duration> {
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read_as_it_is() {
        assert!(is_busy("7 (a) S (b) R 1 7 7 0 -1 64\n") && is_busy("7 (a) D 1 7 7 0 -1 64\n"));
        assert!(!is_busy("7 (R) S 1 7 7 0 -1 64\n") && !is_busy(""));
        assert_eq!(ran("2345678 99 3\n"), Some(Duration::from_nanos(2_345_678)));
        assert_eq!(ran("\n"), None);
    }

    #[test]
    fn one_that_asks_is_busy_and_runs() {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let before = Readiness::of(me).expect("it is there");
        assert!(before.is_busy);
        while Readiness::of(me).expect("it is there").ran == before.ran {
            std::hint::spin_loop();
        }
        assert!(ran_if_busy(me).expect("it is busy") > before.ran);
        assert_eq!((Readiness::of(-1), ran_if_busy(-1)), (None, None));
    }
}
