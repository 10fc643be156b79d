//! Bringing what was set aside into an index, and looking whether two documents have one key of it.

use super::index_build::aborted;
use super::index_fill::{Filling, Steps};
use crate::catalog::{BuildPhase, Index};
use crate::documents::format::{IndexId, PREFIX_BYTES, family, prefix, prefix_end};
use crate::documents::index::{Entries, entries_of_fact, entry_key};
use crate::documents::transaction::Transaction;
use crate::documents::view::{Bounds, Order, newest, stored_document};
use crate::documents::write::duplicate_of;
use crate::log::commit::Durability;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Changes that one transaction brings in: who writes one of their documents waits for it.
const BATCH_CHANGES: usize = 128;
/// The same in bytes of documents that are read for it, but for the last one.
const BATCH_BYTES: usize = 512 << 10;
/// Entries that are looked at as of one moment.
const BATCH_ENTRIES: u64 = 8192;

/// What was set aside: that an entry of these fields and this record was changed.
struct Aside {
    key: Vec<u8>,
    fields_end: usize,
}

impl Aside {
    fn read(key: &[u8], value: &[u8]) -> Result<Self> {
        let length = <[u8; 2]>::try_from(value).map(u16::from_le_bytes);
        let end = length.ok().map(|length| PREFIX_BYTES + usize::from(length)).filter(|end| *end <= key.len());
        let broken =
            || Error::new(ErrorCode(310), "Data corruption detected: what an index build set aside is not whole");
        Ok(Self { key: key.to_vec(), fields_end: end.ok_or_else(broken)? })
    }

    fn fields(&self) -> &[u8] {
        &self.key[PREFIX_BYTES..self.fields_end]
    }

    fn record(&self) -> &[u8] {
        &self.key[self.fields_end..]
    }
}

impl Storage {
    /// Brings in all that was set aside for these indexes, to which nothing is added any more. From then on they have what the
    /// documents give, and their writers ask whether keys are unique.
    pub(super) fn drain(&self, filling: &Filling<'_>, steps: &mut Steps<'_>) -> Result<()> {
        if filling.indexes.iter().all(|index| index.phase() == BuildPhase::Checking) {
            return Ok(());
        }
        let (mut done, total) = (0, self.count_aside(filling, steps)?);
        steps.begin(done, total);
        steps.step(done, total)?;
        for index in filling.indexes {
            let Some(side) = index.side() else { continue };
            let mut from = prefix(side).to_vec();
            loop {
                let batch = self.next_aside(side, &from)?;
                let Some(last) = batch.last() else { break };
                let brought = self.in_build(filling, || self.bring_in(filling, index, &batch))?;
                // Somebody has had the lock on the next document for long, or it is of another step.
                let end =
                    if brought == batch.len() { Some(last) } else { brought.checked_sub(1).map(|last| &batch[last]) };
                if let Some(end) = end {
                    from.clone_from(&end.key);
                    from.push(0);
                }
                done += brought as u64;
                steps.step(done, total)?;
            }
        }
        crash_point!("index-build-drained");
        let catalog = self.by_member().lock_catalog();
        let held = catalog.by_id(filling.collection.id).ok_or_else(aborted)?;
        // No writer is under way that has not asked.
        held.quietly(|_| filling.set_phase(BuildPhase::Checking));
        Ok(())
    }

    /// How much there is to bring in: nothing is added any more.
    fn count_aside(&self, filling: &Filling<'_>, steps: &mut Steps<'_>) -> Result<u64> {
        let mut count = 0;
        for side in filling.indexes.iter().filter_map(|index| index.side()) {
            let mut options = newest(family::INDEXES);
            options.set_iterate_upper_bound(prefix_end(side).to_vec());
            let mut iterator = self.db().raw_iterator_cf_opt(self.family(family::INDEXES), options);
            iterator.seek(prefix(side));
            while iterator.valid() {
                count += 1;
                if count % BATCH_ENTRIES == 0 {
                    steps.step(0, count)?;
                }
                iterator.next();
            }
            iterator.status().map_err(read_failure)?;
        }
        Ok(count)
    }

    fn next_aside(&self, side: IndexId, from: &[u8]) -> Result<Vec<Aside>> {
        let mut options = newest(family::INDEXES);
        options.set_iterate_upper_bound(prefix_end(side).to_vec());
        let mut iterator = self.db().raw_iterator_cf_opt(self.family(family::INDEXES), options);
        let mut batch = Vec::with_capacity(BATCH_CHANGES);
        iterator.seek(from);
        while let Some((key, value)) = iterator.item().filter(|_| batch.len() < BATCH_CHANGES) {
            batch.push(Aside::read(key, value)?);
            iterator.next();
        }
        iterator.status().map_err(read_failure)?;
        Ok(batch)
    }

    /// Brings a batch in, or as much of it as nobody has locked for long and as is small in bytes; tells how much.
    fn bring_in(&self, filling: &Filling<'_>, index: &Arc<Index>, batch: &[Aside]) -> Result<usize> {
        let collection = filling.collection;
        let mut transaction = Transaction::default();
        // Of documents whose locks the transaction holds: one may have many entries that were changed.
        let mut read: HashMap<&[u8], Entries> = HashMap::new();
        let (mut brought, mut bytes) = (0, 0);
        for aside in batch {
            let record = aside.record();
            if !read.contains_key(record) {
                if bytes >= BATCH_BYTES {
                    break;
                }
                if !self.locks.try_lock(&mut transaction.locks, collection.id, record) {
                    // As a writer does: it holds nothing then.
                    self.commit.commit_unasked(std::mem::take(&mut transaction), Durability::Applied);
                    read.clear();
                    if !self.locks.lock(&mut transaction.locks, collection.id, record) {
                        return Ok(brought);
                    }
                }
                // The newest there is, readable or about to be: what comes of it is right whenever it is written.
                let document = self.get_locked(collection, record)?;
                bytes += document.as_ref().map_or(0, |document| document.len());
                let document = document.as_deref().map(stored_document).transpose()?;
                read.insert(record, document.map(|document| entries_of_fact(index, document)).unwrap_or_default());
            }
            let entries = &read[record];
            let key = entry_key(index, aside.fields(), record);
            match entries.entries.iter().find(|entry| entry.fields == aside.fields()) {
                Some(entry) => {
                    self.note_multikey(&mut transaction, collection, index, entries.multikey);
                    transaction.put(family::INDEXES, &key, &entry.value);
                }
                None => transaction.delete(family::INDEXES, &key),
            }
            transaction.delete(family::INDEXES, &aside.key);
            brought += 1;
        }
        self.commit.commit_unasked(transaction, Durability::Applied);
        Ok(brought)
    }

    /// Looks for two documents with one key of a unique index. Those that come meanwhile are asked by their writers.
    ///
    /// # Errors
    /// `DuplicateKey` (11000) if there are.
    pub(super) fn ask_unique(&self, filling: &Filling<'_>, steps: &mut Steps<'_>) -> Result<()> {
        let unique = || filling.indexes.iter().filter(|index| index.definition.unique);
        let documents = filling.documents();
        let total = unique().map(|index| index.loaded().unwrap_or(documents)).sum();
        let mut done = 0;
        steps.begin(done, total);
        for index in unique() {
            let mut from = Vec::new();
            steps.step(done, total)?;
            while let Some(next) = self.ask_unique_batch(filling, index, from, &mut done)? {
                from = next;
                steps.step(done, total)?;
            }
        }
        if unique().next().is_some() {
            steps.step(done, total)?;
        }
        Ok(())
    }

    /// Looks at entries from these fields on; gives the fields to go on from, if those were not all.
    fn ask_unique_batch(
        &self,
        filling: &Filling<'_>,
        index: &Arc<Index>,
        from: Vec<u8>,
        done: &mut u64,
    ) -> Result<Option<Vec<u8>>> {
        let view = self.view();
        let mut entries = view.entries(index, &Bounds { from, to: None }, Order::Forward);
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..BATCH_ENTRIES {
            let Some(entry) = entries.next_entry()? else { return Ok(None) };
            *done += 1;
            if last.as_deref() == Some(entry.fields) {
                // An entry is its fields and its record: this is another document's.
                let Some(document) = view.get(filling.collection, entry.record)? else { continue };
                return Err(duplicate_of(filling.collection, index, entry.fields, stored_document(&document)?));
            }
            let fields = last.get_or_insert_default();
            fields.clear();
            fields.extend_from_slice(entry.fields);
        }
        filling.asked.look()?;
        Ok(last)
    }
}
