//! Open cursors, between the command that made them and the `getMore`s that drain them.
//!
//! Invariants: a cursor is used by one operation at a time; it answers only to the session and the collection it was
//! made for; killed while in use, its operation is interrupted and it does not come back; one that nobody asks for ten
//! minutes is closed, unless its client said `noCursorTimeout`, and then it ends with its session.
//! What it deliberately does not do: know where documents come from. That is behind [`Cursor`].

use super::operations::{Operation, Slot};
use ahash::RandomState;
use baton_query::Effort;
use baton_request::SessionId;
use baton_types::{Class, Error, ErrorCode, MemoryAccount, MemoryPool, Result};
use baton_wire::{DOCUMENT_SIZE_MAX_BYTES, DocumentWriter};
use bson::{RawDocument, RawDocumentBuf};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// How long an idle cursor lives, unless `cursorTimeoutMillis` says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_mins(10);
/// Cursors are spread over this many maps.
const SHARD_COUNT: usize = 8;

/// A batch being filled: documents go straight into the reply, as elements of the array that is open there.
pub struct BatchBuilder<'w, 'o> {
    writer: &'w mut DocumentWriter<'o>,
    documents_left: usize,
    bytes: usize,
    memory: MemoryAccount,
    count: usize,
}

/// A batch grows so far without asking for memory, and then by as much each time it asks, in bytes.
const BATCH_STEP_BYTES: usize = 256 * 1024;

impl<'w, 'o> BatchBuilder<'w, 'o> {
    /// What a document in an array costs besides its own bytes: its type, an index of up to seven digits, the end.
    const ELEMENT_BYTES: usize = 9;

    /// At most `documents_max` documents (`None`: as many as fit), into the array that is open in `writer`. What is large
    /// is held of `pool`: where little is left, batches are small.
    pub fn new(writer: &'w mut DocumentWriter<'o>, documents_max: Option<usize>, pool: &Arc<MemoryPool>) -> Self {
        Self {
            writer,
            documents_left: documents_max.unwrap_or(usize::MAX),
            bytes: 0,
            memory: pool.account(DOCUMENT_SIZE_MAX_BYTES + BATCH_STEP_BYTES),
            count: 0,
        }
    }

    /// What it holds of the pool; to be kept until the batch is sent.
    pub fn into_memory(self) -> MemoryAccount {
        self.memory
    }

    /// Whether there is room for so many bytes more.
    fn has_room(&mut self, size: usize) -> bool {
        let bytes = self.bytes + size;
        bytes <= DOCUMENT_SIZE_MAX_BYTES
            && (bytes <= self.memory.bytes().max(BATCH_STEP_BYTES) || self.memory.set(bytes + BATCH_STEP_BYTES))
    }

    /// Whether another document can be wanted.
    pub fn is_full(&self) -> bool {
        self.documents_left == 0
    }

    /// Appends the document unless the batch has no place for it; says whether it did. The caller keeps a refused one
    /// for the next batch. The first one always fits.
    #[must_use]
    pub fn offer(&mut self, document: &RawDocument) -> bool {
        let size = document.as_bytes().len() + Self::ELEMENT_BYTES;
        if self.documents_left == 0 || (!self.has_room(size) && self.count > 0) {
            return false;
        }
        self.writer.push(document);
        self.documents_left -= 1;
        self.bytes += size;
        self.count += 1;
        true
    }

    /// From now on as many documents as there is room for, whatever was asked.
    pub fn lift_limit(&mut self) {
        self.documents_left = usize::MAX;
    }

    /// How many documents it has.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Whether there is more to come from a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// Ask again.
    More,
    /// That was all: close it.
    Exhausted,
}

/// Where a cursor's documents come from.
pub trait Cursor: Send {
    /// Fills the batch until it is full or there is nothing left. A tailable cursor that has nothing now returns
    /// [`BatchEnd::More`]; one that awaits data first waits, until `await_until` at the latest.
    ///
    /// # Errors
    /// Whatever ends the cursor; it is closed then.
    fn next_batch(
        &mut self,
        batch: &mut BatchBuilder<'_, '_>,
        operation: &Operation,
        await_until: Option<Instant>,
    ) -> Result<BatchEnd>;

    /// Whether it waits for documents that are yet to be written (`tailable` with `awaitData`).
    fn awaits_data(&self) -> bool {
        false
    }

    /// Whether it stays open when it has no more documents now.
    fn is_tailable(&self) -> bool {
        false
    }

    /// Fields for the reply beside the batch (`postBatchResumeToken`), written into the `cursor` document.
    fn append_extra(&self, cursor: &mut DocumentWriter<'_>) {
        let _ = cursor;
    }

    /// By which plan it runs, for the log and for `currentOp`.
    fn plan_summary(&self) -> Option<&str> {
        None
    }
}

/// What is known of a cursor without using it.
#[derive(Clone, Debug)]
pub struct CursorInfo {
    /// `db.collection`.
    pub namespace: String,
    /// The session it belongs to.
    pub session: Option<SessionId>,
    /// `noCursorTimeout`.
    pub no_timeout: bool,
    /// The command that made it.
    pub command: RawDocumentBuf,
    /// When.
    pub created: SystemTime,
    /// What it has taken so far.
    pub effort: Arc<Effort>,
    /// What is left of the `maxTimeMS` of the command that made it.
    pub time_left: Option<Duration>,
    /// The class that the command which made it has said it is of: so is every further batch, unless that says otherwise.
    pub class: Option<Class>,
}

enum State {
    Idle(Box<dyn Cursor>),
    Pinned { slot: Arc<Slot>, operation: u32, killed: bool },
}

struct Entry {
    info: CursorInfo,
    state: State,
    last_use: Instant,
    batches: u64,
    /// What it holds of the memory for what cursors keep of large requests.
    _memory: Option<MemoryAccount>,
}

/// What became of a cursor that was to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// It is closed, or will be as soon as its operation notices.
    Killed,
    /// There is none of that number.
    NotFound,
}

/// All open cursors.
pub struct Cursors {
    shards: [Mutex<HashMap<i64, Entry, RandomState>>; SHARD_COUNT],
    timed_out: AtomicU64,
    opened: AtomicU64,
    timeout_ms: AtomicU64,
}

impl Default for Cursors {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            timed_out: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            timeout_ms: AtomicU64::new(TIMEOUT_DEFAULT.as_millis() as u64),
        }
    }
}

/// Figures for serverStatus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorFigures {
    /// Open now.
    pub open: i64,
    /// In use now.
    pub pinned: i64,
    /// Open now and without a time limit.
    pub no_timeout: i64,
    /// Closed because nobody asked for them.
    pub timed_out: i64,
    /// Ever opened.
    pub total_opened: i64,
}

/// A cursor in use by one operation. Dropped without [`Pinned::put_back`], the cursor is closed.
pub struct Pinned<'c> {
    cursors: &'c Cursors,
    id: i64,
    /// What is known of it. A `getMore` keeps `time_left` up to date here.
    pub info: CursorInfo,
    cursor: Option<Box<dyn Cursor>>,
}

impl Pinned<'_> {
    /// The cursor.
    pub fn cursor(&mut self) -> &mut dyn Cursor {
        match &mut self.cursor {
            Some(cursor) => &mut **cursor,
            // Only put_back takes it, and that consumes self.
            None => unreachable!("a pinned cursor is there until it is put back"),
        }
    }

    /// Its number.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Leaves it for the next `getMore`.
    pub fn put_back(mut self) {
        let mut shard = self.cursors.shard(self.id).lock();
        let Some(entry) = shard.get_mut(&self.id) else { return };
        if matches!(entry.state, State::Pinned { killed: true, .. }) {
            return;
        }
        if let Some(cursor) = self.cursor.take() {
            entry.state = State::Idle(cursor);
            entry.last_use = Instant::now();
            entry.batches += 1;
            entry.info.time_left = self.info.time_left;
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if self.cursor.is_some() {
            self.cursors.shard(self.id).lock().remove(&self.id);
        }
    }
}

impl Cursors {
    fn shard(&self, id: i64) -> &Mutex<HashMap<i64, Entry, RandomState>> {
        &self.shards[id as usize % SHARD_COUNT]
    }

    /// Keeps a cursor for later, with what it holds of memory; returns its number, which is random and never 0.
    pub fn open(&self, info: CursorInfo, cursor: Box<dyn Cursor>, memory: Option<MemoryAccount>) -> i64 {
        let state = State::Idle(cursor);
        let mut entry = Some(Entry { info, state, last_use: Instant::now(), batches: 1, _memory: memory });
        self.opened.fetch_add(1, Ordering::Relaxed);
        loop {
            let id = (rand::random::<u64>() >> 1) as i64;
            let mut shard = self.shard(id).lock();
            if id != 0
                && !shard.contains_key(&id)
                && let Some(entry) = entry.take()
            {
                shard.insert(id, entry);
                return id;
            }
        }
    }

    /// Takes a cursor to use it.
    ///
    /// # Errors
    /// `CursorNotFound` (43); `CursorInUse` (143); `Unauthorized` (13) if it is another session's or another
    /// collection's.
    pub fn pin(
        &self,
        id: i64,
        namespace: &str,
        session: Option<SessionId>,
        operation: &Operation,
    ) -> Result<Pinned<'_>> {
        let mut shard = self.shard(id).lock();
        let Some(entry) = shard.get_mut(&id) else { return Err(not_found(id)) };
        if entry.info.namespace != namespace {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!(
                    "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                    entry.info.namespace
                ),
            ));
        }
        check_session(id, entry.info.session, session)?;
        if matches!(entry.state, State::Pinned { .. }) {
            return Err(Error::new(ErrorCode::CursorInUse, format!("cursor id {id} is already in use")));
        }
        let pinned = State::Pinned { slot: operation.slot().clone(), operation: operation.id, killed: false };
        let State::Idle(cursor) = std::mem::replace(&mut entry.state, pinned) else { return Err(not_found(id)) };
        operation.set_cursor(id);
        Ok(Pinned { cursors: self, id, info: entry.info.clone(), cursor: Some(cursor) })
    }

    /// What class of request the one was that made this cursor, if that said so.
    pub fn class_of(&self, id: i64) -> Option<Class> {
        self.shard(id).lock().get(&id)?.info.class
    }

    /// Closes a cursor, of whatever collection.
    pub fn kill(&self, id: i64) -> Killed {
        let mut shard = self.shard(id).lock();
        match shard.get_mut(&id) {
            Some(entry) => {
                interrupt(entry);
                shard.remove(&id);
                Killed::Killed
            }
            None => Killed::NotFound,
        }
    }

    /// Closes all cursors that `wanted` names; returns how many.
    pub fn kill_where(&self, wanted: impl Fn(&CursorInfo) -> bool) -> usize {
        let mut killed = 0;
        for shard in &self.shards {
            shard.lock().retain(|_, entry| {
                let dies = wanted(&entry.info);
                if dies {
                    interrupt(entry);
                    killed += 1;
                }
                !dies
            });
        }
        killed
    }

    /// Closes the idle cursors that nobody asked for too long.
    pub fn expire(&self) -> usize {
        let timeout = Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed));
        let mut expired = 0;
        for shard in &self.shards {
            shard.lock().retain(|_, entry| {
                let dies = matches!(entry.state, State::Idle(_))
                    && !entry.info.no_timeout
                    && entry.last_use.elapsed() >= timeout;
                expired += usize::from(dies);
                !dies
            });
        }
        self.timed_out.fetch_add(expired as u64, Ordering::Relaxed);
        expired
    }

    /// Changes how long an idle cursor lives.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(timeout.as_millis() as u64, Ordering::Relaxed);
    }

    /// How long an idle cursor lives.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    /// The idle cursors, for `$currentOp` with `idleCursors`.
    pub fn idle(&self) -> Vec<(i64, CursorInfo)> {
        let mut idle = Vec::new();
        for shard in &self.shards {
            for (id, entry) in shard.lock().iter() {
                if matches!(entry.state, State::Idle(_)) {
                    idle.push((*id, entry.info.clone()));
                }
            }
        }
        idle
    }

    /// Figures for serverStatus.
    pub fn figures(&self) -> CursorFigures {
        let mut figures = CursorFigures {
            timed_out: self.timed_out.load(Ordering::Relaxed) as i64,
            total_opened: self.opened.load(Ordering::Relaxed) as i64,
            ..CursorFigures::default()
        };
        for shard in &self.shards {
            for entry in shard.lock().values() {
                figures.open += 1;
                figures.pinned += i64::from(matches!(entry.state, State::Pinned { .. }));
                figures.no_timeout += i64::from(entry.info.no_timeout);
            }
        }
        figures
    }
}

/// `CursorNotFound` (43).
pub fn not_found(id: i64) -> Error {
    Error::new(ErrorCode::CursorNotFound, format!("cursor id {id} not found"))
}

fn check_session(id: i64, owner: Option<SessionId>, asker: Option<SessionId>) -> Result<()> {
    let unauthorized = |why: String| Err(Error::new(ErrorCode::Unauthorized, why));
    match (owner, asker) {
        (Some(owner), None) => unauthorized(format!(
            "Cannot run getMore on cursor {id}, which was created in session {owner}, without an lsid"
        )),
        (None, Some(asker)) => unauthorized(format!(
            "Cannot run getMore on cursor {id}, which was not created in a session, in session {asker}"
        )),
        (Some(owner), Some(asker)) if owner != asker => unauthorized(format!(
            "Cannot run getMore on cursor {id}, which was created in session {owner}, in session {asker}"
        )),
        _ => Ok(()),
    }
}

/// Stops the operation that uses the cursor, if one does.
fn interrupt(entry: &mut Entry) {
    if let State::Pinned { slot, operation, killed } = &mut entry.state {
        *killed = true;
        let wanted = *operation;
        slot.interrupt_if(ErrorCode::CursorKilled, |running, _| running == wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::super::operations::{Begin, Operations};
    use super::*;
    use baton_admission::Source;

    struct Three(i32);

    impl Cursor for Three {
        fn next_batch(
            &mut self,
            batch: &mut BatchBuilder<'_, '_>,
            _: &Operation,
            _: Option<Instant>,
        ) -> Result<BatchEnd> {
            while self.0 < 3 {
                if !batch.offer(&bson::rawdoc! { "_id": self.0 }) {
                    return Ok(BatchEnd::More);
                }
                self.0 += 1;
            }
            Ok(BatchEnd::Exhausted)
        }
    }

    fn info(session: Option<SessionId>) -> CursorInfo {
        CursorInfo {
            namespace: "test.c".into(),
            session,
            no_timeout: false,
            command: RawDocumentBuf::new(),
            created: SystemTime::now(),
            effort: Arc::default(),
            time_left: None,
            class: None,
        }
    }

    fn operation() -> Operation {
        let operations = Arc::new(Operations::default());
        let guard = operations.register("conn1");
        operations.begin(
            guard.slot(),
            &Begin {
                kind: "getmore",
                name: "getMore",
                db: "test",
                collection: "c",
                command: None,
                session: None,
                class: Class::Normal,
                source: Source::Default,
                max_time: None,
                waited: Duration::ZERO,
            },
        )
    }

    fn batch_of(pinned: &mut Pinned<'_>, max: usize, operation: &Operation) -> (usize, BatchEnd) {
        let mut out = Vec::new();
        let mut writer = DocumentWriter::new(&mut out);
        writer.begin_array(bson::cstr!("nextBatch"));
        let mut batch = BatchBuilder::new(&mut writer, Some(max), &MemoryPool::new(usize::MAX));
        let end = pinned.cursor().next_batch(&mut batch, operation, None).unwrap();
        (batch.count(), end)
    }

    #[test]
    fn a_cursor_is_drained_batch_by_batch_and_then_gone() {
        let (cursors, op) = (Cursors::default(), operation());
        let id = cursors.open(info(None), Box::new(Three(0)), None);
        let mut pinned = cursors.pin(id, "test.c", None, &op).unwrap();
        assert_eq!(cursors.pin(id, "test.c", None, &op).err().unwrap().code, ErrorCode::CursorInUse);
        assert_eq!(batch_of(&mut pinned, 2, &op), (2, BatchEnd::More));
        pinned.put_back();
        let mut pinned = cursors.pin(id, "test.c", None, &op).unwrap();
        assert_eq!(batch_of(&mut pinned, 2, &op), (1, BatchEnd::Exhausted));
        drop(pinned);
        assert_eq!(cursors.pin(id, "test.c", None, &op).err().unwrap().code, ErrorCode::CursorNotFound);
    }

    #[test]
    fn another_session_or_collection_is_13() {
        let (cursors, op) = (Cursors::default(), operation());
        let (mine, theirs) = (SessionId([1; 16]), SessionId([2; 16]));
        let id = cursors.open(info(Some(mine)), Box::new(Three(0)), None);
        let code = |ns: &str, session| cursors.pin(id, ns, session, &op).err().unwrap().code;
        assert_eq!(code("test.c", Some(theirs)), ErrorCode::Unauthorized);
        assert_eq!(code("test.c", None), ErrorCode::Unauthorized);
        assert_eq!(code("test.d", Some(mine)), ErrorCode::Unauthorized);
        cursors.pin(id, "test.c", Some(mine), &op).unwrap().put_back();
        assert_eq!(cursors.figures().open, 1);
    }

    #[test]
    fn a_cursor_killed_in_use_interrupts_its_operation_and_does_not_come_back() {
        let (cursors, op) = (Cursors::default(), operation());
        let id = cursors.open(info(None), Box::new(Three(0)), None);
        let pinned = cursors.pin(id, "test.c", None, &op).unwrap();
        assert_eq!(cursors.kill(id), Killed::Killed);
        assert_eq!(op.check_interrupt().unwrap_err().code, ErrorCode::CursorKilled);
        pinned.put_back();
        assert_eq!(cursors.figures().open, 0);
    }

    #[test]
    fn an_idle_cursor_expires_unless_it_must_not() {
        let cursors = Cursors::default();
        cursors.open(info(None), Box::new(Three(0)), None);
        cursors.open(CursorInfo { no_timeout: true, ..info(None) }, Box::new(Three(0)), None);
        assert_eq!(cursors.expire(), 0);
        cursors.set_timeout(Duration::ZERO);
        assert_eq!(cursors.expire(), 1);
        let figures = cursors.figures();
        assert_eq!((figures.open, figures.no_timeout, figures.timed_out), (1, 1, 1));
    }

    #[test]
    fn a_batch_takes_the_first_document_whatever_its_size_and_then_only_what_fits() {
        let large = bson::rawdoc! { "x": "x".repeat(DOCUMENT_SIZE_MAX_BYTES - 100) };
        let mut out = Vec::new();
        let mut writer = DocumentWriter::new(&mut out);
        writer.begin_array(bson::cstr!("firstBatch"));
        let mut batch = BatchBuilder::new(&mut writer, None, &MemoryPool::new(usize::MAX));
        assert!(batch.offer(&large));
        assert!(!batch.offer(&large));
        assert!(!batch.is_full());
    }
}
