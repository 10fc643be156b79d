//! A query at work: access, filter, sort, window, projection, one batch at a time.

use crate::access::{Access, Examined, Given, INTERRUPT_EVERY, Leaf};
use crate::explain;
use crate::plan::{self, PlanChoice};
use crate::resting::Resting;
use crate::{Check, Interrupt};
use baton_query::interruption::BYTES_PER_STEP;
use baton_query::matcher::Matcher;
use baton_query::projection::Projection;
use baton_query::sort::{SortPattern, Sorted, Sorter};
use baton_query::spill::{SpillKind, Spillable, Spilled, damaged};
use baton_query::{Context, Effort};
use baton_storage::{Collection, CollectionKind, Index, Order, RecordKey, Storage};
use baton_types::{Error, ErrorCode, Result};
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use std::cell::RefCell;
use std::sync::Arc;

/// How a client wants a query to be served.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// By the index of this name.
    Name(String),
    /// The same, also if clients are not to be served by it: the member's own upkeep is.
    EvenHidden(String),
    /// By the index on this key pattern.
    Pattern(RawDocumentBuf),
    /// By walking the collection.
    Natural(Order),
}

/// What to look for.
#[derive(Clone)]
pub struct QuerySpec {
    /// Which documents.
    pub filter: Arc<Matcher>,
    /// In what order.
    pub sort: Option<Arc<SortPattern>>,
    /// How many to leave out first.
    pub skip: u64,
    /// How many at the most.
    pub limit: Option<u64>,
    /// What of each.
    pub projection: Option<(Arc<RawDocumentBuf>, Arc<Projection>)>,
    /// Whether only their number is asked for.
    pub is_count: bool,
    /// By which path.
    pub hint: Option<Hint>,
    /// Lowest index key, inclusive.
    pub min: Option<RawDocumentBuf>,
    /// Highest index key, exclusive.
    pub max: Option<RawDocumentBuf>,
}

impl QuerySpec {
    /// All documents that match, in any order.
    pub fn matching(filter: Arc<Matcher>) -> Self {
        Self {
            filter,
            sort: None,
            skip: 0,
            limit: None,
            projection: None,
            is_count: false,
            hint: None,
            min: None,
            max: None,
        }
    }
}

/// A document with its record key, on its way through a blocking sort.
struct Found {
    record: RecordKey,
    document: RawDocumentBuf,
}

/// The record key's length (u16), the record key, the document.
impl Spillable for Found {
    fn put(&self, out: &mut Vec<u8>) {
        // An `_id` that makes a longer key than that could not be stored.
        out.extend_from_slice(&u16::try_from(self.record.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&self.record);
        self.document.put(out);
    }

    fn take(bytes: &[u8]) -> Result<Self> {
        let (length, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let (record, document) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or_else(damaged)?;
        Ok(Self { record: RecordKey::from_slice(record), document: Spillable::take(document)? })
    }
}

/// Documents between the access path and the reply.
#[derive(Default)]
struct Progress {
    /// Given by the access path.
    given: u64,
    /// Matched the filter.
    matched: u64,
    /// Passed over by `skip`.
    skipped: u64,
    /// Taken in by a blocking sort, in bytes.
    sorted_bytes: u64,
    /// What that could not hold in memory.
    spilled: Spilled,
}

/// A planned query, and how far it is.
pub struct Query {
    storage: Arc<Storage>,
    collection: Option<Arc<Collection>>,
    spec: QuerySpec,
    choice: PlanChoice,
    access: Access,
    skip: u64,
    left: Option<u64>,
    /// The sorted result, once the input of a blocking sort is in.
    sorted: Option<Sorted<Found>>,
    context: Arc<Context>,
    /// What it looked at so far.
    examined: Examined,
    progress: Progress,
    resting: Resting,
    /// Documents returned so far.
    pub returned: u64,
}

impl Query {
    /// Plans a query. A collection that does not exist has no documents.
    pub fn new(
        storage: &Arc<Storage>,
        collection: Option<Arc<Collection>>,
        spec: QuerySpec,
        context: Arc<Context>,
    ) -> Result<Self> {
        if collection.is_none() && context.read_at.is_some() {
            // At that time it may have been there.
            storage.view_at(context.read_at)?;
        }
        let mut choice = plan::choose(storage, collection.as_ref(), &spec, &context)?;
        let access = std::mem::replace(&mut choice.access, Access::Nothing);
        // Who reads the log is followed by others.
        let reads_log = collection.as_ref().is_some_and(|collection| collection.kind == CollectionKind::Oplog);
        let resting = if reads_log { Resting::never() } else { Resting::allowed(context.class) };
        Ok(Self {
            storage: Arc::clone(storage),
            skip: spec.skip,
            left: spec.limit,
            collection,
            spec,
            choice,
            access,
            sorted: None,
            context,
            examined: Examined::default(),
            progress: Progress::default(),
            resting,
            returned: 0,
        })
    }

    /// The same, run while something is held that others wait for: it does not rest.
    pub(crate) fn restless(self) -> Self {
        Self { resting: Resting::never(), ..self }
    }

    /// A step of the request is over that looks at documents found by this query. See [`Resting::step`].
    pub(crate) fn rest(&mut self) {
        self.resting.step(self.storage.company(), &self.context.effort);
    }

    /// From now on evaluation asks `check` whether to go on.
    pub fn ask(&self, check: &Check) {
        self.context.interruption.set(check);
    }

    /// By which plan it runs, in a word: `IDHACK`, `COLLSCAN`, `IXSCAN { a: 1 }`.
    pub fn plan_summary(&self) -> &str {
        &self.choice.summary
    }

    /// What its documents match.
    pub fn filter(&self) -> &Matcher {
        &self.spec.filter
    }

    /// The plan, as explain shows it.
    pub fn winning_plan(&self) -> Document {
        self.choice.plan(&self.spec).explain()
    }

    /// The plans not chosen, as explain shows them.
    pub fn rejected_plans(&self) -> Vec<Document> {
        self.choice.rejected()
    }

    /// What it looked at so far.
    pub fn examined(&self) -> Examined {
        self.examined
    }

    /// Explain's `executionStats` of a query that has run for `millis` milliseconds.
    pub fn execution_stats(&self, millis: u64) -> Document {
        let plan = self.choice.plan(&self.spec);
        let whole = Leaf { examined: self.examined, given: self.progress.given };
        let run = explain::Run {
            leaves: self.access.leaves(whole),
            matched: self.progress.matched,
            skipped: self.progress.skipped,
            returned: self.returned,
            is_cut: self.left == Some(0) && self.sorted.is_none(),
            sorted_bytes: self.progress.sorted_bytes,
            sort_bytes_max: self.context.memory_bytes_max as u64,
            spilled: self.progress.spilled,
            millis,
        };
        let totals = explain::totals(&plan, &run.leaves);
        doc! {
            "executionSuccess": true,
            // A count returns no document.
            "nReturned": explain::number(if self.spec.is_count { 0 } else { self.returned }),
            "executionTimeMillis": explain::number(millis),
            "totalKeysExamined": explain::number(totals.keys),
            "totalDocsExamined": explain::number(totals.documents),
            "executionStages": explain::stages(&plan, &run),
        }
    }

    /// Whether it finds documents in the order of an index, so that one whose key changes meanwhile may come again.
    pub(crate) fn walks_an_index(&self) -> bool {
        let mut walked = Vec::new();
        self.access.collect_indexes(&mut walked);
        !walked.is_empty()
    }

    /// Offers documents until `offer` refuses one or there are none left; tells whether there may be more.
    pub fn run(
        &mut self,
        interrupt: Interrupt<'_>,
        offer: &mut dyn FnMut(&[u8], &RawDocument) -> Result<Given>,
    ) -> Result<bool> {
        let Some(collection) = self.collection.clone() else { return Ok(false) };
        if self.left == Some(0) {
            return Ok(false);
        }
        if self.spec.sort.is_some() && !self.choice.provides_sort {
            if self.sorted.is_none() {
                self.sorted = Some(self.sort_all(&collection, interrupt)?);
            }
            return self.run_sorted(interrupt, offer);
        }
        let storage = Arc::clone(&self.storage);
        let view = storage.view_at(self.context.read_at)?.read_by(self.context.class);
        self.check_still_there(&collection)?;
        let Self { spec, access, skip, left, examined, progress, returned, resting, context, .. } = self;
        let resting = RefCell::new(resting);
        let interrupt = &|| rest_unless(interrupt, &storage, &mut resting.borrow_mut(), &context.effort);
        let more = access.run(&view, &collection, examined, interrupt, &mut |record, document| {
            progress.given += 1;
            let Some(details) = admits(spec, document)? else { return Ok(Given::Taken) };
            progress.matched += 1;
            if *skip > 0 {
                *skip -= 1;
                progress.skipped += 1;
                return Ok(Given::Taken);
            }
            let given = match &spec.projection {
                Some((_, projection)) => offer(record, &projection.apply(document, details.as_ref())?)?,
                None => offer(record, document)?,
            };
            if given == Given::Refused {
                // It comes once more.
                progress.given -= 1;
                progress.matched -= 1;
                return Ok(given);
            }
            *returned += 1;
            if let Some(left) = left {
                *left -= 1;
                if *left == 0 {
                    return Ok(Given::TakenLast);
                }
            }
            Ok(given)
        })?;
        Ok(more && self.left != Some(0))
    }

    /// `QueryPlanKilled` (175) if the collection, or an index that the plan walks, has been dropped: its keys go, and what is left of
    /// them is not the answer. Asked once the view is taken: what is in the catalog then is whole in the view.
    fn check_still_there(&self, collection: &Collection) -> Result<()> {
        let killed = |why: String| Err(Error::new(ErrorCode::QueryPlanKilled, why));
        let catalog = self.storage.catalog();
        let is_it = |found: &&Arc<Collection>| found.uuid == collection.uuid;
        // By its UUID if it has been renamed.
        let now = catalog.get(&collection.namespace).filter(is_it).or_else(|| catalog.by_uuid(collection.uuid));
        let Some(now) = now else {
            return killed(format!("collection dropped. UUID {}", bson::Uuid::from_bytes(collection.uuid)));
        };
        let mut walked = Vec::new();
        self.access.collect_indexes(&mut walked);
        let is_there = |index: &Index| now.index(&index.definition.name).is_some_and(|found| found.id == index.id);
        match walked.into_iter().find(|index| !is_there(index)) {
            Some(index) => killed(format!("query plan killed :: index '{}' dropped", index.definition.name)),
            None => Ok(()),
        }
    }

    fn sort_all(&mut self, collection: &Collection, interrupt: Interrupt<'_>) -> Result<Sorted<Found>> {
        let Some(pattern) = self.spec.sort.clone() else { return Ok(Sorted::empty()) };
        let wanted = self.left.map(|left| left.saturating_add(self.skip));
        let mut sorter = Sorter::new(wanted, self.context.stage_room(SpillKind::Sort));
        let storage = Arc::clone(&self.storage);
        let view = storage.view_at(self.context.read_at)?.read_by(self.context.class);
        self.check_still_there(collection)?;
        let Self { spec, access, examined, progress, context, resting, .. } = self;
        let resting = RefCell::new(resting);
        let interrupt = &|| rest_unless(interrupt, &storage, &mut resting.borrow_mut(), &context.effort);
        access.run(&view, collection, examined, interrupt, &mut |record, document| {
            progress.given += 1;
            if admits(spec, document)?.is_some() {
                progress.matched += 1;
                progress.sorted_bytes += document.as_bytes().len() as u64;
                context.interruption.steps(1 + document.as_bytes().len() / BYTES_PER_STEP)?;
                let key = pattern.key(document, &context.interruption)?;
                if sorter.threshold().is_none_or(|worst| key.as_slice() < worst) {
                    let bytes = document.as_bytes().len();
                    let found = Found { record: RecordKey::from_slice(record), document: document.to_owned() };
                    sorter.push(key, found, bytes)?;
                }
            }
            Ok(Given::Taken)
        })?;
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX);
        self.skip = 0;
        let mut sorted = sorter.into_sorted()?;
        self.progress.spilled = sorted.spilled();
        self.progress.skipped = skip.min(sorted.len()) as u64;
        sorted.skip(skip)?;
        Ok(sorted)
    }

    fn run_sorted(
        &mut self,
        interrupt: Interrupt<'_>,
        offer: &mut dyn FnMut(&[u8], &RawDocument) -> Result<Given>,
    ) -> Result<bool> {
        let Self { storage, spec, sorted, left, returned, resting, context, .. } = self;
        let Some(sorted) = sorted else { return Ok(false) };
        while let Some(Found { record, document }) = sorted.peek()? {
            if returned.is_multiple_of(INTERRUPT_EVERY) {
                rest_unless(interrupt, storage, resting, &context.effort)?;
            }
            let given = match &spec.projection {
                Some((_, projection)) => {
                    let details = if projection.needs_match_details() {
                        spec.filter.matches_with_position(document)?
                    } else {
                        None
                    };
                    offer(record, &projection.apply(document, details.as_ref())?)?
                }
                None => offer(record, document)?,
            };
            if given == Given::Refused {
                return Ok(true);
            }
            sorted.pop()?;
            *returned += 1;
            if let Some(left) = left {
                *left -= 1;
                if *left == 0 {
                    return Ok(false);
                }
            }
            if given == Given::TakenLast {
                break;
            }
        }
        Ok(!sorted.is_empty())
    }

    /// The first document, with its record key.
    pub fn first(&mut self, interrupt: Interrupt<'_>) -> Result<Option<(RecordKey, RawDocumentBuf)>> {
        let mut first = None;
        self.run(interrupt, &mut |record, document| {
            first = Some((RecordKey::from_slice(record), document.to_owned()));
            Ok(Given::TakenLast)
        })?;
        Ok(first)
    }

    /// How many there are. Documents need not be read where the filter is empty: the collection knows.
    pub fn count(&mut self, interrupt: Interrupt<'_>) -> Result<u64> {
        if let Some(collection) = &self.collection
            && self.spec.filter.is_always()
            && self.spec.hint.is_none()
            && self.context.read_at.is_none()
            && collection.kind != CollectionKind::Oplog
        {
            let all = collection.counts().documents.max(0) as u64;
            let beyond = all.saturating_sub(self.spec.skip);
            return Ok(self.spec.limit.map_or(beyond, |limit| beyond.min(limit)));
        }
        let mut count = 0;
        self.run(interrupt, &mut |_, _| {
            count += 1;
            Ok(Given::Taken)
        })?;
        Ok(count)
    }
}

/// Rests, if it is time to, unless the request is to end.
fn rest_unless(interrupt: Interrupt<'_>, storage: &Storage, resting: &mut Resting, effort: &Effort) -> Result<()> {
    interrupt()?;
    resting.step(storage.company(), effort);
    Ok(())
}

/// Whether a document matches; with the matching array element's place where the projection asks for it.
#[allow(clippy::option_option)]
fn admits(spec: &QuerySpec, document: &RawDocument) -> Result<Option<Option<baton_query::matcher::MatchDetails>>> {
    if spec.projection.as_ref().is_some_and(|(_, projection)| projection.needs_match_details()) {
        return Ok(spec.filter.matches_with_position(document)?.map(Some));
    }
    Ok(spec.filter.matches(document)?.then_some(None))
}
