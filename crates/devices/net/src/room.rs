//! Room on the processors: for workers, which wait for it, beside those that go before them.
//!
//! Invariants:
//! - A worker begins a turn only if there is a processor for it beside the other workers in a turn, those before it that are served, and those
//!   that have been spoken to; or it has waited for that as long as its patience lasts, after which it begins a few turns without. Who goes
//!   before workers begins when he likes.
//! - No worker that waits is forgotten: whoever makes room for one, and does not take it himself, tells one that waits after he has made it.
//!
//! What it does not do: know who goes before workers (see [`crate::precedence`]), or when a turn begins (see [`crate::pool`]).

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// So many turns a worker begins at once that has waited in vain.
pub(crate) const TURNS_IN_VAIN: u32 = 8;

/// See the file's header.
pub(crate) struct Room {
    processors: usize,
    patience: Duration,
    /// Those that go before workers and are served, and do not wait.
    served: AtomicUsize,
    /// The workers in a turn.
    turns: AtomicUsize,
    /// The workers that wait for a turn.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    made: Condvar,
}

impl Room {
    /// `patience`: how long a worker waits at the most.
    pub fn new(processors: usize, patience: Duration) -> Self {
        let none = || AtomicUsize::new(0);
        let (served, turns, waiting) = (none(), none(), none());
        Self { processors, patience, served, turns, waiting, lock: Mutex::new(()), made: Condvar::new() }
    }

    /// A worker begins a turn, or does what was left undone, whoever else is there.
    pub fn take(&self) {
        self.turns.fetch_add(1, SeqCst);
    }

    /// A worker is about to begin a turn: returns when it may. `in_vain`: the worker's own, and 0 at first. `spoken_to`: how many of those that go
    /// before it have been spoken to, and are not served yet.
    pub fn take_in_turn(&self, in_vain: &mut u32, spoken_to: impl Fn() -> usize) {
        if *in_vain > 0 {
            *in_vain -= 1;
            return self.take();
        }
        if !self.try_take(&spoken_to) && !self.wait(&spoken_to) {
            *in_vain = TURNS_IN_VAIN - 1;
            self.take();
        }
    }

    /// A worker's turn is over. The next one is its own: nobody is told.
    pub fn give_back(&self) {
        self.turns.fetch_sub(1, SeqCst);
    }

    /// The same, and somebody else has the next one.
    pub fn leave(&self) {
        self.give_back();
        self.tell();
    }

    /// One that goes before workers is served from now on.
    pub fn begin_serving(&self) {
        self.served.fetch_add(1, SeqCst);
    }

    /// It is not served any more, or waits.
    pub fn end_serving(&self) {
        self.served.fetch_sub(1, SeqCst);
        self.tell();
    }

    /// There may be room that nobody has made here.
    pub fn tell(&self) {
        if self.waiting.load(SeqCst) > 0 {
            // Whoever has looked already, and does not sleep yet, holds it.
            drop(self.lock.lock());
            self.made.notify_one();
        }
    }

    /// Whether workers wait.
    #[cfg(test)]
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Takes it first and looks then: of two workers that look at once one at the most has it.
    fn try_take(&self, spoken_to: &impl Fn() -> usize) -> bool {
        let taken = self.turns.fetch_add(1, SeqCst) + 1 + self.served.load(SeqCst);
        let has_room = taken <= self.processors && taken + spoken_to() <= self.processors;
        if !has_room {
            self.give_back();
        }
        has_room
    }

    /// Whether the worker has taken it, within its patience.
    fn wait(&self, spoken_to: &impl Fn() -> usize) -> bool {
        let until = Instant::now() + self.patience;
        self.waiting.fetch_add(1, SeqCst);
        let mut guard = self.lock.lock();
        let mut is_taken = self.try_take(spoken_to);
        while !is_taken && !self.made.wait_until(&mut guard, until).timed_out() {
            is_taken = self.try_take(spoken_to);
        }
        drop(guard);
        self.waiting.fetch_sub(1, SeqCst);
        is_taken
    }
}
