//! Carries out what the follower's machine asks for: one thing after the other, each piece of work answered by one input.

use super::batch::Batch;
use super::own_term::wall;
use super::refused::RefusedEntry;
use super::stream::{self, Stream};
use super::{Closings, Shared};
use crate::apply::{apply, is_not_yet};
use crate::initial_sync::{LaneWorker, Session, collection_of};
use baton_consensus::Position;
use baton_following::{
    Answer, Attempt, Copying, Effect, Fault, FaultKind, Here, Input, Lane, Progress, Refusal, Remedy, TakenAway,
};
use baton_net::Outgoing;
use baton_storage::{RolledBack, UNRECOVERABLE_ROLLBACK, WriteGate, optime_of};
use baton_types::{Class, Error, ErrorCode, OpTime, Result, Timestamp};
use bson::RawDocumentBuf;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So much that waits to be applied is applied beside a sync.
const BESIDE_BYTES_MIN: usize = 16 * 1024;
/// Lets no entry be applied, for tests.
const FAIL_POINT: &str = "failApplyingEntries";

/// See the file's header.
pub(super) struct Worker<'a> {
    shared: &'a Arc<Shared>,
    /// Where the source listens that the present work is about.
    host: String,
    stream: Option<Stream>,
    /// Another connection to it: the stream's may be in the midst of a batch.
    pages: Option<Outgoing>,
    /// The batch that came last.
    batch: Batch,
    /// The places of what was applied since a sync was last asked for, and since when.
    applied: Range<usize>,
    applying_since: Option<Instant>,
    /// The entry that could not be applied.
    refused: Option<RawDocumentBuf>,
    /// The main lane of a copy.
    copy: Option<LaneWorker>,
    /// The threads of the others.
    lanes: Vec<JoinHandle<()>>,
}

fn closed() -> Error {
    Error::new(ErrorCode::HostUnreachable, "the connection was closed")
}

fn failed(error: &Error) -> Input {
    Input::Failed { reason: error.message.to_string() }
}

/// Whether the attempt failed for what this member is doing, and not for the entry.
fn is_passing(error: &Error) -> bool {
    matches!(
        error.code,
        ErrorCode::ShutdownInProgress | ErrorCode::InterruptedAtShutdown | ErrorCode::InterruptedDueToReplStateChange
    )
}

impl<'a> Worker<'a> {
    pub fn new(shared: &'a Arc<Shared>) -> Self {
        Self {
            shared,
            host: String::new(),
            stream: None,
            pages: None,
            batch: Batch::default(),
            applied: 0..0,
            applying_since: None,
            refused: None,
            copy: None,
            lanes: Vec::new(),
        }
    }

    fn here(&self) -> Here {
        self.shared.parts.own_term.here(&self.shared.parts.storage)
    }

    /// Gives the answer, if it is work.
    pub fn carry_out(&mut self, effect: Effect, closings: Closings) -> Option<Input> {
        let shared = self.shared;
        match effect {
            Effect::Connect { within, .. } => {
                Some(self.connect(within, closings).unwrap_or_else(|error| failed(&error)))
            }
            Effect::Copy { lane, task } => {
                let copy = self.copy.as_mut()?;
                Some(shared.carry_out_copying(copy, lane, task, closings))
            }
            Effect::Progress(progress) => {
                self.progressed(*progress);
                None
            }
            Effect::Open { after, within } => {
                Some(self.fetched(closings, |stream| stream.open(after.timestamp, within)))
            }
            Effect::Read { within } => Some(self.fetched(closings, |stream| stream.read(within))),
            Effect::Apply { from, until } => Some(Input::Applied { attempt: self.apply(from..until), wall: wall() }),
            Effect::Sync => {
                self.count_applied();
                self.sync();
                None
            }
            Effect::AskToSpare => Some(Input::Spared((shared.parts.can_spare_copy)())),
            Effect::LookBack { secs } => Some(self.look_back(secs).unwrap_or_else(|error| failed(&error))),
            Effect::Page { from, entries_max, within } => {
                Some(self.page(from, entries_max, within).unwrap_or_else(|error| failed(&error)))
            }
            Effect::TakeAway { common } => Some(self.take_away(common)),
            Effect::NoteNotWhole => {
                let storage = &shared.parts.storage;
                storage.follower().note_not_whole(storage.oplog().last_entry());
                None
            }
            Effect::Tell(told) => {
                (shared.parts.tell)(*told);
                None
            }
            Effect::Stopped { reason, .. } => {
                tracing::info!(target: "REPL", id = 21275, source = self.host, reason, "Stopped fetching");
                None
            }
            Effect::Refused(refusal) => {
                self.refuse(&refusal);
                None
            }
            Effect::Passed => {
                *shared.parts.refused.lock() = None;
                tracing::info!(target: "REPL", "The entry that could not be applied no longer stands in the way");
                None
            }
            Effect::NotRolledBack { reason, remedy, .. } => {
                self.tell_not_rolled_back(&reason, remedy);
                None
            }
            // Carried out at once, by whoever steps.
            Effect::Close | Effect::HangUp { .. } | Effect::Rested => None,
        }
    }

    fn connect(&mut self, within: Duration, closings: Closings) -> Result<Input> {
        (self.stream, self.pages) = (None, None);
        let host = {
            let state = self.shared.state.lock();
            state.host.clone().filter(|_| state.closings == closings)
        };
        self.host = host.ok_or_else(closed)?;
        let unreachable = |error: std::io::Error| Error::new(ErrorCode::HostUnreachable, error.to_string());
        let connection = Outgoing::connect(&self.host, within).map_err(unreachable)?;
        self.shared.opened(closings, None, connection.closer());
        self.stream = Some(Stream::new(connection));
        let storage = &self.shared.parts.storage;
        let given_up = storage.follower().given_up()?;
        let is_whole = storage.oplog().last_entry() != OpTime::ZERO && given_up.is_none();
        Ok(Input::Connected { here: self.here(), is_whole, given_up: given_up.unwrap_or(OpTime::ZERO) })
    }

    fn fetched(
        &mut self,
        closings: Closings,
        fetch: impl FnOnce(&mut Stream) -> Result<(Batch, baton_following::Batch)>,
    ) -> Input {
        let stream = self.stream.as_mut().filter(|_| !self.shared.is_closed(closings));
        match stream.ok_or_else(closed).and_then(fetch) {
            Ok((batch, judged)) => {
                self.shared.parts.figures.fetched(judged.optimes.len(), batch.bytes());
                self.batch = batch;
                Input::Fetched { here: self.here(), batch: judged }
            }
            Err(error) => failed(&error),
        }
    }

    /// A copy begins, or is over.
    fn progressed(&mut self, progress: Progress) {
        let parts = &self.shared.parts;
        if let Progress::Begun { what, .. } = &progress {
            self.dismiss();
            let options = (parts.initial_sync_hooks.options)();
            let session = Session::new(&self.host, *what, options, &parts.data_directory, &parts.initial_sync);
            let is_it = |entry: &RawDocumentBuf| match what {
                Copying::CollectionOf(optime) => optime_of(entry) == Some(*optime),
                Copying::Everything => false,
            };
            self.copy = Some(LaneWorker::new(Lane::Main, &session, self.refused.take().filter(is_it)));
            self.shared.state.lock().session = Some(session);
            return;
        }
        let gives_up = matches!(progress, Progress::Failed { gives_up: true, .. });
        if let Progress::Whole(_) = &progress {
            *parts.refused.lock() = None;
        }
        let session = self.shared.state.lock().session.take();
        if let Some(session) = session {
            session.progressed(progress);
        }
        self.dismiss();
        if gives_up && !self.shared.state.lock().stopping {
            (parts.initial_sync_hooks.give_up)();
        }
    }

    /// Gives a lane of the copy a thread.
    pub fn man(&mut self, lane: Lane) -> Option<Input> {
        let session = self.shared.state.lock().session.clone()?;
        let shared = Arc::clone(self.shared);
        let name = match lane {
            Lane::Log => "oplog-tail".to_owned(),
            Lane::Main | Lane::Copier(_) => "initial-sync".to_owned(),
        };
        match std::thread::Builder::new().name(name).spawn(move || shared.run_lane(lane, &session)) {
            Ok(thread) => {
                self.lanes.push(thread);
                None
            }
            Err(error) => {
                let reason = format!("no thread for an initial sync: {error}");
                Some(self.shared.copied(lane, Answer::Failed(Fault { kind: FaultKind::Other, reason })))
            }
        }
    }

    /// The copy is over: nobody works for it any more when this returns.
    pub fn dismiss(&mut self) {
        self.copy = None;
        self.shared.state.lock().session = None;
        self.shared.changed.notify_all();
        for thread in self.lanes.drain(..) {
            if thread.join().is_err() {
                tracing::error!(target: "INITSYNC", "A thread of an initial sync panicked");
            }
        }
    }

    fn apply(&mut self, places: Range<usize>) -> Attempt {
        let parts = &self.shared.parts;
        self.applying_since.get_or_insert_with(Instant::now);
        let entries = self.batch.entries(places.clone());
        let applied = if (parts.initial_sync_hooks.holds)(FAIL_POINT) {
            Err(Error::new(ErrorCode::OperationFailed, format!("the fail point {FAIL_POINT} is on")))
        } else {
            apply(&parts.storage, &parts.apply_command, &entries)
        };
        match applied {
            Ok(()) => {
                let from = if self.applied.is_empty() { places.start } else { self.applied.start };
                self.applied = from..places.end;
                Attempt::Done
            }
            Err(error) if is_not_yet(&error) => Attempt::NotYet,
            // Who writes entries of its own applies nobody's.
            Err(error) if is_passing(&error) || parts.storage.queue().write_gate() != WriteGate::Closed => {
                Attempt::Passing { reason: error.to_string() }
            }
            Err(error) => Attempt::Failed {
                reason: error.to_string(),
                is_of_collection: entries.first().is_some_and(|entry| collection_of(entry).is_some()),
            },
        }
    }

    /// Beside what comes next, if so much of that is there that it takes about as long; otherwise to call somebody else would take longer than
    /// this thread has anything else to do. Urgent entries are acknowledged before anything else is begun.
    fn sync(&self) {
        let storage = &self.shared.parts.storage;
        let is_urgent = storage.queue().urgency().class() == Class::High;
        let waiting_bytes = || self.stream.as_ref().map_or(0, Stream::waiting_bytes);
        match !is_urgent && waiting_bytes() >= BESIDE_BYTES_MIN {
            true => storage.queue().want_sync(),
            false => drop(storage.sync()),
        }
    }

    fn count_applied(&mut self) {
        let since = self.applying_since.take();
        let applied = std::mem::take(&mut self.applied);
        if let Some(since) = since.filter(|_| !applied.is_empty()) {
            self.shared.parts.figures.applied(&self.batch.entries(applied), since.elapsed());
        }
    }

    fn refuse(&mut self, refusal: &Refusal) {
        let parts = &self.shared.parts;
        let is_it = |entry: &&bson::RawDocument| optime_of(entry) == Some(refusal.optime);
        let entry = self.batch.all().into_iter().find(is_it);
        let mut told = parts.refused.lock();
        let refused = RefusedEntry::new(refusal, entry, told.as_ref());
        parts.figures.refused_entries.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            target: "REPL", id = 21238, optime = %refused.optime, attempt = refused.attempts, error = refused.reason,
            entry = refused.entry, remedy = refused.remedy.name(), "An entry of the log could not be applied"
        );
        *told = Some(refused);
        self.refused = entry.map(ToOwned::to_owned);
    }

    /// This member's newest entry of an earlier second than the one that is so far before the last.
    fn look_back(&self, secs: u32) -> Result<Input> {
        let storage = &self.shared.parts.storage;
        let last = storage.oplog().last_entry().timestamp;
        let before =
            storage.oplog().entry_until(Timestamp { seconds: last.seconds.saturating_sub(secs), increment: 0 })?;
        let is_oldest = before == OpTime::ZERO;
        let own = if is_oldest { storage.oplog().oldest_entry()?.unwrap_or(OpTime::ZERO) } else { before };
        Ok(Input::LookedBack { own, is_oldest })
    }

    fn page(&mut self, from: Timestamp, entries_max: usize, within: Duration) -> Result<Input> {
        let unreachable = |error: std::io::Error| Error::new(ErrorCode::HostUnreachable, error.to_string());
        let mut connection = match self.pages.take() {
            Some(connection) => connection,
            None => Outgoing::connect(&self.host, within).map_err(unreachable)?,
        };
        let (theirs, source) = stream::page(&mut connection, from, entries_max, within)?;
        self.pages = Some(connection);
        let mut known = 0;
        for optime in &theirs {
            if self.shared.parts.storage.oplog().entry_at(*optime)?.is_none() {
                break;
            }
            known += 1;
        }
        Ok(Input::Paged { here: self.here(), source, theirs, known })
    }

    /// Whoever reads or writes around a rollback waits in an era that is over when it is done.
    fn take_away(&mut self, common: OpTime) -> Input {
        let parts = &self.shared.parts;
        self.pages = None;
        parts.figures.rollbacks.fetch_add(1, Ordering::Relaxed);
        let interrupted = Error::new(ErrorCode::InterruptedDueToReplStateChange, "This member rolls back");
        parts.waiters.fail_all(&interrupted);
        parts.waiters.tell();
        let outcome = parts.storage.follower().roll_back(common, &parts.rollback_directory);
        parts.waiters.fail_all(&interrupted);
        parts.waiters.tell();
        let queue = parts.storage.queue();
        let (applied, durable) = (queue.applied(), queue.durable());
        let position = Position { written: applied, applied, durable };
        let outcome = match outcome {
            Ok(RolledBack { from, to, entries, documents }) => {
                tracing::info!(target: "ROLLBACK", id = 21612, source = self.host, from = ?from, to = ?to, entries, documents, directory = %parts.rollback_directory.display(), "Rollback summary");
                TakenAway::Done
            }
            Err(error) if error.code == UNRECOVERABLE_ROLLBACK => {
                TakenAway::Unrecoverable { reason: error.to_string() }
            }
            Err(error) => TakenAway::Failed { reason: error.to_string() },
        };
        Input::TakenAway { position, outcome }
    }

    fn tell_not_rolled_back(&self, reason: &str, remedy: Remedy) {
        let source = &self.host;
        match remedy {
            Remedy::Everything => {
                tracing::warn!(target: "ROLLBACK", source, error = reason, "Cannot roll back; copying the source anew");
            }
            Remedy::Again | Remedy::Collection => {
                tracing::error!(target: "ROLLBACK", source, error = reason, "This member's log has parted from its source's, and cannot be rolled back now");
            }
        }
    }
}
