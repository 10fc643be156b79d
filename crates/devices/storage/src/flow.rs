//! Flow control: how far one operation's writes may run ahead of what the set has committed.
//!
//! Whoever deletes a third of a table writes faster than the others apply, and everybody else's write then waits for a majority behind
//! all of it. So an operation that writes much stops now and then until a majority has what it wrote before the last step.
//!
//! Beside others the steps are small, so that a small write never waits behind more than a few documents, on no member and on no disk;
//! alone they are large.
//!
//! Invariants: an operation has at most its pace's steps (see [`ALONE`], [`BESIDE_OTHERS`]), and the transaction under way, beyond the
//! commit point, as long as that moves; no wait is longer than [`WAIT_MAX`], and there is none where nothing is committed anyway, or no
//! set is there to do so. What a write means is the same with and without: this delays, and acknowledges nothing. An operation that ends
//! with its first step costs no sync.
//!
//! Who ends a step is known to be under way until the operation ends: leadership is not moved lightly over its head.
//!
//! Source: MongoDB manual, "Flow Control", for the purpose and the name of the switch; the bound by operation is Baton's own.

use crate::commit::Durability;
use crate::storage::Storage;
use crate::transaction::Transaction;
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

/// While nobody else writes.
const ALONE: Pace = Pace { step_bytes: 128 * 1024, steps_ahead: 2 };
/// While others write. What an update of many gains with larger steps, others lose: see docs/spikes/background-writes.md.
const BESIDE_OTHERS: Pace = Pace { step_bytes: 16 * 1024, steps_ahead: 1 };
/// For so many seconds after a write of others an operation is beside them.
const OTHERS_LAST_SECS: u32 = 1;
/// What an entry counts beside its bytes.
const ENTRY_COST: usize = 256;
/// The longest wait for one step: then the operation goes on, by one step.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// A commit point that has not moved for so long sets no pace.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// A killed operation notices within this time.
const SLICE: Duration = Duration::from_millis(10);

/// Operations that have ended a step, by their numbers, each with the time at which it began to write.
#[derive(Debug, Default)]
struct UnderWay(Mutex<BTreeMap<u64, Instant>>);

/// One of them, as long as it lasts.
#[derive(Debug)]
struct Entry {
    under_way: Arc<UnderWay>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.under_way.0.lock().remove(&self.number);
    }
}

impl UnderWay {
    fn enter(self: &Arc<Self>, since: Instant) -> Entry {
        let mut operations = self.0.lock();
        let number = operations.last_key_value().map_or(0, |(last, _)| last + 1);
        operations.insert(number, since);
        Entry { under_way: Arc::clone(self), number }
    }

    fn secs(&self) -> f64 {
        self.0.lock().values().map(|since| since.elapsed().as_secs_f64()).sum()
    }
}

/// The commit point's movement, and what flow control did since the start.
pub(crate) struct FlowControl {
    is_on: AtomicBool,
    moved: Mutex<Instant>,
    has_moved: Condvar,
    watchers: AtomicU64,
    waits: AtomicU64,
    wait_micros: AtomicU64,
    under_way: Arc<UnderWay>,
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
            under_way: Arc::default(),
        }
    }
}

impl FlowControl {
    /// Seconds that clients' operations which have ended a step have taken, together.
    pub fn under_way_secs(&self) -> f64 {
        self.under_way.secs()
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
    /// Entries of the log since `ended`.
    entries: usize,
    /// Where the last step ended.
    ended: Option<Timestamp>,
    /// The second in which others were last seen to write.
    others_at_secs: Option<u32>,
    /// Whether a step has shown if there are others; until then there may be.
    is_known: bool,
}

impl Ahead {
    fn pace(&self) -> Pace {
        let are_others_there = match (self.is_known, self.ended, self.others_at_secs) {
            (false, ..) => true,
            (true, Some(ended), Some(others)) => ended.seconds <= others + OTHERS_LAST_SECS,
            (true, ..) => false,
        };
        if are_others_there { BESIDE_OTHERS } else { ALONE }
    }

    /// Whether the step is full with what is about to be written, so that a majority is to have it soon.
    fn fills(&mut self, bytes: usize, entries: usize) -> bool {
        self.bytes += bytes + entries * ENTRY_COST;
        self.entries += entries;
        self.bytes >= self.pace().step_bytes
    }

    /// Ends the step under way with what was written last.
    fn end_step(&mut self, written: Timestamp) {
        // Within a second entries are numbered without gaps: what is not this operation's is others'.
        if let Some(ended) = self.ended.filter(|ended| ended.seconds == written.seconds) {
            self.is_known = true;
            if (written.increment.saturating_sub(ended.increment) as usize) > self.entries {
                self.others_at_secs = Some(written.seconds);
            }
        }
        (self.bytes, self.entries, self.ended) = (0, 0, Some(written));
        self.steps.push_back(written);
    }

    /// Whether a step is to be committed before another is begun.
    fn is_due(&self) -> bool {
        self.steps.len() >= self.pace().steps_ahead
    }

    /// The step that is to be committed before another is begun. Those before it are committed with it.
    fn next_wait(&mut self) -> Option<Timestamp> {
        let surplus = (self.steps.len() + 1).saturating_sub(self.pace().steps_ahead);
        self.steps.drain(..surplus).next_back()
    }
}

/// Holds one operation to the set's pace: whatever it writes goes through here.
#[derive(Debug)]
pub struct Throttle {
    ahead: Mutex<Ahead>,
    /// When it began; not if it is the member's own, which goes on by itself wherever it was ended.
    since: Option<Instant>,
    entry: OnceLock<Entry>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { ahead: Mutex::default(), since: Some(Instant::now()), entry: OnceLock::new() }
    }
}

impl Throttle {
    /// For what the member does by itself, and no client waits for.
    pub fn of_member() -> Self {
        Self { since: None, ..Self::default() }
    }

    /// Commits a transaction as [`Storage::commit`] does, and notes it.
    pub fn commit(&self, storage: &Storage, transaction: Transaction, durability: Durability) -> Result<OpTime> {
        let (ends_step, is_synced_early) = if storage.has_pace() {
            let mut ahead = self.ahead.lock();
            (ahead.fills(transaction.bytes(), transaction.oplog_entries()), ahead.pace().steps_ahead > 1)
        } else {
            (false, false)
        };
        // Nobody else may want the disk of this member; and without it there is no majority. Where the next step waits for this one,
        // `wait` asks for the sync.
        let wants_sync = ends_step && is_synced_early && durability == Durability::Applied;
        let durability = if wants_sync { Durability::Wanted } else { durability };
        let optime = storage.commit(transaction, durability)?;
        if ends_step {
            self.ahead.lock().end_step(optime.timestamp);
            if let Some(since) = self.since {
                self.entry.get_or_init(|| storage.flow.under_way.enter(since));
            }
        }
        Ok(optime)
    }

    /// How large a transaction should be, in bytes, so that it is no more than a step.
    pub fn transaction_bytes(&self, storage: &Storage) -> usize {
        if storage.has_pace() { self.ahead.lock().pace().step_bytes } else { usize::MAX }
    }

    /// Whether [`Self::wait`] is to be called first: whoever holds something that others wait for gives it back.
    pub fn is_due(&self) -> bool {
        self.ahead.lock().is_due()
    }

    /// Waits until the operation may go on writing. To be asked where it holds nothing that others wait for.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait(&self, storage: &Storage, interrupt: &dyn Fn() -> Result<()>) -> Result<()> {
        let next = self.ahead.lock().next_wait();
        let Some(step) = next else { return Ok(()) };
        if storage.commit_point().is_some_and(|committed| committed < step) {
            storage.queue().settle(Durability::Wanted);
        }
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

    /// Writes documents of a kilobyte, waits as it is told to, and gives the most that was ever unseen, in bytes. `others` says how many
    /// entries of others come before each.
    fn unseen_max(asks_every: u32, others: impl Fn(u32) -> u32) -> (Ahead, usize) {
        let (mut ahead, mut written, mut increment, mut seen, mut unseen_max) = (Ahead::default(), Vec::new(), 0, 0, 0);
        for n in 0..10_000 {
            increment += others(n) + 1;
            written.push(increment);
            if ahead.fills(1000, 1) {
                ahead.end_step(at(increment));
            }
            let unseen = written.iter().rev().take_while(|at| **at > seen).count() * (1000 + ENTRY_COST);
            unseen_max = unseen_max.max(unseen);
            if n % asks_every == 0
                && let Some(step) = ahead.next_wait()
            {
                seen = step.increment;
            }
        }
        (ahead, unseen_max)
    }

    const ONE: usize = 1000 + ENTRY_COST;

    #[test]
    fn an_operation_is_at_most_so_many_steps_ahead() {
        let (ahead, unseen) = unseen_max(1, |_| 0);
        assert_eq!(ahead.pace(), ALONE);
        assert!(unseen <= ALONE.steps_ahead * (ALONE.step_bytes + ONE), "{unseen}");
        assert!(unseen > ALONE.step_bytes, "{unseen}");
    }

    #[test]
    fn who_asks_seldom_waits_for_the_last_of_the_steps_that_ended_meanwhile() {
        let (_, unseen) = unseen_max(200, |_| 0);
        assert!(unseen <= ALONE.steps_ahead * (ALONE.step_bytes + ONE) + 200 * ONE, "{unseen}");
    }

    #[test]
    fn beside_others_the_steps_are_small() {
        let (ahead, unseen) = unseen_max(1, |n| u32::from(n % 10 == 0));
        assert_eq!(ahead.pace(), BESIDE_OTHERS);
        assert!(unseen <= BESIDE_OTHERS.steps_ahead * (BESIDE_OTHERS.step_bytes + ONE), "{unseen}");
    }

    #[test]
    fn a_while_after_the_last_write_of_others_they_are_large_again() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.pace(), BESIDE_OTHERS, "nothing is known yet");
        for (increment, entries) in [(10, 10), (30, 10)] {
            ahead.fills(0, entries);
            ahead.end_step(at(increment));
        }
        assert_eq!(ahead.pace(), BESIDE_OTHERS, "ten entries were of others");
        for (seconds, pace) in [(2, BESIDE_OTHERS), (3, ALONE)] {
            ahead.end_step(Timestamp { seconds, increment: 1 });
            assert_eq!(ahead.pace(), pace);
        }
    }

    #[test]
    fn who_is_under_way_counts_until_it_ends_with_all_the_time_since_its_beginning() {
        let under_way = Arc::new(UnderWay::default());
        let minute_ago = Instant::now().checked_sub(Duration::from_secs(60)).expect("this machine runs for a minute");
        let (one, other) = (under_way.enter(minute_ago), under_way.enter(minute_ago));
        assert!((120.0..130.0).contains(&under_way.secs()));
        drop(one);
        let third = under_way.enter(Instant::now());
        assert!((60.0..65.0).contains(&under_way.secs()));
        drop((other, third));
        assert_eq!(under_way.secs(), 0.0);
    }

    #[test]
    fn small_operations_never_wait() {
        let mut ahead = Ahead::default();
        for _ in 0..20 {
            assert!(!ahead.fills(500, 1));
            assert_eq!(ahead.next_wait(), None);
        }
    }
}
