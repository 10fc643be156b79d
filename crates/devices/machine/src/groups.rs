//! The control groups that a process is in, of both versions.
//!
//! Invariant: what lies outside of what is mounted is not among them, for it cannot be seen.
//!
//! Source: `cgroups(7)`, `cgroup` and `mountinfo` of `proc(5)`.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// For each controller the folder of the process's group, and up to where its file system is mounted.
#[derive(Debug)]
pub(crate) struct Groups(Vec<(String, PathBuf, PathBuf)>);

impl Groups {
    pub fn read(process: &Path) -> Self {
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
                    let controllers = if mount.is_unified { "cpu,cpuacct,io,memory" } else { controllers };
                    let top = PathBuf::from(mount.at);
                    let folder = top.join(below);
                    groups.extend(controllers.split(',').map(|name| (name.to_owned(), folder.clone(), top.clone())));
                }
            }
        }
        Self(groups)
    }

    /// The folders that bound a controller, the process's own first.
    pub fn of(&self, controller: &str) -> impl Iterator<Item = PathBuf> {
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
