//! Initial sync by cloning (by file: [`by_file`]): a member without data copies another's collections, several at once, while it reads the other's log,
//! and applies the log to the copy until it has everything that was written meanwhile.
//!
//! ```text
//!  source's log   … b ─────────────────── s ──▶
//!                   │ collections, copied │
//!                   ├──── read into a buffer ───▶
//!                   └──── applied to the copy, which is whole at s
//! ```
//!
//! Invariants:
//! - Until the member has applied everything up to `s`, a fact on its disk says that its data is not whole: it is neither read nor
//!   counted, and a start begins anew.
//! - The entries after `b` are idempotent: it is no matter which of them a document of the copy had seen.
//! - The copy, the log and `s` are of one source, and that has not rolled back meanwhile: what it would have taken back could be in
//!   the copy.
//!
//! What it deliberately does not do: choose the source; follow the log from then on ([`crate::fetcher`]).

mod by_file;
mod log_buffer;
mod one_collection;
mod source;
mod status;
mod tail;

pub use by_file::InitialSyncMethod;
pub(crate) use one_collection::collection_of;
pub use status::{ATTEMPTS_MAX, CollectionProgress, FailedAttempt, InitialSyncStatus};

use crate::apply::{NOT_YET_INTERVAL, apply, is_not_yet};
use baton_net::Closer;
use baton_storage::{Storage, optime_of, work_when_idle};
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result, must_not_unwind};
use bson::raw::cstr;
use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use log_buffer::{Bounds, LogBuffer};
use parking_lot::Mutex;
use source::{Line, Listed, Source, is_transient};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Statements of retryable writes are taken over from this much of the source's log: longer ago than any driver tries again.
const STATEMENTS_SECS: u32 = 120;
/// As many documents as a reply holds.
const BATCH: i32 = 1_000_000;
/// Entries applied in one go.
const APPLY_BYTES: u64 = 4 * 1024 * 1024;
/// How long the next entry is waited for before looking whether the sync is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often the log tells of the progress.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// How long a test's request to wait is looked at again.
const HOLD_INTERVAL: Duration = Duration::from_millis(10);

/// What an operator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialSyncOptions {
    /// How the data come.
    pub method: InitialSyncMethod,
    /// From so many bytes of the source's on they come by file, if nothing else is said.
    pub file_copy_bytes_min: u64,
    /// Documents asked for at once; 0 is as many as a message holds.
    pub batch_documents: i32,
    /// Collections copied at once.
    pub collections_at_once: usize,
    /// Whether the copying leaves the processors to clients, here and at the source. Where these use all there is, it is slow.
    pub yields_to_clients: bool,
    /// Bytes of the source's log that wait in memory.
    pub log_memory_bytes: u64,
    /// Bytes of the source's log that wait in a file beyond that.
    pub log_file_bytes: u64,
}

impl Default for InitialSyncOptions {
    fn default() -> Self {
        Self {
            method: InitialSyncMethod::Auto,
            file_copy_bytes_min: 1 << 30,
            batch_documents: 0,
            collections_at_once: 2,
            yields_to_clients: true,
            log_memory_bytes: 64 << 20,
            log_file_bytes: 16 << 30,
        }
    }
}

/// What the member around it has a say in.
pub struct InitialSyncHooks {
    /// What is set now.
    pub options: Box<dyn Fn() -> InitialSyncOptions + Send + Sync>,
    /// Whether a test wants the sync to wait at this point.
    pub holds: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Starts the process anew; absent where it cannot.
    pub restart: Option<Box<dyn Fn() + Send + Sync>>,
    /// Ends the process: no attempt succeeded.
    pub give_up: Box<dyn Fn() + Send + Sync>,
}

/// What an initial sync works with.
pub(crate) struct InitialSync<'a> {
    pub storage: &'a Storage,
    pub apply_command: &'a (dyn Fn(&RawDocument) -> Result<()> + Send + Sync),
    pub status: &'a Mutex<Option<InitialSyncStatus>>,
    pub hooks: &'a InitialSyncHooks,
    /// Where what does not fit into memory goes.
    pub directory: &'a Path,
    /// Asked between two batches.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Hears of every connection.
    pub opened: &'a (dyn Fn(Closer) + Sync),
    pub told: Mutex<Instant>,
}

impl InitialSync<'_> {
    /// Makes this member's data a copy of the other's, whole and synced.
    pub fn run(&self, host: &str) -> Result<()> {
        self.tracked(host, || self.attempt(host))
    }

    /// Carries an attempt out and notes how it went.
    fn tracked(&self, host: &str, attempt: impl FnOnce() -> Result<()>) -> Result<()> {
        {
            let mut status = self.status.lock();
            *status = Some(InitialSyncStatus::new(host, status.as_ref()));
        }
        let outcome = attempt();
        if let Some(status) = self.status.lock().as_mut() {
            let duration = status.attempt_began.elapsed();
            match &outcome {
                Ok(()) => status.ended = Some(SystemTime::now()),
                Err(error) => status.failed_attempts.push(FailedAttempt {
                    source: host.to_owned(),
                    duration,
                    reason: error.message.clone(),
                    rollback_id: status.rollback_id,
                }),
            }
        }
        outcome
    }

    fn note(&self, change: impl FnOnce(&mut InitialSyncStatus)) {
        let mut status = self.status.lock();
        let Some(status) = status.as_mut() else { return };
        change(status);
        let mut told = self.told.lock();
        if told.elapsed() >= TELL_INTERVAL {
            *told = Instant::now();
            tracing::info!(
                target: "INITSYNC",
                source = status.source,
                method = status.method,
                collections = status.collections.len(),
                collectionsDone = status.collections_done(),
                bytes = status.bytes(),
                bytesDone = status.bytes_done(),
                entriesApplied = status.entries_applied,
                remainingSecs = status.remaining().map(|left| left.as_secs()),
                "Initial sync progress"
            );
        }
    }

    fn check_wanted(&self) -> Result<()> {
        if (self.interrupted)() {
            return Err(Error::new(ErrorCode::InitialSyncFailure, "there is another sync source now"));
        }
        Ok(())
    }

    /// Waits while a test wants that.
    fn hold(&self, point: &str) -> Result<()> {
        while (self.hooks.holds)(point) {
            self.check_wanted()?;
            std::thread::sleep(HOLD_INTERVAL);
        }
        self.check_wanted()
    }

    fn attempt(&self, host: &str) -> Result<()> {
        tracing::info!(target: "INITSYNC", id = 21164, source = host, "Starting initial sync attempt");
        self.with_source(host, |line, source, rollback_id| {
            let begin = source.newest_entry()?;
            let from =
                optime_of(&begin).ok_or_else(|| Error::failed_to_parse("the source's newest entry has no OpTime"))?;
            self.note(|status| status.from = from);
            if self.goes_by_file(source)? {
                return self.by_file(line, source);
            }
            self.storage.begin_clone()?;
            self.beside_log(line, from, |buffer| {
                self.copy_all(line, source, &begin, from)?;
                self.hold("initialSyncHangAfterDataCloning")?;
                self.catch_up(source, buffer, rollback_id)
            })
        })
    }

    /// Connects to the source. `work` gets a line for what takes long, the source, and how often that has rolled back.
    fn with_source(&self, host: &str, work: impl FnOnce(&Line<'_>, &mut Source<'_>, i32) -> Result<()>) -> Result<()> {
        let retried = || self.note(|status| status.retried += 1);
        let line =
            Line { host, interrupted: self.interrupted, opened: self.opened, retried: &retried, in_background: false };
        let mut source = Source::connect(&line)?;
        let copy_line = Line { in_background: (self.hooks.options)().yields_to_clients, ..line };
        let rollback_id = source.rollback_id()?;
        self.note(|status| status.rollback_id = rollback_id);
        work(&copy_line, &mut source, rollback_id)
    }

    /// Does `work` while the source's log after `from` is read into the buffer.
    fn beside_log(&self, line: &Line<'_>, from: OpTime, work: impl FnOnce(&LogBuffer) -> Result<()>) -> Result<()> {
        let options = (self.hooks.options)();
        let bounds = Bounds { memory_bytes: options.log_memory_bytes, file_bytes: options.log_file_bytes };
        let buffer = LogBuffer::new(self.directory, bounds);
        let closers: Mutex<Vec<Closer>> = Mutex::default();
        let opened = |closer: Closer| {
            (self.opened)(closer.clone());
            let mut closers = closers.lock();
            closers.retain(|_| false);
            closers.push(closer);
        };
        let tail_line = Line { opened: &opened, ..*line };
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("oplog-tail".into())
                .spawn_scoped(scope, || tail::run(&tail_line, from, &buffer))
                .map_err(|error| Error::new(ErrorCode::InternalError, format!("no thread for the log: {error}")))?;
            let outcome = work(&buffer);
            buffer.close();
            closers.lock().iter().for_each(Closer::close);
            outcome
        })
    }

    /// Copies what there is.
    fn copy_all(&self, line: &Line<'_>, source: &mut Source<'_>, begin: &RawDocument, from: OpTime) -> Result<()> {
        self.copy_statements(source, from)?;
        self.storage.begin_log_with(begin)?;
        self.hold("initialSyncHangBeforeCopyingDatabases")?;
        let (views, mut collections): (Vec<_>, Vec<_>) =
            source.collections()?.into_iter().partition(|listed| listed.is_view);
        let mut progress = Vec::new();
        for listed in &collections {
            self.check_wanted()?;
            let mut one = CollectionProgress::new(listed.namespace.clone());
            source.measure(listed, &mut one)?;
            progress.push(one);
        }
        // The largest first, so that none of them is left for the end.
        let mut order: Vec<usize> = (0..collections.len()).collect();
        order.sort_by_key(|place| std::cmp::Reverse(progress[*place].bytes));
        let ordered: Vec<_> = order.iter().map(|place| progress[*place].clone()).collect();
        collections = {
            let mut places: Vec<Option<Listed>> = collections.into_iter().map(Some).collect();
            order.iter().filter_map(|place| places[*place].take()).collect()
        };
        self.note(|status| status.collections = ordered);
        self.copy_several_at_once(line, &collections)?;
        // A view may be of any collection.
        for view in &views {
            self.create(view)?;
        }
        self.storage.sync();
        Ok(())
    }

    fn copy_several_at_once(&self, line: &Line<'_>, collections: &[Listed]) -> Result<()> {
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || -> Result<()> {
            let mut source = Source::connect_to_clone(line)?;
            while failure.lock().is_none() {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(listed) = collections.get(place) else { break };
                self.copy(&mut source, listed, place)?;
            }
            Ok(())
        };
        let workers = (self.hooks.options)().collections_at_once.clamp(1, collections.len().max(1));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    let _guard = must_not_unwind("an initial sync");
                    if line.in_background {
                        work_when_idle();
                    }
                    if let Err(error) = work() {
                        failure.lock().get_or_insert(error);
                    }
                });
            }
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    fn copy_statements(&self, source: &mut Source<'_>, until: OpTime) -> Result<()> {
        let mut from = until.timestamp;
        from.seconds = from.seconds.saturating_sub(STATEMENTS_SECS);
        let find = rawdoc! {
            "find": "oplog.rs", "$db": "local", "batchSize": BATCH,
            "filter": {
                "ts": { "$gte": bson::Timestamp::from(from), "$lte": bson::Timestamp::from(until.timestamp) },
                "lsid": { "$exists": true },
            },
        };
        source.each_batch(find, |entries| self.storage.put_statements(entries))
    }

    fn command(&self, listed: &Listed, o: RawDocumentBuf) -> Result<()> {
        let mut entry = rawdoc! { "op": "c", "ns": format!("{}.$cmd", listed.namespace.db()) };
        if let Some(uuid) = &listed.uuid {
            entry.append(cstr!("ui"), uuid.clone());
        }
        entry.append(cstr!("o"), o);
        self.storage.unlogged(|| (self.apply_command)(&entry))
    }

    fn create(&self, listed: &Listed) -> Result<()> {
        self.command(listed, with_first("create", &listed.namespace, &listed.options)?)
    }

    /// Copies a collection. If it is dropped meanwhile, the log says so.
    fn copy(&self, source: &mut Source<'_>, listed: &Listed, place: usize) -> Result<()> {
        self.note(|status| status.collections[place].began = Some(SystemTime::now()));
        self.create(listed)?;
        match self.fill(source, listed, place) {
            Err(error) if error.code == ErrorCode::NamespaceNotFound => {
                tracing::info!(target: "INITSYNC", namespace = %listed.namespace, "A collection is gone from the source");
            }
            outcome => outcome?,
        }
        self.note(|status| status.collections[place].ended = Some(SystemTime::now()));
        Ok(())
    }

    fn fill(&self, source: &mut Source<'_>, listed: &Listed, place: usize) -> Result<()> {
        let indexes = source.indexes(listed)?;
        let build = || -> Result<()> {
            for (command, rest) in &indexes {
                self.command(listed, with_first(command, &listed.namespace, rest)?)?;
            }
            Ok(())
        };
        build()?;
        // The `_id` of the last document that came.
        let mut position = None;
        loop {
            match self.copy_documents(source, listed, place, &mut position) {
                Err(error) if is_transient(&error) => {
                    tracing::info!(target: "INITSYNC", namespace = %listed.namespace, error = %error, "The copying of a collection was interrupted");
                    source.reconnect()?;
                }
                outcome => return outcome,
            }
            if listed.is_capped() {
                // Its order is that of insertion, in which there is no place to go on from.
                self.command(listed, rawdoc! { "drop": listed.namespace.coll() })?;
                self.note(|status| {
                    let progress = &mut status.collections[place];
                    (progress.documents_done, progress.bytes_done) = (0, 0);
                });
                self.create(listed)?;
                build()?;
            }
        }
    }

    fn copy_documents(
        &self,
        source: &mut Source<'_>,
        listed: &Listed,
        place: usize,
        position: &mut Option<RawBson>,
    ) -> Result<()> {
        let batch = match (self.hooks.options)().batch_documents {
            0 => BATCH,
            documents => documents,
        };
        let mut find = rawdoc! {
            "find": listed.named(), "$db": listed.namespace.db(), "batchSize": batch, "noCursorTimeout": true,
        };
        if !listed.is_capped() {
            find.append(cstr!("hint"), rawdoc! { "_id": 1 });
            if let Some(id) = &*position {
                find.append(cstr!("min"), rawdoc! { "_id": id.clone() });
            }
        }
        source.each_batch(find, |documents| {
            self.hold("initialSyncHangDuringCollectionClone")?;
            let Some(collection) = self.storage.collection(&listed.namespace) else {
                return Err(Error::new(ErrorCode::InitialSyncFailure, format!("{} is gone", listed.namespace)));
            };
            self.storage.put_cloned(&collection, documents)?;
            let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
            if let Some(last) = documents.last() {
                *position = last.get("_id")?.map(Into::into);
            }
            self.note(|status| {
                let progress = &mut status.collections[place];
                progress.documents_done += documents.len() as u64;
                progress.bytes_done += bytes as u64;
                progress.batches += 1;
            });
            Ok(())
        })
    }

    /// Applies what was written meanwhile, until the copy is whole.
    fn catch_up(&self, source: &mut Source<'_>, buffer: &LogBuffer, rollback_id: i32) -> Result<()> {
        let until = source.newest_optime()?;
        self.note(|status| status.until = until);
        while self.storage.last_entry() < until {
            self.check_wanted()?;
            let entries = buffer.take(APPLY_BYTES, LOOK_INTERVAL)?;
            let entries: Vec<&RawDocument> = entries.iter().map(|entry| &**entry).collect();
            self.apply(&entries)?;
            self.note(|status| status.entries_applied += entries.len() as u64);
        }
        self.end(source, until, rollback_id)
    }

    /// Applies entries; one that completes an index that is not built here, when it is.
    fn apply(&self, entries: &[&RawDocument]) -> Result<()> {
        loop {
            match apply(self.storage, self.apply_command, entries) {
                Err(error) if is_not_yet(&error) => {
                    self.check_wanted()?;
                    std::thread::sleep(NOT_YET_INTERVAL);
                }
                outcome => return outcome,
            }
        }
    }

    /// The copy is whole, unless it may have what the source has taken back.
    fn end(&self, source: &mut Source<'_>, until: OpTime, rollback_id: i32) -> Result<()> {
        if self.storage.entry_at(until)?.is_none() || source.rollback_id()? != rollback_id {
            let message = "the source has rolled back what may be in the copy";
            return Err(Error::new(ErrorCode::InitialSyncFailure, message));
        }
        self.storage.sync();
        self.storage.end_clone();
        tracing::info!(target: "INITSYNC", id = 21163, until = ?until, "Initial sync done");
        Ok(())
    }
}

fn with_first(command: &str, namespace: &Namespace, rest: &RawDocument) -> Result<RawDocumentBuf> {
    let mut o = RawDocumentBuf::new();
    o.append(bson::raw::CString::try_from(command)?, namespace.coll());
    for element in rest {
        let (name, value) = element?;
        if name != "ns" {
            o.append(name, value);
        }
    }
    Ok(o)
}
