//! Changes of the catalog that another member logged, carried out here: by UUID, and as often as one likes.
//!
//! A copy that an initial sync made is of no one moment: a collection may have its name of later, or be gone, before the entry
//! that says so is carried out.
//!
//! ```text
//!  log    b   create X (u1)   drop X (u1)   create X (u2)        the copy began at b and saw X (u2):
//!             └ u2 makes room, u1 is made   └ u1 goes            └ u2 takes its name again
//! ```
//!
//! Invariants:
//! - A UUID stands for one collection from its `create` to its `drop`, whatever its name. What has a name that an entry needs
//!   for another makes room: the entry that gives it that name is still to come.
//! - What asks for what is done already is done.
//! - Views have no data and none of these troubles: they go by their names, and a definition replaces another.
//!
//! - An entry is a fact: what it says is read by the function by which its logger made sure that it can be
//!   ([`LoggedCommand::parse`]), and what a client may ask for is not asked again.
//!
//! - What the set has is changed by who has the turn to follow alone: what is looked up here stays, without the catalog's guard.
//!
//! What it deliberately does not do: log. See `storage::replay`: what is written here is written on the entry's behalf.

use super::{draw_uuid, indexes, specification, temporary_name};
use crate::server::{Operation, Server};
use baton_consensus::index_build::{BuildInput, CommitQuorum};
use baton_storage::{
    BuildOfSet, Collection, CollectionKind, CollectionOptions, Held, IndexBuild, IndexDefinition, LoggedCommand,
    Modification, Storage, Writer,
};
use baton_types::{Error, ErrorCode, Namespace, Result};
use std::sync::Arc;

/// Carries the command of an entry out.
pub fn carry_out(
    server: &Server,
    writer: Writer<'_>,
    operation: &Operation,
    (target, uuid): (&Namespace, Option<[u8; 16]>),
    command: LoggedCommand,
) -> Result<()> {
    match command {
        LoggedCommand::Create(options) => create(writer, target, options, uuid),
        LoggedCommand::CreateIndexes(definitions) => build_indexes(writer, operation, (target, uuid), &definitions),
        LoggedCommand::DropIndex(name) => drop_index(writer, target, uuid, &name),
        LoggedCommand::Modify(modification) => modify(writer, target, uuid, &modification),
        LoggedCommand::Rename { to, drop_target } => rename(server, writer, (target, uuid), &to, drop_target),
        LoggedCommand::Drop => drop(writer, target, uuid),
        LoggedCommand::StartBuild { build, definitions, .. } => {
            start_build(server, writer, (target, uuid), &build, &definitions)
        }
        LoggedCommand::CommitBuild { build, definitions } => {
            commit_build(server, writer, operation, (target, uuid), build.uuid, &definitions)
        }
        LoggedCommand::AbortBuild { build, cause: (code, message), .. } => match uuid {
            Some(uuid) => writer.abort_build(uuid, build.uuid, &Error::new(code, message)).map(|_| ()),
            None => Ok(()),
        },
        // Every collection's drop was logged before; what is there was created later.
        LoggedCommand::DropDatabase | LoggedCommand::IndexBuildNote => Ok(()),
    }
}

/// The collection an entry means: that with its UUID.
fn meant(storage: &Storage, named: &Namespace, uuid: Option<[u8; 16]>) -> Option<Arc<Collection>> {
    match uuid {
        None => storage.collection(named),
        Some(uuid) => storage.catalog().by_uuid(uuid).cloned(),
    }
}

/// The same, or the view of its name: a view that was copied has another UUID than at its source.
fn meant_or_view(storage: &Storage, named: &Namespace, uuid: Option<[u8; 16]>) -> Option<Arc<Collection>> {
    let is_view = |found: &Arc<Collection>| found.kind == CollectionKind::View;
    meant(storage, named, uuid).or_else(|| storage.collection(named).filter(is_view))
}

/// Lets nothing but the collection with this UUID have the name.
fn make_room(writer: Writer<'_>, name: &Namespace, uuid: Option<[u8; 16]>) -> Result<()> {
    match writer.collection(name) {
        None => Ok(()),
        Some(found) if Some(found.uuid) == uuid => Ok(()),
        Some(view) if view.kind == CollectionKind::View => writer.drop_collection(name).map(|_| ()),
        Some(_) => {
            let aside = temporary_name(name.db(), "aside")?;
            tracing::info!(target: "REPL", namespace = %name, aside = %aside, "A collection of a later time makes room");
            writer.rename_collection(name, &aside, false)
        }
    }
}

/// Creates a collection or view.
fn create(writer: Writer<'_>, name: &Namespace, options: CollectionOptions, uuid: Option<[u8; 16]>) -> Result<()> {
    let known = uuid.and_then(|uuid| writer.catalog().by_uuid(uuid).cloned());
    match known {
        Some(known) if options.view.is_none() && known.namespace == *name => Ok(()),
        Some(known) if options.view.is_none() => {
            make_room(writer, name, uuid)?;
            writer.rename_collection(&known.namespace, name, false)
        }
        _ => {
            // A view that is there has another definition, perhaps; it is made anew with that of the entry.
            make_room(writer, name, None)?;
            writer.create_collection(name, options, uuid.unwrap_or_else(draw_uuid)).map(|_| ())
        }
    }
}

/// Drops a collection or view.
fn drop(writer: Writer<'_>, named: &Namespace, uuid: Option<[u8; 16]>) -> Result<()> {
    match meant_or_view(&writer, named, uuid) {
        Some(found) => writer.drop_collection(&found.namespace).map(|_| ()),
        None => Ok(()),
    }
}

/// Gives a collection the name `to`; the entry's `dropTarget` says what had it then.
fn rename(
    server: &Server,
    writer: Writer<'_>,
    (from, uuid): (&Namespace, Option<[u8; 16]>),
    to: &Namespace,
    drop_target: Option<[u8; 16]>,
) -> Result<()> {
    let target = drop_target.filter(|target| Some(*target) != uuid);
    if let Some(target) = target.and_then(|target| writer.catalog().by_uuid(target).cloned())
        && target.namespace != *to
    {
        writer.drop_collection(&target.namespace)?;
    }
    let has_target = || writer.collection(to).is_some_and(|found| Some(found.uuid) == target);
    match meant(&writer, from, uuid) {
        // Dropped later; what it took the name from is gone too.
        None if has_target() => {
            writer.drop_collection(to)?;
        }
        None => {}
        Some(source) if source.namespace == *to => {}
        Some(source) => {
            if !has_target() {
                make_room(writer, to, uuid)?;
            }
            writer.rename_collection(&source.namespace, to, has_target())?;
        }
    }
    server.counters.forget(from.as_str());
    server.counters.forget(to.as_str());
    Ok(())
}

/// Alters a collection or view as the entry says. What is gone was dropped later.
fn modify(writer: Writer<'_>, named: &Namespace, uuid: Option<[u8; 16]>, modification: &Modification) -> Result<()> {
    let catalog = writer.lock_catalog();
    let is_of_view = modification.options.get("viewOn")?.is_some();
    let known = uuid.and_then(|uuid| catalog.by_uuid(uuid));
    let held = known.or_else(|| {
        let is_meant = |held: &Held<'_>| uuid.is_none() || (is_of_view && held.kind == CollectionKind::View);
        catalog.collection(named).filter(is_meant)
    });
    match held.map_or(Ok(()), |held| held.modify(modification)) {
        Err(error) if error.code == ErrorCode::IndexNotFound => Ok(()),
        outcome => outcome,
    }
}

/// Drops an index, if it is there.
fn drop_index(writer: Writer<'_>, named: &Namespace, uuid: Option<[u8; 16]>, index: &str) -> Result<()> {
    writer.drop_indexes(|catalog| {
        let held = match uuid {
            Some(uuid) => catalog.by_uuid(uuid),
            None => catalog.collection(named),
        };
        let id = |held: &Held<'_>| held.index(index).map(|index| index.id);
        Ok(held.and_then(|held| id(&held).map(|id| (held, vec![id]))))
    })
}

/// Begins a build of the set, or gives one that is under way the quorum that the entry says. What is there already is not built: the
/// copy that this member began with is of a later time.
fn start_build(
    server: &Server,
    writer: Writer<'_>,
    (named, uuid): (&Namespace, Option<[u8; 16]>),
    build: &IndexBuild,
    definitions: &[IndexDefinition],
) -> Result<()> {
    let catalog = writer.lock_catalog();
    let held = match uuid {
        Some(uuid) => catalog.by_uuid(uuid),
        None => catalog.collection(named),
    };
    let Some(held) = held else { return Ok(()) };
    if held.set_commit_quorum(build)? {
        if let Some(running) = server.index_builds.find(build.uuid) {
            running.tell(BuildInput::Quorum(CommitQuorum::parse(build.commit_quorum.as_raw_bson_ref())?));
        }
        return Ok(());
    }
    let is_fresh = |definition: &&IndexDefinition| {
        !specification::is_id_pattern(definition.key_pattern())
            && matches!(indexes::compare(&indexes::documents(&held), &definition.document), Ok(false))
    };
    let fresh: Vec<IndexDefinition> = definitions.iter().filter(is_fresh).cloned().collect();
    if fresh.is_empty() {
        return Ok(());
    }
    held.start_build(build, &fresh, false)?;
    let (collection, namespace) = (held.uuid, held.namespace.clone());
    let of = BuildOfSet { collection, namespace, build: build.clone(), definitions: fresh };
    server.index_builds.enter(server, &of);
    Ok(())
}

/// Completes a build, if this member has built: those that voted have. A build that this member never began (its copy is of a time
/// before, by a source that knew of none) is made now.
///
/// # Errors
/// `IndexBuildAlreadyInProgress` (285) while it has not built: the entry is to be tried again.
fn commit_build(
    server: &Server,
    writer: Writer<'_>,
    operation: &Operation,
    (named, uuid): (&Namespace, Option<[u8; 16]>),
    build: [u8; 16],
    definitions: &[IndexDefinition],
) -> Result<()> {
    let under_way = writer.builds_of_set().into_iter().find(|of| of.build.uuid == build);
    if let Some(of) = under_way {
        let running = server.index_builds.enter(server, &of);
        running.tell(BuildInput::Committed);
        if !running.is_filled() || !writer.is_build_filled(&of) {
            let message = format!("the index build {} is not done here", bson::Uuid::from_bytes(build));
            return Err(Error::new(ErrorCode::IndexBuildAlreadyInProgress, message));
        }
        let catalog = writer.lock_catalog();
        if let Some(held) = catalog.by_uuid(of.collection)
            && held.commit_build(build)?
        {
            return Ok(());
        }
    }
    build_indexes(writer, operation, (named, uuid), definitions)
}

/// Builds indexes that are not there. One that is in the way was built later: this one's end is still to come. Nothing else is
/// asked: whoever logged the entry has.
fn build_indexes(
    writer: Writer<'_>,
    operation: &Operation,
    named: (&Namespace, Option<[u8; 16]>),
    definitions: &[IndexDefinition],
) -> Result<()> {
    let Some(collection) = meant(&writer, named.0, named.1) else { return Ok(()) };
    // The index on `_id` may have a name of its own; every collection has it.
    for definition in definitions.iter().filter(|definition| !specification::is_id_pattern(definition.key_pattern())) {
        let is_wanted = |held: &Held<'_>| match indexes::compare(&indexes::documents(held), &definition.document) {
            // One that is being built here ends first.
            Ok(is_there) => Ok(!is_there),
            Err(error) => {
                tracing::info!(target: "REPL", namespace = %held.namespace, error = %error, "An index of a later time is in the way of one that is gone by then");
                Ok(false)
            }
        };
        indexes::build_one(
            writer,
            collection.uuid,
            definition,
            is_wanted,
            &operation.interruption(),
            &mut |name, done, total| {
                operation.set_progress(format!("Index Build: {name}"), done, total);
                operation.check_interrupt()
            },
        )?;
    }
    Ok(())
}
