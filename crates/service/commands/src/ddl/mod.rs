//! What the commands on collections and indexes share: options, view definitions, index specifications, figures, and the
//! changes themselves where a command and `applyOps` both make them.
//!
//! What it deliberately does not do: change the catalog. That is `baton-storage`.

#[cfg(test)]
mod agreement_tests;
pub mod builds;
#[cfg(test)]
mod builds_tests;
pub mod indexes;
pub mod options;
pub mod replayed;
#[cfg(test)]
mod rollback_tests;
pub mod special_indexes;
pub mod specification;
pub mod statistics;
#[cfg(test)]
mod tests;
pub mod views;

use crate::call::{Call, Reply};
use crate::crud::cursor::{self, Opening};
use baton_execution::{Aggregation, Draw, SystemDraw};
use baton_query::Context;
use baton_request::fields::wrong_type;
use baton_storage::{
    CatalogGuard, Collection, CollectionKind, CollectionOptions, CreateOutcome, Held, Storage, Writer,
};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawBsonRef, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;

/// The surroundings of what is kept: filters and pipelines in the catalog have no request of their own.
pub fn stored_context() -> Context {
    Context::new(bson::DateTime::from_millis(0), 0)
}

/// A UUID for a new collection.
pub fn draw_uuid() -> [u8; 16] {
    SystemDraw.uuid()
}

/// `CommandNotSupportedOnView` (166) for a view.
pub fn refuse_view(collection: &Collection) -> Result<()> {
    if collection.kind == CollectionKind::View {
        return Err(Error::new(
            ErrorCode::CommandNotSupportedOnView,
            format!("Namespace {} is a view, not a collection", collection.namespace),
        ));
    }
    Ok(())
}

/// The collection of this name: `NamespaceNotFound` (26) with MongoDB's words if there is none, 166 if it is a view.
pub fn existing_collection(storage: &Storage, namespace: &Namespace) -> Result<Arc<Collection>> {
    let Some(collection) = storage.collection(namespace) else {
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns not found {namespace}")));
    };
    refuse_view(&collection)?;
    Ok(collection)
}

/// The collection of this name, held: errors as those of [`existing_collection`].
pub fn held_collection<'g>(catalog: &'g CatalogGuard<'g>, namespace: &Namespace) -> Result<Held<'g>> {
    let Some(held) = catalog.collection(namespace) else {
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns not found {namespace}")));
    };
    refuse_view(&held)?;
    Ok(held)
}

/// Creates a collection or view with options that [`options::read`] gave. One that exists is fine if its options are the
/// same, else `NamespaceExists` (48).
pub fn create(writer: Writer<'_>, namespace: &Namespace, document: RawDocumentBuf, uuid: [u8; 16]) -> Result<()> {
    let options = CollectionOptions::parse(&document)?;
    let catalog = writer.lock_catalog();
    if let Some((on, stages)) = &options.view {
        views::check(&catalog, namespace, on, stages)?;
    }
    match catalog.create_collection(namespace, options, uuid)? {
        CreateOutcome::Created(_) => Ok(()),
        CreateOutcome::Exists(existing) if options::same(&existing.options.document, &document) => Ok(()),
        CreateOutcome::Exists(existing) => Err(Error::new(
            ErrorCode::NamespaceExists,
            format!(
                "namespace {namespace} already exists, but with different options: {:?}",
                bson::Document::try_from(&existing.options.document).unwrap_or_default()
            ),
        )),
    }
}

/// Drops what has this name, if there is something; `system.views` stands for all views of its database.
pub fn drop_namespace(writer: Writer<'_>, namespace: &Namespace) -> Result<Option<Dropped>> {
    if namespace.coll() == views::SYSTEM_VIEWS {
        let catalog = writer.catalog();
        let mut found = false;
        for view in catalog.database(namespace.db()).filter(|view| view.kind == CollectionKind::View) {
            let still = |held: &Held<'_>| held.kind == CollectionKind::View;
            found |= writer.drop_collection_if(|now| now.collection(&view.namespace).filter(still))?.is_some();
        }
        return Ok(found.then_some(Dropped { index_count: Some(1) }));
    }
    Ok(writer.drop_collection(namespace)?.map(|collection| Dropped {
        index_count: (collection.kind != CollectionKind::View).then(|| indexes::count(&collection)),
    }))
}

/// What was dropped.
pub struct Dropped {
    /// How many indexes it had; a view has none to speak of.
    pub index_count: Option<i32>,
}

/// Whether two names are in a part of the member that is replicated and one that is not.
pub fn crosses_replication(from: &Namespace, to: &Namespace) -> bool {
    from.is_local() != to.is_local()
}

/// Opens a cursor over documents that are all there already.
pub fn open_list(
    call: &Call<'_>,
    reply: &mut Reply<'_>,
    namespace: Namespace,
    documents: VecDeque<RawDocumentBuf>,
    batch_size: Option<usize>,
) -> Result<()> {
    let list = Aggregation::of_documents(documents);
    // Without a size everything that fits is given at once, as mongod does for lists.
    let batch_size = Some(batch_size.unwrap_or(usize::MAX));
    cursor::open_list(
        call,
        reply,
        Box::new(list),
        &Opening { namespace, batch_size, single_batch: false, no_timeout: false },
    )
}

/// The `cursor: {batchSize}` argument of a command that lists things.
pub fn list_batch_size(call: &mut Call<'_>) -> Result<Option<usize>> {
    let Some(cursor) = call.fields.optional::<&bson::RawDocument>("cursor")? else { return Ok(None) };
    let mut fields = baton_request::Fields::of("cursor", cursor)?;
    let size = crate::crud::batch_size(fields.optional("batchSize")?, "batchSize")?;
    fields.finish()?;
    Ok(size)
}

/// A full name that a command's field holds as text.
pub fn parse_namespace(command: &str, field: &str, value: RawBsonRef<'_>) -> Result<Namespace> {
    match value {
        RawBsonRef::String(text) => Namespace::parse(text),
        other => Err(wrong_type(command, field, other, &["string"])),
    }
}

/// Appends a number as an int where it fits one, as mongod does for figures.
pub fn append_number(document: &mut RawDocumentBuf, name: &str, value: i64) -> Result<()> {
    let name = bson::raw::CString::try_from(name)?;
    match i32::try_from(value) {
        Ok(value) => document.append(name, value),
        Err(_) => document.append(name, value),
    }
    Ok(())
}

/// What a copy is called while it is filled: a name nobody uses.
pub fn temporary_name(db: &str, purpose: &str) -> Result<Namespace> {
    Namespace::new(db, &format!("tmp{:08x}.{purpose}", rand::random::<u32>()))
}
