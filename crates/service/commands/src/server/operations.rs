//! Who is doing what: the registry behind `currentOp`, `killOp` and every deadline.
//!
//! A [`Slot`] belongs to a connection, or to a background job, for its whole life; an [`Operation`] is what runs in it
//! now. Beginning and ending one touches only the slot, so operations never wait for each other here.
//!
//! Invariants: an interrupt reaches the operation it was meant for or none (the number is compared under the slot's
//! lock); once the member is shutting down, operations that begin are interrupted from their start.
//! What it deliberately does not do: stop anything by force. An operation ends when it asks
//! [`Operation::check_interrupt`], which everything that can take long does.

use crate::priority::Pass;
use baton_admission::Source;
use baton_machine::{Bearer, Loan, about_to_wait};
use baton_request::SessionId;
use baton_storage::tasks::Progress;
use baton_types::{Check, Class, Error, ErrorCode, Interruption, Result};
use bson::{RawDocument, RawDocumentBuf};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// How much of a command `currentOp` keeps.
const COMMAND_BYTES_MAX: usize = 4096;

/// What an operation says about itself.
#[derive(Clone, Debug)]
pub struct OperationState {
    /// Its number, positive.
    pub id: u32,
    /// MongoDB's kind: `command`, `query`, `insert`, `update`, `remove`, `getmore`, or `none`.
    pub kind: &'static str,
    /// The command's name.
    pub name: &'static str,
    /// The database.
    pub db: String,
    /// The collection, if it concerns one.
    pub collection: Option<String>,
    /// The command itself, unless it was too large to keep.
    pub command: Option<RawDocumentBuf>,
    /// The session it runs in.
    pub session: Option<SessionId>,
    /// Its class.
    pub class: Class,
    /// By whose word it is of that.
    pub source: Source,
    /// How long it waited before it began, or has waited so far.
    pub waited: Duration,
    /// It waits for its turn.
    pub is_at_door: bool,
    /// When it began.
    pub started: Instant,
    /// The same by the wall clock.
    pub started_wall: SystemTime,
    /// When `maxTimeMS` ends it.
    pub deadline: Option<Instant>,
    /// The plan it runs by (`COLLSCAN`, `IXSCAN { a: 1 }`, …), once known.
    pub plan_summary: Option<String>,
    /// What a long job is at, or what a write waits for.
    pub message: Option<Cow<'static, str>>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// The cursor it continues.
    pub cursor: Option<i64>,
}

impl OperationState {
    /// `db.collection`, or `db.$cmd` as MongoDB names what concerns no collection.
    pub fn namespace(&self) -> String {
        match &self.collection {
            Some(collection) => format!("{}.{collection}", self.db),
            None => format!("{}.$cmd", self.db),
        }
    }
}

/// What the hot path writes; turned into an [`OperationState`] when somebody looks.
struct Running {
    kind: &'static str,
    name: &'static str,
    db: String,
    collection: String,
    command: Vec<u8>,
    session: Option<SessionId>,
    class: Class,
    source: Source,
    waited: Duration,
    is_at_door: bool,
    started: Instant,
    deadline: Option<Instant>,
    plan_summary: Option<String>,
    message: Option<Cow<'static, str>>,
    progress: Option<Progress>,
    cursor: Option<i64>,
    /// The thread that serves it, if it is of low class, and what that is lent once it has lasted for long.
    thread: Option<Arc<Bearer>>,
    loan: Option<Loan>,
}

/// The place where one connection's, or one job's, operations run.
pub struct Slot {
    /// `conn12`, or the job's name.
    pub description: String,
    /// 0 while idle.
    id: AtomicU32,
    /// The code to interrupt with; 0 for none.
    interrupt: Arc<AtomicI32>,
    /// Whether to go on, for operations without a deadline.
    check: Check,
    running: Mutex<Running>,
    /// How many operations of low class run, in all slots.
    low: Arc<AtomicUsize>,
}

impl Slot {
    fn new(description: String, low: Arc<AtomicUsize>) -> Self {
        let running = Running {
            kind: "none",
            name: "",
            db: String::new(),
            collection: String::new(),
            command: Vec::new(),
            session: None,
            class: Class::Normal,
            source: Source::Default,
            waited: Duration::ZERO,
            is_at_door: false,
            started: Instant::now(),
            deadline: None,
            plan_summary: None,
            message: None,
            progress: None,
            cursor: None,
            thread: None,
            loan: None,
        };
        let interrupt = Arc::new(AtomicI32::new(0));
        let check = check(&interrupt, None);
        Self { description, id: AtomicU32::new(0), interrupt, check, running: Mutex::new(running), low }
    }

    /// What runs here now.
    pub fn state(&self) -> Option<OperationState> {
        let running = self.running.lock();
        let id = self.id.load(Ordering::Relaxed);
        if id == 0 {
            return None;
        }
        let age = running.started.elapsed();
        let collection = (!running.collection.is_empty()).then(|| running.collection.clone());
        Some(OperationState {
            id,
            kind: running.kind,
            name: running.name,
            db: running.db.clone(),
            collection,
            command: RawDocumentBuf::from_bytes(running.command.clone()).ok(),
            session: running.session,
            class: running.class,
            source: running.source,
            waited: if running.is_at_door { age } else { running.waited },
            is_at_door: running.is_at_door,
            started: running.started,
            started_wall: SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH),
            deadline: running.deadline,
            plan_summary: running.plan_summary.clone(),
            message: running.message.clone(),
            progress: running.progress,
            cursor: running.cursor,
        })
    }

    /// Gives back the buffers that the next operation would write into, unless one runs.
    pub fn rest(&self) {
        let mut running = self.running.lock();
        if self.id.load(Ordering::Relaxed) == 0 {
            (running.db, running.collection, running.command) = (String::new(), String::new(), Vec::new());
            (running.plan_summary, running.message) = (None, None);
        }
    }

    /// Nobody lends to the thread any more; gives what it was lent, to be given back out of the lock.
    fn take_thread(&self) -> Option<Loan> {
        let mut running = self.running.lock();
        running.thread = None;
        running.loan.take()
    }

    /// Lends to the thread, if what it serves is of low class and has been served since then.
    fn help_if_since(&self, then: Instant) {
        let mut running = self.running.lock();
        if running.loan.is_none()
            && running.started + running.waited <= then
            && let Some(thread) = &running.thread
        {
            running.loan = thread.lend_to_last();
        }
    }

    /// Interrupts what runs here if `wanted` says so; says whether it did.
    pub fn interrupt_if(&self, code: ErrorCode, wanted: impl FnOnce(u32, Option<SessionId>) -> bool) -> bool {
        let running = self.running.lock();
        let id = self.id.load(Ordering::Relaxed);
        if id == 0 || !wanted(id, running.session) {
            return false;
        }
        self.interrupt.store(code.0, Ordering::Relaxed);
        true
    }
}

/// What begins.
pub struct Begin<'a> {
    /// MongoDB's kind of operation.
    pub kind: &'static str,
    /// The command's, or the job's, name.
    pub name: &'static str,
    /// The database.
    pub db: &'a str,
    /// The collection; empty for none.
    pub collection: &'a str,
    /// The command.
    pub command: Option<&'a RawDocument>,
    /// Its session.
    pub session: Option<SessionId>,
    /// Its class.
    pub class: Class,
    /// By whose word it is of that.
    pub source: Source,
    /// How long it may take, from when its request arrived.
    pub max_time: Option<Duration>,
    /// How long ago that was.
    pub waited: Duration,
}

/// An operation that runs. Ends when dropped.
pub struct Operation {
    slot: Arc<Slot>,
    /// Its number.
    pub id: u32,
    /// When it began.
    pub started: Instant,
    /// Its class.
    pub class: Class,
    deadline: Option<Instant>,
    /// What it spent waiting for something to happen, in microseconds.
    idle_us: AtomicU64,
    /// That it was let in, if it was counted; given back with its end.
    pass: Option<Pass>,
    /// Whether the thread that serves the slot serves it: not after it has left that, whose record is then the next one's.
    is_on_thread: bool,
}

impl Operation {
    /// Runs `wait`, which waits for something that may happen at any time or never: that is not the operation's work.
    pub fn idle<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let outcome = self.paused(wait);
        self.idle_us.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        outcome
    }

    /// Runs `wait`, which needs no processor: others may have its place meanwhile.
    pub(crate) fn paused<T>(&self, wait: impl FnOnce() -> T) -> T {
        let _waiting = about_to_wait();
        let Some(pass) = &self.pass else { return wait() };
        pass.pause();
        let outcome = wait();
        pass.resume();
        outcome
    }

    /// Its thread goes on without it; others end it.
    pub(crate) fn leave_thread(&mut self) {
        self.pass.iter().for_each(Pass::leave_thread);
        self.give_thread_back();
    }

    fn give_thread_back(&mut self) {
        if self.class == Class::Low && std::mem::replace(&mut self.is_on_thread, false) {
            drop(self.slot.take_thread());
        }
    }

    /// That it was let in, for who counts it off in its place.
    pub(crate) fn take_pass(&mut self) -> Option<Pass> {
        self.pass.take()
    }

    /// It was let in, after so long.
    pub(crate) fn let_in(&mut self, pass: Pass, waited: Duration) {
        self.pass = Some(pass);
        let mut running = self.slot.running.lock();
        running.waited = waited;
        running.is_at_door = false;
        running.message = None;
    }

    /// How long it has worked: the time since its start, but for what it spent in [`Self::idle`].
    pub fn worked(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_micros(self.idle_us.load(Ordering::Relaxed)))
    }

    /// Whether to go on: `MaxTimeMSExpired` (50) after the deadline, or the code it was killed with. Cheap enough to ask
    /// for every few documents.
    pub fn check_interrupt(&self) -> Result<()> {
        may_go_on(&self.slot.interrupt, self.deadline)
    }

    /// [`Self::check_interrupt`] for those who outlive this borrow. Once the operation is over it tells about whatever runs
    /// in its slot.
    pub fn check(&self) -> Check {
        match self.deadline {
            None => Arc::clone(&self.slot.check),
            deadline => check(&self.slot.interrupt, deadline),
        }
    }

    /// [`Self::check`], asked once in so many steps.
    pub fn interruption(&self) -> Arc<Interruption> {
        Interruption::asking(&self.check())
    }

    /// When `maxTimeMS` ends it.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Gives it a (nearer) deadline: what is left of a cursor's time, say.
    pub fn limit_deadline(&mut self, deadline: Instant) {
        let nearer = self.deadline.map_or(deadline, |d| d.min(deadline));
        self.deadline = Some(nearer);
        self.slot.running.lock().deadline = Some(nearer);
    }

    /// The slot it runs in.
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Gives `look` the database and the collection that it is about; empty for none.
    pub fn with_names<T>(&self, look: impl FnOnce(&str, &str) -> T) -> T {
        let running = self.slot.running.lock();
        look(&running.db, &running.collection)
    }

    /// Says by which plan it runs.
    pub fn set_plan_summary(&self, summary: impl Into<String>) {
        self.slot.running.lock().plan_summary = Some(summary.into());
    }

    /// Says which cursor it continues.
    pub fn set_cursor(&self, id: i64) {
        self.slot.running.lock().cursor = Some(id);
    }

    /// Says what a long job is at, and how far. A job that is at something else, or counts from the beginning, is in another phase.
    pub fn set_progress(&self, message: impl Into<String>, done: u64, total: u64) {
        let (mut running, message) = (self.slot.running.lock(), message.into());
        let is_same = running.message.as_deref() == Some(message.as_str());
        match &mut running.progress {
            Some(progress) if is_same && done >= progress.counts().0 => progress.set(done, total),
            progress => *progress = Some(Progress::begin(done, total)),
        }
        running.message = Some(Cow::Owned(message));
    }

    /// It waits for its turn, until it is [let in](Self::let_in).
    pub(crate) fn waits_at_door(&self) {
        let mut running = self.slot.running.lock();
        running.is_at_door = true;
        running.message =
            Some(Cow::Borrowed("waiting for its turn: requests of its class or of higher ones are in progress"));
    }

    /// Says what it waits for, having done what it was to do.
    pub fn waits_for(&self, what: &'static str) {
        self.slot.running.lock().message = Some(Cow::Borrowed(what));
    }

    /// The plan's summary, for the log.
    pub fn plan_summary(&self) -> Option<String> {
        self.slot.running.lock().plan_summary.clone()
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        {
            let _running = self.slot.running.lock();
            // What has left its thread may find another one in its place.
            if self.slot.id.load(Ordering::Relaxed) == self.id {
                self.slot.id.store(0, Ordering::Relaxed);
                self.slot.interrupt.store(0, Ordering::Relaxed);
            }
        }
        if self.class == Class::Low {
            self.slot.low.fetch_sub(1, Ordering::Relaxed);
        }
        self.give_thread_back();
    }
}

/// [`may_go_on`], for those who outlive the operation.
fn check(interrupt: &Arc<AtomicI32>, deadline: Option<Instant>) -> Check {
    let interrupt = Arc::clone(interrupt);
    Arc::new(move || may_go_on(&interrupt, deadline))
}

fn may_go_on(interrupt: &AtomicI32, deadline: Option<Instant>) -> Result<()> {
    let code = interrupt.load(Ordering::Relaxed);
    if code != 0 {
        return Err(interruption(ErrorCode(code)));
    }
    match deadline {
        Some(deadline) if Instant::now() >= deadline => Err(interruption(ErrorCode::MaxTimeMSExpired)),
        _ => Ok(()),
    }
}

/// The error that an interrupt of that code is reported as.
pub fn interruption(code: ErrorCode) -> Error {
    let message = match code {
        ErrorCode::MaxTimeMSExpired => "operation exceeded time limit",
        ErrorCode::InterruptedAtShutdown => "interrupted at shutdown",
        ErrorCode::CursorKilled => "operation was interrupted because its cursor was killed",
        ErrorCode::ClientDisconnect => "operation was interrupted because a client disconnected",
        _ => "operation was interrupted",
    };
    Error::new(code, message)
}

/// All slots.
#[derive(Default)]
pub struct Operations {
    slots: Mutex<BTreeMap<u64, Arc<Slot>>>,
    next_slot: AtomicU64,
    next_id: AtomicU32,
    shutting_down: AtomicI32,
    low: Arc<AtomicUsize>,
}

/// A slot's place in the registry; leaves it when dropped.
pub struct SlotGuard {
    operations: Arc<Operations>,
    key: u64,
    slot: Arc<Slot>,
}

impl SlotGuard {
    /// The slot.
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.operations.slots.lock().remove(&self.key);
    }
}

impl Operations {
    /// A slot for a connection or a job.
    pub fn register(self: &Arc<Self>, description: impl Into<String>) -> SlotGuard {
        let key = self.next_slot.fetch_add(1, Ordering::Relaxed);
        let slot = Arc::new(Slot::new(description.into(), Arc::clone(&self.low)));
        self.slots.lock().insert(key, slot.clone());
        SlotGuard { operations: self.clone(), key, slot }
    }

    /// Begins an operation in `slot`.
    pub fn begin(&self, slot: &Arc<Slot>, begin: &Begin<'_>) -> Operation {
        let started = Instant::now();
        let arrived = started.checked_sub(begin.waited).unwrap_or(started);
        let deadline = begin.max_time.map(|t| arrived + t);
        let id = self.new_id();
        {
            let mut running = slot.running.lock();
            running.kind = begin.kind;
            running.name = begin.name;
            // Into the buffers of the operation before: a running member allocates nothing here.
            running.db.clear();
            running.db.push_str(begin.db);
            running.collection.clear();
            running.collection.push_str(begin.collection);
            running.command.clear();
            if let Some(bytes) = begin.command.map(RawDocument::as_bytes).filter(|b| b.len() <= COMMAND_BYTES_MAX) {
                running.command.extend_from_slice(bytes);
            }
            running.session = begin.session;
            running.class = begin.class;
            running.source = begin.source;
            running.waited = Duration::ZERO;
            running.is_at_door = false;
            running.started = started;
            running.deadline = deadline;
            running.plan_summary = None;
            running.message = None;
            running.progress = None;
            running.cursor = None;
            running.thread = (begin.class == Class::Low).then(baton_machine::bearer);
            slot.interrupt.store(self.shutting_down.load(Ordering::Relaxed), Ordering::Relaxed);
            slot.id.store(id, Ordering::Relaxed);
        }
        if begin.class == Class::Low {
            self.low.fetch_add(1, Ordering::Relaxed);
        }
        Operation {
            slot: slot.clone(),
            id,
            started,
            class: begin.class,
            deadline,
            idle_us: AtomicU64::new(0),
            pass: None,
            is_on_thread: true,
        }
    }

    /// Those of low class that have been served for so long have a tenth of a normal one's weight from now on.
    pub(crate) fn help_those_who_last(&self, time: Duration) {
        let then = Instant::now().checked_sub(time);
        if self.low.load(Ordering::Relaxed) > 0
            && let Some(then) = then
        {
            self.all().iter().for_each(|slot| slot.help_if_since(then));
        }
    }

    fn new_id(&self) -> u32 {
        // Positive as an int32, as clients read it, and never 0.
        (self.next_id.fetch_add(1, Ordering::Relaxed) % 0x7fff_fffe) + 1
    }

    /// Everything that runs, with its slot.
    pub fn running(&self) -> Vec<(Arc<Slot>, OperationState)> {
        self.all().into_iter().filter_map(|slot| slot.state().map(|state| (slot, state))).collect()
    }

    /// All slots, idle ones too.
    pub fn all(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().values().cloned().collect()
    }

    /// Interrupts the operation of that number, if it runs.
    pub fn kill(&self, id: u32) -> bool {
        self.all().iter().any(|slot| slot.interrupt_if(ErrorCode::Interrupted, |running, _| running == id))
    }

    /// Interrupts the operations of the sessions that `wanted` names, except operation `own`.
    pub fn kill_sessions(&self, own: u32, wanted: impl Fn(SessionId) -> bool) {
        for slot in self.all() {
            slot.interrupt_if(ErrorCode::Interrupted, |id, session| id != own && session.is_some_and(&wanted));
        }
    }

    /// From now on everything that runs or begins is interrupted, except operation `own`.
    pub fn shut_down(&self, own: u32) {
        self.shutting_down.store(ErrorCode::InterruptedAtShutdown.0, Ordering::Relaxed);
        for slot in self.all() {
            slot.interrupt_if(ErrorCode::InterruptedAtShutdown, |id, _| id != own);
        }
    }

    /// Whether [`Self::shut_down`] was called.
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(max_time: Option<Duration>) -> Begin<'static> {
        Begin {
            kind: "command",
            name: "find",
            db: "test",
            collection: "c",
            command: None,
            session: Some(SessionId([1; 16])),
            class: Class::Normal,
            source: Source::Default,
            max_time,
            waited: Duration::ZERO,
        }
    }

    #[test]
    fn a_kill_reaches_the_operation_it_names_and_not_the_next_one() {
        let operations = Arc::new(Operations::default());
        let guard = operations.register("conn1");
        let first = operations.begin(guard.slot(), &begin(None));
        first.check_interrupt().unwrap();
        assert!(operations.kill(first.id));
        assert_eq!(first.check_interrupt().unwrap_err().code, ErrorCode::Interrupted);
        let id = first.id;
        drop(first);
        let second = operations.begin(guard.slot(), &begin(None));
        assert!(!operations.kill(id));
        second.check_interrupt().unwrap();
    }

    #[test]
    fn who_outlives_an_operation_is_told_of_its_deadline_and_of_what_runs_in_its_slot() {
        let operations = Arc::new(Operations::default());
        let guard = operations.register("conn1");
        let first = operations.begin(guard.slot(), &begin(None));
        let limited = operations.begin(guard.slot(), &begin(Some(Duration::ZERO)));
        let (check, of_limited) = (first.check(), limited.check());
        check().unwrap();
        assert_eq!(of_limited().unwrap_err().code, ErrorCode::MaxTimeMSExpired);
        drop((first, limited));
        let next = operations.begin(guard.slot(), &begin(None));
        check().unwrap();
        assert!(operations.kill(next.id));
        assert_eq!(check().unwrap_err().code, ErrorCode::Interrupted);
        assert_eq!(of_limited().unwrap_err().code, ErrorCode::Interrupted);
    }

    #[test]
    fn a_deadline_ends_an_operation_with_50() {
        let operations = Arc::new(Operations::default());
        let guard = operations.register("conn1");
        let operation = operations.begin(guard.slot(), &begin(Some(Duration::ZERO)));
        assert_eq!(operation.check_interrupt().unwrap_err().code, ErrorCode::MaxTimeMSExpired);
    }

    #[test]
    fn a_deadline_runs_from_when_the_request_arrived() {
        let operations = Arc::new(Operations::default());
        let (ms, guard) = (Duration::from_millis, operations.register("conn1"));
        let began = |waited| operations.begin(guard.slot(), &Begin { waited, ..begin(Some(ms(5_000))) });
        let operation = began(ms(2_000));
        assert_eq!(operation.deadline(), Some(operation.started + ms(3_000)));
        let code = |operation: &Operation| operation.check_interrupt().map_err(|error| error.code);
        assert_eq!(code(&operation), Ok(()));
        drop(operation);
        assert_eq!(code(&began(ms(5_001))), Err(ErrorCode::MaxTimeMSExpired));
    }

    #[test]
    fn what_has_left_its_thread_takes_nothing_from_the_next_one_in_its_place() {
        let operations = Arc::new(Operations::default());
        let guard = operations.register("conn1");
        let low = || Begin { class: Class::Low, ..begin(None) };
        let mut first = operations.begin(guard.slot(), &low());
        first.leave_thread();
        assert!(guard.slot().running.lock().thread.is_none());
        let second = operations.begin(guard.slot(), &low());
        drop(first);
        assert!(guard.slot().running.lock().thread.is_some());
        assert_eq!(guard.slot().state().unwrap().id, second.id);
        drop(second);
        assert!(guard.slot().running.lock().thread.is_none() && guard.slot().state().is_none());
    }

    #[test]
    fn what_an_operation_waits_for_is_not_its_work() {
        let operations = Arc::new(Operations::default());
        let guard = operations.register("conn1");
        let operation = operations.begin(guard.slot(), &begin(None));
        let wait = Duration::from_millis(30);
        assert_eq!(
            operation.idle(|| {
                std::thread::sleep(wait);
                7
            }),
            7
        );
        let all = operation.started.elapsed();
        assert!(operation.worked() + wait <= all, "{:?} of {all:?}", operation.worked());
    }

    #[test]
    fn shutdown_interrupts_what_runs_and_what_begins_later() {
        let operations = Arc::new(Operations::default());
        let guard = operations.register("conn1");
        let running = operations.begin(guard.slot(), &begin(None));
        operations.shut_down(0);
        assert_eq!(running.check_interrupt().unwrap_err().code, ErrorCode::InterruptedAtShutdown);
        drop(running);
        let later = operations.begin(guard.slot(), &begin(None));
        assert_eq!(later.check_interrupt().unwrap_err().code, ErrorCode::InterruptedAtShutdown);
    }

    #[test]
    fn what_runs_is_listed_until_it_ends_and_a_slot_until_its_guard_goes() {
        let operations = Arc::new(Operations::default());
        let guard = operations.register("conn1");
        assert!(operations.running().is_empty());
        let operation = operations.begin(guard.slot(), &begin(None));
        let listed = operations.running();
        assert_eq!(listed[0].1.id, operation.id);
        assert_eq!(listed[0].1.namespace(), "test.c");
        drop(operation);
        assert!(operations.running().is_empty());
        drop(guard);
        assert!(operations.all().is_empty());
    }
}
