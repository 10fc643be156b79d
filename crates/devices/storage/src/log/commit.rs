//! The commit queue: the one place where OpTimes are given out and where anything reaches RocksDB.
//!
//! A committing thread puts its transaction into the queue. If nobody is writing, it leads: it takes everything that
//! waits, gives out OpTimes, and writes one `WriteBatch`, and for a moment more if others came meanwhile; else it sleeps
//! until a leader is done with it, or makes it the next leader; or it leaves what is to be done then with the queue and goes
//! ([`Placed::leave`]), and is not woken at all. Whoever wants durability waits further for a sync, and
//! one sync serves all that were written before it began. A lone writer therefore pays neither a hand-off nor a wake-up,
//! and sixty-four share one sync. (docs/spikes/replies.md)
//!
//! Invariants:
//! - At most one thread writes, and at most one syncs. A thread may write while another syncs: what it writes waits for
//!   the next sync, which begins when this one ends.
//! - OpTimes are given out by the writing thread alone, in the order of the batch: order of OpTimes is order of commit,
//!   and a reader that sees an entry sees all before it. Entries that another member logged bring theirs along; who
//!   applies them brings them in order, while this member's own are refused ([`gate`]).
//! - `durable` never exceeds `applied`; a durable commit returns only when `durable` has reached its OpTime.
//! - What waits is written, and what wants a sync gets one: whoever led last sees to the next, by a committing thread that waits for it,
//!   by the thread that is there for that ([`CommitQueue::serve_writes`], [`CommitQueue::serve_syncs`]), or by itself.
//! - A thread that panics in the queue ends the process: what it led would be led by nobody.
//! - Locks of a transaction are released once it is applied, not once it is durable: whoever reads the new value and
//!   asks for durability is synced with it, because the log is one sequence. For the same reason a document's lock may be
//!   handed on once the transaction is in the queue; who gets it reads the new value from [`crate::documents::in_flight`].

mod gate;
mod group;
mod lead;
mod leading;
mod newest;
mod outstanding;
mod placing;
mod roles;
mod stamps;
mod state;
mod terms;
mod urgency;
mod waiter;

pub use gate::WriteGate;
pub use newest::SharedEntry;
pub use urgency::Urgency;
pub use waiter::{Placed, Then};

use crate::background::lately::Lately;
use crate::documents::in_flight::InFlight;
use crate::documents::record_cache::RecordCache;
use crate::documents::transaction::Transaction;
use crate::log::file::LogFile;
use ahash::RandomState;
use baton_machine::LendingMutex;
use baton_types::{Class, OpTime, Timestamp};
use newest::NewestEntries;
use outstanding::Outstanding;
use parking_lot::{Condvar, Mutex};
use rust_rocksdb::{DB, WriteOptions};
use stamps::Stamps;
pub(crate) use stamps::{KeptStamps, StampTeller};
use state::State;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terms::Terms;
use waiter::Waiter;

/// When a commit may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When others can read it (`w: 1`). A crash of the process loses nothing; a crash of the machine may.
    Applied,
    /// As `Applied`, with a sync begun or asked for: whoever waits until a majority has it (`w: "majority"` of several members) is
    /// told of this member's disk with the others'.
    Wanted,
    /// When it would survive the loss of power (`j: true`, and `w: "majority"` of a set with one member).
    Synced,
}

/// Figures of the queue since the start, for serverStatus.
#[derive(Debug, Default)]
pub struct CommitMetrics {
    /// Batches written.
    pub batches: AtomicU64,
    /// Transactions in them.
    pub transactions: AtomicU64,
    /// Syncs of the log.
    pub syncs: AtomicU64,
    /// Nanoseconds spent in those syncs.
    pub sync_nanos: AtomicU64,
    /// When the sync under way began, in nanoseconds since the queue was made; 0: none is.
    sync_began: AtomicU64,
    /// Nanoseconds spent writing batches.
    pub write_nanos: AtomicU64,
}

/// Told that the durable position has advanced.
pub type ProgressListener = Box<dyn Fn() + Send + Sync>;

/// See the file's header.
pub struct CommitQueue {
    db: Arc<DB>,
    log: Arc<LogFile>,
    in_flight: Arc<InFlight>,
    record_cache: Arc<RecordCache>,
    state: LendingMutex<State>,
    /// How many of high class stand in the queue, for a leader who has something else to do.
    urgent: AtomicUsize,
    /// Signalled when the gate in the state turns.
    gate_turned: Condvar,
    /// Signalled when the writer in the state is called, and when the syncer is.
    writer_called: Condvar,
    syncer_called: Condvar,
    /// Own entries are left out.
    is_unlogged: AtomicBool,
    /// The term of this member's own entries.
    own_term: AtomicI64,
    terms: Terms,
    stamps: Stamps,
    newest: NewestEntries,
    urgency: Urgency,
    outstanding: Outstanding,
    /// Last OpTime's timestamp given out and readable.
    applied: AtomicU64,
    durable: AtomicU64,
    /// Highest cluster time heard of; OpTimes exceed it.
    floor: AtomicU64,
    /// Signalled after each batch, for tailing readers of the oplog, and after each sync, for majority readers.
    advanced: Condvar,
    advanced_lock: Mutex<()>,
    /// Threads waiting on `advanced`, so that a commit without any pays no lock.
    watchers: AtomicU64,
    progress: OnceLock<ProgressListener>,
    write_options: WriteOptions,
    truncations: AtomicU64,
    /// Names this process's batches in the log: see [`crate::log::check::Mark`].
    boot: u64,
    batches_written: AtomicU64,
    /// Of them those up to this one are synced.
    batches_synced: AtomicU64,
    /// Written since the last sync began; and at how many parts of it was looked whether that is to be synced.
    unsynced_bytes: AtomicUsize,
    unsynced_parts_seen: AtomicUsize,
    /// When somebody last wanted a sync.
    sync_wanted: Lately,
    /// Size at which a family's memtable is full.
    memtable_bytes: usize,
    made: Instant,
    /// What the queue did since the start.
    pub metrics: CommitMetrics,
    /// Stands for the own transaction of one who leads for others alone, and makes the sync that they wait for.
    nobodys: Arc<Waiter>,
}

impl CommitQueue {
    /// A queue whose next OpTime follows `last`, which is on disk. `stamps`: what a rollback kept. `memtable_bytes`: of one family.
    pub(crate) fn new(
        db: Arc<DB>,
        log: Arc<LogFile>,
        in_flight: Arc<InFlight>,
        record_cache: Arc<RecordCache>,
        last: OpTime,
        stamps: KeptStamps,
        memtable_bytes: usize,
    ) -> Self {
        let mut write_options = WriteOptions::default();
        write_options.set_sync(false);
        let term = last.term.max(1);
        Self {
            db,
            log,
            in_flight,
            record_cache,
            state: LendingMutex::new(State::new(WriteGate::Open { term })),
            urgent: AtomicUsize::new(0),
            gate_turned: Condvar::new(),
            writer_called: Condvar::new(),
            syncer_called: Condvar::new(),
            is_unlogged: AtomicBool::new(false),
            own_term: AtomicI64::new(term),
            terms: Terms::new(last),
            stamps: Stamps::new(last.timestamp.as_u64(), stamps),
            newest: NewestEntries::new(last.timestamp.as_u64()),
            urgency: Urgency::default(),
            outstanding: Outstanding::default(),
            applied: AtomicU64::new(last.timestamp.as_u64()),
            durable: AtomicU64::new(last.timestamp.as_u64()),
            floor: AtomicU64::new(0),
            advanced: Condvar::new(),
            advanced_lock: Mutex::new(()),
            watchers: AtomicU64::new(0),
            progress: OnceLock::new(),
            write_options,
            boot: RandomState::new().hash_one(std::process::id()),
            batches_written: AtomicU64::new(0),
            truncations: AtomicU64::new(0),
            batches_synced: AtomicU64::new(0),
            unsynced_bytes: AtomicUsize::new(0),
            unsynced_parts_seen: AtomicUsize::new(0),
            sync_wanted: Lately::default(),
            memtable_bytes,
            made: Instant::now(),
            metrics: CommitMetrics::default(),
            nobodys: Waiter::new(Transaction::empty(), Durability::Synced),
        }
    }

    /// The last OpTime that readers see.
    pub fn applied(&self) -> OpTime {
        self.terms.position(self.applied.load(Ordering::Acquire))
    }

    /// The last OpTime known to be on disk.
    pub fn durable(&self) -> OpTime {
        self.terms.position(self.durable.load(Ordering::Acquire))
    }

    /// Names who is told whenever the durable position advances: called by the thread that synced, which holds no lock but
    /// writes or syncs nothing more until it is back. What is applied will be durable soon, and is told of then. There can be one.
    pub fn on_progress(&self, listener: ProgressListener) {
        assert!(self.progress.set(listener).is_ok(), "one listener hears of progress");
    }

    /// From now on nothing that this member writes by itself is logged: its log is the set's that its data belong to, and it runs
    /// without that set.
    pub fn leave_log_alone(&self) {
        self.is_unlogged.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::leave_log_alone`] was called.
    pub fn leaves_log_alone(&self) -> bool {
        self.is_unlogged.load(Ordering::Relaxed)
    }

    /// From this timestamp on, the stamps of versions are their entries' timestamps; see [`stamps`].
    pub(crate) fn stamps_settle_at(&self) -> u64 {
        self.stamps.settle_at()
    }

    /// Tells the stamps of the log's entries, in their order, after [`Self::stamps_needed_from`] or from any later one that has been
    /// committed.
    pub(crate) fn stamp_teller(&self) -> StampTeller {
        self.stamps.teller()
    }

    /// The timestamp after which the log is needed to tell the stamps of entries that come after `committed`.
    pub(crate) fn stamps_needed_from(&self, committed: u64) -> Option<u64> {
        self.stamps.needed_from(committed)
    }

    /// The highest stamp that any version has.
    pub(crate) fn highest_stamp(&self) -> u64 {
        self.stamps.highest()
    }

    /// For how long the sync under way has lasted.
    pub(crate) fn syncs_since(&self) -> Option<Duration> {
        let began = self.metrics.sync_began.load(Ordering::Relaxed);
        (began > 0).then(|| self.made.elapsed().saturating_sub(Duration::from_nanos(began)))
    }

    fn tell_progress(&self) {
        if let Some(listener) = self.progress.get() {
            listener();
        }
    }

    /// Hears of a cluster time: OpTimes given out from now on exceed it.
    pub fn advance_floor(&self, to: Timestamp) {
        self.floor.fetch_max(to.as_u64(), Ordering::Relaxed);
    }

    /// The highest cluster time known: the last OpTime's, or one heard of.
    pub fn cluster_time(&self) -> Timestamp {
        Timestamp::from_u64(self.applied.load(Ordering::Acquire).max(self.floor.load(Ordering::Relaxed)))
    }

    /// Makes everything that was applied before the call as safe as that.
    pub fn settle(&self, durability: Durability) {
        match durability {
            Durability::Applied => {}
            Durability::Wanted => {
                self.commit_unasked(Transaction::empty(), Durability::Wanted);
            }
            Durability::Synced => {
                self.sync();
            }
        }
    }

    /// Waits until everything applied before the call is durable.
    pub fn sync(&self) -> OpTime {
        let target = self.applied.load(Ordering::Acquire);
        if self.durable.load(Ordering::Acquire) < target {
            self.commit_unasked(Transaction::empty(), Durability::Synced);
        }
        self.terms.position(target)
    }

    /// Has what is applied by now synced, beside what comes next: nobody waits for that here.
    pub fn want_sync(&self) {
        if self.durable.load(Ordering::Acquire) < self.applied.load(Ordering::Acquire) {
            self.ask_for_sync(self.urgency.class());
        }
    }

    /// Waits until everything up to `optime` is durable, if that was applied here.
    pub fn sync_until(&self, optime: OpTime) {
        if self.durable() < optime {
            self.sync();
        }
    }

    /// Sets the positions back after a truncation of the log. Nobody syncs a position that is gone: see [`Self::lead_sync`].
    fn go_back_to(&self, applied: u64) {
        let _state = self.state.lock();
        self.applied.store(applied, Ordering::SeqCst);
        self.durable.fetch_min(applied, Ordering::AcqRel);
        self.truncations.fetch_add(1, Ordering::SeqCst);
    }

    /// How often the log's end was cut off: whoever has read it and finds this changed may have read what is gone. Nothing is put
    /// in its place before it has changed.
    pub fn truncations(&self) -> u64 {
        self.truncations.load(Ordering::SeqCst)
    }

    /// Somebody follows the log from now on, until [`Self::unfollow`]: its newest entries are kept for [`Self::newest_entries`].
    pub(crate) fn follow(&self) {
        self.newest.follow();
    }

    pub(crate) fn unfollow(&self) {
        self.newest.leave();
    }

    /// The first of the readable entries from that timestamp on, with theirs; empty if there are none, `None` if some of them may
    /// be on disk only. As with what is read there, whoever finds [`Self::truncations`] changed afterwards may have missed some.
    pub fn newest_entries(&self, from: Timestamp) -> Option<Vec<(u64, SharedEntry)>> {
        let applied = self.applied.load(Ordering::SeqCst);
        self.newest.range(from.as_u64(), applied)
    }

    /// The set has committed all up to there.
    pub(crate) fn note_committed(&self, until: Timestamp) {
        self.outstanding.committed(until.as_u64());
    }

    /// Bytes of the log's entries that no majority has, if somebody follows it: of this class and of higher ones, the urgent left out.
    pub(crate) fn outstanding_bytes_before(&self, class: Class) -> usize {
        self.outstanding.bytes_before(class)
    }

    /// The urgent entries of the log.
    pub fn urgency(&self) -> &Urgency {
        &self.urgency
    }

    fn announce(&self) {
        if self.watchers.load(Ordering::SeqCst) > 0 {
            let _guard = self.advanced_lock.lock();
            self.advanced.notify_all();
        }
    }

    /// Waits until something beyond `seen` is applied, or the deadline; tells whether there is.
    pub fn wait_applied_beyond(&self, seen: Timestamp, timeout: Duration) -> bool {
        self.wait_until(timeout, || self.applied.load(Ordering::Acquire) > seen.as_u64())
    }

    fn wait_until(&self, timeout: Duration, reached: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.advanced_lock.lock();
        let mut there = reached();
        while !there && !self.advanced.wait_until(&mut guard, deadline).timed_out() {
            there = reached();
        }
        drop(guard);
        self.watchers.fetch_sub(1, Ordering::SeqCst);
        there || reached()
    }
}

/// Milliseconds since 1970 by this machine's clock.
pub fn wall_clock_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
