//! Giving indexes the entries of every document that is there, beside those who write.
//!
//! ```text
//!  registered ─ scanning ────────────▶ loading ─────────▶ draining ─────────────▶ checking ───────▶ complete
//!  writers:     set aside what they    the same           write the index itself  and ask it
//!               change of an entry                                                whether keys are unique
//!  the build:   reads documents, sorts sorted runs to     brings what was set     looks for two
//!               entries, writes runs   tables, all taken  aside into the index    documents of one key
//!                                      in at once
//! ```
//!
//! Invariants:
//! - Whatever is read of a document after the registration is right: an entry that somebody has changed since was set aside, and is
//!   asked of the document again when it is brought in. So no document is locked while they are read.
//! - Until the tables are taken in, nothing is below the index's id; they are taken in by one step, all or none. So a start after
//!   a crash sees by the index whether they were.
//! - Where a scan goes on after a crash is written down once what was read before is in runs that are synced, and so are the documents
//!   they are of: in a log that lost its end the runs would be ahead of the documents.
//! - Nobody waits for long: a writer waits for a batch of what was set aside, and for the two moments at which no writer may be under
//!   way; the catalog is not held otherwise.
//! - Whatever a build writes, it writes while none of its indexes can be dropped (`Storage::in_build`). So nothing comes into the
//!   range of one that is gone.
//!
//! Not here: what a build is, and its ends ([`super::index_build`], [`super::set_build`]); the phases themselves ([`super::index_scan`],
//! [`super::index_load`], [`super::index_drain`]).

use super::index_build::aborted;
use super::sorted_runs::Run;
use crate::background::tasks::{TaskGuard, TaskKind};
use crate::catalog::{BuildPhase, Collection, Index};
use crate::documents::format::{IndexId, beside, build_position_key, family, prefix};
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{Interruption, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Told about an index build's progress; returning an error aborts the build (a killed operation, a deadline). Of what it is told,
/// the phase of the index says ([`Index::phase`]): documents that were read, entries that were put into tables, changes that were
/// brought in, entries that were looked at.
pub type IndexBuildProgress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// What a pass over the documents does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Puts entries in, and asks of each document what the index demands: of a member that decides what may be.
    Decide,
    /// Puts entries in and asks nothing: another member decides, and what is here may be on its way through states that never were.
    Follow,
    /// Asks only: of what was put in without.
    Verify,
}

/// How far a pass is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillPosition {
    /// From which record key on it goes on.
    pub(super) from: Vec<u8>,
    /// Documents that lie before.
    pub(super) done: u64,
    pub(super) is_over: bool,
    /// Whether what was read is in the index.
    pub(super) is_loaded: bool,
    /// What was read before, sorted.
    pub(super) runs: Vec<Run>,
    pub(super) last_run: u32,
}

impl FillPosition {
    /// Whether nothing was done yet.
    pub fn is_start(&self) -> bool {
        self.done == 0 && !self.is_over
    }

    /// How many documents were read.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// All is in the index.
    pub(crate) fn loaded() -> Self {
        Self { is_over: true, is_loaded: true, ..Self::default() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.done.to_le_bytes().to_vec();
        bytes.push(u8::from(self.is_over) | u8::from(self.is_loaded) << 1);
        bytes.extend_from_slice(&self.last_run.to_le_bytes());
        bytes.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for run in &self.runs {
            bytes.extend_from_slice(&run.number.to_le_bytes());
            bytes.push(run.level);
            bytes.extend_from_slice(&run.entries.to_le_bytes());
        }
        bytes.extend_from_slice(&self.from);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (done, rest) = bytes.split_first_chunk::<8>()?;
        let (flags, rest) = rest.split_first()?;
        let (last_run, rest) = rest.split_first_chunk::<4>()?;
        let (count, mut rest) = rest.split_first_chunk::<4>()?;
        let mut runs = Vec::new();
        for _ in 0..u32::from_le_bytes(*count) {
            let (number, after) = rest.split_first_chunk::<4>()?;
            let (level, after) = after.split_first()?;
            let (entries, after) = after.split_first_chunk::<8>()?;
            runs.push(Run {
                number: u32::from_le_bytes(*number),
                level: *level,
                entries: u64::from_le_bytes(*entries),
            });
            rest = after;
        }
        Some(Self {
            from: rest.to_vec(),
            done: u64::from_le_bytes(*done),
            is_over: flags & 1 != 0,
            is_loaded: flags & 2 != 0,
            runs,
            last_run: u32::from_le_bytes(*last_run),
        })
    }
}

/// What is to be filled.
pub(super) struct Filling<'f> {
    pub(super) collection: &'f Arc<Collection>,
    /// One at least.
    pub(super) indexes: &'f [Arc<Index>],
    pub(super) pass: Pass,
    /// Whether it outlives a restart.
    pub(super) is_lasting: bool,
    /// Whether to go on, asked within each document.
    pub(super) asked: &'f Arc<Interruption>,
}

impl Filling<'_> {
    /// The index by which the build's position and folder are named.
    pub(super) fn first(&self) -> IndexId {
        self.indexes[0].id
    }

    /// How many documents there are to read.
    pub(super) fn documents(&self) -> u64 {
        self.collection.counts().documents.max(0) as u64
    }

    pub(super) fn set_phase(&self, phase: BuildPhase) {
        self.indexes.iter().for_each(|index| index.set_phase(phase));
    }
}

/// Who is told how far a pass is, and asked whether to go on.
pub(super) struct Steps<'p> {
    task: TaskGuard,
    progress: IndexBuildProgress<'p>,
}

impl Steps<'_> {
    /// A phase begins, of which so much was done earlier.
    pub(super) fn begin(&mut self, done: u64, total: u64) {
        self.task.begin_phase(done, total.max(done));
    }

    pub(super) fn step(&mut self, done: u64, total: u64) -> Result<()> {
        let total = total.max(done);
        self.task.progress(done, total);
        (self.progress)(done, total)?;
        self.task.rest();
        Ok(())
    }
}

impl Storage {
    pub(super) fn fill(
        &self,
        filling: &Filling<'_>,
        at: &mut FillPosition,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let collection = filling.collection;
        let names: Vec<_> = filling.indexes.iter().map(|index| index.definition.name.as_str()).collect();
        let name = format!("{} {}", collection.namespace, names.join(", "));
        let task = self.tasks().admit_now(TaskKind::IndexBuild, name, filling.documents());
        let mut steps = Steps { task, progress };
        if filling.pass == Pass::Verify {
            self.ask_documents(filling, at, &mut steps)?;
        } else {
            *at = self.saved_position(filling.first())?;
            if filling.indexes.iter().any(|index| index.aside().is_some()) {
                self.load(filling, at, &mut steps)?;
            }
            self.drain(filling, &mut steps)?;
        }
        if filling.pass != Pass::Follow {
            self.ask_unique(filling, &mut steps)?;
        }
        Ok(())
    }

    /// Does something while none of these indexes is dropped.
    ///
    /// # Errors
    /// `IndexBuildAborted` (276) if one of them is gone already.
    pub(super) fn in_build<T>(&self, filling: &Filling<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _no_ddl = filling.collection.shared.ddl.read();
        let there = filling.collection.indexes();
        let is_there = |index: &Arc<Index>| there.iter().any(|there| there.id == index.id);
        if filling.collection.is_dropped() || !filling.indexes.iter().all(is_there) {
            return Err(aborted());
        }
        work()
    }

    pub(super) fn saved_position(&self, first: IndexId) -> Result<FillPosition> {
        let stored = self.db().get_pinned_cf(self.family(family::META), build_position_key(first));
        let stored = stored.map_err(read_failure)?;
        Ok(stored.and_then(|bytes| FillPosition::decode(&bytes)).unwrap_or_default())
    }

    fn builds_path(&self) -> PathBuf {
        self.db().path().with_extension(beside::BUILDS)
    }

    /// The folder of the build whose first index this is.
    pub(super) fn build_path(&self, first: IndexId) -> PathBuf {
        self.builds_path().join(first.to_string())
    }

    /// Removes what builds have written that are no more. Who is at work at one finds that out by himself.
    pub(crate) fn remove_build_files(&self) {
        // The folders first, then the catalog: a build makes its folder once it is registered. What holds the folders stays, for
        // another build may be about to make one in it.
        let folders: Vec<_> = std::fs::read_dir(self.builds_path()).into_iter().flatten().flatten().collect();
        let catalog = self.catalog();
        let is_aside = |id: &str| {
            let mut indexes =
                catalog.iter().flat_map(|collection| collection.indexes().iter().cloned().collect::<Vec<_>>());
            indexes.any(|index| index.id.to_string() == id && index.aside().is_some())
        };
        for folder in folders.iter().filter(|folder| !is_aside(&folder.file_name().to_string_lossy())) {
            match std::fs::remove_dir_all(folder.path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(component = "INDEX", folder = %folder.path().display(), error = %error, "What an index build has sorted cannot be removed");
                }
                // Or somebody else has removed it.
                _ => {}
            }
        }
    }

    /// Files that index builds have for what they have sorted, and their bytes.
    pub fn build_file_figures(&self) -> (u64, u64) {
        let folders = std::fs::read_dir(self.builds_path()).into_iter().flatten().flatten();
        let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok()).flatten().flatten();
        files
            .filter_map(|file| file.metadata().ok())
            .fold((0, 0), |(count, bytes), file| (count + 1, bytes + file.len()))
    }

    /// Whether anything is below an id in the index family.
    pub(super) fn has_entries(&self, id: IndexId) -> Result<bool> {
        let mut iterator = self
            .db()
            .raw_iterator_cf_opt(self.family(family::INDEXES), crate::documents::view::newest(family::INDEXES));
        iterator.seek(prefix(id));
        iterator.status().map_err(read_failure)?;
        Ok(iterator.key().is_some_and(|key| key.starts_with(&prefix(id))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back() {
        let run = Run { number: 3, level: 1, entries: 1 << 40 };
        let at = FillPosition {
            from: vec![1, 2, 0],
            done: 300,
            runs: vec![run, Run { number: 4, level: 0, ..run }],
            last_run: 4,
            ..FillPosition::default()
        };
        assert_eq!(FillPosition::decode(&at.encode()), Some(at));
        assert_eq!(FillPosition::decode(&FillPosition::loaded().encode()), Some(FillPosition::loaded()));
        assert_eq!(FillPosition::decode(b"short"), None);
    }
}
