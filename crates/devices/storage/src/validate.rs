//! `validate`: is every document readable and well-formed, does every index hold exactly the entries its documents
//! give, and do the counters say what is there?

use crate::catalog::{Collection, CollectionKind, Index, IndexState};
use crate::counters::Counts;
use crate::format::{counts_key, family, record_key};
use crate::index::{entries_of, entry_key};
use crate::machine::read_failure;
use crate::storage::Storage;
use crate::tasks::TaskKind;
use crate::view::{Bounds, Order};
use baton_types::Result;
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

impl Storage {
    /// Checks a collection as of one moment; writers wait meanwhile, as they do for MongoDB's foreground validation.
    pub fn validate(&self, collection: &Arc<Collection>, progress: ValidateProgress<'_>) -> Result<ValidateReport> {
        let _guard = collection.shared.ddl.write();
        let task = self.tasks().begin(TaskKind::Validate, collection.namespace.as_str());
        let view = self.view();
        let mut report = ValidateReport::default();
        let indexes = collection.indexes();
        let ready: Vec<&Arc<Index>> = indexes.iter().filter(|index| index.state() == IndexState::Ready).collect();
        let mut expected = vec![Expected::default(); ready.len()];
        let mut counts = Counts::default();
        let total = collection.counts().documents.max(0) as u64;
        let mut checked = crate::view::newest(family::INDEXES);
        checked.set_verify_checksums(true);
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
            for (index, expected) in ready.iter().zip(&mut expected) {
                for entry in entries_of(index, document)?.entries {
                    expected.entries += 1;
                    let stored = self.db().get_pinned_cf_opt(
                        self.family(family::INDEXES),
                        entry_key(index, &entry.fields, record),
                        &checked,
                    );
                    if stored.map_err(read_failure)?.is_none_or(|value| *value != *entry.value) {
                        expected.missing += 1;
                        report.missing_entries += 1;
                        report.fault(format!(
                            "index {}: no entry for the document with _id {id:?}",
                            index.definition.name
                        ));
                    }
                }
            }
            if report.documents.is_multiple_of(1024) {
                task.progress(report.documents, total.max(report.documents));
                progress(report.documents, total.max(report.documents))?;
            }
        }
        report.keys_per_index.push((crate::catalog::ID_INDEX.to_owned(), report.documents));
        for (index, expected) in ready.iter().zip(expected) {
            let mut seen = 0;
            let mut entries = view.entries(index, &Bounds::default(), Order::Forward);
            while entries.next_entry()?.is_some() {
                seen += 1;
            }
            if index.definition.name == crate::catalog::ID_INDEX {
                report.keys_per_index.clear();
            }
            report.keys_per_index.push((index.definition.name.clone(), seen));
            let there = expected.entries - expected.missing;
            if seen > there {
                report.extra_entries += seen - there;
                report.fault(format!(
                    "index {}: {} entries that no document gives",
                    index.definition.name,
                    seen - there
                ));
            }
        }
        if collection.counts() != counts && collection.kind != CollectionKind::Oplog {
            collection.counters.set(counts);
            self.db()
                .put_cf(self.family(family::META), counts_key(collection.id), counts.encode())
                .map_err(read_failure)?;
            report.counters_mended = true;
        }
        Ok(report)
    }
}
