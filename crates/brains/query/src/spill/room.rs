//! What one blocking stage may hold in memory, and where it may put the rest.
//!
//! Invariants: a stage that cannot spill holds what the pool gives it, up to its limit, and is refused beyond; one that can
//! leaves the pool as much as it takes, so that many of them share it and none waits. [`FLOOR_BYTES`] it has in any case: a
//! run of fewer is not worth writing.

use super::SpillSpace;
use super::runs::Runs;
use crate::effort::Effort;
use crate::interruption::Interruption;
use baton_types::{Error, ErrorCode, MemoryAccount, Result};
use bson::raw::{RawDocumentBuf, cstr};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a stage that can spill may hold however little the pool has, in bytes.
const FLOOR_BYTES: usize = 256 * 1024;
/// A block takes this part of what a stage may hold, so that a merge can hold one of each of so many runs.
const BLOCKS_IN_MEMORY: usize = 32;
/// Bytes of a block, at the most and at the least; an entry that is longer has a block of its own.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
const BLOCK_BYTES_MIN: usize = 512;
/// Runs that are merged at once, at the most.
const FAN_IN_MAX: usize = 128;

/// Which stages are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillKind {
    /// `$sort`, the sort of a query, `$sample`.
    Sort,
    /// `$group`.
    Group,
    /// `$bucketAuto`.
    BucketAuto,
}

/// What one stage has spilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// How often it wrote what it held.
    pub spills: u64,
    /// Entries written.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes they took in the file.
    pub stored_bytes: u64,
}

impl Spilled {
    /// Appends what explain shows of it, by MongoDB's names.
    pub fn append_to(&self, figures: &mut RawDocumentBuf) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        figures.append(cstr!("usedDisk"), self.spills > 0);
        figures.append(cstr!("spills"), number(self.spills));
        figures.append(cstr!("spilledDataStorageSize"), number(self.stored_bytes));
        figures.append(cstr!("spilledBytes"), number(self.bytes));
        figures.append(cstr!("spilledRecords"), number(self.records));
    }
}

/// What all stages of a kind have done since the start.
#[derive(Debug, Default)]
pub struct Totals {
    /// See [`Spilled`].
    pub spills: AtomicU64,
    /// See [`Spilled`].
    pub records: AtomicU64,
    /// See [`Spilled`].
    pub bytes: AtomicU64,
    /// See [`Spilled`].
    pub stored_bytes: AtomicU64,
    /// Values taken in, in memory or not.
    pub taken: AtomicU64,
    /// Their bytes.
    pub taken_bytes: AtomicU64,
}

/// The same of every kind.
#[derive(Debug, Default)]
pub struct SpillTotals {
    /// [`SpillKind::Sort`].
    pub sort: Totals,
    /// [`SpillKind::Group`].
    pub group: Totals,
    /// [`SpillKind::BucketAuto`].
    pub bucket_auto: Totals,
}

impl SpillTotals {
    /// Those of one kind.
    pub fn of(&self, kind: SpillKind) -> &Totals {
        match kind {
            SpillKind::Sort => &self.sort,
            SpillKind::Group => &self.group,
            SpillKind::BucketAuto => &self.bucket_auto,
        }
    }
}

/// See the file's header.
pub struct Room {
    memory: MemoryAccount,
    space: Option<Arc<dyn SpillSpace>>,
    interruption: Arc<Interruption>,
    kind: SpillKind,
    totals: Arc<SpillTotals>,
    /// The request's: as soon as anything is written it has used the disk.
    effort: Arc<Effort>,
    spilled: Spilled,
}

impl Room {
    /// What `memory` may hold, and for the rest, if it is given, a `space`. Long work asks `interruption` whether to go on.
    pub fn new(memory: MemoryAccount, space: Option<Arc<dyn SpillSpace>>, interruption: Arc<Interruption>) -> Self {
        Self {
            memory,
            space,
            interruption,
            kind: SpillKind::Sort,
            totals: Arc::default(),
            effort: Arc::default(),
            spilled: Spilled::default(),
        }
    }

    /// So many bytes of memory, and nothing else.
    pub fn of_bytes(bytes: usize) -> Self {
        Self::new(MemoryAccount::alone(bytes), None, Arc::default())
    }

    /// The same, counted as a stage of that kind.
    #[must_use]
    pub fn counted(self, kind: SpillKind, totals: &Arc<SpillTotals>, effort: &Arc<Effort>) -> Self {
        Self { kind, totals: Arc::clone(totals), effort: Arc::clone(effort), ..self }
    }

    /// Holds so many bytes from now on; `false`, and what it held before, if that is more than it may. Then a stage spills,
    /// or fails if it cannot.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        if self.space.is_none() || bytes < self.memory.bytes() {
            return self.memory.set(bytes);
        }
        bytes <= FLOOR_BYTES.min(self.memory.bytes_max()) || self.memory.set_sharing(bytes)
    }

    /// A file for what is too much; `None` if none may be used.
    pub(crate) fn runs(&self) -> Result<Option<Runs>> {
        let Some(space) = &self.space else { return Ok(None) };
        let block_bytes = (self.memory.bytes_max() / BLOCKS_IN_MEMORY).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        Ok(Some(Runs::new(space.create()?, block_bytes, Arc::clone(&self.interruption))))
    }

    /// Whether what is too much can go elsewhere.
    pub fn can_spill(&self) -> bool {
        self.space.is_some()
    }

    /// Takes memory for a merge of as many of `wanted` runs as it may, with blocks of at most `block_bytes`, and says of how
    /// many: two at the least, whatever that takes.
    pub(crate) fn hold_for_merge(&mut self, wanted: usize, block_bytes: usize) -> usize {
        let mut count = wanted.min(FAN_IN_MAX).min(self.memory.bytes_max() / block_bytes.max(1)).max(2);
        while count > 2 && !self.hold(count * block_bytes) {
            count = (count / 2).max(2);
        }
        if count == 2 {
            self.memory.set_up_to(2 * block_bytes);
        }
        count
    }

    /// Counts what was taken in, in memory or not, when that is over.
    pub(crate) fn count_taken(&self, values: u64, bytes: u64) {
        let totals = self.totals.of(self.kind);
        totals.taken.fetch_add(values, Relaxed);
        totals.taken_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts one spill.
    pub(crate) fn count(&mut self, run: Spilled) {
        let totals = self.totals.of(self.kind);
        for (own, total, more) in [
            (&mut self.spilled.spills, &totals.spills, run.spills),
            (&mut self.spilled.records, &totals.records, run.records),
            (&mut self.spilled.bytes, &totals.bytes, run.bytes),
            (&mut self.spilled.stored_bytes, &totals.stored_bytes, run.stored_bytes),
        ] {
            *own += more;
            total.fetch_add(more, Relaxed);
        }
        self.effort.used_disk.store(true, Relaxed);
    }

    /// What the stage has spilled so far.
    pub fn spilled(&self) -> Spilled {
        self.spilled
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The most it may hold.
    pub fn bytes_max(&self) -> usize {
        self.memory.bytes_max()
    }

    /// The failure of a stage that would hold `bytes` and cannot spill: 292, in MongoDB's words if its own limit was met.
    pub(crate) fn exceeded(&self, what: &str, bytes: usize, beyond_limit: impl FnOnce(usize) -> String) -> Error {
        let message = if bytes > self.bytes_max() {
            beyond_limit(self.bytes_max())
        } else {
            format!(
                "{what} exceeded the memory that all requests share; allow it to use the disk (allowDiskUse), or try again when \
                 fewer of them run."
            )
        };
        Error::new(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed, message)
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("memory", &self.memory).field("spilled", &self.spilled).finish_non_exhaustive()
    }
}
