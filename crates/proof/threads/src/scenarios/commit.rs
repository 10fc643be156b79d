// The commit queue over a log of memory, and what it is put through.

use crate::shuttled::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use crate::shuttled::machine::{Bearer, LendingMutex};
use crate::shuttled::parking_lot::{Condvar, Mutex};
use crate::shuttled::time::{Duration, Instant};
pub use gate::WriteGate;
use state::State;
use std::sync::Arc;
use types::{Class, ErrorCode, OpTime, Timestamp};
use waiter::Waiter;

pub mod types {
    pub use baton_types::*;

    /// A panic is a fault that is found: nobody is left behind.
    pub fn must_not_unwind(_: &str) {}
}

pub mod machine {
    pub fn stop_by_disk(_: &str, _: &str) -> ! {
        panic!("the log cannot be written")
    }
}

pub mod author {
    pub struct Author;

    impl Author {
        pub fn note(&self, _: super::OpTime) {}
    }
}

pub mod documents {
    pub mod locks {
        #[derive(Default)]
        pub struct LockSet;

        impl LockSet {
            pub fn release(&mut self) {}
        }
    }

    pub mod transaction {
        use super::super::types::Class;

        pub struct Ticket {
            pub builds_on_another: bool,
        }

        /// Changes nothing, but for the log's length.
        pub struct Transaction {
            pub class: Class,
            pub in_flight: Option<Ticket>,
            pub locks: super::locks::LockSet,
            pub is_replicated: bool,
            pub is_own: bool,
        }

        impl Default for Transaction {
            fn default() -> Self {
                Self {
                    class: Class::Normal,
                    in_flight: None,
                    locks: Default::default(),
                    is_replicated: false,
                    is_own: false,
                }
            }
        }

        impl Transaction {
            pub fn empty() -> Self {
                Self::default()
            }

            pub fn bytes(&self) -> usize {
                100_000
            }

            pub fn has_own_entries(&self) -> bool {
                self.is_own
            }

            pub fn forget_entries(&mut self) {
                self.is_own = false;
            }
        }
    }
}

use documents::transaction::{Ticket, Transaction};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Applied,
    Wanted,
    Synced,
}

#[derive(Default)]
struct Metrics {
    write_nanos: AtomicU64,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
    sync_began: AtomicU64,
}

struct InFlight;

impl InFlight {
    fn remove(&self, _: &Ticket) {}
}

/// The log: how much of it there is, and how much of that is synced.
#[derive(Default)]
struct Log {
    written: AtomicU64,
    synced: AtomicU64,
    is_written: AtomicBool,
    is_synced: AtomicBool,
}

impl Log {
    fn write(&self) -> u64 {
        assert!(!self.is_written.swap(true, Ordering::SeqCst), "two threads write");
        let at = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        self.is_written.store(false, Ordering::SeqCst);
        at
    }

    fn sync(&self) -> Result<(), &'static str> {
        assert!(!self.is_synced.swap(true, Ordering::SeqCst), "two threads sync");
        let written = self.written.load(Ordering::SeqCst);
        shuttle::thread::yield_now();
        self.synced.store(written, Ordering::SeqCst);
        self.is_synced.store(false, Ordering::SeqCst);
        Ok(())
    }
}

pub struct CommitQueue {
    log: Log,
    in_flight: InFlight,
    state: LendingMutex<State>,
    urgent: AtomicUsize,
    gate_turned: Condvar,
    writer_called: Condvar,
    syncer_called: Condvar,
    is_unlogged: AtomicBool,
    own_term: AtomicI64,
    applied: AtomicU64,
    durable: AtomicU64,
    batches_written: AtomicU64,
    batches_synced: AtomicU64,
    unsynced_bytes: AtomicUsize,
    unsynced_parts_seen: AtomicUsize,
    made: Instant,
    metrics: Metrics,
    /// Nothing of this member's own is to be written from now on.
    is_closed: AtomicBool,
    nobodys: Arc<waiter::Waiter>,
}

fn position(at: u64) -> OpTime {
    OpTime { term: 1, timestamp: Timestamp::from_u64(at) }
}

impl CommitQueue {
    fn with_gate(gate: WriteGate) -> Arc<Self> {
        Arc::new(Self {
            log: Log::default(),
            in_flight: InFlight,
            state: LendingMutex::new(State::new(gate)),
            urgent: AtomicUsize::new(0),
            gate_turned: Condvar::new(),
            writer_called: Condvar::new(),
            syncer_called: Condvar::new(),
            is_unlogged: AtomicBool::new(false),
            own_term: AtomicI64::new(1),
            applied: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            batches_written: AtomicU64::new(0),
            batches_synced: AtomicU64::new(0),
            unsynced_bytes: AtomicUsize::new(0),
            unsynced_parts_seen: AtomicUsize::new(0),
            made: Instant::now(),
            metrics: Metrics::default(),
            is_closed: AtomicBool::new(false),
            nobodys: waiter::Waiter::new(Transaction::empty(), Synced),
        })
    }

    fn applied(&self) -> OpTime {
        position(self.applied.load(Ordering::SeqCst))
    }

    fn announce(&self) {}

    fn note_wanted_sync(&self, _: Instant) {}

    fn syncs_by_itself(&self, _: Instant) -> bool {
        true
    }

    fn tell_progress(&self) {
        let (durable, synced) = (self.durable.load(Ordering::SeqCst), self.log.synced.load(Ordering::SeqCst));
        assert!(durable <= synced, "{durable} is called durable, and {synced} is synced");
    }

    fn write_group(&self, group: &[Arc<Waiter>]) {
        for waiter in group {
            let transaction = waiter.transaction.lock().take().expect("it is written once");
            self.unsynced_bytes.fetch_add(transaction.bytes(), Ordering::SeqCst);
            assert!(!(transaction.is_own && self.is_closed.load(Ordering::SeqCst)), "written behind a closed gate");
            waiter.set_optime(position(self.log.write()));
        }
        self.applied.store(self.log.written.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// What has come back with this OpTime is as safe as was asked for.
    fn judge(&self, optime: OpTime, durability: Durability) {
        assert!(optime <= self.applied(), "told before it is applied");
        let synced = position(self.log.synced.load(Ordering::SeqCst));
        assert!(durability != Synced || optime <= synced, "told before it is synced");
    }
}

/// How a committing thread goes about it.
#[derive(Clone, Copy)]
enum Way {
    Commit,
    Wait,
    Leave,
    LeaveToOthers,
}

use Durability::{Applied, Synced, Wanted};
use Way::{Commit, Leave, LeaveToOthers, Wait};

/// Commits; how often that was told in the end is counted.
fn commits(queue: &Arc<CommitQueue>, way: Way, durability: Durability, class: Class, told: &Arc<AtomicUsize>) {
    let ticket = Ticket { builds_on_another: false };
    let transaction = Transaction { class, in_flight: Some(ticket), ..Transaction::default() };
    let (of, told) = (Arc::clone(queue), Arc::clone(told));
    let ends = move |optime| {
        of.judge(optime, durability);
        told.fetch_add(1, Ordering::SeqCst);
    };
    if let Commit = way {
        return ends(queue.commit_unasked(transaction, durability));
    }
    let placed = queue.place(transaction, durability, Default::default()).unwrap();
    match way {
        Leave => placed.leave(Box::new(ends)),
        LeaveToOthers => placed.leave_to_others(Box::new(ends)),
        _ => ends(placed.wait()),
    }
}

/// Has them all commit at once, each on a thread; every one is told once.
fn all_commit(queue: &Arc<CommitQueue>, ways: &[(Way, Durability, Class)]) {
    let told = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = ways
        .iter()
        .map(|(way, durability, class)| {
            let (queue, told, way, durability, class) =
                (Arc::clone(queue), Arc::clone(&told), *way, *durability, *class);
            shuttle::thread::spawn(move || commits(&queue, way, durability, class, &told))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // What was left may be with one who helps.
    while queue.state.lock().write_helper.is_some() && told.load(Ordering::SeqCst) < ways.len() {
        shuttle::thread::yield_now();
    }
    assert_eq!(told.load(Ordering::SeqCst), ways.len(), "everybody is told once");
    let state = queue.state.lock();
    assert!(state.pending.is_empty() && state.awaiting_sync.is_empty(), "something is left in the queue");
    assert_eq!(queue.urgent.load(Ordering::SeqCst), 0, "urgent ones are counted off");
}

/// Threads that commit, and wait or leave, and nobody who helps them.
pub fn everybody_is_served() {
    crate::shuttled::time::begin(false);
    let queue = CommitQueue::with_gate(WriteGate::Open { term: 1 });
    let ways = [
        (Commit, Applied, Class::Normal),
        (Leave, Synced, Class::Low),
        (Wait, Synced, Class::High),
        (Leave, Applied, Class::High),
    ];
    all_commit(&queue, &ways);
    let state = queue.state.lock();
    assert!(!state.roles.writing && !state.roles.syncing, "the lead is taken, and nobody leads");
}

/// Two who leave several each, and lead what was left when they have; one waits beside them.
pub fn several_are_left_in_a_row() {
    crate::shuttled::time::begin(false);
    let queue = CommitQueue::with_gate(WriteGate::Open { term: 1 });
    let told = Arc::new(AtomicUsize::new(0));
    let rows = [[(LeaveToOthers, Synced), (LeaveToOthers, Applied)], [(LeaveToOthers, Applied), (Commit, Synced)]];
    let threads = rows.map(|row| {
        let (queue, told) = (Arc::clone(&queue), Arc::clone(&told));
        shuttle::thread::spawn(move || {
            for (way, durability) in row {
                commits(&queue, way, durability, Class::Normal, &told);
            }
            queue.lead_what_was_left();
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(told.load(Ordering::SeqCst), 4, "everybody is told once");
    let state = queue.state.lock();
    assert!(state.pending.is_empty() && state.awaiting_sync.is_empty(), "something is left in the queue");
    assert!(!state.roles.writing && !state.roles.syncing, "the lead is taken, and nobody leads");
}

/// All leave at once, and those who help are there only now and then: what is wanted to be synced is in the end.
pub fn helpers_come_and_go() {
    crate::shuttled::time::begin(true);
    let queue = CommitQueue::with_gate(WriteGate::Open { term: 1 });
    let is_over = Arc::new(AtomicBool::new(false));
    let helps = [CommitQueue::serve_writes, CommitQueue::serve_syncs].map(|serve| {
        let (queue, is_over) = (Arc::clone(&queue), Arc::clone(&is_over));
        shuttle::thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                serve(&queue, Duration::from_millis(10));
            }
        })
    });
    all_commit(&queue, &[(Leave, Wanted, Class::Normal), (Leave, Applied, Class::Low), (Commit, Wanted, Class::High)]);
    // Of what only has to be applied nobody is told that it is synced.
    while queue.durable.load(Ordering::SeqCst) == 0 || queue.state.lock().roles.is_sync_wanted {
        shuttle::thread::yield_now();
    }
    // Who asks for a sync has all that is applied by then synced.
    queue.ask_for_sync(Class::Normal);
    while queue.durable.load(Ordering::SeqCst) < queue.applied.load(Ordering::SeqCst) {
        shuttle::thread::yield_now();
    }
    is_over.store(true, Ordering::SeqCst);
    helps.into_iter().for_each(|thread| thread.join().unwrap());
}

fn writes_own(queue: &Arc<CommitQueue>) -> shuttle::thread::JoinHandle<bool> {
    let queue = Arc::clone(queue);
    shuttle::thread::spawn(move || {
        let transaction = Transaction { is_own: true, ..Transaction::default() };
        match queue.commit(transaction, Synced, Default::default(), None) {
            Ok(optime) => {
                queue.judge(optime, Synced);
                true
            }
            Err(error) => {
                assert_eq!(error.code, ErrorCode::NotWritablePrimary);
                false
            }
        }
    })
}

/// Leadership is handed over while some write: what is written was let in before, and everybody is told.
pub fn the_gate_closes() {
    crate::shuttled::time::begin(false);
    let queue = CommitQueue::with_gate(WriteGate::Open { term: 1 });
    let writers = [writes_own(&queue), writes_own(&queue)];
    queue.block_writes();
    queue.close_and_keep();
    queue.is_closed.store(true, Ordering::SeqCst);
    queue.refuse_kept();
    let written = writers.into_iter().map(|writer| writer.join().unwrap()).filter(|is_written| *is_written).count();
    assert!(written as u64 <= queue.log.written.load(Ordering::SeqCst));
}

/// The same without a word before.
pub fn the_gate_closes_at_once() {
    crate::shuttled::time::begin(false);
    let queue = CommitQueue::with_gate(WriteGate::Open { term: 1 });
    let writers = [writes_own(&queue), writes_own(&queue)];
    queue.close_and_keep();
    queue.is_closed.store(true, Ordering::SeqCst);
    queue.refuse_kept();
    for writer in writers {
        writer.join().unwrap();
    }
}

/// It fails, and this member goes on: nobody is refused.
pub fn the_gate_opens_again() {
    crate::shuttled::time::begin(false);
    let queue = CommitQueue::with_gate(WriteGate::Open { term: 1 });
    let writers = [writes_own(&queue), writes_own(&queue)];
    queue.block_writes();
    queue.unblock_writes();
    assert!(writers.into_iter().all(|writer| writer.join().unwrap()), "nobody is refused");
}

pub const SCENARIOS: &[(&str, fn())] = &[
    ("everybody_is_served", everybody_is_served),
    ("several_are_left_in_a_row", several_are_left_in_a_row),
    ("helpers_come_and_go", helpers_come_and_go),
    ("the_gate_closes", the_gate_closes),
    ("the_gate_closes_at_once", the_gate_closes_at_once),
    ("the_gate_opens_again", the_gate_opens_again),
];
