//! Which ways there are to answer a query.
//!
//! ```text
//!   Query ── leaves ──► predicates by path ── bounds ──► sets of values ── key_ranges ──► ranges of encoded keys
//!     │                                         per index: access
//!     └── sort, projection, limit ── candidates ──► Vec<Plan> ── (trial by the execution) ── rank ──► one
//! ```
//!
//! Invariants: every candidate gives the same answer; with an index that could help there is no collection scan among
//! them; documents are clustered by `_id`, so that predicates on it become lookups and scans of the collection itself.
//! Whether an index is multikey is read when planning: a plan must not outlive the state of the indexes it was made for.
//! Pure: nothing here reads data.
//!
//! What it deliberately does not do (yet): merge sorted scans for `$in` or `$or` under a sort, intersect indexes, draw
//! bounds from `$expr`.

mod access;
mod bounds;
mod candidates;
mod explain;
mod hint;
mod implies;
mod index;
mod interval;
mod key_ranges;
mod leaves;
mod plan;
mod rank;
mod regex_prefix;
mod shape;
mod sort_order;
#[cfg(test)]
mod tests;

pub use hint::Hint;
pub use index::{HashFunction, ID_INDEX_NAME, IndexField, IndexSpec, KeyOrder};
pub use interval::{Cut, Interval, IntervalSet};
pub use key_ranges::{IndexBounds, KeyRange};
pub use plan::{IndexScan, Plan, ProjectionKind};
pub use rank::{TrialLimits, TrialResult, rank, score};
pub use shape::hash as shape_hash;

use crate::matcher::{Matcher, Node, Operator, Predicate};
use crate::sort::SortPattern;
use baton_types::Result;
use bson::{RawBsonRef, RawDocument};
use std::sync::Arc;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// The filter.
    pub filter: &'a Matcher,
    /// The order of the results.
    pub sort: Option<&'a SortPattern>,
    /// What of the documents is wanted; all of them if none.
    pub projection: Option<Projected<'a>>,
    /// The index the client insists on.
    pub hint: Option<&'a Hint>,
    /// The first key of the hinted index.
    pub min: Option<&'a RawDocument>,
    /// The first key of the hinted index beyond the results.
    pub max: Option<&'a RawDocument>,
    /// How many results are left out.
    pub skip: u64,
    /// How many results are wanted; all if none.
    pub limit: Option<u64>,
    /// Whether only the number of results is wanted.
    pub is_count: bool,
    /// Whether documents lie in the order of `_id`; those of a capped collection do not.
    pub is_clustered: bool,
}

/// What of the documents is wanted.
#[derive(Clone, Debug)]
pub struct Projected<'a> {
    /// The projection as the client wrote it.
    pub spec: &'a RawDocument,
    /// The paths it reads, `_id` among them unless excluded; none if it reads whole documents.
    pub fields: Option<Vec<String>>,
    /// Whether it only keeps or drops top-level fields.
    pub is_simple: bool,
}

impl<'a> Query<'a> {
    /// A query for all documents that match.
    pub fn new(filter: &'a Matcher) -> Self {
        Self {
            filter,
            sort: None,
            projection: None,
            hint: None,
            min: None,
            max: None,
            skip: 0,
            limit: None,
            is_count: false,
            is_clustered: true,
        }
    }

    /// The query's shape over these indexes: the key under which a choice of plan may be remembered.
    pub fn shape(&self, indexes: &[Arc<IndexSpec>]) -> String {
        shape::shape(self, indexes)
    }
}

/// The candidates for a query over the collection's indexes (the one on `_id` need not be named), the most promising
/// first. Errors: `BadValue` for a hint without an index; 51173 to 51176 for a `min` or `max` that does not fit.
pub fn plan(query: &Query<'_>, indexes: &[Arc<IndexSpec>]) -> Result<Vec<Plan>> {
    candidates::candidates(query, indexes)
}

/// The id that a filter asks for, if that is all it asks for: such a query needs no planning.
pub fn sole_id(filter: &Matcher) -> Option<RawBsonRef<'_>> {
    let Node::Field(field) = filter.root() else { return None };
    match &field.predicate {
        Predicate::Compare(comparison)
            if comparison.operator == Operator::Eq
                && field.path.as_str() == "_id"
                && !matches!(comparison.value(), RawBsonRef::Array(_)) =>
        {
            Some(comparison.value())
        }
        _ => None,
    }
}
