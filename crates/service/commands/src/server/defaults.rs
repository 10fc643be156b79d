//! The read and write concern of commands that name none: what `setDefaultRWConcern` set, else MongoDB's own.
//!
//! What was set is a document of `config.settings`, so that every member has it; here is what this member last read of it.
//!
//! Invariant: a document that cannot be read changes nothing.
//! What it deliberately does not do: write it.

use super::Topology;
use arc_swap::ArcSwap;
use baton_request::{Acknowledgement, Provenance, ReadConcern, ReadLevel, WriteConcern};
use baton_storage::{Storage, record_key, stored_document};
use baton_types::{Namespace, Result, Timestamp};
use bson::{DateTime, RawBsonRef, RawDocument};
use std::sync::Arc;

/// The document's `_id`.
pub const DOCUMENT_ID: &str = "ReadWriteConcernDefaults";

/// The collection that the document is in.
pub fn namespace() -> Result<Namespace> {
    Namespace::new("config", "settings")
}

/// What was set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// `defaultReadConcern`.
    pub read: Option<ReadLevel>,
    /// `defaultWriteConcern`.
    pub write: Option<WriteConcern>,
    /// `updateOpTime`: the cluster time when it was set; absent if it never was.
    pub updated: Option<Timestamp>,
    /// `updateWallClockTime`.
    pub updated_wall: Option<DateTime>,
    /// When this member read it.
    pub read_here: Option<DateTime>,
}

impl Defaults {
    /// Reads the document.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        let read = match document.get("defaultReadConcern")?.and_then(|value| value.as_document()) {
            Some(concern) if !concern.is_empty() => Some(ReadConcern::parse(concern)?.level),
            _ => None,
        };
        let write = match document.get("defaultWriteConcern")?.and_then(|value| value.as_document()) {
            Some(concern) if !concern.is_empty() => {
                Some(WriteConcern { provenance: Provenance::CustomDefault, ..WriteConcern::parse(concern)? })
            }
            _ => None,
        };
        let updated = document.get("updateOpTime")?.and_then(|value| value.as_timestamp()).map(Timestamp::from);
        let updated_wall = document.get("updateWallClockTime")?.and_then(|value| value.as_datetime());
        Ok(Self { read, write, updated, updated_wall, read_here: Some(DateTime::now()) })
    }
}

/// See the file's header.
#[derive(Default)]
pub struct DefaultConcerns(ArcSwap<Defaults>);

impl DefaultConcerns {
    /// What was set, as last read.
    pub fn get(&self) -> Arc<Defaults> {
        self.0.load_full()
    }

    /// The write concern of a command that names none.
    pub fn write_concern(&self, topology: &Topology) -> WriteConcern {
        match &self.0.load().write {
            Some(concern) => concern.clone(),
            None => implicit_write_concern(topology),
        }
    }

    /// The read level of a command that names none.
    pub fn read_level(&self) -> ReadLevel {
        self.0.load().read.unwrap_or_default()
    }

    /// Reads it again.
    pub fn reload(&self, storage: &Storage) {
        match read(storage) {
            Ok(defaults) => self.0.store(Arc::new(defaults)),
            Err(error) => {
                tracing::warn!(target: "COMMAND", error = %error, "The default read and write concern cannot be read");
            }
        }
    }
}

/// MongoDB's own default.
pub fn implicit_write_concern(topology: &Topology) -> WriteConcern {
    if topology.majority_is_default() {
        WriteConcern::default()
    } else {
        WriteConcern { w: Acknowledgement::Members(1), ..WriteConcern::default() }
    }
}

fn read(storage: &Storage) -> Result<Defaults> {
    let record = record_key(RawBsonRef::String(DOCUMENT_ID))?;
    let found = storage.with_collection(&namespace()?, |collection| -> Result<Option<Defaults>> {
        let Some(collection) = collection else { return Ok(None) };
        storage.get(collection, &record)?.map(|stored| Defaults::parse(stored_document(&stored)?)).transpose()
    })?;
    Ok(found.unwrap_or(Defaults { read_here: Some(DateTime::now()), ..Defaults::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn what_was_set_is_read_and_what_was_not_is_absent() {
        let document = rawdoc! {
            "_id": DOCUMENT_ID, "defaultWriteConcern": { "w": 2, "wtimeout": 7 }, "defaultReadConcern": { "level": "majority" },
            "updateOpTime": bson::Timestamp { time: 3, increment: 1 },
        };
        let defaults = Defaults::parse(&document).unwrap();
        assert_eq!(defaults.read, Some(ReadLevel::Majority));
        let write = defaults.write.unwrap();
        assert_eq!(
            (write.w, write.timeout_ms, write.provenance),
            (Acknowledgement::Members(2), 7, Provenance::CustomDefault)
        );
        assert_eq!(Defaults::parse(&rawdoc! { "_id": 1 }).unwrap().write, None);
    }
}
