//! The documents that clients look up most, and reading what another member has named as such.
//!
//! Documents are named by their collection's UUID and their record key: ids of collections differ from member to member.
//!
//! Invariants:
//! - What is kept in memory is this member's own newest version, let in as after any look-up: no write is overtaken.
//! - Reading ends with its time, with its bytes, or when it is interrupted, whichever is first.

use crate::catalog::CollectionKind;
use crate::documents::format::{CollectionId, PREFIX_BYTES, RecordKey, document_key, family};
use crate::documents::view::newest;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::Result;
use std::collections::HashMap;
use std::time::Instant;

/// How many documents are read between two looks at the clock.
const STEP: usize = 32;

/// Documents, the hottest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotRecords {
    /// UUIDs of collections.
    pub collections: Vec<[u8; 16]>,
    /// Each with its collection's place among those.
    pub records: Vec<(u32, RecordKey)>,
}

/// What reading may take.
#[derive(Clone, Copy, Debug)]
pub struct WarmingLimits {
    /// When it ends.
    pub until: Instant,
    /// Bytes of documents.
    pub bytes: u64,
}

/// What came of it: documents, and bytes of those that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Read.
    pub read: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// In memory already.
    pub had: u64,
    /// Not there.
    pub missing: u64,
}

impl Storage {
    /// The documents that were looked up most of late: so many, of so many bytes, at the most.
    pub fn hottest(&self, bytes_max: u64, records_max: usize) -> HotRecords {
        let catalog = self.catalog();
        let uuids: HashMap<CollectionId, [u8; 16]> = catalog
            .iter()
            .filter(|collection| collection.kind == CollectionKind::Clustered)
            .map(|collection| (collection.id, collection.uuid))
            .collect();
        let mut places: HashMap<CollectionId, u32> = HashMap::new();
        let mut hot = HotRecords::default();
        for key in self.record_cache.hottest(records_max, bytes_max) {
            let Some((prefix, record)) = key.split_at_checked(PREFIX_BYTES) else { continue };
            let id = CollectionId::from_be_bytes(prefix.try_into().unwrap_or_default());
            let Some(uuid) = uuids.get(&id) else { continue };
            let place = *places.entry(id).or_insert_with(|| {
                hot.collections.push(*uuid);
                hot.collections.len() as u32 - 1
            });
            hot.records.push((place, RecordKey::from_slice(record)));
        }
        hot
    }

    /// Reads documents that another member has named, and keeps them in memory.
    ///
    /// # Errors
    /// Those of `interrupt`, and of reading.
    pub fn warm(&self, hot: &HotRecords, limits: WarmingLimits, interrupt: &dyn Fn() -> Result<()>) -> Result<Warmed> {
        let catalog = self.catalog();
        let ids: Vec<Option<CollectionId>> =
            hot.collections.iter().map(|uuid| Some(catalog.by_uuid(*uuid)?.id)).collect();
        let options = newest(family::DOCUMENTS);
        let mut warmed = Warmed::default();
        for (at, (place, record)) in hot.records.iter().enumerate() {
            if at % STEP == 0 {
                interrupt()?;
                if Instant::now() >= limits.until {
                    break;
                }
            }
            if warmed.read_bytes >= limits.bytes {
                break;
            }
            let Some(Some(id)) = ids.get(*place as usize) else {
                warmed.missing += 1;
                continue;
            };
            let key = document_key(*id, record);
            let Some(miss) = self.record_cache.look_to_warm(&key) else {
                warmed.had += 1;
                continue;
            };
            let found = self.db().get_pinned_cf_opt(self.family(family::DOCUMENTS), &key, &options);
            match found.map_err(read_failure)? {
                None => warmed.missing += 1,
                Some(document) => {
                    self.record_cache.offer(&miss, &key, &document);
                    warmed.read += 1;
                    warmed.read_bytes += document.len() as u64;
                }
            }
        }
        Ok(warmed)
    }
}
