//! Copies of whole collections: what `convertToCapped`, `cloneCollectionAsCapped` and a rename into another database do.
//!
//! Invariants: a copy is filled under a name of its own and takes the wanted name in one transaction with the end of what
//! it replaces, so that no reader and no crash meets half of it: until then it is temporary, and a restart drops it.
//! Nobody waits while the documents are copied. Then writers of the source wait for that transaction, so that none of their
//! writes is lost; and if there was a write since the copying began, also until all is copied anew.
//! Reads of a time before the swap are refused from then on: what had the name then has another id, or none.

use crate::catalog::{Collection, CollectionKind, CollectionOptions, ID_INDEX, Index, IndexState};
use crate::commit::Durability;
use crate::ddl::{CatalogGuard, CreateOutcome, IndexBuildProgress, LoggedCommand, Quiet, forget};
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::view::{Bounds, Order, View};
use crate::write::Inserted;
use baton_types::{Error, ErrorCode, Namespace, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Documents and bytes that a copy commits at once, at the most.
const BATCH_DOCUMENTS: u64 = 256;
const BATCH_BYTES: usize = 1024 * 1024;

/// What to copy, and where to.
pub struct CopyRequest<'a> {
    /// The collection to copy.
    pub from: &'a Namespace,
    /// What it was when the copy's options were decided: if it is another by the time the copy takes its name, or was altered,
    /// nothing is done.
    pub source: &'a Arc<Collection>,
    /// The name the copy gets; may be that of the source, which it then replaces.
    pub to: &'a Namespace,
    /// A name nobody uses, in the database of `to`, for the time of copying.
    pub temporary: &'a Namespace,
    /// The copy's options.
    pub options: CollectionOptions,
    /// The copy's UUID, drawn at random.
    pub uuid: [u8; 16],
    /// Whether the copy gets the source's indexes.
    pub with_indexes: bool,
    /// Whether what has the name `to` is dropped; otherwise there must be nothing.
    pub drop_target: bool,
    /// Whether the source is dropped.
    pub drop_source: bool,
}

impl Storage {
    /// Copies a collection.
    pub fn copy_collection(&self, request: &CopyRequest<'_>, progress: IndexBuildProgress<'_>) -> Result<()> {
        let created = self.create_collection(request.temporary, request.options.with_temporary(true)?, request.uuid)?;
        let CreateOutcome::Created(copy) = created else {
            return Err(Error::new(ErrorCode::NamespaceExists, format!("{} exists", request.temporary)));
        };
        let copied = self.copy_into(request, &copy, progress);
        if copied.is_err() {
            self.drop_collection(request.temporary)?;
        }
        copied
    }

    fn copy_into(
        &self,
        request: &CopyRequest<'_>,
        copy: &Arc<Collection>,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let missing =
            || Error::new(ErrorCode::NamespaceNotFound, format!("Source collection {} does not exist", request.from));
        let to_copy = || -> Vec<Arc<Index>> {
            let is_complete =
                |index: &&Arc<Index>| index.definition.name != ID_INDEX && index.state() == IndexState::Ready;
            request.source.indexes().iter().filter(is_complete).cloned().collect()
        };
        let indexes = if request.with_indexes { to_copy() } else { Vec::new() };
        for index in &indexes {
            self.create_index(request.temporary, index.definition.clone(), &mut |_, _| Ok(()))?;
        }
        let (source, seen, view) = {
            let catalog = self.lock_catalog();
            // What has the name now may be another collection than the one that was decided about.
            let source =
                catalog.collection(request.from).filter(|now| now.id == request.source.id).ok_or_else(missing)?;
            source.quietly(|source| {
                let source = Arc::clone(source.collection());
                let seen = source.shared.changes.load(Ordering::Relaxed);
                (source, seen, self.view())
            })
        };
        self.copy_documents(&view, &source, copy, progress)?;
        crash_point!("copy-filled");
        let catalog = self.lock_catalog();
        let source = catalog.collection(request.from).filter(|now| now.id == request.source.id).ok_or_else(missing)?;
        let has_other_indexes =
            || request.with_indexes && !to_copy().iter().map(|index| index.id).eq(indexes.iter().map(|index| index.id));
        if !Arc::ptr_eq(&source, request.source) || has_other_indexes() {
            let message = format!("{} was altered while it was copied", request.from);
            return Err(Error::new(ErrorCode::ConflictingOperationInProgress, message));
        }
        let replaces_source = request.from == request.to;
        let target = catalog.collection(request.to).filter(|_| !replaces_source);
        if target.is_some() && !request.drop_target {
            return Err(Error::new(ErrorCode::NamespaceExists, "target namespace exists"));
        }
        if target.as_ref().is_some_and(|target| target.kind == CollectionKind::View) {
            let message = format!("a view already exists with that name: {}", request.to);
            return Err(Error::new(ErrorCode::NamespaceExists, message));
        }
        let copy = catalog.by_id(copy.id).ok_or_else(missing)?;
        source.quietly_with(target.as_ref(), |source, target| {
            if source.collection().shared.changes.load(Ordering::Relaxed) != seen {
                self.empty_copy(&copy)?;
                self.copy_documents(&self.view(), source.collection(), &copy, progress)?;
            }
            copy.quietly(|copy| {
                self.swap_in(&catalog, request, (source, copy), if replaces_source { Some(source) } else { target })
            })
        })?;
        drop((source, target, copy));
        drop(catalog);
        self.delete_dropped()
    }

    /// Takes everything out of a copy again.
    fn empty_copy(&self, copy: &Arc<Collection>) -> Result<()> {
        let view = self.view();
        let mut documents = view.documents(copy, &Bounds::default(), Order::Forward);
        let mut transaction = Transaction::default();
        while let Some((record, document)) = documents.next_document()? {
            while !self.locks.try_lock_new(&mut transaction.locks, copy.id, record) {
                self.commit.commit(std::mem::take(&mut transaction), Durability::Applied)?;
            }
            self.delete(&mut transaction, copy, record, document, None)?;
            if transaction.oplog_entries() as u64 >= BATCH_DOCUMENTS {
                self.commit.commit(std::mem::take(&mut transaction), Durability::Applied)?;
            }
        }
        self.commit.commit(transaction, Durability::Applied)?;
        Ok(())
    }

    /// Gives the copy its name in place of what has it.
    fn swap_in(
        &self,
        catalog: &CatalogGuard<'_>,
        request: &CopyRequest<'_>,
        (source, copy): (&Quiet<'_>, &Quiet<'_>),
        target: Option<&Quiet<'_>>,
    ) -> Result<()> {
        let mut transaction = Transaction::default();
        let renamed = catalog.rename_entry(&mut transaction, copy, target, request.to)?;
        let drops_source = request.drop_source && request.from != request.to;
        if drops_source {
            let uuid = source.collection().uuid;
            catalog.log(&mut transaction, request.from, Some(uuid), &LoggedCommand::Drop)?;
            forget(&mut transaction, source);
        }
        crash_point!("copy-before-swap");
        let _unreadable = self.commit_catalog_change(transaction, || ())?;
        crash_point!("copy-after-swap");
        catalog.publish(|catalog| {
            catalog.remove(request.temporary);
            if drops_source {
                catalog.remove(request.from);
            }
            catalog.insert(renamed);
        });
        Ok(())
    }

    fn copy_documents(
        &self,
        view: &View<'_>,
        source: &Arc<Collection>,
        copy: &Arc<Collection>,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let total = source.counts().documents.max(0) as u64;
        let mut done = 0;
        let is_capped = copy.kind == CollectionKind::Capped;
        let bounds = if is_capped { self.newest_that_fit(view, source, copy)? } else { Bounds::default() };
        let mut transaction = Transaction::default();
        let mut documents = view.documents(source, &bounds, Order::Forward);
        while let Some((_, document)) = documents.next_document()? {
            loop {
                let added = match is_capped {
                    true => self.append_to_copy(&mut transaction, copy, document),
                    false => self.insert(&mut transaction, copy, document, None),
                };
                match added {
                    Ok(Inserted::Added) => break,
                    Ok(Inserted::CommitFirst) => {
                        self.commit.commit(std::mem::take(&mut transaction), Durability::Applied)?;
                    }
                    Err(error) => {
                        self.abandon(transaction);
                        return Err(error);
                    }
                }
            }
            done += 1;
            if done % BATCH_DOCUMENTS == 0 || transaction.bytes() > BATCH_BYTES {
                self.commit.commit(std::mem::take(&mut transaction), Durability::Applied)?;
                crash_point!("copy-batch");
                progress(done, total.max(done))?;
            }
        }
        self.commit.commit(transaction, Durability::Applied)?;
        Ok(())
    }
}
