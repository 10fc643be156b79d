//! Carries plans out over documents in memory, as literally as the plan's definition says.

use crate::planner::{HashFunction, IndexScan, IndexSpec, KeyOrder, Plan, Query};
use baton_document::keys::{self, Direction};
use baton_document::path::{Path, index_keys};
use baton_types::{Interruption, Result};
use bson::raw::RawDocumentBuf;
use bson::{RawBson, RawBsonRef};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A key with its record id appended, and the values it was made of.
type Entries = BTreeMap<Vec<u8>, (Vec<RawBson>, Vec<u8>)>;

/// A collection with its indexes.
pub(super) struct Store {
    pub(super) documents: BTreeMap<Vec<u8>, RawDocumentBuf>,
    indexes: Vec<(Arc<IndexSpec>, Entries)>,
}

/// A result on its way: its record id, and the document once it is there.
pub(super) struct Row {
    pub(super) id: Vec<u8>,
    pub(super) document: Option<RawDocumentBuf>,
}

pub(super) fn encoded(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    keys::encode(&mut bytes, value, Direction::Ascending);
    bytes
}

/// A hash with many collisions.
pub(super) const HASH: HashFunction = |value| Ok(baton_document::hash::index_hash(value)? % 5);

impl Store {
    /// Indexes documents; one that an index cannot hold is left out of the collection.
    pub(super) fn new(documents: Vec<RawDocumentBuf>, specs: Vec<IndexSpec>) -> Self {
        let paths: Vec<Vec<Path>> =
            specs.iter().map(|spec| spec.key.iter().map(|field| field.path.clone()).collect()).collect();
        let fits = |document: &RawDocumentBuf| {
            paths.iter().all(|paths| index_keys(document, paths, false, &Interruption::default()).is_ok())
        };
        let documents: BTreeMap<Vec<u8>, RawDocumentBuf> = documents
            .into_iter()
            .filter(fits)
            .map(|document| (encoded(document.get("_id").unwrap().unwrap()), document))
            .collect();
        let mut indexes = Vec::new();
        for (mut spec, paths) in specs.into_iter().zip(paths) {
            let mut entries = Entries::new();
            for (id, document) in &documents {
                if spec.partial.as_ref().is_some_and(|partial| !partial.matches(document).unwrap()) {
                    continue;
                }
                let found = index_keys(document, &paths, spec.sparse, &Interruption::default()).unwrap();
                for (i, components) in found.multikey_components.iter().enumerate() {
                    spec.multikey |= u64::from(!components.is_empty()) << i;
                }
                for key in found.keys {
                    let mut bytes = entry_key(&spec, &key.values);
                    bytes.extend_from_slice(id);
                    let values = key.values.iter().map(|value| RawBson::from(*value)).collect();
                    entries.insert(bytes, (values, id.clone()));
                }
            }
            indexes.push((Arc::new(spec), entries));
        }
        Self { documents, indexes }
    }

    pub(super) fn specs(&self) -> Vec<Arc<IndexSpec>> {
        self.indexes.iter().map(|(spec, _)| spec.clone()).collect()
    }

    /// The ids that match by looking at every document.
    pub(super) fn matching(&self, query: &Query<'_>) -> HashSet<Vec<u8>> {
        let matching = self.documents.iter().filter(|(_, document)| query.filter.matches(document).unwrap());
        matching.map(|(id, _)| id.clone()).collect()
    }

    fn row(&self, id: &[u8]) -> Option<Row> {
        self.documents.get(id).map(|document| Row { id: id.to_vec(), document: Some(document.clone()) })
    }

    pub(super) fn run(&self, plan: &Plan) -> Result<Vec<Row>> {
        Ok(match plan {
            Plan::Eof => Vec::new(),
            Plan::CollectionScan { direction } => {
                in_direction(self.documents.keys().filter_map(|id| self.row(id)).collect(), *direction)
            }
            Plan::IdLookup { ids, direction, .. } => {
                in_direction(ids.iter().filter_map(|id| self.row(id)).collect(), *direction)
            }
            Plan::IdScan { bounds, direction } => {
                let is_within =
                    |id: &&Vec<u8>| bounds.ranges().iter().any(|range| range.start <= **id && **id < range.end);
                in_direction(
                    self.documents.keys().filter(is_within).filter_map(|id| self.row(id)).collect(),
                    *direction,
                )
            }
            Plan::IndexScan(scan) => self.index_scan(scan)?,
            Plan::Fetch { input } => self.run(input)?.iter().filter_map(|row| self.row(&row.id)).collect(),
            Plan::Filter { input, matcher } => {
                let mut rows = self.run(input)?;
                rows.retain(|row| matcher.matches(row.document.as_ref().unwrap()).unwrap());
                rows
            }
            Plan::Or { inputs } => {
                let mut rows = Vec::new();
                let mut seen = HashSet::new();
                for input in inputs {
                    rows.extend(self.run(input)?.into_iter().filter(|row| seen.insert(row.id.clone())));
                }
                rows
            }
            Plan::Sort { input, pattern, limit } => {
                let mut rows = self.run(input)?;
                rows.sort_by_cached_key(|row| {
                    pattern.key(row.document.as_ref().unwrap(), &Interruption::default()).unwrap()
                });
                rows.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
                rows
            }
            Plan::Skip { input, count } => self.run(input)?.into_iter().skip(*count as usize).collect(),
            Plan::Limit { input, count } => self.run(input)?.into_iter().take(*count as usize).collect(),
            Plan::Projection { input, .. } | Plan::Count { input } => self.run(input)?,
        })
    }

    fn index_scan(&self, scan: &IndexScan) -> Result<Vec<Row>> {
        let (_, entries) = self.indexes.iter().find(|(spec, _)| spec.name == scan.index.name).unwrap();
        let ranges = scan.ranges();
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "ranges are ascending and disjoint");
        let mut rows = Vec::new();
        let mut seen = HashSet::new();
        let within = ranges.iter().flat_map(|range| entries.range(range.start.clone()..range.end.clone()));
        for (key, (values, id)) in in_direction(within.collect(), scan.direction) {
            if scan.bounds.needs_check() && !scan.bounds.contains(key)? {
                continue;
            }
            assert!(scan.bounds.contains(key)?, "the ranges of {:?} hold only what is in bounds", scan.index.name);
            let values: Vec<RawBsonRef<'_>> = values.iter().map(|value| value.as_raw_bson_ref()).collect();
            let mut document = None;
            if scan.filter.is_some() || scan.covers {
                let made = scan.index.key_document(&values)?;
                if scan.filter.as_ref().is_some_and(|filter| !filter.matches(&made).unwrap()) {
                    continue;
                }
                let may_be_missing = values.contains(&RawBsonRef::Null);
                document = if may_be_missing { self.documents.get(id).cloned() } else { Some(made) };
            }
            let is_first = seen.insert(id.clone());
            assert!(is_first || scan.needs_deduplication(), "one key a document");
            if is_first {
                rows.push(Row { id: id.clone(), document: document.filter(|_| scan.covers) });
            }
        }
        Ok(rows)
    }
}

fn in_direction<T>(mut rows: Vec<T>, direction: Direction) -> Vec<T> {
    if direction == Direction::Descending {
        rows.reverse();
    }
    rows
}

fn entry_key(spec: &IndexSpec, values: &[RawBsonRef<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (field, value) in spec.key.iter().zip(values) {
        match field.order {
            KeyOrder::Ordered(direction) => keys::encode(&mut bytes, *value, direction),
            KeyOrder::Hashed(hash) => {
                keys::encode(&mut bytes, RawBsonRef::Int64(hash(Some(*value)).unwrap()), Direction::Ascending);
            }
            KeyOrder::Unsearchable(_) => unreachable!("no test has one with entries"),
        }
    }
    bytes
}
