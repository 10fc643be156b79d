//! The watch: one thread that relieves workers that are long at one turn, and has those connections rest whose clients are silent.
//!
//! Invariant: while anybody works it looks every two milliseconds; it sleeps only when all workers wait and nobody may fall silent before it
//! wakes.
//!
//! Source: `sysmon` of Go's scheduler.

use super::Pool;
use baton_types::must_not_unwind;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tracing::warn;

/// How often the watch looks, while somebody works; a turn that it sees twice takes long.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// After so many looks at which nobody worked it sleeps.
const IDLE_LOOKS_MAX: u32 = 10;
/// How long it sleeps where nobody is left that could fall silent.
const ALL_REST_WAIT: Duration = Duration::from_secs(3600);
/// How often the log says that no thread can be started.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The watch's sleep.
#[derive(Default)]
pub(super) struct Watch {
    /// Whether it sleeps until somebody works.
    asleep: AtomicBool,
    called: Mutex<bool>,
    call: Condvar,
}

impl Watch {
    /// Somebody works, or may fall silent.
    pub fn wake(&self) {
        if self.asleep.load(SeqCst) && self.asleep.swap(false, SeqCst) {
            *self.called.lock() = true;
            self.call.notify_one();
        }
    }
}

impl Pool {
    /// Work of the watch, until the workers are to end.
    pub fn keep_watch(self: &Arc<Self>) {
        let _guard = must_not_unwind("watching those who serve connections");
        let (mut idle_looks, mut swept, mut warned) = (0, Instant::now(), None::<Instant>);
        while !self.is_over.load(SeqCst) {
            let is_busy = self.look();
            if self.staff.is_short() {
                self.hire();
                if self.staff.is_short() && warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                    warned = Some(Instant::now());
                    say_no_thread();
                }
            }
            self.call_idle();
            if swept.elapsed() >= self.silence {
                swept = Instant::now();
                self.sweep();
            }
            idle_looks = if is_busy { 0 } else { idle_looks + 1 };
            if idle_looks < IDLE_LOOKS_MAX {
                std::thread::sleep(LOOK_EVERY.min(self.silence));
            } else {
                self.sleep();
            }
        }
    }

    /// Relieves whoever has been at one turn since the last look; whether anybody works.
    fn look(self: &Arc<Self>) -> bool {
        let posts = self.posts.lock().clone();
        let mut is_busy = false;
        for post in posts {
            let (seen, is_as_before) = post.look();
            is_busy |= !is_as_before;
            if is_as_before {
                self.relieve(&post, seen);
            }
        }
        is_busy || !self.staff.has_idle()
    }

    /// Has all rest that have been silent for two sweeps.
    fn sweep(&self) {
        let silences = self.silences.fetch_add(1, Relaxed) + 1;
        let places: Vec<_> = self.places.lock().values().cloned().collect();
        for place in places {
            place.seat.while_it_waits(|sitting| {
                if !sitting.rests && sitting.served_at + 2 <= silences && sitting.connection.rest() {
                    sitting.rests = true;
                    self.count_rest(false, true);
                }
            });
        }
    }

    /// Until somebody works, or somebody may be silent for long enough.
    fn sleep(&self) {
        self.watch.asleep.store(true, SeqCst);
        let all_rest = self.counters.resting.load(SeqCst) >= self.places.lock().len();
        let mut called = self.watch.called.lock();
        let wait = if all_rest { ALL_REST_WAIT } else { self.silence };
        // Whoever began to work before it slept found nobody to wake.
        if !*called && self.staff.has_idle() && !self.is_over.load(SeqCst) {
            self.watch.call.wait_for(&mut called, wait);
        }
        *called = false;
        self.watch.asleep.store(false, SeqCst);
    }
}

fn say_no_thread() {
    warn!(
        target: "NETWORK", id = 22949,
        "Unable to start a thread that serves connections; those whose clients have spoken wait for one"
    );
}
