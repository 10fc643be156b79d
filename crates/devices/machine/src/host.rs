//! What the machine has: memory, processors, free disk space, its name.
//!
//! Invariant: a question the machine does not answer is `None` or empty, never a guess.
//! What it deliberately does not do: say what of it the process may use ([`crate::Limits`]), or does ([`crate::Usage`]).

use std::fs::read_to_string;
use std::path::Path;

/// The machine's memory in bytes.
pub fn memory_total_bytes() -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The free disk space below `path`, or below its nearest parent that exists.
pub fn disk_free_bytes(path: &Path) -> Option<u64> {
    path.ancestors()
        .find_map(|p| rustix::fs::statvfs(if p.as_os_str().is_empty() { Path::new(".") } else { p }).ok())
        .map(|s| s.f_bavail * s.f_frsize)
}

/// What the machine's starts are told apart by; empty where it does not tell.
pub fn start_id() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// The machine's name.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The kernel's version.
pub fn kernel_version() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Processors that there are, and processors this process may run on.
pub fn processors() -> (usize, usize) {
    let all = read_to_string("/proc/cpuinfo")
        .map_or(0, |text| text.lines().filter(|line| line.starts_with("processor")).count());
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    (all.max(available), available)
}

/// The processor's own name.
pub fn processor_name() -> String {
    read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_default()
}

/// The distribution's name and version.
pub fn distribution() -> (String, String) {
    let text = read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .map(|v| v.trim_matches('"').to_owned())
            .unwrap_or_default()
    };
    (field("PRETTY_NAME"), field("VERSION_ID"))
}
