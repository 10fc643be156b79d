//! A mutex whose holder is as urgent as the most urgent thread that waits for it.
//!
//! A thread may lose its processor in the middle of a few instructions under a lock. Whoever wants the lock then waits until the kernel gives
//! the holder a turn among all of its own niceness, however urgent the one who waits is: with thirty threads that is milliseconds.
//!
//! Invariants: a lock that nobody waits for costs two stores more than one without lending; the holder has its own niceness again once
//! the one who waited holds the lock.

use crate::niceness::{self, Loan};
use parking_lot::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Instant;

/// See the file's header.
#[derive(Debug, Default)]
pub struct LendingMutex<T> {
    holder: Holder,
    inner: Mutex<T>,
}

/// Who holds it. Both are 0 if nobody does; who waits may see the one of the last holder and the other of this.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    thread: AtomicI32,
    niceness: AtomicI32,
}

impl Holder {
    pub fn set(&self) {
        let (thread, niceness) = niceness::of_this_thread();
        self.thread.store(thread, Relaxed);
        self.niceness.store(niceness, Relaxed);
    }

    pub fn clear(&self) {
        self.thread.store(0, Relaxed);
        self.niceness.store(i32::MIN, Relaxed);
    }

    /// Lends the calling thread's niceness to the holder, if that is nicer.
    pub fn lend(&self) -> Option<Loan> {
        let (_, own) = niceness::of_this_thread();
        if self.niceness.load(Relaxed) <= own {
            return None;
        }
        niceness::bearer_of(self.thread.load(Relaxed))?.lend(own)
    }
}

impl<T> LendingMutex<T> {
    /// With this in it.
    pub fn new(value: T) -> Self {
        Self { holder: Holder::default(), inner: Mutex::new(value) }
    }

    /// Takes it, or waits for it.
    pub fn lock(&self) -> LendingGuard<'_, T> {
        let inner = match self.inner.try_lock() {
            Some(inner) => inner,
            None => {
                let _loan = self.holder.lend();
                self.inner.lock()
            }
        };
        self.holder.set();
        LendingGuard { inner, holder: &self.holder }
    }
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct LendingGuard<'m, T> {
    inner: MutexGuard<'m, T>,
    holder: &'m Holder,
}

impl<T> LendingGuard<'_, T> {
    /// Gives the lock back until the condition is signalled.
    pub fn wait(&mut self, condition: &Condvar) {
        self.holder.clear();
        condition.wait(&mut self.inner);
        self.holder.set();
    }

    /// The same, and not beyond `until`.
    pub fn wait_until(&mut self, condition: &Condvar, until: Instant) -> WaitTimeoutResult {
        self.holder.clear();
        let result = condition.wait_until(&mut self.inner, until);
        self.holder.set();
        result
    }
}

impl<T> Drop for LendingGuard<'_, T> {
    fn drop(&mut self) {
        self.holder.clear();
    }
}

impl<T> Deref for LendingGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for LendingGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Right, as_class, right};
    use baton_types::Class;
    use std::time::Duration;

    #[test]
    fn the_holder_is_lent_the_niceness_of_who_waits_until_he_has_the_lock() {
        let mutex = LendingMutex::new(0);
        std::thread::scope(|scope| {
            as_class(Class::Low);
            let own = niceness::niceness();
            let mut guard = mutex.lock();
            let waits = scope.spawn(|| {
                as_class(Class::Normal);
                *mutex.lock() += 1;
            });
            let began = Instant::now();
            while right() != Right::None && niceness::niceness() == own {
                assert!(began.elapsed() < Duration::from_secs(20), "nobody lends");
                std::thread::yield_now();
            }
            *guard += 1;
            drop(guard);
            waits.join().unwrap();
            assert_eq!(niceness::niceness(), own);
            assert_eq!(*mutex.lock(), 2);
            as_class(Class::Normal);
        });
    }

    #[test]
    fn it_is_a_mutex_for_many_with_conditions() {
        let (mutex, condition) = (LendingMutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            for class in [Class::Low, Class::Normal, Class::High] {
                let (mutex, condition) = (&mutex, &condition);
                scope.spawn(move || {
                    as_class(class);
                    for _ in 0..1000 {
                        *mutex.lock() += 1;
                    }
                    condition.notify_all();
                });
            }
            let mut count = mutex.lock();
            while *count < 3000 {
                count.wait_until(&condition, Instant::now() + Duration::from_millis(20));
            }
        });
        assert_eq!(*mutex.lock(), 3000);
    }
}
