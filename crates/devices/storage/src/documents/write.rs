//! Changing documents: locks, uniqueness, index entries, oplog entry and counters of one insert, update or delete.
//!
//! The caller decides what a document becomes; these functions see to it that everything that belongs to the change is
//! in the transaction with it. A document that is to be changed is locked first ([`Storage::lock_document`]) and read
//! under the lock.

use crate::catalog::{Collection, CollectionKind, Index};
use crate::ddl::copy::DocumentChange;
use crate::documents::format::{document_key, end_of_prefix, family, record_key};
use crate::documents::index::{Entry, Making, encodes_to, entries_of, entries_of_fact, entry_key};
use crate::documents::index_demands;
use crate::documents::transaction::Transaction;
use crate::documents::view::Stored;
use crate::log::oplog::{OplogEntry, OplogKind, RetryImage, RetryableFields};
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_document::index_keys::visit_index_keys;
use baton_document::show;
use baton_types::{Error, ErrorCode, Interruption, OpTime, Result};
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;

/// What it counts for to look for a key that is there already.
pub(crate) const STEPS_OF_A_SEEK: usize = 32;

/// Makes a change part of a retryable write.
#[derive(Clone, Copy)]
pub struct Statement<'a> {
    /// The logical session, as it goes into the oplog.
    pub lsid: &'a RawDocument,
    /// The session's write number.
    pub txn_number: i64,
    /// The statement within it.
    pub stmt_id: i32,
    /// The session's newest oplog entry so far.
    pub prev: OpTime,
    /// Which state of the document it answers with.
    pub image: Option<RetryImage>,
}

impl<'a> Statement<'a> {
    fn fields(self) -> RetryableFields<'a> {
        let Self { lsid, txn_number, stmt_id, prev, image } = self;
        RetryableFields { lsid, txn_number, stmt_id, prev, image }
    }
}

/// What came of adding an insert to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is in the transaction.
    Added,
    /// It must wait for somebody, perhaps for this very transaction, or has waited for a while: commit first, or give the
    /// transaction up if there is nothing in it, look whether it is still wanted, then try again.
    CommitFirst,
}

impl Storage {
    /// Waits for the lock on one document; `false` if it could not be had for a while: then look whether it is still wanted, and
    /// wait again. The transaction must hold no other.
    #[must_use]
    pub fn lock_document(&self, transaction: &mut Transaction, collection: &Collection, record: &[u8]) -> bool {
        self.locks.lock(&mut transaction.locks, collection.id, record)
    }

    /// The document with this record key, whose lock the caller holds: the newest version there is, readable or about to
    /// be.
    pub fn get_locked(&self, collection: &Collection, record: &[u8]) -> Result<Option<Stored<'_>>> {
        // Asked first: a version is readable before it leaves.
        let key = document_key(collection.id, record);
        match self.in_flight.get(&key) {
            Some(version) => Ok(version.map(Stored::Shared)),
            None => self.get_by_key(&key),
        }
    }

    /// Adds an insert. The document has an `_id` of a permitted type as its first field.
    pub fn insert(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        document: &RawDocument,
        statement: Option<Statement<'_>>,
    ) -> Result<Inserted> {
        let id = id_of(document)?;
        let record = match collection.kind {
            CollectionKind::Capped => self.next_capped_record(transaction, collection, document)?,
            CollectionKind::Clustered | CollectionKind::Oplog | CollectionKind::View => Some(record_key(id)?),
        };
        let Some(record) = record else { return Ok(Inserted::CommitFirst) };
        let first = transaction.is_empty() && transaction.locks.is_empty();
        let is_locked = self.locks.try_lock_new(&mut transaction.locks, collection.id, &record)
            || first && self.locks.lock(&mut transaction.locks, collection.id, &record);
        if !is_locked {
            return Ok(Inserted::CommitFirst);
        }
        if collection.kind == CollectionKind::Clustered && self.get_locked(collection, &record)?.is_some() {
            return Err(duplicate_key(collection, None, &rawdoc! { "_id": id }));
        }
        self.add_document(transaction, collection, &record, document, first, statement)
    }

    /// Adds a document that is not there under a record key that is locked. `may_wait` tells whether the transaction holds
    /// nothing else, so that it may wait for unique keys.
    pub(crate) fn add_document(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        record: &[u8],
        document: &RawDocument,
        may_wait: bool,
        statement: Option<Statement<'_>>,
    ) -> Result<Inserted> {
        let asked = transaction.interruption.clone();
        let asked = asked.as_deref().unwrap_or(Interruption::nobody());
        let mut making = Making::new(asked);
        let mut added = Vec::new();
        for index in collection.indexes().iter() {
            let entries = if transaction.is_of_facts() {
                entries_of_fact(index, document)
            } else {
                index_demands::check(index, document, asked)?;
                entries_of(index, document, &mut making)?
            };
            added.push((Arc::clone(index), entries));
        }
        // Whoever took a fact has seen to it; and applied again or carried over, facts pass through states that never were.
        let unique: Vec<_> =
            added.iter().filter(|(index, _)| index.keeps_unique() && !transaction.is_of_facts()).collect();
        if !unique.is_empty() {
            let keys =
                unique.iter().flat_map(|(index, e)| e.entries.iter().map(|entry| (index.id, entry.fields.as_slice())));
            let is_locked = if may_wait {
                self.locks.lock_sorted(&mut transaction.locks, keys)
            } else {
                self.locks.try_lock_all_new(&mut transaction.locks, keys)
            };
            if !is_locked {
                return Ok(Inserted::CommitFirst);
            }
            for (index, entries) in &unique {
                for entry in &entries.entries {
                    asked.steps(STEPS_OF_A_SEEK)?;
                    self.check_unique(collection, index, entry, record, document)?;
                }
            }
        }
        if collection.kind == CollectionKind::Capped
            && !self.make_room(transaction, collection, document.as_bytes().len() as i64)?
        {
            return Ok(Inserted::CommitFirst);
        }
        for (index, entries) in &added {
            self.note_multikey(transaction, collection, index, entries.multikey);
            for entry in &entries.entries {
                transaction.put_index_entry(index, entry, record);
            }
        }
        transaction.change(collection, record, DocumentChange::Insert(document));
        transaction.count(collection, 1, document.as_bytes().len() as i64);
        self.log(transaction, collection, OplogKind::Insert, document, None, statement);
        Ok(Inserted::Added)
    }

    /// Adds an update of the document locked by this transaction. `change` is the oplog's `o`: a diff or a replacement.
    ///
    /// `WriteConflict` (112) if a unique key it needs could not be had for a while: abandon the transaction, look whether the update
    /// is still wanted, and begin again.
    pub fn update(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        record: &[u8],
        (before, after): (&RawDocument, &RawDocument),
        change: &RawDocument,
        statement: Option<Statement<'_>>,
    ) -> Result<()> {
        let id = id_element(after)?;
        let asked = transaction.interruption.clone();
        let asked = asked.as_deref().unwrap_or(Interruption::nobody());
        let mut making = Making::new(asked);
        let mut plan = Vec::new();
        for index in collection.indexes().iter() {
            let (old, new) = if transaction.is_of_facts() {
                (entries_of_fact(index, before), entries_of_fact(index, after))
            } else {
                index_demands::check(index, after, asked)?;
                (entries_of_fact(index, before), entries_of(index, after, &mut making)?)
            };
            let gone: Vec<Entry> =
                old.entries.iter().filter(|e| new.entries.binary_search(e).is_err()).cloned().collect();
            let fresh: Vec<Entry> =
                new.entries.iter().filter(|e| old.entries.binary_search(e).is_err()).cloned().collect();
            if !gone.is_empty() || !fresh.is_empty() {
                plan.push((Arc::clone(index), gone, fresh, new.multikey));
            }
        }
        let is_of_facts = transaction.is_of_facts();
        let unique = || plan.iter().filter(|(index, ..)| index.keeps_unique() && !is_of_facts);
        if unique().next().is_some() {
            let keys =
                unique().flat_map(|(index, _, fresh, _)| fresh.iter().map(|entry| (index.id, entry.fields.as_slice())));
            if !self.locks.lock_sorted(&mut transaction.locks, keys) {
                let message = "another writer has held a key of a unique index for long; nothing was changed";
                return Err(Error::new(ErrorCode::WriteConflict, message));
            }
            for (index, _, fresh, _) in unique() {
                for entry in fresh {
                    asked.steps(STEPS_OF_A_SEEK)?;
                    self.check_unique(collection, index, entry, record, after)?;
                }
            }
        }
        for (index, gone, fresh, multikey) in &plan {
            self.note_multikey(transaction, collection, index, *multikey);
            for entry in gone {
                transaction.delete_index_entry(index, &entry.fields, record);
            }
            for entry in fresh {
                transaction.put_index_entry(index, entry, record);
            }
        }
        transaction.change(collection, record, DocumentChange::Update(after));
        transaction.count(collection, 0, after.as_bytes().len() as i64 - before.as_bytes().len() as i64);
        self.log(transaction, collection, OplogKind::Update, change, Some(id), statement);
        Ok(())
    }

    /// Adds the deletion of a document locked by this transaction.
    pub fn delete(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        record: &[u8],
        before: &RawDocument,
        statement: Option<Statement<'_>>,
    ) -> Result<()> {
        for index in collection.indexes().iter() {
            for entry in entries_of_fact(index, before).entries {
                transaction.delete_index_entry(index, &entry.fields, record);
            }
        }
        transaction.change(collection, record, DocumentChange::Delete(before));
        transaction.count(collection, -1, -(before.as_bytes().len() as i64));
        let o = rawdoc! { "_id": id_of(before)? };
        self.log(transaction, collection, OplogKind::Delete, &o, None, statement);
        Ok(())
    }

    /// Logs an entry that changes nothing (`op: "n"`).
    pub fn log_noop(
        &self,
        transaction: &mut Transaction,
        collection: &Collection,
        o: &RawDocument,
        statement: Option<Statement<'_>>,
    ) {
        self.log(transaction, collection, OplogKind::Noop, o, None, statement);
    }

    fn log(
        &self,
        transaction: &mut Transaction,
        collection: &Collection,
        kind: OplogKind,
        o: &RawDocument,
        o2: Option<&[u8]>,
        statement: Option<Statement<'_>>,
    ) {
        if transaction.is_replicated
            || collection.namespace.is_local()
            || collection.namespace.coll() == "system.profile"
        {
            return;
        }
        let entry = OplogEntry {
            kind,
            namespace: &collection.namespace,
            uuid: Some(collection.uuid),
            o,
            o2,
            retryable: statement.map(Statement::fields),
            class: transaction.class,
        };
        transaction.log(&entry);
    }

    /// `DuplicateKey` (11000) if another document has this key. The caller holds the lock on it.
    pub(crate) fn check_unique(
        &self,
        collection: &Collection,
        index: &Index,
        entry: &Entry,
        record: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let low = entry_key(index, &entry.fields, &[]);
        // What was deleted behind this key is not passed over: others wait for the lock.
        let mut options = crate::documents::view::newest(family::INDEXES);
        options.set_iterate_upper_bound(end_of_prefix(&low));
        let mut iterator = self.db().raw_iterator_cf_opt(self.family(family::INDEXES), options);
        iterator.seek(&low);
        while let Some(key) = iterator.key() {
            if &key[low.len()..] != record {
                return Err(duplicate_of(collection, index, &entry.fields, document));
            }
            iterator.next();
        }
        iterator.status().map_err(read_failure)
    }

    pub(crate) fn note_multikey(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        index: &Index,
        bits: u64,
    ) {
        if let Some(progress) = index.lacking(bits) {
            transaction.note_multikey(collection, progress, bits);
        }
    }
}

/// A document's `_id`.
pub fn id_of(document: &RawDocument) -> Result<RawBsonRef<'_>> {
    document.get("_id")?.ok_or_else(without_id)
}

/// The same with its name and its type, as it lies in the document.
fn id_element(document: &RawDocument) -> Result<&[u8]> {
    const LENGTH: usize = 4;
    let mut at = LENGTH;
    for element in document.iter_elements() {
        let element = element?;
        let end = at + 1 + element.key().len() + 1 + element.size();
        if element.key().as_str() == "_id" {
            return document.as_bytes().get(at..end).ok_or_else(without_id);
        }
        at = end;
    }
    Err(without_id())
}

fn without_id() -> Error {
    Error::new(ErrorCode::InvalidIdField, "document has no _id")
}

/// The error of a document of which another has this key.
pub(crate) fn duplicate_of(collection: &Collection, index: &Index, fields: &[u8], document: &RawDocument) -> Error {
    let definition = &index.definition;
    let shown = || -> Result<RawDocumentBuf> {
        // Several keys: the one that collided is the one that encodes to this entry.
        let mut collided = None;
        visit_index_keys(document, &definition.paths, definition.sparse, Interruption::nobody(), &mut |key| {
            if collided.is_none() && encodes_to(index, &key.values, fields) {
                collided = Some(key.values);
            }
            Ok(())
        })?;
        let mut values = RawDocumentBuf::new();
        for (path, value) in definition.paths.iter().zip(collided.as_deref().unwrap_or_default()) {
            values.append(bson::raw::CString::try_from(path.as_str())?, *value);
        }
        Ok(values)
    };
    shown().map_or_else(|error| error, |values| duplicate_key(collection, Some(index), &values))
}

/// MongoDB's duplicate-key error. `index` is `None` for the clustered one on `_id`.
fn duplicate_key(collection: &Collection, index: Option<&Index>, values: &RawDocument) -> Error {
    let (name, pattern) = match index {
        Some(index) => (index.definition.name.as_str(), index.definition.key_pattern().to_owned()),
        None => (crate::catalog::ID_INDEX, rawdoc! { "_id": 1 }),
    };
    let shown = show::document(values);
    let mut info = RawDocumentBuf::new();
    info.append(cstr!("keyPattern"), pattern);
    info.append(cstr!("keyValue"), values.to_owned());
    Error::new(
        ErrorCode::DuplicateKey,
        format!("E11000 duplicate key error collection: {} index: {name} dup key: {shown}", collection.namespace),
    )
    .with_info(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::oid::ObjectId;

    #[test]
    fn the_element_of_the_id_is_found_wherever_it_is() {
        let oid = ObjectId::from_bytes([7; 12]);
        for (document, alone) in [
            (rawdoc! { "_id": 1 }, rawdoc! { "_id": 1 }),
            (rawdoc! { "a": "x", "_id": "user1", "b": [1, { "_id": 2 }] }, rawdoc! { "_id": "user1" }),
            (rawdoc! { "a": { "_id": 2 }, "_id": { "x": 1, "y": "z" } }, rawdoc! { "_id": { "x": 1, "y": "z" } }),
            (rawdoc! { "": null, "_id": oid }, rawdoc! { "_id": oid }),
        ] {
            let bytes = alone.as_bytes();
            assert_eq!(id_element(&document).unwrap_or_default(), &bytes[4..bytes.len() - 1], "{document:?}");
        }
        let error = id_element(&rawdoc! { "id": 1, "a": { "_id": 1 } }).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidIdField);
    }
}
