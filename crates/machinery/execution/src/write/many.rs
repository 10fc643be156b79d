//! Changing all documents that match: in slices, so that nobody waits for the whole.
//!
//! Invariants:
//! - The collection is held against DDL for one slice at a time, and documents are looked for while it is not held at all. A collection
//!   that is dropped or renamed meanwhile ends the operation with `QueryPlanKilled` (175), as in MongoDB; what it has changed stays.
//! - No document is changed twice: where an update may move a document along the index that it is found by, all are found first, and
//!   what is remembered of them is of the request's memory.
//! - Between two slices the operation keeps the set's pace ([`baton_storage::Throttle`]), and rests if others want the processors.

use super::{Changed, Locked, Retry, Work, Written, change_record, refuse_view};
use crate::access::Given;
use crate::query::{Hint, Query, QuerySpec};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_storage::{Collection, Durability, RecordKey, Storage};
use baton_types::{Error, ErrorCode, MemoryAccount, Namespace, Result};
use bson::RawDocumentBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Documents changed while the collection is held, at the most.
const SLICE_DOCUMENTS: usize = 128;
/// How long it is held, if documents are large: by so much, one document's change is the last of its slice.
const SLICE_TIME: Duration = Duration::from_millis(10);

/// Which documents are to be changed.
pub(super) struct Matching<'a> {
    /// Those of the collection of this name
    pub namespace: &'a Namespace,
    /// that match.
    pub filter: &'a Arc<Matcher>,
    /// By which path they are looked for.
    pub hint: Option<&'a Hint>,
    /// Whether a change may move a document along an index.
    pub moves: bool,
}

/// Who is asked between slices whether to go on, and told how far it is.
pub(super) struct Guide<'a> {
    /// About the collection as it is while it is held for a slice; if it says no, what was changed is all.
    pub goes_on: &'a dyn Fn(&Collection) -> Result<bool>,
    /// Told how many more documents were changed.
    pub changed: Option<&'a mut dyn FnMut(u64)>,
}

impl Guide<'_> {
    /// Goes on to the end.
    pub fn to_the_end() -> Self {
        Self { goes_on: &|_| Ok(true), changed: None }
    }
}

/// Where the documents come from, a slice at a time.
struct Source {
    query: Query,
    /// All that are left, if they were found first; the next is the last.
    found: Option<Vec<RecordKey>>,
    memory: MemoryAccount,
    is_exhausted: bool,
}

impl Source {
    fn new(work: &Work<'_>, collection: &Arc<Collection>, of: &Matching<'_>, context: &Arc<Context>) -> Result<Self> {
        let spec = QuerySpec { hint: of.hint.cloned(), ..QuerySpec::matching(Arc::clone(of.filter)) };
        let query = Query::new(work.storage, Some(Arc::clone(collection)), spec, Arc::clone(context))?;
        let mut source = Self { query, found: None, memory: context.stage_memory(), is_exhausted: false };
        if of.moves && source.query.walks_an_index() {
            let mut all = Vec::new();
            while source.look(work, usize::MAX, &mut all)? {}
            all.reverse();
            source.found = Some(all);
        }
        Ok(source)
    }

    /// Looks for so many more; tells whether there may be others.
    fn look(&mut self, work: &Work<'_>, records_max: usize, records: &mut Vec<RecordKey>) -> Result<bool> {
        let Self { query, memory, .. } = self;
        let is_bounded = records_max != usize::MAX;
        let mut bytes = 0;
        query.run(&|| work.interruption.look(), &mut |record, _| {
            records.push(RecordKey::from_slice(record));
            bytes += size_of::<RecordKey>() + record.len();
            if !is_bounded && records.len().is_multiple_of(1024) && !memory.set(bytes) {
                return Err(Error::new(
                    ErrorCode::ExceededMemoryLimit,
                    "The update may move documents along the index it finds them by, and there are more of them than \
                     may be remembered. Use a filter that matches fewer, or hint another index",
                ));
            }
            Ok(if records.len() >= records_max { Given::TakenLast } else { Given::Taken })
        })
    }

    /// The next documents; none if there are no more.
    fn next_slice(&mut self, work: &Work<'_>) -> Result<Vec<RecordKey>> {
        if let Some(found) = &mut self.found {
            let keep = found.len().saturating_sub(SLICE_DOCUMENTS);
            let mut slice = found.split_off(keep);
            slice.reverse();
            return Ok(slice);
        }
        let mut slice = Vec::with_capacity(SLICE_DOCUMENTS);
        if !self.is_exhausted {
            self.is_exhausted = !self.look(work, SLICE_DOCUMENTS, &mut slice)?;
        }
        Ok(slice)
    }
}

/// Lets `change` fill one transaction for each document that matches. `reply` is what a retry of the statement answers.
pub(super) fn change_all(
    work: &Work<'_>,
    of: &Matching<'_>,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
    reply: &dyn Fn() -> RawDocumentBuf,
    mut guide: Guide<'_>,
    change: &mut dyn FnMut(Locked<'_>) -> Result<Changed>,
) -> Result<Written> {
    let namespace = of.namespace;
    let Some(collection) = work.storage.collection(namespace) else { return Ok(Written::default()) };
    refuse_view(&collection)?;
    let Some((mut source, mut slice)) = begin(work, &collection, of, context)? else { return Ok(Written::default()) };
    let mut written = Written::default();
    // Only the end waits for the disk: one sync covers them all.
    let each = Work { durability: Durability::Applied, left: None, ..*work };
    while !slice.is_empty() {
        let mut records = slice.iter();
        let mut is_over = false;
        while !is_over && records.len() > 0 {
            work.keep_pace()?;
            source.query.rest();
            let before = written.modified;
            let outcome = work.storage.with_collection(namespace, |now| -> Result<bool> {
                let now = now.filter(|now| now.id == collection.id).ok_or_else(|| gone(work.storage, &collection))?;
                if !(guide.goes_on)(now)? {
                    return Ok(true);
                }
                let held = Instant::now();
                for record in records.by_ref() {
                    let (changed, optime) = change_record(&each, now, record, of.filter, retry, reply, change)?;
                    written.add(changed, optime, retry);
                    if held.elapsed() >= SLICE_TIME || work.throttle.is_due(work.storage) {
                        break;
                    }
                }
                Ok(false)
            });
            let more = written.modified - before;
            if let Some(changed) = guide.changed.as_mut().filter(|_| more > 0) {
                changed(more);
            }
            is_over = outcome?;
        }
        if is_over {
            break;
        }
        slice = source.next_slice(work)?;
    }
    if written.modified > 0 {
        work.storage.queue().settle(work.durability);
    }
    Ok(written)
}

/// Finds the first documents; `None` if the collection is gone before any was changed. Where an index is dropped meanwhile, they are
/// looked for by another way.
fn begin(
    work: &Work<'_>,
    collection: &Arc<Collection>,
    of: &Matching<'_>,
    context: &Arc<Context>,
) -> Result<Option<(Source, Vec<RecordKey>)>> {
    loop {
        let begun = Source::new(work, collection, of, context).and_then(|mut source| {
            let slice = source.next_slice(work)?;
            Ok((source, slice))
        });
        match begun {
            Ok(begun) => return Ok(Some(begun)),
            Err(error) if error.code != ErrorCode::QueryPlanKilled => return Err(error),
            Err(_) if work.storage.catalog().by_uuid(collection.uuid).is_none() => return Ok(None),
            Err(_) => work.interruption.look()?,
        }
    }
}

/// Why a collection does not have its name any more, as `QueryPlanKilled` (175).
fn gone(storage: &Storage, collection: &Collection) -> Error {
    let uuid = bson::Uuid::from_bytes(collection.uuid);
    let catalog = storage.catalog();
    let message = match catalog.by_uuid(collection.uuid) {
        Some(now) => format!("collection renamed from '{}' to '{}'. UUID {uuid}", collection.namespace, now.namespace),
        None => format!("collection dropped. UUID {uuid}"),
    };
    Error::new(ErrorCode::QueryPlanKilled, message)
}
