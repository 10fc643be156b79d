//! Runs the step machine of `baton-consensus` in a member: steps it, carries its effects out, and keeps time.
//!
//! ```text
//!  commands ──ask──▶ ┌────────┐ ──send──▶ lanes ──▶ other members
//!  lanes ──answers─▶ │ driver │ ──votes, configuration──▶ storage (synced)
//!  storage ─progress▶ │ thread │ ──source──▶ follower
//!  follower ─commit p▶└────────┘ ──commit point──▶ waiters
//!  leadership ─orders▶         ──roles, set, gossip──▶ leadership
//! ```
//!
//! Invariants:
//! - One thread at a time steps the machine, and effects are carried out in their order.
//! - Whoever brings news steps the machine with it ([`crate::mailbox`]), but effects that wait for storage or for the follower are
//!   carried out on the replication thread alone.
//! - Whatever changes the machine is recorded (`baton_replay`).
//! - Whoever waits for anything of it hears when it ends.
//!
//! What is done for each effect, and what that keeps true: [`effects`].
//!
//! What it deliberately does not do: decide.

mod effects;
mod facts;
mod leading;
mod progress;

use crate::acknowledgements::Acknowledgements;
use crate::figures::Figures;
use crate::following::{Follower, FollowerParts, OwnTerm, RefusedEntry, Ring};
use crate::handoffs::{Attempt, Handoffs, Trigger};
use crate::initial_sync::InitialSyncStatus;
use crate::lanes::Lanes;
use crate::leadership::{Meter, Moves, Steward};
use crate::mailbox::{Mailbox, Worker};
use crate::replication::{OnTopology, Order, Parts};
use crate::steps::{Gathered, Rings};
use crate::waiters::Waiters;
use arc_swap::ArcSwap;
use baton_consensus::{Consensus, DataState, Effect, Input, MemberState, Position, Request, RequestId, Response, View};
use baton_replay::{Bounds, Recorder, Recording};
use baton_storage::Storage;
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result, Term};
use bson::oid::ObjectId;
use bson::rawdoc;
use effects::waits;
use leading::Told;
use parking_lot::Mutex;
use progress::{Progress, listen_to_storage};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the commit point is noted on disk; a restart begins with the last one noted.
const COMMIT_POINT_INTERVAL: Duration = Duration::from_secs(5);

/// News, and who waits for what comes of it.
pub(crate) enum Letter {
    Input(Input),
    /// An input, and who waits until all that follows from it is done, and public.
    Tell(Input, Sender<()>),
    Ask(Request, Sender<Result<Response>>),
    Order(Order, Sender<Result<()>>),
    View(Sender<View>),
    /// The log has grown or is synced further; where to is asked of storage.
    Progress,
    /// Somebody has come who waits for members to have a write.
    Look,
    /// Apply nothing that comes from the source, or go on; and who waits until this holds.
    HoldBack(bool, Sender<()>),
}

pub(crate) type Inbox = Arc<Mailbox<Driver>>;

/// What the driver keeps up to date and the rest of the member looks at.
#[derive(Clone)]
pub(crate) struct Shared {
    pub view: Arc<ArcSwap<View>>,
    pub waiters: Arc<Waiters>,
    pub acknowledgements: Arc<Acknowledgements>,
    pub handoffs: Arc<Handoffs>,
    pub figures: Arc<Figures>,
    pub initial_sync: Arc<Mutex<Option<InitialSyncStatus>>>,
    pub refused: Arc<Mutex<Option<RefusedEntry>>>,
    pub leadership: Arc<Steward>,
    pub rings: Arc<Rings>,
}

impl Shared {
    fn new(
        view: View,
        waiters: Arc<Waiters>,
        leadership: Arc<Steward>,
        rings: impl FnOnce(&Arc<Steward>) -> Arc<Rings>,
    ) -> Self {
        let rings = rings(&leadership);
        leadership.bind(&rings);
        Self {
            view: Arc::new(ArcSwap::from_pointee(view)),
            waiters,
            acknowledgements: Arc::default(),
            handoffs: Arc::default(),
            figures: Arc::default(),
            initial_sync: Arc::default(),
            refused: Arc::default(),
            leadership,
            rings,
        }
    }
}

/// Who asked for an order, while it is carried out.
type Asker = Option<Sender<Result<()>>>;

/// See the file's header.
pub(crate) struct Driver {
    /// As the configuration names this member, once it does.
    host: String,
    process_id: ObjectId,
    consensus: Consensus,
    recorder: Recorder<Consensus>,
    begun: Instant,
    storage: Arc<Storage>,
    set_name: String,
    on_topology: OnTopology,
    lanes: Lanes,
    follower: Follower,
    inbox: Inbox,
    next_request: RequestId,
    asked: BTreeMap<RequestId, Sender<Result<Response>>>,
    stepping_down: Asker,
    /// The step-down that is under way, as `handoffs` will keep it.
    handing_over: Option<Attempt>,
    shared: Shared,
    /// Until when the writes that waited when this member handed over are not told that they are refused.
    keeps_refused_until: Option<Instant>,
    writing_configuration: Option<JoinHandle<()>>,
    reconfiguring: Asker,
    standing: Asker,
    /// What is on disk of it, and since when.
    commit_point_noted: (OpTime, Instant),
    /// The term of the last entry that was committed.
    committed_term: Term,
    /// This member's, for the follower.
    own_term: Arc<OwnTerm>,
    progress: Arc<Progress>,
    /// What the machine is to be told next, and what it asked for and has not got yet.
    inputs: VecDeque<Input>,
    effects: VecDeque<Effect>,
    /// What leadership was told last, and the thread that carries out what it decides.
    told: Told,
    leading: Option<JoinHandle<()>>,
    /// What came in passing, and has somebody wait for what may take long.
    left: Option<Letter>,
}

pub(crate) fn stopping() -> Error {
    Error::new(ErrorCode::ShutdownInProgress, "the member is stopping")
}

fn sender_of_inputs(inbox: &Inbox) -> Arc<dyn Fn(Input) + Send + Sync> {
    let inbox = Arc::clone(inbox);
    Arc::new(move |input| {
        let _ = inbox.post(Letter::Input(input));
    })
}

/// Asks the machine; not if it is about to end.
fn copy_can_be_spared(inbox: &Inbox) -> Box<dyn Fn() -> bool + Send + Sync> {
    let inbox = Arc::clone(inbox);
    Box::new(move || {
        let (answer, view) = channel();
        let asked = inbox.post(Letter::View(answer));
        asked.ok().and_then(|()| view.recv().ok()).is_some_and(|view| view.can_spare_my_copy)
    })
}

impl Worker for Driver {
    type Letter = Letter;

    fn take(&mut self, letter: Letter, in_passing: bool) -> bool {
        self.or_last_words(|driver| driver.take_letter(letter, in_passing))
    }

    fn finish(&mut self) {
        self.or_last_words(Self::finish_work);
    }

    fn has_work_left(&self) -> bool {
        self.left.is_some() || !self.effects.is_empty() || !self.inputs.is_empty()
    }

    fn due(&self) -> Instant {
        // A member that is alone has no deadline.
        let by_machine = self.begun.checked_add(self.consensus.next_deadline());
        let by_log = Instant::now() + self.look_interval().min(COMMIT_POINT_INTERVAL);
        let by_kept = self.keeps_refused_until;
        [by_machine, by_kept].into_iter().flatten().fold(by_log, Instant::min)
    }

    fn end(mut self) {
        self.refuse_kept();
        self.shared.waiters.fail_all(&stopping());
        self.shared.waiters.tell();
        self.shared.acknowledgements.fail_all(&stopping());
        self.end_leading();
        self.note_commit_point();
        self.await_configuration();
    }
}

impl Driver {
    /// With what is on the member's disk. Writes are closed, storage's progress comes to `inbox`, and drivers have been told the
    /// topology; the rest begins once the inbox is run.
    pub fn new(parts: Parts, inbox: &Inbox, waiters: Arc<Waiters>) -> Result<Self> {
        let begun = Instant::now();
        let start = facts::start_of(&parts)?;
        let (host, commit_point) = (start.host.clone(), start.commit_point);
        let consensus = Consensus::new(Duration::ZERO, start);
        let recorder = Recorder::new(&consensus, Duration::ZERO, Bounds::default());
        let own_term = Arc::new(OwnTerm::new(consensus.term(), false));
        let following = Ring::new();
        let leadership = Steward::new(facts::next_incarnation(&parts.storage)?);
        let shared = Shared::new(consensus.view(), waiters, leadership, |leadership| {
            Rings::new(host.clone(), &parts.data_directory, inbox, following.clone(), leadership, parts.index_builds)
        });
        parts.storage.queue().close_to_writes();
        // Before history is trimmed for the first time: however long this member was away, it can go back to there.
        parts.storage.oplog().set_commit_point(commit_point);
        let meter = Meter::new(Arc::clone(&parts.storage));
        let mut driver = Self {
            progress: listen_to_storage(&parts.storage, inbox),
            lanes: Lanes::new(sender_of_inputs(inbox)),
            follower: Follower::start(FollowerParts {
                storage: Arc::clone(&parts.storage),
                apply_command: parts.apply_command,
                own_term: Arc::clone(&own_term),
                initial_sync: Arc::clone(&shared.initial_sync),
                initial_sync_hooks: parts.initial_sync_hooks,
                refused: Arc::clone(&shared.refused),
                can_spare_copy: copy_can_be_spared(inbox),
                rollback_directory: parts.data_directory.join("rollback"),
                data_directory: parts.data_directory,
                figures: Arc::clone(&shared.figures),
                waiters: Arc::clone(&shared.waiters),
                ring: following,
                rings: Arc::clone(&shared.rings),
                tell: sender_of_inputs(inbox),
            })?,
            storage: parts.storage,
            host,
            process_id: parts.process_id,
            set_name: parts.set_name,
            on_topology: parts.on_topology,
            consensus,
            recorder,
            begun,
            inbox: Arc::clone(inbox),
            next_request: 0,
            asked: BTreeMap::new(),
            stepping_down: None,
            handing_over: None,
            keeps_refused_until: None,
            shared,
            writing_configuration: None,
            reconfiguring: None,
            standing: None,
            commit_point_noted: (OpTime::ZERO, begun),
            committed_term: 0,
            own_term,
            inputs: VecDeque::from([Input::Tick]),
            effects: VecDeque::new(),
            told: Told::default(),
            leading: None,
            left: None,
        };
        driver.begin_leading(meter)?;
        driver.note_members(driver.consensus.configuration().map_or(0, |configuration| configuration.members.len()));
        let member = driver.consensus.configuration().and_then(|c| c.member_at(&driver.host));
        driver.follower.set_delay(member.map_or(Duration::ZERO, |member| member.delay));
        (driver.on_topology)(&driver.shared.view.load());
        Ok(driver)
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A panic in here ends the process; what the machines did is written down first, while nobody can step this one on.
    fn or_last_words<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        catch_unwind(AssertUnwindSafe(|| act(self))).unwrap_or_else(|panic| {
            let own = Gathered { consensus: Some(self.recording()), ..Gathered::default() };
            self.shared.rings.last_words(own);
            resume_unwind(panic)
        })
    }

    /// What the machine was told and asked for.
    pub fn recording(&mut self) -> Recording<Consensus> {
        self.recorder.recording(&self.consensus)
    }

    fn take_letter(&mut self, letter: Letter, in_passing: bool) -> bool {
        self.look_at_log();
        match letter {
            Letter::Input(input) => self.inputs.push_back(input),
            Letter::Ask(request, asker) => {
                self.next_request += 1;
                self.asked.insert(self.next_request, asker);
                self.inputs.push_back(Input::Request { id: self.next_request, request });
            }
            Letter::Order(..) | Letter::Tell(..) if in_passing => {
                self.left = Some(letter);
                return false;
            }
            Letter::Tell(input, asker) => {
                self.inputs.push_back(input);
                self.proceed(in_passing);
                let _ = asker.send(());
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
                self.progress.is_read();
                self.look_at_log();
            }
            // They are looked after once all that has come is done.
            Letter::Look => {}
            Letter::HoldBack(on, asker) => {
                self.follower.hold(on);
                let _ = asker.send(());
            }
        }
        self.proceed(in_passing)
    }

    fn finish_work(&mut self) {
        self.proceed(false);
        if let Some(letter) = self.left.take() {
            self.take_letter(letter, false);
        }
        if self.consensus.next_deadline() <= self.begun.elapsed() {
            self.look_at_log();
            self.inputs.push_back(Input::Tick);
        }
        self.proceed(false);
        if self.keeps_refused_until.is_some_and(|until| until <= Instant::now()) {
            self.refuse_kept();
        }
        if self.commit_point_noted.1.elapsed() >= COMMIT_POINT_INTERVAL {
            self.note_commit_point();
        }
    }

    /// There are so many members, this one with them; none, if there is no set.
    fn note_members(&self, members: usize) {
        self.progress.want(members > 1);
        self.storage.note_alone(members == 1);
    }

    /// How long a member alone leaves its log unlooked at.
    fn look_interval(&self) -> Duration {
        const ALONE: Duration = Duration::from_millis(250);
        if self.progress.is_wanted() { Duration::MAX } else { ALONE }
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
                baton_storage::crash_point!("consensus-step");
                let is_sign = leading::is_sign_of_life(&input);
                let effects = self.recorder.step(&mut self.consensus, self.begun.elapsed(), input);
                self.tell_leadership(&effects, is_sign);
                self.effects.extend(effects);
                self.own_term.set(self.consensus.term(), self.consensus.state() == MemberState::Primary);
            } else {
                self.shared.acknowledgements.look(&self.consensus);
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
                attempt = Some(Attempt::begin(trigger, request.to, self.decision_for(trigger)));
                (&mut self.stepping_down, Input::StepDown(request))
            }
            Order::Stand { dry_run } => (&mut self.standing, Input::StandForElection { dry_run }),
        };
        if place.is_some() {
            let error = Error::new(ErrorCode::ConflictingOperationInProgress, "the same is already under way");
            if let Some((Trigger::Policy(_), Some(to))) = attempt.map(|attempt| (attempt.trigger, attempt.target)) {
                self.shared.leadership.failed(to, error.message.to_string());
            }
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
        if self.storage.oplog().last_entry() == OpTime::ZERO {
            self.storage.open_to_writes(0);
            let o = rawdoc! { "msg": "initiating set" };
            let noted =
                Namespace::new("admin", "$cmd").and_then(|namespace| self.storage.by_member().note(&namespace, &o));
            if let Err(error) = noted {
                tracing::error!(target: "REPL", error = %error, "The first entry of the log was refused");
            }
            self.storage.queue().close_to_writes();
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
}
