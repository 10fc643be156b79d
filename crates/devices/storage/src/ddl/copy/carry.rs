//! What gets into a copy: the documents of a view, and then what writers of the source have touched since.
//!
//! Documents are facts: the source has taken them, under the same unique indexes, so nothing is asked of them again. While a copy is
//! brought up to date document by document it passes through states that the source never had (two documents that have swapped a
//! unique key); what it has once all is carried over, the source has.
//!
//! Invariant: who waits for a document's lock in the source holds no lock of the copy.

use super::noted::Touched;
use super::{BATCH_BYTES, BATCH_DOCUMENTS};
use crate::catalog::{Collection, CollectionKind};
use crate::ddl::IndexBuildProgress;
use crate::documents::format::family;
use crate::documents::locks::LockSet;
use crate::documents::transaction::Transaction;
use crate::documents::view::{Bounds, DocumentCursor, Order, View, newest, stored_document};
use crate::documents::write::Inserted;
use crate::log::author::Writer;
use crate::log::commit::Durability;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawDocument, RawDocumentBuf};
use std::sync::Arc;

impl Writer<'_> {
    /// Copies what a view has of the source: for a capped copy, the newest documents that fit. `between` is called between two
    /// batches.
    pub(super) fn copy_documents(
        &self,
        view: &View<'_>,
        source: &Arc<Collection>,
        copy: &Arc<Collection>,
        progress: IndexBuildProgress<'_>,
        between: &dyn Fn(),
    ) -> Result<()> {
        let total = source.counts().documents.max(0) as u64;
        let mut done = 0;
        let is_capped = copy.kind == CollectionKind::Capped;
        let bounds = if is_capped { self.newest_that_fit(view, source, copy)? } else { Bounds::default() };
        let mut documents = view.documents(source, &bounds, Order::Forward);
        loop {
            let copied = self.while_copy_stays(copy, || self.copy_batch(&mut documents, copy))?;
            crash_point!("copy-batch");
            done += copied;
            progress(done, total.max(done))?;
            if copied < BATCH_DOCUMENTS {
                return Ok(());
            }
            between();
        }
    }

    /// Copies the next documents, [`BATCH_DOCUMENTS`] unless there are no more; returns how many.
    fn copy_batch(&self, documents: &mut DocumentCursor<'_>, copy: &Arc<Collection>) -> Result<u64> {
        let mut transaction = Transaction::copying();
        let mut copied = 0;
        while copied < BATCH_DOCUMENTS
            && let Some((_, document)) = documents.next_document()?
        {
            let add = |transaction: &mut Transaction| match copy.kind {
                CollectionKind::Capped => self.append_to_copy(transaction, copy, document),
                CollectionKind::Clustered | CollectionKind::View | CollectionKind::Oplog => {
                    self.insert(transaction, copy, document, None)
                }
            };
            while add(&mut transaction)? == Inserted::CommitFirst {
                self.commit_copied(&mut transaction)?;
            }
            copied += 1;
            if transaction.bytes() > BATCH_BYTES {
                self.commit_copied(&mut transaction)?;
            }
        }
        self.commit_copied(&mut transaction)?;
        Ok(copied)
    }

    /// Brings over what was touched in the source.
    pub(super) fn carry(
        &self,
        source: &Arc<Collection>,
        copy: &Arc<Collection>,
        touched: &[Touched],
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let mut done = 0;
        let mut ask = |done| progress(done, touched.len() as u64);
        let mut left = touched;
        while !left.is_empty() {
            let mut now = Vec::new();
            let mut bytes = 0;
            while now.len() < left.len() && now.len() < BATCH_DOCUMENTS as usize && bytes < BATCH_BYTES {
                let document = self.settled(source, left[now.len()].record(), &mut || ask(done))?;
                bytes += document.as_ref().map_or(0, |document| document.as_bytes().len());
                now.push(document);
            }
            let (batch, rest) = left.split_at(now.len());
            self.while_copy_stays(copy, || {
                let mut transaction = Transaction::copying();
                for (touched, now) in batch.iter().zip(&now) {
                    while self.carry_one(&mut transaction, copy, touched, now.as_deref())? == Inserted::CommitFirst {
                        self.commit_copied(&mut transaction)?;
                    }
                }
                self.commit_copied(&mut transaction)
            })?;
            crash_point!("copy-carried");
            done += batch.len() as u64;
            left = rest;
            ask(done)?;
        }
        Ok(())
    }

    /// The document as it is once nobody is about to change it.
    fn settled(
        &self,
        source: &Collection,
        record: &[u8],
        ask: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<RawDocumentBuf>> {
        let mut lock = LockSet::default();
        while !self.locks.lock(&mut lock, source.id, record) {
            ask()?;
        }
        let document = self.get_locked(source, record)?;
        document.as_deref().map(|document| Ok(stored_document(document)?.to_owned())).transpose()
    }

    /// Adds to the transaction what makes the copy's document what the source's is now.
    fn carry_one(
        &self,
        transaction: &mut Transaction,
        copy: &Arc<Collection>,
        touched: &Touched,
        now: Option<&RawDocument>,
    ) -> Result<Inserted> {
        let is_capped = copy.kind == CollectionKind::Capped;
        let record = if is_capped {
            self.capped_record(newest(family::INDEXES), copy, &touched.id)?
        } else {
            Some(touched.id.clone())
        };
        let Some(record) = record else {
            return match now {
                // What was there before and is not in the copy did not fit.
                Some(now) if touched.is_inserted => self.insert(transaction, copy, now, None),
                Some(_) | None => Ok(Inserted::Added),
            };
        };
        let is_locked = if transaction.is_empty() && transaction.locks.is_empty() {
            self.lock_document(transaction, copy, &record)
        } else {
            self.locks.try_lock_new(&mut transaction.locks, copy.id, &record)
        };
        if !is_locked {
            return Ok(Inserted::CommitFirst);
        }
        let found = self.get_locked(copy, &record)?;
        let before = found.as_deref().map(stored_document).transpose()?;
        match (before, now) {
            (None, None) => {}
            (None, Some(_)) if is_capped => return Ok(Inserted::CommitFirst),
            (None, Some(now)) => return self.add_document(transaction, copy, &record, now, false, None),
            (Some(before), None) => self.delete(transaction, copy, &record, before, None)?,
            // Deleted and inserted again: the newest of all.
            (Some(before), Some(_)) if is_capped && touched.is_inserted => {
                self.delete(transaction, copy, &record, before, None)?;
                return Ok(Inserted::CommitFirst);
            }
            (Some(before), Some(now)) if before.as_bytes() == now.as_bytes() => {}
            (Some(before), Some(now)) => self.update(transaction, copy, &record, (before, now), now, None)?,
        }
        Ok(Inserted::Added)
    }

    /// Runs `write` if the copy is there, and has it stay meanwhile.
    fn while_copy_stays<T>(&self, copy: &Arc<Collection>, write: impl FnOnce() -> Result<T>) -> Result<T> {
        self.with_collection(&copy.namespace, |now| match now {
            Some(now) if now.id == copy.id => write(),
            Some(_) | None => {
                Err(Error::new(ErrorCode::ConflictingOperationInProgress, "the copy was dropped while it was made"))
            }
        })
    }

    fn commit_copied(&self, transaction: &mut Transaction) -> Result<()> {
        let transaction = std::mem::replace(transaction, Transaction::copying());
        self.commit(transaction, Durability::Applied)?;
        Ok(())
    }
}
