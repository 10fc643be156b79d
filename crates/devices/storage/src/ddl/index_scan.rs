//! Reading the documents of an index build: their entries, sorted; or what the index demands of them.
//!
//! No document is locked: see the invariants of [`super::index_fill`].

use super::index_fill::{FillPosition, Filling, Pass, Steps};
use super::sorted_runs::RunFolder;
use super::sorter::Sorter;
use crate::catalog::{BuildPhase, Collection};
use crate::documents::format::{build_position_key, family};
use crate::documents::index::{Making, entries_of, entries_of_fact, entry_key};
use crate::documents::index_demands;
use crate::documents::transaction::Transaction;
use crate::documents::view::{Bounds, Order};
use crate::log::commit::Durability;
use crate::storage::Storage;
use baton_types::{Class, Result};
use bson::RawDocument;
use std::time::{Duration, Instant};

/// Documents that are read as of one moment.
pub(super) const BATCH_DOCUMENTS: usize = 256;
/// The same in bytes, but for the last one.
const BATCH_BYTES: usize = 1 << 20;
/// How long a build may read without writing down how far it is: what a crash has it do again.
const RUN_INTERVAL: Duration = Duration::from_secs(3);

impl Storage {
    /// Reads documents from `at` on until there are no more. What is left in `sorter` then is little if there are no runs.
    pub(super) fn scan(
        &self,
        filling: &Filling<'_>,
        at: &mut FillPosition,
        folder: &RunFolder,
        sorter: &mut Sorter,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        let total = filling.documents();
        steps.begin(at.done, total);
        let mut written = (!at.is_start()).then(Instant::now);
        while !at.is_over {
            // On a disk that is filling up a build fails alone. Another member's is carried out as long as that goes.
            if filling.pass != Pass::Follow {
                self.check_room()?;
            }
            let mut multikey = vec![0; filling.indexes.len()];
            let is_over = self.read_batch(filling.collection, at, &mut |record, document| {
                for (index, multikey) in filling.indexes.iter().zip(&mut multikey) {
                    let entries = match filling.pass {
                        Pass::Follow => entries_of_fact(index, document),
                        Pass::Decide | Pass::Verify => {
                            index_demands::check(index, document, filling.asked)?;
                            entries_of(index, document, &mut Making::new(filling.asked))?
                        }
                    };
                    *multikey |= entries.multikey;
                    for entry in &entries.entries {
                        sorter.add(&entry_key(index, &entry.fields, record), &entry.value);
                    }
                }
                Ok(!sorter.is_full())
            })?;
            let mut transaction = Transaction::default();
            for (index, multikey) in filling.indexes.iter().zip(multikey) {
                self.note_multikey(&mut transaction, filling.collection, index, multikey);
            }
            if !transaction.is_empty() {
                self.in_build(filling, || Ok(self.commit.commit_unasked(transaction, Durability::Applied)))?;
            }
            at.is_over = is_over;
            // A build that outlives a restart has something to go on from as soon as there is more than a batch.
            let is_due = filling.is_lasting && written.is_none_or(|written| written.elapsed() > RUN_INTERVAL);
            if sorter.is_full() || is_due && !is_over || is_over && !at.runs.is_empty() {
                self.write_run(filling, at, folder, sorter, steps)?;
                written = Some(Instant::now());
            }
            crash_point!("index-build-batch");
            if let Err(error) = steps.step(at.done, total) {
                // Who comes back to it goes on from here.
                if filling.is_lasting && self.write_run(filling, at, folder, sorter, steps).is_err() {
                    tracing::debug!(component = "INDEX", "What an index build has read last is read again");
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes what is sorted, if there is anything, and how far the scan is by that.
    pub(super) fn write_run(
        &self,
        filling: &Filling<'_>,
        at: &mut FillPosition,
        folder: &RunFolder,
        sorter: &mut Sorter,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        // Documents that have no entries are read, too.
        if !sorter.is_empty() {
            at.last_run += 1;
            at.runs.push(folder.write(at.last_run, sorter)?);
        }
        self.write_position(filling, at)?;
        crash_point!("index-build-run-written");
        while let Some(crowded) = RunFolder::crowded(&at.runs) {
            at.last_run += 1;
            let (done, total) = (at.done, filling.documents());
            let merged = folder.merge_into(at.last_run, &crowded, &mut || steps.step(done, total))?;
            at.runs.retain(|run| !crowded.contains(run));
            at.runs.push(merged);
            self.write_position(filling, at)?;
            folder.remove(&crowded);
        }
        Ok(())
    }

    /// Synced: the documents that were read are in the log before it.
    pub(super) fn write_position(&self, filling: &Filling<'_>, at: &FillPosition) -> Result<()> {
        let mut transaction = Transaction::default();
        transaction.put(family::META, &build_position_key(filling.first()), &at.encode());
        self.in_build(filling, || Ok(self.commit.commit_unasked(transaction, Durability::Synced)))?;
        Ok(())
    }

    /// Lets `look` see documents from `at` on, as of one moment, until it has enough; tells whether those were all.
    fn read_batch(
        &self,
        collection: &Collection,
        at: &mut FillPosition,
        look: &mut dyn FnMut(&[u8], &RawDocument) -> Result<bool>,
    ) -> Result<bool> {
        let view = self.view().read_by(Class::Background);
        let bounds = Bounds { from: at.from.clone(), to: None };
        let mut documents = view.documents(collection, &bounds, Order::Forward);
        let mut bytes = 0;
        for _ in 0..BATCH_DOCUMENTS {
            let Some((record, document)) = documents.next_document()? else { return Ok(true) };
            bytes += document.as_bytes().len();
            let goes_on = look(record, document)? && bytes < BATCH_BYTES;
            at.done += 1;
            at.from.clear();
            at.from.extend_from_slice(record);
            at.from.push(0);
            if !goes_on {
                break;
            }
        }
        Ok(false)
    }

    /// Asks of every document from `at` on what the indexes demand.
    pub(super) fn ask_documents(
        &self,
        filling: &Filling<'_>,
        at: &mut FillPosition,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        let total = filling.documents();
        steps.begin(at.done, total);
        while !at.is_over {
            at.is_over = self.read_batch(filling.collection, at, &mut |_, document| {
                for index in filling.indexes {
                    index_demands::check(index, document, filling.asked)?;
                    entries_of(index, document, &mut Making::new(filling.asked))?;
                }
                Ok(true)
            })?;
            steps.step(at.done, total)?;
        }
        Ok(())
    }

    pub(super) fn begin_scanning(&self, filling: &Filling<'_>, at: &mut FillPosition) -> Result<RunFolder> {
        filling.set_phase(BuildPhase::Scanning);
        let path = self.build_path(filling.first());
        if let Some(folder) = self.in_build(filling, || RunFolder::open(path.clone(), &at.runs))? {
            return Ok(folder);
        }
        // A copy of another member's files has what was set aside, and not the runs: all is read again.
        tracing::info!(component = "INDEX", namespace = %filling.collection.namespace, "What an index build has sorted is not here; it reads from the beginning");
        *at = FillPosition::default();
        self.write_position(filling, at)?;
        match self.in_build(filling, || RunFolder::open(path, &[]))? {
            Some(folder) => Ok(folder),
            None => unreachable!("no run is missing of none"),
        }
    }
}
