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
//! What it deliberately does not do: log. See `storage::replay`.

use super::{draw_uuid, temporary_name};
use crate::ddl::indexes;
use crate::server::{Operation, Server};
use baton_storage::{Collection, CollectionKind, CollectionOptions, Storage};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::sync::Arc;

/// The collection an entry means: that with its UUID.
pub fn meant(storage: &Storage, named: &Namespace, uuid: Option<[u8; 16]>) -> Option<Arc<Collection>> {
    match uuid {
        None => storage.collection(named),
        Some(uuid) => storage.catalog().by_uuid(uuid).cloned(),
    }
}

/// The same, or the view of its name: a view that was copied has another UUID than at its source.
pub fn meant_or_view(storage: &Storage, named: &Namespace, uuid: Option<[u8; 16]>) -> Option<Arc<Collection>> {
    let is_view = |found: &Arc<Collection>| found.kind == CollectionKind::View;
    meant(storage, named, uuid).or_else(|| storage.collection(named).filter(is_view))
}

/// Lets nothing but the collection with this UUID have the name.
fn make_room(storage: &Storage, name: &Namespace, uuid: Option<[u8; 16]>) -> Result<()> {
    match storage.collection(name) {
        None => Ok(()),
        Some(found) if Some(found.uuid) == uuid => Ok(()),
        Some(view) if view.kind == CollectionKind::View => storage.drop_collection(name).map(|_| ()),
        Some(_) => {
            let aside = temporary_name(name.db(), "aside")?;
            tracing::info!(target: "REPL", namespace = %name, aside = %aside, "A collection of a later time makes room");
            storage.rename_collection(name, &aside, false)
        }
    }
}

/// Creates a collection or view.
pub fn create(storage: &Storage, name: &Namespace, document: &RawDocument, uuid: Option<[u8; 16]>) -> Result<()> {
    let options = CollectionOptions::parse(document)?;
    let known = uuid.and_then(|uuid| storage.catalog().by_uuid(uuid).cloned());
    match known {
        Some(known) if options.view.is_none() && known.namespace == *name => Ok(()),
        Some(known) if options.view.is_none() => {
            make_room(storage, name, uuid)?;
            storage.rename_collection(&known.namespace, name, false)
        }
        _ => {
            // A view that is there has another definition, perhaps; it is made anew with that of the entry.
            make_room(storage, name, None)?;
            storage.create_collection(name, options, uuid.unwrap_or_else(draw_uuid)).map(|_| ())
        }
    }
}

/// Drops a collection or view.
pub fn drop(storage: &Storage, named: &Namespace, uuid: Option<[u8; 16]>) -> Result<()> {
    match meant_or_view(storage, named, uuid) {
        Some(found) => storage.drop_collection(&found.namespace).map(|_| ()),
        None => Ok(()),
    }
}

/// Gives a collection the name `to`; the entry's `dropTarget` says what had it then.
pub fn rename(
    server: &Server,
    (from, uuid): (&Namespace, Option<[u8; 16]>),
    to: &Namespace,
    drop_target: Option<RawBsonRef<'_>>,
) -> Result<()> {
    let storage = &server.storage;
    let target = match drop_target {
        Some(RawBsonRef::Binary(binary)) => <[u8; 16]>::try_from(binary.bytes).ok(),
        _ => None,
    };
    let target = target.filter(|target| Some(*target) != uuid);
    if let Some(target) = target.and_then(|target| storage.catalog().by_uuid(target).cloned())
        && target.namespace != *to
    {
        storage.drop_collection(&target.namespace)?;
    }
    let has_target = || storage.collection(to).is_some_and(|found| Some(found.uuid) == target);
    match meant(storage, from, uuid) {
        // Dropped later; what it took the name from is gone too.
        None if has_target() => {
            storage.drop_collection(to)?;
        }
        None => {}
        Some(source) if source.namespace == *to => {}
        Some(source) => {
            if !has_target() {
                make_room(storage, to, uuid)?;
            }
            storage.rename_collection(&source.namespace, to, has_target())?;
        }
    }
    server.counters.forget(from.as_str());
    server.counters.forget(to.as_str());
    Ok(())
}

/// Builds indexes that are not there. One that is in the way was built later: this one's end is still to come.
pub fn build_indexes(
    server: &Server,
    operation: &Operation,
    named: (&Namespace, Option<[u8; 16]>),
    specs: &[RawDocumentBuf],
) -> Result<()> {
    let Some(collection) = meant(&server.storage, named.0, named.1) else { return Ok(()) };
    for spec in specs {
        let built = indexes::build(
            &server.storage,
            &collection.namespace,
            std::slice::from_ref(spec),
            &mut |name, done, total| {
                operation.set_progress(format!("Index Build: {name}"), done, total);
                operation.check_interrupt()
            },
        );
        match built {
            Err(error) if is_in_the_way(&error) => {
                tracing::info!(target: "REPL", namespace = %collection.namespace, error = %error, "An index of a later time is in the way of one that is gone by then");
            }
            built => {
                built?;
            }
        }
    }
    Ok(())
}

fn is_in_the_way(error: &Error) -> bool {
    matches!(
        error.code,
        ErrorCode::IndexOptionsConflict
            | ErrorCode::IndexKeySpecsConflict
            | ErrorCode::IndexAlreadyExists
            | ErrorCode::CannotCreateIndex
    )
}
