//! Spilling: how a blocking stage goes on with more than it may hold in memory.
//!
//! ```text
//!  values ──▶ memory ──(full)──▶ sorted, written as one run ──┐
//!                                                             ▼
//!                          file:  run 1 │ run 2 │ run 3 │ …  (blocks of entries: key, value)
//!                                   └──────┴───────┴── merged, so many at once, until one merge takes all that are left
//! ```
//!
//! A stage holds what its [`Room`] lets it. When that says no, the stage sorts what it holds by key, writes it as a run
//! ([`runs::Runs`]), and begins anew; at the end the runs are merged ([`merge::Merge`]).
//!
//! Invariants: runs lie in the order in which their entries came, and only neighbours are merged, so that of equal keys the
//! earlier entry comes first; a merge holds one block of each run it reads, and no more runs at once than that bounds; all
//! runs of a stage are in one file, which goes with the stage.
//!
//! Not here: files. A [`SpillSpace`] is handed in, and keeps blocks whole: what it cannot read back as it was is an error.

mod merge;
mod room;
mod runs;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use merge::Merge;
pub use room::{Room, SpillKind, SpillTotals, Spilled, Totals};
pub(crate) use runs::Runs;

use baton_types::{Error, Result};
use bson::RawDocumentBuf;
use std::fmt;

/// Where files for spilling are made.
pub trait SpillSpace: Send + Sync + fmt::Debug {
    /// A new and empty one. It is removed when it is dropped.
    fn create(&self) -> Result<Box<dyn SpillFile>>;
}

/// A file of blocks, written at its end and read anywhere.
pub trait SpillFile: Send {
    /// Appends a block.
    ///
    /// # Errors
    /// `OutOfDiskSpace` (14031) if there is no room for it, or if what is left the member needs for itself.
    fn append(&mut self, block: &[u8]) -> Result<()>;

    /// How long the file is, in bytes: where the next block will begin.
    fn end(&self) -> u64;

    /// Reads the block that begins at `at` into `block`, in place of what was there; tells where the next one begins.
    ///
    /// # Errors
    /// 31182 if it is not what was written.
    fn read(&mut self, at: u64, block: &mut Vec<u8>) -> Result<u64>;

    /// What lies between is not read again: its space may be given back.
    fn release(&mut self, from: u64, to: u64);
}

/// What can lie in a run.
pub trait Spillable: Sized {
    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);
    /// The value that these bytes were made of.
    fn take(bytes: &[u8]) -> Result<Self>;
}

impl Spillable for RawDocumentBuf {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn take(bytes: &[u8]) -> Result<Self> {
        Self::from_bytes(bytes.to_vec()).map_err(|_| damaged())
    }
}

/// The error of bytes that no run holds.
pub fn damaged() -> Error {
    Error::location(31182, "Data read from disk does not match what was written to disk. Possible corruption of data.")
}
