//! The machine's kind of failure: the disk says no, or says something else than was written.
//!
//! A failed read is reported to the one request it concerns. A failed write or sync stops the process at once: after a
//! failed sync nobody knows what is on the disk, and trying again would turn "lost" into "acknowledged".

use baton_types::{Error, ErrorCode};
use rust_rocksdb::ErrorKind;

/// The error a client gets when a read fails.
pub fn read_failure(error: rust_rocksdb::Error) -> Error {
    tracing::error!(component = "STORAGE", error = %error, "A read failed");
    match error.kind() {
        ErrorKind::Corruption => Error::new(
            ErrorCode(310),
            format!("Data corruption detected: {error}. Run validate, and restore this member from another"),
        ),
        _ => Error::new(ErrorCode::UnknownError, format!("Storage cannot read: {error}")),
    }
}

/// Stops the process because a write or a sync failed.
pub fn stop(what: &str, error: &rust_rocksdb::Error) -> ! {
    tracing::error!(component = "STORAGE", error = %error, what, "A write failed; stopping, because what is on disk is now unknown. Free space or replace the disk, then start again");
    eprintln!("baton: {what} failed: {error}. Stopping: what is on disk is now unknown.");
    std::process::abort();
}
