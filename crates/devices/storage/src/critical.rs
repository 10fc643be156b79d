//! Locks whose holder must not panic: what they guard is half changed then, and the process ends with it
//! ([`baton_types::must_not_unwind`]). Whoever waits for them makes those who have them as urgent as he is ([`baton_machine`]).
//!
//! Not here: locks on documents and keys ([`crate::documents::locks`]). Who holds those has changed nothing that anybody sees before its
//! transaction is in the commit queue, and gives them back.

use baton_machine::{LendingGuard, LendingMutex, LendingReadGuard, LendingRwLock, LendingWriteGuard};
use baton_types::{MustNotUnwind, must_not_unwind};

/// A lock held by one.
pub(crate) struct CriticalMutex {
    section: &'static str,
    lock: LendingMutex<()>,
}

/// A lock held by one alone, or shared by many. Only the one is critical: those who share it change nothing under it.
pub(crate) struct CriticalRwLock {
    section: &'static str,
    lock: LendingRwLock,
}

/// Held as long as it lives.
#[must_use]
pub(crate) struct Critical<L> {
    // The process ends before the lock is given back.
    _guard: MustNotUnwind,
    _lock: L,
}

impl CriticalMutex {
    /// `section` says what its holder does.
    pub(crate) fn new(section: &'static str) -> Self {
        Self { section, lock: LendingMutex::new(()) }
    }

    pub(crate) fn lock(&self) -> Critical<LendingGuard<'_, ()>> {
        let _lock = self.lock.lock();
        Critical { _guard: must_not_unwind(self.section), _lock }
    }
}

impl CriticalRwLock {
    /// `section` says what its holder does.
    pub(crate) fn new(section: &'static str) -> Self {
        Self { section, lock: LendingRwLock::default() }
    }

    pub(crate) fn read(&self) -> LendingReadGuard<'_> {
        self.lock.read()
    }

    pub(crate) fn write(&self) -> Critical<LendingWriteGuard<'_>> {
        let _lock = self.lock.write();
        Critical { _guard: must_not_unwind(self.section), _lock }
    }
}
