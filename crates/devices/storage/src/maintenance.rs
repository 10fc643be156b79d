//! Work on what exists as a whole: dropping a database, compacting a collection.

use crate::catalog::{Collection, CollectionKind};
use crate::commit::Durability;
use crate::ddl::LoggedCommand;
use crate::format::family;
use crate::storage::Storage;
use crate::tasks::TaskKind;
use crate::transaction::Transaction;
use baton_types::{Namespace, Result};
use std::sync::Arc;

impl Storage {
    /// Drops everything in a database but the oplog; gives what was dropped, which is nothing if there was no such
    /// database.
    pub fn drop_database(&self, db: &str) -> Result<Vec<Arc<Collection>>> {
        let catalog = self.catalog();
        let names: Vec<Namespace> = catalog
            .database(db)
            .filter(|collection| collection.kind != CollectionKind::Oplog)
            .map(|collection| collection.namespace.clone())
            .collect();
        let mut dropped = Vec::with_capacity(names.len());
        for name in &names {
            dropped.extend(self.drop_collection(name)?);
        }
        if let Some(first) = names.first() {
            let mut transaction = Transaction::default();
            self.lock_catalog().log(&mut transaction, first, None, &LoggedCommand::DropDatabase, None)?;
            self.commit.commit(transaction, Durability::Synced)?;
        }
        Ok(dropped)
    }

    /// Rewrites a collection's documents and index entries without what is deleted; gives the bytes this freed on disk.
    /// `interrupt` is asked while the gate is closed and between two ranges.
    pub fn compact(&self, collection: &Collection, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        let name = collection.namespace.as_str();
        let parts = collection.indexes().len() as u64 + 1;
        let task = self.tasks().admit_patiently(TaskKind::Compaction, name, parts, interrupt)?;
        let indexes = collection.indexes();
        let bytes = || {
            let indexes: u64 = indexes.iter().map(|index| self.index_bytes(index)).sum();
            self.collection_bytes(collection) + indexes
        };
        let ranges = std::iter::once((family::DOCUMENTS, collection.id))
            .chain(indexes.iter().map(|index| (family::INDEXES, index.id)));
        let before = bytes();
        for (done, (family, id)) in ranges.enumerate() {
            interrupt()?;
            let (from, to) = Self::extent(id);
            self.db().compact_range_cf(self.family(family), Some(from), Some(to));
            task.progress(done as u64 + 1, indexes.len() as u64 + 1);
            task.rest();
        }
        Ok(before.saturating_sub(bytes()))
    }
}
