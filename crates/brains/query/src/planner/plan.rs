//! A plan: what to read and what to do with it, as a closed tree that the execution carries out.
//!
//! Invariants: scans of an index yield keys with record ids; [`Plan::Fetch`] turns them into documents; scans of the
//! collection and of `_id` yield documents at once (documents lie in the order of `_id`). A scan of a multikey index, or
//! an [`Plan::Or`], may come upon a document more than once: whoever carries it out passes it on the first time only.

use super::index::IndexSpec;
use super::key_ranges::{IndexBounds, KeyRange};
use crate::matcher::Matcher;
use crate::sort::SortPattern;
use baton_document::keys::Direction;
use bson::Document;
use std::sync::Arc;

/// A node of a plan.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Nothing matches.
    Eof,
    /// Every document, in the order of `_id`.
    CollectionScan {
        /// Forward or backward.
        direction: Direction,
    },
    /// Documents of given ids.
    IdLookup {
        /// The encoded ids, ascending.
        ids: Vec<Vec<u8>>,
        /// Whether to take them from the first or from the last.
        direction: Direction,
        /// The bounds they are.
        bounds: IndexBounds,
        /// Whether the filter was nothing but one id.
        is_whole_filter: bool,
    },
    /// Documents whose ids lie in ranges of encoded ids.
    IdScan {
        /// The bounds.
        bounds: IndexBounds,
        /// Forward or backward.
        direction: Direction,
    },
    /// Keys of an index, with record ids.
    IndexScan(IndexScan),
    /// The documents of the input's record ids.
    Fetch {
        /// What gives the record ids.
        input: Box<Plan>,
    },
    /// The documents that match.
    Filter {
        /// What gives the documents.
        input: Box<Plan>,
        /// What they must match.
        matcher: Matcher,
    },
    /// What any of the inputs gives, each document once. Either all of them give record ids, or all give documents.
    Or {
        /// The branches.
        inputs: Vec<Plan>,
    },
    /// In order.
    Sort {
        /// What is sorted.
        input: Box<Plan>,
        /// By what.
        pattern: SortPattern,
        /// How many are wanted from the top.
        limit: Option<u64>,
    },
    /// Without the first few.
    Skip {
        /// What is cut.
        input: Box<Plan>,
        /// How many are left out.
        count: u64,
    },
    /// The first few.
    Limit {
        /// What is cut.
        input: Box<Plan>,
        /// How many pass.
        count: u64,
    },
    /// The query's projection.
    Projection {
        /// What is projected.
        input: Box<Plan>,
        /// The projection as the client wrote it.
        spec: Document,
        /// How it is carried out.
        kind: ProjectionKind,
    },
    /// Only the number of results.
    Count {
        /// What is counted.
        input: Box<Plan>,
    },
}

/// How a projection gets at its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectionKind {
    /// From index keys alone; its input yields documents made of keys (see [`IndexScan::covers`]).
    Covered,
    /// From documents, only keeping or dropping top-level fields.
    Simple,
    /// From documents.
    Default,
}

/// A scan of an index.
#[derive(Clone, Debug)]
pub struct IndexScan {
    /// The index.
    pub index: Arc<IndexSpec>,
    /// Forward or backward.
    pub direction: Direction,
    /// The keys.
    pub bounds: IndexBounds,
    /// What a document made of the key alone must match; its paths are fields of the index without arrays.
    pub filter: Option<Matcher>,
    /// Whether the query is answered from keys, without documents. A key that holds null may stand for a missing field:
    /// for such a key the document must be read after all, unless nothing of it is wanted but its number.
    pub covers: bool,
}

impl IndexScan {
    /// Whether a document may come up more than once.
    pub fn needs_deduplication(&self) -> bool {
        self.index.is_multikey()
    }

    /// The ranges of encoded keys, ascending.
    pub fn ranges(&self) -> &[KeyRange] {
        self.bounds.ranges()
    }
}

impl Plan {
    /// The node's inputs.
    pub fn inputs(&self) -> &[Plan] {
        match self {
            Self::Eof | Self::CollectionScan { .. } | Self::IdLookup { .. } | Self::IdScan { .. } => &[],
            Self::IndexScan(_) => &[],
            Self::Fetch { input }
            | Self::Filter { input, .. }
            | Self::Sort { input, .. }
            | Self::Skip { input, .. }
            | Self::Limit { input, .. }
            | Self::Projection { input, .. }
            | Self::Count { input } => std::slice::from_ref(&**input),
            Self::Or { inputs } => inputs,
        }
    }

    /// Whether some node of the plan satisfies a condition.
    pub fn any(&self, condition: &mut dyn FnMut(&Plan) -> bool) -> bool {
        condition(self) || self.inputs().iter().any(|input| input.any(condition))
    }

    /// Whether everything must be read before the first result.
    pub fn has_blocking_sort(&self) -> bool {
        self.any(&mut |plan| matches!(plan, Self::Sort { .. }))
    }

    /// Whether documents are read by record id.
    pub fn has_fetch(&self) -> bool {
        self.any(&mut |plan| matches!(plan, Self::Fetch { .. }))
    }

    /// Whether the plan reads the whole collection.
    pub fn is_collection_scan(&self) -> bool {
        self.any(&mut |plan| matches!(plan, Self::CollectionScan { .. }))
    }

    /// The indexes it uses, for the statistics; `_id_` for lookups and scans by id.
    pub fn index_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.collect_index_names(&mut names);
        names
    }

    fn collect_index_names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::IdLookup { .. } | Self::IdScan { .. } => names.push(super::ID_INDEX_NAME),
            Self::IndexScan(scan) => names.push(&scan.index.name),
            _ => {}
        }
        self.inputs().iter().for_each(|input| input.collect_index_names(names));
    }

    /// The plan in short, as the slow-operation log has it: `IXSCAN { a: 1 }`.
    pub fn summary(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        self.any(&mut |plan| {
            let part = match plan {
                Self::Eof => "EOF".into(),
                Self::CollectionScan { .. } => "COLLSCAN".into(),
                Self::IdLookup { is_whole_filter: true, .. } => "IDHACK".into(),
                Self::IdLookup { .. } | Self::IdScan { .. } => "IXSCAN { _id: 1 }".into(),
                Self::IndexScan(scan) => {
                    let fields = scan.index.key_pattern().into_iter().map(|(k, v)| format!("{k}: {v}"));
                    format!("IXSCAN {{ {} }}", fields.collect::<Vec<_>>().join(", "))
                }
                _ => return false,
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
            false
        });
        parts.join(", ")
    }

    pub(super) fn boxed(self) -> Box<Self> {
        Box::new(self)
    }
}
