//! Fetches the oplog from the sync source, and applies it.
//!
//! One thread: it opens an exhaust cursor on the source's `local.oplog.rs` from this member's own last entry on, judges the first
//! batch ([`judge`]), applies what may be appended, syncs it, and reports the source's commit point. What came while it did so
//! is taken together next: the busier the source, the fewer batches, syncs and reports an entry costs.
//!
//! Invariants:
//! - Nothing is appended but behind an entry that both logs have; the judgement is `baton-consensus`'s.
//! - After [`Fetcher::rest`] returns nothing more is appended until a source is set again.
//! - Operations are applied in the order of the log.
//! - A member with `secondaryDelaySecs` has no entry in its log that is younger, once it has its data.
//!
//! What it deliberately does not do: choose the source; find the entry that both logs have ([`crate::rollback`]).

use crate::apply::{NOT_YET_INTERVAL, apply, is_not_yet};
use crate::figures::Figures;
use crate::initial_sync::{ATTEMPTS_MAX, InitialSync, InitialSyncHooks, InitialSyncStatus, collection_of};
use crate::log_stream::{self, Batch};
use crate::refusal::{ATTEMPTS_BEFORE_COPY, RefusedEntry, Remedy, is_passing};
use crate::rollback;
use crate::waiters::Waiters;
use baton_consensus::{DataState, Input, MemberId, Position, SourceState, Verdict, judge};
use baton_net::{CallError, Closer, Outgoing};
use baton_storage::{Storage, WriteGate};
use baton_types::{Error, ErrorCode, OpTime, Result, Timestamp, must_not_unwind};
use bson::{RawDocument, RawDocumentBuf};
use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a source that failed is not chosen again.
const AVOID: Duration = Duration::from_secs(1);

/// Bytes of replies that are taken together, at most (reached, not exceeded by more than one reply).
const TOGETHER_BYTES_MAX: usize = 4 << 20;

/// Lets no entry be applied, for tests.
const FAIL_POINT: &str = "failApplyingEntries";

/// How often a member that stays behind looks at its clock, at least.
const CLOCK_LOOK_INTERVAL: Duration = Duration::from_secs(1);

type OnInput = Arc<dyn Fn(Input) + Send + Sync>;
type ApplyCommand = Box<dyn Fn(&RawDocument) -> Result<()> + Send + Sync>;

/// What a fetcher works with.
pub(crate) struct FetcherParts {
    pub storage: Arc<Storage>,
    pub apply_command: ApplyCommand,
    /// This member's term.
    pub term: Arc<AtomicI64>,
    /// How far an initial sync is, for who asks.
    pub initial_sync: Arc<Mutex<Option<InitialSyncStatus>>>,
    pub initial_sync_hooks: InitialSyncHooks,
    /// An entry that cannot be applied, for who asks.
    pub refused: Arc<Mutex<Option<RefusedEntry>>>,
    /// Whether the set can spare this member's copy for as long as it takes to make another.
    pub can_spare_copy: Box<dyn Fn() -> bool + Send + Sync>,
    /// The member's own, for what must not fill the memory.
    pub data_directory: PathBuf,
    /// Where what is rolled back is kept.
    pub rollback_directory: PathBuf,
    pub figures: Arc<Figures>,
    /// Those who wait for entries that may be rolled back.
    pub waiters: Arc<Waiters>,
    pub on_input: OnInput,
}

#[derive(Default)]
struct State {
    source: Option<(MemberId, String)>,
    /// Grows with every change of the source: what belongs to an older one is dropped.
    generation: u64,
    /// The thread is between two batches, with none in its hands.
    at_rest: bool,
    /// The connections that are in use, or were since the source was set.
    closers: Vec<Closer>,
    stopping: bool,
    /// How far this member stays behind on purpose: an entry is applied when it is that old.
    delay: Duration,
    /// Nothing is applied as long as somebody wants it so.
    held: bool,
}

struct Shared {
    parts: FetcherParts,
    state: Mutex<State>,
    /// The entry whose collection is to be fetched anew, in place of everything, the next time that something is to be copied.
    fetched_anew: Mutex<Option<RawDocumentBuf>>,
    changed: Condvar,
}

/// See the file's header. Dropped, it stops.
pub(crate) struct Fetcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Fetcher {
    pub fn start(parts: FetcherParts) -> Result<Self> {
        let state = Mutex::new(State { at_rest: true, ..State::default() });
        let shared = Arc::new(Shared { parts, state, fetched_anew: Mutex::default(), changed: Condvar::new() });
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
        for closer in state.closers.drain(..) {
            closer.close();
        }
        self.shared.changed.notify_all();
    }

    /// Stays that far behind from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.state.lock().delay = delay;
        self.shared.changed.notify_all();
    }

    /// Applies nothing, or goes on.
    pub fn hold(&self, on: bool) {
        self.shared.state.lock().held = on;
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
    /// An entry cannot be applied.
    Refused(RawDocumentBuf, Error),
    /// The source's log begins here, behind the end of this member's.
    TooStale(Timestamp),
}

impl Shared {
    fn run(&self) {
        // A half applied batch, a half done rollback: nobody goes on from there.
        let _guard = must_not_unwind("the fetcher, which applies and rolls back");
        while let Some((generation, source, host)) = self.next_source() {
            let end = self.fetch(generation, source, &host);
            let failed = Input::SourceFailed { source, avoid: AVOID };
            let (reason, input) = match end {
                End::Changed => continue,
                End::Failed(reason) => (reason, failed),
                End::RollBack => {
                    self.roll_back(generation, source, &host);
                    continue;
                }
                End::Refused(entry, error) => {
                    self.refuse(generation, source, &entry, &error);
                    continue;
                }
                End::TooStale(oldest) => (
                    "it no longer has what follows this member's log".to_owned(),
                    Input::SourceTooStale { source, oldest },
                ),
            };
            tracing::info!(target: "REPL", id = 21275, source = host, reason, "Stopped fetching");
            if self.state.lock().generation == generation {
                (self.parts.on_input)(input);
                self.set_aside(generation);
            }
        }
    }

    /// Goes back to where both logs part, unless the source has changed: this member may have become primary meanwhile. The
    /// machine has no source as long as it knows of a rollback, and sets one again when it hears that this has ended.
    fn roll_back(&self, generation: u64, source: MemberId, host: &str) {
        {
            let mut state = self.state.lock();
            if state.generation != generation {
                return;
            }
            state.at_rest = false;
        }
        (self.parts.on_input)(Input::Data(DataState::Rollback));
        self.parts.figures.rollbacks.fetch_add(1, Ordering::Relaxed);
        // Whoever reads or writes around the rollback waits in an era that is over when it is done.
        let interrupted = Error::new(ErrorCode::InterruptedDueToReplStateChange, "This member rolls back");
        self.parts.waiters.fail_all(&interrupted);
        let done = rollback::roll_back(&self.parts.storage, host, &self.parts.rollback_directory);
        self.parts.waiters.fail_all(&interrupted);
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
            Err(error) => {
                tracing::error!(target: "ROLLBACK", source = host, error = %error, "This member's log has parted from its source's, and cannot be rolled back now");
                // First of all: by the end of the rollback another source is chosen, or this one after a while.
                (self.parts.on_input)(Input::SourceFailed { source, avoid: AVOID });
                DataState::Ready
            }
            Ok(()) => DataState::Ready,
        };
        (self.parts.on_input)(Input::Data(data));
    }

    /// Says loudly that an entry cannot be applied, and has it tried again, or this member's data copied anew.
    fn refuse(&self, generation: u64, source: MemberId, entry: &RawDocument, error: &Error) {
        if self.state.lock().generation != generation {
            return;
        }
        let parts = &self.parts;
        let mut refused = RefusedEntry::again(parts.refused.lock().as_ref(), entry, error);
        parts.figures.refused_entries.fetch_add(1, Ordering::Relaxed);
        refused.remedy = match collection_of(entry) {
            _ if refused.attempts < ATTEMPTS_BEFORE_COPY || !(parts.can_spare_copy)() => Remedy::Again,
            Some(_) => Remedy::Collection,
            None => Remedy::Everything,
        };
        tracing::error!(
            target: "REPL", id = 21238, optime = %refused.optime, attempt = refused.attempts, error = %error, entry = refused.entry,
            remedy = refused.remedy.name(), "An entry of the log could not be applied"
        );
        let (pause, remedy) = (refused.pause(), refused.remedy);
        *parts.refused.lock() = Some(refused);
        if remedy == Remedy::Again {
            (parts.on_input)(Input::Data(DataState::Recovering));
        } else {
            *self.fetched_anew.lock() = (remedy == Remedy::Collection).then(|| entry.to_owned());
            parts.storage.note_not_whole();
            (parts.on_input)(Input::Data(DataState::InitialSync));
        }
        (parts.on_input)(Input::SourceFailed { source, avoid: if remedy == Remedy::Again { pause } else { AVOID } });
        self.set_aside(generation);
    }

    /// What could not be applied has been, or has been copied.
    fn note_progress(&self) {
        let mut refused = self.parts.refused.lock();
        if refused.as_ref().is_some_and(|refused| refused.optime <= self.parts.storage.last_entry()) {
            *refused = None;
            drop(refused);
            tracing::info!(target: "REPL", "The entry that could not be applied no longer stands in the way");
            (self.parts.on_input)(Input::Data(DataState::Ready));
        }
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

    fn fetch(&self, generation: u64, source: MemberId, host: &str) -> End {
        let mut connection = match Outgoing::connect(host, CONNECT_TIMEOUT) {
            Ok(connection) => connection,
            Err(error) => return End::Failed(error.to_string()),
        };
        self.state.lock().at_rest = false;
        let copied = self.copy_if_needed(generation, host);
        self.state.lock().at_rest = true;
        self.changed.notify_all();
        if let Err(end) = copied {
            return end;
        }
        self.opened(generation, connection.closer());
        match self.follow(generation, source, &mut connection) {
            Ok(end) => end,
            Err(_) if self.state.lock().generation != generation => End::Changed,
            Err(error) => End::Failed(error.to_string()),
        }
    }

    /// Keeps a connection in sight; closes it if it is for a source that is no more.
    fn opened(&self, generation: u64, closer: Closer) {
        /// What an initial sync has at once, and more.
        const CLOSERS_MAX: usize = 64;
        let mut state = self.state.lock();
        if state.generation != generation {
            closer.close();
            return;
        }
        if state.closers.len() == CLOSERS_MAX {
            state.closers.remove(0);
        }
        state.closers.push(closer);
    }

    /// Copies the source, unless that is done already.
    fn copy_if_needed(&self, generation: u64, host: &str) -> Result<(), End> {
        let parts = &self.parts;
        let failed = |error: Error| End::Failed(format!("initial sync: {error}"));
        if parts.storage.last_entry() != OpTime::ZERO && !parts.storage.is_cloning().map_err(failed)? {
            return Ok(());
        }
        let sync = InitialSync {
            storage: &parts.storage,
            apply_command: &parts.apply_command,
            status: &parts.initial_sync,
            hooks: &parts.initial_sync_hooks,
            directory: &parts.data_directory,
            interrupted: &|| self.state.lock().generation != generation,
            opened: &|closer| self.opened(generation, closer),
            told: Mutex::new(Instant::now()),
        };
        // Tried once: if it fails, everything is copied.
        let of_one = self.fetched_anew.lock().take();
        let outcome = match &of_one {
            Some(refused) => sync.run_one(host, refused),
            None => sync.run(host),
        };
        let attempts = parts.initial_sync.lock().as_ref().map_or(0, |status| status.failed_attempts.len());
        if let Err(error) = outcome {
            tracing::error!(target: "INITSYNC", id = 21200, attempt = attempts, attemptsMax = ATTEMPTS_MAX, source = host, error = %error, "Initial sync attempt failed");
            if attempts >= ATTEMPTS_MAX && !self.state.lock().stopping {
                tracing::error!(target: "INITSYNC", id = 21202, "The maximum number of retries have been exhausted for initial sync");
                (parts.initial_sync_hooks.give_up)();
            }
            return Err(failed(error));
        }
        *parts.refused.lock() = None;
        (parts.on_input)(Input::Data(DataState::Ready));
        Ok(())
    }

    fn follow(&self, generation: u64, source: MemberId, connection: &mut Outgoing) -> Result<End, CallError> {
        let own_last = self.parts.storage.last_entry();
        let first = log_stream::open(connection, own_last.timestamp)?;
        let mut cursor_id = match self.take_replies(generation, source, &[first], "firstBatch") {
            Ok(id) => id,
            Err(end) => return Ok(end),
        };
        log_stream::go_on(connection, cursor_id)?;
        loop {
            let Some(reply) = log_stream::next(connection)? else {
                return Ok(End::Failed("the source ended the stream".to_owned()));
            };
            let mut bytes = reply.as_bytes().len();
            let mut replies = vec![reply];
            while bytes < TOGETHER_BYTES_MAX
                && let Some(reply) = log_stream::next_if_there(connection)?
            {
                bytes += reply.as_bytes().len();
                replies.push(reply);
            }
            cursor_id = match self.take_replies(generation, source, &replies, "nextBatch") {
                Ok(id) => id,
                Err(end) => return Ok(end),
            };
            if cursor_id == 0 {
                return Ok(End::Failed("the source closed its cursor".to_owned()));
            }
        }
    }

    /// Judges and applies what came together; returns the cursor's id.
    fn take_replies(
        &self,
        generation: u64,
        source: MemberId,
        replies: &[RawDocumentBuf],
        name: &str,
    ) -> Result<i64, End> {
        let failed = |error: Error| End::Failed(error.message);
        let Some((first, later)) = replies.split_first() else { return Err(End::Changed) };
        let mut batch = Batch::read(first, name).map_err(failed)?;
        for reply in later {
            batch.follow_with(Batch::read(reply, name).map_err(failed)?);
        }
        let bytes = replies.iter().map(|reply| reply.as_bytes().len()).sum();
        self.parts.figures.fetched(batch.entries.len(), bytes);
        {
            let mut state = self.state.lock();
            if state.generation != generation {
                return Err(End::Changed);
            }
            state.at_rest = false;
        }
        let outcome = self.apply(generation, &batch, name == "firstBatch");
        self.state.lock().at_rest = true;
        self.changed.notify_all();
        outcome?;
        let Batch { commit_point, source: SourceState { term, last, .. }, .. } = batch;
        (self.parts.on_input)(Input::BatchTaken { source, term, commit_point, last });
        Ok(batch.cursor_id)
    }

    /// Waits until an entry of that time is as old as this member stays behind; there is nothing in its hands meanwhile.
    fn hold_back(&self, generation: u64, written: Timestamp) -> Result<(), End> {
        let mut state = self.state.lock();
        loop {
            if state.generation != generation {
                return Err(End::Changed);
            }
            let due = UNIX_EPOCH + Duration::from_secs(u64::from(written.seconds)) + state.delay;
            let left = due.duration_since(SystemTime::now()).unwrap_or_default();
            if !state.held && (state.delay.is_zero() || left.is_zero()) {
                state.at_rest = false;
                return Ok(());
            }
            state.at_rest = true;
            self.changed.notify_all();
            // The clock that entries are stamped by may be set meanwhile.
            let wait = if state.held { CLOCK_LOOK_INTERVAL } else { left.min(CLOCK_LOOK_INTERVAL) };
            self.changed.wait_for(&mut state, wait);
        }
    }

    /// How many of the entries, which are in order, may be applied together: those of the same second as the first, where this
    /// member stays behind.
    fn due_together(&self, entries: &[(OpTime, &RawDocument)]) -> usize {
        let Some((first, _)) = entries.first() else { return 0 };
        if self.state.lock().delay.is_zero() {
            return entries.len();
        }
        entries.iter().take_while(|(optime, _)| optime.timestamp.seconds == first.timestamp.seconds).count()
    }

    /// Applies entries together; if that fails, one by one, as far as they go.
    fn apply_all(&self, generation: u64, entries: &[&RawDocument]) -> Result<(), End> {
        let parts = &self.parts;
        let apply = |entries: &[&RawDocument]| {
            if (parts.initial_sync_hooks.holds)(FAIL_POINT) {
                return Err(Error::new(ErrorCode::OperationFailed, format!("the fail point {FAIL_POINT} is on")));
            }
            apply(&parts.storage, &parts.apply_command, entries)
        };
        let error = loop {
            match apply(entries) {
                Ok(()) => return Ok(()),
                // What was applied before it is skipped then.
                Err(error) if is_not_yet(&error) => self.await_build(generation)?,
                Err(error) => break error,
            }
        };
        // Who writes entries of its own applies nobody's.
        if is_passing(&error) || parts.storage.queue().write_gate() != WriteGate::Closed {
            return Err(End::Failed(format!("entries could not be applied: {error}")));
        }
        for entry in entries {
            if let Err(error) = apply(&[*entry]) {
                if is_not_yet(&error) {
                    return Err(End::Failed(error.message));
                }
                return Err(End::Refused((*entry).to_owned(), error));
            }
        }
        Ok(())
    }

    /// Waits for an index build for a moment. What was applied is synced meanwhile: writers wait for that.
    fn await_build(&self, generation: u64) -> Result<(), End> {
        self.parts.storage.sync();
        let mut state = self.state.lock();
        if state.generation == generation {
            self.changed.wait_for(&mut state, NOT_YET_INTERVAL);
        }
        if state.generation == generation { Ok(()) } else { Err(End::Changed) }
    }

    fn apply(&self, generation: u64, batch: &Batch<'_>, is_first: bool) -> Result<(), End> {
        let storage = &self.parts.storage;
        let own_last = storage.last_entry();
        let entries = if is_first {
            let term = self.parts.term.load(Ordering::Acquire);
            let optimes: Vec<OpTime> = batch.entries.iter().map(|(optime, _)| *optime).collect();
            // A primary that catches up is bounded by its source, which has nothing of its term: see `sync_source`.
            match judge(own_last, term, false, batch.source, &optimes) {
                Verdict::Append { entries } => &batch.entries[1..=entries],
                Verdict::RollBack => return Err(End::RollBack),
                Verdict::TooStale => return Err(End::TooStale(batch.source.oldest)),
                Verdict::ChangeSource => return Err(End::Failed("it has nothing for this member".to_owned())),
            }
        } else {
            &batch.entries[..]
        };
        let mut left = entries;
        while let Some((first, _)) = left.first() {
            self.hold_back(generation, first.timestamp)?;
            let (due, later) = left.split_at(self.due_together(left));
            let due: Vec<&RawDocument> = due.iter().map(|(_, entry)| *entry).collect();
            let began = Instant::now();
            let applied = self.apply_all(generation, &due);
            storage.sync();
            applied?;
            self.note_progress();
            self.parts.figures.applied(&due, began.elapsed());
            left = later;
        }
        Ok(())
    }
}
