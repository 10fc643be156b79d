//! Where lines are written, and rotating the file.
//!
//! Invariants: a line goes out in one write, so that lines never mix; rotating loses none; a failure is counted and
//! forgotten, because a full disk under the log must not stop the member.
//! What it does not do: delete old files.

use super::{Output, Rotation};
use chrono::Utc;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub(super) struct Sink {
    target: Target,
    failed_writes: u64,
    line: Vec<u8>,
}

enum Target {
    Stdout,
    File { path: PathBuf, file: File },
    Nowhere,
}

impl Sink {
    pub(super) fn open(output: &Output) -> io::Result<Self> {
        let target = match output {
            Output::Stdout => Target::Stdout,
            Output::File(path) => Target::File { path: path.clone(), file: append_to(path)? },
            Output::Nowhere => Target::Nowhere,
        };
        Ok(Self { target, failed_writes: 0, line: Vec::new() })
    }

    pub(super) fn write(&mut self, line: &str) {
        self.line.clear();
        self.line.extend_from_slice(line.as_bytes());
        self.line.push(b'\n');
        let written = match &mut self.target {
            Target::Stdout => io::stdout().write_all(&self.line),
            Target::File { file, .. } => file.write_all(&self.line),
            Target::Nowhere => Ok(()),
        };
        if written.is_err() {
            self.failed_writes += 1;
        }
    }

    pub(super) fn rotate(&mut self, rotation: Rotation) -> io::Result<()> {
        let Target::File { path, file } = &mut self.target else { return Ok(()) };
        if rotation == Rotation::Rename && path.exists() {
            std::fs::rename(&*path, free_name(path))?;
        }
        *file = append_to(path)?;
        Ok(())
    }

    pub(super) fn failed_writes(&self) -> u64 {
        self.failed_writes
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot open the log file {}: {e}", path.display())))
}

/// The path with the time behind it, as mongod names it; twice in a second, with a number.
fn free_name(path: &Path) -> PathBuf {
    let stamp = Utc::now().format("%Y-%m-%dT%H-%M-%S");
    let named = |suffix: &str| PathBuf::from(format!("{}.{stamp}{suffix}", path.display()));
    let first = named("");
    if !first.exists() {
        return first;
    }
    (1..).map(|n: u64| named(&format!("-{n}"))).find(|name| !name.exists()).unwrap_or(first)
}
