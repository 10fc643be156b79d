//! The machine's kind of failure: the disk says no, or says something else than was written.
//!
//! A failed read is reported to the one request it concerns. A failed write or sync stops the process at once, a full disk's too:
//! after a failed sync nobody knows what is on the disk, and trying again would turn "lost" into "acknowledged". It ends with
//! mongod's exit code for that, 14, and no core: nothing is wrong with the process.
//!
//! What can be given up alone before it comes to that asks first whether there is room ([`Storage::check_room`]).

use crate::documents::format::family;
use crate::documents::transaction::Transaction;
use crate::log::commit::Durability;
use crate::log::facts::Fact;
use crate::storage::Storage;
use baton_machine::EXIT_ABRUPT;
use baton_types::{Error, ErrorCode, OpTime, Result};
use rust_rocksdb::ErrorKind;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// What to do about damaged files.
pub const REMEDY: &str =
    "Empty the data directory and start the member again, it copies the set's data; or restore a backup";

/// What to do about a disk that takes nothing.
const DISK_REMEDY: &str = "Free space or replace the disk, then start again";

/// The error a client gets when a read fails.
pub fn read_failure(error: rust_rocksdb::Error) -> Error {
    tracing::error!(component = "STORAGE", error = %error, "A read failed");
    match error.kind() {
        ErrorKind::Corruption => Error::new(ErrorCode(310), format!("Data corruption detected: {error}. {REMEDY}")),
        _ => Error::new(ErrorCode::UnknownError, format!("Storage cannot read: {error}")),
    }
}

/// What is left of a disk for the member itself, at the most; of a small disk a tenth.
const RESERVE_BYTES_MAX: u64 = 500 << 20;

/// Ends the process when it is dropped.
struct AbortAtTheLatest;

impl Drop for AbortAtTheLatest {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Stops the process because a write or a sync failed. Also if nobody can be told: the log may be on the same full disk, and a
/// thread that panicked here would leave behind a member that answers heartbeats and writes nothing any more.
pub fn stop(what: &str, error: &rust_rocksdb::Error) -> ! {
    // A compaction that finds damage lets nothing be written any more.
    let remedy = match error.kind() {
        ErrorKind::Corruption => REMEDY,
        _ => DISK_REMEDY,
    };
    stop_and_say(what, error, remedy)
}

/// The same of what the kernel was asked for.
pub fn stop_by_disk(what: &str, error: &std::io::Error) -> ! {
    stop_and_say(what, error, DISK_REMEDY)
}

fn stop_and_say(what: &str, error: &dyn Display, remedy: &str) -> ! {
    let _abort = AbortAtTheLatest;
    tracing::error!(component = "STORAGE", error = %error, what, remedy, "A write failed; stopping, because what is on disk is now unknown");
    let _ = writeln!(
        std::io::stderr(),
        "baton: {what} failed: {error}. Stopping: what is on disk is now unknown. {remedy}"
    );
    signal_hook::low_level::exit(EXIT_ABRUPT)
}

impl Storage {
    /// Counts another rollback if the machine has started anew since these data were opened last: what was not synced went with it,
    /// and who copied it must not keep it. A process that dies takes nothing along. Durable when it returns.
    pub(crate) fn note_machine_start(&self) -> Result<()> {
        let now = baton_machine::host::start_id();
        let before = self.facts().get(Fact::MachineStart)?;
        if !now.is_empty() && before.as_ref() == Some(&now) {
            return Ok(());
        }
        let has_log = self.queue().applied() > OpTime::ZERO;
        let mut transaction = Transaction::empty();
        transaction.put(family::META, Fact::MachineStart.key(), &now);
        if has_log {
            transaction.put(family::META, Fact::RollbackId.key(), &(self.follower().rollback_id()? + 1).to_le_bytes());
        }
        self.commit.commit_unasked(transaction, Durability::Synced);
        Ok(())
    }

    /// The same of the disk that the database is on.
    pub(crate) fn check_room(&self) -> Result<()> {
        check_room(self.db().path())
    }
}

/// `OutOfDiskSpace` (14031) if so little is left of the disk that the member needs it for itself.
pub(crate) fn check_room(on: &Path) -> Result<()> {
    // Where the system does not say, nothing is refused for it.
    let Ok(disk) = rustix::fs::statvfs(on) else { return Ok(()) };
    let (free, reserve) = (disk.f_bavail * disk.f_frsize, RESERVE_BYTES_MAX.min(disk.f_blocks * disk.f_frsize / 10));
    if free >= reserve {
        return Ok(());
    }
    let message = format!("available disk space of {free} bytes is less than required minimum of {reserve}");
    Err(Error::new(ErrorCode::OutOfDiskSpace, message))
}
