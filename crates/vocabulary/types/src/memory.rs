//! Memory that requests share: how much all of them may hold together, and who holds it.
//!
//! Invariants: what is held never exceeds the pool's size; what an account holds goes back when it is dropped.
//! What it deliberately does not do: allocate. Accounts are told what was, or is about to be, allocated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may be held together.
#[derive(Debug)]
pub struct MemoryPool {
    bytes_max: usize,
    bytes: AtomicUsize,
}

impl MemoryPool {
    /// A pool of so many bytes.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max, bytes: AtomicUsize::new(0) })
    }

    /// Its size.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// What is held now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// An account that may hold at most `bytes_max` of them, and holds none yet.
    pub fn account(self: &Arc<Self>, bytes_max: usize) -> MemoryAccount {
        MemoryAccount { pool: Arc::clone(self), bytes_max, bytes: 0 }
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// What one operator, or one message, holds of a pool.
#[derive(Debug)]
pub struct MemoryAccount {
    pool: Arc<MemoryPool>,
    bytes_max: usize,
    bytes: usize,
}

impl MemoryAccount {
    /// An account of a pool of its own, bounded by `bytes_max` alone.
    pub fn alone(bytes_max: usize) -> Self {
        MemoryPool::new(bytes_max).account(bytes_max)
    }

    /// Holds so many bytes from now on; `false`, and what it held before, if that is more than it may.
    #[must_use]
    pub fn set(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes_max || (bytes > self.bytes && !self.pool.take(bytes - self.bytes)) {
            return false;
        }
        if bytes < self.bytes {
            self.pool.bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }

    /// Holds so many bytes from now on, or if there are too few, as many as there are; at least what it held before.
    pub fn set_up_to(&mut self, bytes: usize) {
        let wanted = bytes.min(self.bytes_max);
        while wanted > self.bytes {
            let there = self.pool.bytes_max.saturating_sub(self.pool.bytes());
            // Another may be faster; then there is less.
            if there == 0 || self.set(wanted.min(self.bytes.saturating_add(there))) {
                return;
            }
        }
    }

    /// What it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most it may hold by itself.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.pool.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_share_what_the_pool_has_and_give_it_back() {
        let pool = MemoryPool::new(100);
        let (mut first, mut second) = (pool.account(80), pool.account(80));
        assert!(first.set(60) && second.set(40));
        assert!(!first.set(61), "the pool is empty");
        assert!(second.set(10) && first.set(80));
        assert!(!first.set(81), "its own bound");
        assert_eq!((first.bytes(), pool.bytes()), (80, 90));
        drop(first);
        assert_eq!(pool.bytes(), 10);
        assert!(second.set(80));
        drop(second);
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn an_account_that_takes_what_there_is_takes_no_more_and_gives_nothing_up() {
        let pool = MemoryPool::new(100);
        let (mut first, mut second) = (pool.account(80), pool.account(80));
        first.set_up_to(200);
        second.set_up_to(30);
        assert_eq!((first.bytes(), second.bytes()), (80, 20));
        second.set_up_to(10);
        assert_eq!(pool.bytes(), 100);
    }
}
