//! Reading: points, ranges of documents, ranges of an index, the oplog, all as of one moment: now, or a cluster time that
//! the history window still covers.
//!
//! A [`View`] is taken for one batch of a request and dropped with it; between batches a cursor keeps only its
//! position. So no view outlives the moment somebody waits for it, and compaction is never held up by an idle cursor.

use crate::background::vitals::Reads;
use crate::catalog::{Collection, CollectionKind, Index};
use crate::documents::format::{
    NEWEST, PREFIX_BYTES, document_key, family, is_versioned, oplog_key, prefix, prefix_end,
};
use crate::documents::index::split_entry;
use crate::documents::record_cache::LookUp;
use crate::documents::version::Version;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{Class, Error, ErrorCode, Result, Timestamp};
use bson::RawDocument;
use rust_rocksdb::{DB, DBPinnableSlice, DBRawIteratorWithThreadMode, ErrorKind, ReadOptions, SnapshotWithThreadMode};
use std::ops::Deref;
use std::sync::atomic::Ordering;

/// Which way a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From low keys to high.
    Forward,
    /// From high keys to low.
    Backward,
}

/// A half-open range of encoded keys, without the collection's or index's prefix: `from` inside, `to` outside.
/// Empty `from` is the beginning; `None` as `to` is the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// First key inside.
    pub from: Vec<u8>,
    /// First key outside.
    pub to: Option<Vec<u8>>,
}

/// Storage as of one moment.
pub struct View<'s> {
    storage: &'s Storage,
    snapshot: SnapshotWithThreadMode<'s, DB>,
    /// The time as of which versioned families are read, as their keys have it.
    at: [u8; 8],
    /// What was seen until then this sees, too.
    moment: u64,
    /// What it reads is not worth a place that another's has.
    spares_caches: bool,
}

impl<'s> View<'s> {
    pub(crate) fn new(storage: &'s Storage) -> Self {
        // Asked before the snapshot is taken.
        let moment = storage.moment.load(Ordering::SeqCst);
        Self { storage, snapshot: storage.db().snapshot(), at: NEWEST, moment, spares_caches: false }
    }

    /// The same, read by one of this class. What those of low class and the background read stays in no cache in which something else
    /// would have to give way.
    #[must_use]
    pub fn read_by(mut self, class: Class) -> Self {
        self.spares_caches = class <= Class::Low && self.storage.block_cache_is_full();
        self
    }

    /// Storage as of a cluster time that the caller knows to be kept.
    pub(crate) fn as_of(storage: &'s Storage, at: Timestamp) -> Self {
        Self { at: at.as_u64().to_le_bytes(), ..Self::new(storage) }
    }

    /// Options that read a family as of this view.
    pub(crate) fn options(&self, family: &str) -> ReadOptions {
        let mut options = ReadOptions::default();
        if is_versioned(family) {
            options.set_timestamp(self.at);
        }
        options.set_snapshot(&self.snapshot);
        if self.spares_caches {
            options.fill_cache(false);
        }
        options
    }

    /// The document with this record key.
    pub fn get(&self, collection: &Collection, record: &[u8]) -> Result<Option<DBPinnableSlice<'s>>> {
        let key = document_key(collection.id, record);
        let options = self.options(family::DOCUMENTS);
        let family = self.storage.family(family::DOCUMENTS);
        let found = self.storage.db().get_pinned_cf_opt(family, key, &options).map_err(read_failure);
        self.storage.reads.note();
        found
    }

    /// Whether a collection has no document, if that is seen without passing over more than so many deleted
    /// ones; else `false`.
    pub(crate) fn has_none(&self, collection: &Collection, deleted_max: u64) -> Result<bool> {
        let mut options = self.options(family::DOCUMENTS);
        options.set_iterate_upper_bound(prefix_end(collection.id).to_vec());
        options.set_total_order_seek(true);
        options.set_max_skippable_internal_keys(deleted_max);
        let mut iterator = self.storage.db().raw_iterator_cf_opt(self.storage.family(family::DOCUMENTS), options);
        iterator.seek(prefix(collection.id));
        match iterator.status() {
            Ok(()) => Ok(!iterator.valid()),
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(false),
            Err(error) => Err(read_failure(error)),
        }
    }

    /// Walks documents whose record keys lie in `bounds`.
    pub fn documents(&self, collection: &Collection, bounds: &Bounds, order: Order) -> DocumentCursor<'s> {
        let (family, skip, low, high) = match collection.kind {
            CollectionKind::Oplog => (family::OPLOG, 0, bounds.from.clone(), bounds.to.clone()),
            CollectionKind::Clustered | CollectionKind::Capped | CollectionKind::View => {
                let (mut low, high) = absolute(collection.id, bounds);
                if collection.kind == CollectionKind::Capped
                    && let Some(start) = collection.shared.starts.of_view(self.moment, u64::from_le_bytes(self.at))
                {
                    low = low.max(document_key(collection.id, &start.to_be_bytes()).to_vec());
                }
                (family::DOCUMENTS, PREFIX_BYTES, low, Some(high))
            }
        };
        DocumentCursor { walk: self.walk(family, low, high, order), skip }
    }

    /// Walks entries of an index whose encoded fields lie in `bounds`.
    pub fn entries(&self, index: &Index, bounds: &Bounds, order: Order) -> IndexCursor<'s> {
        let (low, high) = absolute(index.id, bounds);
        IndexCursor { walk: self.walk(family::INDEXES, low, Some(high), order) }
    }

    fn walk(&self, family: &'static str, low: Vec<u8>, high: Option<Vec<u8>>, order: Order) -> Walk<'s> {
        let mut options = self.options(family);
        options.set_iterate_lower_bound(low.clone());
        if let Some(high) = high.clone() {
            options.set_iterate_upper_bound(high);
        }
        options.set_total_order_seek(true);
        let mut iterator = self.storage.db().raw_iterator_cf_opt(self.storage.family(family), options);
        match order {
            Order::Forward => iterator.seek(&low),
            Order::Backward => iterator.seek_to_last(),
        }
        Walk { iterator, order, fresh: true, reads: &self.storage.reads }
    }
}

/// Options that read the newest version of a family's keys.
pub(crate) fn newest(family: &str) -> ReadOptions {
    let mut options = ReadOptions::default();
    if is_versioned(family) {
        options.set_timestamp(NEWEST);
    }
    options
}

/// Absolute keys of a range below an id.
fn absolute(id: u32, bounds: &Bounds) -> (Vec<u8>, Vec<u8>) {
    let mut low = prefix(id).to_vec();
    low.extend_from_slice(&bounds.from);
    let high = match &bounds.to {
        Some(to) => {
            let mut high = prefix(id).to_vec();
            high.extend_from_slice(to);
            high
        }
        None => prefix_end(id).to_vec(),
    };
    (low, high)
}

struct Walk<'s> {
    iterator: DBRawIteratorWithThreadMode<'s, DB>,
    order: Order,
    fresh: bool,
    reads: &'s Reads,
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.reads.note();
    }
}

impl Walk<'_> {
    fn advance(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.fresh {
            self.fresh = false;
        } else if self.iterator.valid() {
            match self.order {
                Order::Forward => self.iterator.next(),
                Order::Backward => self.iterator.prev(),
            }
        }
        if !self.iterator.valid() {
            self.iterator.status().map_err(read_failure)?;
            return Ok(None);
        }
        Ok(self.iterator.item())
    }
}

/// Documents of a range, one after the other.
pub struct DocumentCursor<'s> {
    walk: Walk<'s>,
    skip: usize,
}

impl DocumentCursor<'_> {
    /// The next document with its record key (for the oplog: its timestamp's eight bytes).
    pub fn next_document(&mut self) -> Result<Option<(&[u8], &RawDocument)>> {
        let skip = self.skip;
        match self.walk.advance()? {
            None => Ok(None),
            Some((key, value)) => Ok(Some((&key[skip..], stored_document(value)?))),
        }
    }
}

/// Entries of an index, one after the other.
pub struct IndexCursor<'s> {
    walk: Walk<'s>,
}

/// One index entry.
#[derive(Clone, Copy, Debug)]
pub struct IndexEntry<'a> {
    /// The whole key below the index's prefix: fields, then record key. A position to resume at.
    pub position: &'a [u8],
    /// The encoded fields.
    pub fields: &'a [u8],
    /// The document's record key.
    pub record: &'a [u8],
    /// The fields' values as an array, where decoding the key would not give them back exactly.
    pub originals: Option<&'a RawDocument>,
}

impl IndexCursor<'_> {
    /// The next entry.
    pub fn next_entry(&mut self) -> Result<Option<IndexEntry<'_>>> {
        match self.walk.advance()? {
            None => Ok(None),
            Some((key, value)) => split_entry(&key[PREFIX_BYTES..], value).map(Some),
        }
    }

    /// Goes on at the first entry at or after `position` (at or before it, when walking backward).
    pub fn seek(&mut self, index: &Index, position: &[u8]) {
        let mut key = prefix(index.id).to_vec();
        key.extend_from_slice(position);
        match self.walk.order {
            Order::Forward => self.walk.iterator.seek(&key),
            Order::Backward => self.walk.iterator.seek_for_prev(&key),
        }
        self.walk.fresh = true;
    }
}

/// A document's bytes, without a copy of them.
pub enum Stored<'s> {
    /// In a block or memtable of RocksDB, which stays as long as this lives.
    Pinned(DBPinnableSlice<'s>),
    /// In memory of our own.
    Shared(Version),
}

impl Deref for Stored<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pinned(slice) => slice,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// A stored value as a document: only its outer length is checked, because it was validated when it came in and
/// RocksDB's checksums guard it since.
pub fn stored_document(value: &[u8]) -> Result<&RawDocument> {
    RawDocument::from_bytes(value).map_err(|_| {
        Error::new(ErrorCode(310), "Data corruption detected: a stored document has no valid length. Run validate")
    })
}

impl Storage {
    /// Storage as of now.
    pub fn view(&self) -> View<'_> {
        View::new(self)
    }

    /// Storage as of a cluster time; as of now if none is given. Documents and indexes only: the catalog, the counters and
    /// the oplog are always those of now.
    ///
    /// `SnapshotTooOld` (239) if versions that old may be gone, `SnapshotUnavailable` (246) if collections or indexes have
    /// changed since, so that the catalog of now would misread them.
    pub fn view_at(&self, at: Option<Timestamp>) -> Result<View<'_>> {
        let Some(at) = at else { return Ok(View::new(self)) };
        let view = View::as_of(self, at);
        // Asked after the snapshot was taken: what is dropped from now on, the snapshot keeps.
        let (oldest, stable_from) = (self.retention.history_from(), self.catalog_stable_from());
        if at < oldest {
            return Err(Error::new(
                ErrorCode::SnapshotTooOld,
                format!("Read timestamp {at} is older than the oldest available timestamp {oldest}."),
            ));
        }
        if at < stable_from {
            return Err(Error::new(
                ErrorCode::SnapshotUnavailable,
                format!(
                    "Unable to read from a snapshot due to pending collection catalog changes; please retry the \
                     operation. Snapshot timestamp is {at}. Collection minimum is {stable_from}"
                ),
            ));
        }
        Ok(view)
    }

    /// The document with this record key, as of now: the cheapest read there is.
    pub fn get(&self, collection: &Collection, record: &[u8]) -> Result<Option<Stored<'_>>> {
        self.get_by_key(&document_key(collection.id, record))
    }

    /// The same, read by one of this class: see [`View::read_by`].
    pub fn get_by(&self, class: Class, collection: &Collection, record: &[u8]) -> Result<Option<Stored<'_>>> {
        if class > Class::Low || !self.block_cache_is_full() {
            return self.get(collection, record);
        }
        let key = document_key(collection.id, record);
        match self.record_cache.get(&key) {
            LookUp::Hit(document) => Ok(Some(Stored::Shared(document))),
            LookUp::Miss(_) => {
                let mut options = newest(family::DOCUMENTS);
                options.fill_cache(false);
                let found = self.db().get_pinned_cf_opt(self.family(family::DOCUMENTS), &key, &options);
                self.reads.note();
                Ok(found.map_err(read_failure)?.map(Stored::Pinned))
            }
        }
    }

    pub(crate) fn get_by_key(&self, key: &[u8]) -> Result<Option<Stored<'_>>> {
        thread_local! {
            static OPTIONS: ReadOptions = newest(family::DOCUMENTS);
        }
        let miss = match self.record_cache.get(key) {
            LookUp::Hit(document) => return Ok(Some(Stored::Shared(document))),
            LookUp::Miss(miss) => miss,
        };
        let found = OPTIONS
            .with(|options| self.db().get_pinned_cf_opt(self.family(family::DOCUMENTS), key, options))
            .map_err(read_failure)?;
        self.reads.note();
        if let Some(document) = &found {
            self.record_cache.offer(&miss, key, document);
        }
        Ok(found.map(Stored::Pinned))
    }

    /// The bounds of oplog entries at or after a timestamp.
    pub fn oplog_from(timestamp: Timestamp) -> Bounds {
        Bounds { from: oplog_key(timestamp).to_vec(), to: None }
    }
}
