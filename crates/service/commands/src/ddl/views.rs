//! Views: what their definitions may be.
//!
//! Invariant: no view reaches itself, over however many other views, joins and unions: a query on it would never end. So who
//! checks one holds all of them.

use super::stored_context;
use baton_query::pipeline::{Pipeline, StageSpec};
use baton_storage::{CatalogGuard, CollectionKind};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawDocument, RawDocumentBuf};

/// Where mongod keeps views' definitions; here it is only shown.
pub const SYSTEM_VIEWS: &str = "system.views";
/// How many views may stand on each other, as in MongoDB.
const DEPTH_MAX: usize = 20;

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
        let message = match source {
            StageSpec::CurrentOp(_) => {
                "$currentOp must be run against the 'admin' database with {aggregate: 1}".to_owned()
            }
            other => format!("{} can only be run with {{aggregate: 1}}", other.name()),
        };
        return Err(Error::new(ErrorCode::InvalidNamespace, message));
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
