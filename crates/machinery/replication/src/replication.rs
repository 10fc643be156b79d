//! Replication as the rest of the member sees it. What it asks, orders and tells goes to the driver as letters; what the driver
//! keeps up to date is looked at without asking it.
//!
//! Invariants:
//! - Whoever sends a letter that is to be answered gets its answer, or hears that the member is stopping.
//! - Dropped, it stops: the driver has ended by then, and nothing is fetched or applied any more.
//!
//! What it deliberately does not do: decide, or carry out; the one is consensus's, the other the driver's.

use crate::driver::{Driver, Inbox, Letter, Shared, stopping};
use crate::entry_request::{ask, ask_for_entry};
use crate::figures::Figures;
use crate::following::RefusedEntry;
use crate::handoffs::{Handoff, Trigger};
use crate::initial_sync::{InitialSyncHooks, InitialSyncStatus};
use crate::leadership::{LeadershipCounts, LeadershipStatus};
use crate::mailbox::Mailbox;
use crate::mirrors::{MirrorFigures, Mirrors};
use crate::self_host;
use crate::steps::{IndexBuildRings, StepsFile};
use crate::waiters::Waiters;
use crate::warming;
use baton_consensus::{Configuration, Demand, Input, Request, Response, StepDownRequest, View};
use baton_leadership::{Decision, Warming};
use baton_storage::{Storage, Writer};
use baton_types::{Class, Error, ErrorCode, OpTime, Result, Timestamp};
use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type ApplyCommand = Box<dyn Fn(Writer<'_>, &RawDocument) -> Result<()> + Send + Sync>;
pub(crate) type OnTopology = Box<dyn Fn(&Arc<View>) + Send + Sync>;

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
    /// In which version it speaks to other members: [`baton_consensus::PROTOCOL_VERSION`].
    pub protocol_version: u32,
    /// Carries out an oplog entry of kind `c`.
    pub apply_command: ApplyCommand,
    /// Where the member keeps its files: below it, in `rollback`, what is rolled back.
    pub data_directory: PathBuf,
    /// Settings of an initial sync.
    pub initial_sync_hooks: InitialSyncHooks,
    /// Hears of every change of what drivers are told.
    pub on_topology: OnTopology,
    /// What is recorded of index builds, for files with the machines' steps.
    pub index_builds: IndexBuildRings,
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

/// See the file's header.
pub struct Replication {
    inbox: Inbox,
    shared: Shared,
    mirrors: Mirrors,
    /// How often maintenance was begun and not ended.
    maintenance: Mutex<u32>,
    thread: Option<JoinHandle<()>>,
    set_name: String,
    advertised: String,
    process_id: ObjectId,
    storage: Arc<Storage>,
}

impl Replication {
    /// Starts a member's replication with what is on its disk.
    pub fn start(parts: Parts) -> Result<Self> {
        let waiters: Arc<Waiters> = Arc::default();
        let inbox = Inbox::new(Mailbox::new({
            let waiters = Arc::clone(&waiters);
            move || waiters.tell()
        }));
        let (set_name, advertised, process_id) = (parts.set_name.clone(), parts.host.clone(), parts.process_id);
        let storage = Arc::clone(&parts.storage);
        let driver = Driver::new(parts, &inbox, waiters)?;
        let shared = driver.shared().clone();
        let thread = std::thread::Builder::new()
            .name("replication".into())
            .spawn({
                let inbox = Arc::clone(&inbox);
                move || {
                    baton_machine::as_class(Class::High);
                    inbox.run(driver);
                }
            })
            .map_err(|error| Error::new(ErrorCode::InternalError, format!("no thread for replication: {error}")))?;
        let (maintenance, thread) = (Mutex::default(), Some(thread));
        Ok(Self {
            inbox,
            shared,
            mirrors: Mirrors::default(),
            maintenance,
            thread,
            set_name,
            advertised,
            process_id,
            storage,
        })
    }

    /// The set's name.
    pub fn set_name(&self) -> &str {
        &self.set_name
    }

    /// How far this member's initial sync is, or was when it ended; `None` if there was none since the start.
    pub fn initial_sync(&self) -> Option<InitialSyncStatus> {
        self.shared.initial_sync.lock().clone()
    }

    /// The entry that this member cannot apply, if there is one.
    pub fn refused_entry(&self) -> Option<RefusedEntry> {
        self.shared.refused.lock().clone()
    }

    /// This member's view of the set as of the last change of what drivers are told.
    pub fn topology(&self) -> Arc<View> {
        self.shared.view.load_full()
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
    /// ended it. Unless the request names a successor, or there is no other, it is nobody who is in heavy work.
    pub fn step_down(
        &self,
        mut request: StepDownRequest,
        trigger: Trigger,
        mut interrupted: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        const SLICE: Duration = Duration::from_millis(50);
        if request.hand_off && request.to.is_none() {
            request.to = self.shared.leadership.free_successor();
        }
        self.warm_successor(&request);
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

    /// Nobody has predicted what an operator's handoff gains.
    fn warm_successor(&self, request: &StepDownRequest) {
        if request.hand_off && !request.force {
            let figures =
                baton_leadership::Figures { cache_hot_bytes: u64::MAX, ..baton_leadership::Figures::default() };
            let bounds = Warming::of_move(&figures, None, None);
            warming::before_handoff(&self.storage, &self.view(), request.to, bounds);
        }
    }

    /// Holds back what comes from the sync source, or no longer: a fault on demand.
    pub fn hold_back(&self, on: bool) {
        let (answer, held) = channel();
        let _ = self.inbox.post(Letter::HoldBack(on, answer));
        let _ = held.recv();
    }

    /// By which host a configuration names this member; `None` if it does not.
    pub fn own_host(&self, configuration: &Configuration) -> Option<String> {
        self_host::find(configuration, &self.advertised, self.process_id)
    }

    /// Writes what the member's step machines were told and asked for during the last minute or so to a file below the data directory,
    /// by which they can be stepped through it again.
    ///
    /// # Errors
    /// `OperationFailed` (96) if it cannot be written.
    pub fn write_steps(&self) -> Result<StepsFile> {
        self.shared.rings.write()
    }

    /// Does what the member ends for if it panics; then such a file is written first.
    pub fn or_last_words<T>(&self, work: impl FnOnce() -> T) -> T {
        self.shared.rings.or_last_words(work)
    }

    /// What replication has counted.
    pub fn figures(&self) -> &Figures {
        &self.shared.figures
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

    /// Has those who may follow this member carry a read out, too, and waits for nothing: see [`crate::mirrors`].
    pub fn mirror(&self, command: RawDocumentBuf, time: Duration) {
        self.mirrors.send(&self.shared.view.load(), command, time);
    }

    /// What was mirrored so far.
    pub fn mirror_figures(&self) -> MirrorFigures {
        self.mirrors.figures()
    }

    /// The last times that this member handed over, the oldest first.
    pub fn handoffs(&self) -> Vec<Handoff> {
        self.shared.handoffs.list()
    }

    /// Every member's tasks, as far as they are known here, and the last decisions to move leadership or not.
    pub fn leadership(&self) -> LeadershipStatus {
        self.shared.leadership.status(self.topology().me.map(|me| me.0))
    }

    /// What was counted of tasks and moves.
    pub fn leadership_counts(&self) -> LeadershipCounts {
        self.shared.leadership.counts()
    }

    /// Who would get leadership if it moved now, and how each member stands; none without a set.
    pub fn explain_move(&self) -> Option<Decision> {
        self.shared.leadership.explain()
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

    /// Hands an input on; returns when all that follows from it is done, and public.
    pub fn tell(&self, input: Input) {
        let (answer, done) = channel();
        // A member that stops has no use for it, and lets go of who waits.
        let _ = self.inbox.post(Letter::Tell(input, answer));
        let _ = done.recv();
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
        self.shared.acknowledgements.wait(demand, optime, durable, until, come, interrupted)
    }

    /// Those who wait for the set to acknowledge a write.
    pub fn waiters(&self) -> &Waiters {
        &self.shared.waiters
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        self.inbox.close();
        // The thread itself may be the last to hold what holds this: it tells the service of a step, and lets go of it.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id())
            && thread.join().is_err()
        {
            tracing::error!(target: "REPL", "The replication thread panicked");
        }
    }
}
