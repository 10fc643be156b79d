//! What exists: collections, views and their indexes.
//!
//! Readers take an immutable map ([`Catalog`]) and never wait; DDL swaps in a new one. A collection's own index list is
//! swapped the same way.
//!
//! Invariants:
//! - The entry in the catalog family is what [`CatalogEntry::encode`] gave at the last commit that changed it. What an entry
//!   says is set by DDL alone ([`crate::CatalogGuard`]) and kept by the commit queue beside the collection; a writer that makes
//!   an index multikey has the entry written again as the queue has it, and not at all if the collection is gone by then.
//!
//! Not here: what a collection is created with ([`options`]), and its indexes ([`index`]).

mod index;
mod options;

pub(crate) use index::IndexProgress;
pub use index::{BuildPhase, Index, IndexBuild, IndexDefinition, IndexFieldKind, IndexState};
pub use options::{CollectionOptions, replaced};

use crate::critical::CriticalRwLock;
use crate::ddl::copy::Copies;
use crate::documents::capped::Starts;
use crate::documents::counters::{Counters, Counts};
use crate::documents::format::{CollectionId, IndexId};
use arc_swap::ArcSwap;
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::cstr;
use bson::{Bson, RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Name of the index on `_id`.
pub const ID_INDEX: &str = "_id_";

/// All collections and views, by name. Immutable; ask [`crate::Storage::catalog`] for the newest.
#[derive(Default, Clone)]
pub struct Catalog {
    by_namespace: BTreeMap<Namespace, Arc<Collection>>,
}

impl Catalog {
    /// The collection or view of this name.
    pub fn get(&self, namespace: &Namespace) -> Option<&Arc<Collection>> {
        self.by_namespace.get(namespace)
    }

    /// The collection with this UUID.
    pub fn by_uuid(&self, uuid: [u8; 16]) -> Option<&Arc<Collection>> {
        self.by_namespace.values().find(|collection| collection.uuid == uuid)
    }

    /// All, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.by_namespace.values()
    }

    /// Those of one database, in order of their names.
    pub fn database<'a>(&'a self, db: &'a str) -> impl Iterator<Item = &'a Arc<Collection>> {
        self.iter().filter(move |collection| collection.namespace.db() == db)
    }

    /// Names of databases that hold something, in order.
    pub fn databases(&self) -> Vec<String> {
        let mut names: Vec<String> = self.iter().map(|collection| collection.namespace.db().to_owned()).collect();
        names.dedup();
        names
    }

    pub(crate) fn insert(&mut self, collection: Arc<Collection>) {
        self.by_namespace.insert(collection.namespace.clone(), collection);
    }

    pub(crate) fn remove(&mut self, namespace: &Namespace) {
        self.by_namespace.remove(namespace);
    }
}

/// What a name in the catalog stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionKind {
    /// Documents clustered by `_id`.
    Clustered,
    /// Documents in the order they came, the oldest dropped when there are too many.
    Capped,
    /// A pipeline over another collection.
    View,
    /// `local.oplog.rs`: the oplog family, read-only.
    Oplog,
}

/// One collection or view.
pub struct Collection {
    /// Its place on disk.
    pub id: CollectionId,
    /// Its name.
    pub namespace: Namespace,
    /// Its UUID: survives a rename, not a drop.
    pub uuid: [u8; 16],
    /// What it is.
    pub kind: CollectionKind,
    /// What it was created with.
    pub options: CollectionOptions,
    /// The parsed validator.
    pub validator: Option<Matcher>,
    pub(crate) indexes: Arc<ArcSwap<Vec<Arc<Index>>>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) shared: Arc<Shared>,
}

/// What a renamed or altered collection shares with the one it was.
pub(crate) struct Shared {
    /// What the commit queue last wrote into the catalog family; `None` before, and once it is dropped.
    pub(crate) entry: Mutex<Option<CatalogEntry>>,
    /// Read-held by writers for one operation; write-held by DDL.
    pub(crate) ddl: CriticalRwLock,
    /// The next record key of a capped collection.
    pub(crate) next_sequence: AtomicU64,
    /// Copies of it that are under way, for which changes of its documents are noted.
    pub(crate) copies: Copies,
    /// Where a capped collection begins.
    pub(crate) starts: Starts,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            entry: Mutex::default(),
            ddl: CriticalRwLock::new("a change of a collection"),
            next_sequence: AtomicU64::new(0),
            copies: Copies::default(),
            starts: Starts::default(),
        }
    }
}

impl Collection {
    pub(crate) fn new(
        id: CollectionId,
        namespace: Namespace,
        uuid: [u8; 16],
        options: CollectionOptions,
    ) -> Result<Self> {
        let kind = match (&options.view, &options.capped) {
            (Some(_), _) => CollectionKind::View,
            (None, Some(_)) => CollectionKind::Capped,
            (None, None) => CollectionKind::Clustered,
        };
        let validator = match &options.validator {
            Some((document, _)) => Some(Matcher::parse(document, &Context::new(bson::DateTime::from_millis(0), 0))?),
            None => None,
        };
        Ok(Self {
            id,
            namespace,
            uuid,
            kind,
            options,
            validator,
            indexes: Arc::new(ArcSwap::from_pointee(Vec::new())),
            counters: Arc::new(Counters::default()),
            shared: Arc::new(Shared::default()),
        })
    }

    /// The same collection under another name or with other options.
    pub(crate) fn altered(&self, namespace: Namespace, options: CollectionOptions) -> Result<Self> {
        let fresh = Self::new(self.id, namespace, self.uuid, options)?;
        Ok(Self {
            indexes: Arc::clone(&self.indexes),
            counters: Arc::clone(&self.counters),
            shared: Arc::clone(&self.shared),
            ..fresh
        })
    }

    /// Whether it was dropped since it was looked up. A reader from before finds what was there then, for a while.
    pub fn is_dropped(&self) -> bool {
        self.kind != CollectionKind::Oplog && self.shared.entry.lock().is_none()
    }

    /// Documents and their bytes.
    pub fn counts(&self) -> Counts {
        self.counters.get()
    }

    /// All indexes but the clustered one on `_id`, in order of creation; those being built too.
    pub fn indexes(&self) -> Arc<Vec<Arc<Index>>> {
        self.indexes.load_full()
    }

    /// The index of this name.
    pub fn index(&self, name: &str) -> Option<Arc<Index>> {
        self.indexes.load().iter().find(|index| index.definition.name == name).cloned()
    }

    /// The specification of this collection's index on `_id`: as `clusteredIndex` named it, if that option was given.
    pub fn id_index(&self) -> RawDocumentBuf {
        match self.options.document.get_document("clusteredIndex") {
            Ok(given) => {
                let mut document = given.to_owned();
                document.append(cstr!("clustered"), true);
                document
            }
            Err(_) => Self::id_index_document(),
        }
    }

    /// The name of this collection's index on `_id`.
    pub fn id_index_name(&self) -> &str {
        let given = self.options.document.get_document("clusteredIndex").and_then(|given| given.get_str("name"));
        given.unwrap_or(ID_INDEX)
    }

    /// The specification of the index on `_id` where no option changes it.
    pub fn id_index_document() -> RawDocumentBuf {
        rawdoc! { "v": 2, "key": { "_id": 1 }, "name": ID_INDEX }
    }

    /// The catalog entry of the collection as it is, with these indexes.
    pub(crate) fn entry(&self, indexes: &[Arc<Index>]) -> CatalogEntry {
        let indexes =
            indexes.iter().map(|index| (Arc::clone(index), index.state() == IndexState::Ready)).collect::<Vec<_>>();
        CatalogEntry {
            namespace: self.namespace.clone(),
            uuid: self.uuid,
            options: self.options.document.clone(),
            indexes,
        }
    }

    /// The inverse of [`CatalogEntry::encode`].
    pub(crate) fn decode(id: CollectionId, bytes: &[u8], counts: Counts) -> Result<Self> {
        let broken = |what: &str| {
            Error::new(
                ErrorCode::InternalError,
                format!(
                    "The catalog entry {id} has no valid '{what}'. Empty this member's data directory and start it again: it copies the set's data"
                ),
            )
        };
        let entry = RawDocument::from_bytes(bytes).map_err(|_| broken("document"))?;
        let namespace = Namespace::parse(entry.get_str("ns").map_err(|_| broken("ns"))?)?;
        let uuid = entry.get_binary("uuid").ok().and_then(|b| b.bytes.try_into().ok()).ok_or_else(|| broken("uuid"))?;
        let options = CollectionOptions::parse(entry.get_document("options").map_err(|_| broken("options"))?)?;
        let collection = Self::new(id, namespace, uuid, options)?;
        collection.counters.set(counts);
        let mut indexes = Vec::new();
        for element in entry.get_array("indexes").map_err(|_| broken("indexes"))? {
            let element = element?.as_document().ok_or_else(|| broken("indexes"))?;
            indexes.push(Arc::new(Index::decode(element).map_err(|_| broken("indexes"))?));
        }
        *collection.shared.entry.lock() = Some(collection.entry(&indexes));
        collection.indexes.store(Arc::new(indexes));
        Ok(collection)
    }

    /// The UUID as a BSON value.
    pub fn uuid_bson(&self) -> Bson {
        Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: self.uuid.to_vec() })
    }
}

/// What the catalog family has of one collection.
pub(crate) struct CatalogEntry {
    namespace: Namespace,
    uuid: [u8; 16],
    options: RawDocumentBuf,
    /// Each with whether it is complete: an index is so in memory a moment before.
    indexes: Vec<(Arc<Index>, bool)>,
}

impl CatalogEntry {
    /// The same, with this index complete.
    pub(crate) fn completed(mut self, id: IndexId) -> Self {
        self.indexes.iter_mut().filter(|(index, _)| index.id == id).for_each(|(_, ready)| *ready = true);
        self
    }

    /// The value in the catalog family.
    pub(crate) fn encode(&self) -> RawDocumentBuf {
        let mut indexes = RawArrayBuf::new();
        self.indexes.iter().for_each(|(index, ready)| indexes.push(index.encode(*ready)));
        let mut entry = rawdoc! { "ns": self.namespace.as_str() };
        entry.append(
            cstr!("uuid"),
            bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: self.uuid.to_vec() },
        );
        entry.append(cstr!("options"), self.options.clone());
        entry.append(cstr!("indexes"), indexes);
        entry
    }
}

impl Collection {
    /// Id of the oplog's collection: no other has it, and it has no keys of its own in the documents family.
    const OPLOG_ID: CollectionId = 0;

    /// `local.oplog.rs`.
    pub(crate) fn oplog(bytes_max: u64) -> Result<Self> {
        let size = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        let options = CollectionOptions::parse(&rawdoc! { "capped": true, "size": size, "autoIndexId": false })?;
        let namespace = Namespace::new("local", "oplog.rs")?;
        let mut collection = Self::new(Self::OPLOG_ID, namespace, *b"baton-oplog-uuid", options)?;
        collection.kind = CollectionKind::Oplog;
        Ok(collection)
    }
}
