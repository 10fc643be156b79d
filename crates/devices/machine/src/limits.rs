//! What the machine lets this process use: processors by affinity and quota, the disk by its throttle, memory.
//!
//! Invariant: the tightest bound of all control groups holds, those above the process's own too.
//! A quota may be a part of a processor, which `available_parallelism` does not tell.

use crate::groups::Groups;
use std::fs::read_to_string;
use std::path::Path;

/// See the file's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Processors, parts too.
    pub cpus: f64,
    /// Reading or writing, whichever is bound more tightly.
    pub disk_bytes_per_sec: Option<f64>,
}

impl Limits {
    /// Those of this process, and of the disk on which `path` is.
    pub fn of_this_process(path: &Path) -> Self {
        Self::read(Path::new("/proc/self"), &devices_of(path))
    }

    fn read(process: &Path, devices: &[String]) -> Self {
        let groups = Groups::read(process);
        let cpus = allowed(&read_to_string(process.join("status")).unwrap_or_default()).unwrap_or(1.0);
        let quotas = groups.of("cpu").filter_map(|folder| quota(&folder));
        let throttles = groups.of("blkio").chain(groups.of("io")).filter_map(|folder| throttle(&folder, devices));
        Self { cpus: quotas.fold(cpus, f64::min), disk_bytes_per_sec: throttles.reduce(f64::min) }
    }
}

/// The memory that this process may use, in bytes: what there is, or what a control group leaves of it.
pub fn memory_limit_bytes() -> Option<u64> {
    memory_limit(Path::new("/proc/self")).into_iter().chain(crate::host::memory_total_bytes()).min()
}

fn memory_limit(process: &Path) -> Option<u64> {
    let groups = Groups::read(process);
    let bounds = groups.of("memory").flat_map(|folder| {
        ["memory.max", "memory.limit_in_bytes"].map(|file| read_to_string(folder.join(file)).ok()?.trim().parse().ok())
    });
    bounds.flatten().min()
}

/// How many processors a list like `0-3,8` names.
fn allowed(status: &str) -> Option<f64> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let count = |range: &str| -> Option<u32> {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        (to.parse::<u32>().ok()? + 1).checked_sub(from.parse().ok()?)
    };
    let counts: Option<Vec<u32>> = list.trim().split(',').map(count).collect();
    Some(f64::from(counts?.iter().sum::<u32>())).filter(|cpus| *cpus > 0.0)
}

/// Processors, by the quota of one group.
pub(crate) fn quota(folder: &Path) -> Option<f64> {
    let figure = |name: &str| read_to_string(folder.join(name)).ok()?.trim().parse::<f64>().ok();
    let (quota, period): (f64, f64) = match read_to_string(folder.join("cpu.max")) {
        Ok(text) => {
            let mut figures = text.split_whitespace().map(str::parse::<f64>);
            (figures.next()?.ok()?, figures.next()?.ok()?)
        }
        Err(_) => (figure("cpu.cfs_quota_us")?, figure("cpu.cfs_period_us")?),
    };
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Bytes a second of any of these devices, by the throttles of one group.
fn throttle(folder: &Path, devices: &[String]) -> Option<f64> {
    let files = ["io.max", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];
    let texts: Vec<String> = files.iter().filter_map(|file| read_to_string(folder.join(file)).ok()).collect();
    let of_device = |line: &str| {
        let (device, bounds) = line.split_once(' ')?;
        let bounds = devices.iter().any(|known| known == device).then_some(bounds)?;
        let bytes = bounds.split_whitespace().filter_map(|bound| match bound.split_once('=') {
            Some(("rbps" | "wbps", bytes)) => bytes.parse::<f64>().ok(),
            Some(_) => None,
            None => bound.parse::<f64>().ok(),
        });
        bytes.reduce(f64::min)
    };
    texts.iter().flat_map(|text| text.lines()).filter_map(of_device).reduce(f64::min).filter(|bytes| *bytes > 0.0)
}

/// The device on which a path is, and the disk of which that is a part, as `major:minor`.
fn devices_of(path: &Path) -> Vec<String> {
    let Ok(stat) = rustix::fs::stat(path) else { return Vec::new() };
    let name = |device| format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let own = name(stat.st_dev);
    let block = Path::new("/sys/dev/block").join(&own);
    let whole = block.join("partition").exists().then(|| read_to_string(block.join("../dev")).ok()).flatten();
    std::iter::once(own).chain(whole.map(|name| name.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with these files, and groups below `cpu`, `blkio`, `memory` and `unified`.
    fn process(memberships: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let mount = |name: &str, system: &str| format!("31 23 0:28 / {}/{name} rw - {system}\n", root.display());
        let mounts = mount("cpu", "cgroup cgroup rw,cpu,cpuacct")
            + &mount("blkio", "cgroup cgroup rw,blkio")
            + &mount("memory", "cgroup cgroup rw,memory")
            + &mount("unified", "cgroup2 cgroup2 rw")
            + "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let status = "Name:\tbaton\nCpus_allowed_list:\t0-2,7\n";
        let own = [("mountinfo", mounts.as_str()), ("cgroup", memberships), ("status", status)];
        for (name, text) in own.iter().chain(files) {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn limits(memberships: &str, files: &[(&str, &str)]) -> Limits {
        let folder = process(memberships, files);
        Limits::read(folder.path(), &["8:1".to_owned(), "8:0".to_owned()])
    }

    #[test]
    fn without_a_group_that_bounds_them_there_are_the_allowed_processors_and_no_bound_of_the_disk() {
        assert_eq!(limits("", &[]), Limits { cpus: 4.0, disk_bytes_per_sec: None });
        let unbound = [("cpu/m1/cpu.cfs_quota_us", "-1\n"), ("cpu/m1/cpu.cfs_period_us", "100000\n")];
        assert_eq!(limits("1:cpu,cpuacct:/m1\n", &unbound).cpus, 4.0);
    }

    #[test]
    fn the_first_versions_quota_and_throttle_hold_and_so_do_those_of_the_groups_above() {
        let files = [
            ("cpu/a/m1/cpu.cfs_quota_us", "150000"),
            ("cpu/a/m1/cpu.cfs_period_us", "100000"),
            ("cpu/a/cpu.cfs_quota_us", "50000"),
            ("cpu/a/cpu.cfs_period_us", "100000"),
            ("blkio/m1/blkio.throttle.read_bps_device", "8:0 2000000\n253:0 5\n"),
            ("blkio/m1/blkio.throttle.write_bps_device", "8:0 1000000\n"),
        ];
        let found = limits("2:cpu,cpuacct:/a/m1\n7:blkio:/m1\n0::/\n", &files);
        assert_eq!(found, Limits { cpus: 0.5, disk_bytes_per_sec: Some(1e6) });
    }

    #[test]
    fn the_second_versions_hold_too_and_other_disks_bounds_do_not() {
        let files = [
            ("unified/m1/cpu.max", "250000 100000\n"),
            ("unified/cpu.max", "max 100000\n"),
            ("unified/m1/io.max", "8:1 rbps=max wbps=3000000 riops=7 wiops=max\n9:9 rbps=1 wbps=1\n"),
        ];
        assert_eq!(limits("0::/m1\n", &files), Limits { cpus: 2.5, disk_bytes_per_sec: Some(3e6) });
        let others = [("unified/m1/io.max", "9:9 rbps=1 wbps=1\n")];
        assert_eq!(limits("0::/m1\n", &others).disk_bytes_per_sec, None);
    }

    #[test]
    fn memory_is_bound_by_the_tightest_group_of_either_version() {
        let bound = |memberships, files| memory_limit(process(memberships, files).path());
        let files = [
            ("memory/a/m1/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/a/memory.limit_in_bytes", "300000000\n"),
        ];
        assert_eq!(bound("5:memory:/a/m1\n", &files), Some(300_000_000));
        let files = [("unified/s/m1/memory.max", "max\n"), ("unified/s/memory.max", "200000000\n")];
        assert_eq!(bound("0::/s/m1\n", &files), Some(200_000_000));
        assert_eq!(bound("0::/s/m1\n", &[("unified/s/m1/memory.max", "max\n")]), None);
        assert!(memory_limit_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn this_process_has_at_least_a_part_of_a_processor() {
        let found = Limits::of_this_process(Path::new("/"));
        assert!(found.cpus > 0.0 && found.cpus <= 4096.0, "{found:?}");
    }
}
