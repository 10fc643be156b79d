//! What is left of what was dropped, and of what a crash interrupted.
//!
//! Keys of what was dropped are deleted after the drop is durable, by whoever dropped it and without the catalog's guard; their
//! ids wait in the meta family until they are gone, so that a crash in between leaves nothing behind for good.

use crate::catalog::IndexState;
use crate::commit::Durability;
use crate::facts::Fact;
use crate::format::{dropped_key, family, meta, prefix, prefix_end};
use crate::machine::read_failure;
use crate::storage::Storage;
use crate::tasks::TaskKind;
use crate::transaction::Transaction;
use baton_types::Result;
use rust_rocksdb::IteratorMode;

/// Keys of a dropped range deleted in one transaction.
const DELETES_MAX: usize = 4096;

impl Storage {
    /// What a crash interrupted. Only while the data directory is opened: later, an index being built is nobody's remains.
    pub(crate) fn finish_interrupted_ddl(&self) -> Result<()> {
        self.delete_dropped()?;
        self.remove_unfinished_indexes()?;
        // A member of a set does so when it is primary: until then its log is another's.
        if self.fact(Fact::Configuration)?.is_none() {
            self.drop_temporary_collections()?;
        }
        Ok(())
    }

    /// Drops what interrupted operations left. Before clients may write: an operation under way has such a collection too.
    pub fn drop_temporary_collections(&self) -> Result<()> {
        for collection in self.catalog().iter().filter(|collection| collection.options.temporary) {
            tracing::info!(component = "STORAGE", namespace = %collection.namespace, "Dropping a temporary collection that an interrupted operation left");
            self.drop_collection(&collection.namespace)?;
        }
        Ok(())
    }

    /// Deletes the keys of everything dropped.
    pub(crate) fn delete_dropped(&self) -> Result<()> {
        let mut dropped = Vec::new();
        for item in self.db().iterator_cf(
            self.family(family::META),
            IteratorMode::From(&[meta::DROPPED], rust_rocksdb::Direction::Forward),
        ) {
            let (key, _) = item.map_err(read_failure)?;
            match key.strip_prefix(&[meta::DROPPED]).and_then(|id| <[u8; 4]>::try_from(id).ok()) {
                Some(id) => dropped.push(u32::from_be_bytes(id)),
                None => break,
            }
        }
        for id in dropped {
            let _task = self.tasks().begin(TaskKind::DropCleanup, id.to_string());
            for family in [family::DOCUMENTS, family::INDEXES] {
                self.delete_extent(family, id)?;
                crash_point!("drop-cleanup");
            }
            let mut transaction = Transaction::default();
            transaction.delete(family::META, &dropped_key(id));
            self.commit.commit_unasked(transaction, Durability::Applied);
        }
        Ok(())
    }

    /// Deletes every key of an id in one family: whole files first, then what is left, key by key.
    pub(crate) fn delete_extent(&self, family: &'static str, id: u32) -> Result<()> {
        self.db().delete_file_in_range_cf(self.family(family), prefix(id), prefix_end(id)).map_err(read_failure)?;
        loop {
            let mut transaction = Transaction::default();
            let mut options = crate::view::newest(family);
            options.set_iterate_upper_bound(prefix_end(id).to_vec());
            let mut iterator = self.db().raw_iterator_cf_opt(self.family(family), options);
            iterator.seek(prefix(id));
            let mut keys = 0;
            while let Some(key) = iterator.key() {
                if keys == DELETES_MAX {
                    break;
                }
                transaction.delete(family, key);
                keys += 1;
                iterator.next();
            }
            iterator.status().map_err(read_failure)?;
            if keys == 0 {
                return Ok(());
            }
            self.commit.commit_unasked(transaction, Durability::Applied);
        }
    }

    /// Indexes whose build a crash interrupted: nobody was told they exist, so they go.
    fn remove_unfinished_indexes(&self) -> Result<()> {
        let catalog = self.catalog();
        for collection in catalog.iter() {
            for index in collection.indexes().iter().filter(|index| index.state() == IndexState::Building) {
                tracing::warn!(component = "INDEX", index = index.definition.name, namespace = %collection.namespace, "An index build was interrupted; removing what it left. Build the index again");
                self.abort_index(collection.id, index.id)?;
            }
        }
        Ok(())
    }
}
