//! A plan as explain shows it: stage documents with MongoDB's names.
//!
//! Invariants: a filter is shown inside the stage that applies it; documents clustered by `_id` are shown as what clients
//! know, a scan of the index `_id_` with a fetch above it.

use super::index::IndexSpec;
use super::key_ranges::IndexBounds;
use super::plan::{IndexScan, Plan, ProjectionKind};
use crate::matcher::Matcher;
use baton_document::keys::Direction;
use bson::{Bson, Document, doc};

impl Plan {
    /// The plan as explain's `winningPlan`.
    pub fn explain(&self) -> Document {
        self.explain_with(&mut |_| Document::new())
    }

    /// The same with further fields for each stage (its counters, for `executionStats`), which are asked for node by
    /// node; a filter and what it filters are one stage, with both nodes' fields, the filter's last.
    pub fn explain_with(&self, extra: &mut dyn FnMut(&Plan) -> Document) -> Document {
        self.stage(None, extra)
    }

    fn stage(&self, filter: Option<&Matcher>, extra: &mut dyn FnMut(&Plan) -> Document) -> Document {
        let own = extra(self);
        let mut stage = match self {
            Self::Filter { input, matcher } => {
                let mut stage = input.stage(Some(matcher), extra);
                stage.extend(own);
                return stage;
            }
            Self::Eof => doc! { "stage": "EOF" },
            Self::CollectionScan { direction } => {
                with_filter(doc! { "stage": "COLLSCAN" }, filter, doc! { "direction": direction_name(*direction) })
            }
            Self::IdLookup { is_whole_filter: true, .. } if filter.is_none() => doc! { "stage": "IDHACK" },
            Self::IdLookup { bounds, direction, .. } | Self::IdScan { bounds, direction } => {
                let (of_fetch, of_scan) = of_both(own);
                let mut fetch = with_filter(doc! { "stage": "FETCH" }, filter, of_fetch);
                let mut scan = doc! { "stage": "IXSCAN" };
                scan.extend(index_fields(&IndexSpec::id(), bounds, *direction));
                scan.extend(of_scan);
                fetch.insert("inputStage", scan);
                return fetch;
            }
            Self::IndexScan(scan) => {
                let mut stage = with_filter(doc! { "stage": "IXSCAN" }, scan.filter.as_ref(), Document::new());
                stage.extend(index_fields(&scan.index, &scan.bounds, scan.direction));
                stage
            }
            Self::Fetch { .. } => with_filter(doc! { "stage": "FETCH" }, filter, Document::new()),
            Self::Or { .. } => with_filter(doc! { "stage": "OR" }, filter, Document::new()),
            Self::Sort { pattern, limit, .. } => sort_stage(pattern.spec(), *limit),
            Self::Skip { count, .. } => doc! { "stage": "SKIP", "skipAmount": amount(*count) },
            Self::Limit { count, .. } => doc! { "stage": "LIMIT", "limitAmount": amount(*count) },
            Self::Projection { spec, kind, .. } => {
                doc! { "stage": projection_name(*kind), "transformBy": spec.clone() }
            }
            Self::Count { input } => return count_stage(input, own, extra),
        };
        stage.extend(own);
        match self.inputs() {
            [] => {}
            [input] if !matches!(self, Self::Or { .. }) => {
                stage.insert("inputStage", input.stage(None, extra));
            }
            inputs => {
                let inputs: Vec<Bson> = inputs.iter().map(|input| Bson::Document(input.stage(None, extra))).collect();
                stage.insert("inputStages", inputs);
            }
        }
        stage
    }
}

/// The fields of a node that is shown as two stages: keys are examined by the scan, documents by the fetch.
fn of_both(own: Document) -> (Document, Document) {
    let (mut of_fetch, mut of_scan) = (own.clone(), own);
    of_fetch.remove("keysExamined");
    of_scan.remove("docsExamined");
    (of_fetch, of_scan)
}

/// A count over an index's keys alone has a stage of its own.
fn count_stage(input: &Plan, own: Document, extra: &mut dyn FnMut(&Plan) -> Document) -> Document {
    let mut stage = doc! { "stage": "COUNT" };
    stage.extend(own);
    let inner = match input {
        Plan::IndexScan(scan @ IndexScan { filter: None, .. }) => {
            let mut inner = doc! { "stage": "COUNT_SCAN" };
            inner.extend(index_fields(&scan.index, &scan.bounds, scan.direction));
            inner.extend(extra(input));
            inner
        }
        Plan::CollectionScan { .. } => {
            let mut inner = doc! { "stage": "RECORD_STORE_FAST_COUNT" };
            inner.extend(extra(input));
            inner
        }
        other => other.stage(None, extra),
    };
    stage.insert("inputStage", inner);
    stage
}

fn with_filter(mut stage: Document, filter: Option<&Matcher>, rest: Document) -> Document {
    if let Some(filter) = filter {
        stage.insert("filter", filter.to_document());
    }
    stage.extend(rest);
    stage
}

fn index_fields(index: &IndexSpec, bounds: &IndexBounds, direction: Direction) -> Document {
    let mut multikey_paths = Document::new();
    let mut index_bounds = Document::new();
    for (i, field) in index.key.iter().enumerate() {
        let path = field.path.as_str();
        let arrays: Vec<Bson> = if index.is_multikey_at(i) { vec![path.into()] } else { Vec::new() };
        multikey_paths.insert(path, arrays);
        index_bounds.insert(path, bounds.display(i, direction));
    }
    doc! {
        "keyPattern": index.key_pattern(),
        "indexName": &index.name,
        "isMultiKey": index.is_multikey(),
        "multiKeyPaths": multikey_paths,
        "isUnique": index.unique,
        "isSparse": index.sparse,
        "isPartial": index.partial.is_some(),
        "indexVersion": 2,
        "direction": direction_name(direction),
        "indexBounds": index_bounds,
    }
}

fn sort_stage(pattern: &bson::RawDocument, limit: Option<u64>) -> Document {
    let mut stage = doc! {
        "stage": "SORT",
        "sortPattern": Document::try_from(pattern).unwrap_or_default(),
        "type": "simple",
    };
    if let Some(limit) = limit {
        stage.insert("limitAmount", amount(limit));
    }
    stage
}

fn amount(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Ascending => "forward",
        Direction::Descending => "backward",
    }
}

fn projection_name(kind: ProjectionKind) -> &'static str {
    match kind {
        ProjectionKind::Covered => "PROJECTION_COVERED",
        ProjectionKind::Simple => "PROJECTION_SIMPLE",
        ProjectionKind::Default => "PROJECTION_DEFAULT",
    }
}
