//! What the machine has: memory, free disk space, its name.
//!
//! Invariant: a question the machine does not answer is `None`, never a guess.

use std::path::Path;

/// The machine's memory in bytes; a container's limit if that is lower.
pub fn memory_total_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
    });
    let container = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    match (machine, container) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The free disk space below `path`, or below its nearest parent that exists.
pub fn disk_free_bytes(path: &Path) -> Option<u64> {
    path.ancestors()
        .find_map(|p| rustix::fs::statvfs(if p.as_os_str().is_empty() { Path::new(".") } else { p }).ok())
        .map(|s| s.f_bavail * s.f_frsize)
}

/// The machine's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
