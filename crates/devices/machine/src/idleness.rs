//! What of the processors nobody used: of those that this process may use, and of the quota that its control group has.
//!
//! What it deliberately does not do: tell who used the rest.
//!
//! Source: `proc_stat(5)`; `cpu.max` and `cpu.stat` of the kernel's documentation of control groups, version 2, `cpu.cfs_quota_us` and
//! `cpuacct.usage` of version 1.

use crate::groups::Groups;
use crate::limits::quota;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Looks now and then.
#[derive(Debug)]
pub struct Idleness {
    processors: usize,
    /// Those that the process may run on; unknown, all that there are.
    allowed: Option<CpuSet>,
    /// Of the tightest quota: where that stands, and where what was used of it.
    group: Option<(PathBuf, PathBuf)>,
    before: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    /// Of the processors that the process may run on, in the kernel's ticks: idle ones, and all.
    ticks: (u64, u64),
    /// What the control group has used.
    used: Option<Duration>,
}

impl Default for Idleness {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let allowed = sched_getaffinity(None).ok();
        Self { processors, allowed, group: bounding_group(Path::new("/proc/self")), before: None }
    }
}

impl Idleness {
    /// How many processors there are for this process.
    pub fn processors(&self) -> usize {
        self.processors
    }

    fn may_run_on(&self, processor: usize) -> bool {
        self.allowed.is_none_or(|allowed| processor < CpuSet::MAX_CPU && allowed.is_set(processor))
    }

    /// The part of the processors, of 1, that was idle since this was last asked; `None` the first time, and where the kernel does
    /// not tell.
    pub fn since_last(&mut self) -> Option<f64> {
        let now = Seen {
            at: Instant::now(),
            ticks: parse_stat(&std::fs::read_to_string("/proc/stat").ok()?, |processor| self.may_run_on(processor))?,
            used: self.group.as_ref().and_then(|(_, accounts)| used_by(accounts)),
        };
        let before = self.before.replace(now)?;
        let all = now.ticks.1.saturating_sub(before.ticks.1);
        let idle = now.ticks.0.saturating_sub(before.ticks.0);
        // Between two ticks nothing can be seen.
        let of_machine = if all == 0 { 0.0 } else { idle as f64 / all as f64 };
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        let quota = self.group.as_ref().and_then(|(bound, _)| quota(bound));
        let of_quota = quota.zip(now.used).zip(before.used).map(|((quota, now), before)| {
            1.0 - now.saturating_sub(before).as_secs_f64() / (quota * seconds).max(f64::MIN_POSITIVE)
        });
        Some(of_quota.map_or(of_machine, |of_quota| of_quota.min(of_machine)).clamp(0.0, 1.0))
    }
}

/// Ticks idle (waiting for a disk is idle, too) and ticks in all, of the processors that count.
fn parse_stat(stat: &str, counts: impl Fn(usize) -> bool) -> Option<(u64, u64)> {
    let of_processors = stat.lines().filter_map(|line| {
        let (processor, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
        counts(processor.parse().ok()?).then_some(ticks)
    });
    let both = of_processors.map(|line| {
        let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
        // User, nice, system, idle, iowait, irq, softirq, steal; what guests use is in user already.
        Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().take(8).sum::<u64>()))
    });
    both.reduce(|one, other| Some((one?.0 + other?.0, one?.1 + other?.1)))?
}

/// The group with the tightest quota: the folder that has it, and the one that tells what it has used.
fn bounding_group(process: &Path) -> Option<(PathBuf, PathBuf)> {
    let groups = Groups::read(process);
    // Both are there in one order, the process's own group first.
    let bounded = groups.of("cpu").zip(groups.of("cpuacct")).filter_map(|both| Some((quota(&both.0)?, both)));
    bounded.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, both)| both)
}

fn used_by(group: &Path) -> Option<Duration> {
    let text = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let nanos = || text("cpuacct.usage")?.trim().parse().ok().map(Duration::from_nanos);
    text("cpu.stat").and_then(|stat| parse_used(&stat)).or_else(nanos)
}

fn parse_used(stat: &str) -> Option<Duration> {
    let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    micros.trim().parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let stat = "cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 5 0 3 40 2 0 0 0 0 0\ncpu1 5 1 2 40 2 0 0 0 7 0\nintr 1 2\n";
        assert_eq!(parse_stat(stat, |_| true), Some((84, 100)));
        assert_eq!(parse_stat(stat, |processor| processor == 1), Some((42, 50)), "what others have is nothing to it");
        assert_eq!(parse_stat(stat, |_| false), None);
        assert_eq!(parse_stat("intr 1 2", |_| true), None);
        assert_eq!(parse_used("usage_usec 1500\nuser_usec 1\n"), Some(Duration::from_micros(1500)));
    }

    #[test]
    fn the_first_look_has_nothing_to_compare_with() {
        let mut idleness = Idleness::default();
        assert!(idleness.processors() >= 1);
        assert!((0..CpuSet::MAX_CPU).any(|processor| idleness.may_run_on(processor)));
        assert_eq!(idleness.since_last(), None);
        std::thread::sleep(Duration::from_millis(30));
        assert!(idleness.since_last().is_none_or(|idle| (0.0..=1.0).contains(&idle)));
    }
}
