//! Whether a thread of this process is ready to run, how long it has run, and how often it has gone to sleep.
//!
//! Source: `proc_pid_stat(5)`, `proc_pid_status(5)`; `/proc/[pid]/task/[tid]/schedstat`, Documentation/scheduler/sched-stats.rst of the kernel.

use std::time::Duration;

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether it is ready, or runs just now.
    pub is_ready: bool,
    /// How long it has run, in all.
    pub ran: Duration,
    /// How often it has gone to sleep, in all, or waited for a disk.
    pub sleeps: u64,
}

impl Readiness {
    /// Of a thread of this process, by its number; nothing of one that has ended.
    pub fn of(thread: i32) -> Option<Self> {
        let told = |what: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}")).ok();
        Some(Self {
            is_ready: is_ready(&told("stat")?),
            ran: ran(&told("schedstat")?)?,
            sleeps: sleeps(&told("status")?)?,
        })
    }
}

fn is_ready(stat: &str) -> bool {
    // The name before it may have anything in it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

fn ran(schedstat: &str) -> Option<Duration> {
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn sleeps(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read_as_it_is() {
        assert!(is_ready("7 (a) S (b) R 1 7 7 0 -1 64\n") && !is_ready("7 (R) S 1 7 7 0 -1 64\n") && !is_ready(""));
        assert_eq!(ran("2345678 99 3\n"), Some(Duration::from_nanos(2_345_678)));
        assert_eq!(ran("\n"), None);
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!((sleeps(status), sleeps("\n")), (Some(150), None));
    }

    #[test]
    fn one_that_asks_is_ready_and_runs() {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let before = Readiness::of(me).expect("it is there");
        assert!(before.is_ready);
        while Readiness::of(me).expect("it is there").ran == before.ran {
            std::hint::spin_loop();
        }
        assert_eq!(Readiness::of(-1), None);
    }
}
