//! Indexes as commands see them: listing them, building several at once, dropping by name or key.
//!
//! Invariants: what is there is compared with what is wanted under the catalog's guard; a command builds all its indexes or none; one that is there already is not built again, and one that
//! differs from what is there under its name or on its key is refused (85, 86), as MongoDB tells them apart.

use super::builds::Running;
use super::options::same;
use super::{draw_uuid, refuse_view, specification};
use crate::server::{Operation, Server};
use baton_consensus::index_build::{BuildInput, CommitQuorum};
use baton_document::show::document as shown;
use baton_request::fields::is_truthy;
use baton_storage::{
    BuildOfSet, BuildPhase, Collection, CollectionKind, CollectionOptions, CreateOutcome, Held, ID_INDEX, Index,
    IndexBuild, IndexDefinition, IndexId, IndexState, Started, Storage, Writer,
};
use baton_types::{Error, ErrorCode, Interruption, Namespace, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::sync::Arc;
use std::time::Duration;

/// Indexes of one collection, at the most.
const INDEXES_MAX: usize = 64;
/// How long to wait between two looks at an index that somebody else builds.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Told how far a build is: the index's name, documents done, of how many. An error ends the build.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64) -> Result<()>;

/// The specifications of a collection's indexes, that on `_id` first.
pub fn documents(collection: &Collection) -> Vec<RawDocumentBuf> {
    match collection.kind {
        CollectionKind::Clustered | CollectionKind::Capped => {}
        CollectionKind::View | CollectionKind::Oplog => return Vec::new(),
    }
    let mut all = vec![collection.id_index()];
    let indexes = collection.indexes();
    all.extend(indexes.iter().filter(|i| i.definition.name != ID_INDEX).map(|index| index.definition.document.clone()));
    all
}

/// How many indexes a collection has, that on `_id` included.
pub fn count(collection: &Collection) -> i32 {
    documents(collection).len() as i32
}

/// What [`build`] did.
pub struct Built {
    /// Indexes before.
    pub before: i32,
    /// Indexes after.
    pub after: i32,
    /// Whether it made the collection.
    pub created_collection: bool,
    /// Whether what was sorted was more than little, and so went to the disk first.
    pub used_disk: bool,
}

/// The collection that is to get indexes, and whether it was made for them.
fn indexable(writer: Writer<'_>, namespace: &Namespace) -> Result<(Arc<Collection>, bool)> {
    let (collection, created_collection) = match writer.collection(namespace) {
        Some(collection) => (collection, false),
        None => match writer.create_collection(namespace, CollectionOptions::default(), draw_uuid())? {
            CreateOutcome::Created(collection) => (collection, true),
            CreateOutcome::Exists(collection) => (collection, false),
        },
    };
    refuse_view(&collection)?;
    if collection.kind == CollectionKind::Oplog {
        return Err(Error::new(ErrorCode::CannotCreateIndex, "cannot have an index on the oplog"));
    }
    Ok((collection, created_collection))
}

/// What building together with the set comes to next.
enum Next {
    Done,
    /// Somebody builds one of them alone.
    Later,
    /// This build is waited for, which was begun here or by somebody else.
    Await {
        of: BuildOfSet,
        is_own: bool,
    },
}

/// Builds the indexes of these normalised specifications on all members of the set, unless they are there. Returns when those
/// whom the commit quorum asks for have them. Who is killed, or out of time, ends the build that it began; if another member becomes
/// primary meanwhile, that one goes on with it.
///
/// # Errors
/// `InterruptedDueToReplStateChange` (11602) if this member is primary no more.
pub fn build_with_set(
    server: &Server,
    writer: Writer<'_>,
    operation: &Operation,
    namespace: &Namespace,
    specifications: &[RawDocumentBuf],
    quorum: &CommitQuorum,
) -> Result<Built> {
    let (collection, created_collection) = indexable(writer, namespace)?;
    let (before, mut used_disk) = (count(&collection), false);
    loop {
        match begin_or_find(writer, &collection, specifications, quorum)? {
            Next::Done => break,
            Next::Later => {
                operation.check_interrupt()?;
                std::thread::sleep(LOOK_AGAIN);
            }
            Next::Await { of, is_own } => {
                let build = server.index_builds.enter(server, &of);
                await_build(server, operation, &build, is_own)
                    .map_err(|error| of_build(&collection, of.build.uuid, error))?;
                used_disk |= build.used_disk();
            }
        }
    }
    let after = writer.catalog().by_uuid(collection.uuid).map_or(before, |collection| count(collection));
    Ok(Built { before, after, created_collection, used_disk })
}

fn begin_or_find(
    writer: Writer<'_>,
    collection: &Collection,
    specifications: &[RawDocumentBuf],
    quorum: &CommitQuorum,
) -> Result<Next> {
    let catalog = writer.lock_catalog();
    let gone = || {
        let message = format!("Index build aborted: {} was dropped", collection.namespace);
        Error::new(ErrorCode::IndexBuildAborted, message)
    };
    let held = catalog.by_uuid(collection.uuid).ok_or_else(gone)?;
    let mut fresh = Vec::new();
    for specification in missing(&held, specifications)? {
        let definition = IndexDefinition::parse(&specification)?;
        let Some(there) = held.index(&definition.name) else {
            fresh.push(definition);
            continue;
        };
        let Some(build) = there.build().cloned() else { return Ok(Next::Later) };
        let definitions = held.of_build(build.uuid).iter().map(|index| index.definition.clone()).collect();
        let of = BuildOfSet { collection: held.uuid, namespace: held.namespace.clone(), build, definitions };
        return Ok(Next::Await { of, is_own: false });
    }
    if fresh.is_empty() {
        return Ok(Next::Done);
    }
    let build = IndexBuild { uuid: draw_uuid(), commit_quorum: quorum.to_bson() };
    Ok(match held.start_build(&build, &fresh, true)? {
        Started::Complete => Next::Done,
        Started::Building => {
            let of = BuildOfSet { collection: held.uuid, namespace: held.namespace.clone(), build, definitions: fresh };
            Next::Await { of, is_own: true }
        }
    })
}

/// Waits until a build has ended.
fn await_build(server: &Server, operation: &Operation, build: &Running, is_own: bool) -> Result<()> {
    let mut killed = None;
    loop {
        if let Some(outcome) = build.wait() {
            return killed.map_or(outcome, Err);
        }
        let (message, done, total) = build.progress();
        operation.set_progress(message, done, total);
        if !server.topology.is_writable_primary() {
            let message = "operation was interrupted: another member becomes primary, and goes on with the index build";
            return Err(Error::new(ErrorCode::InterruptedDueToReplStateChange, message));
        }
        match operation.check_interrupt() {
            Ok(()) => {}
            Err(error) if !is_own || error.code == ErrorCode::InterruptedAtShutdown => return Err(error),
            Err(error) if killed.is_none() => {
                build.tell(BuildInput::Killed(error.clone()));
                killed = Some(error);
            }
            Err(_) => {}
        }
    }
}

/// Builds the indexes of these normalised specifications on this member alone, unless they are there.
pub fn build(
    writer: Writer<'_>,
    namespace: &Namespace,
    specifications: &[RawDocumentBuf],
    asked: &Arc<Interruption>,
    progress: Progress<'_>,
) -> Result<Built> {
    let (collection, created_collection) = indexable(writer, namespace)?;
    let (before, mut used_disk) = (count(&collection), false);
    let mut built: Vec<IndexId> = Vec::new();
    for specification in missing(&collection, specifications)? {
        let definition = IndexDefinition::parse(&specification)?;
        // What was decided above is decided again when the index is registered: others build and drop too.
        let is_wanted = |held: &Held<'_>| Ok(!missing(held, std::slice::from_ref(&specification))?.is_empty());
        let gone = || Error::new(ErrorCode::IndexBuildAborted, format!("Index build aborted: {namespace} was dropped"));
        let mut note_and_progress = |name: &str, done, total| {
            used_disk |= phase_of(&writer, collection.uuid, &definition.name) == Some(BuildPhase::Loading);
            progress(name, done, total)
        };
        match build_one(writer, collection.uuid, &definition, is_wanted, asked, &mut note_and_progress)
            .and_then(|built| built.ok_or_else(gone))
        {
            Ok(id) => built.extend(id),
            Err(error) => {
                take_back(writer, collection.uuid, built);
                return Err(of_build(&collection, draw_uuid(), error));
            }
        }
    }
    let after = writer.catalog().by_uuid(collection.uuid).map_or(before, |collection| count(collection));
    Ok(Built { before, after, created_collection, used_disk })
}

/// How far an index is.
fn phase_of(storage: &Storage, collection: [u8; 16], name: &str) -> Option<BuildPhase> {
    Some(storage.catalog().by_uuid(collection)?.index(name)?.phase())
}

/// A failure in MongoDB's words: what ended a build names it, and the collection; what was refused before does not.
fn of_build(collection: &Collection, build: [u8; 16], error: Error) -> Error {
    if matches!(
        error.code,
        ErrorCode::IndexOptionsConflict
            | ErrorCode::IndexKeySpecsConflict
            | ErrorCode::CannotCreateIndex
            | ErrorCode::NamespaceNotFound
            | ErrorCode::NotWritablePrimary
            | ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::NotImplemented
    ) {
        return error;
    }
    let uuid = |bytes| bson::Uuid::from_bytes(bytes).to_string();
    error.in_context(format!(
        "Index build failed: {}: Collection {} ( {} )",
        uuid(build),
        collection.namespace,
        uuid(collection.uuid)
    ))
}

/// Drops what a command that failed has built. By their ids: others may have built indexes of the same names since.
fn take_back(writer: Writer<'_>, collection: [u8; 16], built: Vec<IndexId>) {
    let left = writer.drop_indexes(|catalog| Ok(catalog.by_uuid(collection).map(|held| (held, built))));
    if let Err(left) = left {
        tracing::warn!(target: "INDEX", error = %left, "Indexes of a failed command stay");
    }
}

/// Builds one index, if it is wanted when its turn comes; one that somebody else is building is waited for. `None` if there is
/// no such collection, else the id, unless it is there already.
pub(super) fn build_one(
    writer: Writer<'_>,
    collection: [u8; 16],
    definition: &IndexDefinition,
    is_wanted: impl Fn(&Held<'_>) -> Result<bool>,
    asked: &Arc<Interruption>,
    progress: Progress<'_>,
) -> Result<Option<Option<IndexId>>> {
    let name = definition.name.as_str();
    loop {
        let (mut is_there, mut is_being_built) = (false, false);
        let built = writer.create_index_if(
            |catalog| {
                let Some(held) = catalog.by_uuid(collection) else { return Ok(None) };
                is_there = true;
                let is_wanted = is_wanted(&held)?;
                is_being_built = held.index(name).is_some_and(|index| index.state() == IndexState::Building);
                Ok((is_wanted && !is_being_built).then(|| (held, definition.clone())))
            },
            asked,
            &mut |done, total| {
                let phase = phase_of(&writer, collection, name).map_or("", super::builds::words_of);
                progress(&format!("{name}: {phase}"), done, total)
            },
        )?;
        if !is_being_built {
            return Ok(is_there.then_some(built));
        }
        progress(name, 0, 0)?;
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Those of the specifications that are not there complete. Refuses the ones that contradict what is there.
fn missing(collection: &Collection, specifications: &[RawDocumentBuf]) -> Result<Vec<RawDocumentBuf>> {
    let existing = documents(collection);
    let mut wanted: Vec<RawDocumentBuf> = Vec::new();
    for specification in specifications {
        let name = specification.get_str("name").map_err(|error| Error::failed_to_parse(error.to_string()))?;
        // Every collection has it, though a clustered one's may have a name of its own.
        if specification::is_id_pattern(specification.get_document("key")?) {
            continue;
        }
        if compare(&existing, specification)? {
            // One that somebody else is building is waited for.
            if collection.index(name).is_some_and(|index| index.state() == IndexState::Building) {
                wanted.push(specification.clone());
            }
            continue;
        }
        if compare(&wanted, specification)? {
            return Err(Error::new(ErrorCode::IndexAlreadyExists, format!("Identical index already exists: {name}")));
        }
        let is_ttl = specification.get("expireAfterSeconds")?.is_some();
        if is_ttl && collection.kind == CollectionKind::Capped {
            return Err(Error::new(ErrorCode::CannotCreateIndex, "Cannot create TTL index on a capped collection"));
        }
        check_text(existing.iter().chain(&wanted), specification)?;
        wanted.push(specification.clone());
        if existing.len() + wanted.len() > INDEXES_MAX {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                format!("add index fails, too many indexes for {} key:{}", collection.namespace, shown(specification)),
            ));
        }
    }
    Ok(wanted)
}

fn check_text<'a>(existing: impl Iterator<Item = &'a RawDocumentBuf>, specification: &RawDocument) -> Result<()> {
    let is_text = |document: &RawDocument| document.get_document("key").is_ok_and(|key| key.get_str("_fts").is_ok());
    if !is_text(specification) {
        return Ok(());
    }
    for other in existing {
        if is_text(other) {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                format!(
                    "only one text index per collection allowed, found existing text index \"{}\"",
                    other.get_str("name").unwrap_or_default()
                ),
            ));
        }
    }
    Ok(())
}

/// How alike two specifications are.
#[derive(PartialEq, Eq)]
enum Likeness {
    Different,
    /// The same key and the same documents covered, but other options.
    Equivalent,
    Identical,
}

fn likeness(a: &RawDocument, b: &RawDocument) -> Result<Likeness> {
    let both_same = |name: &str| -> Result<bool> {
        Ok(match (a.get(name)?, b.get(name)?) {
            (None, None) => true,
            (Some(a), Some(b)) => baton_document::order::compare(a, b).is_eq(),
            _ => false,
        })
    };
    let flag_same =
        |name: &str| -> Result<bool> { Ok(a.get(name)?.is_some_and(is_truthy) == b.get(name)?.is_some_and(is_truthy)) };
    let signature = both_same("key")?
        && both_same("weights")?
        && both_same("partialFilterExpression")?
        && flag_same("unique")?
        && flag_same("sparse")?;
    if !signature {
        return Ok(Likeness::Different);
    }
    for option in ["expireAfterSeconds", "default_language", "language_override", "bits", "min", "max"] {
        if !both_same(option)? {
            return Ok(Likeness::Equivalent);
        }
    }
    Ok(Likeness::Identical)
}

/// A specification with its fields in the order of MongoDB's messages.
fn in_order(specification: &RawDocument) -> RawDocumentBuf {
    const FIRST: [&str; 4] = ["v", "unique", "key", "name"];
    let mut fields: Vec<_> = specification.iter().flatten().collect();
    fields.sort_by_key(|(name, _)| FIRST.iter().position(|first| *first == name.as_str()).unwrap_or(FIRST.len()));
    let mut ordered = RawDocumentBuf::new();
    for (name, value) in fields {
        ordered.append(name, value);
    }
    ordered
}

/// Whether one of `existing` is the index that is wanted; an error if one stands in its way.
pub(super) fn compare(existing: &[RawDocumentBuf], wanted: &RawDocument) -> Result<bool> {
    let name = wanted.get_str("name").unwrap_or_default();
    let versus = |other: &RawDocument| {
        format!("Requested index: {}, existing index: {}", shown(&in_order(wanted)), shown(&in_order(other)))
    };
    if let Some(other) = existing.iter().find(|other| other.get_str("name").is_ok_and(|other| other == name)) {
        return match likeness(other, wanted)? {
            Likeness::Identical => Ok(true),
            Likeness::Equivalent => Err(Error::new(
                ErrorCode::IndexOptionsConflict,
                format!(
                    "An equivalent index already exists with the same name but different options. {}",
                    versus(other)
                ),
            )),
            Likeness::Different => Err(Error::new(
                ErrorCode::IndexKeySpecsConflict,
                format!(
                    "An existing index has the same name as the requested index. When index names are not specified, \
                     they are auto generated and can cause conflicts. Please refer to our documentation. {}",
                    versus(other)
                ),
            )),
        };
    }
    for other in existing {
        let why = match likeness(other, wanted)? {
            Likeness::Different => continue,
            Likeness::Equivalent => {
                format!("An equivalent index already exists with a different name and options. {}", versus(other))
            }
            Likeness::Identical => {
                format!("Index already exists with a different name: {}", other.get_str("name").unwrap_or_default())
            }
        };
        return Err(Error::new(ErrorCode::IndexOptionsConflict, why));
    }
    Ok(false)
}

/// The indexes that `dropIndexes` is to drop. `"*"` is all but that on `_id`. Of a build of several indexes that is under way all
/// are dropped, or none: `BackgroundOperationInProgressForNamespace` (12587).
pub fn selected(collection: &Collection, index: RawBsonRef<'_>) -> Result<Vec<IndexId>> {
    let chosen = chosen(collection, index)?;
    let indexes = collection.indexes();
    let build_of = |id: &IndexId| indexes.iter().find(|index| index.id == *id)?.build().map(|build| build.uuid);
    let builds: Vec<_> = chosen.iter().filter_map(build_of).collect();
    let is_left = |index: &&Arc<Index>| {
        index.build().is_some_and(|build| builds.contains(&build.uuid)) && !chosen.contains(&index.id)
    };
    if let Some(left) = indexes.iter().find(is_left) {
        let message = format!(
            "cannot perform operation: an index build is currently running for collection with UUID: {}. It makes '{}' too, so \
             that they are dropped together",
            bson::Uuid::from_bytes(collection.uuid),
            left.definition.name
        );
        return Err(Error::new(ErrorCode::BackgroundOperationInProgressForNamespace, message));
    }
    Ok(chosen)
}

fn chosen(collection: &Collection, index: RawBsonRef<'_>) -> Result<Vec<IndexId>> {
    match index {
        RawBsonRef::String("*") => Ok(all(collection)),
        RawBsonRef::String(name) => Ok(vec![by_name(collection, name)?]),
        RawBsonRef::Document(key) => Ok(vec![by_key(collection, key)?]),
        RawBsonRef::Array(all) => {
            let mut selected = Vec::new();
            for name in all {
                match name? {
                    RawBsonRef::String(name) => selected.push(by_name(collection, name)?),
                    other => {
                        return Err(baton_request::fields::wrong_type("dropIndexes", "index", other, &["string"]));
                    }
                }
            }
            Ok(selected)
        }
        other => Err(baton_request::fields::wrong_type("dropIndexes", "index", other, &["string", "object", "array"])),
    }
}

fn all(collection: &Collection) -> Vec<IndexId> {
    let indexes = collection.indexes();
    indexes.iter().filter(|index| index.definition.name != ID_INDEX).map(|index| index.id).collect()
}

fn by_name(collection: &Collection, name: &str) -> Result<IndexId> {
    if name == ID_INDEX || name == collection.id_index_name() {
        return Err(Error::new(ErrorCode::InvalidOptions, "cannot drop _id index"));
    }
    match collection.index(name) {
        Some(index) => Ok(index.id),
        None => Err(Error::new(ErrorCode::IndexNotFound, format!("index not found with name [{name}]"))),
    }
}

fn by_key(collection: &Collection, key: &RawDocument) -> Result<IndexId> {
    if specification::is_id_pattern(key) {
        return Err(Error::new(ErrorCode::InvalidOptions, "cannot drop _id index"));
    }
    let indexes = collection.indexes();
    let found: Vec<_> = indexes.iter().filter(|index| same(index.definition.key_pattern(), key)).collect();
    match found.as_slice() {
        [] => Err(Error::new(ErrorCode::IndexNotFound, format!("can't find index with key: {}", shown(key)))),
        [one] => Ok(one.id),
        several => Err(Error::new(
            ErrorCode::AmbiguousIndexKeyPattern,
            format!(
                "{} indexes found for key: {}, identify by name instead. Conflicting indexes: {}",
                several.len(),
                shown(key),
                several.iter().map(|index| index.definition.name.as_str()).collect::<Vec<_>>().join(", ")
            ),
        )),
    }
}
