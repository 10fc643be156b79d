//! A lock that many share, where whoever wants it alone makes those who share it as urgent as he is.
//!
//! One who shares it may lose his processor with it in his hands. Then who wants it alone waits until the kernel gives him a turn among all
//! of his own niceness, and so does everybody who comes meanwhile, for whoever wants it alone goes first.
//!
//! Invariants: to share it costs two stores more than a lock without lending, in the thread's own memory, as long as nobody wants it alone;
//! who shares it has his own niceness again soon after nobody waits for him; and who wants it alone gets it once those who share it then
//! have given it back, however many come meanwhile. A thread that shares more than [`SHARED_MAX`](crate::niceness::SHARED_MAX) things at
//! once is lent nothing for what is beyond; nor is one that comes in the moment in which it is looked who shares the lock.

use crate::lending::Holder;
use crate::niceness::{Sharing, lend_to_sharers, share};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the file's header.
#[derive(Debug, Default)]
pub struct LendingRwLock {
    /// Who has it alone.
    holder: Holder,
    inner: RwLock<()>,
}

impl LendingRwLock {
    /// Shares it, or waits for it.
    pub fn read(&self) -> LendingReadGuard<'_> {
        let inner = match self.inner.try_read() {
            Some(inner) => inner,
            None => {
                let _loan = self.holder.lend();
                self.inner.read()
            }
        };
        LendingReadGuard { _sharing: share(self), _inner: inner }
    }

    /// Takes it alone, or waits for it.
    pub fn write(&self) -> LendingWriteGuard<'_> {
        let inner = self.inner.try_write().unwrap_or_else(|| self.await_sharers());
        self.holder.set();
        LendingWriteGuard { _holds: Holds(&self.holder), _inner: inner }
    }

    /// Waits in one go: who gave up his place now and then to look again would be overtaken by those who come to share it.
    fn await_sharers(&self) -> RwLockWriteGuard<'_, ()> {
        let _loans = (self.holder.lend(), lend_to_sharers(self));
        self.inner.write()
    }
}

/// Shares the lock until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct LendingReadGuard<'l> {
    // First: while the thread still shares it.
    _sharing: Sharing,
    _inner: RwLockReadGuard<'l, ()>,
}

/// Has the lock alone until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct LendingWriteGuard<'l> {
    _holds: Holds<'l>,
    _inner: RwLockWriteGuard<'l, ()>,
}

#[derive(Debug)]
struct Holds<'l>(&'l Holder);

impl Drop for Holds<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::niceness::{SHARED_MAX, niceness};
    use crate::{Right, as_class, right};
    use baton_types::Class;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    /// Until that is so.
    fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn those_who_share_it_are_lent_the_niceness_of_who_wants_it_alone_until_it_is_his() {
        let lock = LendingRwLock::default();
        let (sharing, goes_on) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    as_class(Class::Low);
                    let own = niceness();
                    // Another lock is nothing to those who want this one.
                    let other = LendingRwLock::default();
                    let (_of_other, guard) = (other.read(), lock.read());
                    sharing.fetch_add(1, SeqCst);
                    await_that("somebody lends", || right() == Right::None || niceness() < own);
                    await_that("it goes on", || goes_on.load(SeqCst));
                    drop(guard);
                    await_that("it is given back", || niceness() == own);
                });
            }
            await_that("two share it", || sharing.load(SeqCst) == 2);
            let waits = scope.spawn(|| {
                as_class(Class::Normal);
                drop(lock.write());
            });
            goes_on.store(true, SeqCst);
            waits.join().unwrap();
        });
    }

    #[test]
    fn who_has_it_alone_is_lent_the_niceness_of_who_comes_to_share_it() {
        let lock = LendingRwLock::default();
        std::thread::scope(|scope| {
            as_class(Class::Low);
            let own = niceness();
            let guard = lock.write();
            let shares = scope.spawn(|| {
                as_class(Class::Normal);
                drop(lock.read());
            });
            await_that("it lends", || right() == Right::None || niceness() < own);
            drop(guard);
            shares.join().unwrap();
            await_that("it is given back", || niceness() == own);
            as_class(Class::Normal);
        });
    }

    #[test]
    fn who_wants_it_alone_gets_it_though_others_never_leave_it_free() {
        let (lock, is_over) = (LendingRwLock::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // One after the other, so that some have just begun while others end.
            let (lock, is_over) = (&lock, &is_over);
            for turn in 0..4 {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(10 * turn));
                    let began = Instant::now();
                    while !is_over.load(SeqCst) && began.elapsed() < Duration::from_secs(20) {
                        let _guard = lock.read();
                        std::thread::sleep(Duration::from_millis(40));
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(60));
            let began = Instant::now();
            drop(lock.write());
            is_over.store(true, SeqCst);
            assert!(began.elapsed() < Duration::from_secs(10), "it was overtaken for {:?}", began.elapsed());
        });
    }

    #[test]
    fn a_thread_may_share_more_than_it_is_lent_for() {
        let locks: [LendingRwLock; SHARED_MAX + 2] = Default::default();
        for _ in 0..2 {
            let guards: Vec<_> = locks.iter().map(LendingRwLock::read).collect();
            assert_eq!(guards.len(), SHARED_MAX + 2);
        }
        locks.iter().for_each(|lock| drop(lock.write()));
    }
}
