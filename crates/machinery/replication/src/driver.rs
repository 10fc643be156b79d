//! Runs the step machine of `baton-consensus` in a member: steps it, carries its effects out, and keeps time.
//!
//! ```text
//!  commands ──ask──▶ ┌────────┐ ──send──▶ lanes ──▶ other members
//!  lanes ──answers─▶ │ driver │ ──votes, configuration──▶ storage (synced)
//!  storage ─progress▶ │ thread │ ──source──▶ fetcher
//!  fetcher ─commit p.▶└────────┘ ──commit point──▶ waiters
//! ```
//!
//! Invariants:
//! - One thread at a time steps the machine, and effects are carried out in their order. What it persists is synced before the
//!   effect that tells of it.
//! - Whoever brings news steps the machine with it ([`crate::mailbox`]), but effects that wait for storage or for the fetcher are
//!   carried out on the replication thread alone.
//! - Own writes are open only between [`Effect::BeginTerm`] and [`Effect::Resign`], and the fetcher is at rest by then.
//! - Whoever waits for the set to acknowledge a write is told when this member is primary no more.
//!
//! What it deliberately does not do: decide.

use crate::acknowledgements::{Acknowledgements, stepped_down};
use crate::entry_request::{ask, ask_for_entry};
use crate::fetcher::{Fetcher, FetcherParts};
use crate::figures::{ElectionWon, Figures, VoteCast};
use crate::handoffs::{Attempt, Handoff, Handoffs, Trigger};
use crate::initial_sync::{InitialSyncHooks, InitialSyncStatus};
use crate::lanes::Lanes;
use crate::mailbox::{Mailbox, Worker};
use crate::probe::configuration_of;
use crate::self_host;
use crate::waiters::Waiters;
use arc_swap::ArcSwap;
use baton_consensus::{
    Configuration, Consensus, DataState, Demand, Effect, ElectionReason, Input, LastVote, MemberId, Position, Request,
    RequestId, RequestKind, Response, Start, StepDownRequest, View,
};
use baton_storage::{Fact, Storage};
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result, Term, Timestamp};
use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How long any other answer than a heartbeat's is waited for, at most.
const OTHERS_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// How often the commit point is noted on disk; a restart begins with the last one noted.
const COMMIT_POINT_INTERVAL: Duration = Duration::from_secs(5);

type ApplyCommand = Box<dyn Fn(&RawDocument) -> Result<()> + Send + Sync>;
type OnTopology = Box<dyn Fn(&Arc<View>) + Send + Sync>;

/// What replication needs of the member around it.
pub struct Parts {
    /// Where everything is kept.
    pub storage: Arc<Storage>,
    /// `name:port`, as the configuration names this member.
    pub host: String,
    /// What this process calls itself in `hello`: a host of the configuration that answers so is this member, whatever its name.
    pub process_id: ObjectId,
    /// The name of the set, from the command line.
    pub set_name: String,
    /// Carries out an oplog entry of kind `c`.
    pub apply_command: ApplyCommand,
    /// Where the member keeps its files: below it, in `rollback`, what is rolled back.
    pub data_directory: PathBuf,
    /// Settings of an initial sync.
    pub initial_sync_hooks: InitialSyncHooks,
    /// Hears of every change of what drivers are told.
    pub on_topology: OnTopology,
}

/// What an operator asks for, and waits for.
#[derive(Debug)]
pub enum Order {
    /// The set's first configuration.
    Initiate(Box<Configuration>),
    /// The next configuration, or one by force.
    Reconfigure(Box<Configuration>, bool),
    /// Give up being primary, because of that.
    StepDown(StepDownRequest, Trigger),
    /// Stand for election.
    Stand {
        /// Ask first how the others would vote.
        dry_run: bool,
    },
}

enum Letter {
    Input(Input),
    Ask(Request, Sender<Result<Response>>),
    Order(Order, Sender<Result<()>>),
    View(Sender<View>),
    /// The log has grown or is synced further; where to is asked of storage.
    Progress,
    /// Somebody has come who waits for members to have a write.
    Look,
    /// Apply nothing that comes from the source, or go on.
    HoldBack(bool),
}

type Inbox = Arc<Mailbox<Driver>>;

/// Replication as the rest of the member sees it. Dropped, it stops.
pub struct Replication {
    inbox: Inbox,
    view: Arc<ArcSwap<View>>,
    waiters: Arc<Waiters>,
    acknowledgements: Arc<Acknowledgements>,
    handoffs: Arc<Handoffs>,
    figures: Arc<Figures>,
    /// How often maintenance was begun and not ended.
    maintenance: Mutex<u32>,
    initial_sync: Arc<Mutex<Option<InitialSyncStatus>>>,
    thread: Option<JoinHandle<()>>,
    set_name: String,
    advertised: String,
    process_id: ObjectId,
}

impl Replication {
    /// Starts a member's replication with what is on its disk.
    pub fn start(parts: Parts) -> Result<Self> {
        let inbox = Inbox::new(Mailbox::new());
        let begun = Instant::now();
        let start = start_of(&parts)?;
        let host = start.host.clone();
        let commit_point = start.commit_point;
        let consensus = Consensus::new(Duration::ZERO, start);
        let term = Arc::new(AtomicI64::new(consensus.term()));
        let (advertised, process_id) = (parts.host.clone(), parts.process_id);
        let view = Arc::new(ArcSwap::from_pointee(consensus.view()));
        let waiters = Arc::new(Waiters::default());
        let handoffs = Arc::new(Handoffs::default());
        let figures = Arc::new(Figures::default());
        let acknowledgements = Arc::new(Acknowledgements::default());
        let initial_sync = Arc::new(Mutex::new(None));
        parts.storage.close_to_writes();
        // Before history is trimmed for the first time: however long this member was away, it can go back to there.
        parts.storage.set_commit_point(commit_point);
        let progress = listen_to_storage(&parts.storage, &inbox);
        let set_name = parts.set_name.clone();
        let driver = Driver {
            lanes: Lanes::new(sender_of_inputs(&inbox)),
            fetcher: Fetcher::start(FetcherParts {
                storage: Arc::clone(&parts.storage),
                apply_command: parts.apply_command,
                term: Arc::clone(&term),
                initial_sync: Arc::clone(&initial_sync),
                initial_sync_hooks: parts.initial_sync_hooks,
                rollback_directory: parts.data_directory.join("rollback"),
                data_directory: parts.data_directory,
                figures: Arc::clone(&figures),
                waiters: Arc::clone(&waiters),
                on_input: sender_of_inputs(&inbox),
            })?,
            storage: parts.storage,
            host,
            process_id: parts.process_id,
            set_name: parts.set_name,
            on_topology: parts.on_topology,
            consensus,
            begun,
            inbox: Arc::clone(&inbox),
            next_request: 0,
            asked: BTreeMap::new(),
            stepping_down: None,
            handing_over: None,
            handoffs: Arc::clone(&handoffs),
            figures: Arc::clone(&figures),
            writing_configuration: None,
            reconfiguring: None,
            standing: None,
            view: Arc::clone(&view),
            waiters: Arc::clone(&waiters),
            acknowledgements: Arc::clone(&acknowledgements),
            commit_point_noted: (OpTime::ZERO, begun),
            committed_term: 0,
            term,
            progress,
            inputs: VecDeque::from([Input::Tick]),
            effects: VecDeque::new(),
            left: None,
        };
        driver.want_progress(driver.consensus.configuration().is_some_and(|c| c.members.len() > 1));
        let member = driver.consensus.configuration().and_then(|c| c.member_at(&driver.host));
        driver.fetcher.set_delay(member.map_or(Duration::ZERO, |member| member.delay));
        (driver.on_topology)(&view.load());
        let thread = std::thread::Builder::new()
            .name("replication".into())
            .spawn({
                let inbox = Arc::clone(&inbox);
                move || inbox.run(driver)
            })
            .map_err(|error| Error::new(ErrorCode::InternalError, format!("no thread for replication: {error}")))?;
        let maintenance = Mutex::default();
        let thread = Some(thread);
        Ok(Self {
            inbox,
            view,
            waiters,
            acknowledgements,
            handoffs,
            figures,
            maintenance,
            initial_sync,
            thread,
            set_name,
            advertised,
            process_id,
        })
    }

    /// The set's name.
    pub fn set_name(&self) -> &str {
        &self.set_name
    }

    /// How far this member's initial sync is, or was when it ended; `None` if there was none since the start.
    pub fn initial_sync(&self) -> Option<InitialSyncStatus> {
        self.initial_sync.lock().clone()
    }

    /// This member's view of the set as of the last change of what drivers are told.
    pub fn topology(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// This member's view of the set now.
    pub fn view(&self) -> View {
        let (answer, view) = channel();
        let asked = self.inbox.post(Letter::View(answer));
        match asked.ok().and_then(|()| view.recv().ok()) {
            Some(view) => view,
            None => View::clone(&self.topology()),
        }
    }

    /// Answers another member's request.
    pub fn ask(&self, request: Request) -> Result<Response> {
        let (answer, response) = channel();
        self.inbox.post(Letter::Ask(request, answer)).map_err(|_| stopping())?;
        response.recv().map_err(|_| stopping())?
    }

    /// Carries an operator's order out; returns when it is done or refused.
    pub fn order(&self, order: Order) -> Result<()> {
        let (answer, outcome) = channel();
        self.inbox.post(Letter::Order(order, answer)).map_err(|_| stopping())?;
        outcome.recv().map_err(|_| stopping())?
    }

    /// Gives up being primary; returns when that is done, or refused, or when `interrupted`, which is asked now and then, has
    /// ended it.
    pub fn step_down(
        &self,
        request: StepDownRequest,
        trigger: Trigger,
        mut interrupted: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        const SLICE: Duration = Duration::from_millis(50);
        let (answer, outcome) = channel();
        self.inbox.post(Letter::Order(Order::StepDown(request, trigger), answer)).map_err(|_| stopping())?;
        loop {
            match outcome.recv_timeout(SLICE) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Disconnected) => return Err(stopping()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Err(why) = interrupted() {
                self.tell(Input::StepDownInterrupted);
                // It may have come about in that very moment.
                return outcome.recv().map_err(|_| stopping())?.map_err(|_| why);
            }
        }
    }

    /// Holds back what comes from the sync source, or no longer: a fault on demand.
    pub fn hold_back(&self, on: bool) {
        let _ = self.inbox.post(Letter::HoldBack(on));
    }

    /// By which host a configuration names this member; `None` if it does not.
    pub fn own_host(&self, configuration: &Configuration) -> Option<String> {
        self_host::find(configuration, &self.advertised, self.process_id)
    }

    /// What replication has counted.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Asks the primary, if this is another member, to write an entry of that time or later. It may not come about.
    pub fn ask_primary_for_entry(&self, time: Timestamp) {
        let view = self.topology();
        let primary = view.primary.filter(|_| view.primary != view.me);
        if let Some(member) = primary.zip(view.configuration.as_ref()).and_then(|(id, c)| c.member(id)) {
            ask_for_entry(member.host.clone(), time);
        }
    }

    /// Has the primary, if it is another member, carry a command out; returns its reply, whatever it says.
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) if none is known, `HostUnreachable` (6) if it does not answer in time.
    pub fn ask_primary(&self, command: &RawDocument, timeout: Duration) -> Result<RawDocumentBuf> {
        let view = self.topology();
        let primary = view.primary.filter(|_| view.primary != view.me);
        match primary.zip(view.configuration.as_ref()).and_then(|(id, c)| c.member(id)) {
            Some(member) => ask(&member.host, command, timeout),
            None => Err(Error::new(ErrorCode::NotWritablePrimary, "not primary")),
        }
    }

    /// The last times that this member handed over, the oldest first.
    pub fn handoffs(&self) -> Vec<Handoff> {
        self.handoffs.list()
    }

    /// Begins maintenance once more, or ends it once; it lasts until it was ended as often as begun.
    ///
    /// # Errors
    /// `OperationFailed` (96) if there is none to end.
    pub fn maintain(&self, begin: bool) -> Result<()> {
        let mut begun = self.maintenance.lock();
        *begun = match (begin, *begun) {
            (true, n) => n.saturating_add(1),
            (false, 0) => return Err(Error::new(ErrorCode::OperationFailed, "already out of maintenance mode")),
            (false, n) => n - 1,
        };
        self.tell(Input::Maintenance(*begun > 0));
        Ok(())
    }

    /// Hands an input on that nobody waits for.
    pub fn tell(&self, input: Input) {
        // A member that stops has no use for it.
        let _ = self.inbox.post(Letter::Input(input));
    }

    /// Waits until those whom `demand` asks for have everything up to `optime`; on their disks, if `durable`.
    ///
    /// # Errors
    /// `WriteConcernFailed` (64) at `until`; what `interrupted` says; `PrimarySteppedDown` (189) if this member is not, or ceases
    /// to be, primary of the write's term.
    pub fn await_members(
        &self,
        demand: Demand,
        optime: OpTime,
        durable: bool,
        until: Option<Instant>,
        interrupted: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let come = || {
            let _ = self.inbox.post(Letter::Look);
        };
        self.acknowledgements.wait(demand, optime, durable, until, come, interrupted)
    }

    /// Those who wait for the set to acknowledge a write.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(target: "REPL", "The replication thread panicked");
        }
    }
}

fn stopping() -> Error {
    Error::new(ErrorCode::ShutdownInProgress, "the member is stopping")
}

fn sender_of_inputs(inbox: &Inbox) -> Arc<dyn Fn(Input) + Send + Sync> {
    let inbox = Arc::clone(inbox);
    Arc::new(move |input| {
        let _ = inbox.post(Letter::Input(input));
    })
}

/// Who is told of progress: nobody, while nobody waits for it.
#[derive(Default)]
struct Progress {
    /// A letter about it is on its way: it is noticed once however often it is told, until it has been looked at.
    is_told: AtomicBool,
    /// There are other members to tell. A member alone looks at its log now and then.
    is_wanted: AtomicBool,
}

fn listen_to_storage(storage: &Arc<Storage>, inbox: &Inbox) -> Arc<Progress> {
    // Storage outlives replication, and hears of nobody then.
    let inbox = Arc::downgrade(inbox);
    let progress = Arc::new(Progress::default());
    let listener = Arc::clone(&progress);
    storage.on_progress(Box::new(move || {
        if listener.is_wanted.load(Ordering::Relaxed)
            && !listener.is_told.swap(true, Ordering::AcqRel)
            && inbox.upgrade().is_none_or(|inbox| inbox.post(Letter::Progress).is_err())
        {
            listener.is_told.store(false, Ordering::Release);
        }
    }));
    progress
}

fn start_of(parts: &Parts) -> Result<Start> {
    let storage = &parts.storage;
    let configuration = match storage.fact(Fact::Configuration)? {
        Some(bytes) => Some(Configuration::parse(RawDocument::from_bytes(&bytes)?)?),
        None => None,
    };
    let vote = match storage.fact(Fact::LastVote)? {
        Some(bytes) => vote_from(RawDocument::from_bytes(&bytes)?)?,
        None => LastVote::default(),
    };
    let commit_point = match storage.fact(Fact::CommitPoint)? {
        Some(bytes) => optime_from(RawDocument::from_bytes(&bytes)?)?,
        None => OpTime::ZERO,
    };
    let last = storage.last_entry();
    let is_whole = last != OpTime::ZERO && !storage.is_cloning()?;
    let data = if is_whole { DataState::Ready } else { DataState::InitialSync };
    Ok(Start {
        host: configuration
            .as_ref()
            .and_then(|configuration| self_host::find(configuration, &parts.host, parts.process_id))
            .unwrap_or_else(|| parts.host.clone()),
        configuration,
        vote,
        position: Position { written: last, applied: last, durable: last },
        commit_point,
        data,
        seed: rand::random(),
    })
}

fn vote_document(vote: LastVote) -> RawDocumentBuf {
    let candidate = vote.candidate.map_or(-1, |candidate| candidate.0);
    rawdoc! { "term": vote.term, "candidate": candidate }
}

fn vote_from(document: &RawDocument) -> Result<LastVote> {
    let damaged =
        |error| Error::new(ErrorCode::DataCorruptionDetected, format!("the vote on disk is damaged: {error}"));
    let candidate = document.get_i32("candidate").map_err(damaged)?;
    let term = document.get_i64("term").map_err(damaged)?;
    Ok(LastVote { term, candidate: (candidate >= 0).then_some(MemberId(candidate)) })
}

fn optime_from(document: &RawDocument) -> Result<OpTime> {
    let damaged =
        |error| Error::new(ErrorCode::DataCorruptionDetected, format!("the commit point on disk is damaged: {error}"));
    let timestamp = document.get_timestamp("ts").map_err(damaged)?.into();
    Ok(OpTime { timestamp, term: document.get_i64("t").map_err(damaged)? })
}

/// Who asked for an order, while it is carried out.
type Asker = Option<Sender<Result<()>>>;

struct Driver {
    /// As the configuration names this member, once it does.
    host: String,
    process_id: ObjectId,
    consensus: Consensus,
    begun: Instant,
    storage: Arc<Storage>,
    set_name: String,
    on_topology: OnTopology,
    lanes: Lanes,
    fetcher: Fetcher,
    inbox: Inbox,
    next_request: RequestId,
    asked: BTreeMap<RequestId, Sender<Result<Response>>>,
    stepping_down: Asker,
    /// The step-down that is under way, as `handoffs` will keep it.
    handing_over: Option<Attempt>,
    handoffs: Arc<Handoffs>,
    figures: Arc<Figures>,
    writing_configuration: Option<JoinHandle<()>>,
    reconfiguring: Asker,
    standing: Asker,
    view: Arc<ArcSwap<View>>,
    waiters: Arc<Waiters>,
    acknowledgements: Arc<Acknowledgements>,
    /// What is on disk of it, and since when.
    commit_point_noted: (OpTime, Instant),
    /// The term of the last entry that was committed.
    committed_term: Term,
    /// This member's, for the fetcher.
    term: Arc<AtomicI64>,
    progress: Arc<Progress>,
    /// What the machine is to be told next, and what it asked for and has not got yet.
    inputs: VecDeque<Input>,
    effects: VecDeque<Effect>,
    /// An order that came in passing.
    left: Option<(Order, Sender<Result<()>>)>,
}

/// Whether carrying an effect out waits for storage, for the fetcher, or for a thread to begin.
fn waits(effect: &Effect) -> bool {
    match effect {
        Effect::PersistVote(_)
        | Effect::PersistConfiguration(_)
        | Effect::FetchConfiguration { .. }
        | Effect::BeginTerm(_)
        | Effect::BlockWrites
        | Effect::UnblockWrites
        | Effect::Resign { .. }
        | Effect::SyncSource(_) => true,
        Effect::Send { .. }
        | Effect::Respond { .. }
        | Effect::TermAdopted(_)
        | Effect::Won { .. }
        | Effect::SteppedDown(_)
        | Effect::Reconfigured(_)
        | Effect::Stood(_)
        | Effect::Committed(_)
        | Effect::TopologyChanged => false,
    }
}

impl Worker for Driver {
    type Letter = Letter;

    fn take(&mut self, letter: Letter, in_passing: bool) -> bool {
        self.look_at_log();
        match letter {
            Letter::Input(input) => self.inputs.push_back(input),
            Letter::Ask(request, asker) => {
                self.next_request += 1;
                self.asked.insert(self.next_request, asker);
                self.inputs.push_back(Input::Request { id: self.next_request, request });
            }
            Letter::Order(order, asker) if in_passing => {
                self.left = Some((order, asker));
                return false;
            }
            Letter::Order(order, asker) => {
                let input = self.accept(order, asker);
                self.inputs.extend(input);
            }
            Letter::View(asker) => {
                let is_done = self.proceed(in_passing);
                let _ = asker.send(self.consensus.view());
                return is_done;
            }
            Letter::Progress => {
                // Whatever advances from here on is told anew.
                self.progress.is_told.store(false, Ordering::Release);
                self.look_at_log();
            }
            // They are looked after once all that has come is done.
            Letter::Look => {}
            Letter::HoldBack(on) => self.fetcher.hold(on),
        }
        self.proceed(in_passing)
    }

    fn finish(&mut self) {
        self.proceed(false);
        if let Some((order, asker)) = self.left.take() {
            let input = self.accept(order, asker);
            self.inputs.extend(input);
        }
        if self.consensus.next_deadline() <= self.begun.elapsed() {
            self.look_at_log();
            self.inputs.push_back(Input::Tick);
        }
        self.proceed(false);
        if self.commit_point_noted.1.elapsed() >= COMMIT_POINT_INTERVAL {
            self.note_commit_point();
        }
    }

    fn has_work_left(&self) -> bool {
        self.left.is_some() || !self.effects.is_empty() || !self.inputs.is_empty()
    }

    fn due(&self) -> Instant {
        // A member that is alone has no deadline.
        let by_machine = self.begun.checked_add(self.consensus.next_deadline());
        let by_log = Instant::now() + self.look_interval().min(COMMIT_POINT_INTERVAL);
        by_machine.map_or(by_log, |by_machine| by_machine.min(by_log))
    }

    fn end(mut self) {
        self.waiters.fail_all(&stopping());
        self.acknowledgements.fail_all(&stopping());
        self.note_commit_point();
        self.await_configuration();
    }
}

impl Driver {
    /// How long a member alone leaves its log unlooked at.
    fn look_interval(&self) -> Duration {
        const ALONE: Duration = Duration::from_millis(250);
        if self.progress.is_wanted.load(Ordering::Relaxed) { Duration::MAX } else { ALONE }
    }

    /// What comes in is judged by where the log ends now: that it grew is told by nobody until it is synced.
    fn look_at_log(&mut self) {
        let position = self.position();
        if position != self.consensus.position() {
            self.inputs.push_back(Input::Log(position));
        }
    }

    /// Steps, carries out, and steps on with what came of it, until there is nothing left to do; or, in passing, until an effect
    /// is to be carried out that waits. Tells whether all is done.
    fn proceed(&mut self, in_passing: bool) -> bool {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                if in_passing && waits(&effect) {
                    self.effects.push_front(effect);
                    return false;
                }
                let report = self.carry_out(effect);
                self.inputs.extend(report);
            } else if let Some(input) = self.inputs.pop_front() {
                self.effects.extend(self.consensus.step(self.begun.elapsed(), input));
                self.term.store(self.consensus.term(), Ordering::Release);
            } else {
                self.acknowledgements.look(&self.consensus);
                return true;
            }
        }
    }

    /// An order that is not already being carried out for somebody else.
    fn accept(&mut self, order: Order, asker: Sender<Result<()>>) -> Option<Input> {
        let mut attempt = None;
        let (place, input) = match order {
            Order::Initiate(configuration) => (&mut self.reconfiguring, Input::Initiate(configuration)),
            Order::Reconfigure(configuration, force) => {
                (&mut self.reconfiguring, Input::Reconfigure { configuration, force })
            }
            Order::StepDown(request, trigger) => {
                attempt = Some(Attempt::begin(trigger));
                (&mut self.stepping_down, Input::StepDown(request))
            }
            Order::Stand { dry_run } => (&mut self.standing, Input::StandForElection { dry_run }),
        };
        if place.is_some() {
            let error = Error::new(ErrorCode::ConflictingOperationInProgress, "the same is already under way");
            let _ = asker.send(Err(error));
            return None;
        }
        *place = Some(asker);
        self.handing_over = attempt.or(self.handing_over.take());
        if let Input::Initiate(configuration) = &input {
            self.settle_host(configuration);
            self.begin_log();
        }
        Some(input)
    }

    /// Who initiates a set begins its log, if there is none: the others have no data until they have fetched this.
    fn begin_log(&mut self) {
        if self.storage.last_entry() == OpTime::ZERO {
            self.storage.open_to_writes(0);
            let o = rawdoc! { "msg": "initiating set" };
            let noted = Namespace::new("admin", "$cmd").and_then(|namespace| self.storage.note(&namespace, &o));
            if let Err(error) = noted {
                tracing::error!(target: "REPL", error = %error, "The first entry of the log was refused");
            }
            self.storage.close_to_writes();
            self.storage.sync();
        }
        self.inputs.extend([Input::Log(self.position()), Input::Data(DataState::Ready)]);
    }

    fn position(&self) -> Position {
        let queue = self.storage.queue();
        let durable = queue.durable();
        let applied = queue.applied();
        Position { written: applied, applied, durable: durable.min(applied) }
    }

    /// Does what is asked; returns what there is to report.
    fn carry_out(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Send { to, request } => {
                self.send(to, request);
                None
            }
            Effect::Respond { id, response } => {
                if let Some(asker) = self.asked.remove(&id) {
                    let _ = asker.send(response);
                }
                None
            }
            Effect::PersistVote(vote) => {
                self.storage.put_fact(Fact::LastVote, vote_document(vote).as_bytes());
                self.count_vote(vote);
                Some(Input::VotePersisted(vote))
            }
            Effect::PersistConfiguration(configuration) => {
                self.persist_configuration(*configuration);
                None
            }
            Effect::FetchConfiguration { host } => {
                self.fetch_configuration(host);
                None
            }
            Effect::TermAdopted(term) => {
                tracing::info!(target: "REPL", id = 6015301, term, "Current term changed");
                None
            }
            Effect::Won { term, reason } => {
                self.count_won(term, reason);
                tracing::info!(target: "ELECTION", id = 21450, term, reason = reason.name(), "Election succeeded, assuming primary role");
                None
            }
            Effect::BeginTerm(term) => {
                let begun = self.begin_term(term);
                self.figures.term_began();
                Some(begun)
            }
            Effect::BlockWrites => {
                if let Some(attempt) = &mut self.handing_over {
                    attempt.blocked = Some(Instant::now());
                }
                self.storage.block_writes();
                Some(Input::WritesBlocked(self.position()))
            }
            Effect::UnblockWrites => {
                self.storage.unblock_writes();
                None
            }
            Effect::Resign { reason } => {
                self.figures.resigned(reason);
                tracing::info!(target: "REPL", id = 21809, reason = ?reason, "Stepping down from primary");
                self.storage.close_to_writes();
                self.waiters.fail_all(&stepped_down());
                self.acknowledgements.fail_all(&stepped_down());
                Some(Input::Log(self.position()))
            }
            Effect::SteppedDown(outcome) => {
                if let Some(attempt) = self.handing_over.take().filter(|_| outcome.is_ok()) {
                    self.handoffs.resigned(&attempt);
                }
                Self::answer(&mut self.stepping_down, outcome)
            }
            Effect::Reconfigured(outcome) => Self::answer(&mut self.reconfiguring, outcome),
            Effect::Stood(outcome) => Self::answer(&mut self.standing, outcome),
            Effect::Committed(optime) => {
                self.committed(optime);
                None
            }
            Effect::SyncSource(source) => {
                let host = source.and_then(|id| Some((id, self.host_of(id)?)));
                tracing::info!(target: "REPL", id = 21799, syncSource = host.as_ref().map(|(_, host)| host.as_str()), "Sync source chosen");
                self.figures.source_chosen(host.is_some());
                self.fetcher.set_source(host);
                None
            }
            Effect::TopologyChanged => {
                let view = Arc::new(self.consensus.view());
                let before = self.view.swap(Arc::clone(&view));
                match (before.is_too_stale, view.is_too_stale) {
                    (false, true) => {
                        tracing::error!(target: "REPL", id = 21085, last = %view.position.written, "Too stale to use any sync source: none has what follows this member's oplog. RECOVERING until one does; or stop this member, empty its data folder and start it again: it copies the set's data")
                    }
                    (true, false) => {
                        tracing::info!(target: "REPL", id = 21086, "No longer too stale: there is a sync source that has what follows this member's oplog")
                    }
                    (false, false) | (true, true) => {}
                }
                let is_other = view.primary != view.me;
                if let Some(host) =
                    view.primary.filter(|_| is_other || view.is_writable).and_then(|id| self.host_of(id))
                {
                    self.handoffs.heard_of_primary(&host);
                }
                (self.on_topology)(&view);
                None
            }
        }
    }

    fn answer(asker: &mut Asker, outcome: Result<()>) -> Option<Input> {
        if let Some(asker) = asker.take() {
            let _ = asker.send(outcome);
        }
        None
    }

    fn send(&mut self, to: MemberId, request: Request) {
        let Some(configuration) = self.consensus.configuration() else { return };
        let Some(member) = configuration.member(to) else { return };
        let timeout = match request.kind() {
            RequestKind::Heartbeat => configuration.settings.heartbeat_timeout,
            RequestKind::RequestVotes | RequestKind::UpdatePosition | RequestKind::StepUp => {
                configuration.settings.election_timeout.min(OTHERS_TIMEOUT_MAX)
            }
        };
        if let Err(error) = self.lanes.send(to, &member.host, request, timeout) {
            tracing::warn!(target: "REPL", to = member.host, error = %error, "A member cannot be asked");
        }
    }

    fn host_of(&self, id: MemberId) -> Option<String> {
        Some(self.consensus.configuration()?.member(id)?.host.clone())
    }

    /// On a thread of its own, since the host may not answer.
    fn fetch_configuration(&self, host: String) {
        let (set_name, inbox) = (self.set_name.clone(), Arc::clone(&self.inbox));
        let spawned = std::thread::Builder::new().name("configuration".into()).spawn(move || {
            match configuration_of(&host, &set_name) {
                Ok(Some(configuration)) => {
                    let _ = inbox.post(Letter::Input(Input::ConfigurationFetched(Box::new(configuration))));
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::info!(target: "REPL", host, error = %error, "No configuration from another member")
                }
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(target: "REPL", error = %error, "No thread to fetch the configuration");
        }
    }

    /// Learns by which host a configuration that comes names this member.
    fn settle_host(&mut self, configuration: &Configuration) {
        if let Some(host) = self_host::find(configuration, &self.host, self.process_id) {
            self.consensus.set_host(host.clone());
            self.host = host;
        }
    }

    /// Has a configuration written by a thread of its own: a new primary takes writes meanwhile, and nobody waits for it to report
    /// its position.
    fn persist_configuration(&mut self, configuration: Configuration) {
        self.settle_host(&configuration);
        let is_told = self.consensus.configuration().is_none() && self.reconfiguring.is_none();
        if is_told && self.storage.last_entry() != OpTime::ZERO {
            // Its log is of no set, or of another one: it must not count for anything here.
            tracing::warn!(target: "REPL", "This member has data that is not of the set it is told to join; copying the set's");
            self.storage.note_not_whole();
            self.inputs.push_back(Input::Data(DataState::InitialSync));
        }
        self.lanes.retain(|id| configuration.member(id).is_some());
        self.fetcher.set_delay(configuration.member_at(&self.host).map_or(Duration::ZERO, |member| member.delay));
        self.want_progress(configuration.members.len() > 1);
        self.await_configuration();
        let (storage, inbox) = (Arc::clone(&self.storage), Arc::clone(&self.inbox));
        let write = move || {
            match RawDocumentBuf::try_from(&configuration.to_document()) {
                Ok(document) => storage.put_fact(Fact::Configuration, document.as_bytes()),
                Err(error) => unreachable!("a configuration is a document: {error}"),
            }
            let version = configuration.version;
            tracing::info!(target: "REPL", id = 21392, version = version.version, term = version.term, "New replica set config in use");
            let _ = inbox.post(Letter::Input(Input::ConfigurationPersisted(version)));
        };
        match std::thread::Builder::new().name("configuration".into()).spawn(write) {
            Ok(thread) => self.writing_configuration = Some(thread),
            // The machine waits for it as for a disk that does not answer: until the member is started again.
            Err(error) => tracing::error!(target: "REPL", error = %error, "No thread to write the configuration"),
        }
    }

    /// Until the configuration that is being written is on disk.
    fn await_configuration(&mut self) {
        if let Some(thread) = self.writing_configuration.take()
            && thread.join().is_err()
        {
            tracing::error!(target: "REPL", "The thread that writes the configuration panicked");
        }
    }

    /// Ends the fetching, and begins the log of a term with its first entry.
    fn begin_term(&mut self, term: Term) -> Input {
        self.fetcher.rest();
        self.storage.open_to_writes(term);
        let o = rawdoc! { "msg": "new primary" };
        match Namespace::new("admin", "$cmd").and_then(|namespace| self.storage.note(&namespace, &o)) {
            Ok(_) => {}
            Err(error) => tracing::error!(target: "REPL", error = %error, "The first entry of the term was refused"),
        }
        // Of the primary before, whoever it was. Clients are let in only after this.
        if let Err(error) = self.storage.drop_temporary_collections() {
            tracing::warn!(target: "REPL", error = %error, "Temporary collections are left");
        }
        tracing::info!(target: "REPL", id = 21331, term, "Transition to primary complete; database writes are now permitted");
        Input::TermBegun(term)
    }

    fn want_progress(&self, is_wanted: bool) {
        self.progress.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    fn count_vote(&self, vote: LastVote) {
        let Some(configuration) = self.consensus.configuration() else { return };
        let me = configuration.member_at(&self.host);
        match vote.candidate {
            Some(candidate) if me.is_some_and(|me| me.id == candidate) => {
                if let Some(reason) = self.consensus.standing_reason() {
                    self.figures.stood(reason);
                }
            }
            Some(candidate) => self.figures.voted(VoteCast {
                date: SystemTime::now(),
                term: vote.term,
                candidate,
                last_applied: self.storage.queue().applied(),
                priority: me.map_or(0.0, |me| me.priority),
            }),
            None => {}
        }
    }

    fn count_won(&self, term: Term, reason: ElectionReason) {
        let Some(configuration) = self.consensus.configuration() else { return };
        self.figures.won(ElectionWon {
            reason,
            date: SystemTime::now(),
            term,
            committed: self.consensus.summary().commit_point,
            last_seen: self.storage.queue().applied(),
            votes_needed: configuration.majority_of_votes(),
            priority: configuration.member_at(&self.host).map_or(0.0, |me| me.priority),
            election_timeout: configuration.settings.election_timeout,
            term_began: None,
            majority_available: None,
        });
    }

    fn committed(&mut self, optime: OpTime) {
        if self.committed_term != optime.term {
            self.committed_term = optime.term;
            self.figures.committed(optime.term);
        }
        self.waiters.committed(optime);
        self.storage.set_commit_point(optime);
    }

    fn note_commit_point(&mut self) {
        let commit_point = self.consensus.summary().commit_point;
        let (noted, _) = std::mem::replace(&mut self.commit_point_noted, (commit_point, Instant::now()));
        if noted == commit_point {
            return;
        }
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("ts"), bson::Timestamp::from(commit_point.timestamp));
        document.append(cstr!("t"), commit_point.term);
        self.storage.put_fact(Fact::CommitPoint, document.as_bytes());
    }
}
