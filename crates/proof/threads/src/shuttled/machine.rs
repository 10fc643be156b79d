//! The crate `baton-machine`, as far as what is explored uses it: a machine of two processors that are never idle, where nobody may say
//! how nice a thread is.

use super::parking_lot::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
use super::time::{Duration, Instant};
pub use baton_machine::Right;
use baton_types::Class;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

#[derive(Default)]
pub struct Idleness;

impl Idleness {
    pub fn processors(&self) -> usize {
        2
    }

    pub fn since_last(&mut self) -> Option<f64> {
        Some(0.0)
    }
}

/// Until it is dropped.
pub struct Waiting;

/// Nobody takes over.
pub fn about_to_wait() -> Waiting {
    Waiting
}

pub fn right() -> Right {
    Right::None
}

pub struct ThreadTime;

impl ThreadTime {
    pub fn now() -> Self {
        Self
    }

    pub fn elapsed(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

#[derive(Debug, Default)]
pub struct LendingMutex<T>(Mutex<T>);

impl<T> LendingMutex<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub fn lock(&self) -> LendingGuard<'_, T> {
        LendingGuard(self.0.lock())
    }
}

pub struct LendingGuard<'m, T>(MutexGuard<'m, T>);

impl<T> LendingGuard<'_, T> {
    pub fn wait(&mut self, condition: &Condvar) {
        condition.wait(&mut self.0);
    }

    pub fn wait_until(&mut self, condition: &Condvar, until: Instant) -> WaitTimeoutResult {
        condition.wait_until(&mut self.0, until)
    }
}

impl<T> Deref for LendingGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for LendingGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Nobody is lent anything.
pub struct Bearer;

pub struct Loan;

impl Bearer {
    pub fn lend_as(&self, _: Class) -> Option<Loan> {
        None
    }
}

pub fn bearer() -> Arc<Bearer> {
    Arc::new(Bearer)
}
