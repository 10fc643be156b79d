//! Flow control: how far one operation's writes may run ahead of what the set has committed.
//!
//! Whoever deletes a third of a table writes faster than the others apply, and everybody else's write then waits for a majority behind
//! all of it. So an operation that writes much stops now and then until a majority has what it wrote before the last step.
//!
//! And whoever begins yields to higher classes first: see [`yielding`].
//!
//! Beside small writes the steps are small, so that such a write never waits behind more than a few documents, on no member and on no
//! disk; else they are large. Operations that write much are not small to each other: loaders beside loaders go in large steps.
//!
//! Invariants: an operation has at most its pace's steps (see [`LARGE`], [`SMALL`]), and the transaction under way, beyond the
//! commit point, as long as that moves; no wait is longer than [`WAIT_MAX`], and there is none where nothing is committed anyway, or no
//! set is there to do so. What a write means is the same with and without: this delays, and acknowledges nothing. An operation that ends
//! with its first step costs no sync.
//!
//! A member that is the whole set has committed what is durable here, and waits for that, as long as its disk takes: its commit point
//! follows when somebody looks. Such a wait is not interrupted.
//!
//! Who ends a step is known to be under way until the operation ends: leadership is not moved lightly over its head.
//!
//! Source: MongoDB manual, "Flow Control", for the purpose and the name of the switch; the bound by operation is Baton's own.

mod yielding;

pub use yielding::CREDIT_BYTES;

use crate::background::lately::Lately;
use crate::documents::transaction::Transaction;
use crate::log::author::Writer;
use crate::log::commit::{Durability, Placed};
use crate::storage::Storage;
use baton_types::{OpTime, Result, Timestamp};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How far an operation may be ahead of a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// Bytes of a step: entries of the log, each with what carrying it out costs others.
    step_bytes: usize,
    /// Steps that may be on their way.
    steps_ahead: usize,
}

/// While nobody writes little.
const LARGE: Pace = Pace { step_bytes: 128 * 1024, steps_ahead: 2 };
/// Beside small writes. What an update of many gains with larger steps, others lose: see docs/spikes/background-writes.md.
const SMALL: Pace = Pace { step_bytes: 16 * 1024, steps_ahead: 1 };
/// For so long after a small write the next one is expected.
const SMALL_WRITES_LAST: Duration = Duration::from_secs(1);
/// What an entry counts beside its bytes.
const ENTRY_COST: usize = 256;
/// The longest wait for one step: then the operation goes on, by one step.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// A commit point that has not moved for so long sets no pace.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// A killed operation notices within this time.
const SLICE: Duration = Duration::from_millis(10);

/// Who writes, how much.
#[derive(Debug, Default)]
struct Writers {
    /// Operations that have ended a step, by their numbers, each with the time at which it began to write.
    under_way: Mutex<BTreeMap<u64, Instant>>,
    /// An operation ended that had written less than a step.
    small: Lately,
}

/// One operation that has ended a step, as long as it lasts.
#[derive(Debug)]
struct Entry {
    writers: Arc<Writers>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.writers.under_way.lock().remove(&self.number);
    }
}

impl Writers {
    fn enter(self: &Arc<Self>, since: Instant) -> Entry {
        let mut operations = self.under_way.lock();
        let number = operations.last_key_value().map_or(0, |(last, _)| last + 1);
        operations.insert(number, since);
        Entry { writers: Arc::clone(self), number }
    }

    fn secs(&self) -> f64 {
        self.under_way.lock().values().map(|since| since.elapsed().as_secs_f64()).sum()
    }

    /// The pace of those who write much.
    fn pace(&self, now: Instant) -> Pace {
        if self.small.is_within(SMALL_WRITES_LAST, now) { SMALL } else { LARGE }
    }
}

/// The commit point's movement, and what flow control did since the start.
pub(crate) struct FlowControl {
    is_on: AtomicBool,
    /// This member is the whole set, which has committed what is durable here: the commit point, of which nobody is told then, follows
    /// some time later.
    is_alone: AtomicBool,
    /// Compactions are behind.
    is_pressed: AtomicBool,
    moved: Mutex<Instant>,
    has_moved: Condvar,
    watchers: AtomicU64,
    waits: AtomicU64,
    wait_micros: AtomicU64,
    writers: Arc<Writers>,
}

/// What flow control did since the start, for serverStatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFigures {
    /// Whether it is switched on.
    pub is_on: bool,
    /// How often an operation waited.
    pub waits: u64,
    /// Microseconds that operations waited together.
    pub wait_micros: u64,
}

impl Default for FlowControl {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(true),
            is_alone: AtomicBool::new(false),
            is_pressed: AtomicBool::new(false),
            moved: Mutex::new(Instant::now()),
            has_moved: Condvar::new(),
            watchers: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            wait_micros: AtomicU64::new(0),
            writers: Arc::default(),
        }
    }
}

impl FlowControl {
    /// Seconds that clients' operations which have ended a step have taken, together.
    pub fn under_way_secs(&self) -> f64 {
        self.writers.secs()
    }

    /// How far whoever writes much may be ahead now.
    fn pace(&self) -> Pace {
        self.writers.pace(Instant::now())
    }

    /// The commit point has moved.
    pub fn advanced(&self) {
        let mut moved = self.moved.lock();
        *moved = Instant::now();
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.has_moved.notify_all();
        }
    }

    fn await_commit(&self, storage: &Storage, step: Timestamp, interrupt: &dyn Fn() -> Result<()>) -> Result<()> {
        let is_behind = || storage.oplog().commit_point().is_some_and(|committed| committed < step);
        self.await_moves(&is_behind, Some(STALLED_AFTER), interrupt)
    }

    fn waited_since(&self, began: Instant) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.wait_micros.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
}

/// What one operation has written that it has not seen committed, in steps. Pure.
#[derive(Debug, Default)]
struct Ahead {
    steps: VecDeque<Timestamp>,
    /// Of the step under way.
    bytes: usize,
}

impl Ahead {
    /// Whether the step is full with what is about to be written, so that a majority is to have it soon.
    fn fills(&mut self, pace: Pace, bytes: usize, entries: usize) -> bool {
        self.bytes += bytes + entries * ENTRY_COST;
        self.bytes >= pace.step_bytes
    }

    /// Ends the step under way with what was written last.
    fn end_step(&mut self, written: Timestamp) {
        self.bytes = 0;
        self.steps.push_back(written);
    }

    fn has_ended_a_step(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether a step is to be committed before another is begun.
    fn is_due(&self, pace: Pace) -> bool {
        self.steps.len() >= pace.steps_ahead
    }

    /// The step that is to be committed before another is begun. Those before it are committed with it.
    fn next_wait(&mut self, pace: Pace) -> Option<Timestamp> {
        let surplus = (self.steps.len() + 1).saturating_sub(pace.steps_ahead);
        self.steps.drain(..surplus).next_back()
    }
}

/// What became of a transaction that is not waited for, if that is all the same to others.
pub enum Begun {
    /// It has its place, and will be committed.
    Placed(Placed),
    /// It is committed.
    Committed(OpTime),
}

/// Holds one operation to the set's pace: whatever it writes goes through here.
#[derive(Debug)]
pub struct Throttle {
    ahead: Mutex<Ahead>,
    /// When it began; not if it is the member's own, which goes on by itself wherever it was ended.
    since: Option<Instant>,
    /// Once it has written at the set's pace.
    writers: OnceLock<Arc<Writers>>,
    /// Once it has ended a step.
    entry: OnceLock<Entry>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { ahead: Mutex::default(), since: Some(Instant::now()), writers: OnceLock::new(), entry: OnceLock::new() }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // A client waits for it, and it is over before a step was: whoever writes much makes room for the next of its kind.
        if let (Some(writers), Some(_), None) = (self.writers.get(), self.since, self.entry.get()) {
            writers.small.note(Instant::now());
        }
    }
}

impl Throttle {
    /// For what the member does by itself, and no client waits for.
    pub fn of_member() -> Self {
        let mut throttle = Self::default();
        throttle.since = None;
        throttle
    }

    /// Gives a transaction its place as [`Writer::place`] does, and notes it; or commits it, if it ends a step.
    pub fn place(&self, writer: Writer<'_>, transaction: Transaction, durability: Durability) -> Result<Begun> {
        let (durability, ends_step) = self.fill(writer, &transaction, durability);
        if ends_step {
            return self.end_step(writer, transaction, durability).map(Begun::Committed);
        }
        writer.place(transaction, durability).map(Begun::Placed)
    }

    /// Commits a transaction as [`Writer::commit`] does, and notes it.
    pub fn commit(&self, writer: Writer<'_>, transaction: Transaction, durability: Durability) -> Result<OpTime> {
        let (durability, ends_step) = self.fill(writer, &transaction, durability);
        if ends_step {
            return self.end_step(writer, transaction, durability);
        }
        writer.commit(transaction, durability)
    }

    fn end_step(&self, writer: Writer<'_>, transaction: Transaction, durability: Durability) -> Result<OpTime> {
        let optime = writer.commit(transaction, durability)?;
        self.ahead.lock().end_step(optime.timestamp);
        if let Some(since) = self.since {
            self.entry.get_or_init(|| writer.flow.writers.enter(since));
        }
        Ok(optime)
    }

    /// Notes what is about to be written: how safe it is to be when it is, and whether it ends a step.
    fn fill(&self, writer: Writer<'_>, transaction: &Transaction, durability: Durability) -> (Durability, bool) {
        let (ends_step, is_synced_early) = if writer.has_pace() {
            self.writers.get_or_init(|| Arc::clone(&writer.flow.writers));
            let pace = writer.flow.pace();
            let mut ahead = self.ahead.lock();
            let is_second = pace.steps_ahead > 1 && ahead.has_ended_a_step();
            (ahead.fills(pace, transaction.bytes(), transaction.oplog_entries()), is_second)
        } else {
            (false, false)
        };
        // Nobody else may want the disk of this member; and without it there is no majority. Where the next step waits for this one,
        // `wait` asks for the sync; so it does for the first step, after which there may be nothing more.
        let wants_sync = ends_step && is_synced_early && durability == Durability::Applied;
        (if wants_sync { Durability::Wanted } else { durability }, ends_step)
    }

    /// How large a transaction should be, in bytes, so that it is no more than a step.
    pub fn transaction_bytes(&self, storage: &Storage) -> usize {
        if storage.has_pace() { storage.flow.pace().step_bytes } else { usize::MAX }
    }

    /// Whether [`Self::wait`] is to be called first: whoever holds something that others wait for gives it back.
    pub fn is_due(&self, storage: &Storage) -> bool {
        let ahead = self.ahead.lock();
        ahead.has_ended_a_step() && ahead.is_due(storage.flow.pace())
    }

    /// Waits until the operation may go on writing. To be asked where it holds nothing that others wait for.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait(&self, writer: Writer<'_>, interrupt: &dyn Fn() -> Result<()>) -> Result<()> {
        let storage = writer.storage();
        writer.yield_to_higher(interrupt)?;
        let next = {
            let mut ahead = self.ahead.lock();
            // Most operations are small: they need not know the pace.
            if ahead.has_ended_a_step() { ahead.next_wait(storage.flow.pace()) } else { None }
        };
        let Some(step) = next else { return Ok(()) };
        if storage.flow.is_alone.load(Ordering::Relaxed) {
            if storage.queue().durable().timestamp < step {
                let began = Instant::now();
                storage.queue().sync();
                storage.flow.waited_since(began);
            }
            return interrupt();
        }
        if storage.oplog().commit_point().is_some_and(|committed| committed < step) {
            storage.queue().settle(Durability::Wanted);
        }
        storage.flow.await_commit(storage, step, interrupt)
    }
}

impl Storage {
    /// Whether there is a set that commits what is written here, and operations are to wait for it.
    fn has_pace(&self) -> bool {
        self.flow.is_on.load(Ordering::Relaxed) && self.oplog().commit_point().is_some()
    }

    /// Says whether this member is the whole set.
    pub fn note_alone(&self, is_alone: bool) {
        self.flow.is_alone.store(is_alone, Ordering::Relaxed);
    }

    /// Says whether compactions are so far behind that those of low class are to write less.
    pub(crate) fn note_pressure(&self, is_pressed: bool) {
        self.flow.is_pressed.store(is_pressed, Ordering::Relaxed);
    }

    /// Switches flow control on or off (`enableFlowControl`); it is on at the start.
    pub fn switch_flow_control(&self, is_on: bool) {
        self.flow.is_on.store(is_on, Ordering::Relaxed);
    }

    /// What flow control did.
    pub fn flow_figures(&self) -> FlowFigures {
        FlowFigures {
            is_on: self.flow.is_on.load(Ordering::Relaxed),
            waits: self.flow.waits.load(Ordering::Relaxed),
            wait_micros: self.flow.wait_micros.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(increment: u32) -> Timestamp {
        Timestamp { seconds: 1, increment }
    }

    const ONE: usize = 1000 + ENTRY_COST;

    /// Writes documents of a kilobyte, waits as it is told to, and gives the most that was ever unseen, in bytes.
    fn unseen_max(pace: Pace, asks_every: u32) -> usize {
        let (mut ahead, mut seen, mut unseen_max) = (Ahead::default(), 0, 0);
        for n in 1..10_000 {
            if ahead.fills(pace, 1000, 1) {
                ahead.end_step(at(n));
            }
            unseen_max = unseen_max.max((n - seen) as usize * ONE);
            if n % asks_every == 0
                && let Some(step) = ahead.next_wait(pace)
            {
                seen = step.increment;
            }
        }
        unseen_max
    }

    #[test]
    fn an_operation_is_at_most_so_many_steps_ahead() {
        for pace in [LARGE, SMALL] {
            let unseen = unseen_max(pace, 1);
            assert!(unseen <= pace.steps_ahead * (pace.step_bytes + ONE), "{unseen}");
            assert!(unseen >= pace.step_bytes, "{unseen}");
        }
    }

    #[test]
    fn who_asks_seldom_waits_for_the_last_of_the_steps_that_ended_meanwhile() {
        let unseen = unseen_max(LARGE, 200);
        assert!(unseen <= LARGE.steps_ahead * (LARGE.step_bytes + ONE) + 200 * ONE, "{unseen}");
    }

    #[test]
    fn steps_are_small_for_a_while_after_each_small_write() {
        let (writers, now) = (Writers::default(), Instant::now());
        assert_eq!(writers.pace(now), LARGE, "nobody has written");
        writers.small.note(now);
        assert_eq!(writers.pace(now), SMALL);
        assert_eq!(writers.pace(now + SMALL_WRITES_LAST), LARGE);
    }

    #[test]
    fn who_is_under_way_counts_until_it_ends_with_all_the_time_since_its_beginning() {
        let writers = Arc::new(Writers::default());
        let minute_ago = Instant::now().checked_sub(Duration::from_secs(60)).expect("this machine runs for a minute");
        let (one, other) = (writers.enter(minute_ago), writers.enter(minute_ago));
        assert!((120.0..130.0).contains(&writers.secs()));
        drop(one);
        let third = writers.enter(Instant::now());
        assert!((60.0..65.0).contains(&writers.secs()));
        drop((other, third));
        assert_eq!(writers.secs(), 0.0);
    }

    #[test]
    fn small_operations_never_wait() {
        let mut ahead = Ahead::default();
        for _ in 0..20 {
            assert!(!ahead.fills(SMALL, 500, 1));
            assert_eq!(ahead.next_wait(SMALL), None);
        }
    }
}
