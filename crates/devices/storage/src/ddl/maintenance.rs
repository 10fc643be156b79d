//! Work on what exists as a whole: dropping a database, compacting a collection.

use crate::background::tasks::TaskKind;
use crate::catalog::{Collection, CollectionKind};
use crate::ddl::LoggedCommand;
use crate::documents::format::family;
use crate::documents::transaction::Transaction;
use crate::log::author::Writer;
use crate::log::commit::Durability;
use crate::storage::Storage;
use baton_types::{Namespace, Result};
use std::sync::Arc;

impl Writer<'_> {
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
            self.commit(transaction, Durability::Synced)?;
        }
        Ok(dropped)
    }
}

impl Storage {
    /// Rewrites a collection's documents and index entries without what is deleted; gives the bytes this freed on disk.
    /// `interrupt` is asked while the gate is closed and between two ranges.
    pub fn compact(&self, collection: &Collection, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        let name = collection.namespace.as_str();
        let expected = self.bytes_with_indexes(collection);
        let task = self.tasks().admit_patiently(TaskKind::Compaction, name, expected, interrupt)?;
        // What it is now, after the wait.
        let indexes = collection.indexes();
        let ranges: Vec<(&str, u32, u64)> =
            std::iter::once((family::DOCUMENTS, collection.id, self.collection_bytes(collection)))
                .chain(indexes.iter().map(|index| (family::INDEXES, index.id, self.index_bytes(index))))
                .collect();
        let before: u64 = ranges.iter().map(|(_, _, bytes)| bytes).sum();
        let mut done = 0;
        let asked = self.tasks().asked_compactions.ask();
        for (family, id, bytes) in ranges {
            interrupt()?;
            task.task().check()?;
            let (from, to) = Self::extent(id);
            self.db().compact_range_cf(self.family(family), Some(from), Some(to));
            done += bytes;
            task.progress(done, before);
            task.rest();
        }
        task.charge_parts(asked.spent());
        Ok(before.saturating_sub(self.bytes_with_indexes(collection)))
    }

    /// Bytes that a collection takes on disk, its indexes included.
    fn bytes_with_indexes(&self, collection: &Collection) -> u64 {
        let indexes: u64 = collection.indexes().iter().map(|index| self.index_bytes(index)).sum();
        self.collection_bytes(collection) + indexes
    }
}
