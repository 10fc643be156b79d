//! Memory that requests share: how much all of them may hold together, and who holds it.
//!
//! Invariants: what is held never exceeds the pool's size, but for what somebody has to have and says so
//! ([`MemoryAccount::set_anyway`]); what an account holds goes back when it is dropped. One account at a time may have more than the
//! pool has for it (the turn), so that those who wait with a part of what they need never wait for each other alone.
//! What it deliberately does not do: allocate. Accounts are told what was, or is about to be, allocated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that may be held together.
#[derive(Debug)]
pub struct MemoryPool {
    bytes_max: usize,
    bytes: AtomicUsize,
    /// Whether an account goes on beyond the pool.
    is_overdrawn: AtomicBool,
    /// How many wait for memory, and who.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

/// Who waits for memory. The turn goes by turns to who has waited longest and to who wants least: so small messages are not held up
/// by large ones, nor large ones kept out by small ones.
#[derive(Debug, Default)]
struct Queue {
    /// What each wants, by the number it came with.
    wanted: BTreeMap<u64, usize>,
    next_number: u64,
    /// Whether the turn goes to who has waited longest.
    is_oldest_next: bool,
}

impl Queue {
    fn next(&self) -> Option<u64> {
        match self.is_oldest_next {
            true => self.wanted.keys().next().copied(),
            false => self.wanted.iter().min_by_key(|(_, bytes)| **bytes).map(|(number, _)| *number),
        }
    }
}

impl MemoryPool {
    /// A pool of so many bytes.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            bytes: AtomicUsize::new(0),
            is_overdrawn: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        })
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
        MemoryAccount { pool: Arc::clone(self), bytes_max, bytes: 0, has_turn: false }
    }

    /// Whether somebody waits for memory: who holds some and makes no use of it is in the way.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // What a panic may have left is whole: every change is one step.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// A place among those who wait for memory, until it is dropped; see [`MemoryAccount::wait`].
#[derive(Debug)]
pub struct MemoryWait {
    pool: Arc<MemoryPool>,
    number: u64,
    bytes: usize,
}

impl MemoryWait {
    /// Whether the turn may be its next: it is the one that has waited longest, or that wants least.
    pub fn is_near(&self) -> bool {
        let queue = self.pool.queue();
        let is_oldest = queue.wanted.keys().next() == Some(&self.number);
        is_oldest || queue.wanted.values().all(|bytes| *bytes >= self.bytes)
    }
}

impl Drop for MemoryWait {
    fn drop(&mut self) {
        self.pool.queue().wanted.remove(&self.number);
        self.pool.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one operator, or one message, holds of a pool.
#[derive(Debug)]
pub struct MemoryAccount {
    pool: Arc<MemoryPool>,
    bytes_max: usize,
    bytes: usize,
    /// Whether it is the one that may have more.
    has_turn: bool,
}

impl MemoryAccount {
    /// An account of a pool of its own, bounded by `bytes_max` alone.
    pub fn alone(bytes_max: usize) -> Self {
        MemoryPool::new(usize::MAX).account(bytes_max)
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

    /// The same, for who can do with less: it leaves others as much of the pool as it holds itself then, so that of several each has
    /// a part, and the first does not have it all.
    #[must_use]
    pub fn set_sharing(&mut self, bytes: usize) -> bool {
        let free = self.pool.bytes_max.saturating_sub(self.pool.bytes());
        (bytes <= self.bytes || bytes - self.bytes <= free.saturating_sub(bytes)) && self.set(bytes)
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

    /// Holds so many bytes from now on, whatever it may and whatever the pool has: that who cannot do with less is counted. Others
    /// have none of the pool until what is too much has come back.
    pub fn set_anyway(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            self.pool.bytes.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            self.pool.bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Holds so many bytes from now on, or takes the turn, if nobody waits for it, and has them beyond the pool; `false`, and what it
    /// held before, if it must wait.
    #[must_use]
    pub fn set_in_turn(&mut self, bytes: usize) -> bool {
        self.set(bytes) || self.has_turn || (!self.pool.is_waited_for() && self.take_turn())
    }

    /// A place among those who wait, for one who wants so many bytes.
    pub fn wait(&self, bytes: usize) -> MemoryWait {
        let mut queue = self.pool.queue();
        let number = queue.next_number;
        queue.next_number += 1;
        queue.wanted.insert(number, bytes);
        self.pool.waiting.fetch_add(1, Ordering::Relaxed);
        MemoryWait { pool: Arc::clone(&self.pool), number, bytes }
    }

    /// What was waited for, if it is there, or if it is this one's turn.
    #[must_use]
    pub fn set_waited_for(&mut self, wait: &MemoryWait) -> bool {
        if self.set(wait.bytes) || self.has_turn {
            return true;
        }
        if self.pool.is_overdrawn.load(Ordering::Relaxed) {
            return false;
        }
        let mut queue = wait.pool.queue();
        let is_mine = queue.next() == Some(wait.number) && self.take_turn();
        queue.is_oldest_next ^= is_mine;
        is_mine
    }

    fn take_turn(&mut self) -> bool {
        let taken = self.pool.is_overdrawn.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
        self.has_turn = taken.is_ok();
        self.has_turn
    }

    /// Whether it is the one that has more than the pool had for it.
    pub fn has_turn(&self) -> bool {
        self.has_turn
    }

    /// Gives all back, and the turn.
    pub fn clear(&mut self) {
        self.pool.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
        if std::mem::take(&mut self.has_turn) {
            self.pool.is_overdrawn.store(false, Ordering::Release);
        }
    }

    /// Whether it holds anything, or has the turn.
    pub fn is_used(&self) -> bool {
        self.bytes > 0 || self.has_turn
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
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
        self.clear();
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

    #[test]
    fn who_has_to_have_more_is_counted_and_others_have_none_meanwhile() {
        let pool = MemoryPool::new(100);
        let (mut first, mut second) = (pool.account(80), pool.account(80));
        first.set_anyway(130);
        assert_eq!((first.bytes(), pool.bytes()), (130, 130));
        second.set_up_to(10);
        assert!(!second.set(1) && second.bytes() == 0);
        first.set_anyway(60);
        assert!(second.set(40) && pool.bytes() == 100);
        first.set_anyway(70);
        drop(first);
        assert_eq!(pool.bytes(), 40);
    }

    #[test]
    fn those_that_share_leave_each_other_a_part() {
        let pool = MemoryPool::new(120);
        let mut accounts: Vec<_> = (0..3).map(|_| pool.account(1000)).collect();
        let fill = |account: &mut MemoryAccount| {
            while account.bytes() < 1000 && account.set_sharing(account.bytes() + 1) {}
            account.bytes()
        };
        assert_eq!(accounts.iter_mut().map(fill).collect::<Vec<_>>(), [60, 30, 15]);
        // Who began with much gives it up sooner or later, and then has as much as the others.
        for _ in 0..20 {
            for account in &mut accounts {
                assert!(account.set_sharing(0));
                fill(account);
            }
        }
        assert!(accounts.iter().all(|account| (29..=31).contains(&account.bytes())), "{accounts:?}");
        assert!(accounts[0].set(40), "who cannot do with less may have the rest");
    }

    #[test]
    fn one_at_a_time_goes_on_beyond_the_pool() {
        let pool = MemoryPool::new(100);
        let (mut first, mut second, mut third) = (pool.account(500), pool.account(500), pool.account(500));
        assert!(first.set_in_turn(60) && second.set_in_turn(30), "there is enough");
        assert!(first.set_in_turn(200), "the turn is free");
        assert!(!second.set_in_turn(80) && !third.set_in_turn(50), "another has it");
        assert!(first.set_in_turn(400) && first.is_used() && pool.bytes() <= 100);
        first.clear();
        assert!(second.set_in_turn(80) && third.set_in_turn(50));
        drop((second, third));
        assert_eq!(pool.bytes(), 0);
        assert!(first.set_in_turn(300), "the turn went back");
    }

    #[test]
    fn the_turn_goes_to_the_smallest_and_the_oldest_by_turns() {
        let pool = MemoryPool::new(10);
        let mut first = pool.account(1000);
        assert!(first.set_in_turn(100) && !pool.is_waited_for());
        let mut others: Vec<_> = (0..3).map(|_| pool.account(1000)).collect();
        let waits: Vec<_> = others.iter().zip([300, 200, 50]).map(|(account, bytes)| account.wait(bytes)).collect();
        let turn = |others: &mut Vec<MemoryAccount>| {
            let got: Vec<bool> =
                others.iter_mut().zip(&waits).map(|(account, wait)| account.set_waited_for(wait)).collect();
            got.iter().position(|got| *got)
        };
        assert_eq!(turn(&mut others), None, "the first has it");
        assert!(!pool.account(1000).set_in_turn(20), "who comes now waits behind those who wait");
        first.clear();
        assert_eq!(turn(&mut others), Some(2), "the smallest");
        others[2].clear();
        assert_eq!(turn(&mut others), Some(0), "the oldest");
        drop(waits);
        assert!(!pool.is_waited_for());
    }
}
