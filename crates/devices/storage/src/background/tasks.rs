//! Background work, as one concept: every flush, compaction, index build, TTL pass and oplog truncation is a task that asked the
//! gate and is registered while it runs, shows its progress, and works at the pace it was given.
//!
//! The registry is what `currentOp`, `serverStatus` and the status page show: what runs, and what waits and why. The gate is how
//! storage asks without knowing what leadership is; a lone member's is always open, and a set binds its own ([`TaskRegistry::bind`], the one way).
//!
//! Invariants:
//! - Nothing registers without asking: a [`TaskGuard`] comes only from an answer of the gate.
//! - Nothing asks without registering: the gate is asked here alone, and who is told to wait is in the registry as
//!   [`WaitingTask`] until it begins or is given up.
//! - Who cannot wait is not told to: that question has no such answer ([`Gate::pace`]).
//! - The gate is told the end of every task that it was asked about, however it ends, and what it cost ([`Gate::ended`], [`cost`]).

mod company;
pub(crate) mod cost;
mod giving_way;
pub(crate) mod listener;
mod progress;
#[cfg(test)]
mod tests;

use baton_machine::{Meter, Spent};
use baton_types::Class;
pub use baton_types::{Admission, Pace, Proposal, TaskCost, TaskKind};
use baton_types::{Error, ErrorCode, Result};
pub use company::Company;
use cost::{AskedCompactions, Metering};
pub use giving_way::{GivingWay, Share};
use parking_lot::{Mutex, RwLock};
pub use progress::Progress;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// How long a task that waits with its thread does so before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How often a task that runs asks whether its pace is still right.
const PACE_INTERVAL: Duration = Duration::from_secs(1);
/// The longest that a task rests between two steps.
const REST_MAX: Duration = Duration::from_millis(200);

/// Decides when tasks begin on this member, and how hard they work. Must not block: RocksDB's own threads ask, too.
pub trait Gate: Send + Sync {
    /// Asked before a task begins that can wait, and again while it waits.
    fn may_begin(&self, proposal: &Proposal<'_>) -> Admission;

    /// Asked about a task that cannot wait, because somebody waits for it or it has begun; and again while a task runs.
    fn pace(&self, _: &Proposal<'_>) -> Pace {
        Pace::Full
    }

    /// Asked about a flush that is not due yet but will be soon. `true` has it begin now: a moment at which it hurts nobody is
    /// chosen by asking early, for once a memtable is full nothing can wait.
    fn may_flush_early(&self, _: &Proposal<'_>) -> bool {
        false
    }

    /// Told that a task has ended, with what it cost; or, without that, that it does not want to begin any more, or that what was
    /// permitted and done by others is done.
    fn ended(&self, _: &Proposal<'_>, _cost: Option<TaskCost>) {}
}

/// The gate of a member that has nobody to hand leadership to.
pub struct AlwaysOpen;

impl Gate for AlwaysOpen {
    fn may_begin(&self, _: &Proposal<'_>) -> Admission {
        Admission::Begin(Pace::Full)
    }
}

/// One task, shared between who does it and who looks.
#[derive(Debug)]
pub struct Task {
    /// Unique since the start of the process.
    pub id: u64,
    /// What kind of work.
    pub kind: TaskKind,
    /// On what: a namespace, an index, a column family.
    pub name: String,
    /// How long it takes, if who asked for it said so.
    pub expected_duration: Option<Duration>,
    /// Its class: the lowest, unless a user waits for it.
    pub class: Class,
    /// When it began, or began to wait, by the wall clock.
    pub started_at: SystemTime,
    /// When it began, or began to wait, for durations.
    pub started: Instant,
    /// Why it waits; none if it runs.
    pub waits_for: Option<&'static str>,
    progress: Mutex<Progress>,
    metering: Mutex<Metering>,
    /// Steps that are over.
    steps: AtomicU64,
    is_at_half_pace: AtomicBool,
    /// Why it is to end before it is done, once somebody has said so.
    told_to_end: OnceLock<&'static str>,
}

impl Task {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        *self.progress.lock()
    }

    /// After how many steps it has rested so far, or could have.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// How hard it works.
    pub fn pace(&self) -> Pace {
        if self.is_at_half_pace.load(Ordering::Relaxed) { Pace::Half } else { Pace::Full }
    }

    /// Fails if it was told to end before it is done. Asked between two steps by whoever can stop there.
    ///
    /// # Errors
    /// `InterruptedDueToReplStateChange` (11602), with the reason.
    pub fn check(&self) -> Result<()> {
        let Some(why) = self.told_to_end.get() else { return Ok(()) };
        let message = format!("{} of {} ends before it is done: {why}. Ask again later", self.kind.name(), self.name);
        Err(Error::new(ErrorCode::InterruptedDueToReplStateChange, message))
    }

    fn set_pace(&self, pace: Pace) {
        self.is_at_half_pace.store(pace == Pace::Half, Ordering::Relaxed);
    }

    /// What the gate is told of it.
    fn proposal(&self, waited: Duration) -> Proposal<'_> {
        Proposal {
            task: self.id,
            kind: self.kind,
            name: &self.name,
            expected: self.progress().counts().1,
            expected_duration: self.expected_duration,
            waited,
        }
    }
}

/// Sums over finished tasks of one kind.
#[derive(Clone, Copy, Debug)]
pub struct TaskTotals {
    /// How many ended.
    pub count: u64,
    /// How long they took together.
    pub duration: Duration,
    /// What they cost together, as far as that is known.
    pub spent: Spent,
}

impl Default for TaskTotals {
    fn default() -> Self {
        Self { count: 0, duration: Duration::ZERO, spent: Spent::NOTHING }
    }
}

#[derive(Default)]
struct Registered {
    running: Vec<Arc<Task>>,
    waiting: Vec<Arc<Task>>,
    totals: HashMap<TaskKind, TaskTotals>,
}

/// All tasks of a member, and the gate that they ask.
pub struct TaskRegistry {
    next_id: AtomicU64,
    gate: RwLock<Arc<dyn Gate>>,
    registered: Mutex<Registered>,
    pub(crate) asked_compactions: AskedCompactions,
}

/// Keeps a task registered as running.
pub struct TaskGuard {
    registry: Arc<TaskRegistry>,
    task: Arc<Task>,
    stepped: Mutex<Steps>,
}

/// When a task last rested, and last asked for its pace.
struct Steps {
    rested: Instant,
    asked: Instant,
    giving_way: GivingWay,
}

/// Keeps a task registered as waiting. Dropped, it is given up.
pub struct WaitingTask {
    registry: Arc<TaskRegistry>,
    task: Arc<Task>,
    has_begun: bool,
}

/// What was admitted and is done by others, who are registered themselves. The gate hears of its end when this is dropped.
pub(crate) struct Permit {
    registry: Arc<TaskRegistry>,
    task: Arc<Task>,
}

/// The answer to who can wait.
#[must_use]
pub enum Asked {
    /// It runs from now on.
    Admitted(TaskGuard),
    /// It waits, and is to ask again.
    Waits(WaitingTask),
}

impl Asked {
    /// Whether it has to wait.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Waits(_))
    }
}

impl Default for TaskRegistry {
    /// An empty one, whose gate is open until another is bound.
    fn default() -> Self {
        Self {
            next_id: AtomicU64::new(1),
            gate: RwLock::new(Arc::new(AlwaysOpen)),
            registered: Mutex::default(),
            asked_compactions: AskedCompactions::default(),
        }
    }
}

impl TaskRegistry {
    /// Lets this gate decide from now on: there is a set to ask.
    pub fn bind(&self, gate: Arc<dyn Gate>) {
        *self.gate.write() = gate;
    }

    fn gate(&self) -> Arc<dyn Gate> {
        Arc::clone(&self.gate.read())
    }

    /// Asks for a task that can wait. `expected` is how much is to be done, 0 if unknown.
    pub fn admit(self: &Arc<Self>, kind: TaskKind, name: impl Into<String>, expected: u64) -> Asked {
        self.admit_for(kind, name, expected, None)
    }

    /// The same of one that says how long it will take.
    pub fn admit_for(
        self: &Arc<Self>,
        kind: TaskKind,
        name: impl Into<String>,
        expected: u64,
        expected_duration: Option<Duration>,
    ) -> Asked {
        let task = Task { expected_duration, ..self.task(kind, name.into(), expected) };
        match self.gate().may_begin(&task.proposal(Duration::ZERO)) {
            Admission::Begin(pace) => Asked::Admitted(self.run(task, pace)),
            Admission::Wait { why } => {
                let task = Arc::new(Task { waits_for: Some(why), ..task });
                self.registered.lock().waiting.push(Arc::clone(&task));
                Asked::Waits(WaitingTask { registry: Arc::clone(self), task, has_begun: false })
            }
        }
    }

    /// Asks for a task that somebody waits for, or that has begun: the answer is how hard it may work.
    pub fn admit_now(self: &Arc<Self>, kind: TaskKind, name: impl Into<String>, expected: u64) -> TaskGuard {
        let task = self.task(kind, name.into(), expected);
        let pace = self.gate().pace(&task.proposal(Duration::ZERO));
        self.run(task, pace)
    }

    /// Asks for a task that can wait, and waits. `interrupt` says now and then whether to go on waiting.
    ///
    /// # Errors
    /// Those of `interrupt`.
    pub fn admit_patiently(
        self: &Arc<Self>,
        kind: TaskKind,
        name: impl Into<String>,
        expected: u64,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<TaskGuard> {
        let mut asked = self.admit(kind, name, expected);
        loop {
            match asked {
                Asked::Admitted(guard) => return Ok(guard),
                Asked::Waits(waiting) => {
                    interrupt()?;
                    std::thread::sleep(ASK_AGAIN);
                    asked = waiting.ask_again();
                }
            }
        }
    }

    /// Whether a flush may begin now that is not due yet: see [`Gate::may_flush_early`]. It is registered when RocksDB begins it.
    pub(crate) fn may_flush_early(&self, family: &str, bytes: u64) -> bool {
        let proposal = Proposal {
            task: 0,
            kind: TaskKind::Flush,
            name: family,
            expected: bytes,
            expected_duration: None,
            waited: Duration::ZERO,
        };
        self.gate().may_flush_early(&proposal)
    }

    fn task(&self, kind: TaskKind, name: String, expected: u64) -> Task {
        Task {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            kind,
            name,
            expected_duration: None,
            class: Class::Background,
            started_at: SystemTime::now(),
            started: Instant::now(),
            waits_for: None,
            progress: Mutex::new(Progress::begin(0, expected)),
            metering: Mutex::new(Metering::NotBegun),
            steps: AtomicU64::new(0),
            is_at_half_pace: AtomicBool::new(false),
            told_to_end: OnceLock::new(),
        }
    }

    fn run(self: &Arc<Self>, task: Task, pace: Pace) -> TaskGuard {
        task.set_pace(pace);
        *task.metering.lock() = Metering::Thread(Meter::start());
        let (task, now) = (Arc::new(task), Instant::now());
        self.registered.lock().running.push(Arc::clone(&task));
        TaskGuard {
            registry: Arc::clone(self),
            task,
            stepped: Mutex::new(Steps { rested: now, asked: now, giving_way: GivingWay::new(Share::Tenth) }),
        }
    }

    /// Has a task that runs end before it is done, for this reason, if it is one that can ([`Task::check`]).
    pub fn end(&self, task: u64, why: &'static str) {
        if let Some(task) = self.running().into_iter().find(|running| running.id == task) {
            // Who was told before has a reason.
            let _ = task.told_to_end.set(why);
        }
    }

    /// The tasks running now, oldest first.
    pub fn running(&self) -> Vec<Arc<Task>> {
        self.registered.lock().running.clone()
    }

    /// The tasks that wait for the gate, oldest first.
    pub fn waiting(&self) -> Vec<Arc<Task>> {
        self.registered.lock().waiting.clone()
    }

    /// What threads have spent on tasks since the start, as far as that is known: the rest is spent on clients.
    pub(crate) fn spent(&self) -> Spent {
        let (running, ended) = {
            let registered = self.registered.lock();
            let ended = registered.totals.values().map(|totals| totals.spent).fold(Spent::NOTHING, Spent::plus);
            (registered.running.clone(), ended)
        };
        running.iter().map(|task| task.metering.lock().spent_so_far()).fold(ended, add_known)
    }

    /// Finished tasks by kind.
    pub fn totals(&self) -> Vec<(TaskKind, TaskTotals)> {
        let mut totals: Vec<_> = self.registered.lock().totals.iter().map(|(kind, t)| (*kind, *t)).collect();
        totals.sort_by_key(|(kind, _)| *kind);
        totals
    }
}

/// The sum of what is known of both.
fn add_known(sum: Spent, more: Spent) -> Spent {
    let known = |spent: Spent| Spent {
        cpu: spent.cpu.or(Some(Duration::ZERO)),
        read_bytes: spent.read_bytes.or(Some(0)),
        written_bytes: spent.written_bytes.or(Some(0)),
    };
    known(sum).plus(known(more))
}

impl WaitingTask {
    /// Why it waits.
    pub fn why(&self) -> &'static str {
        self.task.waits_for.unwrap_or_default()
    }

    /// The error for a client that does not want to wait.
    pub fn error(&self) -> Error {
        let message = format!("{} of {} has to wait: {}", self.task.kind.name(), self.task.name, self.why());
        Error::new(ErrorCode::ConflictingOperationInProgress, message)
    }

    /// Asks again.
    pub fn ask_again(mut self) -> Asked {
        let waited = self.task.started.elapsed();
        match self.registry.gate().may_begin(&self.task.proposal(waited)) {
            Admission::Begin(pace) => {
                let task = Task {
                    id: self.task.id,
                    expected_duration: self.task.expected_duration,
                    ..self.registry.task(self.task.kind, self.task.name.clone(), self.task.proposal(waited).expected)
                };
                self.has_begun = true;
                Asked::Admitted(self.registry.run(task, pace))
            }
            Admission::Wait { why } => {
                if why != self.why() {
                    self.say(why);
                }
                Asked::Waits(self)
            }
        }
    }

    /// Shows another reason.
    fn say(&mut self, why: &'static str) {
        let old = &self.task;
        let task = Arc::new(Task {
            id: old.id,
            expected_duration: old.expected_duration,
            started_at: old.started_at,
            started: old.started,
            waits_for: Some(why),
            ..self.registry.task(old.kind, old.name.clone(), old.proposal(Duration::ZERO).expected)
        });
        for waiting in self.registry.registered.lock().waiting.iter_mut().filter(|waiting| waiting.id == task.id) {
            *waiting = Arc::clone(&task);
        }
        self.task = task;
    }
}

impl Drop for WaitingTask {
    fn drop(&mut self) {
        self.registry.registered.lock().waiting.retain(|task| task.id != self.task.id);
        if !self.has_begun {
            self.registry.gate().ended(&self.task.proposal(self.task.started.elapsed()), None);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.registry.gate().ended(&self.task.proposal(Duration::ZERO), None);
    }
}

impl TaskGuard {
    /// Says how far the task is.
    pub fn progress(&self, done: u64, total: u64) {
        self.task.progress.lock().set(done, total);
    }

    /// Says that another phase of the task begins, and how far it is in it.
    pub fn begin_phase(&self, done: u64, total: u64) {
        *self.task.progress.lock() = Progress::begin(done, total);
    }

    /// A step is over, and no lock is held: beside others who want the processors it rests until it has had a tenth of one, at half
    /// pace for as long as the step took. The gate is asked now and then whether the pace is still right.
    pub fn rest(&self) {
        self.task.steps.fetch_add(1, Ordering::Relaxed);
        let mut steps = self.stepped.lock();
        if steps.asked.elapsed() >= PACE_INTERVAL {
            steps.asked = Instant::now();
            self.task.set_pace(self.registry.gate().pace(&self.task.proposal(Duration::ZERO)));
        }
        let for_others = steps.giving_way.rest();
        let for_pace = if self.task.pace() == Pace::Half { steps.rested.elapsed() } else { Duration::ZERO };
        let rest = for_others.max(for_pace);
        if rest > Duration::ZERO {
            std::thread::sleep(rest.min(REST_MAX));
            steps.giving_way.rested();
        }
        steps.rested = Instant::now();
    }

    /// Whether the gate would still let it begin; asked between two steps by a task that can stop after any, and ask again later.
    pub fn may_go_on(&self) -> bool {
        match self.registry.gate().may_begin(&self.task.proposal(Duration::ZERO)) {
            Admission::Begin(pace) => {
                self.task.set_pace(pace);
                true
            }
            Admission::Wait { .. } => false,
        }
    }

    /// Its work is done by other threads than the one that began it, or by a program elsewhere: from now on it costs what is charged
    /// to it, beginning with this ([`Spent::UNKNOWN`] if nobody will tell).
    #[must_use]
    pub fn charged(self, spent: Spent) -> Self {
        *self.task.metering.lock() = Metering::Charged(spent);
        self
    }

    /// From now on it costs what the calling thread spends, if that ends it.
    pub fn measure_here(&self) {
        *self.task.metering.lock() = Metering::Thread(Meter::start());
    }

    /// What it cost so far, asked by the thread that does it.
    pub(crate) fn spent(&self) -> Spent {
        self.task.metering.lock().spent()
    }

    /// Charges what somebody spent for it: see [`Self::charged`].
    pub fn charge(&self, spent: Spent) {
        let mut metering = self.task.metering.lock();
        let before = match *metering {
            Metering::Charged(before) => before,
            Metering::NotBegun | Metering::Thread(_) | Metering::Parts(_) => Spent::NOTHING,
        };
        *metering = Metering::Charged(before.plus(spent));
    }

    /// It cost what other tasks did that did its work, and that count themselves.
    pub(crate) fn charge_parts(&self, spent: Spent) {
        *self.task.metering.lock() = Metering::Parts(spent);
    }

    /// Takes it out of the registry: what was admitted is done by others, who are registered themselves. For the gate it goes on.
    pub(crate) fn leave_to_others(self) -> Permit {
        self.registry.registered.lock().running.retain(|task| task.id != self.task.id);
        Permit { registry: Arc::clone(&self.registry), task: Arc::clone(&self.task) }
    }

    /// The task itself.
    pub fn task(&self) -> &Arc<Task> {
        &self.task
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let duration = self.task.started.elapsed();
        let (spent, counted) = {
            let metering = self.task.metering.lock();
            (metering.spent(), metering.counted())
        };
        let mut registered = self.registry.registered.lock();
        let running = registered.running.len();
        registered.running.retain(|task| task.id != self.task.id);
        if registered.running.len() == running {
            return;
        }
        let totals = registered.totals.entry(self.task.kind).or_default();
        totals.count += 1;
        totals.duration += duration;
        totals.spent = add_known(totals.spent, counted);
        drop(registered);
        let Spent { cpu, read_bytes, written_bytes } = spent;
        let cost = TaskCost { cpu, read_bytes, written_bytes, duration };
        self.registry.gate().ended(&self.task.proposal(Duration::ZERO), Some(cost));
    }
}
