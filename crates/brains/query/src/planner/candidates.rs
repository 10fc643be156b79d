//! From the ways into the data to whole plans.
//!
//! Invariants: what the bounds satisfy is not filtered again; what an index's keys can decide is decided before a document
//! is read; a disjunction uses indexes only if each of its branches has one.

use super::access::{Access, access, bounded};
use super::hint::{Hint, min_max_range};
use super::index::{IndexSpec, KeyOrder};
use super::key_ranges::IndexBounds;
use super::plan::{IndexScan, Plan, ProjectionKind};
use super::{Query, leaves, sole_id, sort_order};
use crate::matcher::{FieldNode, Matcher, Node};
use baton_document::keys::Direction;
use baton_types::Result;
use bson::{Document, RawBsonRef};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Beyond so many, the least promising candidates are not tried.
const CANDIDATES_MAX: usize = 16;

pub(super) fn candidates(query: &Query<'_>, indexes: &[Arc<IndexSpec>]) -> Result<Vec<Plan>> {
    let mut all = Vec::with_capacity(indexes.len() + 1);
    if query.is_clustered {
        all.push(Arc::new(IndexSpec::id()));
    }
    all.extend(indexes.iter().filter(|index| !index.clustered).cloned());
    let planner = Planner { query, conjuncts: query.filter.root().conjuncts(), indexes: all };
    if planner.conjuncts.iter().any(|node| matches!(node, Node::False)) {
        return Ok(vec![planner.finish(Plan::Eof, true)]);
    }
    let hinted = match query.hint {
        Some(hint) => hint.resolve(&planner.indexes)?,
        None => None,
    };
    if query.min.is_some() || query.max.is_some() {
        return Ok(vec![planner.min_max(hinted)?]);
    }
    match (query.hint, hinted) {
        (Some(Hint::Natural(direction)), _) => Ok(vec![planner.collection_scan(*direction)]),
        (_, Some(index)) => Ok(vec![planner.hinted(&index)?]),
        (_, None) => planner.free(),
    }
}

struct Planner<'q> {
    query: &'q Query<'q>,
    conjuncts: &'q [Node],
    indexes: Vec<Arc<IndexSpec>>,
}

/// A candidate with how promising it looks.
struct Scored {
    plan: Plan,
    score: u32,
    /// Whether no trial could find a better one.
    is_certain: bool,
}

impl Planner<'_> {
    /// Every index that could help; the collection scan if none does.
    fn free(&self) -> Result<Vec<Plan>> {
        let leaves = leaves::collect(self.conjuncts);
        let mut found: Vec<Scored> = Vec::new();
        for index in &self.indexes {
            let Some(access) = access(index, self.query.filter, &leaves)? else { continue };
            let order = self.query.sort.and_then(|sort| sort_order::providing_direction(&access, sort));
            if !access.is_bounded && order.is_none() {
                continue;
            }
            let is_certain = access.bounds.ranges().is_empty() || (index.unique && access.bounds.is_one_key());
            let score = promise(&access, order.is_some());
            let plan = self.with_access(&access, order.unwrap_or(Direction::Ascending), order.is_some());
            found.push(Scored { plan, score, is_certain });
        }
        if let Some(certain) = found.iter().position(|candidate| candidate.is_certain) {
            return Ok(vec![found.swap_remove(certain).plan]);
        }
        if let Some(plan) = self.disjunction(&self.indexes)? {
            found.push(Scored { plan, score: 1, is_certain: false });
        }
        if found.is_empty() {
            return Ok(vec![self.collection_scan(Direction::Ascending)]);
        }
        found.sort_by_key(|candidate| Reverse(candidate.score));
        found.truncate(CANDIDATES_MAX);
        Ok(found.into_iter().map(|candidate| candidate.plan).collect())
    }

    /// The index the client insists on, as a whole if the filter does not bound it.
    fn hinted(&self, index: &Arc<IndexSpec>) -> Result<Plan> {
        let leaves = leaves::collect(self.conjuncts);
        let access = bounded(index, &leaves)?;
        if !access.is_bounded
            && let Some(plan) = self.disjunction(std::slice::from_ref(index))?
        {
            return Ok(plan);
        }
        let order = self.query.sort.and_then(|sort| sort_order::providing_direction(&access, sort));
        Ok(self.with_access(&access, order.unwrap_or(Direction::Ascending), order.is_some()))
    }

    fn min_max(&self, hinted: Option<Arc<IndexSpec>>) -> Result<Plan> {
        let range = min_max_range(hinted.as_deref(), self.query.min, self.query.max)?;
        let index = hinted.unwrap_or_else(|| Arc::new(IndexSpec::id()));
        let bounds = IndexBounds::of_range(&index, range);
        let access = Access { index, bounds, satisfied: BTreeSet::new(), is_bounded: true };
        let order = self.query.sort.and_then(|sort| sort_order::providing_direction(&access, sort));
        Ok(self.with_access(&access, order.unwrap_or(Direction::Ascending), order.is_some()))
    }

    fn collection_scan(&self, direction: Direction) -> Plan {
        self.finish(filtered(Plan::CollectionScan { direction }, self.conjuncts.to_vec()), false)
    }

    fn with_access(&self, access: &Access, direction: Direction, is_sorted: bool) -> Plan {
        let left = |conjuncts: &[Node]| -> Vec<Node> {
            let kept = conjuncts.iter().enumerate().filter(|(i, _)| !access.satisfied.contains(i));
            kept.map(|(_, node)| node.clone()).collect()
        };
        let residual = left(self.conjuncts);
        if access.index.clustered {
            return self.finish(filtered(self.by_id(access, direction), residual), is_sorted);
        }
        if access.bounds.ranges().is_empty() {
            return self.finish(Plan::Eof, true);
        }
        let keys = KeyFields::new(&access.index);
        let covers = residual.iter().all(|node| keys.can_decide(node)) && self.is_covered(&keys, is_sorted);
        let (scan, rest) = index_scan(access, direction, residual, covers);
        if covers {
            return self.finish(scan, is_sorted);
        }
        self.finish(filtered(Plan::Fetch { input: scan.boxed() }, rest), is_sorted)
    }

    /// Whether the keys hold all that the results consist of.
    fn is_covered(&self, keys: &KeyFields<'_>, is_sorted: bool) -> bool {
        let sort_is_covered =
            is_sorted || self.query.sort.is_none_or(|sort| sort.parts().iter().all(|part| keys.holds(&part.field)));
        let results_are_covered = self.query.is_count
            || self
                .query
                .projection
                .as_ref()
                .and_then(|projection| projection.fields.as_ref())
                .is_some_and(|fields| fields.iter().all(|field| keys.holds(field)));
        sort_is_covered && results_are_covered
    }

    /// Lookups and scans of the collection itself.
    fn by_id(&self, access: &Access, direction: Direction) -> Plan {
        let bounds = access.bounds.clone();
        if bounds.ranges().is_empty() {
            return Plan::Eof;
        }
        let points = bounds.set(0).filter(|set| set.is_points()).map(|set| {
            set.intervals().iter().filter_map(|interval| interval.point_bytes()).map(<[u8]>::to_vec).collect()
        });
        match points {
            Some(ids) => {
                let is_whole_filter = sole_id(self.query.filter).is_some() && self.query.hint.is_none();
                Plan::IdLookup { ids, direction, bounds, is_whole_filter }
            }
            None => Plan::IdScan { bounds, direction },
        }
    }

    /// A plan for the first disjunction whose branches all have an index, if there is one.
    fn disjunction(&self, indexes: &[Arc<IndexSpec>]) -> Result<Option<Plan>> {
        for (i, node) in self.conjuncts.iter().enumerate() {
            let Node::Or(branches) = node else { continue };
            let others: Vec<Node> =
                self.conjuncts.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, node)| node.clone()).collect();
            let mut inputs = Vec::with_capacity(branches.len());
            for branch in branches {
                if matches!(branch, Node::False) {
                    continue;
                }
                match self.branch(branch, &others, indexes)? {
                    Some(input) => inputs.push(input),
                    None => break,
                }
            }
            let expected = branches.iter().filter(|branch| !matches!(branch, Node::False)).count();
            if inputs.len() == expected {
                return Ok(Some(self.finish(self.union(inputs), false)));
            }
        }
        Ok(None)
    }

    /// The most promising index for one branch, with everything else the filter says.
    fn branch(&self, branch: &Node, others: &[Node], indexes: &[Arc<IndexSpec>]) -> Result<Option<Branch>> {
        let all: Vec<Node> = std::iter::once(branch.clone()).chain(others.iter().cloned()).collect();
        let filter = Matcher::from_node(Node::and(all));
        let conjuncts = filter.root().conjuncts();
        let leaves = leaves::collect(conjuncts);
        let mut best: Option<(u32, Access)> = None;
        for index in indexes {
            let Some(access) = access(index, &filter, &leaves)?.filter(|access| access.is_bounded) else { continue };
            let score = promise(&access, false);
            if best.as_ref().is_none_or(|(known, _)| score > *known) {
                best = Some((score, access));
            }
        }
        Ok(best.map(|(_, access)| {
            let kept = conjuncts.iter().enumerate().filter(|(i, _)| !access.satisfied.contains(i));
            let residual: Vec<Node> = kept.map(|(_, node)| node.clone()).collect();
            if access.bounds.ranges().is_empty() {
                return Branch { plan: Plan::Eof, residual: Vec::new(), yields_documents: false };
            }
            if access.index.clustered {
                let plan = self.by_id(&access, Direction::Ascending);
                return Branch { plan, residual, yields_documents: true };
            }
            let (plan, residual) = index_scan(&access, Direction::Ascending, residual, false);
            Branch { plan, residual, yields_documents: false }
        }))
    }

    /// Branches that only yield record ids are united before documents are read.
    fn union(&self, branches: Vec<Branch>) -> Plan {
        let all_are_keys = branches.iter().all(|branch| branch.residual.is_empty() && !branch.yields_documents);
        let is_none = |branch: &Branch| matches!(branch.plan, Plan::Eof);
        if branches.iter().all(is_none) {
            return Plan::Eof;
        }
        let inputs: Vec<Plan> = branches
            .into_iter()
            .filter(|branch| !is_none(branch))
            .map(|branch| match branch.yields_documents || all_are_keys {
                true => filtered(branch.plan, branch.residual),
                false => filtered(Plan::Fetch { input: branch.plan.boxed() }, branch.residual),
            })
            .collect();
        let union = Plan::Or { inputs };
        match all_are_keys && !(self.query.is_count && self.query.sort.is_none()) {
            true => Plan::Fetch { input: union.boxed() },
            false => union,
        }
    }

    /// Sort, skip, projection and limit, in the order they apply.
    fn finish(&self, source: Plan, is_sorted: bool) -> Plan {
        let query = self.query;
        let is_covered = source.any(&mut |plan| matches!(plan, Plan::IndexScan(scan) if scan.covers));
        let mut plan = source;
        let mut limit = query.limit;
        if let Some(pattern) = query.sort.filter(|_| !is_sorted) {
            let wanted = limit.take().map(|limit| limit.saturating_add(query.skip));
            plan = Plan::Sort { input: plan.boxed(), pattern: pattern.clone(), limit: wanted };
        }
        if query.skip > 0 {
            plan = Plan::Skip { input: plan.boxed(), count: query.skip };
        }
        if let Some(projection) = &query.projection {
            let kind = match (is_covered, projection.is_simple) {
                (true, _) => ProjectionKind::Covered,
                (false, true) => ProjectionKind::Simple,
                (false, false) => ProjectionKind::Default,
            };
            let spec = Document::try_from(projection.spec).unwrap_or_default();
            plan = Plan::Projection { input: plan.boxed(), spec, kind };
        }
        if let Some(count) = limit {
            plan = Plan::Limit { input: plan.boxed(), count };
        }
        if query.is_count { Plan::Count { input: plan.boxed() } } else { plan }
    }
}

/// One branch of a disjunction.
struct Branch {
    plan: Plan,
    /// What its documents must still match.
    residual: Vec<Node>,
    /// Documents, or record ids.
    yields_documents: bool,
}

fn filtered(input: Plan, residual: Vec<Node>) -> Plan {
    if residual.is_empty() || matches!(input, Plan::Eof) {
        return input;
    }
    Plan::Filter { input: input.boxed(), matcher: Matcher::from_node(Node::and(residual)) }
}

/// A scan that filters by its keys what they can decide; the rest is returned.
fn index_scan(access: &Access, direction: Direction, residual: Vec<Node>, covers: bool) -> (Plan, Vec<Node>) {
    let keys = KeyFields::new(&access.index);
    let (decided, rest): (Vec<Node>, Vec<Node>) = residual.into_iter().partition(|node| keys.can_decide(node));
    let filter = (!decided.is_empty()).then(|| Matcher::from_node(Node::and(decided)));
    let scan = IndexScan { index: access.index.clone(), direction, bounds: access.bounds.clone(), filter, covers };
    (Plan::IndexScan(scan), rest)
}

/// How promising an access looks before any trial: leading fields of single values, then ranges, then the order.
fn promise(access: &Access, is_sorted: bool) -> u32 {
    let mut score = if is_sorted { 4 } else { 0 };
    for set in access.bounds.sets() {
        if set.is_points() {
            score += 20;
            continue;
        }
        score += if set.is_all() { 0 } else { 6 };
        break;
    }
    score + u32::from(access.index.unique) + 2 * u32::try_from(access.satisfied.len()).unwrap_or(0)
}

/// What the keys of an index say about documents.
struct KeyFields<'a> {
    index: &'a IndexSpec,
    /// Whether a document can be made of a key: no field is inside another.
    is_buildable: bool,
}

impl<'a> KeyFields<'a> {
    fn new(index: &'a IndexSpec) -> Self {
        let fields = || index.key.iter().enumerate();
        let is_buildable = fields().all(|(i, a)| fields().all(|(j, b)| i == j || !a.path.is_prefix_of(&b.path)));
        Self { index, is_buildable }
    }

    /// Whether every document's value at the path is in its key.
    fn holds(&self, path: &str) -> bool {
        self.is_buildable
            && self.index.position(path).is_some_and(|i| {
                let field = self.index.key.get(i);
                let is_ordered = field.is_some_and(|field| {
                    // A position in an array is in the key, but not where the document has it.
                    let has_position = field.path.parts().iter().any(|part| part.index.is_some());
                    matches!(field.order, KeyOrder::Ordered(_)) && !has_position
                });
                is_ordered && !self.index.is_multikey_at(i)
            })
    }

    /// Whether a condition can be decided by the key: it must not tell missing from null, for the key does not.
    fn can_decide(&self, node: &Node) -> bool {
        match node {
            Node::And(children) | Node::Or(children) | Node::Nor(children) => {
                children.iter().all(|child| self.can_decide(child))
            }
            Node::Not(child) => self.can_decide(child),
            Node::True | Node::False => true,
            Node::Field(field) => self.holds(field.path.as_str()) && treats_null_as_missing(field),
            Node::Expr(_) | Node::Schema(_) | Node::SampleRate(_) => false,
        }
    }
}

fn treats_null_as_missing(field: &FieldNode) -> bool {
    match (field.predicate.test(None), field.predicate.test(Some(RawBsonRef::Null))) {
        (Ok(missing), Ok(null)) => missing == null,
        _ => false,
    }
}
