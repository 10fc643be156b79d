//! Views: what their definitions may be, and where they are shown.
//!
//! Invariant: no view reaches itself, over however many other views, joins and unions: a query on it would never end. So who
//! checks one holds all of them.

use super::stored_context;
use crate::crud::own_documents::needs_whole_database;
use baton_document::hash::hash;
use baton_query::pipeline::{Pipeline, stage_documents};
use baton_storage::{CatalogGuard, Collection, CollectionKind, Storage};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::collections::VecDeque;

/// Where mongod keeps views' definitions; here it is only shown.
pub const SYSTEM_VIEWS: &str = "system.views";
/// How many views may stand on each other, as in MongoDB.
const DEPTH_MAX: usize = 20;

/// The definition of a view as MongoDB's `system.views` has it.
pub fn definition(view: &Collection) -> Option<RawDocumentBuf> {
    let (on, stages) = view.options.view.as_ref()?;
    let mut pipeline = RawArrayBuf::new();
    stages.iter().for_each(|stage| pipeline.push(stage.clone()));
    Some(rawdoc! { "_id": view.namespace.as_str(), "viewOn": on.as_str(), "pipeline": pipeline })
}

/// What `system.views` of a database shows. `None` if that is not what `namespace` is, or the database has no views: then there is no
/// such collection.
pub fn stored(storage: &Storage, namespace: &Namespace) -> Option<VecDeque<RawDocumentBuf>> {
    if namespace.coll() != SYSTEM_VIEWS {
        return None;
    }
    let catalog = storage.catalog();
    let definitions: VecDeque<_> = catalog.database(namespace.db()).filter_map(|found| definition(found)).collect();
    Some(definitions).filter(|definitions| !definitions.is_empty())
}

/// Whether a definition as [`definition`] gives it can be read.
pub fn check_stored(definition: &RawDocument) -> Result<()> {
    Pipeline::parse(&stage_documents(RawBsonRef::Array(definition.get_array("pipeline")?))?, &stored_context())
        .map(drop)
}

/// The UUID that `system.views` of a database is shown with, made of the database's name.
pub fn uuid(db: &str) -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash(RawBsonRef::String(db), 0)?.to_be_bytes());
    uuid[8..].copy_from_slice(&hash(RawBsonRef::String(db), 1)?.to_be_bytes());
    uuid[6] = (uuid[6] & 0x0f) | 0x40;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    Ok(uuid)
}

fn parse(stages: &[RawDocumentBuf]) -> Result<Pipeline> {
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    Pipeline::parse(&stages, &stored_context())
}

/// The namespaces that a view reads.
fn sources(namespace: &Namespace, on: &str, pipeline: &Pipeline) -> Result<Vec<Namespace>> {
    let mut sources = vec![Namespace::new(namespace.db(), on)?];
    for target in pipeline.reads() {
        sources.push(Namespace::new(target.db.as_deref().unwrap_or(namespace.db()), &target.coll)?);
    }
    Ok(sources)
}

/// Checks the definition of a view that is to have this name.
pub fn check(catalog: &CatalogGuard<'_>, namespace: &Namespace, on: &str, stages: &[RawDocumentBuf]) -> Result<()> {
    if namespace.is_system() {
        return Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("Cannot create a view called '{}': this is a reserved system namespace", namespace.coll()),
        ));
    }
    let pipeline = parse(stages)?;
    if let Some(write) = pipeline.write() {
        return Err(Error::new(
            ErrorCode::OptionNotSupportedOnView,
            format!(
                "The aggregation stage {} in location {} of the pipeline cannot be used in the view definition of \
                 {namespace}",
                write.name(),
                stages.len() - 1
            ),
        ));
    }
    if let Some(source) = pipeline.source().filter(|source| source.reads_no_collection()) {
        return Err(needs_whole_database(source));
    }
    let mut path = vec![namespace.clone()];
    for source in sources(namespace, on, &pipeline)? {
        follow(catalog, &source, &mut path)?;
    }
    Ok(())
}

/// Goes down from `namespace`, whose way from the new view is `path`.
fn follow(catalog: &CatalogGuard<'_>, namespace: &Namespace, path: &mut Vec<Namespace>) -> Result<()> {
    if path.contains(namespace) {
        let names: Vec<&str> = path.iter().chain([namespace]).map(Namespace::as_str).collect();
        return Err(Error::new(ErrorCode::GraphContainsCycle, format!("View cycle detected: {}", names.join(" => "))));
    }
    let Some(view) = catalog.collection(namespace).filter(|found| found.kind == CollectionKind::View) else {
        return Ok(());
    };
    if path.len() >= DEPTH_MAX {
        return Err(Error::new(
            ErrorCode::ViewDepthLimitExceeded,
            format!("View depth limit exceeded; maximum depth is {DEPTH_MAX}"),
        ));
    }
    let Some((on, stages)) = &view.options.view else { return Ok(()) };
    path.push(namespace.clone());
    for source in sources(namespace, on, &parse(stages)?)? {
        follow(catalog, &source, path)?;
    }
    path.pop();
    Ok(())
}
