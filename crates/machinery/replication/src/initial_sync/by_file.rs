//! Initial sync by file: the source makes a checkpoint of its files, and this member copies them and begins with them.
//!
//! ```text
//!  source's log   … ─────── c ────────────────▶
//!                   files, as of c
//!                     └─ copied ─┘ the process starts anew, with them, and follows the log from c on
//! ```
//!
//! Invariants:
//! - Until the last file is here and synced this member is what it was: in an initial sync, which begins anew.
//! - Every part of a file was compared with its checksum of the source.
//! - A connection that was lost is gone on with in the middle of a file: the checkpoint does not change.
//!
//! What it deliberately does not do: take what has come into use (`storage::incoming`, when the process starts).

use super::InitialSync;
use super::source::{Line, Source, is_transient};

use baton_storage::{Incoming, work_when_idle};
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBsonRef, rawdoc};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often a part that came damaged is asked for.
const TRIES_MAX: usize = 5;
/// Bytes of one part. It passes through several buffers on its way from disk to disk, which are to stay in a processor's cache: of
/// parts of 8 MB each copy costs 2.5 times as much.
const PART_BYTES: i64 = 512 << 10;

/// How this member comes to its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialSyncMethod {
    /// By file, if there is much.
    #[default]
    Auto,
    /// By cloning collections.
    Logical,
    /// By file.
    FileCopyBased,
}

impl InitialSyncMethod {
    /// All, by their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("logical", Self::Logical), ("fileCopyBased", Self::FileCopyBased)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, method)| *method == self).map_or("auto", |(name, _)| name)
    }
}

/// A file of the checkpoint.
struct Listed {
    name: String,
    size: u64,
}

impl InitialSync<'_> {
    /// Whether to copy files rather than documents.
    pub(super) fn goes_by_file(&self, source: &mut Source<'_>) -> Result<bool> {
        let options = (self.hooks.options)();
        Ok(match options.method {
            InitialSyncMethod::Logical => false,
            InitialSyncMethod::FileCopyBased if self.hooks.restart.is_none() => {
                let message = "this process cannot start itself anew, which a copy by file takes";
                return Err(Error::new(ErrorCode::InitialSyncFailure, message));
            }
            InitialSyncMethod::FileCopyBased => true,
            InitialSyncMethod::Auto => self.hooks.restart.is_some() && source.bytes()? >= options.file_copy_bytes_min,
        })
    }

    /// Copies the source's files and starts the process anew. Returns only with an error.
    pub(super) fn by_file(&self, line: &Line<'_>, source: &mut Source<'_>) -> Result<()> {
        let begin = rawdoc! { "batonBeginCheckpoint": 1, "for": "initial sync", "$db": "admin" };
        let reply = source.call(&begin)?;
        let id = reply.get_i64("checkpoint")?;
        let incoming = Incoming::begin(self.storage)?;
        let copied = files_of(&reply).and_then(|files| self.copy_files(line, id, &files, &incoming));
        // If this is lost, the source removes the checkpoint some time.
        let _ = source.call(&rawdoc! { "batonEndCheckpoint": id, "$db": "admin" });
        let arrived = copied.and_then(|()| {
            self.hold("initialSyncHangAfterDataCloning")?;
            incoming.arrived()
        });
        if let Err(error) = arrived {
            incoming.discard();
            return Err(error);
        }
        tracing::info!(target: "INITSYNC", source = line.host, "All files are here: starting anew with them");
        if let Some(restart) = &self.hooks.restart {
            restart();
        }
        Err(Error::new(ErrorCode::InitialSyncFailure, "the process could not start itself anew"))
    }

    fn copy_files(&self, line: &Line<'_>, id: i64, files: &[Listed], incoming: &Incoming) -> Result<()> {
        self.note(|status| {
            status.method = InitialSyncMethod::FileCopyBased.name();
            status.file_bytes = files.iter().map(|file| file.size).sum();
        });
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || -> Result<()> {
            let mut source = Source::connect(line)?;
            while failure.lock().is_none() {
                let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                self.copy_file(&mut source, id, file, incoming)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            for _ in 0..(self.hooks.options)().collections_at_once.clamp(1, files.len().max(1)) {
                scope.spawn(|| {
                    if line.in_background {
                        work_when_idle();
                    }
                    if let Err(error) = work() {
                        failure.lock().get_or_insert(error);
                    }
                });
            }
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    fn copy_file(&self, source: &mut Source<'_>, id: i64, listed: &Listed, incoming: &Incoming) -> Result<()> {
        let kept = |error: std::io::Error| {
            Error::new(ErrorCode::InitialSyncFailure, format!("{} cannot be kept: {error}", listed.name))
        };
        let mut file = incoming.create(&listed.name)?;
        let (mut offset, mut damaged) = (0, 0);
        while offset < listed.size {
            self.hold("initialSyncHangDuringCollectionClone")?;
            let read = rawdoc! {
                "batonReadCheckpoint": id, "file": listed.name.as_str(), "offset": offset as i64, "bytes": PART_BYTES,
                "$db": "admin",
            };
            let reply = match source.ask(&read) {
                Err(error) if is_transient(&error) && error.code != ErrorCode::CursorNotFound => {
                    source.reconnect()?;
                    continue;
                }
                reply => reply?,
            };
            let data = reply.get_binary("data")?.bytes;
            if reply.get_i64("crc32c")? != i64::from(crc32c::crc32c(data)) || data.is_empty() {
                damaged += 1;
                if damaged >= TRIES_MAX {
                    let message = format!("{} comes damaged", listed.name);
                    return Err(Error::new(ErrorCode::InitialSyncFailure, message));
                }
                continue;
            }
            file.append(data).map_err(kept)?;
            offset += data.len() as u64;
            self.note(|status| status.file_bytes_done += data.len() as u64);
        }
        file.finish().map_err(kept)
    }
}

fn files_of(reply: &bson::RawDocument) -> Result<Vec<Listed>> {
    let mut files = Vec::new();
    for file in reply.get_array("files")? {
        let RawBsonRef::Document(file) = file? else { continue };
        let size = u64::try_from(file.get_i64("size")?).unwrap_or(0);
        files.push(Listed { name: file.get_str("name")?.to_owned(), size });
    }
    // The largest first, so that none of them is left for the end.
    files.sort_by_key(|file| std::cmp::Reverse(file.size));
    Ok(files)
}
