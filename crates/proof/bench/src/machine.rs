//! How quiet the machine is: what `/proc` says of the CPUs before and during a measurement.
//!
//! A figure taken beside other work measures the other work too; so every figure carries how much there was. CPU time
//! of others is what all processes used less what ours used; it is counted in ticks, and so is good to a percent or two.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Failure;

/// CPU time of the machine and of our own processes at one moment, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    working: f64,
    idle: f64,
    stolen: f64,
    total: f64,
    ours: f64,
    switches: f64,
}

/// How the CPUs were spent between two moments; shares of all CPUs together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// Nothing to do.
    pub idle: f64,
    /// Taken away by the hypervisor.
    pub stolen: f64,
    /// Used by processes that are not the benchmark's.
    pub others: f64,
    /// Switches of context, of all processors; a number, not a share.
    pub switches: f64,
}

impl Moment {
    /// Now; `processes` are ours beside this one.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn now(processes: &[u32]) -> Result<Self, Failure> {
        let stat = std::fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
        let mut moment = Self::parse(&stat).ok_or("/proc/stat is not as expected")?;
        let own = std::process::id();
        moment.ours = processes.iter().chain([&own]).filter_map(|&pid| cpu_secs(pid)).sum();
        Ok(moment)
    }

    fn parse(stat: &str) -> Option<Self> {
        let ticks: Vec<f64> =
            stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, stolen] = *ticks.get(..8)?.first_chunk::<8>()?;
        let second = ticks_per_second();
        Some(Self {
            working: (user + nice + system) / second,
            idle: (idle + iowait) / second,
            stolen: stolen / second,
            total: (user + nice + system + idle + iowait + irq + softirq + stolen) / second,
            ours: 0.0,
            switches: stat.lines().find_map(|line| line.strip_prefix("ctxt "))?.trim().parse().ok()?,
        })
    }

    /// What went on from `before` to this moment.
    pub fn since(&self, before: &Self) -> Use {
        let total = (self.total - before.total).max(1e-9);
        let others = (self.working - before.working) - (self.ours - before.ours);
        Use {
            idle: ((self.idle - before.idle) / total).min(1.0),
            stolen: (self.stolen - before.stolen) / total,
            others: (others / total).max(0.0),
            switches: self.switches - before.switches,
        }
    }
}

impl Use {
    /// For programs.
    pub fn json(&self) -> Value {
        json!({ "idle": self.idle, "stolen": self.stolen, "others": self.others, "switches": self.switches })
    }
}

fn ticks_per_second() -> f64 {
    // SAFETY: sysconf reads no memory of ours.
    #[allow(unsafe_code)]
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// CPU time that a process has used, in seconds; `None` if it is gone.
pub fn cpu_secs(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may hold anything, ends at the last parenthesis; utime and stime are fields 14 and 15.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / ticks_per_second())
}

/// Resident memory of a process in bytes, now and at its peak.
pub fn resident_bytes(pid: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// Lets the peak of a process's resident memory count from now on.
///
/// # Errors
/// If the process is not ours.
pub fn forget_peak(pid: u32) -> Result<(), Failure> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").map_err(|e| format!("/proc/{pid}/clear_refs: {e}").into())
}

/// The load average of the last minute.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// What the figures of a run were taken on.
pub fn describe() -> Value {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':')).map(|(_, name)| name);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    json!({
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": model.unwrap_or_default().trim(),
        "memoryMiB": memory.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() >> 10,
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
    })
}

/// Waits until `processes` use less than a twentieth of a CPU between them, or `longest` has passed; gives whether they
/// came to rest. What a load leaves to be done (flushes, compactions) is then done.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn settle(processes: &[u32], longest: Duration) -> Result<bool, Failure> {
    let own = std::process::id();
    let used = || processes.iter().chain([&own]).filter_map(|&pid| cpu_secs(pid)).sum::<f64>();
    let rounds = longest.as_secs().max(1);
    for _ in 0..rounds {
        let before = used();
        std::thread::sleep(Duration::from_secs(1));
        if used() - before < 0.05 {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_what_is_left_of_the_work_after_ours() {
        let before = Moment::parse("cpu  100 0 100 800 0 0 0 0 0 0\nctxt 1000\n").expect("parses");
        let mut after = Moment::parse("cpu  200 50 150 850 0 0 0 50 0 0\nctxt 1700\n").expect("parses");
        after.ours = 1.0;
        let used = after.since(&before);
        assert!((used.idle - 50.0 / 300.0).abs() < 1e-9);
        assert!((used.stolen - 50.0 / 300.0).abs() < 1e-9);
        assert_eq!(used.switches, 700.0);
        assert!((used.others - (200.0 - ticks_per_second()).max(0.0) / 300.0).abs() < 1e-9);
    }

    #[test]
    fn this_process_uses_cpu_and_memory() {
        let own = std::process::id();
        assert!(cpu_secs(own).is_some());
        let (now, peak) = resident_bytes(own).expect("is there");
        assert!(now > 1 << 20 && peak >= now / 2);
        assert!(cpu_secs(u32::MAX).is_none());
    }
}
