//! Cursors over queries and aggregations, tailable ones included, and the reply that opens one.

use crate::call::{Call, Reply};
use crate::server::parsed::hold_for_cursor;
use crate::server::{BatchBuilder, BatchEnd, Cursor, CursorInfo, Operation};
use baton_execution::{Aggregation, Given, Query};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::projection::Projection;
use baton_storage::{Bounds, Collection, CollectionKind, LogFollower, Order, SharedEntry, Storage, stored_document};
use baton_types::{Error, ErrorCode, MemoryAccount, Namespace, Result, Timestamp};
use bson::{RawDocument, cstr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Documents in a first batch when the client names no size.
pub const FIRST_BATCH_DOCUMENTS: usize = 101;
/// How long a tailable cursor waits between two looks, at the most: its operation may be killed meanwhile.
const AWAIT_STEP: Duration = Duration::from_millis(200);

impl Cursor for Query {
    fn next_batch(
        &mut self,
        batch: &mut BatchBuilder<'_, '_>,
        operation: &Operation,
        _: Option<Instant>,
    ) -> Result<BatchEnd> {
        if batch.is_full() {
            return Ok(BatchEnd::More);
        }
        self.ask(&operation.check());
        let more = self.run(&|| operation.check_interrupt(), &mut |_, document| Ok(give(batch, document)))?;
        Ok(if more { BatchEnd::More } else { BatchEnd::Exhausted })
    }

    fn plan_summary(&self) -> Option<&str> {
        Some(Self::plan_summary(self))
    }
}

impl Cursor for Aggregation {
    fn next_batch(
        &mut self,
        batch: &mut BatchBuilder<'_, '_>,
        operation: &Operation,
        _: Option<Instant>,
    ) -> Result<BatchEnd> {
        if batch.is_full() {
            return Ok(BatchEnd::More);
        }
        let more = self.run(&operation.check(), &mut |document| Ok(give(batch, document)))?;
        Ok(if more { BatchEnd::More } else { BatchEnd::Exhausted })
    }

    fn plan_summary(&self) -> Option<&str> {
        self.query().map(Query::plan_summary)
    }
}

fn give(batch: &mut BatchBuilder<'_, '_>, document: &RawDocument) -> Given {
    if !batch.offer(document) {
        Given::Refused
    } else if batch.is_full() {
        Given::TakenLast
    } else {
        Given::Taken
    }
}

/// A cursor that stays open at the end of a capped collection or the oplog.
pub struct Tail {
    /// Where the documents are.
    pub storage: Arc<Storage>,
    /// Of which collection.
    pub collection: Arc<Collection>,
    /// Which of them.
    pub filter: Arc<Matcher>,
    /// What of each.
    pub projection: Option<Arc<Projection>>,
    /// What both were parsed in.
    pub context: Arc<Context>,
    /// Whether to wait for more.
    pub awaits: bool,
    /// Where to go on.
    pub bounds: Bounds,
    /// The record key of the last document seen.
    pub last: Option<Vec<u8>>,
    /// There if it is the oplog: its newest entries are kept in memory meanwhile.
    pub follower: Option<LogFollower>,
    /// How often the oplog's end had been cut off when this began to read.
    pub truncations: u64,
    /// Documents to pass over before the first.
    pub skip: u64,
    /// Documents still to give; `None` without a limit.
    pub left: Option<u64>,
    /// The batch before had several documents: so may the next, if it is waited for.
    pub is_busy: bool,
}

impl Tail {
    /// Lets the entries of clients that write at the same time come together: a batch costs its reader more than an entry does,
    /// and its writer's machine too. Who writes alone is not waited for, and what is urgent does not wait.
    fn gather(&self) {
        const STEPS: [Duration; 3] =
            [Duration::from_micros(50), Duration::from_micros(100), Duration::from_micros(150)];
        if !self.is_busy || self.collection.kind != CollectionKind::Oplog {
            return;
        }
        let queue = self.storage.queue();
        let given = self.last.as_deref().and_then(|last| last.try_into().ok()).map_or(0, u64::from_be_bytes);
        let mut seen = queue.applied();
        for step in STEPS {
            if queue.urgency().wait_beyond(Timestamp::from_u64(given), step) {
                break;
            }
            let now = queue.applied();
            if std::mem::replace(&mut seen, now) == now {
                break;
            }
        }
    }

    fn read(&mut self, batch: &mut BatchBuilder<'_, '_>, operation: &Operation) -> Result<()> {
        self.check_position()?;
        while let Some(entries) = self.newest_entries() {
            if entries.is_empty() || !self.read_newest(&entries, batch, operation)? {
                return Ok(());
            }
        }
        let storage = Arc::clone(&self.storage);
        let view = storage.view();
        let mut cursor = view.documents(&self.collection, &self.bounds, Order::Forward);
        let mut is_begun = false;
        while let Some((record, document)) = cursor.next_document()? {
            operation.check_interrupt()?;
            // Once more, as what is read is fixed by now: what was dropped a moment before must not be passed over.
            if !std::mem::replace(&mut is_begun, true) {
                self.check_position()?;
            }
            if !self.give(record, document, batch)? {
                break;
            }
        }
        Ok(())
    }

    /// The first of what comes next, if it is the oplog and all of that is in memory.
    fn newest_entries(&self) -> Option<Vec<(u64, SharedEntry)>> {
        self.follower.as_ref().filter(|_| self.bounds.to.is_none())?;
        let (from, behind) =
            self.bounds.from.split_first_chunk().map(|(key, rest)| (u64::from_be_bytes(*key), rest))?;
        let from = if behind.is_empty() { from } else { from.checked_add(1)? };
        self.storage.queue().newest_entries(Timestamp::from_u64(from))
    }

    /// Says whether more may be read.
    fn read_newest(
        &mut self,
        entries: &[(u64, SharedEntry)],
        batch: &mut BatchBuilder<'_, '_>,
        operation: &Operation,
    ) -> Result<bool> {
        // Once more, for the same reason as below.
        self.check_position()?;
        for (timestamp, entry) in entries {
            operation.check_interrupt()?;
            if !self.give(&timestamp.to_be_bytes(), stored_document(entry)?, batch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts a document into the batch, if it is one that was asked for; says whether another may be read.
    fn give(&mut self, record: &[u8], document: &RawDocument, batch: &mut BatchBuilder<'_, '_>) -> Result<bool> {
        if self.left == Some(0) {
            return Ok(false);
        }
        let matches = self.filter.matches(document)?;
        if matches && self.skip > 0 {
            self.skip -= 1;
        } else if matches {
            let taken = match &self.projection {
                Some(projection) => batch.offer(&projection.apply(document, None)?),
                None => batch.offer(document),
            };
            if !taken {
                return Ok(false);
            }
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        let last = self.last.get_or_insert_default();
        for kept in [&mut *last, &mut self.bounds.from] {
            kept.clear();
            kept.extend_from_slice(record);
        }
        self.bounds.from.push(0);
        Ok(!batch.is_full())
    }

    /// `QueryPlanKilled` (175) once the collection is dropped; `CappedPositionLost` (136) if what comes after the last document seen
    /// may be gone already.
    fn check_position(&self) -> Result<()> {
        if self.collection.is_dropped() {
            let message = format!("collection dropped. UUID {}", bson::Uuid::from_bytes(self.collection.uuid));
            return Err(Error::new(ErrorCode::QueryPlanKilled, message));
        }
        let lost = match (&self.last, self.collection.kind) {
            (None, _) => false,
            (Some(last), CollectionKind::Oplog) => {
                let seen = last.as_slice().try_into().map_or(0, u64::from_be_bytes);
                // A rollback takes what was seen away; what is written then does not follow it.
                Timestamp::from_u64(seen) < self.storage.oplog().readable_from()
                    || self.storage.queue().truncations() != self.truncations
            }
            (Some(last), _) => self.storage.get(&self.collection, last)?.is_none(),
        };
        if lost {
            return Err(Error::new(
                ErrorCode::CappedPositionLost,
                format!(
                    "CollectionScan died due to position in capped collection being deleted. Last seen record of {}",
                    self.collection.namespace
                ),
            ));
        }
        Ok(())
    }
}

impl Cursor for Tail {
    fn next_batch(
        &mut self,
        batch: &mut BatchBuilder<'_, '_>,
        operation: &Operation,
        await_until: Option<Instant>,
    ) -> Result<BatchEnd> {
        self.context.interruption.set(&operation.check());
        if self.awaits && await_until.is_some() {
            operation.idle(|| self.gather());
        }
        loop {
            let seen = self.storage.queue().applied().timestamp;
            self.read(batch, operation)?;
            if batch.count() > 0 {
                self.is_busy = batch.count() > 1;
            }
            if self.left == Some(0) {
                return Ok(BatchEnd::Exhausted);
            }
            let now = Instant::now();
            let Some(until) = await_until.filter(|until| self.awaits && batch.count() == 0 && *until > now) else {
                return Ok(BatchEnd::More);
            };
            operation.check_interrupt()?;
            operation.idle(|| {
                if self.storage.queue().wait_applied_beyond(seen, AWAIT_STEP.min(until - now)) {
                    self.gather();
                }
            });
        }
    }

    fn awaits_data(&self) -> bool {
        self.awaits
    }

    fn is_tailable(&self) -> bool {
        true
    }
}

/// How a cursor is to be opened.
pub struct Opening {
    /// The namespace in the reply, which getMore has to name.
    pub namespace: Namespace,
    /// Documents in the first batch, at the most; `None` for the default.
    pub batch_size: Option<usize>,
    /// Whether there is to be no second batch.
    pub single_batch: bool,
    /// `noCursorTimeout`.
    pub no_timeout: bool,
}

/// In which order the reply's `cursor` has its fields. MongoDB has two, and there are clients that compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// `firstBatch`, `id`, `ns`: of documents.
    BatchFirst,
    /// `id`, `ns`, `firstBatch`: of collections and indexes.
    IdFirst,
}

/// Writes `cursor: {firstBatch, id, ns}` and keeps the cursor if there is more.
pub fn open(call: &Call<'_>, reply: &mut Reply<'_>, cursor: Box<dyn Cursor>, opening: &Opening) -> Result<()> {
    open_in_order(call, reply, cursor, opening, Layout::BatchFirst)
}

/// Writes `cursor: {id, ns, firstBatch}`, as commands that list things do, and keeps the cursor if there is more.
pub fn open_list(call: &Call<'_>, reply: &mut Reply<'_>, cursor: Box<dyn Cursor>, opening: &Opening) -> Result<()> {
    open_in_order(call, reply, cursor, opening, Layout::IdFirst)
}

/// Fills the first batch. A cursor that has more and would keep much holds memory for it; where there is none left, its documents
/// are all in this batch, or it is refused.
fn first_batch(
    call: &Call<'_>,
    cursor: &mut dyn Cursor,
    batch: &mut BatchBuilder<'_, '_>,
    opening: &Opening,
) -> Result<(BatchEnd, Option<MemoryAccount>)> {
    let end = cursor.next_batch(batch, &call.operation, None)?;
    if end == BatchEnd::Exhausted || opening.single_batch {
        return Ok((end, None));
    }
    hold_for_cursor(&call.request, &call.server.cursor_memory).map(|memory| (end, memory)).or_else(|refusal| {
        if !cursor.is_tailable() {
            batch.lift_limit();
            if cursor.next_batch(batch, &call.operation, None)? == BatchEnd::Exhausted {
                return Ok((BatchEnd::Exhausted, None));
            }
        }
        Err(refusal)
    })
}

fn open_in_order(
    call: &Call<'_>,
    reply: &mut Reply<'_>,
    mut cursor: Box<dyn Cursor>,
    opening: &Opening,
    layout: Layout,
) -> Result<()> {
    reply.begin_document(cstr!("cursor"));
    let id_ahead = (layout == Layout::IdFirst).then(|| {
        let at = reply.reserve_int64(cstr!("id"));
        reply.append(cstr!("ns"), opening.namespace.as_str());
        at
    });
    reply.begin_array(cstr!("firstBatch"));
    let wanted = Some(opening.batch_size.unwrap_or(FIRST_BATCH_DOCUMENTS));
    let mut batch = BatchBuilder::new(reply, wanted, &call.server.reply_memory);
    let (end, memory) = first_batch(call, &mut *cursor, &mut batch, opening)?;
    call.returned.set(Some(batch.count() as u64));
    call.client.hold_reply(batch.into_memory());
    reply.end();
    if let Some(summary) = cursor.plan_summary() {
        call.operation.set_plan_summary(summary);
    }
    let id = if end == BatchEnd::Exhausted || opening.single_batch {
        0
    } else {
        let info = CursorInfo {
            namespace: opening.namespace.as_str().to_owned(),
            session: call.envelope.session,
            no_timeout: opening.no_timeout,
            command: call.request.body.to_owned(),
            created: SystemTime::now(),
            effort: Arc::clone(call.effort()),
            time_left: call
                .operation
                .deadline()
                .filter(|_| !cursor.awaits_data())
                .map(|deadline| deadline.saturating_duration_since(Instant::now())),
            class: call.envelope.class,
        };
        call.server.cursors.open(info, cursor, memory)
    };
    match id_ahead {
        Some(at) => reply.fill_int64(at, id),
        None => {
            reply.append(cstr!("id"), id);
            reply.append(cstr!("ns"), opening.namespace.as_str());
        }
    }
    if let Some(time) = call.read_at {
        reply.append(cstr!("atClusterTime"), bson::Timestamp::from(time));
    }
    reply.end();
    super::settle_read(call)
}
