//! What the machine lets this process use: processors by affinity and quota, the disk by its throttle.
//!
//! Both versions of control groups are read, each group above the process's too: the tightest bound holds. A quota may be a part of a
//! processor, which `available_parallelism` does not tell.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// See the file's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
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
fn quota(folder: &Path) -> Option<f64> {
    let figure = |name: &str| read_to_string(folder.join(name)).ok()?.trim().parse::<f64>().ok();
    let (quota, period) = match read_to_string(folder.join("cpu.max")) {
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

/// The control groups of a process: for each controller its folder, and up to where the file system is mounted.
struct Groups(Vec<(String, PathBuf, PathBuf)>);

impl Groups {
    fn read(process: &Path) -> Self {
        let read = |name: &str| read_to_string(process.join(name)).unwrap_or_default();
        let (memberships, mounts) = (read("cgroup"), read("mountinfo"));
        let mut groups = Vec::new();
        for mount in mounts.lines().filter_map(Mount::parse) {
            for line in memberships.lines() {
                let mut parts = line.splitn(3, ':').skip(1);
                let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
                let is_here = if mount.is_unified {
                    controllers.is_empty()
                } else {
                    !controllers.is_empty()
                        && controllers.split(',').any(|name| mount.options.split(',').any(|o| o == name))
                };
                // What lies outside of what is mounted cannot be seen.
                let Ok(below) = Path::new(path).strip_prefix(mount.root) else { continue };
                if is_here {
                    let controllers = if mount.is_unified { "cpu,io" } else { controllers };
                    let top = PathBuf::from(mount.at);
                    let folder = top.join(below);
                    groups.extend(controllers.split(',').map(|name| (name.to_owned(), folder.clone(), top.clone())));
                }
            }
        }
        Self(groups)
    }

    /// The folders that bound a controller, the process's own first.
    fn of(&self, controller: &str) -> impl Iterator<Item = PathBuf> {
        let found = self.0.iter().filter(move |(name, ..)| name == controller);
        let folders: Vec<PathBuf> = found
            .flat_map(|(_, folder, top)| folder.ancestors().take_while(move |folder| folder.starts_with(top)))
            .map(Path::to_owned)
            .collect();
        folders.into_iter()
    }
}

struct Mount<'a> {
    root: &'a str,
    at: &'a str,
    options: &'a str,
    is_unified: bool,
}

impl<'a> Mount<'a> {
    /// A line of `mountinfo` (`proc(5)`) that is of control groups.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut system = system.split(' ');
        let (root, at) = (mount.next()?, mount.next()?);
        let (kind, _source, options) = (system.next()?, system.next()?, system.next()?);
        let is_unified = kind == "cgroup2";
        (is_unified || kind == "cgroup").then_some(Self { root, at, options, is_unified })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with these files, and groups below `cpu`, `blkio` and `unified`.
    fn process(memberships: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let mount = |name: &str, system: &str| format!("31 23 0:28 / {}/{name} rw - {system}\n", root.display());
        let mounts = mount("cpu", "cgroup cgroup rw,cpu,cpuacct")
            + &mount("blkio", "cgroup cgroup rw,blkio")
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
    fn this_process_has_at_least_a_part_of_a_processor() {
        let found = Limits::of_this_process(Path::new("/"));
        assert!(found.cpus > 0.0 && found.cpus <= 4096.0, "{found:?}");
    }
}
