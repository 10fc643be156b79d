//! From a query to an access path: asks the planner, or takes the short way where the filter names the `_id`.

use crate::access::Access;
use crate::query::{Hint, QuerySpec};
use baton_query::Context;
use baton_storage::{Collection, CollectionKind, Order, Storage, record_key};
use baton_types::{Error, Result};
use bson::raw::RawBson;
use bson::{Bson, Document, doc};
use std::sync::Arc;

/// What was chosen.
pub struct PlanChoice {
    /// The access path; taken out by the query that runs it.
    pub access: Access,
    /// Whether it gives documents in the order asked for.
    pub provides_sort: bool,
    /// Whether it gives exactly the documents that match, so that the filter need not be asked.
    pub filter_is_exact: bool,
    /// In a word, for the log and `currentOp`.
    pub summary: String,
    /// The plan as explain shows it.
    pub winning: Document,
    /// Plans not chosen.
    pub rejected: Vec<Document>,
}

/// Chooses the access path of a query.
pub(crate) fn choose(
    _storage: &Arc<Storage>,
    collection: Option<&Arc<Collection>>,
    spec: &QuerySpec,
    _context: &Context,
) -> Result<PlanChoice> {
    let Some(collection) = collection else {
        return Ok(simple(Access::Nothing, true, "EOF", doc! { "stage": "EOF" }));
    };
    if let Some(choice) = by_id(collection, spec)? {
        return Ok(choice);
    }
    if let Some(Hint::Name(_) | Hint::Pattern(_)) = &spec.hint {
        check_hint(collection, spec)?;
    }
    Ok(collection_scan(spec))
}

fn simple(access: Access, provides_sort: bool, summary: &str, winning: Document) -> PlanChoice {
    PlanChoice {
        access,
        provides_sort,
        filter_is_exact: false,
        summary: summary.to_owned(),
        winning,
        rejected: Vec::new(),
    }
}

/// A filter that says `_id: value`: one look-up.
fn by_id(collection: &Collection, spec: &QuerySpec) -> Result<Option<PlanChoice>> {
    if collection.kind != CollectionKind::Clustered || spec.hint.is_some() || spec.min.is_some() || spec.max.is_some() {
        return Ok(None);
    }
    let equalities = match spec.filter.equalities() {
        Ok(equalities) => equalities,
        Err(_) => return Ok(None),
    };
    let Some((_, id)) = equalities.into_iter().find(|(path, _)| path == "_id") else { return Ok(None) };
    if matches!(id, Bson::RegularExpression(_) | Bson::Undefined | Bson::Array(_)) {
        return Ok(None);
    }
    let raw = RawBson::try_from(id).map_err(Error::from)?;
    let record = record_key(raw.as_raw_bson_ref())?;
    let mut choice = simple(Access::points(vec![record]), true, "IDHACK", doc! { "stage": "IDHACK" });
    choice.provides_sort = true;
    Ok(Some(choice))
}

fn collection_scan(spec: &QuerySpec) -> PlanChoice {
    let order = match &spec.hint {
        Some(Hint::Natural(order)) => *order,
        _ => Order::Forward,
    };
    let direction = if order == Order::Forward { "forward" } else { "backward" };
    let mut winning = doc! { "stage": "COLLSCAN" };
    if !spec.filter.is_always() {
        winning.insert("filter", spec.filter.to_document());
    }
    winning.insert("direction", direction);
    simple(Access::everything(order), false, "COLLSCAN", winning)
}

fn check_hint(collection: &Collection, spec: &QuerySpec) -> Result<()> {
    let known = match &spec.hint {
        Some(Hint::Name(name)) => name == baton_storage::ID_INDEX || collection.index(name).is_some(),
        Some(Hint::Pattern(pattern)) => {
            *pattern == bson::rawdoc! { "_id": 1 }
                || collection.indexes().iter().any(|index| index.definition.key_pattern() == &**pattern)
        }
        _ => true,
    };
    if known {
        Ok(())
    } else {
        Err(Error::bad_value(
            "error processing query: planner returned error :: caused by :: hint provided does not correspond to an existing index",
        ))
    }
}

/// The stages around the access path, outermost first, as explain nests them.
pub fn explain_stages(choice: &PlanChoice, spec: &QuerySpec) -> Document {
    let mut stage = choice.winning.clone();
    let wrap = |outer: Document, inner: Document| {
        let mut outer = outer;
        outer.insert("inputStage", inner);
        outer
    };
    if let Some(sort) = spec.sort.as_ref().filter(|_| !choice.provides_sort) {
        let pattern = Document::try_from(sort.spec()).unwrap_or_default();
        stage =
            wrap(doc! { "stage": "SORT", "sortPattern": pattern, "memLimit": 104_857_600, "type": "simple" }, stage);
    }
    if spec.skip > 0 {
        stage = wrap(doc! { "stage": "SKIP", "skipAmount": spec.skip as i64 }, stage);
    }
    if let Some(limit) = spec.limit {
        stage = wrap(doc! { "stage": "LIMIT", "limitAmount": limit as i64 }, stage);
    }
    if let Some(projection) = &spec.projection {
        let name = if projection.is_simple_top_level() { "PROJECTION_SIMPLE" } else { "PROJECTION_DEFAULT" };
        stage = wrap(doc! { "stage": name }, stage);
    }
    stage
}
