//! The index builds of the set on this member: what carries `baton_consensus::index_build` out.
//!
//! ```text
//!  createIndexes, or an entry ──▶ the catalog has a build ──▶ supervisor ──▶ a thread for the build: machine ─▶ task ─▶ machine …
//!                                        ▲                                        │ pass, vote, entry
//!                                        └────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - The catalog says what is being built, on disk too. Each build there has one thread here, whatever brought it: a command, an
//!   entry, a restart, an initial sync, a rollback. A thread ends with its build, or with the member.
//! - Who waits for a build waits for the [`Running`] that the thread works at, and is told how it ended.
//! - Every step of a build's machine is recorded, unless [`RECORDED_MAX`] others are when it begins: within [`RING`], and for a
//!   minute after its end within [`ENDED`].
//! - A build that its client no longer wants ends on all members; one whose primary has changed goes on.
//!
//! Not here: what is to be done next (the machine); filling, and what the log has (`baton_storage`).

use crate::server::operations::Slot;
use crate::server::{Begin, Operation, Server};
use baton_admission::Source;
use baton_consensus::index_build::{BuildInput, BuildPass, BuildSet, BuildTask, CommitQuorum, IndexBuild};
use baton_machine::yield_to_clients;
use baton_replay::{Bounds, Ended, Recorder, Recording};
use baton_storage::{BuildOfSet, BuildPhase, FillPosition, IndexState, Pass, WriteGate};
use baton_types::{Class, Error, ErrorCode, Result, Term, must_not_unwind};
use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawDocumentBuf, rawdoc};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a thread that waits looks around by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often a member says again that it has built.
const VOTE_INTERVAL: Duration = Duration::from_millis(500);
/// How long the primary may take to answer a vote.
const VOTE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the catalog is looked at for builds that nobody has told of.
const SUPERVISION_INTERVAL: Duration = Duration::from_millis(250);
/// How long a pass that failed on a member that does not decide is left before it is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// So many builds are recorded at a time, and so many of those that have ended are kept.
const RECORDED_MAX: usize = 16;
/// What is kept of each while it is under way, and of all together that have ended.
const RING: Bounds = Bounds { bytes: 2 << 20, age: Duration::from_secs(60), segment_age: Duration::from_secs(10) };
const ENDED: Bounds = Bounds { bytes: 8 << 20, ..RING };

const STARTING: &str = "Index Build: starting";

/// What `currentOp` says of a phase, as MongoDB does where it has it.
pub(super) fn words_of(phase: BuildPhase) -> &'static str {
    match phase {
        BuildPhase::Scanning => "scanning collection",
        BuildPhase::Loading => "inserting keys from external sorter into index",
        BuildPhase::Draining => "draining writes received during build",
        BuildPhase::Checking => "checking for duplicate keys",
    }
}

/// A build that a thread works at, or will.
pub struct Running {
    of: BuildOfSet,
    /// As in [`IndexBuilds`].
    since: Instant,
    is_recorded: bool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    machine: IndexBuild,
    recorder: Option<Recorder<IndexBuild>>,
    outcome: Option<Result<()>>,
    /// What it is at, documents done, of how many.
    progress: (String, u64, u64),
    /// Whether what it has sorted was more than little.
    used_disk: bool,
}

/// All builds of the set on this member.
pub struct IndexBuilds {
    /// What recorded times count from.
    since: Instant,
    running: Mutex<BTreeMap<[u8; 16], Arc<Running>>>,
    /// Recordings of those that have ended. Locked after `running`.
    ended: Mutex<Ended<IndexBuild>>,
    news: Condvar,
    is_stopping: AtomicBool,
}

impl Default for IndexBuilds {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            running: Mutex::default(),
            ended: Mutex::new(Ended::new(ENDED, RECORDED_MAX)),
            news: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        }
    }
}

/// What the catalog says of a build.
enum Fate {
    UnderWay,
    Complete,
    Gone,
}

fn gone(of: &BuildOfSet) -> Error {
    Error::new(
        ErrorCode::IndexBuildAborted,
        format!("Index build aborted: {}: its indexes or their collection were dropped", uuid_text(of.build.uuid)),
    )
}

fn uuid_text(uuid: [u8; 16]) -> String {
    bson::Uuid::from_bytes(uuid).to_string()
}

impl Running {
    fn new(of: BuildOfSet, is_resumed: bool, since: Instant, is_recorded: bool) -> Self {
        // What was read before: an entry was refused if it said what this does not read.
        let quorum = CommitQuorum::parse(of.build.commit_quorum.as_raw_bson_ref());
        let machine = IndexBuild::new(quorum.unwrap_or(CommitQuorum::VotingMembers), is_resumed);
        let recorder = is_recorded.then(|| Recorder::new(&machine, since.elapsed(), RING));
        let progress = (STARTING.to_owned(), 0, 0);
        let state = State { machine, recorder, outcome: None, progress, used_disk: false };
        Self { of, since, is_recorded, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Lets the build learn something.
    pub fn tell(&self, input: BuildInput) {
        self.state.lock().step(self.since, input);
        self.changed.notify_all();
    }

    /// What it is at, documents done, of how many.
    pub fn progress(&self) -> (String, u64, u64) {
        self.state.lock().progress.clone()
    }

    /// Whether this member has sorted more for it than little, and so on the disk.
    pub fn used_disk(&self) -> bool {
        self.state.lock().used_disk
    }

    /// Waits for its end for a moment; how it ended, once it has.
    pub fn wait(&self) -> Option<Result<()>> {
        let mut state = self.state.lock();
        if state.outcome.is_none() {
            self.changed.wait_for(&mut state, LOOK_INTERVAL);
        }
        state.outcome.clone()
    }

    /// Whether this member has built.
    pub fn is_filled(&self) -> bool {
        self.state.lock().machine.is_filled()
    }

    /// As files with steps call it.
    fn title(&self) -> String {
        format!("{} {}", uuid_text(self.of.build.uuid), self.of.namespace)
    }

    fn end(&self, outcome: Result<()>) {
        self.state.lock().outcome = Some(outcome);
        self.changed.notify_all();
    }
}

impl State {
    fn step(&mut self, since: Instant, input: BuildInput) {
        baton_replay::step(self.recorder.as_mut(), &mut self.machine, since.elapsed(), input);
    }

    fn recording(&mut self) -> Option<Recording<IndexBuild>> {
        Some(self.recorder.as_mut()?.recording(&self.machine))
    }
}

impl IndexBuilds {
    /// What is recorded of those that have lately ended and of those under way, by what each is called; without those that are
    /// in use for so long.
    pub fn recordings(&self, patience: Duration) -> Vec<(String, Recording<IndexBuild>)> {
        let until = Instant::now() + patience;
        let Some(running) = self.running.try_lock_until(until) else { return Vec::new() };
        let under_way: Vec<_> = running.values().cloned().collect();
        let mut recordings = self.ended.lock().recordings(self.since.elapsed());
        drop(running);
        let recording = |build: &Arc<Running>| {
            let recording = build.state.try_lock_until(until)?.recording()?;
            Some((build.title(), recording))
        };
        recordings.extend(under_way.iter().filter_map(recording));
        recordings
    }

    /// The thread of a build has ended; its recording is kept for a while.
    fn leave(&self, build: &Running) {
        let mut running = self.running.lock();
        running.remove(&build.of.build.uuid);
        if let Some(recording) = build.state.lock().recording() {
            self.ended.lock().add(self.since.elapsed(), build.title(), recording);
        }
    }

    /// The build, which a thread works at, or will in a moment.
    pub fn enter(&self, server: &Server, of: &BuildOfSet) -> Arc<Running> {
        let mut running = self.running.lock();
        let is_recorded = running.values().filter(|build| build.is_recorded).count() < RECORDED_MAX;
        let entered = running.entry(of.build.uuid).or_insert_with(|| {
            let is_resumed = server.storage.build_position(of).is_ok_and(|at| !at.is_start());
            Arc::new(Running::new(of.clone(), is_resumed, self.since, is_recorded))
        });
        self.news.notify_all();
        Arc::clone(entered)
    }

    /// The build of that UUID, if it is under way.
    pub fn find(&self, uuid: [u8; 16]) -> Option<Arc<Running>> {
        self.running.lock().get(&uuid).cloned()
    }

    /// Has the supervisor look around, or notice that it is to end.
    pub fn wake(&self) {
        self.news.notify_all();
    }

    /// Sees to it that each build has a thread, until `goes_on` says no; then waits for the threads to end.
    pub fn supervise(&self, server: &Arc<Server>, mut goes_on: impl FnMut() -> bool) {
        let mut threads: BTreeMap<[u8; 16], JoinHandle<()>> = BTreeMap::new();
        while goes_on() {
            if server.topology.is_replicated() {
                for of in server.storage.builds_of_set() {
                    self.enter(server, &of);
                }
            }
            let mut running = self.running.lock();
            threads.retain(|_, thread| !thread.is_finished());
            for (uuid, build) in running.iter().filter(|(uuid, _)| !threads.contains_key(*uuid)).collect::<Vec<_>>() {
                match spawn(server, build) {
                    Ok(thread) => {
                        threads.insert(*uuid, thread);
                    }
                    Err(error) => {
                        tracing::warn!(target: "INDEX", error = %error, "No thread for an index build; it waits for one");
                    }
                }
            }
            self.news.wait_for(&mut running, SUPERVISION_INTERVAL);
        }
        self.is_stopping.store(true, Ordering::Release);
        for (_, thread) in threads {
            if thread.join().is_err() {
                tracing::error!(target: "INDEX", "The thread of an index build panicked");
            }
        }
    }
}

fn spawn(server: &Arc<Server>, build: &Arc<Running>) -> std::io::Result<JoinHandle<()>> {
    let (start_thread, server, build) = (server.hooks.start_thread, Arc::clone(server), Arc::clone(build));
    let work = move || {
        // Nobody replaces it, and everybody waits for the build.
        let _guard = must_not_unwind("an index build");
        yield_to_clients();
        let builder = Builder { server: &server, build: &build, scan: FillPosition::default(), check: None };
        let outcome = match server.replication() {
            Some(replication) => replication.or_last_words(|| builder.run()),
            None => builder.run(),
        };
        // Before anybody hears of it: who looks for the build then finds it ended, and begins no second thread.
        server.index_builds.leave(&build);
        build.end(outcome);
    };
    start_thread("index-build", Box::new(work))
}

/// The thread of a build, at work.
struct Builder<'b> {
    server: &'b Arc<Server>,
    build: &'b Running,
    /// How far the entries are put in.
    scan: FillPosition,
    /// How far documents are asked that were put in without.
    check: Option<FillPosition>,
}

/// Why a pass was ended: the machine has learnt something by which another task may be next.
const OTHERWISE: ErrorCode = ErrorCode::InterruptedDueToReplStateChange;

impl Builder<'_> {
    fn run(mut self) -> Result<()> {
        let of = &self.build.of;
        match self.server.storage.build_position(of) {
            Ok(at) => self.scan = at,
            Err(error) => tracing::warn!(target: "INDEX", error = %error, "An index build begins anew"),
        }
        let slot = self.server.operations.register("IndexBuildsCoordinator");
        tracing::info!(target: "INDEX", id = 20438, buildUUID = uuid_text(of.build.uuid), namespace = %of.namespace, goesOn = !self.scan.is_start(), "Index build: registering");
        let mut operation = self.begin_operation(slot.slot());
        let outcome = loop {
            if self.is_stopping() {
                break Err(Error::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown"));
            }
            match self.fate() {
                Fate::Complete => break Ok(()),
                Fate::Gone => break Err(gone(of)),
                Fate::UnderWay => {}
            }
            if let Err(error) = operation.check_interrupt()
                && error.code != ErrorCode::InterruptedAtShutdown
            {
                self.build.tell(BuildInput::Killed(error));
                // It ends the build, or is too late for that; then the build goes on, as an operation that is not killed.
                drop(operation);
                operation = self.begin_operation(slot.slot());
            }
            if let Some(outcome) = self.advance(&operation) {
                break outcome;
            }
        };
        match &outcome {
            Ok(()) => {
                tracing::info!(target: "INDEX", id = 20663, buildUUID = uuid_text(of.build.uuid), namespace = %of.namespace, "Index build: completed successfully")
            }
            Err(error) => {
                tracing::info!(target: "INDEX", id = 20649, buildUUID = uuid_text(of.build.uuid), namespace = %of.namespace, error = %error, "Index build: ended without its indexes here")
            }
        }
        outcome
    }

    fn begin_operation(&self, slot: &Arc<Slot>) -> Operation {
        let (namespace, command) = (&self.build.of.namespace, self.command());
        self.server.operations.begin(
            slot,
            &Begin {
                kind: "command",
                name: "createIndexes",
                db: namespace.db(),
                collection: namespace.coll(),
                command: Some(&command),
                session: None,
                class: Class::Background,
                source: Source::Default,
                max_time: None,
                waited: Duration::ZERO,
            },
        )
    }

    /// As `currentOp` shows it.
    fn command(&self) -> RawDocumentBuf {
        let of = &self.build.of;
        let mut indexes = RawArrayBuf::new();
        of.definitions.iter().for_each(|definition| indexes.push(definition.document.clone()));
        rawdoc! {
            "createIndexes": of.namespace.coll(), "indexes": indexes, "indexBuildUUID": binary(of.build.uuid),
            "$db": of.namespace.db(),
        }
    }

    /// Does what is next; how the build ended, if it has.
    fn advance(&mut self, operation: &Operation) -> Option<Result<()>> {
        let server = self.server;
        let set = server.topology.set();
        let leads = self.leads();
        let task = {
            let (mut state, since) = (self.build.state.lock(), self.build.since);
            state.step(since, BuildInput::Leads(leads));
            let me = set.as_ref().and_then(|set| set.view.me);
            let configuration = set.as_ref().and_then(|set| set.configuration());
            if !state.machine.knows(me, configuration) {
                let set = BuildSet { me, configuration: configuration.cloned() };
                state.step(since, BuildInput::Set(Box::new(set)));
            }
            state.machine.task()
        };
        let interrupt = || if self.is_stopping() { Err(stopping()) } else { Ok(()) };
        let writing = if leads.is_some() { server.write_lock.enter(&interrupt).ok() } else { None };
        if leads.is_some() && writing.is_none() {
            return None;
        }
        match task {
            BuildTask::Pass(pass) => self.pass(pass, operation),
            BuildTask::Vote => {
                self.show(operation, "Index Build: waiting for the primary's commit entry", None);
                self.ask_primary("voteCommitIndexBuild", None);
                self.rest(VOTE_INTERVAL);
            }
            BuildTask::Object(error) => {
                self.ask_primary("voteAbortIndexBuild", Some(&error));
                self.rest(VOTE_INTERVAL);
            }
            BuildTask::AwaitVotes => {
                self.show(operation, "Index Build: waiting for the commit quorum", None);
                self.rest(LOOK_INTERVAL);
            }
            BuildTask::Commit(term) => {
                if server.fail_points.fires("hangIndexBuildBeforeCommit").is_some() {
                    self.rest(LOOK_INTERVAL);
                    return None;
                }
                self.show(operation, "Index Build: committing", None);
                let of = &self.build.of;
                let catalog = server.storage.by_member().lock_catalog();
                // Who has the catalog applies nothing of another primary's, and gives the build no other quorum.
                let is_of_term = self.leads() == Some(term);
                if !matches!(self.build.state.lock().machine.task(), BuildTask::Commit(_)) {
                    return None;
                }
                let committed = match catalog.by_uuid(of.collection) {
                    _ if !is_of_term => Err(Error::new(ErrorCode::NotWritablePrimary, "not primary")),
                    Some(held) => held.commit_build(of.build.uuid),
                    None => Ok(false),
                };
                drop(catalog);
                return self.ended(committed, Ok(()));
            }
            BuildTask::Abort(cause) => {
                let of = &self.build.of;
                let aborted = server.storage.by_member().abort_build(of.collection, of.build.uuid, &cause);
                return self.ended(aborted, Err(cause));
            }
        }
        None
    }

    /// What came of an entry that was to end the build.
    fn ended(&self, logged: Result<bool>, outcome: Result<()>) -> Option<Result<()>> {
        match logged {
            Ok(true) => Some(outcome),
            // Somebody else has ended it: the catalog says how.
            Ok(false) => None,
            Err(error) => {
                if error.code != ErrorCode::NotWritablePrimary {
                    tracing::warn!(target: "INDEX", error = %error, "The end of an index build could not be logged");
                }
                self.build.tell(BuildInput::Refused);
                self.rest(LOOK_INTERVAL);
                None
            }
        }
    }

    fn pass(&mut self, pass: BuildPass, operation: &Operation) {
        let own = match pass {
            BuildPass::Decide => Pass::Decide,
            BuildPass::Follow => Pass::Follow,
            BuildPass::Verify => Pass::Verify,
        };
        let mut at = match pass {
            BuildPass::Verify => self.check.take().unwrap_or_default(),
            BuildPass::Decide | BuildPass::Follow => std::mem::take(&mut self.scan),
        };
        let phase = || if pass == BuildPass::Verify { None } else { self.phase() };
        let message = || match pass {
            BuildPass::Verify => "Index Build: checking what was built as a secondary".to_owned(),
            BuildPass::Decide | BuildPass::Follow => {
                phase().map_or_else(|| STARTING.to_owned(), |phase| format!("Index Build: {}", words_of(phase)))
            }
        };
        let leads = self.leads();
        let hangs = |point: &str| self.server.fail_points.fires(point).is_some();
        let look = || {
            if self.is_stopping() {
                return Err(stopping());
            }
            if self.leads() != leads || self.build.state.lock().machine.is_ending() {
                return Err(Error::new(OTHERWISE, "the pass is of no use any more"));
            }
            operation.check_interrupt()
        };
        let wait_while = |point: &str| -> Result<()> {
            while hangs(point) && matches!(self.fate(), Fate::UnderWay) {
                std::thread::sleep(LOOK_INTERVAL);
                look()?;
            }
            Ok(())
        };
        self.show(operation, message(), Some((at.done(), 0)));
        let outcome = wait_while("hangAfterStartingIndexBuild").and_then(|()| {
            self.server.storage.fill_build(
                &self.build.of,
                own,
                &mut at,
                &operation.interruption(),
                &mut |done, total| {
                    self.show(operation, message(), Some((done, total)));
                    // Tables are made of what was sorted on the disk.
                    self.build.state.lock().used_disk |= phase() == Some(BuildPhase::Loading);
                    if phase().is_none_or(|phase| phase == BuildPhase::Scanning) {
                        wait_while("hangIndexBuildDuringCollectionScanPhaseBeforeInsertion")?;
                    }
                    look()
                },
            )
        });
        match pass {
            // From the beginning, if another member has led meanwhile.
            BuildPass::Verify if outcome.is_err() => self.check = None,
            BuildPass::Verify => {}
            BuildPass::Decide | BuildPass::Follow => self.scan = at,
        }
        match outcome {
            Ok(()) => self.build.tell(BuildInput::Passed(pass)),
            Err(error) if error.code == OTHERWISE || self.is_stopping() => {}
            Err(_) if !matches!(self.fate(), Fate::UnderWay) => {}
            // Killed: that is looked at next.
            Err(_) if operation.check_interrupt().is_err() => {}
            Err(error) if pass == BuildPass::Follow => {
                tracing::warn!(target: "INDEX", error = %error, "An index cannot be built now; it is tried again");
                self.rest(TRY_AGAIN);
            }
            Err(error) => self.build.tell(BuildInput::Failed(error)),
        }
    }

    /// How far its indexes are, while there are any.
    fn phase(&self) -> Option<BuildPhase> {
        let catalog = self.server.storage.catalog();
        let indexes = catalog.by_uuid(self.build.of.collection)?.indexes();
        indexes.iter().find(|index| index.build() == Some(&self.build.of.build)).map(|index| index.phase())
    }

    fn show(&self, operation: &Operation, message: impl Into<String>, progress: Option<(u64, u64)>) {
        let message = message.into();
        let mut state = self.build.state.lock();
        let (done, total) = progress.unwrap_or((state.progress.1, state.progress.2));
        state.progress = (message.clone(), done, total);
        drop(state);
        operation.set_progress(message, done, total);
    }

    fn rest(&self, time: Duration) {
        let mut state = self.build.state.lock();
        self.build.changed.wait_for(&mut state, time);
    }

    fn is_stopping(&self) -> bool {
        self.server.index_builds.is_stopping.load(Ordering::Acquire) || self.server.operations.is_shutting_down()
    }

    /// The term in which this member may log, as primary.
    fn leads(&self) -> Option<Term> {
        match self.server.storage.queue().write_gate() {
            WriteGate::Open { term } | WriteGate::Blocked { term } => Some(term),
            WriteGate::Closed => None,
        }
    }

    fn fate(&self) -> Fate {
        let of = &self.build.of;
        let catalog = self.server.storage.catalog();
        let Some(collection) = catalog.by_uuid(of.collection) else { return Fate::Gone };
        let indexes = collection.indexes();
        if indexes.iter().any(|index| index.build().is_some_and(|build| build.uuid == of.build.uuid)) {
            // What this thread has built a rollback or a copy has begun anew: so does the supervisor, with a machine that knows.
            let is_begun_anew = self.build.is_filled() && !self.server.storage.is_build_filled(of);
            return if is_begun_anew { Fate::Gone } else { Fate::UnderWay };
        }
        let is_there = |name: &str| {
            indexes.iter().any(|index| index.definition.name == name && index.state() == IndexState::Ready)
        };
        if of.definitions.iter().all(|definition| is_there(&definition.name)) { Fate::Complete } else { Fate::Gone }
    }

    /// Tells the primary, which may not be there: it is told again.
    fn ask_primary(&self, command: &str, error: Option<&Error>) {
        let (Some(replication), Some(set)) = (self.server.replication(), self.server.topology.set()) else { return };
        let mut request = RawDocumentBuf::new();
        let Ok(name) = bson::raw::CString::try_from(command) else { return };
        request.append(&name, binary(self.build.of.build.uuid));
        request.append(bson::cstr!("hostAndPort"), set.me.as_str());
        if let Some(error) = error {
            request.append(bson::cstr!("reason"), error.message.as_str());
            request.append(bson::cstr!("code"), error.code.0);
        }
        request.append(bson::cstr!("$db"), "admin");
        match replication.ask_primary(&request, VOTE_TIMEOUT) {
            Ok(reply) if !matches!(reply.get_f64("ok"), Ok(ok) if ok == 1.0) => {
                tracing::debug!(target: "INDEX", ?reply, "The primary does not count what it was told of an index build");
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(target: "INDEX", error = %error, "The primary was not told of an index build");
            }
        }
    }
}

fn stopping() -> Error {
    Error::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown")
}

fn binary(uuid: [u8; 16]) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: uuid.to_vec() }
}
