//! Where things lie on disk: column families, key prefixes, record keys. Drawn in `docs/storage-format.md`.
//!
//! Invariant: every key of a collection or index begins with its id in four big-endian bytes, so that dropping one is
//! dropping one contiguous range, and no two of them interleave. Ids are never used again.

use baton_document::keys::{self, Direction};
use baton_types::{Result, Timestamp};
use bson::RawBsonRef;
use smallvec::SmallVec;

/// Version of everything in this file. What a data directory of another one gets: see `upgrade`.
pub const FORMAT_VERSION: i32 = 3;

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

/// The first key after every key that begins so; empty if there is none.
pub fn end_of_prefix(begin: &[u8]) -> Vec<u8> {
    let mut end = begin.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// The record key of a document with this `_id`.
pub fn record_key(id: RawBsonRef<'_>) -> Result<RecordKey> {
    let mut key = RecordKey::new();
    keys::encode(&mut key, id, Direction::Ascending);
    Ok(key)
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
    meta::of(meta::COUNTS, collection)
}

/// Where the start of a capped collection lies in [`family::META`].
pub fn capped_start_key(collection: CollectionId) -> [u8; 5] {
    meta::of(meta::CAPPED_START, collection)
}

/// Where it is noted, in [`family::META`], what an id was that was dropped and still has keys.
pub fn dropped_key(id: u32) -> [u8; 5] {
    meta::of(meta::DROPPED, id)
}

/// Where it is noted, in [`family::META`], how far the build of the set is whose first index this is.
pub fn build_position_key(index: IndexId) -> [u8; 5] {
    meta::of(meta::BUILD_POSITION, index)
}

/// Names in [`family::META`]. Beside these there are the facts of [`crate::log::facts`].
pub mod meta {
    /// Format version, as four little-endian bytes.
    pub const FORMAT: &[u8] = b"format";
    /// Next collection or index id, as four little-endian bytes.
    pub const NEXT_ID: &[u8] = b"next-id";
    /// With a collection's id: its counters.
    pub const COUNTS: u8 = b'c';
    /// With a capped collection's id: below what record key it has nothing.
    pub const CAPPED_START: u8 = b'b';
    /// With a collection's or index's id: it was dropped, and its keys are still there.
    pub const DROPPED: u8 = b'd';
    /// With an index's id: how far its build is.
    pub const BUILD_POSITION: u8 = b'p';

    /// A name with an id behind it.
    pub fn of(name: u8, id: u32) -> [u8; 5] {
        let [a, b, c, d] = super::prefix(id);
        [name, a, b, c, d]
    }
}

/// What lies beside the database, in the data directory, by the ending of its name.
pub mod beside {
    /// The member's files as of a moment, for another to copy.
    pub const CHECKPOINTS: &str = "checkpoints";
    /// Another member's files, on their way here.
    pub const INCOMING: &str = "incoming";
    /// Says that these are whole.
    pub const ARRIVED: &str = "arrived";
    /// What was there before.
    pub const OUTGOING: &str = "outgoing";
    /// What queries may not hold in memory.
    pub const SPILL: &str = "spill";
    /// What index builds have sorted.
    pub const BUILDS: &str = "builds";
    /// Files that go piece by piece.
    pub const REMOVED: &str = "removed";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::facts::Fact;
    use crate::{CollectionOptions, Durability, Storage, StorageOptions, Transaction};
    use baton_types::Namespace;
    use bson::rawdoc;
    use std::collections::BTreeSet;

    const DRAWN: &str = include_str!("../../../../../docs/storage-format.md");

    /// The first cells of the table below a heading, without quotes and what is joined to them.
    fn drawn(heading: &str) -> BTreeSet<String> {
        let section = DRAWN.split(heading).nth(1).unwrap_or_else(|| panic!("no {heading}"));
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| row.split('`').nth(1).unwrap_or_default().to_owned()).collect()
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn meta_names() -> BTreeSet<String> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let mut names = BTreeSet::from([text(meta::FORMAT), text(meta::NEXT_ID)]);
        names.extend([meta::COUNTS, meta::CAPPED_START, meta::DROPPED, meta::BUILD_POSITION].map(|name| text(&[name])));
        names.extend(Fact::ALL.map(|fact| text(fact.key())));
        names
    }

    /// Fails if a family, a key or a name is in the code and not in docs/storage-format.md, or the other way round.
    #[test]
    fn the_document_names_what_is_there() {
        assert!(DRAWN.starts_with(&format!("# Storage format, version {FORMAT_VERSION}\n")));
        let families = [
            family::CATALOG,
            family::DOCUMENTS,
            family::INDEXES,
            family::OPLOG,
            family::SESSIONS,
            family::META,
            rust_rocksdb::DEFAULT_COLUMN_FAMILY_NAME,
        ];
        assert_eq!(drawn("## Column families"), set(&families));
        assert_eq!(drawn("## The meta family"), meta_names());
        let mut beside = drawn("## Beside the database");
        for ending in [
            beside::CHECKPOINTS,
            beside::INCOMING,
            beside::ARRIVED,
            beside::OUTGOING,
            beside::SPILL,
            beside::BUILDS,
            beside::REMOVED,
        ] {
            assert!(beside.iter().any(|name| name.starts_with(&format!("rocksdb.{ending}"))), "{ending}: {beside:?}");
        }
        beside.retain(|name| !name.starts_with("rocksdb."));
        assert_eq!(beside, set(&["rocksdb", "rollback/<uuid>", "initial-sync-log", "mongod.lock"]));
    }

    /// Fails if something is written to a family or under a name that the lists above do not have.
    #[test]
    fn a_directory_in_use_has_no_other_keys() {
        let directory = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
        let storage = Storage::open(directory.path(), options).unwrap_or_else(|e| panic!("{e}"));
        let create = |name: &str, options: &bson::RawDocument, uuid: u8| {
            let namespace = Namespace::new("test", name).unwrap_or_else(|e| panic!("{e}"));
            let options = CollectionOptions::parse(options).unwrap_or_else(|e| panic!("{e}"));
            match storage.by_member().create_collection(&namespace, options, [uuid; 16]) {
                Ok(crate::CreateOutcome::Created(collection)) => collection,
                _ => panic!("not created"),
            }
        };
        create("plain", &bson::RawDocumentBuf::new(), 1);
        let ring = create("ring", &rawdoc! { "capped": true, "size": 4096, "max": 2 }, 2);
        for n in 0..1200 {
            let mut transaction = Transaction::default();
            storage.insert(&mut transaction, &ring, &rawdoc! { "_id": n }, None).unwrap_or_else(|e| panic!("{e}"));
            storage.by_member().commit(transaction, Durability::Applied).unwrap_or_else(|e| panic!("{e}"));
        }
        for fact in Fact::ALL {
            storage.facts().put(fact, b"12345678");
        }
        let mut seen = BTreeSet::new();
        let names = meta_names();
        for item in storage.db().iterator_cf(storage.family(family::META), rust_rocksdb::IteratorMode::Start) {
            let (key, _) = item.unwrap_or_else(|e| panic!("{e}"));
            let is_named = key.len() > 1 && names.contains(&*String::from_utf8_lossy(&key));
            let name = if is_named { &key[..] } else { &key[..1] };
            assert!(is_named || key.len() == 5, "{key:?}");
            seen.insert(String::from_utf8_lossy(name).into_owned());
        }
        assert!(seen.is_subset(&names), "{seen:?}");
        let missing: BTreeSet<_> = names.difference(&seen).cloned().collect();
        assert_eq!(missing, set(&["d", "p"]), "all were to be seen but what was dropped, or built, and is gone");
    }
}
