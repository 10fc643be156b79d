//! `fsync` with `lock`: while it is held, nothing that clients or this member's own jobs write begins.
//!
//! Invariants: when [`WriteLock::hold`] returns, nobody writes; whoever waits to write asks whether to go on meanwhile, so a
//! deadline or a kill ends the waiting; while it is not held, a write pays one addition to memory of its own core, twice.
//! What it deliberately does not do: stop a secondary from applying the primary's entries; `fsync` refuses to lock one.

use baton_execution::Interrupt;
use baton_machine::about_to_wait;
use baton_types::{Error, ErrorCode, Result, Striped};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// A killed waiter notices within this time.
const SLICE: Duration = Duration::from_millis(50);

/// See the file's header.
pub struct WriteLock {
    /// How often it is held: as often it must be given back.
    holds: Mutex<u32>,
    changed: Condvar,
    is_held: AtomicBool,
    writing: Striped<AtomicI64>,
}

/// Somebody writes, until this is dropped.
pub struct Writing<'l>(&'l AtomicI64);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Default for WriteLock {
    fn default() -> Self {
        Self {
            holds: Mutex::new(0),
            changed: Condvar::new(),
            is_held: AtomicBool::new(false),
            writing: Striped::new(AtomicI64::default),
        }
    }
}

impl WriteLock {
    /// Begins to write, if the lock is not held.
    pub fn try_enter(&self) -> Option<Writing<'_>> {
        // Counted before it looks; the holder marks it held before it counts. So one of them sees the other.
        let mine = self.writing.mine();
        mine.fetch_add(1, Ordering::SeqCst);
        let writing = Writing(mine);
        (!self.is_held.load(Ordering::SeqCst)).then_some(writing)
    }

    /// Begins to write, once the lock is not held.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn enter(&self, interrupt: Interrupt<'_>) -> Result<Writing<'_>> {
        loop {
            if let Some(writing) = self.try_enter() {
                return Ok(writing);
            }
            interrupt()?;
            let _waiting = about_to_wait();
            let mut holds = self.holds.lock();
            if *holds > 0 {
                self.changed.wait_for(&mut holds, SLICE);
            }
        }
    }

    /// Takes it once more, and waits until nobody writes; returns how often it is held.
    ///
    /// # Errors
    /// `LockTimeout` (24) at `until`; what `interrupt` says. Then it is held as often as before.
    pub fn hold(&self, until: Instant, interrupt: Interrupt<'_>) -> Result<u32> {
        let held = {
            let mut holds = self.holds.lock();
            *holds += 1;
            self.is_held.store(true, Ordering::SeqCst);
            *holds
        };
        loop {
            if self.writing.all().map(|stripe| stripe.load(Ordering::SeqCst)).sum::<i64>() == 0 {
                return Ok(held);
            }
            let over =
                || Error::new(ErrorCode::LockTimeout, "Fsync lock timed out: writes that are under way do not end");
            let outcome = interrupt().and_then(|()| if Instant::now() >= until { Err(over()) } else { Ok(()) });
            if let Err(error) = outcome {
                self.release();
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Gives it back once; returns how often it is still held, or `None` if it was not.
    pub fn release(&self) -> Option<u32> {
        let mut holds = self.holds.lock();
        *holds = holds.checked_sub(1)?;
        if *holds == 0 {
            self.is_held.store(false, Ordering::SeqCst);
            self.changed.notify_all();
        }
        Some(*holds)
    }

    /// Whether it is held.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn while_it_is_held_nobody_writes_and_whoever_writes_is_waited_for() {
        let lock = WriteLock::default();
        let writing = lock.enter(&|| Ok(())).unwrap();
        assert_eq!(lock.hold(soon(), &|| Ok(())).unwrap_err().code, ErrorCode::LockTimeout);
        assert!(!lock.is_held());
        drop(writing);
        assert_eq!(lock.hold(soon(), &|| Ok(())).unwrap(), 1);
        assert!(lock.try_enter().is_none());
        let killed = || Err(Error::new(ErrorCode::Interrupted, "killed"));
        assert_eq!(lock.enter(&killed).err().unwrap().code, ErrorCode::Interrupted);
        assert_eq!(lock.hold(soon(), &|| Ok(())).unwrap(), 2);
        assert_eq!(lock.release(), Some(1));
        assert!(lock.try_enter().is_none());
        assert_eq!(lock.release(), Some(0));
        assert_eq!(lock.release(), None);
        assert!(lock.try_enter().is_some());
    }

    #[test]
    fn a_writer_that_waits_goes_on_when_the_lock_is_given_back() {
        let lock = WriteLock::default();
        lock.hold(soon(), &|| Ok(())).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| lock.enter(&|| Ok(())).is_ok());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!writer.is_finished());
            lock.release();
            assert!(writer.join().unwrap());
        });
    }
}
