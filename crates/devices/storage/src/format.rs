//! Where things lie on disk: column families, key prefixes, record keys. Drawn in `docs/storage-format.md`.
//!
//! Invariant: every key of a collection or index begins with its id in four big-endian bytes, so that dropping one is
//! dropping one contiguous range, and no two of them interleave. Ids are never used again.

use baton_document::keys::{self, Direction};
use baton_types::{Result, Timestamp};
use bson::RawBsonRef;
use smallvec::SmallVec;

/// Version of everything in this file; a data directory with another one is refused.
pub const FORMAT_VERSION: i32 = 1;

/// Identifies a collection for as long as its data directory lives.
pub type CollectionId = u32;
/// Identifies an index for as long as its data directory lives. Shares its number space with nothing.
pub type IndexId = u32;
/// The encoded `_id` of a document: orders as the `_id`s do.
pub type RecordKey = SmallVec<[u8; 32]>;

/// Where a document lies in [`family::DOCUMENTS`]: its collection's id and its record key.
pub(crate) type DocumentKey = SmallVec<[u8; 36]>;

/// Column families. `default` stays empty: RocksDB insists on it.
pub mod family {
    /// Collection id → catalog entry (BSON).
    pub const CATALOG: &str = "catalog";
    /// Collection id, record key → document (BSON).
    pub const DOCUMENTS: &str = "documents";
    /// Index id, encoded fields, record key → index entry.
    pub const INDEXES: &str = "indexes";
    /// Timestamp → oplog entry (BSON).
    pub const OPLOG: &str = "oplog";
    /// Logical session → what retryable writes it did (BSON).
    pub const SESSIONS: &str = "sessions";
    /// Name → member-wide facts; collection counters.
    pub const META: &str = "meta";
}

/// Whether keys of a family carry the timestamp of the operation that wrote them (RocksDB's user-defined timestamps):
/// what a document was at a time can be read as long as history is kept.
pub fn is_versioned(family: &str) -> bool {
    family == family::DOCUMENTS || family == family::INDEXES
}

/// The timestamp that reads the newest version.
pub const NEWEST: [u8; 8] = u64::MAX.to_le_bytes();

/// Bytes of a collection or index id at the front of a key.
pub const PREFIX_BYTES: usize = 4;

/// `id` as the front of a key.
pub fn prefix(id: u32) -> [u8; PREFIX_BYTES] {
    id.to_be_bytes()
}

/// The first key after every key of `id`.
pub fn prefix_end(id: u32) -> [u8; PREFIX_BYTES] {
    (id + 1).to_be_bytes()
}

/// The record key of a document with this `_id`.
pub fn record_key(id: RawBsonRef<'_>) -> Result<RecordKey> {
    let mut buffer = Vec::with_capacity(24);
    keys::encode(&mut buffer, id, Direction::Ascending);
    Ok(RecordKey::from_slice(&buffer))
}

/// Where a document lies in [`family::DOCUMENTS`].
pub fn document_key(collection: CollectionId, record: &[u8]) -> DocumentKey {
    let mut key = DocumentKey::with_capacity(PREFIX_BYTES + record.len());
    key.extend_from_slice(&prefix(collection));
    key.extend_from_slice(record);
    key
}

/// Where an oplog entry lies in [`family::OPLOG`]. The term is in the entry; timestamps alone are unique.
pub fn oplog_key(timestamp: Timestamp) -> [u8; 8] {
    timestamp.as_u64().to_be_bytes()
}

/// The timestamp of an oplog key, or `None` for a key of another length.
pub fn oplog_timestamp(key: &[u8]) -> Option<Timestamp> {
    Some(Timestamp::from_u64(u64::from_be_bytes(key.try_into().ok()?)))
}

/// Where a collection's counters lie in [`family::META`].
pub fn counts_key(collection: CollectionId) -> [u8; 5] {
    let [a, b, c, d] = prefix(collection);
    [b'c', a, b, c, d]
}

/// Names in [`family::META`].
pub mod meta {
    /// Format version, as four little-endian bytes.
    pub const FORMAT: &[u8] = b"format";
    /// Next collection or index id, as four little-endian bytes.
    pub const NEXT_ID: &[u8] = b"next-id";
}
