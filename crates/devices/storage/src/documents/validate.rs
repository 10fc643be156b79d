//! `validate`: is every document readable and well-formed, does every index hold exactly the entries its documents give and no
//! key twice that is to be unique, does the catalog on disk say what memory does, and do the counters say what is there?
//!
//! Invariants:
//! - It asks the gate before all else, and holds nothing while it waits.
//! - It checks the collection as of one moment, at which no write is under way; that moment, and the one at which it mends counters,
//!   are all that others wait for. What is read is read from a view, in steps that are small in bytes, between which it rests.
//!
//! Not here: whether other members hold the same (`dbHash` tells).

#[cfg(test)]
mod tests;

use crate::background::tasks::{TaskGuard, TaskKind};
use crate::catalog::{Collection, CollectionKind, ID_INDEX, Index, IndexState};
use crate::documents::counters::Counts;
use crate::documents::format::{counts_key, family, prefix, record_key};
use crate::documents::index::{Making, entries_of, entry_key};
use crate::documents::transaction::Transaction;
use crate::documents::view::{Bounds, Order, View};
use crate::log::commit::Durability;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_machine::take_long_slices;
use baton_types::{Class, Error, ErrorCode, Interruption, Result};
use std::sync::Arc;

/// How many faults of one kind are spelled out; the rest are counted.
const FAULTS_SHOWN: usize = 20;

/// Told how far a validation is, and asked while it waits for the gate; returning an error stops it. Documents are counted first, then
/// index entries.
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

/// Documents and index entries that are looked at in one step, and their bytes.
const STEP_LOOKS: u64 = 1024;
const STEP_BYTES: usize = 1 << 20;

/// One index while a collection is checked.
struct Checked {
    index: Arc<Index>,
    /// As it was at the moment of the view.
    multikey: u64,
    expected: Expected,
}

/// A collection at the moment as of which it is checked.
struct Moment<'s> {
    collection: Arc<Collection>,
    view: View<'s>,
    counted: Counts,
    /// How often the counters had been mended.
    mends: u64,
    indexes: Vec<Checked>,
}

/// The steps of a validation.
struct Steps<'p> {
    task: TaskGuard,
    progress: ValidateProgress<'p>,
    done: u64,
    total: u64,
    /// In the step under way.
    looks: u64,
    bytes: usize,
}

impl Steps<'_> {
    fn begin(&mut self, total: u64) {
        (self.done, self.total) = (0, total);
        self.task.begin_phase(0, total);
    }

    /// So many more are done, of so many bytes, and one was looked at; a step may be over.
    fn look(&mut self, done: u64, bytes: usize) -> Result<()> {
        self.done += done;
        self.looks += 1;
        self.bytes += bytes;
        if self.looks < STEP_LOOKS && self.bytes < STEP_BYTES {
            return Ok(());
        }
        (self.looks, self.bytes) = (0, 0);
        self.total = self.total.max(self.done);
        self.task.progress(self.done, self.total);
        (self.progress)(self.done, self.total)?;
        self.task.task().check()?;
        self.task.rest();
        Ok(())
    }
}

impl Storage {
    /// Checks a collection as of one moment. Writers go on meanwhile.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26) if it was dropped; those of `progress`; `InterruptedDueToReplStateChange` (11602) if it was told to end.
    pub fn validate(&self, collection: &Arc<Collection>, progress: ValidateProgress<'_>) -> Result<ValidateReport> {
        let mut report = ValidateReport::default();
        // Of an unknown amount it would be taken for a heavy task: 0 is that.
        let expected = collection.counts().documents.max(1) as u64;
        let name = collection.namespace.as_str();
        let task = self.tasks().admit_patiently(TaskKind::Validate, name, expected, &mut || progress(0, expected))?;
        let mut steps = Steps { task, progress, done: 0, total: 0, looks: 0, bytes: 0 };
        take_long_slices();
        let mut moment = self.moment_of(collection, &mut report)?;
        steps.begin(moment.counted.documents.max(0) as u64);
        let counts = self.validate_documents(&mut moment, &mut report, &mut steps)?;
        report.keys_per_index.push((ID_INDEX.to_owned(), report.documents));
        steps.begin(moment.indexes.iter().map(|checked| checked.expected.entries).sum());
        for checked in &moment.indexes {
            validate_entries(&moment.view, checked, &mut report, &mut steps)?;
        }
        if moment.counted != counts && moment.collection.kind != CollectionKind::Oplog {
            report.counters_mended = self.mend_counters(&moment, counts);
        }
        Ok(report)
    }

    /// A moment at which no write of the collection is under way, and what the catalog has of it then.
    fn moment_of(&self, collection: &Collection, report: &mut ValidateReport) -> Result<Moment<'_>> {
        // Members that follow hold the guard while they write, all others the collection's lock. With both held nothing is under
        // way: from this moment on the view is what is there.
        let catalog = self.freeze_catalog();
        let Some(held) = catalog.by_id(collection.id) else {
            let message = format!("Collection '{}' does not exist to validate.", collection.namespace);
            return Err(Error::new(ErrorCode::NamespaceNotFound, message));
        };
        held.quietly(|_| {
            let indexes = held.indexes();
            self.validate_entry(&held, &indexes, report)?;
            let ready = indexes.iter().filter(|index| index.state() == IndexState::Ready);
            let check = |index: &Arc<Index>| Checked {
                index: Arc::clone(index),
                multikey: index.multikey(),
                expected: Expected::default(),
            };
            Ok(Moment {
                collection: Arc::clone(&held),
                view: self.view().read_by(Class::Background),
                counted: held.counts(),
                mends: held.counters.mends(),
                indexes: ready.map(check).collect(),
            })
        })
    }

    /// Takes off the counters what was wrong with them at that moment. Not if the collection is gone, or somebody else has done so
    /// since: then what was wrong is no more.
    fn mend_counters(&self, moment: &Moment<'_>, counts: Counts) -> bool {
        let catalog = self.freeze_catalog();
        let Some(held) = catalog.by_id(moment.collection.id) else { return false };
        held.quietly(|_| {
            if !held.counters.mend_once(moment.mends) {
                return false;
            }
            let wrong = moment.counted;
            let mut transaction = Transaction::default();
            // Written anew with what is counted by then.
            transaction.put(family::META, &counts_key(held.id), &counts.encode());
            transaction.count(&held, counts.documents - wrong.documents, counts.bytes - wrong.bytes);
            self.commit.commit_unasked(transaction, Durability::Applied);
            true
        })
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
        moment: &mut Moment<'_>,
        report: &mut ValidateReport,
        steps: &mut Steps<'_>,
    ) -> Result<Counts> {
        let Moment { collection, view, indexes, .. } = moment;
        let mut counts = Counts::default();
        let nobody = Interruption::nobody();
        let mut options = view.options(family::INDEXES);
        options.set_verify_checksums(true);
        let mut documents = view.documents(collection, &Bounds::default(), Order::Forward);
        while let Some((record, document)) = documents.next_document()? {
            counts.documents += 1;
            counts.bytes += document.as_bytes().len() as i64;
            report.documents += 1;
            steps.look(1, document.as_bytes().len())?;
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
            for Checked { index, multikey, expected } in &mut *indexes {
                let name = &index.definition.name;
                // The document is there, whatever it takes.
                let entries = match entries_of(index, document, &mut Making::of_a_fact(nobody)) {
                    Ok(entries) => entries,
                    Err(error) => {
                        report.fault(format!("index {name}: the document with _id {id:?} has no key: {error}"));
                        continue;
                    }
                };
                if entries.multikey & !*multikey != 0 {
                    report.fault(format!(
                        "index {name}: the document with _id {id:?} has an array, and it is not multikey"
                    ));
                }
                for entry in entries.entries {
                    expected.entries += 1;
                    let key = entry_key(index, &entry.fields, record);
                    steps.look(0, key.len())?;
                    let stored = self.db().get_pinned_cf_opt(self.family(family::INDEXES), key, &options);
                    if stored.map_err(read_failure)?.is_none_or(|value| *value != *entry.value) {
                        expected.missing += 1;
                        report.missing_entries += 1;
                        report.fault(format!("index {name}: no entry for the document with _id {id:?}"));
                    }
                }
            }
        }
        Ok(counts)
    }
}

/// Walks an index's entries: as many as documents give, and of a unique one no two on a key.
fn validate_entries(
    view: &View<'_>,
    checked: &Checked,
    report: &mut ValidateReport,
    steps: &mut Steps<'_>,
) -> Result<()> {
    let definition = &checked.index.definition;
    let mut seen = 0;
    let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
    let mut entries = view.entries(&checked.index, &Bounds::default(), Order::Forward);
    while let Some(entry) = entries.next_entry()? {
        seen += 1;
        steps.look(1, entry.position.len())?;
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
