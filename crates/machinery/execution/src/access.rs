//! Access paths: the ways to get at a collection's documents, each with a position to resume at.
//!
//! Invariant: between two calls of [`Access::run`] an access holds positions and no resources of storage. A document
//! that the receiver did not take is given again.

use crate::Interrupt;
use ahash::RandomState;
use baton_document::keys;
use baton_query::planner::IndexScan;
use baton_storage::{Bounds, Collection, Index, IndexEntry, Order, RecordKey, View};
use baton_types::Result;
use bson::raw::RawBson;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use hashbrown::HashSet;
use std::sync::Arc;

/// What the receiver did with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Took it; wants more.
    Taken,
    /// Took it; wants no more for now.
    TakenLast,
    /// Had no place for it; wants it again.
    Refused,
}

/// What a query looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Index entries.
    pub keys: u64,
    /// Documents.
    pub documents: u64,
    /// Ranges of an index begun.
    pub seeks: u64,
    /// Index entries of documents that another entry had given already.
    pub duplicates: u64,
}

/// What an access looked at and how many documents it gave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leaf {
    pub examined: Examined,
    pub given: u64,
}

/// One access of several.
pub struct Part {
    pub(crate) access: Access,
    pub(crate) figures: Leaf,
}

/// Index entries, or documents, between two questions whether to go on.
pub(crate) const INTERRUPT_EVERY: u64 = 128;

impl Examined {
    fn key(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        self.keys += 1;
        if self.keys.is_multiple_of(INTERRUPT_EVERY) { interrupt() } else { Ok(()) }
    }

    fn document(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        self.documents += 1;
        if self.documents.is_multiple_of(INTERRUPT_EVERY) { interrupt() } else { Ok(()) }
    }
}

/// One way to get at documents.
pub enum Access {
    /// None at all.
    Nothing,
    /// The documents with these record keys, in this order.
    Points {
        /// The keys.
        records: Vec<RecordKey>,
        /// The next one's place.
        next: usize,
    },
    /// Documents in ranges of record keys, in the order of the ranges.
    Documents {
        /// The ranges still to do; the first is cut down as it is walked.
        ranges: Vec<Bounds>,
        /// Which way.
        order: Order,
    },
    /// Documents whose entries in an index lie in ranges.
    Entries(Box<Entries>),
    /// Documents that any of several accesses gives, each once.
    Union {
        /// The accesses.
        parts: Vec<Part>,
        /// The place of the one under way.
        next: usize,
        /// Record keys given so far.
        seen: HashSet<RecordKey, RandomState>,
    },
}

impl Access {
    /// The indexes that are walked.
    pub(crate) fn collect_indexes<'a>(&'a self, into: &mut Vec<&'a Index>) {
        match self {
            Self::Entries(entries) => into.push(&entries.index),
            Self::Union { parts, .. } => parts.iter().for_each(|part| part.access.collect_indexes(into)),
            Self::Nothing | Self::Points { .. } | Self::Documents { .. } => {}
        }
    }
}

/// A walk over an index.
pub struct Entries {
    /// The index.
    pub index: Arc<Index>,
    /// The ranges still to do; the first is cut down as it is walked.
    pub ranges: Vec<Bounds>,
    /// Which way.
    pub order: Order,
    /// Record keys given so far, where one document may have several entries.
    pub seen: Option<HashSet<RecordKey, RandomState>>,
    /// The scan as planned: which keys count, and whether they answer for the document.
    pub scan: IndexScan,
}

impl Entries {
    fn run(
        &mut self,
        view: &View<'_>,
        collection: &Collection,
        examined: &mut Examined,
        interrupt: Interrupt<'_>,
        receive: Receiver<'_>,
    ) -> Result<bool> {
        let Self { index, ranges, order, seen, scan } = self;
        while let Some(range) = ranges.first_mut() {
            let mut cursor = view.entries(index, range, *order);
            examined.seeks += 1;
            while let Some(entry) = cursor.next_entry()? {
                examined.key(interrupt)?;
                if scan.bounds.needs_check() && !scan.bounds.contains(entry.fields)? {
                    continue;
                }
                if seen.as_ref().is_some_and(|seen| seen.contains(entry.record)) {
                    examined.duplicates += 1;
                    continue;
                }
                let key = if scan.covers || scan.filter.is_some() { Some(key_document(scan, &entry)?) } else { None };
                if let (Some(filter), Some((document, _))) = (&scan.filter, &key)
                    && !filter.matches(document)?
                {
                    continue;
                }
                let given = match key {
                    // A null in the key may stand for a missing field: then only the document can tell.
                    Some((document, false)) if scan.covers => receive(entry.record, &document)?,
                    _ => {
                        let Some(bytes) = view.get(collection, entry.record)? else { continue };
                        examined.documents += 1;
                        receive(entry.record, baton_storage::stored_document(&bytes)?)?
                    }
                };
                if given != Given::Refused
                    && let Some(seen) = seen
                {
                    seen.insert(RecordKey::from_slice(entry.record));
                }
                if given != Given::Taken {
                    cut(range, entry.position, *order, given == Given::TakenLast);
                    return Ok(true);
                }
            }
            ranges.remove(0);
        }
        Ok(false)
    }
}

/// A document made of an entry's key, and whether any of its values is null.
fn key_document(scan: &IndexScan, entry: &IndexEntry<'_>) -> Result<(RawDocumentBuf, bool)> {
    let mut values: Vec<RawBson> = Vec::with_capacity(scan.index.key.len());
    match entry.originals {
        Some(originals) => {
            for element in originals {
                values.push(element?.1.into());
            }
        }
        None => {
            let mut rest = entry.fields;
            for field in &scan.index.key {
                values.push(RawBson::try_from(keys::decode(&mut rest, field.order.direction())?)?);
            }
        }
    }
    let has_null = values.iter().any(|value| matches!(value, RawBson::Null));
    let values: Vec<RawBsonRef<'_>> = values.iter().map(RawBson::as_raw_bson_ref).collect();
    Ok((scan.index.key_document(&values)?, has_null))
}

/// Gets each document with its record key.
pub type Receiver<'a> = &'a mut dyn FnMut(&[u8], &RawDocument) -> Result<Given>;

impl Access {
    /// Points in an order.
    pub fn points(records: Vec<RecordKey>) -> Self {
        Self::Points { records, next: 0 }
    }

    /// The documents that any of several accesses gives, each once.
    pub fn union(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::Union {
            parts: parts.into_iter().map(|access| Part { access, figures: Leaf::default() }).collect(),
            next: 0,
            seen: HashSet::with_hasher(RandomState::new()),
        }
    }

    /// The whole collection.
    pub fn everything(order: Order) -> Self {
        Self::Documents { ranges: vec![Bounds::default()], order }
    }

    /// Gives documents until the receiver wants no more or there are none left; tells whether there may be more. Asks
    /// `interrupt` every few entries and documents, also where none of them is given.
    pub fn run(
        &mut self,
        view: &View<'_>,
        collection: &Collection,
        examined: &mut Examined,
        interrupt: Interrupt<'_>,
        receive: Receiver<'_>,
    ) -> Result<bool> {
        match self {
            Self::Nothing => Ok(false),
            Self::Points { records, next } => {
                while let Some(record) = records.get(*next) {
                    examined.key(interrupt)?;
                    if let Some(bytes) = view.get(collection, record)? {
                        examined.documents += 1;
                        match receive(record, baton_storage::stored_document(&bytes)?)? {
                            Given::Taken => {}
                            Given::TakenLast => {
                                *next += 1;
                                return Ok(*next < records.len());
                            }
                            Given::Refused => return Ok(true),
                        }
                    }
                    *next += 1;
                }
                Ok(false)
            }
            Self::Documents { ranges, order } => {
                while let Some(range) = ranges.first_mut() {
                    let mut cursor = view.documents(collection, range, *order);
                    while let Some((record, document)) = cursor.next_document()? {
                        examined.document(interrupt)?;
                        match receive(record, document)? {
                            Given::Taken => {}
                            Given::TakenLast => {
                                cut(range, record, *order, true);
                                return Ok(true);
                            }
                            Given::Refused => {
                                cut(range, record, *order, false);
                                return Ok(true);
                            }
                        }
                    }
                    ranges.remove(0);
                }
                Ok(false)
            }
            Self::Entries(entries) => entries.run(view, collection, examined, interrupt, receive),
            Self::Union { parts, next, seen } => {
                while let Some(Part { access, figures }) = parts.get_mut(*next) {
                    let mut stopped = false;
                    let before = figures.examined;
                    access.run(view, collection, &mut figures.examined, interrupt, &mut |record, document| {
                        figures.given += 1;
                        if seen.contains(record) {
                            return Ok(Given::Taken);
                        }
                        let given = receive(record, document)?;
                        if given == Given::Refused {
                            figures.given -= 1;
                        } else {
                            seen.insert(RecordKey::from_slice(record));
                        }
                        stopped = given != Given::Taken;
                        Ok(given)
                    })?;
                    examined.keys += figures.examined.keys - before.keys;
                    examined.documents += figures.examined.documents - before.documents;
                    if stopped {
                        return Ok(true);
                    }
                    *next += 1;
                }
                Ok(false)
            }
        }
    }
}

/// Cuts a range down to what lies beyond `position`, which was taken or not.
fn cut(range: &mut Bounds, position: &[u8], order: Order, taken: bool) {
    let mut after = position.to_vec();
    after.push(0);
    match (order, taken) {
        (Order::Forward, true) => range.from = after,
        (Order::Forward, false) => range.from = position.to_vec(),
        (Order::Backward, true) => range.to = Some(position.to_vec()),
        (Order::Backward, false) => range.to = Some(after),
    }
}
