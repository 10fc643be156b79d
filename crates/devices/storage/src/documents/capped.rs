//! Capped collections: the order of arrival, room for what comes, and where the documents begin.
//!
//! ```text
//!  record keys   1 … 4,811 dropped, and kept as tombstones until compaction │ 4,812 … 9,999 there │ 10,000 comes next
//!                                                                           └─ the start
//! ```
//!
//! What was dropped stands before what is there, so whoever reads from the beginning would walk over all of it: the next
//! insert, which drops the oldest, as well as every reader. Both seek to the start instead.
//!
//! Invariants:
//! - Below a start that holds for a view, the view sees no document. A start holds for every view that was taken after it
//!   was seen, and for a time at or after the newest change it was seen with.
//! - One insert at a time (the lock on the collection's end), so that record keys are in the order of commits.
//! - The primary alone lets go of the oldest documents, under their locks, and logs each as a deletion: members have the same
//!   documents whatever they counted.
//! - A start on disk was seen in what had been committed before it.
//!
//! What it deliberately does not do: shorten what an index has of dropped documents; that is compaction's.

use crate::catalog::{Collection, ID_INDEX};
use crate::documents::format::{RecordKey, capped_start_key, end_of_prefix, family};
use crate::documents::index::entries_of_fact;
use crate::documents::locks::LockSet;
use crate::documents::transaction::Transaction;
use crate::documents::view::{Bounds, Order, View, stored_document};
use crate::documents::write::Inserted;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBsonRef, RawDocument, rawdoc};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A lock on this key of the collection is held by whoever inserts.
const END: &[u8] = b"capped";
/// How far the start moves before it is noted anew, and before it is stored anew. What lies between is walked over.
const NOTE_STEP: u64 = 32;
const STORE_STEP: u64 = 1024;

/// How many documents one insert lets go of. More are over only once the limits were lowered; the next inserts see to the rest.
const LET_GO_MAX: usize = 256;
/// The same in bytes, beyond those of the document that comes.
const LET_GO_BYTES: i64 = 1 << 20;

/// Where a capped collection begins, for the views of now and for some older ones.
#[derive(Default)]
pub(crate) struct Starts(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Oldest first. The older they are, the fewer.
    starts: Vec<Start>,
    stored: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    sequence: u64,
    /// Views of this moment or a later one were taken after the start was seen.
    moment: u64,
    /// The highest stamp that anything had then.
    stamp: u64,
}

impl Starts {
    /// The first record key that can be there, for a view taken at that moment of that time.
    pub(crate) fn of_view(&self, moment: u64, at: u64) -> Option<u64> {
        let known = self.0.lock();
        let holds = known.starts.iter().rev().find(|start| start.moment <= moment && start.stamp <= at);
        holds.map(|start| start.sequence)
    }

    fn newest(&self) -> u64 {
        self.0.lock().starts.last().map_or(0, |start| start.sequence)
    }

    /// Forgets all: documents may come back below them.
    fn forget(&self) {
        *self.0.lock() = Known::default();
    }
}

impl Known {
    fn add(&mut self, start: Start) {
        self.starts.push(start);
        // Of those a view of some age could do with, one at half of the way is as good: so there are a few dozen at the most.
        let mut at = 1;
        while at + 1 < self.starts.len() {
            let before = self.starts[at - 1].sequence;
            if (self.starts[at + 1].sequence - before) * 2 <= start.sequence - before {
                self.starts.remove(at);
            } else {
                at += 1;
            }
        }
    }
}

impl Storage {
    /// Finds where the capped collections begin and end. While the data directory is opened.
    pub(crate) fn load_capped_positions(&self) -> Result<()> {
        self.catalog().iter().try_for_each(|collection| self.load_capped_position(collection))
    }

    /// Finds where a capped collection begins and ends, that nobody writes to yet.
    pub(crate) fn load_capped_position(&self, collection: &Arc<Collection>) -> Result<()> {
        if collection.kind == crate::CollectionKind::Capped {
            let key = capped_start_key(collection.id);
            let stored = self.db().get_pinned_cf(self.family(family::META), key).map_err(read_failure)?;
            let stored = stored.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_le_bytes);
            let above = Bounds { from: stored.to_be_bytes().to_vec(), to: None };
            let view = self.view();
            let edge = |order| -> Result<Option<u64>> {
                let mut cursor = view.documents(collection, &above, order);
                Ok(cursor.next_document()?.map(|(record, _)| sequence_of(record)))
            };
            let last = edge(Order::Backward)?.unwrap_or(0);
            let first = edge(Order::Forward)?.unwrap_or(stored);
            collection.shared.next_sequence.store((last + 1).max(stored), Ordering::Relaxed);
            self.note_start_in_memory(collection, first, stored);
        }
        Ok(())
    }

    /// The next record key of a capped collection.
    ///
    /// One capped insert at a time: its order is the collection's order. `None` if this transaction already holds one.
    pub(crate) fn next_capped_record(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        document: &RawDocument,
    ) -> Result<Option<RecordKey>> {
        if !transaction.is_empty() || !transaction.locks.is_empty() {
            return Ok(None);
        }
        check_fits(collection, document)?;
        if !self.locks.lock(&mut transaction.locks, collection.id, END) {
            return Ok(None);
        }
        Ok(Some(next_record(collection)))
    }

    /// Adds a document to a capped collection that nobody else fills, and that has room for all that it is to get: then
    /// several of them can be in one transaction.
    pub(crate) fn append_to_copy(
        &self,
        transaction: &mut Transaction,
        copy: &Arc<Collection>,
        document: &RawDocument,
    ) -> Result<Inserted> {
        check_fits(copy, document)?;
        let is_locked = if transaction.is_empty() && transaction.locks.is_empty() {
            self.locks.lock(&mut transaction.locks, copy.id, END)
        } else {
            self.locks.try_lock(&mut transaction.locks, copy.id, END)
        };
        if !is_locked {
            return Ok(Inserted::CommitFirst);
        }
        let record = next_record(copy);
        self.add_document(transaction, copy, &record, document, false, None)
    }

    /// The bounds of the newest documents of `source`, as the view has it, that fit into the capped collection `copy`.
    pub(crate) fn newest_that_fit(&self, view: &View<'_>, source: &Collection, copy: &Collection) -> Result<Bounds> {
        let (bytes_max, documents_max) = capped_limits(copy);
        let (mut documents, mut bytes) = (0, 0);
        let mut bounds = Bounds::default();
        let mut newest = view.documents(source, &Bounds::default(), Order::Backward);
        while let Some((record, document)) = newest.next_document()? {
            documents += 1;
            bytes += document.as_bytes().len() as i64;
            if documents > 1 && (bytes > bytes_max || documents_max.is_some_and(|max| documents > max)) {
                return Ok(bounds);
            }
            bounds.from = record.to_vec();
        }
        Ok(Bounds::default())
    }

    /// Adds deletions of the oldest documents of a capped collection that no longer fit beside a new one of `size` bytes,
    /// [`LET_GO_MAX`] at most. `false` if one of them was another's, who is done now: then the transaction has given its locks
    /// back, and is to be begun anew.
    ///
    /// The transaction holds the collection's end and has changed nothing. Only once nothing can refuse the new document any
    /// more: the transaction is committed even if it holds nothing else.
    pub(crate) fn make_room(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        size: i64,
    ) -> Result<bool> {
        if transaction.is_replicated {
            return Ok(true);
        }
        let (bytes_max, documents_max) = capped_limits(collection);
        let counts = collection.counts();
        let (mut documents, mut bytes) = (counts.documents + 1, counts.bytes + size);
        let is_over = |documents, bytes| bytes > bytes_max || documents_max.is_some_and(|max| documents > max);
        if !is_over(documents, bytes) {
            return Ok(true);
        }
        let view = self.view();
        let mut oldest = view.documents(collection, &Bounds::default(), Order::Forward);
        let mut let_go = Vec::new();
        let least = bytes - size - LET_GO_BYTES;
        while is_over(documents, bytes) && let_go.len() < LET_GO_MAX && bytes > least {
            let Some((record, seen)) = oldest.next_document()? else { break };
            if !self.locks.try_lock(&mut transaction.locks, collection.id, record) {
                transaction.locks.release();
                self.wait_for_document(collection, record);
                return Ok(false);
            }
            documents -= 1;
            // What the view sees may have been changed or deleted by one whose turn comes before ours.
            let Some(now) = self.get_locked(collection, record)? else {
                bytes -= seen.as_bytes().len() as i64;
                continue;
            };
            bytes -= stored_document(&now)?.as_bytes().len() as i64;
            let_go.push((RecordKey::from_slice(record), now));
        }
        for (record, document) in &let_go {
            self.delete(transaction, collection, record, stored_document(document)?, None)?;
        }
        if let Some((newest, _)) = let_go.last() {
            self.note_start(transaction, collection, newest)?;
        }
        Ok(true)
    }

    /// Waits a while for whoever changes a document.
    fn wait_for_document(&self, collection: &Collection, record: &[u8]) {
        let mut lock = LockSet::default();
        // Who comes away without it looks again, and asks on the way whether to go on.
        let _is_locked = self.locks.lock(&mut lock, collection.id, record);
    }

    /// Notes where a capped collection begins, if one of its documents that is now deleted lies so far beyond what is known that
    /// the beginning may have moved.
    pub(crate) fn note_start(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        deleted: &[u8],
    ) -> Result<()> {
        let due = collection.shared.starts.newest() + NOTE_STEP;
        if sequence_of(deleted) < due {
            return Ok(());
        }
        // What this transaction deletes is still there if it is refused: the start is what is seen.
        let view = self.view();
        let mut oldest = view.documents(collection, &Bounds::default(), Order::Forward);
        let Some(sequence) = oldest.next_document()?.map(|(record, _)| sequence_of(record)) else { return Ok(()) };
        if sequence < due {
            return Ok(());
        }
        let stored = collection.shared.starts.0.lock().stored;
        let is_due = sequence >= stored + STORE_STEP;
        if is_due {
            transaction.put(family::META, &capped_start_key(collection.id), &sequence.to_le_bytes());
        }
        self.note_start_in_memory(collection, sequence, if is_due { sequence } else { stored });
        Ok(())
    }

    fn note_start_in_memory(&self, collection: &Collection, sequence: u64, stored: u64) {
        // After what was seen, before anybody else's view.
        let stamp = self.commit.highest_stamp();
        let moment = self.moment.fetch_add(1, Ordering::SeqCst) + 1;
        let mut known = collection.shared.starts.0.lock();
        known.stored = stored;
        known.add(Start { sequence, moment, stamp });
    }

    /// Documents may come back below the start: a rollback restores them.
    pub(crate) fn forget_start(&self, transaction: &mut Transaction, collection: &Collection) {
        collection.shared.starts.forget();
        transaction.delete(family::META, &capped_start_key(collection.id));
    }
}

impl View<'_> {
    /// Where the document of that `_id` lies in a capped collection, as of this view.
    pub(crate) fn record_of_capped(&self, collection: &Collection, id: RawBsonRef<'_>) -> Result<Option<RecordKey>> {
        let Some(index) = collection.index(ID_INDEX) else { unreachable!("a capped collection has this index") };
        let entries = entries_of_fact(&index, &rawdoc! { "_id": id });
        let Some(entry) = entries.entries.first() else { unreachable!("every document has an _id") };
        let end = Some(end_of_prefix(&entry.fields)).filter(|end| !end.is_empty());
        let bounds = Bounds { from: entry.fields.to_vec(), to: end };
        let mut cursor = self.entries(&index, &bounds, Order::Forward);
        let found = cursor.next_entry()?.filter(|found| *found.fields == *entry.fields);
        Ok(found.map(|found| RecordKey::from_slice(found.record)))
    }
}

fn next_record(collection: &Collection) -> RecordKey {
    let sequence = collection.shared.next_sequence.fetch_add(1, Ordering::Relaxed);
    RecordKey::from_slice(&sequence.to_be_bytes())
}

/// The sequence number that a record key of a capped collection is.
fn sequence_of(record: &[u8]) -> u64 {
    record.try_into().map_or(0, u64::from_be_bytes)
}

fn check_fits(collection: &Collection, document: &RawDocument) -> Result<()> {
    let bytes_max = capped_limits(collection).0;
    if document.as_bytes().len() as i64 <= bytes_max {
        return Ok(());
    }
    let message = format!("object to insert exceeds cappedMaxSize of {bytes_max} bytes");
    Err(Error::new(ErrorCode::BadValue, message))
}

/// The most bytes and, if limited, documents of a capped collection.
fn capped_limits(collection: &Collection) -> (i64, Option<i64>) {
    let Some(limits) = collection.options.capped else { unreachable!("a capped collection") };
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_gets_the_newest_start_that_was_seen_before_it() {
        let starts = Starts::default();
        for n in 1..=4_u64 {
            starts.0.lock().add(Start { sequence: 100 * n, moment: n, stamp: 10 * n });
        }
        assert_eq!(starts.of_view(4, u64::MAX), Some(400));
        assert_eq!(starts.of_view(0, u64::MAX), None, "a view that was there before is not kept from what it sees");
        assert!(starts.of_view(2, u64::MAX).is_some_and(|start| start <= 200));
        assert!(starts.of_view(4, 25).is_some_and(|start| start <= 200), "of an older time");
    }

    #[test]
    fn few_starts_are_kept_and_older_views_are_served_within_half_of_their_age() {
        let starts = Starts::default();
        for n in 1..=100_000_u64 {
            starts.0.lock().add(Start { sequence: 32 * n, moment: n, stamp: n });
        }
        assert!(starts.0.lock().starts.len() < 64);
        for age in [1, 10, 100, 10_000] {
            let wanted = 32 * (100_000 - age);
            let given = starts.of_view(100_000 - age, u64::MAX).unwrap_or(0);
            assert!(given <= wanted && wanted - given <= 32 * (age + 1), "{age}: {given}, {wanted}");
        }
    }
}
