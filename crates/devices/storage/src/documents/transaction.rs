//! What one operation writes, gathered by the thread that serves it and handed to the commit queue whole.
//!
//! Keys and values are copied once, into one arena; the commit queue copies them from there into its batch.
//!
//! Invariant: a transaction that has its place in the commit queue cannot fail. Everything that can be refused (duplicate
//! keys, sizes, parallel arrays) was checked while it was built, under the locks it holds; whether this member may write
//! at all is asked at the queue's entrance. And none changes what exists but through a [`CatalogGuard`]: entries of the catalog
//! and of commands are set here alone, and only for who shows one.

use crate::catalog::{CatalogEntry, Collection, IndexProgress};
use crate::ddl::copy::DocumentChange;
use crate::ddl::{CatalogGuard, DroppedPart, Quiet};
use crate::documents::counters::Counts;
use crate::documents::format::{document_key, dropped_key, family};
use crate::documents::in_flight::Ticket;
use crate::documents::locks::LockSet;
use crate::documents::sessions::SessionUpdate;
use crate::log::oplog::OplogEntry;
use baton_types::{Class, Interruption, OpTime, Timestamp};
use bson::RawDocument;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// One change of one key. `entry` counts the oplog entries logged before it: it belongs to the one that follows.
pub(crate) enum Action<'a> {
    Put { family: &'static str, entry: usize, key: &'a [u8], value: &'a [u8] },
    Delete { family: &'static str, entry: usize, key: &'a [u8] },
}

enum Kind {
    Put,
    Delete,
}

struct Record {
    kind: Kind,
    family: &'static str,
    entry: usize,
    first: Range<usize>,
    second: Range<usize>,
}

/// A collection, an index of it, and bits of fields by which that becomes multikey.
type Multikey = (Arc<Collection>, Arc<IndexProgress>, u64);

/// The range of an id that nobody reads any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeletedRange {
    pub family: &'static str,
    pub id: u32,
    /// No version in it has a later stamp.
    pub stamp: u64,
}

/// The log's end is taken away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truncation {
    /// The newest entry that stays.
    pub to: OpTime,
    /// Nobody goes back to before this any more.
    pub committed: Timestamp,
}

/// See the file's header. Dropped without a commit it has done nothing, and gives its locks back.
#[derive(Default)]
pub struct Transaction {
    pub(crate) locks: LockSet,
    arena: Vec<u8>,
    /// Most change one document, and no index.
    records: SmallVec<[Record; 1]>,
    oplog: SmallVec<[Vec<u8>; 1]>,
    pub(crate) counts: SmallVec<[(Arc<Collection>, Counts); 1]>,
    /// What becomes of collections' entries in the catalog; `None`: gone.
    catalog: SmallVec<[(Arc<Collection>, Option<CatalogEntry>); 1]>,
    /// Ids whose ranges are to be given back, beside those of collections that are gone.
    dropped: SmallVec<[(u32, DroppedPart); 1]>,
    /// The entry of another member's that this is a part of, if it is not carried here.
    pub(crate) replayed: Option<OpTime>,
    /// Ranges to be deleted whole.
    ranges: SmallVec<[DeletedRange; 1]>,
    /// Indexes that become multikey, and their collections, whose entries are written again as they are.
    multikey: SmallVec<[Multikey; 1]>,
    pub(crate) sessions: SmallVec<[SessionUpdate; 1]>,
    /// Whether the entries are another member's and bring their OpTimes along.
    pub(crate) is_replicated: bool,
    /// Whether its documents are another collection's, which has taken them already.
    is_copying: bool,
    /// Takes the oplog's entries after this one away, before all else.
    pub(crate) truncation: Option<Truncation>,
    /// Where the last document changed has its key and its new version in the arena, and how many were changed.
    change: Option<(Range<usize>, Option<Range<usize>>)>,
    changes: usize,
    /// Of whoever it is written for.
    pub(crate) class: Class,
    /// What long work for it asks whether to go on, if it is a request's.
    pub(crate) interruption: Option<Arc<Interruption>>,
    /// The version left for the next writer of the document.
    pub(crate) in_flight: Option<Ticket>,
}

impl Transaction {
    /// A transaction that writes nothing; committed as synced, it makes all before it durable.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Whether it writes nothing.
    pub fn is_empty(&self) -> bool {
        let catalog = self.catalog.is_empty() && self.multikey.is_empty() && self.dropped.is_empty();
        self.ranges.is_empty()
            && self.records.is_empty()
            && self.oplog.is_empty()
            && catalog
            && self.sessions.is_empty()
    }

    /// A transaction for what another member did: it logs the entries it is given ([`Self::carry`]), none of its own.
    pub(crate) fn replicating() -> Self {
        Self { is_replicated: true, ..Self::default() }
    }

    /// A transaction for what another collection has.
    pub(crate) fn copying() -> Self {
        Self { is_copying: true, ..Self::default() }
    }

    /// Whether its documents are facts: whoever took them first has asked of them what is to be asked.
    pub(crate) fn is_of_facts(&self) -> bool {
        self.is_replicated || self.is_copying
    }

    /// Takes another member's entry in, as it is. What it changes was put before.
    pub(crate) fn carry(&mut self, entry: &RawDocument) {
        assert!(
            self.is_replicated && crate::log::oplog::optime_of(entry).is_some(),
            "an entry brings its OpTime along"
        );
        self.oplog.push(entry.as_bytes().to_vec());
    }

    /// Leaves its entries out.
    pub(crate) fn forget_entries(&mut self) {
        self.oplog.clear();
    }

    /// Whether it has entries that are to get an OpTime here.
    pub(crate) fn has_own_entries(&self) -> bool {
        !self.oplog.is_empty() && !self.is_replicated
    }

    /// Roughly what it adds to the log.
    pub fn bytes(&self) -> usize {
        let sessions: usize = self.sessions.iter().map(SessionUpdate::bytes).sum();
        let truncation = 16 * usize::from(self.truncation.is_some());
        let entries: usize = self.oplog.iter().map(Vec::len).sum();
        let catalog = 512 * (self.catalog.len() + self.multikey.len() + self.dropped.len());
        self.arena.len() + entries + catalog + 64 * self.ranges.len() + sessions + truncation
    }

    /// How many oplog entries it has.
    pub fn oplog_entries(&self) -> usize {
        self.oplog.len()
    }

    /// Puts a document, or deletes it.
    pub(crate) fn change(&mut self, collection: &Collection, record: &[u8], change: DocumentChange<'_>) {
        collection.shared.copies.note(collection, record, change);
        let key = document_key(collection.id, record);
        let is_there = match change {
            DocumentChange::Insert(document) | DocumentChange::Update(document) => {
                self.put(family::DOCUMENTS, &key, document.as_bytes());
                true
            }
            DocumentChange::Delete(_) => {
                self.delete(family::DOCUMENTS, &key);
                false
            }
        };
        self.change = self.records.last().map(|put| (put.first.clone(), is_there.then(|| put.second.clone())));
        self.changes += 1;
    }

    /// The key of the one document changed, and its new version; `None` if it is not one.
    pub(crate) fn sole_change(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let (key, document) = self.change.as_ref().filter(|_| self.changes == 1)?;
        Some((&self.arena[key.clone()], document.clone().map(|range| &self.arena[range])))
    }

    /// What it makes of the document with this key, last: its new version, or nothing any more. `None` if it does not change that.
    pub(crate) fn version_of(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let is_it = |record: &&Record| record.family == family::DOCUMENTS && self.arena[record.first.clone()] == *key;
        self.records.iter().rev().find(is_it).map(|record| match record.kind {
            Kind::Put => Some(&self.arena[record.second.clone()]),
            Kind::Delete => None,
        })
    }

    pub(crate) fn put(&mut self, family: &'static str, key: &[u8], value: &[u8]) {
        self.record(Kind::Put, family, key, value);
    }

    pub(crate) fn delete(&mut self, family: &'static str, key: &[u8]) {
        self.record(Kind::Delete, family, key, &[]);
    }

    fn record(&mut self, kind: Kind, family: &'static str, first: &[u8], second: &[u8]) {
        let start = self.arena.len();
        self.arena.reserve(first.len() + second.len());
        self.arena.extend_from_slice(first);
        let middle = self.arena.len();
        self.arena.extend_from_slice(second);
        self.records.push(Record {
            kind,
            family,
            entry: self.oplog.len(),
            first: start..middle,
            second: middle..self.arena.len(),
        });
    }

    pub(crate) fn actions(&self) -> impl Iterator<Item = Action<'_>> {
        self.records.iter().map(|record| {
            let (key, value) = (&self.arena[record.first.clone()], &self.arena[record.second.clone()]);
            let (family, entry) = (record.family, record.entry);
            match record.kind {
                Kind::Put => Action::Put { family, entry, key, value },
                Kind::Delete => Action::Delete { family, entry, key },
            }
        })
    }

    pub(crate) fn count(&mut self, collection: &Arc<Collection>, documents: i64, bytes: i64) {
        match self.counts.iter_mut().find(|(known, _)| known.id == collection.id) {
            Some((_, counts)) => {
                counts.documents += documents;
                counts.bytes += bytes;
            }
            None => self.counts.push((Arc::clone(collection), Counts { documents, bytes })),
        }
    }

    /// Logs a change of a document, or a message.
    pub(crate) fn log(&mut self, entry: &OplogEntry<'_>) {
        self.oplog.push(entry.encode());
    }

    /// Logs a command. [`CatalogGuard::log`] is the way here.
    pub(crate) fn log_command(&mut self, _: &CatalogGuard<'_>, entry: Vec<u8>) {
        self.oplog.push(entry);
    }

    /// Its oplog entries, as they are so far.
    pub(crate) fn entries(&self) -> &[Vec<u8>] {
        &self.oplog
    }

    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        self.oplog.iter_mut()
    }

    pub(crate) fn take_entries(&mut self) -> impl Iterator<Item = Vec<u8>> {
        self.oplog.drain(..)
    }

    /// Puts the entry of a collection that is new into the catalog.
    pub(crate) fn create_entry(&mut self, _: &CatalogGuard<'_>, collection: &Arc<Collection>) {
        let entry = collection.entry(&collection.indexes());
        self.catalog.push((Arc::clone(collection), Some(entry)));
    }

    /// Puts the entry of a collection into the catalog.
    pub(crate) fn store_entry(&mut self, of: &Quiet<'_>, entry: CatalogEntry) {
        self.catalog.push((Arc::clone(of.collection()), Some(entry)));
    }

    /// Takes the entry of a collection out of the catalog.
    pub(crate) fn remove_entry(&mut self, of: &Quiet<'_>) {
        self.catalog.push((Arc::clone(of.collection()), None));
    }

    /// Leaves the range of an id to be freed once no rollback can bring back what it belonged to.
    pub(crate) fn free_later(&mut self, id: u32, part: DroppedPart) {
        self.dropped.push((id, part));
    }

    /// Leaves the range of an id to be freed as soon as that may be.
    pub(crate) fn free_at_once(&mut self, id: u32) {
        self.put(family::META, &dropped_key(id), &[]);
    }

    /// What is to be freed later.
    pub(crate) fn take_dropped(&mut self) -> impl Iterator<Item = (u32, DroppedPart)> {
        std::mem::take(&mut self.dropped).into_iter()
    }

    /// Deletes a range whole: what nobody reads any more.
    pub(crate) fn delete_range(&mut self, range: DeletedRange) {
        self.ranges.push(range);
    }

    pub(crate) fn ranges(&self) -> &[DeletedRange] {
        &self.ranges
    }

    /// Takes the entry of a collection out that a rollback undoes the creation of.
    pub(crate) fn remove_undone(&mut self, _: &CatalogGuard<'_>, collection: &Arc<Collection>) {
        self.catalog.push((Arc::clone(collection), None));
    }

    /// What becomes of entries of the catalog, for the commit queue to install and write.
    pub(crate) fn take_catalog(&mut self) -> impl Iterator<Item = (Arc<Collection>, Option<CatalogEntry>)> {
        std::mem::take(&mut self.catalog).into_iter()
    }

    /// Makes an index multikey, and has its collection's entry written again. Anybody may: it says nothing else.
    pub(crate) fn note_multikey(&mut self, collection: &Arc<Collection>, index: Arc<IndexProgress>, bits: u64) {
        match self.multikey.iter_mut().find(|(_, known, _)| Arc::ptr_eq(known, &index)) {
            Some((.., known)) => *known |= bits,
            None => self.multikey.push((Arc::clone(collection), index, bits)),
        }
    }

    pub(crate) fn multikey(&self) -> &[Multikey] {
        &self.multikey
    }
}
