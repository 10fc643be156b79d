//! `validate`: is every document readable and well-formed, does every index hold exactly the entries its documents give and no
//! key twice that is to be unique, does the catalog on disk say what memory does, and do the counters say what is there?
//!
//! Not here: whether other members hold the same (`dbHash` tells).

use crate::catalog::{Collection, CollectionKind, ID_INDEX, Index, IndexState};
use crate::commit::Durability;
use crate::counters::Counts;
use crate::format::{counts_key, family, prefix, record_key};
use crate::index::{Making, entries_of, entry_key};
use crate::machine::read_failure;
use crate::storage::Storage;
use crate::tasks::TaskKind;
use crate::transaction::Transaction;
use crate::view::{Bounds, Order, View};
use baton_types::{Error, ErrorCode, Interruption, Result};
use std::sync::Arc;

/// How many faults of one kind are spelled out; the rest are counted.
const FAULTS_SHOWN: usize = 20;

/// Told how far a validation is; returning an error stops it.
pub type ValidateProgress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// What a validation found.
#[derive(Debug, Default)]
pub struct ValidateReport {
    /// Documents seen.
    pub documents: u64,
    /// Documents that are not well-formed, or lie under another key than their `_id` gives.
    pub invalid_documents: u64,
    /// Entries seen, by index name.
    pub keys_per_index: Vec<(String, u64)>,
    /// Entries that some document should have and the index has not.
    pub missing_entries: u64,
    /// Entries that no document gives.
    pub extra_entries: u64,
    /// Keys of unique indexes that a document shares with the one before it.
    pub duplicate_keys: u64,
    /// The counters were wrong, and were mended.
    pub counters_mended: bool,
    /// Faults in words.
    pub errors: Vec<String>,
}

/// What the documents say an index holds.
#[derive(Clone, Copy, Default)]
struct Expected {
    entries: u64,
    missing: u64,
}

impl ValidateReport {
    /// Whether nothing is wrong but what was mended.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    fn fault(&mut self, what: String) {
        if self.errors.len() < FAULTS_SHOWN {
            self.errors.push(what);
        }
    }
}

/// Documents, and index entries, between two calls that tell of progress.
const LOOKS_PER_PROGRESS: u64 = 1024;

/// One index while a collection is checked.
struct Checked<'i> {
    index: &'i Arc<Index>,
    expected: Expected,
}

impl Storage {
    /// Checks a collection as of one moment; writers wait meanwhile, as they do for MongoDB's foreground validation.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26) if it was dropped; those of `progress`.
    pub fn validate(&self, collection: &Arc<Collection>, progress: ValidateProgress<'_>) -> Result<ValidateReport> {
        let mut report = ValidateReport::default();
        // Members that follow hold the guard while they write, all others the collection's lock. With both held nothing is under
        // way: from this moment on the view is what is there.
        let catalog = self.lock_catalog();
        let Some(collection) = catalog.by_id(collection.id).map(|held| Arc::clone(&held)) else {
            let message = format!("Collection '{}' does not exist to validate.", collection.namespace);
            return Err(Error::new(ErrorCode::NamespaceNotFound, message));
        };
        let collection = &collection;
        let _no_writers = collection.shared.ddl.write();
        let view = self.view();
        let counted = collection.counts();
        let indexes = collection.indexes();
        self.validate_entry(collection, &indexes, &mut report)?;
        drop(catalog);
        let task =
            self.tasks().admit_now(TaskKind::Validate, collection.namespace.as_str(), counted.documents.max(0) as u64);
        let ready = indexes.iter().filter(|index| index.state() == IndexState::Ready);
        let mut checked: Vec<_> = ready.map(|index| Checked { index, expected: Expected::default() }).collect();
        let counts = self.validate_documents(collection, &view, &mut checked, &mut report, &mut |done| {
            let total = (counted.documents.max(0) as u64).max(done);
            task.progress(done, total);
            progress(done, total)
        })?;
        report.keys_per_index.push((ID_INDEX.to_owned(), report.documents));
        for checked in &checked {
            validate_entries(&view, checked, &mut report)?;
        }
        if counted != counts && collection.kind != CollectionKind::Oplog {
            let (documents, bytes) = (counts.documents - counted.documents, counts.bytes - counted.bytes);
            // What is wrong is taken off, not what was counted since.
            let mut transaction = Transaction::default();
            // Written anew with what is counted by then.
            transaction.put(family::META, &counts_key(collection.id), &counts.encode());
            transaction.count(collection, documents, bytes);
            self.commit.commit_unasked(transaction, Durability::Applied);
            report.counters_mended = true;
        }
        Ok(report)
    }

    /// What the catalog family says of the collection is what is in memory.
    fn validate_entry(
        &self,
        collection: &Collection,
        indexes: &[Arc<Index>],
        report: &mut ValidateReport,
    ) -> Result<()> {
        if collection.kind == CollectionKind::Oplog {
            return Ok(());
        }
        let stored =
            self.db().get_pinned_cf(self.family(family::CATALOG), prefix(collection.id)).map_err(read_failure)?;
        let Some(stored) = stored else {
            report.fault("catalog: the collection has no entry on disk".into());
            return Ok(());
        };
        let stored = Collection::decode(collection.id, &stored, Counts::default())?;
        if stored.namespace != collection.namespace || stored.uuid != collection.uuid {
            let message = format!("catalog: on disk it is {} with another name or UUID", stored.namespace);
            report.fault(message);
        }
        if stored.options.document != collection.options.document {
            let (disk, memory) = (&stored.options.document, &collection.options.document);
            report.fault(format!("catalog: the options on disk are {disk:?}, and in memory {memory:?}"));
        }
        let stored = stored.indexes();
        let ids = |indexes: &[Arc<Index>]| indexes.iter().map(|index| index.id).collect::<Vec<_>>();
        if ids(&stored) != ids(indexes) {
            report.fault("catalog: the indexes on disk are others than those in memory".into());
        }
        for (disk, memory) in stored.iter().zip(indexes).filter(|(disk, memory)| disk.id == memory.id) {
            let name = &memory.definition.name;
            if disk.definition.document != memory.definition.document {
                let (disk, memory) = (&disk.definition.document, &memory.definition.document);
                report.fault(format!("index {name}: its definition on disk is {disk:?}, and in memory {memory:?}"));
            }
            if disk.state() != memory.state() {
                report.fault(format!(
                    "index {name}: on disk it is {:?}, and in memory {:?}",
                    disk.state(),
                    memory.state()
                ));
            }
            // One that is being built may be about to be stored.
            if disk.multikey() != memory.multikey() && memory.state() == IndexState::Ready {
                let (disk, memory) = (disk.multikey(), memory.multikey());
                report.fault(format!(
                    "index {name}: its multikey fields on disk are {disk:#b}, and in memory {memory:#b}"
                ));
            }
        }
        Ok(())
    }

    /// Reads every document, and looks its entries up.
    fn validate_documents(
        &self,
        collection: &Collection,
        view: &View<'_>,
        indexes: &mut [Checked<'_>],
        report: &mut ValidateReport,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        let mut looked_up = 0_u64;
        let nobody = Interruption::nobody();
        let mut options = view.options(family::INDEXES);
        options.set_verify_checksums(true);
        let mut documents = view.documents(collection, &Bounds::default(), Order::Forward);
        while let Some((record, document)) = documents.next_document()? {
            counts.documents += 1;
            counts.bytes += document.as_bytes().len() as i64;
            report.documents += 1;
            if let Err(error) = baton_document::validate::document(document.as_bytes()) {
                report.invalid_documents += 1;
                report.fault(format!("document {}: {}", report.documents, error.message));
                continue;
            }
            let id = document.get("_id")?;
            if collection.kind == CollectionKind::Clustered
                && !id.is_some_and(|id| record_key(id).is_ok_and(|key| key.as_slice() == record))
            {
                report.invalid_documents += 1;
                report.fault(format!("document {}: its _id {id:?} does not belong where it lies", report.documents));
            }
            for Checked { index, expected } in &mut *indexes {
                let name = &index.definition.name;
                // The document is there, whatever it takes.
                let entries = match entries_of(index, document, &mut Making::of_a_fact(nobody)) {
                    Ok(entries) => entries,
                    Err(error) => {
                        report.fault(format!("index {name}: the document with _id {id:?} has no key: {error}"));
                        continue;
                    }
                };
                if entries.multikey & !index.multikey() != 0 {
                    report.fault(format!(
                        "index {name}: the document with _id {id:?} has an array, and it is not multikey"
                    ));
                }
                for entry in entries.entries {
                    expected.entries += 1;
                    looked_up += 1;
                    if looked_up.is_multiple_of(LOOKS_PER_PROGRESS) {
                        progress(report.documents)?;
                    }
                    let key = entry_key(index, &entry.fields, record);
                    let stored = self.db().get_pinned_cf_opt(self.family(family::INDEXES), key, &options);
                    if stored.map_err(read_failure)?.is_none_or(|value| *value != *entry.value) {
                        expected.missing += 1;
                        report.missing_entries += 1;
                        report.fault(format!("index {name}: no entry for the document with _id {id:?}"));
                    }
                }
            }
            if report.documents.is_multiple_of(LOOKS_PER_PROGRESS) {
                progress(report.documents)?;
            }
        }
        Ok(counts)
    }
}

/// Walks an index's entries: as many as documents give, and of a unique one no two on a key.
fn validate_entries(view: &View<'_>, checked: &Checked<'_>, report: &mut ValidateReport) -> Result<()> {
    let definition = &checked.index.definition;
    let mut seen = 0;
    let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
    let mut entries = view.entries(checked.index, &Bounds::default(), Order::Forward);
    while let Some(entry) = entries.next_entry()? {
        seen += 1;
        if !definition.unique {
            continue;
        }
        if before.as_ref().is_some_and(|(fields, record)| fields == entry.fields && record != entry.record) {
            report.duplicate_keys += 1;
            report.fault(format!("index {}: two documents share a key, and it is unique", definition.name));
        }
        before = Some((entry.fields.to_vec(), entry.record.to_vec()));
    }
    if definition.name == ID_INDEX {
        report.keys_per_index.clear();
    }
    report.keys_per_index.push((definition.name.clone(), seen));
    let there = checked.expected.entries - checked.expected.missing;
    if seen > there {
        report.extra_entries += seen - there;
        report.fault(format!("index {}: {} entries that no document gives", definition.name, seen - there));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{CollectionOptions, IndexDefinition};
    use crate::ddl::CreateOutcome;
    use crate::options::StorageOptions;
    use crate::tasks::AlwaysOpen;
    use baton_types::Namespace;
    use bson::{RawDocument, rawdoc};

    /// A collection with a unique index on `a`, and one document.
    fn collection(folder: &std::path::Path) -> (Arc<Storage>, Arc<Collection>) {
        let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
        let storage = Storage::open(folder, options, Arc::new(AlwaysOpen)).unwrap();
        let namespace = Namespace::new("test", "c").unwrap();
        let created = storage.create_collection(&namespace, CollectionOptions::default(), [1; 16]).unwrap();
        let (CreateOutcome::Created(c) | CreateOutcome::Exists(c)) = created;
        let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true };
        storage.create_index(&namespace, IndexDefinition::parse(&spec).unwrap(), &mut |_, _| Ok(())).unwrap();
        put(&storage, &c, &rawdoc! { "_id": 1, "a": 7 });
        (storage, c)
    }

    /// Puts a document as one that another member has taken: nobody asks whether its key is there.
    fn put(storage: &Storage, collection: &Arc<Collection>, document: &RawDocument) {
        let mut transaction = Transaction::replicating();
        let change = crate::EntryChange::Put(document);
        storage.carry_out(&mut transaction, collection, change, None).unwrap();
        storage.commit.commit_unasked(transaction, Durability::Applied);
    }

    fn faults(storage: &Storage, collection: &Arc<Collection>) -> Vec<String> {
        let report = storage.validate(collection, &mut |_, _| Ok(())).unwrap();
        assert_eq!(report.is_valid(), report.errors.is_empty());
        report.errors
    }

    #[test]
    fn two_documents_on_a_key_of_a_unique_index_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, c) = collection(folder.path());
        assert!(faults(&storage, &c).is_empty());
        put(&storage, &c, &rawdoc! { "_id": 2, "a": 7 });
        assert_eq!(faults(&storage, &c), ["index a_1: two documents share a key, and it is unique"]);
    }

    #[test]
    fn an_array_that_the_index_does_not_know_of_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, c) = collection(folder.path());
        put(&storage, &c, &rawdoc! { "_id": 2, "a": [8, 9] });
        assert!(faults(&storage, &c).is_empty());
        // The same index, which has forgotten.
        let index = &c.indexes()[0];
        c.indexes.store(Arc::new(vec![Arc::new(Index::complete(index.id, index.definition.clone()))]));
        let found = faults(&storage, &c);
        assert!(found.iter().any(|fault| fault.contains("and it is not multikey")), "{found:?}");
        assert!(
            found.iter().any(|fault| fault.contains("multikey fields on disk are 0b1, and in memory 0b0")),
            "{found:?}"
        );
    }

    #[test]
    fn a_catalog_entry_that_says_something_else_than_memory_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, c) = collection(folder.path());
        let other = c.altered(Namespace::new("test", "d").unwrap(), CollectionOptions::default()).unwrap();
        let entry = other.entry(&[]).encode();
        storage.db().put_cf(storage.family(family::CATALOG), prefix(c.id), entry.as_bytes()).unwrap();
        let found = faults(&storage, &c);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|fault| fault.starts_with("catalog: ")), "{found:?}");
        storage.db().delete_cf(storage.family(family::CATALOG), prefix(c.id)).unwrap();
        assert_eq!(faults(&storage, &c), ["catalog: the collection has no entry on disk"]);
    }

    #[test]
    fn counts_that_are_wrong_are_mended() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, c) = collection(folder.path());
        c.counters.add(Counts { documents: 3, bytes: -7 });
        assert!(storage.validate(&c, &mut |_, _| Ok(())).unwrap().counters_mended);
        assert_eq!(c.counts().documents, 1);
        assert!(!storage.validate(&c, &mut |_, _| Ok(())).unwrap().counters_mended);
    }
}
