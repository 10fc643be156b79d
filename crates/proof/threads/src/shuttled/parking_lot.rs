//! The crate `parking_lot`, as far as members use it.

use super::time::{Instant, advance_to, hurries};
use shuttle::rand::Rng;
use shuttle::sync;
use std::ops::{Deref, DerefMut};
use std::sync::LockResult;

// A panic ends the whole execution: nobody comes to a lock that it has poisoned.
fn taken<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { of: &self.0, held: Some(taken(self.0.lock())) }
    }
}

pub struct MutexGuard<'m, T> {
    of: &'m sync::Mutex<T>,
    held: Option<sync::MutexGuard<'m, T>>,
}

impl<T> MutexGuard<'_, T> {
    /// Without the lock.
    pub fn unlocked<R>(guard: &mut Self, work: impl FnOnce() -> R) -> R {
        guard.held = None;
        let result = work();
        guard.held = Some(taken(guard.of.lock()));
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("it holds the lock")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("it holds the lock")
    }
}

#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("it holds the lock");
        guard.held = Some(taken(self.0.wait(held)));
    }

    /// In a hurry it is woken for nothing, or the time comes, whatever is signalled.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> WaitTimeoutResult {
        if !hurries() {
            self.wait(guard);
            return WaitTimeoutResult(false);
        }
        MutexGuard::unlocked(guard, shuttle::thread::yield_now);
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            advance_to(until);
        }
        WaitTimeoutResult(Instant::now() >= until)
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Whether a wait ended by its time.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}
