//! One way into the data: an index with bounds drawn from the filter, and what is left to filter.
//!
//! Invariants: every matching document has a key within the bounds. On a field where documents have arrays, a second
//! predicate narrows the bounds only if it is known to speak of the same element ([`super::leaves`]). An index that
//! leaves documents out (sparse, partial) is used only where no matching document can be among them.

use super::bounds::{self, FieldFacts, Precision};
use super::implies::implies;
use super::index::{IndexSpec, KeyOrder};
use super::interval::IntervalSet;
use super::key_ranges::IndexBounds;
use super::leaves::Leaf;
use crate::matcher::{Matcher, Operator, Predicate};
use baton_document::hash::{Forms, forms};
use baton_types::Result;
use bson::RawBsonRef;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An index with its bounds.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) index: Arc<IndexSpec>,
    pub(super) bounds: IndexBounds,
    /// The conjuncts that the bounds satisfy, so that no filter need repeat them.
    pub(super) satisfied: BTreeSet<usize>,
    /// Whether the first field is bounded at all.
    pub(super) is_bounded: bool,
}

/// The bounds that the filter's leaves put on an index; none if the index could miss documents.
pub(super) fn access(index: &Arc<IndexSpec>, filter: &Matcher, leaves: &[Leaf<'_>]) -> Result<Option<Access>> {
    if !index.is_searchable() || index.partial.as_ref().is_some_and(|partial| !implies(filter, partial)) {
        return Ok(None);
    }
    let is_found = |leaf: &Leaf<'_>| index.position(leaf.path.as_str()).is_some() && !leaf.accepts_missing();
    if index.sparse && !leaves.iter().any(is_found) {
        return Ok(None);
    }
    bounded(index, leaves).map(Some)
}

/// The same without asking whether the index holds all that could match: for a hint.
pub(super) fn bounded(index: &Arc<IndexSpec>, leaves: &[Leaf<'_>]) -> Result<Access> {
    let mut satisfied = BTreeSet::new();
    let mut used: Vec<(usize, &Leaf<'_>)> = Vec::new();
    let mut sets = Vec::with_capacity(index.key.len());
    let mut is_bounded = false;
    for i in 0..index.key.len() {
        let mut set = IntervalSet::all();
        for (leaf, narrowed) in narrowing(index, i, leaves)? {
            let fits = |(j, other): &(usize, &Leaf<'_>)| {
                leaf.is_compatible(other, index.is_multikey_at(i) && index.is_multikey_at(*j))
            };
            if !used.iter().all(fits) {
                continue;
            }
            set = set.intersect(&narrowed.set);
            used.push((i, leaf));
            if narrowed.precision == Precision::Exact && leaf.is_top_level() {
                satisfied.insert(leaf.conjunct);
            }
            // A sparse index leaves out what does not exist, which bounds it even over all of its keys.
            is_bounded |= i == 0 && (!narrowed.set.is_all() || narrowed.precision == Precision::Exact);
        }
        sets.push(set);
    }
    Ok(Access { index: index.clone(), bounds: IndexBounds::new(index, sets), satisfied, is_bounded })
}

/// The leaves on field `i` with the bounds they give, the most selective first.
fn narrowing<'l, 'f>(
    index: &IndexSpec,
    i: usize,
    leaves: &'l [Leaf<'f>],
) -> Result<Vec<(&'l Leaf<'f>, bounds::Bounds)>> {
    let Some(field) = index.key.get(i) else { return Ok(Vec::new()) };
    let facts = FieldFacts {
        is_multikey: index.is_multikey_at(i),
        has_numeric_component: field.path.parts().iter().any(|part| part.index.is_some()),
        is_sparse_alone: index.sparse && index.key.len() == 1 && index.partial.is_none(),
    };
    let mut found = Vec::new();
    for leaf in leaves.iter().filter(|leaf| leaf.path == field.path) {
        // As with ordered keys, those of a path with numbers do not tell what is missing.
        let is_unknown = leaf.negated || (facts.has_numeric_component && leaf.accepts_missing());
        let bounds = match field.order {
            KeyOrder::Ordered(_) => bounds::bounds(leaf.predicate, leaf.negated, facts),
            KeyOrder::Hashed(hash) if !is_unknown => hashed(leaf.predicate, hash)?,
            KeyOrder::Hashed(_) | KeyOrder::Unsearchable(_) => None,
        };
        found.extend(bounds.map(|bounds| (leaf, bounds)));
    }
    found.sort_by_key(|(leaf, bounds)| {
        let points = bounds.set.is_points();
        (leaf.negated, bounds.set.is_all(), !points, if points { bounds.set.intervals().len() } else { 0 })
    });
    Ok(found)
}

/// The hashes of the values a predicate asks for; different values may share one.
fn hashed(predicate: &Predicate, hash: super::HashFunction) -> Result<Option<bounds::Bounds>> {
    let values: Vec<RawBsonRef<'_>> = match predicate {
        Predicate::Compare(comparison) if comparison.operator == Operator::Eq => {
            vec![comparison.value()]
        }
        Predicate::In(list) if list.regexes().is_empty() => {
            list.values().iter().map(|value| value.as_raw_bson_ref()).collect()
        }
        _ => return Ok(None),
    };
    let mut points = Vec::with_capacity(values.len());
    for value in values {
        match value {
            RawBsonRef::Array(_) => return Ok(None),
            RawBsonRef::Null => {
                points.push(IntervalSet::point(RawBsonRef::Int64(hash(None)?)));
                points.push(IntervalSet::point(RawBsonRef::Int64(hash(Some(RawBsonRef::Undefined))?)));
            }
            _ => {}
        }
        // Whatever is equal to the value must be found, and a double and a decimal may be equal and hash differently.
        match forms(value) {
            Forms::One => points.push(IntervalSet::point(RawBsonRef::Int64(hash(Some(value))?))),
            Forms::Integers(double, decimal) => {
                for integer in [double, decimal] {
                    points.push(IntervalSet::point(RawBsonRef::Int64(hash(Some(RawBsonRef::Int64(integer)))?)));
                }
            }
            Forms::Many => return Ok(None),
        }
    }
    Ok(Some(bounds::Bounds { set: IntervalSet::union_of(points), precision: Precision::NeedsFilter }))
}
