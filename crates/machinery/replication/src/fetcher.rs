//! Fetches the oplog from the sync source, and applies it.
//!
//! One thread: it opens an exhaust cursor on the source's `local.oplog.rs` from this member's own last entry on, judges every
//! batch ([`judge`]), applies what may be appended, syncs it, and reports the source's commit point.
//!
//! Invariants:
//! - Nothing is appended but behind an entry that both logs have; the judgement is `baton-consensus`'s.
//! - After [`Fetcher::rest`] returns nothing more is appended until a source is set again.
//! - Operations are applied in the order of the log.
//!
//! What it deliberately does not do: choose the source; find the entry that both logs have ([`crate::rollback`]).

use crate::initial_sync::{Cloning, InitialSyncStatus};
use crate::rollback;
use baton_consensus::{DataState, Input, MemberId, Position, SourceState, Verdict, judge};
use baton_net::{CallError, Closer, Outgoing};
use baton_storage::Storage;
use baton_types::{Error, ErrorCode, OpTime, Result, Term, Timestamp};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a source lets a fetch wait for new entries.
const AWAIT: Duration = Duration::from_secs(5);
/// How much longer the answer may take.
const GRACE: Duration = Duration::from_secs(5);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a source that failed is not chosen again.
const AVOID: Duration = Duration::from_secs(1);

type OnInput = Arc<dyn Fn(Input) + Send + Sync>;
type ApplyCommand = Box<dyn Fn(&RawDocument) -> Result<()> + Send + Sync>;

/// What a fetcher works with.
pub(crate) struct FetcherParts {
    pub storage: Arc<Storage>,
    pub apply_command: ApplyCommand,
    /// How far an initial sync is, for who asks.
    pub initial_sync: Arc<Mutex<Option<InitialSyncStatus>>>,
    /// Where what is rolled back is kept.
    pub rollback_directory: PathBuf,
    pub on_input: OnInput,
}

#[derive(Default)]
struct State {
    source: Option<(MemberId, String)>,
    /// Grows with every change of the source: what belongs to an older one is dropped.
    generation: u64,
    /// The thread is between two batches, with none in its hands.
    at_rest: bool,
    closer: Option<Closer>,
    stopping: bool,
}

struct Shared {
    parts: FetcherParts,
    state: Mutex<State>,
    changed: Condvar,
    /// The member's data is a copy that is whole when this is applied.
    whole_at: Mutex<Option<OpTime>>,
}

/// See the file's header. Dropped, it stops.
pub(crate) struct Fetcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Fetcher {
    pub fn start(parts: FetcherParts) -> Result<Self> {
        let state = Mutex::new(State { at_rest: true, ..State::default() });
        let shared = Arc::new(Shared { parts, state, changed: Condvar::new(), whole_at: Mutex::default() });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("oplog-fetcher".into()).spawn(move || shared.run())
        };
        let thread = thread
            .map_err(|error| Error::new(ErrorCode::InternalError, format!("no thread for the fetcher: {error}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Fetches from this member from now on.
    pub fn set_source(&self, source: Option<(MemberId, String)>) {
        let mut state = self.shared.state.lock();
        state.source = source;
        state.generation += 1;
        if let Some(closer) = state.closer.take() {
            closer.close();
        }
        self.shared.changed.notify_all();
    }

    /// Fetches from nobody, and waits until what was fetched is applied or dropped.
    pub fn rest(&self) {
        self.set_source(None);
        let mut state = self.shared.state.lock();
        while !state.at_rest {
            self.shared.changed.wait(&mut state);
        }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.set_source(None);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(target: "REPL", "The fetcher's thread panicked");
        }
    }
}

/// Why fetching from a source ended.
enum End {
    /// There is another source, or none.
    Changed,
    Failed(String),
    RollBack,
    TooStale,
}

impl Shared {
    fn run(&self) {
        while let Some((generation, source, host)) = self.next_source() {
            let end = self.fetch(generation, &host);
            let reason = match end {
                End::Changed => continue,
                End::Failed(reason) => reason,
                // A copy that is not whole cannot be rolled back, nor can one that the log no longer leads on from: make another.
                End::RollBack | End::TooStale if self.whole_at.lock().take().is_some() => {
                    "the copy of it is of no use any more".to_owned()
                }
                End::RollBack => match self.roll_back(&host) {
                    Ok(()) => continue,
                    Err(error) => format!("this member's log has parted from it, and cannot be rolled back: {error}"),
                },
                End::TooStale => "it no longer has what follows this member's log".to_owned(),
            };
            tracing::info!(target: "REPL", id = 21275, source = host, reason, "Stopped fetching");
            if self.state.lock().generation == generation {
                (self.parts.on_input)(Input::SourceFailed { source, avoid: AVOID });
                self.set_aside(generation);
            }
        }
    }

    /// Goes back to where both logs part. The machine sets a source again when it hears that this is done.
    fn roll_back(&self, host: &str) -> Result<()> {
        self.state.lock().at_rest = false;
        (self.parts.on_input)(Input::Data(DataState::Rollback));
        let done = rollback::roll_back(&self.parts.storage, host, &self.parts.rollback_directory);
        self.state.lock().at_rest = true;
        self.changed.notify_all();
        let queue = self.parts.storage.queue();
        let (applied, durable) = (queue.applied(), queue.durable());
        (self.parts.on_input)(Input::Log(Position { written: applied, applied, durable }));
        let data = match &done {
            Err(error) if error.code == rollback::UNRECOVERABLE => {
                tracing::warn!(target: "ROLLBACK", source = host, error = %error, "Cannot roll back; copying the source anew");
                self.parts.storage.note_not_whole();
                DataState::InitialSync
            }
            _ => DataState::Ready,
        };
        (self.parts.on_input)(Input::Data(data));
        done
    }

    /// Waits for a source; `None` when it is time to stop.
    fn next_source(&self) -> Option<(u64, MemberId, String)> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some((id, host)) = state.source.clone() {
                return Some((state.generation, id, host));
            }
            self.changed.wait(&mut state);
        }
    }

    /// A source that failed is not asked again before it is set again.
    fn set_aside(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.source = None;
        }
    }

    fn fetch(&self, generation: u64, host: &str) -> End {
        let mut connection = match Outgoing::connect(host, CONNECT_TIMEOUT) {
            Ok(connection) => connection,
            Err(error) => return End::Failed(error.to_string()),
        };
        {
            let mut state = self.state.lock();
            if state.generation != generation {
                return End::Changed;
            }
            state.closer = Some(connection.closer());
        }
        self.state.lock().at_rest = false;
        let cloned = self.clone_if_needed(generation, host);
        self.state.lock().at_rest = true;
        self.changed.notify_all();
        if let Err(end) = cloned {
            return end;
        }
        match self.follow(generation, &mut connection) {
            Ok(end) => end,
            Err(_) if self.state.lock().generation != generation => End::Changed,
            Err(error) => End::Failed(error.to_string()),
        }
    }

    /// Copies the source, unless that is done already.
    fn clone_if_needed(&self, generation: u64, host: &str) -> Result<(), End> {
        let storage = &self.parts.storage;
        let failed = |error: Error| End::Failed(format!("initial sync: {error}"));
        let needs = storage.last_entry() == OpTime::ZERO || storage.is_cloning().map_err(failed)?;
        if !needs || self.whole_at.lock().is_some() {
            return Ok(());
        }
        let until = Cloning {
            storage,
            apply_command: &self.parts.apply_command,
            status: &self.parts.initial_sync,
            interrupted: &|| self.state.lock().generation != generation,
        }
        .run(host)
        .map_err(failed)?;
        *self.whole_at.lock() = Some(until);
        Ok(())
    }

    /// A copy is whole once everything is applied that was written while it was made.
    fn end_clone(&self, applied: OpTime) {
        let mut whole_at = self.whole_at.lock();
        if whole_at.is_some_and(|whole_at| whole_at <= applied) {
            *whole_at = None;
            self.parts.storage.end_clone();
            tracing::info!(target: "INITSYNC", id = 21163, applied = ?applied, "Initial sync done");
            (self.parts.on_input)(Input::Data(DataState::Ready));
        }
    }

    fn follow(&self, generation: u64, connection: &mut Outgoing) -> Result<End, CallError> {
        let own_last = self.parts.storage.last_entry();
        let first = connection.call(&find(own_last.timestamp), AWAIT + GRACE)?;
        let mut cursor_id = match self.take_batch(generation, &first, "firstBatch") {
            Ok(id) => id,
            Err(end) => return Ok(end),
        };
        let more = rawdoc! {
            "getMore": cursor_id, "collection": "oplog.rs", "$db": "local",
            "maxTimeMS": AWAIT.as_millis() as i64, "$oplogQueryData": 1,
        };
        connection.begin_stream(&more, GRACE)?;
        loop {
            let Some(reply) = connection.next(AWAIT + GRACE)? else {
                return Ok(End::Failed("the source ended the stream".to_owned()));
            };
            cursor_id = match self.take_batch(generation, &reply, "nextBatch") {
                Ok(id) => id,
                Err(end) => return Ok(end),
            };
            if cursor_id == 0 {
                return Ok(End::Failed("the source closed its cursor".to_owned()));
            }
        }
    }

    /// Judges and applies a batch; returns the cursor's id.
    fn take_batch(&self, generation: u64, reply: &RawDocument, name: &str) -> Result<i64, End> {
        let batch = Batch::read(reply, name).map_err(|error| End::Failed(error.message))?;
        {
            let mut state = self.state.lock();
            if state.generation != generation {
                return Err(End::Changed);
            }
            state.at_rest = false;
        }
        let outcome = self.apply(&batch, name == "firstBatch");
        self.state.lock().at_rest = true;
        self.changed.notify_all();
        outcome?;
        (self.parts.on_input)(Input::SourceCommitPoint { term: batch.term, commit_point: batch.commit_point });
        Ok(batch.cursor_id)
    }

    fn apply(&self, batch: &Batch<'_>, is_first: bool) -> Result<(), End> {
        let storage = &self.parts.storage;
        let own_last = storage.last_entry();
        let entries = if is_first {
            let optimes: Vec<OpTime> = batch.entries.iter().map(|(optime, _)| *optime).collect();
            // A primary that catches up is bounded by its source, which has nothing of its term: see `sync_source`.
            match judge(own_last, None, batch.source, &optimes) {
                Verdict::Append { entries } => &batch.entries[1..=entries],
                Verdict::RollBack => return Err(End::RollBack),
                Verdict::TooStale => return Err(End::TooStale),
                Verdict::ChangeSource => return Err(End::Failed("it has nothing for this member".to_owned())),
            }
        } else {
            &batch.entries[..]
        };
        if entries.is_empty() {
            self.end_clone(own_last);
            return Ok(());
        }
        let failed = |error: Error| {
            // To a copy that is not whole: make another.
            self.whole_at.lock().take();
            End::Failed(format!("an entry could not be applied: {error}"))
        };
        let mut run: Vec<&RawDocument> = Vec::with_capacity(entries.len());
        for (_, entry) in entries {
            if matches!(entry.get_str("op"), Ok("c")) {
                storage.apply_entries(&run).map_err(failed)?;
                run.clear();
                storage.replay(entry, || (self.parts.apply_command)(entry)).map_err(failed)?;
            } else {
                run.push(entry);
            }
        }
        storage.apply_entries(&run).map_err(failed)?;
        storage.sync();
        self.end_clone(storage.last_entry());
        Ok(())
    }
}

fn find(from: Timestamp) -> RawDocumentBuf {
    rawdoc! {
        "find": "oplog.rs", "filter": { "ts": { "$gte": bson::Timestamp::from(from) } },
        "tailable": true, "awaitData": true, "maxTimeMS": AWAIT.as_millis() as i64,
        "$db": "local", "$oplogQueryData": 1, "$readPreference": { "mode": "secondaryPreferred" },
    }
}

/// A batch of entries, and what the source says of itself.
struct Batch<'a> {
    cursor_id: i64,
    entries: Vec<(OpTime, &'a RawDocument)>,
    source: SourceState,
    term: Term,
    commit_point: OpTime,
}

impl<'a> Batch<'a> {
    fn read(reply: &'a RawDocument, name: &str) -> Result<Self> {
        if !matches!(reply.get_f64("ok"), Ok(ok) if ok == 1.0) {
            let message = reply.get_str("errmsg").unwrap_or("the source refused without saying why");
            return Err(Error::new(ErrorCode::OperationFailed, message));
        }
        let malformed = |what: String| Error::failed_to_parse(format!("a batch of the oplog: {what}"));
        let cursor = reply.get_document("cursor").map_err(|error| malformed(error.to_string()))?;
        let cursor_id = cursor.get_i64("id").map_err(|error| malformed(error.to_string()))?;
        let mut entries = Vec::new();
        for entry in cursor.get_array(name).map_err(|error| malformed(error.to_string()))? {
            let entry = entry?.as_document().ok_or_else(|| malformed("an entry is no document".to_owned()))?;
            let optime = optime_of(entry).ok_or_else(|| malformed("an entry has no OpTime".to_owned()))?;
            entries.push((optime, entry));
        }
        let data = reply.get_document("$oplogQueryData").map_err(|error| malformed(error.to_string()))?;
        let position = |name: &str| -> Result<OpTime> {
            let document = data.get_document(name).map_err(|error| malformed(error.to_string()))?;
            optime_of(document).ok_or_else(|| malformed(format!("{name} is no OpTime")))
        };
        Ok(Self {
            cursor_id,
            entries,
            source: SourceState {
                last: position("lastOpApplied")?,
                oldest: data.get_timestamp("oldestOp").map_err(|error| malformed(error.to_string()))?.into(),
            },
            term: data.get_i64("term").map_err(|error| malformed(error.to_string()))?,
            commit_point: position("lastOpCommitted")?,
        })
    }
}

fn optime_of(document: &RawDocument) -> Option<OpTime> {
    let timestamp = document.get_timestamp("ts").ok()?.into();
    Some(OpTime { term: document.get_i64("t").ok()?, timestamp })
}
