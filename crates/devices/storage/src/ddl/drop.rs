//! Dropping collections, views and indexes: in two phases.
//!
//! ```text
//!  1  the drop        one batch: the catalog's entry goes, the entry of the log and a record of what was dropped come; then the
//!                     drop is answered, whatever the size
//!  2  the clean-up    in the background, once no rollback can undo the drop: the ranges are deleted, then the record
//! ```
//!
//! The record is [`super::dropped`]'s, the second phase [`super::freeing`]'s.

use super::{CatalogGuard, DroppedPart, Held, LoggedCommand, Quiet};
use crate::catalog::{Collection, CollectionKind, Index};
use crate::documents::format::{IndexId, capped_start_key, counts_key, family};
use crate::documents::transaction::Transaction;
use crate::log::author::Writer;
use crate::log::commit::Durability;
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::rawdoc;
use std::sync::Arc;

/// Removes a collection's entry; the ranges of its keys are freed later.
pub(crate) fn forget(transaction: &mut Transaction, of: &Quiet<'_>) {
    let collection = of.collection();
    transaction.remove_entry(of);
    transaction.delete(family::META, &counts_key(collection.id));
    if collection.kind == CollectionKind::Capped {
        transaction.delete(family::META, &capped_start_key(collection.id));
    }
    let indexes = collection.indexes();
    for index in indexes.iter() {
        transaction.free_later(index.id, DroppedPart::Extent);
        transaction.forget_build(index);
    }
}

impl Held<'_> {
    /// Drops it.
    fn remove(self) -> Result<Arc<Collection>> {
        if self.kind == CollectionKind::Oplog {
            return Err(Error::new(ErrorCode::IllegalOperation, "can't drop live oplog while replicating"));
        }
        let guard = self.guard;
        self.quietly(|this| {
            let mut transaction = Transaction::default();
            let before = rawdoc! { "numRecords": self.counts().documents };
            guard.log(&mut transaction, &self.namespace, Some(self.uuid), &LoggedCommand::Drop, Some(&before))?;
            forget(&mut transaction, this);
            let _unreadable = guard.writer.commit_catalog_change(transaction)?;
            crash_point!("drop-after-commit");
            guard.publish(|catalog| catalog.remove(&self.namespace));
            guard.writer.freeing.leave_build_files();
            Ok(Arc::clone(&self))
        })
    }

    /// Takes indexes away, and logs that; or does not, and nothing brings them back. A build of the set that makes one of them is
    /// given up whole.
    pub(super) fn remove_indexes(&self, ids: &[IndexId], is_logged: bool) -> Result<()> {
        let guard = self.guard;
        let is_chosen = |index: &&Arc<Index>| ids.contains(&index.id);
        let builds: Vec<_> =
            self.indexes().iter().filter(is_chosen).filter_map(|index| index.build().map(|build| build.uuid)).collect();
        for build in builds.iter().filter(|_| is_logged) {
            let cause = Error::new(ErrorCode::IndexBuildAborted, "Index build aborted: dropIndexes command");
            self.abort_build(*build, &cause)?;
        }
        let (gone, left): (Vec<_>, Vec<_>) = self.indexes().iter().cloned().partition(|index| ids.contains(&index.id));
        if gone.is_empty() {
            return Ok(());
        }
        self.quietly(|this| {
            let mut transaction = Transaction::default();
            transaction.store_entry(this, self.entry(&left));
            for index in gone {
                transaction.forget_build(&index);
                if is_logged {
                    let command = LoggedCommand::DropIndex(index.definition.name.clone());
                    let before = &index.definition.document;
                    guard.log(&mut transaction, &self.namespace, Some(self.uuid), &command, Some(before))?;
                    transaction.free_later(index.id, DroppedPart::of_index(self.id, &index));
                } else {
                    transaction.free_at_once(index.id);
                }
            }
            guard.writer.commit(transaction, Durability::Synced)?;
            self.indexes.store(Arc::new(left));
            guard.writer.freeing.leave_build_files();
            crash_point!("drop-index-after-commit");
            Ok(())
        })
    }
}

impl Writer<'_> {
    /// Drops a collection or view; tells what it was, or `None` if there was none.
    pub fn drop_collection(&self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        self.drop_collection_if(|catalog| catalog.collection(namespace))
    }

    /// Drops the collection or view that `select` holds.
    pub fn drop_collection_if(
        &self,
        select: impl for<'g> FnOnce(&'g CatalogGuard<'g>) -> Option<Held<'g>>,
    ) -> Result<Option<Arc<Collection>>> {
        let catalog = self.lock_catalog();
        let Some(held) = select(&catalog) else { return Ok(None) };
        held.remove().map(Some)
    }

    /// Drops an index by name.
    pub fn drop_index(&self, collection: &Arc<Collection>, name: &str) -> Result<()> {
        let missing = || Error::new(ErrorCode::IndexNotFound, format!("index not found with name [{name}]"));
        self.drop_indexes(|catalog| {
            let held = catalog.by_id(collection.id).ok_or_else(missing)?;
            let id = held.index(name).ok_or_else(missing)?.id;
            Ok(Some((held, vec![id])))
        })
    }

    /// Drops the indexes that `select` names, of a collection that it holds.
    pub fn drop_indexes(
        &self,
        select: impl for<'g> FnOnce(&'g CatalogGuard<'g>) -> Result<Option<(Held<'g>, Vec<IndexId>)>>,
    ) -> Result<()> {
        let catalog = self.lock_catalog();
        match select(&catalog)? {
            Some((held, ids)) if !ids.is_empty() => held.remove_indexes(&ids, true),
            _ => Ok(()),
        }
    }
}
