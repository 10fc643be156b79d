//! What the process uses, from /proc.
//!
//! What it does not do: sample; each call reads anew (some ten microseconds).

use std::fs::read_to_string;
use std::time::Duration;

/// The process's use of the machine. What cannot be read is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory.
    pub resident_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// Time on a CPU in the process itself.
    pub cpu_user: Duration,
    /// Time on a CPU in the kernel on its behalf.
    pub cpu_system: Duration,
    /// Threads.
    pub threads: u64,
    /// Page faults that had to read from disk.
    pub major_faults: u64,
    /// Open file descriptors.
    pub open_files: u64,
}

impl Usage {
    /// The use now.
    pub fn now() -> Self {
        let stat = read_to_string("/proc/self/stat").unwrap_or_default();
        let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        Self { open_files, ..Self::parse(&stat) }
    }

    /// From the text of /proc/<pid>/stat; its fields are numbered from 1 in proc(5).
    fn parse(stat: &str) -> Self {
        // The second field is the program's name in brackets, and may hold blanks and brackets itself.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        let ticks_per_sec = rustix::param::clock_ticks_per_second().max(1);
        let ticks = |count: u64| Duration::from_millis(count.saturating_mul(1000) / ticks_per_sec);
        Self {
            major_faults: field(12),
            cpu_user: ticks(field(14)),
            cpu_system: ticks(field(15)),
            threads: field(20),
            virtual_bytes: field(23),
            resident_bytes: field(24).saturating_mul(rustix::param::page_size() as u64),
            open_files: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_a_name_with_brackets() {
        let mut fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        fields[0] = "S".into();
        let usage = Usage::parse(&format!("1 (a) b (c) {}", fields.join(" ")));
        assert_eq!((usage.major_faults, usage.threads, usage.virtual_bytes), (12, 20, 23));
    }

    #[test]
    fn this_process_uses_something_and_nonsense_uses_nothing() {
        let usage = Usage::now();
        assert!(usage.resident_bytes > 100_000 && usage.threads >= 1 && usage.open_files >= 3, "{usage:?}");
        assert_eq!(Usage::parse("nonsense"), Usage::default());
    }
}
