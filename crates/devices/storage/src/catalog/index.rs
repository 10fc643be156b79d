//! One index of a collection: what it is, how far its build is, and what the catalog family has of it.
//!
//! Invariant: an index is its id. Altering its definition makes another object for it, which shares what is known of the index.

use crate::documents::format::IndexId;
use crate::documents::index::field_kinds;
use crate::documents::index_demands::{self, Demand};
use baton_document::path::Path;
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_types::{Error, Result};
use bson::raw::cstr;
use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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

    /// What the catalog family has of it.
    pub(crate) fn encode(&self, ready: bool) -> RawDocumentBuf {
        let mut entry = rawdoc! {
            "id": i64::from(self.id),
            "ready": ready,
            "multikey": self.multikey() as i64,
            "spec": self.definition.document.clone(),
        };
        if let Some(build) = self.build.as_ref().filter(|_| !ready) {
            entry.append(cstr!("build"), build.encode());
        }
        if let Some(side) = self.progress.side.filter(|_| !ready) {
            entry.append(cstr!("side"), i64::from(side));
            entry.append(cstr!("aside"), self.aside().is_some());
        }
        entry
    }

    /// The inverse of [`Self::encode`].
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
