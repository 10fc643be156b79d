//! Giving indexes the entries of every document that is there, beside those who write.
//!
//! Invariants:
//! - Each document is read again under its lock, so that an entry never overtakes a writer that removes it.
//! - Nobody waits for long: a batch of documents is locked at a time, and the catalog is not held.
//! - Where a build of the set goes on after a crash is in one `WriteBatch` with the entries of what lies before it.
//!
//! Not here: what a build is, and its ends ([`super::index_build`]).

use crate::catalog::{Collection, Index};
use crate::commit::Durability;
use crate::format::{IndexId, build_position_key, family};
use crate::index::{Entries, Making, entries_of, entries_of_fact, entry_key};
use crate::index_demands;
use crate::machine::read_failure;
use crate::storage::Storage;
use crate::tasks::TaskKind;
use crate::transaction::Transaction;
use crate::view::{Bounds, Order};
use crate::write::STEPS_OF_A_SEEK;
use baton_types::{Interruption, Result};
use bson::RawDocument;
use std::sync::Arc;

/// Documents that one transaction takes in.
const BATCH_DOCUMENTS: usize = 256;

/// Told about an index build's progress; returning an error aborts the build (a killed operation, a deadline).
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
    from: Vec<u8>,
    /// Documents that lie before.
    done: u64,
    is_over: bool,
}

impl FillPosition {
    /// Whether nothing was done yet.
    pub fn is_start(&self) -> bool {
        self.done == 0 && !self.is_over
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.done.to_le_bytes().to_vec();
        bytes.push(u8::from(self.is_over));
        bytes.extend_from_slice(&self.from);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (done, rest) = bytes.split_first_chunk::<8>()?;
        let (is_over, from) = rest.split_first()?;
        Some(Self { from: from.to_vec(), done: u64::from_le_bytes(*done), is_over: *is_over == 1 })
    }
}

/// What is to be filled.
pub(super) struct Filling<'f> {
    pub(super) collection: &'f Arc<Collection>,
    /// One at least.
    pub(super) indexes: &'f [Arc<Index>],
    pub(super) pass: Pass,
    /// The build of the set that they are of; its position is written down.
    pub(super) build: Option<[u8; 16]>,
    /// Whether to go on, asked within each document.
    pub(super) asked: &'f Arc<Interruption>,
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
        let total = collection.counts().documents.max(0) as u64;
        let name = format!("{} {}", collection.namespace, names.join(", "));
        let task = self.tasks().admit_now(TaskKind::IndexBuild, name, total);
        task.progress(at.done, total.max(at.done));
        while !at.is_over {
            // On a disk that is filling up a build fails alone. Another member's is carried out as long as that goes.
            if filling.pass != Pass::Follow {
                self.check_room()?;
            }
            let records = self.next_records(collection, &at.from)?;
            let mut transaction = Transaction::asking(filling.asked);
            for record in &records {
                let mut wait = || progress(at.done, total.max(at.done));
                if let Err(error) = self.fill_record(&mut transaction, filling, record, &mut wait) {
                    self.abandon(transaction);
                    return Err(error);
                }
            }
            at.done += records.len() as u64;
            at.is_over = records.len() < BATCH_DOCUMENTS;
            if let Some(last) = records.last() {
                at.from.clone_from(last);
                at.from.push(0);
            }
            if filling.build.is_some() && filling.pass != Pass::Verify {
                transaction.put(family::META, &build_position_key(filling.indexes[0].id), &at.encode());
            }
            self.commit.commit_unasked(transaction, Durability::Applied);
            crash_point!("index-build-batch");
            task.progress(at.done, total.max(at.done));
            progress(at.done, total.max(at.done))?;
            task.rest();
        }
        Ok(())
    }

    fn next_records(&self, collection: &Collection, from: &[u8]) -> Result<Vec<Vec<u8>>> {
        let view = self.view();
        let mut cursor = view.documents(collection, &Bounds { from: from.to_vec(), to: None }, Order::Forward);
        let mut records = Vec::with_capacity(BATCH_DOCUMENTS);
        while records.len() < BATCH_DOCUMENTS {
            let Some((record, _)) = cursor.next_document()? else { break };
            records.push(record.to_vec());
        }
        Ok(records)
    }

    fn fill_record(
        &self,
        transaction: &mut Transaction,
        filling: &Filling<'_>,
        record: &[u8],
        wait: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let collection = filling.collection;
        if !self.locks.try_lock(&mut transaction.locks, collection.id, record) {
            let next = transaction.next_of_request();
            let before = std::mem::replace(transaction, next);
            self.commit.commit_unasked(before, Durability::Applied);
            while !self.locks.lock(&mut transaction.locks, collection.id, record) {
                wait()?;
            }
        }
        for index in filling.indexes {
            let Some(document) = self.get_locked(collection, record)? else { return Ok(()) };
            let document = crate::view::stored_document(&document)?;
            let entries = match filling.pass {
                Pass::Follow => entries_of_fact(index, document),
                Pass::Decide | Pass::Verify => {
                    index_demands::check(index, document, filling.asked)?;
                    entries_of(index, document, &mut Making::new(filling.asked))?
                }
            };
            self.add_entries(transaction, filling, index, &entries, record, document)?;
        }
        Ok(())
    }

    fn add_entries(
        &self,
        transaction: &mut Transaction,
        filling: &Filling<'_>,
        index: &Arc<Index>,
        entries: &Entries,
        record: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let collection = filling.collection;
        if index.definition.unique && filling.pass != Pass::Follow {
            let keys = || entries.entries.iter().map(|entry| (index.id, entry.fields.as_slice()));
            if !self.locks.try_lock_all_new(&mut transaction.locks, keys()) {
                // Somebody holds one of the keys, perhaps this very batch: let the batch become readable, then wait.
                let next = transaction.next_of_request();
                let before = std::mem::replace(transaction, next);
                self.commit.commit_unasked(before, Durability::Applied);
                while !self.locks.lock(&mut transaction.locks, collection.id, record) {
                    filling.asked.look()?;
                }
                while !self.locks.lock_sorted(&mut transaction.locks, keys()) {
                    filling.asked.look()?;
                }
                if self.get_locked(collection, record)?.is_none_or(|now| *now != *document.as_bytes()) {
                    // Changed meanwhile: the writer that did so has put the entries in.
                    return Ok(());
                }
            }
            for entry in &entries.entries {
                filling.asked.steps(STEPS_OF_A_SEEK)?;
                self.check_unique(collection, index, entry, record, document)?;
            }
        }
        if filling.pass == Pass::Verify {
            return Ok(());
        }
        self.note_multikey(transaction, collection, index, entries.multikey);
        for entry in &entries.entries {
            transaction.put(family::INDEXES, &entry_key(index, &entry.fields, record), &entry.value);
        }
        Ok(())
    }

    pub(super) fn saved_position(&self, first: IndexId) -> Result<FillPosition> {
        let stored = self.db().get_pinned_cf(self.family(family::META), build_position_key(first));
        let stored = stored.map_err(read_failure)?;
        Ok(stored.and_then(|bytes| FillPosition::decode(&bytes)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back() {
        let at = FillPosition { from: vec![1, 2, 0], done: 300, is_over: false };
        assert_eq!(FillPosition::decode(&at.encode()), Some(at));
        let over = FillPosition { is_over: true, ..FillPosition::default() };
        assert_eq!(FillPosition::decode(&over.encode()), Some(over));
        assert_eq!(FillPosition::decode(b"short"), None);
    }
}
