//! Putting what an index build has sorted into its indexes, and the moment from which writers write these themselves.
//!
//! Tables are written in the order of keys, each of one index alone, and taken in by one call: it has effect whole, and is refused if
//! there is anything where they come to lie, which is why writers keep out until then. Their versions have the lowest stamp there is:
//! whoever reads the index reads of times after its completion, and whatever writers put on top of it is newer.
//!
//! Meanwhile DDL of the collection waits, and no writer does. Taking in is a link, an open and a sync for each table, whatever it holds:
//! about a millisecond, for every 64 MB of the index.

use super::index_build::aborted;
use super::index_fill::{FillPosition, Filling, Steps};
use super::index_scan::BATCH_DOCUMENTS;
use super::sorted_runs::{RunFolder, STEP_ENTRIES};
use super::sorter::Sorter;
use crate::catalog::BuildPhase;
use crate::documents::format::{PREFIX_BYTES, build_position_key, family, prefix};
use crate::documents::transaction::Transaction;
use crate::log::commit::Durability;
use crate::machine::check_room;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, Result};
use rust_rocksdb::{IngestExternalFileOptions, SstFileWriter};
use std::path::{Path, PathBuf};

/// The stamp of all versions that a build puts in.
const STAMP: [u8; 8] = [0; 8];
/// Size at which a table is full, in bytes.
const TABLE_BYTES: u64 = 64 << 20;
/// What is sorted and not more than this goes into the index by one transaction, if it is of one batch of documents.
const LITTLE_BYTES: usize = 256 << 10;

impl Storage {
    /// Reads and sorts what was not read yet, puts all into the indexes, and has writers write these from then on.
    pub(super) fn load(&self, filling: &Filling<'_>, at: &mut FillPosition, steps: &mut Steps<'_>) -> Result<()> {
        if !at.is_loaded {
            let mut is_there = false;
            for index in filling.indexes {
                is_there |= self.has_entries(index.id)?;
            }
            if !is_there {
                self.scan_and_load(filling, at, steps)?;
            }
        }
        self.switch(filling, at)
    }

    fn scan_and_load(&self, filling: &Filling<'_>, at: &mut FillPosition, steps: &mut Steps<'_>) -> Result<()> {
        let folder = self.begin_scanning(filling, at)?;
        {
            let mut sorter = Sorter::new(&self.build_memory, self.options.index_build_bytes);
            self.scan(filling, at, &folder, &mut sorter, steps)?;
            filling.set_phase(BuildPhase::Loading);
            let (entries, bytes) = sorter.size();
            if at.runs.is_empty() && entries <= BATCH_DOCUMENTS && bytes <= LITTLE_BYTES {
                return self.load_little(filling, &mut sorter);
            }
            if !sorter.is_empty() {
                self.write_run(filling, at, &folder, &mut sorter, steps)?;
            }
        }
        let tables = self.write_tables(filling, &folder, at, steps)?;
        self.in_build(filling, || self.take_in(&tables))?;
        crash_point!("index-build-ingested");
        Ok(())
    }

    /// Little needs no table.
    fn load_little(&self, filling: &Filling<'_>, sorter: &mut Sorter) -> Result<()> {
        let mut transaction = Transaction::default();
        for (key, value) in sorter.sorted() {
            transaction.put(family::INDEXES, key, value);
        }
        transaction.put(family::META, &build_position_key(filling.first()), &FillPosition::loaded().encode());
        self.in_build(filling, || Ok(self.commit.commit_unasked(transaction, Durability::Applied)))?;
        Ok(())
    }

    /// The tables that hold what the runs have.
    fn write_tables(
        &self,
        filling: &Filling<'_>,
        folder: &RunFolder,
        at: &FillPosition,
        steps: &mut Steps<'_>,
    ) -> Result<Vec<PathBuf>> {
        let total: u64 = at.runs.iter().map(|run| run.entries).sum();
        let options = self.options.indexes(&self.cache);
        let mut merge = folder.merge(&at.runs)?;
        let mut tables = Vec::new();
        // Entries altogether, and of the index that they are of now.
        let (mut done, mut index, mut of_index) = (0_u64, [0; PREFIX_BYTES], 0);
        steps.begin(done, total);
        steps.step(done, total)?;
        let mut table: Option<(SstFileWriter<'_>, PathBuf)> = None;
        while let Some((key, value)) = merge.next()? {
            let of = key.first_chunk().copied().unwrap_or_default();
            if let Some((writer, path)) = &mut table
                && (of != index || writer.file_size() >= TABLE_BYTES)
            {
                writer.finish().map_err(|error| write_failure(path, &error))?;
                tables.push(path.clone());
                table = None;
            }
            if of != index {
                note_loaded(filling, index, of_index);
                (index, of_index) = (of, 0);
            }
            let (writer, path) = match &mut table {
                Some(table) => table,
                None => {
                    check_room(folder.path())?;
                    let path = folder.path().join(format!("table-{}", tables.len() + 1));
                    let _ = std::fs::remove_file(&path);
                    let mut writer = SstFileWriter::create(&options);
                    writer.open(&path).map_err(|error| write_failure(&path, &error))?;
                    table.insert((writer, path))
                }
            };
            writer.put_with_ts(key, STAMP, value).map_err(|error| write_failure(path, &error))?;
            done += 1;
            of_index += 1;
            if done.is_multiple_of(STEP_ENTRIES) {
                steps.step(done, total)?;
            }
        }
        note_loaded(filling, index, of_index);
        if let Some((mut writer, path)) = table {
            writer.finish().map_err(|error| write_failure(&path, &error))?;
            tables.push(path);
        }
        steps.step(done, total)?;
        Ok(tables)
    }

    fn take_in(&self, tables: &[PathBuf]) -> Result<()> {
        if tables.is_empty() {
            return Ok(());
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let family = self.family(family::INDEXES);
        let taken = self.db().ingest_external_file_cf_opts(family, &options, tables.to_vec());
        taken.map_err(|error| write_failure(&tables[0], &error))
    }

    /// From now on writers write the indexes themselves; what was set aside is all there will be.
    fn switch(&self, filling: &Filling<'_>, at: &mut FillPosition) -> Result<()> {
        let catalog = self.by_member().lock_catalog();
        let held = catalog.by_id(filling.collection.id).ok_or_else(aborted)?;
        held.quietly(|this| {
            let indexes = held.indexes();
            // Which may have been altered meanwhile, and share their phase then.
            if filling.indexes.iter().any(|filled| indexes.iter().all(|index| index.id != filled.id)) {
                return Err(aborted());
            }
            filling.set_phase(BuildPhase::Draining);
            *at = FillPosition { done: at.done, ..FillPosition::loaded() };
            let mut transaction = Transaction::default();
            transaction.put(family::META, &build_position_key(filling.first()), &at.encode());
            transaction.store_entry(this, held.entry(&indexes));
            self.commit.commit_unasked(transaction, Durability::Synced);
            Ok(())
        })?;
        drop(held);
        drop(catalog);
        crash_point!("index-build-switched");
        self.remove_build_files();
        Ok(())
    }
}

/// Tells an index how many entries were put into its tables.
fn note_loaded(filling: &Filling<'_>, index: [u8; PREFIX_BYTES], entries: u64) {
    if let Some(filled) = filling.indexes.iter().find(|filled| prefix(filled.id) == index) {
        filled.set_loaded(entries);
    }
}

fn write_failure(path: &Path, error: &rust_rocksdb::Error) -> Error {
    let text = error.to_string();
    let code = if text.contains("No space left") { ErrorCode::OutOfDiskSpace } else { ErrorCode(16821) };
    Error::new(code, format!("error writing to file \"{}\": {text}", path.display()))
}
