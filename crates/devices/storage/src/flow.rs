//! Flow control: how far one operation's writes may run ahead of what the set has committed.
//!
//! Whoever deletes a third of a table writes faster than the others apply, and everybody else's write then waits for a majority behind
//! all of it. So an operation that writes much stops now and then until a majority has what it wrote before the last step.
//!
//! Invariants: an operation has at most [`STEPS_AHEAD`] steps of [`STEP_BYTES`], and the transaction under way, beyond the commit point,
//! as long as that moves; no wait is longer than [`WAIT_MAX`], and there is none where nothing is committed anyway, or no set is there to
//! do so. What a write means is the same with and without: this delays, and acknowledges nothing.
//!
//! Source: MongoDB manual, "Flow Control", for the purpose and the name of the switch; the bound by operation is Baton's own.

use crate::commit::Durability;
use crate::storage::Storage;
use crate::transaction::Transaction;
use baton_types::{OpTime, Result, Timestamp};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a step: entries of the log, each with what carrying it out costs others.
pub const STEP_BYTES: usize = 128 * 1024;
/// Steps that may be on their way to a majority.
const STEPS_AHEAD: usize = 2;
/// What an entry counts beside its bytes.
const ENTRY_COST: usize = 256;
/// The longest wait for one step: then the operation goes on, by one step.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// A commit point that has not moved for so long sets no pace.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// A killed operation notices within this time.
const SLICE: Duration = Duration::from_millis(10);

/// The commit point's movement, and what flow control did since the start.
pub(crate) struct FlowControl {
    is_on: AtomicBool,
    moved: Mutex<Instant>,
    has_moved: Condvar,
    watchers: AtomicU64,
    waits: AtomicU64,
    wait_micros: AtomicU64,
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
            moved: Mutex::new(Instant::now()),
            has_moved: Condvar::new(),
            watchers: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            wait_micros: AtomicU64::new(0),
        }
    }
}

impl FlowControl {
    /// The commit point has moved.
    pub fn advanced(&self) {
        let mut moved = self.moved.lock();
        *moved = Instant::now();
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.has_moved.notify_all();
        }
    }

    fn await_commit(&self, storage: &Storage, step: Timestamp, interrupt: &dyn Fn() -> Result<()>) -> Result<()> {
        let began = Instant::now();
        let mut moved = self.moved.lock();
        let is_behind = || storage.commit_point().is_some_and(|committed| committed < step);
        if !is_behind() || moved.elapsed() >= STALLED_AFTER {
            return Ok(());
        }
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut outcome = Ok(());
        while is_behind() && moved.elapsed() < STALLED_AFTER && began.elapsed() < WAIT_MAX && outcome.is_ok() {
            self.has_moved.wait_for(&mut moved, SLICE);
            parking_lot::MutexGuard::unlocked(&mut moved, || outcome = interrupt());
        }
        self.watchers.fetch_sub(1, Ordering::SeqCst);
        drop(moved);
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.wait_micros.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        outcome
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
    fn fills(&mut self, bytes: usize, entries: usize) -> bool {
        self.bytes += bytes + entries * ENTRY_COST;
        self.bytes >= STEP_BYTES
    }

    /// Ends the step under way with what was written last.
    fn end_step(&mut self, written: Timestamp) {
        self.bytes = 0;
        self.steps.push_back(written);
    }

    /// The step that is to be committed before another is begun.
    fn next_wait(&mut self) -> Option<Timestamp> {
        if self.steps.len() < STEPS_AHEAD { None } else { self.steps.pop_front() }
    }
}

/// Holds one operation to the set's pace: whatever it writes goes through here.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Ahead>);

impl Throttle {
    /// Commits a transaction as [`Storage::commit`] does, and notes it.
    pub fn commit(&self, storage: &Storage, transaction: Transaction, durability: Durability) -> Result<OpTime> {
        let ends_step = storage.has_pace() && self.0.lock().fills(transaction.bytes(), transaction.oplog_entries());
        // Nobody else may want the disk of this member; and without it there is no majority.
        let durability = if ends_step && durability == Durability::Applied { Durability::Wanted } else { durability };
        let optime = storage.commit(transaction, durability)?;
        if ends_step {
            self.0.lock().end_step(optime.timestamp);
        }
        Ok(optime)
    }

    /// Waits until the operation may go on writing. To be asked where it holds nothing that others wait for.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait(&self, storage: &Storage, interrupt: &dyn Fn() -> Result<()>) -> Result<()> {
        let next = self.0.lock().next_wait();
        let Some(step) = next else { return Ok(()) };
        storage.flow.await_commit(storage, step, interrupt)
    }
}

impl Storage {
    /// Whether there is a set that commits what is written here, and operations are to wait for it.
    fn has_pace(&self) -> bool {
        self.flow.is_on.load(Ordering::Relaxed) && self.commit_point().is_some()
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

    #[test]
    fn an_operation_is_at_most_so_many_steps_ahead() {
        let mut ahead = Ahead::default();
        let mut unseen = 0_usize;
        for n in 0..10_000 {
            if ahead.fills(1000, 1) {
                ahead.end_step(at(n));
            }
            unseen += 1000 + ENTRY_COST;
            if ahead.next_wait().is_some() {
                // All but what was written since that step.
                unseen = unseen.min(STEPS_AHEAD * (STEP_BYTES + 1000 + ENTRY_COST));
            }
            assert!(unseen <= (STEPS_AHEAD + 1) * (STEP_BYTES + 1000 + ENTRY_COST), "{unseen} at {n}");
        }
        assert!(!ahead.steps.is_empty());
    }

    #[test]
    fn small_operations_never_wait() {
        let mut ahead = Ahead::default();
        for _ in 0..100 {
            assert!(!ahead.fills(500, 1));
            assert_eq!(ahead.next_wait(), None);
        }
    }
}
