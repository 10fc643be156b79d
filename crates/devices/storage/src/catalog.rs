//! What exists: collections, views and their indexes.
//!
//! Readers take an immutable map ([`Catalog`]) and never wait; DDL swaps in a new one. A collection's own index list is
//! swapped the same way.
//!
//! Invariants:
//! - The entry in the catalog family is what [`CatalogEntry::encode`] gave at the last commit that changed it. What an entry
//!   says is set by DDL alone ([`crate::CatalogGuard`]) and kept by the commit queue beside the collection; a writer that makes
//!   an index multikey has the entry written again as the queue has it, and not at all if the collection is gone by then.
//! - An index is its id. Altering its definition makes another object for it, which shares what is known of the index.

use crate::capped::Starts;
use crate::copy::Copies;
use crate::counters::{Counters, Counts};
use crate::critical::CriticalRwLock;
use crate::format::{CollectionId, IndexId};
use crate::index::field_kinds;
use crate::index_demands::{self, Demand};
use arc_swap::ArcSwap;
use baton_document::path::Path;
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::cstr;
use bson::{Bson, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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

/// What `create` and `collMod` set.
#[derive(Clone, Debug, Default)]
pub struct CollectionOptions {
    /// The options document, as `listCollections` shows it.
    pub document: RawDocumentBuf,
    /// Bytes and (if limited) documents of a capped collection.
    pub capped: Option<(i64, Option<i64>)>,
    /// Source collection and pipeline of a view.
    pub view: Option<(String, Vec<RawDocumentBuf>)>,
    /// The validator, and whether violations are errors (else warnings).
    pub validator: Option<(RawDocumentBuf, bool)>,
    /// Whether existing invalid documents may be updated (`validationLevel: "moderate"`).
    pub validation_moderate: bool,
    /// Whether it is the scratch of one operation (`temp: true`): a rename makes it lasting, a restart drops it.
    pub temporary: bool,
}

impl CollectionOptions {
    /// Reads and checks an options document.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        let mut options = Self { document: document.to_owned(), ..Self::default() };
        options.temporary = matches!(document.get("temp")?, Some(RawBsonRef::Boolean(true)));
        let number = |name: &str| -> Result<Option<i64>> {
            match document.get(name)? {
                None => Ok(None),
                Some(RawBsonRef::Int32(n)) => Ok(Some(n.into())),
                Some(RawBsonRef::Int64(n)) => Ok(Some(n)),
                Some(RawBsonRef::Double(n)) => Ok(Some(n as i64)),
                Some(_) => Err(Error::type_mismatch(format!("BSON field 'create.{name}' must be a number"))),
            }
        };
        if matches!(document.get("capped")?, Some(RawBsonRef::Boolean(true))) {
            let Some(bytes) = number("size")?.filter(|bytes| *bytes > 0) else {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "the 'size' field is required when 'capped' is true",
                ));
            };
            options.capped = Some((bytes.max(4096), number("max")?.filter(|max| *max > 0)));
        }
        if let Some(on) = document.get("viewOn")? {
            let on = on.as_str().ok_or_else(|| Error::type_mismatch("'viewOn' must be a string"))?;
            let mut pipeline = Vec::new();
            if let Some(stages) = document.get("pipeline")? {
                let stages = stages.as_array().ok_or_else(|| Error::type_mismatch("'pipeline' must be an array"))?;
                for stage in stages {
                    let stage = stage?.as_document().ok_or_else(|| {
                        Error::type_mismatch("Each element of the 'pipeline' array must be an object")
                    })?;
                    pipeline.push(stage.to_owned());
                }
            }
            options.view = Some((on.to_owned(), pipeline));
        }
        if let Some(validator) = document.get("validator")?.and_then(|v| v.as_document())
            && !validator.is_empty()
            && document.get("validationLevel")?.and_then(|v| v.as_str()) != Some("off")
        {
            let strict = document.get("validationAction")?.and_then(|v| v.as_str()) != Some("warn");
            options.validator = Some((validator.to_owned(), strict));
            options.validation_moderate = document.get("validationLevel")?.and_then(|v| v.as_str()) == Some("moderate");
        }
        Ok(options)
    }

    /// The same for a collection that is temporary, or no longer is.
    pub fn with_temporary(&self, temporary: bool) -> Result<Self> {
        let mut document = RawDocumentBuf::new();
        for element in self.document.iter() {
            let (name, value) = element?;
            if name != "temp" {
                document.append(name, value);
            }
        }
        if temporary {
            document.append(cstr!("temp"), true);
        }
        Ok(Self { document, temporary, ..self.clone() })
    }
}

/// `document` with the fields of `changes` in place of its own of their names, or added, and without those in `removed`.
pub fn replaced(document: &RawDocument, changes: &RawDocument, removed: &[&str]) -> Result<RawDocumentBuf> {
    let mut out = RawDocumentBuf::new();
    for element in document {
        let (name, value) = element?;
        if !removed.contains(&name.as_str()) {
            out.append(name, changes.get(name.as_str())?.unwrap_or(value));
        }
    }
    for element in changes {
        let (name, value) = element?;
        if document.get(name.as_str())?.is_none() {
            out.append(name, value);
        }
    }
    Ok(out)
}

/// How far along an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// Being built ([`BuildPhase`] tells how far): not for queries.
    Building,
    /// Complete.
    Ready,
}

/// How far an index is that is being built. What the catalog has on disk is whether entries lie aside; the rest is found out anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuildPhase {
    /// Documents are read and their entries sorted; what writers change is set aside.
    Scanning,
    /// The sorted entries are put into the index; what writers change is set aside.
    Loading,
    /// Writers change the index itself; what was set aside before is brought into it.
    Draining,
    /// The index has what the documents give, and writers ask it whether keys are unique.
    Checking,
}

impl BuildPhase {
    const ALL: [Self; 4] = [Self::Scanning, Self::Loading, Self::Draining, Self::Checking];
}

/// What one field of an index does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFieldKind {
    /// Values in their order.
    Ascending,
    /// Values in the opposite order.
    Descending,
    /// Values' hashes.
    Hashed,
    /// A definition kept without entries (`text`, `2d`, `2dsphere`), until it can be searched.
    Unsearchable,
}

/// The checked definition of an index.
#[derive(Clone)]
pub struct IndexDefinition {
    /// Its name within the collection.
    pub name: String,
    /// The specification as `listIndexes` shows it.
    pub document: RawDocumentBuf,
    /// Field paths with what the index does with them.
    pub fields: Vec<(Path, IndexFieldKind)>,
    /// The paths alone.
    pub paths: Vec<Path>,
    /// Whether two documents may not share a key.
    pub unique: bool,
    /// Whether documents without any of the fields are left out.
    pub sparse: bool,
    /// Which documents it covers, if not all.
    pub partial: Option<Arc<Matcher>>,
    /// Whether the planner overlooks it.
    pub hidden: bool,
    /// Seconds after the field's date when a document expires.
    pub expire_after_secs: Option<i64>,
    /// What it asks of documents beside its entries.
    pub(crate) demands: Vec<Demand>,
}

impl IndexDefinition {
    /// Reads a specification that the command has normalised: `v`, `key`, `name` and options.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        let flag = |name: &str| -> Result<bool> {
            Ok(match document.get(name)? {
                Some(RawBsonRef::Boolean(value)) => value,
                Some(RawBsonRef::Int32(value)) => value != 0,
                Some(RawBsonRef::Int64(value)) => value != 0,
                Some(RawBsonRef::Double(value)) => value != 0.0,
                _ => false,
            })
        };
        let partial = match document.get("partialFilterExpression")?.and_then(|filter| filter.as_document()) {
            Some(filter) => Some(Arc::new(Matcher::parse(filter, &Context::new(bson::DateTime::from_millis(0), 0))?)),
            None => None,
        };
        let expire_after_secs = match document.get("expireAfterSeconds")? {
            Some(RawBsonRef::Int32(secs)) => Some(secs.into()),
            Some(RawBsonRef::Int64(secs)) => Some(secs),
            Some(RawBsonRef::Double(secs)) => Some(if secs.is_nan() { i64::from(i32::MAX) } else { secs as i64 }),
            _ => None,
        };
        let fields = field_kinds(document.get_document("key").map_err(|e| Error::failed_to_parse(e.to_string()))?)?;
        Ok(Self {
            name: document.get_str("name").map_err(|e| Error::failed_to_parse(e.to_string()))?.to_owned(),
            paths: fields.iter().map(|(path, _)| path.clone()).collect(),
            fields,
            unique: flag("unique")?,
            sparse: flag("sparse")?,
            hidden: flag("hidden")?,
            partial,
            expire_after_secs,
            demands: index_demands::demands(document)?,
            document: document.to_owned(),
        })
    }

    /// The key pattern, as given.
    pub fn key_pattern(&self) -> &RawDocument {
        self.document.get_document("key").unwrap_or_else(|_| unreachable!("checked by parse"))
    }
}

/// A build of the set: all its members make the same indexes under the same UUID.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexBuild {
    /// `indexBuildUUID`.
    pub uuid: [u8; 16],
    /// `commitQuorum`: how many members must have built before any completes.
    pub commit_quorum: RawBson,
}

/// One index of a collection.
pub struct Index {
    /// Its place on disk.
    pub id: IndexId,
    /// What it is.
    pub definition: IndexDefinition,
    progress: Arc<IndexProgress>,
    /// The build of the set that it comes from, if it is one's.
    build: Option<IndexBuild>,
    /// Uses by queries since the start, and since when: `$indexStats`.
    pub uses: AtomicU64,
}

/// What an index shares with the one it was before its definition was altered.
pub(crate) struct IndexProgress {
    ready: AtomicBool,
    /// Bit i: some document has an array on the path of field i. Only ever gains bits.
    multikey: AtomicU64,
    /// A [`BuildPhase`]; of a complete index the last.
    phase: AtomicU8,
    /// While it is built: below which id it lies what was changed and set aside.
    side: Option<IndexId>,
    /// How many entries were put in when it was built, once they were; 0 if a restart has forgotten that.
    loaded: AtomicU64,
}

impl IndexProgress {
    fn new(state: IndexState, phase: BuildPhase, side: Option<IndexId>) -> Arc<Self> {
        let ready = AtomicBool::new(state == IndexState::Ready);
        Arc::new(Self {
            ready,
            multikey: AtomicU64::new(0),
            phase: AtomicU8::new(phase as u8),
            side,
            loaded: AtomicU64::new(0),
        })
    }
}

impl Index {
    fn with(id: IndexId, definition: IndexDefinition, progress: Arc<IndexProgress>, build: Option<IndexBuild>) -> Self {
        Self { id, definition, progress, build, uses: AtomicU64::new(0) }
    }

    /// One that is complete.
    pub(crate) fn complete(id: IndexId, definition: IndexDefinition) -> Self {
        let progress = IndexProgress::new(IndexState::Ready, BuildPhase::Checking, None);
        Self::with(id, definition, progress, None)
    }

    /// One that is to be built, by a build of the set or by who waits for it; `side` is for what is set aside.
    pub(crate) fn to_build(
        (id, side): (IndexId, IndexId),
        definition: IndexDefinition,
        build: Option<IndexBuild>,
    ) -> Self {
        let progress = IndexProgress::new(IndexState::Building, BuildPhase::Scanning, Some(side));
        Self::with(id, definition, progress, build)
    }

    /// The same as this build had it, before it was complete: it has all its entries.
    pub(crate) fn reopened(&self, build: &IndexBuild) -> Self {
        let progress = IndexProgress::new(IndexState::Building, BuildPhase::Draining, None);
        progress.add_multikey(self.multikey());
        Self::with(self.id, self.definition.clone(), progress, Some(build.clone()))
    }

    /// The same that is built, from the beginning and under other ids: what the old ones have is not what the documents give.
    pub(crate) fn begun_anew(&self, ids: (IndexId, IndexId)) -> Self {
        let index = Self::to_build(ids, self.definition.clone(), self.build.clone());
        index.progress.add_multikey(self.multikey());
        index
    }

    /// The inverse of [`CatalogEntry::encode_index`].
    pub(crate) fn decode(entry: &RawDocument) -> Result<Self> {
        let definition = IndexDefinition::parse(entry.get_document("spec")?)?;
        let build = entry.get("build")?.and_then(|build| IndexBuild::decode(build.as_document()?));
        let progress = if entry.get_bool("ready")? {
            IndexProgress::new(IndexState::Ready, BuildPhase::Checking, None)
        } else {
            let side = entry.get("side")?.and_then(|side| side.as_i64()).map(|side| side as IndexId);
            let is_aside = matches!(entry.get("aside")?, Some(RawBsonRef::Boolean(true)));
            let phase = if is_aside { BuildPhase::Scanning } else { BuildPhase::Draining };
            IndexProgress::new(IndexState::Building, phase, side)
        };
        progress.add_multikey(entry.get_i64("multikey")? as u64);
        Ok(Self::with(entry.get_i64("id")? as IndexId, definition, progress, build))
    }

    /// The same index by another definition, on the same key.
    pub(crate) fn altered(&self, definition: IndexDefinition) -> Self {
        Self::with(self.id, definition, Arc::clone(&self.progress), self.build.clone())
    }

    /// The same, with the commit quorum of this build if it is the one that makes it.
    pub(crate) fn with_quorum_of(self: &Arc<Self>, build: &IndexBuild) -> Arc<Self> {
        if !self.is_of_build(build.uuid) {
            return Arc::clone(self);
        }
        Arc::new(Self { build: Some(build.clone()), ..self.altered(self.definition.clone()) })
    }

    /// The build of the set that makes it, until it is complete.
    pub fn build(&self) -> Option<&IndexBuild> {
        self.build.as_ref().filter(|_| self.state() == IndexState::Building)
    }

    /// Whether that is this one.
    pub(crate) fn is_of_build(&self, build: [u8; 16]) -> bool {
        self.build().is_some_and(|own| own.uuid == build)
    }

    /// Whether queries may use it.
    pub fn state(&self) -> IndexState {
        if self.progress.ready.load(Ordering::Acquire) { IndexState::Ready } else { IndexState::Building }
    }

    pub(crate) fn set_ready(&self) {
        self.progress.ready.store(true, Ordering::Release);
    }

    /// How far its build is; of a complete index the last phase.
    pub fn phase(&self) -> BuildPhase {
        BuildPhase::ALL[usize::from(self.progress.phase.load(Ordering::Acquire))]
    }

    /// While no writer is under way, unless it is from the first phase to the second.
    pub(crate) fn set_phase(&self, phase: BuildPhase) {
        self.progress.phase.store(phase as u8, Ordering::Release);
    }

    /// Below which id lies what is set aside while it is built.
    pub(crate) fn side(&self) -> Option<IndexId> {
        self.progress.side.filter(|_| self.state() == IndexState::Building)
    }

    /// Where writers note what they change of its entries, if that is not in the index itself.
    pub(crate) fn aside(&self) -> Option<IndexId> {
        self.side().filter(|_| self.phase() < BuildPhase::Draining)
    }

    /// How many entries its build put in, if that is known.
    pub(crate) fn loaded(&self) -> Option<u64> {
        Some(self.progress.loaded.load(Ordering::Relaxed)).filter(|loaded| *loaded > 0)
    }

    pub(crate) fn set_loaded(&self, entries: u64) {
        self.progress.loaded.store(entries, Ordering::Relaxed);
    }

    /// Whether who adds an entry asks it whether another document has the key.
    pub(crate) fn keeps_unique(&self) -> bool {
        self.definition.unique && self.phase() == BuildPhase::Checking
    }

    /// Which fields some document has an array on, as bits.
    pub fn multikey(&self) -> u64 {
        self.progress.multikey.load(Ordering::Acquire)
    }

    /// What [`IndexProgress::add_multikey`] is asked of, if any of these bits is not set yet.
    pub(crate) fn lacking(&self, bits: u64) -> Option<Arc<IndexProgress>> {
        (bits & !self.multikey() != 0).then(|| Arc::clone(&self.progress))
    }
}

impl IndexProgress {
    /// Adds multikey bits: by the commit queue alone, with the entries that make the index so, and before they are readable. What
    /// is abandoned or refused leaves no bit behind that is in memory and not on disk.
    pub(crate) fn add_multikey(&self, bits: u64) {
        self.multikey.fetch_or(bits, Ordering::AcqRel);
    }
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

impl IndexBuild {
    fn encode(&self) -> RawDocumentBuf {
        let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: self.uuid.to_vec() };
        rawdoc! { "uuid": uuid, "commitQuorum": self.commit_quorum.clone() }
    }

    fn decode(build: &RawDocument) -> Option<Self> {
        let uuid = build.get_binary("uuid").ok()?.bytes.try_into().ok()?;
        Some(Self { uuid, commit_quorum: build.get("commitQuorum").ok()??.into() })
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

    /// What it says of an index.
    pub(crate) fn encode_index(index: &Index, ready: bool) -> RawDocumentBuf {
        let mut entry = rawdoc! {
            "id": i64::from(index.id),
            "ready": ready,
            "multikey": index.multikey() as i64,
            "spec": index.definition.document.clone(),
        };
        if let Some(build) = index.build.as_ref().filter(|_| !ready) {
            entry.append(cstr!("build"), build.encode());
        }
        if let Some(side) = index.progress.side.filter(|_| !ready) {
            entry.append(cstr!("side"), i64::from(side));
            entry.append(cstr!("aside"), index.aside().is_some());
        }
        entry
    }

    /// The value in the catalog family.
    pub(crate) fn encode(&self) -> RawDocumentBuf {
        let mut indexes = RawArrayBuf::new();
        self.indexes.iter().for_each(|(index, ready)| indexes.push(Self::encode_index(index, *ready)));
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
