//! The machine's kind of failure: the disk says no, or says something else than was written.
//!
//! A failed read is reported to the one request it concerns. A failed write or sync stops the process at once: after a
//! failed sync nobody knows what is on the disk, and trying again would turn "lost" into "acknowledged".

use baton_types::{Error, ErrorCode};
use rust_rocksdb::ErrorKind;
use std::io::Write;

/// What to do about damaged files.
pub const REMEDY: &str =
    "Empty the data directory and start the member again, it copies the set's data; or restore a backup";

/// The error a client gets when a read fails.
pub fn read_failure(error: rust_rocksdb::Error) -> Error {
    tracing::error!(component = "STORAGE", error = %error, "A read failed");
    match error.kind() {
        ErrorKind::Corruption => Error::new(ErrorCode(310), format!("Data corruption detected: {error}. {REMEDY}")),
        _ => Error::new(ErrorCode::UnknownError, format!("Storage cannot read: {error}")),
    }
}

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
    let _abort = AbortAtTheLatest;
    // A compaction that finds damage lets nothing be written any more.
    let remedy = match error.kind() {
        ErrorKind::Corruption => REMEDY,
        _ => "Free space or replace the disk, then start again",
    };
    tracing::error!(component = "STORAGE", error = %error, what, remedy, "A write failed; stopping, because what is on disk is now unknown");
    let _ = writeln!(
        std::io::stderr(),
        "baton: {what} failed: {error}. Stopping: what is on disk is now unknown. {remedy}"
    );
    std::process::abort();
}
