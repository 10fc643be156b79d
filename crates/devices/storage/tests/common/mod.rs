//! One collection or several, written to and read in the fewest words.
#![allow(dead_code, reason = "each test takes what it needs")]

pub mod following;

use baton_storage::{
    Bounds, Collection, CollectionOptions, CreateOutcome, Durability, IndexDefinition, Inserted, Order, Statement,
    Storage, StorageOptions, Transaction, Writer, record_key,
};
use baton_types::{Namespace, OpTime, Result, Timestamp};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::path::Path;
use std::sync::Arc;

pub fn open(path: &Path) -> Arc<Storage> {
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    Storage::open(path, options).expect("the directory opens")
}

pub fn name(collection: &str) -> Namespace {
    Namespace::new("test", collection).expect("a valid name")
}

pub fn create(storage: &Storage, collection: &str, uuid: [u8; 16], options: &RawDocument) -> Result<Arc<Collection>> {
    create_as(storage.by_member(), collection, uuid, options)
}

pub fn create_as(
    writer: Writer<'_>,
    collection: &str,
    uuid: [u8; 16],
    options: &RawDocument,
) -> Result<Arc<Collection>> {
    let options = CollectionOptions::parse(options).expect("valid options");
    let outcome = writer.create_collection(&name(collection), options, uuid)?;
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = outcome;
    Ok(collection)
}

pub fn index(storage: &Storage, collection: &str, spec: &RawDocument) -> Result<()> {
    index_as(storage.by_member(), collection, spec)
}

pub fn index_as(writer: Writer<'_>, collection: &str, spec: &RawDocument) -> Result<()> {
    writer.create_index(&name(collection), IndexDefinition::parse(spec)?, &mut |_, _| Ok(()))
}

pub fn insert(storage: &Storage, collection: &Arc<Collection>, document: &RawDocument) -> Result<OpTime> {
    let mut transaction = Transaction::default();
    match storage.insert(&mut transaction, collection, document, None) {
        Ok(Inserted::Added) => storage.by_member().commit(transaction, Durability::Applied),
        Ok(Inserted::CommitFirst) => unreachable!("nobody holds a lock for long"),
        Err(error) => {
            storage.abandon(transaction);
            Err(error)
        }
    }
}

/// Lets `change` make a document of the one with this `_id`; no document deletes it.
pub fn change(
    storage: &Storage,
    collection: &Arc<Collection>,
    id: i32,
    statement: Option<Statement<'_>>,
    change: impl FnOnce(&RawDocument) -> Option<RawDocumentBuf>,
) -> Result<OpTime> {
    let record = record_key(RawBsonRef::Int32(id)).expect("a key");
    let mut transaction = Transaction::default();
    assert!(storage.lock_document(&mut transaction, collection, &record));
    let before = storage.get_locked(collection, &record).expect("readable").expect("there").to_vec();
    let before = RawDocument::from_bytes(&before).expect("a document");
    match change(before) {
        Some(after) => {
            storage
                .update(&mut transaction, collection, &record, (before, &after), &after, statement)
                .expect("updated");
        }
        None => storage.delete(&mut transaction, collection, &record, before, statement).expect("deleted"),
    }
    storage.by_member().commit(transaction, Durability::Applied)
}

pub fn documents(storage: &Storage, collection: &str) -> Vec<RawDocumentBuf> {
    let collection = storage.collection(&name(collection)).expect("there");
    let mut cursor = storage.view().documents(&collection, &Bounds::default(), Order::Forward);
    let mut all = Vec::new();
    while let Some((_, document)) = cursor.next_document().expect("readable") {
        all.push(document.to_owned());
    }
    all
}

pub fn log(storage: &Storage) -> Vec<RawDocumentBuf> {
    storage.oplog().entries_from(Timestamp::ZERO, usize::MAX).expect("readable")
}
