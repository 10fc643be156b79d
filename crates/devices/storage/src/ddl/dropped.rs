//! What was dropped and still takes space: one record in the meta family for each id.
//!
//! A drop writes the record in the batch that takes the catalog's entry away. The range of the id stays as it is until a rollback
//! can no longer undo the drop; then [`super::freeing`] gives its space back and removes the record.
//!
//! Invariants:
//! - A record says all that brings the dropped thing back exactly as it was: see [`crate::following::rollback`].
//! - A record without a time is of what no rollback brings back: an aborted index build, what was never logged, what a Baton of an
//!   older format dropped. Its space is given back at once.

use crate::catalog::{Index, IndexState};
use crate::documents::counters::Counts;
use crate::documents::format::{CollectionId, family, meta};
use crate::documents::transaction::Transaction;
use crate::log::oplog::optime_of;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{OpTime, Result};
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use rust_rocksdb::{Direction, IteratorMode};

/// What becomes of the range of an id.
#[derive(Clone, Debug, Default)]
pub(crate) enum DroppedPart {
    /// It goes, with what it belonged to, or by itself.
    #[default]
    Extent,
    /// It was an index of a collection that stays; this is the index's part of the catalog's entry.
    Index { collection: CollectionId, entry: RawDocumentBuf },
    /// It was a collection, by this entry of the catalog.
    Collection { entry: RawDocumentBuf, counts: Counts },
}

/// A record; see the file's header.
#[derive(Clone, Debug)]
pub(crate) struct Dropped {
    pub id: u32,
    /// The drop's entry in the log; absent: nothing undoes it.
    pub at: Option<OpTime>,
    pub part: DroppedPart,
}

impl DroppedPart {
    pub(crate) fn of_index(collection: CollectionId, index: &Index) -> Self {
        let is_ready = index.state() == IndexState::Ready;
        Self::Index { collection, entry: index.encode(is_ready) }
    }
}

impl Dropped {
    /// The record's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Some(at) = self.at else { return Vec::new() };
        let mut value = rawdoc! { "ts": bson::Timestamp::from(at.timestamp), "t": at.term };
        match &self.part {
            DroppedPart::Extent => {}
            DroppedPart::Index { collection, entry } => {
                value.append(cstr!("collection"), i64::from(*collection));
                value.append(cstr!("index"), entry.clone());
            }
            DroppedPart::Collection { entry, counts } => {
                value.append(cstr!("entry"), entry.clone());
                value.append(cstr!("documents"), counts.documents);
                value.append(cstr!("bytes"), counts.bytes);
            }
        }
        value.into_bytes()
    }

    /// The inverse of [`Self::encode`].
    fn decode(id: u32, value: &[u8]) -> Result<Self> {
        if value.is_empty() {
            return Ok(Self { id, at: None, part: DroppedPart::Extent });
        }
        let value = RawDocument::from_bytes(value)?;
        let part = match (value.get("entry")?, value.get("index")?) {
            (Some(RawBsonRef::Document(entry)), _) => DroppedPart::Collection {
                entry: entry.to_owned(),
                counts: Counts { documents: value.get_i64("documents")?, bytes: value.get_i64("bytes")? },
            },
            (_, Some(RawBsonRef::Document(entry))) => {
                DroppedPart::Index { collection: value.get_i64("collection")? as CollectionId, entry: entry.to_owned() }
            }
            _ => DroppedPart::Extent,
        };
        Ok(Self { id, at: optime_of(value), part })
    }

    /// What to call it where tasks are shown.
    pub(crate) fn name(&self) -> String {
        match &self.part {
            DroppedPart::Extent => format!("extent {}", self.id),
            DroppedPart::Index { entry, .. } => {
                let name = entry.get_document("spec").and_then(|spec| spec.get_str("name"));
                format!("index {}", name.unwrap_or_default())
            }
            DroppedPart::Collection { entry, .. } => entry.get_str("ns").unwrap_or_default().to_owned(),
        }
    }
}

impl Storage {
    /// Everything dropped whose space was not given back yet, in order of ids.
    pub(crate) fn dropped(&self) -> Result<Vec<Dropped>> {
        let mut dropped = Vec::new();
        let mode = IteratorMode::From(&[meta::DROPPED], Direction::Forward);
        for item in self.db().iterator_cf(self.family(family::META), mode) {
            let (key, value) = item.map_err(read_failure)?;
            match key.strip_prefix(&[meta::DROPPED]).and_then(|id| <[u8; 4]>::try_from(id).ok()) {
                Some(id) => dropped.push(Dropped::decode(u32::from_be_bytes(id), &value)?),
                None => break,
            }
        }
        Ok(dropped)
    }

    /// Lets nothing that was dropped until now be brought back any more.
    pub(crate) fn forget_dropped(&self, transaction: &mut Transaction) -> Result<()> {
        for dropped in self.dropped()? {
            transaction.free_at_once(dropped.id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::Timestamp;

    #[test]
    fn a_record_reads_back_and_one_of_an_older_format_is_free_at_once() {
        let at = Some(OpTime { term: 3, timestamp: Timestamp { seconds: 7, increment: 9 } });
        let counts = Counts { documents: 5, bytes: 600 };
        let parts = [
            DroppedPart::Extent,
            DroppedPart::Index { collection: 4, entry: rawdoc! { "id": 8_i64, "spec": { "name": "a_1" } } },
            DroppedPart::Collection { entry: rawdoc! { "ns": "shop.carts" }, counts },
        ];
        for (part, name) in parts.into_iter().zip(["extent 6", "index a_1", "shop.carts"]) {
            let dropped = Dropped { id: 6, at, part };
            let read = Dropped::decode(6, &dropped.encode()).unwrap();
            assert_eq!((format!("{read:?}"), read.name().as_str()), (format!("{dropped:?}"), name));
        }
        assert_eq!(Dropped::decode(6, b"").unwrap().at, None);
    }
}
