//! Checkpoints of the data directory that another member copies, file by file.
//!
//! A checkpoint is the database as a crash would leave it at one moment: its files, linked or copied into a folder beside it.
//! Nothing that is written later changes them.
//!
//! Invariants:
//! - No file of a checkpoint is one that the database writes to again: tables are linked, all else is copied. Logs are written
//!   over when they are done with, so they above all.
//! - The log of a checkpoint reaches the OpTime that is told with it: it is not made while the log is cut off.
//! - What nobody has read from for [`IDLE_MAX`] goes; so does, at the start, what a crash left. Old files take space only as long.
//!
//! What it deliberately does not do: say what is in the files ([`crate::following::incoming`] makes a member's own of them).

use crate::background::Chores;
use crate::background::tasks::{TaskGuard, TaskKind};
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_machine::{Meter, Spent};
use baton_types::{Error, ErrorCode, OpTime, Result};
use parking_lot::Mutex;
use rust_rocksdb::{FileType, LiveFileStorageInfoEntry, LiveFilesStorageInfoOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a checkpoint is kept for a member that does not ask.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// Checkpoints at once.
const CHECKPOINTS_MAX: usize = 4;

struct Held {
    directory: PathBuf,
    sizes: BTreeMap<String, u64>,
    used: Instant,
    bytes_read: u64,
    task: TaskGuard,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!(component = "STORAGE", directory = %self.directory.display(), error = %error, "A checkpoint stays until the next start");
        }
    }
}

/// Those there are, by number.
#[derive(Default)]
pub struct Checkpoints(Mutex<BTreeMap<i64, Held>>);

/// A checkpoint, as its reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Its number.
    pub id: i64,
    /// Its files with their sizes in bytes.
    pub files: Vec<(String, u64)>,
    /// An entry that its log has. Zero, if the log is empty.
    pub newest: OpTime,
}

/// The folder of a database's checkpoints.
fn folder_of(database: &Path) -> PathBuf {
    database.with_extension(crate::documents::format::beside::CHECKPOINTS)
}

fn failed(error: &std::io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, format!("No checkpoint: {error}"))
}

fn unknown(id: i64) -> Error {
    Error::new(ErrorCode::CursorNotFound, format!("there is no checkpoint {id}"))
}

/// Removes what a crash left.
pub(crate) fn clean_up(database: &Path) {
    let folder = folder_of(database);
    if folder.exists()
        && let Err(error) = std::fs::remove_dir_all(&folder)
    {
        tracing::warn!(component = "STORAGE", folder = %folder.display(), error = %error, "Old checkpoints cannot be removed");
    }
}

impl Chores<'_> {
    /// Removes checkpoints that nobody reads from. Called now and then.
    pub fn expire_checkpoints(&self) {
        let mut expired = Vec::new();
        let mut held = self.0.checkpoints.0.lock();
        let ids: Vec<i64> = held.iter().filter(|(_, held)| held.used.elapsed() > IDLE_MAX).map(|(id, _)| *id).collect();
        for id in ids {
            expired.extend(held.remove(&id));
        }
        drop(held);
        drop(expired);
    }
}

impl Storage {
    /// Makes a checkpoint for somebody.
    pub fn begin_checkpoint(&self, reader: &str) -> Result<CheckpointInfo> {
        let mut held = self.checkpoints.0.lock();
        if held.len() >= CHECKPOINTS_MAX {
            let message = format!("{CHECKPOINTS_MAX} checkpoints are being copied already");
            return Err(Error::new(ErrorCode::ConflictingOperationInProgress, message));
        }
        let id = rand_id(&held);
        let folder = folder_of(self.db().path());
        std::fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
        let directory = folder.join(id.to_string());
        // Its reader comes on whichever connection.
        let task = self.tasks().admit_now(TaskKind::InitialSyncSource, reader, 0).charged(Spent::NOTHING);
        let stretch = self.log_stretch()?;
        let newest = self.oplog().last_entry();
        let gathered = self.gather_files(&directory).and_then(|sizes| {
            let has_newest = newest == OpTime::ZERO || self.oplog().entry_at(newest)?.is_some();
            if has_newest && self.log_stretch()? == stretch {
                Ok(sizes)
            } else {
                let message = "No checkpoint: this member's log was cut off meanwhile";
                Err(Error::new(ErrorCode::ConflictingOperationInProgress, message))
            }
        });
        let sizes = gathered.inspect_err(|_| drop(std::fs::remove_dir_all(&directory)))?;
        let files = sizes.iter().map(|(name, size)| (name.clone(), *size)).collect();
        held.insert(id, Held { directory, sizes, used: Instant::now(), bytes_read: 0, task });
        Ok(CheckpointInfo { id, files, newest })
    }

    /// Changes when the log does anything but grow: when a rollback cuts it off, or a copy that begins.
    fn log_stretch(&self) -> Result<(i32, bool)> {
        Ok((self.follower().rollback_id()?, self.follower().is_cloning()?))
    }

    /// Puts everything into a new folder that makes the database what it is now; tells the files' sizes. Memtables are written
    /// out first, so that the logs are short.
    fn gather_files(&self, directory: &Path) -> Result<BTreeMap<String, u64>> {
        let _task = self.tasks().admit_now(TaskKind::Checkpoint, directory.display().to_string(), 0);
        std::fs::create_dir(directory).map_err(|error| failed(&error))?;
        // Nor is a log written over meanwhile.
        self.db().disable_file_deletions().map_err(read_failure)?;
        let gathered = self.db().get_livefiles_storage_info(&LiveFilesStorageInfoOptions::new());
        let gathered = gathered
            .map_err(read_failure)
            .and_then(|files| files.iter().map(|file| put(directory, &file).map_err(|error| failed(&error))).collect());
        self.db().enable_file_deletions().map_err(read_failure)?;
        gathered
    }

    /// Reads from a file of a checkpoint: so many bytes, or fewer at its end.
    pub fn read_checkpoint(&self, id: i64, name: &str, offset: u64, bytes_max: usize) -> Result<Vec<u8>> {
        let meter = Meter::start();
        let (path, size) = {
            let mut held = self.checkpoints.0.lock();
            let held = held.get_mut(&id).ok_or_else(|| unknown(id))?;
            held.used = Instant::now();
            // Only names that were given out: they lead nowhere else.
            let size = *held
                .sizes
                .get(name)
                .ok_or_else(|| Error::new(ErrorCode::NoSuchKey, format!("checkpoint {id} has no file '{name}'")))?;
            held.bytes_read += size.saturating_sub(offset).min(bytes_max as u64);
            held.task.progress(held.bytes_read, held.sizes.values().sum());
            (held.directory.join(name), size)
        };
        let mut bytes = vec![0; usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes_max)];
        File::open(path).and_then(|file| file.read_exact_at(&mut bytes, offset)).map_err(|error| failed(&error))?;
        if let Some(held) = self.checkpoints.0.lock().get(&id) {
            held.task.charge(meter.spent());
        }
        Ok(bytes)
    }

    /// Removes a checkpoint; it may be gone.
    pub fn end_checkpoint(&self, id: i64) {
        let ended = self.checkpoints.0.lock().remove(&id);
        drop(ended);
    }
}

/// A number that no reader of an earlier process has.
fn rand_id(held: &BTreeMap<i64, Held>) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut id = now.as_micros() as i64;
    while held.contains_key(&id) {
        id += 1;
    }
    id
}

/// Puts a file into the folder: a link if nobody ever writes to it again, else as much of it as belongs to the moment.
fn put(directory: &Path, file: &LiveFileStorageInfoEntry<'_>) -> std::io::Result<(String, u64)> {
    let name = String::from_utf8_lossy(file.relative_filename()).trim_start_matches('/').to_owned();
    let from = PathBuf::from(String::from_utf8_lossy(file.directory()).into_owned()).join(&name);
    let to = directory.join(&name);
    if !file.replacement_contents().is_empty() {
        std::fs::write(to, file.replacement_contents())?;
        return Ok((name, file.replacement_contents().len() as u64));
    }
    if file.file_type() == FileType::TableFile && std::fs::hard_link(&from, &to).is_ok() {
        return Ok((name, file.size()));
    }
    let size = std::io::copy(&mut File::open(from)?.take(file.size()), &mut File::create(to)?)?;
    Ok((name, size))
}
