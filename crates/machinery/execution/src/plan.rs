//! From a query to an access path: asks the planner for candidates, lets them run side by side for a while if there are
//! several, and lowers the best to an [`Access`].
//!
//! The residual filter is always the whole filter, asked of the document itself: bounds may be wider than the filter,
//! and a document may have changed since its index entry was read.

use crate::Interruption;
use crate::access::{Access, Entries, Examined, Given, INTERRUPT_EVERY};
use crate::oplog_range::oplog_range;
use crate::query::{Hint, QuerySpec};
use ahash::RandomState;
use baton_document::hash::index_hash;
use baton_document::keys::Direction;
use baton_query::Context;
use baton_query::planner::{
    self, IndexBounds, IndexField, IndexSpec, KeyOrder, KeyRange, Plan, Projected, ProjectionKind, TrialLimits,
    TrialResult,
};
use baton_storage::{Bounds, Collection, CollectionKind, IndexFieldKind, IndexState, Order, RecordKey, Storage};
use baton_types::{Error, ErrorCode, Result};
use bson::Document;
use hashbrown::HashSet;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What was chosen.
pub struct PlanChoice {
    /// The access path; taken out by the query that runs it.
    pub access: Access,
    /// Whether it gives documents in the order asked for.
    pub provides_sort: bool,
    /// In a word, for the log and `currentOp`.
    pub summary: String,
    chosen: Chosen,
    rejected: Vec<Plan>,
}

/// The plan that was chosen.
enum Chosen {
    /// The look-up of one `_id`, which needed no planning.
    ById,
    Planned(Box<Plan>),
}

impl PlanChoice {
    /// The plan chosen for `spec`.
    pub(crate) fn plan(&self, spec: &QuerySpec) -> Plan {
        let mut plan = match &self.chosen {
            Chosen::Planned(plan) => return Plan::clone(plan),
            Chosen::ById => Plan::IdLookup {
                ids: Vec::new(),
                direction: Direction::Ascending,
                bounds: IndexBounds::of_range(&IndexSpec::id(), KeyRange::all()),
                is_whole_filter: true,
            },
        };
        if let Some((document, projection)) = &spec.projection {
            let is_simple = projection.is_simple_top_level();
            let kind = if is_simple { ProjectionKind::Simple } else { ProjectionKind::Default };
            let spec = Document::try_from(&***document).unwrap_or_default();
            plan = Plan::Projection { input: Box::new(plan), spec, kind };
        }
        if spec.is_count { Plan::Count { input: Box::new(plan) } } else { plan }
    }

    /// The plans not chosen, as explain shows them.
    pub fn rejected(&self) -> Vec<Document> {
        self.rejected.iter().map(Plan::explain).collect()
    }
}

/// Chooses the access path of a query.
pub(crate) fn choose(
    storage: &Storage,
    collection: Option<&Arc<Collection>>,
    spec: &QuerySpec,
    context: &Context,
) -> Result<PlanChoice> {
    let Some(collection) = collection else {
        return Ok(PlanChoice {
            access: Access::Nothing,
            provides_sort: true,
            summary: "EOF".to_owned(),
            chosen: Chosen::Planned(Box::new(Plan::Eof)),
            rejected: Vec::new(),
        });
    };
    if let Some(choice) = by_id(collection, spec)? {
        return Ok(choice);
    }
    let indexes = specs(collection, spec.hint.as_ref());
    let mut candidates = candidates(collection, spec, &indexes)?;
    if context.refuses_collection_scans {
        refuse_collection_scans(collection, spec, &mut candidates)?;
    }
    let best =
        if candidates.len() > 1 { trial(storage, collection, spec, &candidates, &context.interruption)? } else { 0 };
    if candidates.is_empty() {
        return Err(Error::new(ErrorCode::InternalError, "the planner found no way to answer the query"));
    }
    let plan = candidates.swap_remove(best);
    for name in plan.index_names() {
        if let Some(index) = collection.index(name) {
            index.uses.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(PlanChoice {
        access: lower(&plan, collection, spec)?,
        provides_sort: !plan.has_blocking_sort(),
        summary: plan.summary(),
        chosen: Chosen::Planned(Box::new(plan)),
        rejected: candidates,
    })
}

/// Takes away the plans that read the whole collection, for the parameter `notablescan`: `NoQueryExecutionPlans` (291) if
/// none is left. As in MongoDB, a query without a filter may, and so may one of a system collection or an internal database.
fn refuse_collection_scans(collection: &Collection, spec: &QuerySpec, candidates: &mut Vec<Plan>) -> Result<()> {
    let namespace = &collection.namespace;
    if spec.filter.is_always() || namespace.is_system() || matches!(namespace.db(), "admin" | "config" | "local") {
        return Ok(());
    }
    candidates.retain(|plan| !plan.is_collection_scan());
    if candidates.is_empty() {
        return Err(Error::new(
            ErrorCode::NoQueryExecutionPlans,
            format!(
                "error processing query: ns={namespace}, planner returned error :: caused by :: No indexed plans \
                 available, and running with 'notablescan'"
            ),
        ));
    }
    Ok(())
}

/// A filter that is an `_id` and nothing else: one look-up, and no planning.
fn by_id(collection: &Collection, spec: &QuerySpec) -> Result<Option<PlanChoice>> {
    let plain = spec.hint.is_none() && spec.min.is_none() && spec.max.is_none();
    let Some(id) = planner::sole_id(&spec.filter).filter(|_| plain && collection.kind == CollectionKind::Clustered)
    else {
        return Ok(None);
    };
    Ok(Some(PlanChoice {
        access: Access::points(vec![baton_storage::record_key(id)?]),
        provides_sort: true,
        summary: "IDHACK".to_owned(),
        chosen: Chosen::ById,
        rejected: Vec::new(),
    }))
}

/// The collection's indexes as the planner sees them; those being built are not there yet.
fn specs(collection: &Collection, hint: Option<&Hint>) -> Vec<Arc<IndexSpec>> {
    let ready = collection.indexes();
    ready
        .iter()
        .filter(|index| index.state() == IndexState::Ready)
        .map(|index| {
            let definition = &index.definition;
            let key = definition.fields.iter().map(|(path, kind)| {
                let order = match kind {
                    IndexFieldKind::Ascending => KeyOrder::Ordered(Direction::Ascending),
                    IndexFieldKind::Descending => KeyOrder::Ordered(Direction::Descending),
                    IndexFieldKind::Hashed => KeyOrder::Hashed(index_hash),
                    IndexFieldKind::Unsearchable => KeyOrder::Unsearchable("text"),
                };
                IndexField { path: path.clone(), order }
            });
            Arc::new(IndexSpec {
                name: definition.name.clone(),
                key: key.collect(),
                unique: definition.unique,
                sparse: definition.sparse,
                hidden: definition.hidden && !matches!(hint, Some(Hint::EvenHidden(name)) if *name == definition.name),
                partial: definition.partial.as_deref().cloned(),
                multikey: index.multikey(),
                clustered: false,
            })
        })
        .collect()
}

fn candidates(collection: &Collection, spec: &QuerySpec, indexes: &[Arc<IndexSpec>]) -> Result<Vec<Plan>> {
    let hint = spec.hint.as_ref().map(|hint| {
        Ok::<_, Error>(match hint {
            // The planner knows the clustered index by one name.
            Hint::Name(name) if name == collection.id_index_name() => {
                planner::Hint::Name(planner::ID_INDEX_NAME.into())
            }
            Hint::Name(name) | Hint::EvenHidden(name) => planner::Hint::Name(name.clone()),
            Hint::Pattern(pattern) => planner::Hint::Key(Document::try_from(&**pattern)?),
            Hint::Natural(Order::Forward) => planner::Hint::Natural(Direction::Ascending),
            Hint::Natural(Order::Backward) => planner::Hint::Natural(Direction::Descending),
        })
    });
    let hint = hint.transpose()?;
    let projected = spec.projection.as_ref().map(|(document, projection)| {
        let needed = projection.required_fields();
        Projected {
            spec: document,
            fields: (!needed.whole_document && !projection.needs_match_details())
                .then(|| needed.fields.into_iter().collect()),
            is_simple: projection.is_simple_top_level(),
        }
    });
    let query = planner::Query {
        filter: &spec.filter,
        sort: spec.sort.as_deref(),
        projection: projected,
        hint: hint.as_ref(),
        min: spec.min.as_deref(),
        max: spec.max.as_deref(),
        skip: spec.skip,
        limit: spec.limit,
        is_count: spec.is_count,
        is_clustered: collection.kind == CollectionKind::Clustered,
    };
    planner::plan(&query, indexes)
}

/// Runs each candidate for a while; the place of the one that did best.
fn trial(
    storage: &Storage,
    collection: &Arc<Collection>,
    spec: &QuerySpec,
    candidates: &[Plan],
    interruption: &Interruption,
) -> Result<usize> {
    let limits = TrialLimits::new(collection.counts().documents.max(0) as u64, spec.limit);
    let view = storage.view();
    let mut results = Vec::with_capacity(candidates.len());
    for plan in candidates {
        let mut access = lower(plan, collection, spec)?;
        let (mut looked, mut matched) = (0_u64, 0_u64);
        let mut examined = Examined::default();
        let (stopped, asked) = (Cell::new(false), Cell::new(0));
        // A walk over entries that it passes over for their keys is work too, and gives no document to count.
        let interrupt = || {
            asked.set(asked.get() + 1);
            interruption.look()?;
            stopped.set(asked.get() * INTERRUPT_EVERY >= limits.works_max);
            if stopped.get() { Err(Error::new(ErrorCode::QueryPlanKilled, "the trial is over")) } else { Ok(()) }
        };
        let run = access.run(&view, collection, &mut examined, &interrupt, &mut |_, document| {
            looked += 1;
            matched += u64::from(spec.filter.matches(document)?);
            stopped.set(looked >= limits.works_max || matched >= limits.results_max);
            Ok(if stopped.get() { Given::TakenLast } else { Given::Taken })
        });
        let stopped = stopped.get();
        let is_eof = run.is_ok() && !stopped;
        // A blocking sort gives nothing before it has seen everything.
        let advanced = if plan.has_blocking_sort() && !is_eof { 0 } else { matched };
        results.push((
            plan,
            TrialResult {
                works: (examined.keys + examined.documents).max(1),
                advanced,
                is_eof,
                has_failed: run.is_err() && !stopped,
            },
        ));
    }
    Ok(planner::rank(&results).first().copied().unwrap_or(0))
}

fn order_of(direction: Direction) -> Order {
    match direction {
        Direction::Ascending => Order::Forward,
        Direction::Descending => Order::Backward,
    }
}

/// The bounds to walk, in the order of the walk.
fn ranges(bounds: &IndexBounds, order: Order) -> Vec<Bounds> {
    let mut ranges: Vec<Bounds> =
        bounds.ranges().iter().map(|range| Bounds { from: range.start.clone(), to: Some(range.end.clone()) }).collect();
    if order == Order::Backward {
        ranges.reverse();
    }
    ranges
}

/// The access path at the bottom of a plan. What stands above it (filter, sort, window, projection) is the query's.
fn lower(plan: &Plan, collection: &Collection, spec: &QuerySpec) -> Result<Access> {
    Ok(match plan {
        Plan::Eof => Access::Nothing,
        Plan::CollectionScan { direction } if collection.kind == CollectionKind::Oplog => {
            Access::Documents { ranges: vec![oplog_range(&spec.filter)], order: order_of(*direction) }
        }
        Plan::CollectionScan { direction } => Access::everything(order_of(*direction)),
        Plan::IdLookup { ids, direction, .. } => {
            let mut records: Vec<RecordKey> = ids.iter().map(|id| RecordKey::from_slice(id)).collect();
            if order_of(*direction) == Order::Backward {
                records.reverse();
            }
            Access::points(records)
        }
        Plan::IdScan { bounds, direction } => {
            let order = order_of(*direction);
            Access::Documents { ranges: ranges(bounds, order), order }
        }
        Plan::IndexScan(scan) => {
            let Some(index) = collection.index(&scan.index.name) else {
                return Err(Error::new(
                    ErrorCode::QueryPlanKilled,
                    format!("index '{}' was dropped while the query was planned", scan.index.name),
                ));
            };
            let order = order_of(scan.direction);
            Access::Entries(Box::new(Entries {
                index,
                ranges: ranges(&scan.bounds, order),
                order,
                seen: scan.needs_deduplication().then(|| HashSet::with_hasher(RandomState::new())),
                scan: scan.clone(),
            }))
        }
        Plan::Or { inputs } => {
            let parts = inputs.iter().map(|input| lower(input, collection, spec)).collect::<Result<Vec<_>>>()?;
            Access::union(parts)
        }
        Plan::Fetch { input }
        | Plan::Filter { input, .. }
        | Plan::Sort { input, .. }
        | Plan::Skip { input, .. }
        | Plan::Limit { input, .. }
        | Plan::Projection { input, .. }
        | Plan::Count { input } => lower(input, collection, spec)?,
    })
}
