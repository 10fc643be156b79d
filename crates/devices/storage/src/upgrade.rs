//! What a data directory of an older format becomes when it is opened.
//!
//! ```text
//!   1 → 2   hashed indexes held another hash: their entries are made anew from the documents
//!   2 → 3   what was dropped has a record that says what it was: the empty ones of before say the same as before
//! ```
//!
//! Invariants: the format's number changes last, so that a crash leaves a directory of the old format, and the same is done
//! again; nothing serves a query before it is done.
//! What it deliberately does not do: go back. A Baton of the older format refuses the directory from then on.

use crate::catalog::{Collection, Index, IndexFieldKind};
use crate::documents::format::{FORMAT_VERSION, family, meta, prefix};
use crate::documents::index::{entries_of_fact, entry_key};
use crate::documents::transaction::Transaction;
use crate::documents::view::{Bounds, Order};
use crate::log::commit::Durability;
use crate::storage::Storage;
use baton_types::Result;
use std::sync::Arc;

/// The oldest format that can be opened.
pub(crate) const OLDEST_VERSION: i32 = 1;
/// Bytes of entries written in one transaction.
const BATCH_BYTES: usize = 1024 * 1024;

impl Storage {
    /// Makes a directory of that format one of today's. While it is opened, after what a crash interrupted was finished.
    pub(crate) fn upgrade(&self, from: i32) -> Result<()> {
        if from == FORMAT_VERSION {
            return Ok(());
        }
        tracing::info!(component = "STORAGE", from, to = FORMAT_VERSION, "Upgrading the data directory");
        if from < 2 {
            self.rebuild_hashed_indexes()?;
        }
        let mut transaction = Transaction::empty();
        transaction.put(family::META, meta::FORMAT, &FORMAT_VERSION.to_le_bytes());
        self.commit.commit_unasked(transaction, Durability::Synced);
        Ok(())
    }

    fn rebuild_hashed_indexes(&self) -> Result<()> {
        for collection in self.catalog().iter() {
            for index in collection.indexes().iter() {
                if index.definition.fields.iter().any(|(_, kind)| *kind == IndexFieldKind::Hashed) {
                    tracing::info!(component = "INDEX", namespace = %collection.namespace, index = index.definition.name, "Rebuilding a hashed index");
                    self.rebuild(collection, index)?;
                }
            }
        }
        Ok(())
    }

    fn delete_entries(&self, index: &Index) -> Result<()> {
        let view = self.view();
        let mut entries = view.entries(index, &Bounds::default(), Order::Forward);
        let mut transaction = Transaction::default();
        while let Some(entry) = entries.next_entry()? {
            transaction.delete(family::INDEXES, &[&prefix(index.id), entry.position].concat());
            if transaction.bytes() > BATCH_BYTES {
                self.commit.commit_unasked(std::mem::take(&mut transaction), Durability::Applied);
            }
        }
        self.commit.commit_unasked(transaction, Durability::Applied);
        Ok(())
    }

    fn rebuild(&self, collection: &Arc<Collection>, index: &Index) -> Result<()> {
        self.delete_entries(index)?;
        let mut transaction = Transaction::default();
        let view = self.view();
        let mut documents = view.documents(collection, &Bounds::default(), Order::Forward);
        while let Some((record, document)) = documents.next_document()? {
            for entry in entries_of_fact(index, document).entries {
                transaction.put(family::INDEXES, &entry_key(index, &entry.fields, record), &entry.value);
            }
            if transaction.bytes() > BATCH_BYTES {
                self.commit.commit_unasked(std::mem::take(&mut transaction), Durability::Applied);
            }
        }
        self.commit.commit_unasked(transaction, Durability::Applied);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CollectionOptions, CreateOutcome, IndexDefinition, StorageOptions};
    use baton_document::hash::index_hash;
    use baton_document::keys::{self, Direction};
    use baton_types::Namespace;
    use bson::{RawBsonRef, rawdoc};

    fn open(path: &std::path::Path) -> Arc<Storage> {
        let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
        Storage::open(path, options).expect("the directory opens")
    }

    fn entries(storage: &Storage, index: &Index) -> Vec<Vec<u8>> {
        let view = storage.view();
        let mut cursor = view.entries(index, &Bounds::default(), Order::Forward);
        let mut all = Vec::new();
        while let Some(entry) = cursor.next_entry().expect("readable") {
            all.push(entry.fields.to_vec());
        }
        all
    }

    /// A directory of format 1 opens, and its hashed index holds the hashes of today.
    #[test]
    fn the_hashed_indexes_of_format_1_are_made_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let namespace = Namespace::new("test", "c").expect("a name");
        let storage = open(directory.path());
        let created =
            storage.by_member().create_collection(&namespace, CollectionOptions::default(), [1; 16]).expect("created");
        let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = created;
        let definition = IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "a": "hashed" }, "name": "a_hashed" });
        storage.by_member().create_index(&namespace, definition.expect("valid"), &mut |_, _| Ok(())).expect("built");
        for n in 0..100 {
            let mut transaction = Transaction::default();
            storage.insert(&mut transaction, &collection, &rawdoc! { "_id": n, "a": n }, None).expect("inserted");
            storage.by_member().commit(transaction, Durability::Applied).expect("committed");
        }
        let index = collection.index("a_hashed").expect("there");
        let right = entries(&storage, &index);
        let mut expected: Vec<Vec<u8>> = (0..100)
            .map(|n| {
                let mut key = Vec::new();
                let hash = index_hash(Some(RawBsonRef::Int32(n))).expect("hashed");
                keys::encode(&mut key, RawBsonRef::Int64(hash), Direction::Ascending);
                key
            })
            .collect();
        expected.sort();
        assert_eq!(right, expected);
        // As an older Baton would have left it: other hashes, another number.
        storage.delete_entries(&index).expect("deleted");
        let mut old = Transaction::default();
        for n in 0..100_i32 {
            let mut fields = Vec::new();
            keys::encode(&mut fields, RawBsonRef::Int64(i64::from(n) * 7), Direction::Ascending);
            let mut record = Vec::new();
            keys::encode(&mut record, RawBsonRef::Int32(n), Direction::Ascending);
            old.put(family::INDEXES, &entry_key(&index, &fields, &record), &(fields.len() as u16).to_le_bytes());
        }
        old.put(family::META, meta::FORMAT, &1_i32.to_le_bytes());
        storage.commit.commit_unasked(old, Durability::Synced);
        drop((index, collection));
        drop(storage);

        let storage = open(directory.path());
        let index = storage.collection(&namespace).and_then(|c| c.index("a_hashed")).expect("there");
        assert_eq!(entries(&storage, &index), expected);
        drop(index);
        drop(storage);
        drop(open(directory.path()));
    }

    #[test]
    fn a_format_that_is_not_known_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let storage = open(directory.path());
        let mut transaction = Transaction::empty();
        transaction.put(family::META, meta::FORMAT, &99_i32.to_le_bytes());
        storage.commit.commit_unasked(transaction, Durability::Synced);
        drop(storage);
        let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
        let refused = Storage::open(directory.path(), options).err().expect("refused");
        assert!(refused.message.contains("format 99") && refused.message.contains("restore"), "{refused}");
    }
}
