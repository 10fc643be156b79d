//! Locks on single keys: document-level concurrency.
//!
//! A lock stands for the hash of a key, so two keys may share one by chance; that costs a wait and is never wrong.
//! Locks are taken before a document is read for a change. Those on unique keys, and those of a transaction that changes
//! several documents, are released by the commit queue once the change is applied; the lock of a single document as soon
//! as its change has its place in the queue (`in_flight`).
//!
//! Invariant (no deadlock): whoever holds a lock waits for another only through [`LockTable::lock_sorted`], which takes
//! unique-index keys in ascending order, and no holder of such a key waits for a document. Everybody else tries, and
//! gives up what it holds when it must wait.
//!
//! A set gives back what it holds when it is dropped, whichever way its transaction ends. Nobody waits for longer than
//! [`WAIT_MAX`] at once: who comes away without the lock asks whether it is still wanted, and waits again.

use ahash::RandomState;
use baton_machine::{Bearer, about_to_wait};
use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

const SHARDS: usize = 256;

/// How long a lock is waited for before its waiter is asked whether to go on. Far longer than any is held, so that who waits in
/// order keeps its place.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// A thread that waits for a lock.
struct Waiter {
    bearer: Arc<Bearer>,
    state: AtomicU8,
    /// How often it was woken and came too late.
    defeats: AtomicU8,
    thread: Thread,
}

/// It sleeps.
const WAITING: u8 = 0;
/// It was woken to try again.
const RETRY: u8 = 1;
/// It was given the lock.
const OWNER: u8 = 2;

/// Who came too late so often is given the lock when it is next released.
const DEFEATS_MAX: u8 = 3;

/// One lock. A lock that nobody holds or waits for is not in the table.
#[derive(Default)]
struct Lock {
    /// Whose it is: who waits for it lends him his niceness.
    holder: Option<Arc<Bearer>>,
    queue: VecDeque<Arc<Waiter>>,
}

impl Lock {
    /// Takes it for the calling thread, unless it is somebody's.
    fn try_take(&mut self) -> bool {
        let is_free = self.holder.is_none();
        if is_free {
            self.holder = Some(baton_machine::bearer());
        }
        is_free
    }
}

/// Who releases a lock wakes one waiter, and whoever is there first gets it: a thread that runs does not wait for one to
/// be scheduled that sleeps. A waiter that was too late a few times is given the lock instead.
#[derive(Default)]
struct Shard {
    /// By the hash of the key.
    locks: Mutex<HashMap<u64, Lock, RandomState>>,
}

impl Shard {
    fn try_lock(&self, hash: u64) -> bool {
        let mut locks = self.locks.lock();
        let lock = locks.entry(hash).or_default();
        lock.try_take()
    }

    /// Takes a waiter out of the queue; `false` if somebody who gave the lock back has done so already.
    fn leave(&self, hash: u64, waiter: &Arc<Waiter>) -> bool {
        let mut locks = self.locks.lock();
        let Some(lock) = locks.get_mut(&hash) else { return false };
        let waiting = lock.queue.len();
        lock.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        lock.queue.len() < waiting
    }
}

/// All locks of one storage.
pub struct LockTable {
    shards: Box<[Shard]>,
    hasher: RandomState,
}

/// Locks held by one transaction. Dropped, it gives them back.
#[derive(Default)]
pub struct LockSet {
    /// Locks on documents.
    documents: SmallVec<[u64; 1]>,
    /// Locks on keys of unique indexes.
    keys: SmallVec<[u64; 4]>,
    /// Whose they are; absent before the first.
    table: Option<Arc<LockTable>>,
}

impl Drop for LockSet {
    fn drop(&mut self) {
        self.release();
    }
}

impl LockSet {
    /// Whether the set already holds this hash.
    fn holds(&self, hash: u64) -> bool {
        self.documents.contains(&hash) || self.keys.contains(&hash)
    }

    /// Whether exactly one document is locked.
    pub(crate) fn holds_one_document(&self) -> bool {
        self.documents.len() == 1
    }

    /// The locks on documents alone, which the set then no longer has.
    pub(crate) fn take_documents(&mut self) -> Self {
        Self { documents: std::mem::take(&mut self.documents), keys: SmallVec::new(), table: self.table.clone() }
    }

    /// Gives back everything.
    pub(crate) fn release(&mut self) {
        let Some(table) = self.table.take() else { return };
        for hash in self.documents.drain(..).chain(self.keys.drain(..)) {
            table.let_go(hash);
        }
    }

    fn add_document(&mut self, table: &Arc<LockTable>, hash: u64) {
        self.documents.push(hash);
        self.belong_to(table);
    }

    fn add_key(&mut self, table: &Arc<LockTable>, hash: u64) {
        self.keys.push(hash);
        self.belong_to(table);
    }

    fn belong_to(&mut self, table: &Arc<LockTable>) {
        match &self.table {
            Some(mine) => assert!(Arc::ptr_eq(mine, table), "a set of locks is of one storage"),
            None => self.table = Some(Arc::clone(table)),
        }
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.keys.is_empty()
    }
}

impl Default for LockTable {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect(), hasher: RandomState::new() }
    }
}

impl LockTable {
    fn hash(&self, space: u32, key: &[u8]) -> u64 {
        self.hasher.hash_one((space, key))
    }

    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[hash as usize % SHARDS]
    }

    /// Waits for the lock on `key` in `space` (a collection or index id) and adds it to `set`; `false` if it could not be had in
    /// [`WAIT_MAX`].
    ///
    /// The caller holds nothing yet (see the invariant above).
    #[must_use]
    pub fn lock(self: &Arc<Self>, set: &mut LockSet, space: u32, key: &[u8]) -> bool {
        let hash = self.hash(space, key);
        if set.holds(hash) {
            return true;
        }
        assert!(set.is_empty(), "nobody who holds a lock waits for a document");
        let is_mine = self.wait_for(hash);
        if is_mine {
            set.add_document(self, hash);
        }
        is_mine
    }

    /// Takes the lock if nobody else has it.
    #[must_use]
    pub fn try_lock(self: &Arc<Self>, set: &mut LockSet, space: u32, key: &[u8]) -> bool {
        let hash = self.hash(space, key);
        if set.holds(hash) {
            return true;
        }
        let is_mine = self.shard(hash).try_lock(hash);
        if is_mine {
            set.add_document(self, hash);
        }
        is_mine
    }

    /// Whether the set has the lock already, be it for another key that shares it.
    pub fn is_held(&self, set: &LockSet, space: u32, key: &[u8]) -> bool {
        set.holds(self.hash(space, key))
    }

    /// As [`LockTable::try_lock`], but fails on a key the set itself holds: its change is not readable yet.
    #[must_use]
    pub fn try_lock_new(self: &Arc<Self>, set: &mut LockSet, space: u32, key: &[u8]) -> bool {
        !set.holds(self.hash(space, key)) && self.try_lock(set, space, key)
    }

    /// [`LockTable::try_lock_new`] on all keys. On failure those taken stay in the set.
    #[must_use]
    pub fn try_lock_all_new<'k>(
        self: &Arc<Self>,
        set: &mut LockSet,
        keys: impl Iterator<Item = (u32, &'k [u8])>,
    ) -> bool {
        let mut hashes: SmallVec<[u64; 8]> = keys.map(|(space, key)| self.hash(space, key)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.into_iter().all(|hash| {
            let is_mine = !set.holds(hash) && self.shard(hash).try_lock(hash);
            if is_mine {
                set.add_key(self, hash);
            }
            is_mine
        })
    }

    /// Waits for the locks on all keys, in ascending order of their hashes; `false` if one could not be had in [`WAIT_MAX`]. Those
    /// taken stay in the set.
    #[must_use]
    pub fn lock_sorted<'k>(self: &Arc<Self>, set: &mut LockSet, keys: impl Iterator<Item = (u32, &'k [u8])>) -> bool {
        let mut hashes: SmallVec<[u64; 8]> = keys.map(|(space, key)| self.hash(space, key)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.into_iter().all(|hash| {
            if set.holds(hash) {
                return true;
            }
            let is_mine = self.wait_for(hash);
            if is_mine {
                set.add_key(self, hash);
            }
            is_mine
        })
    }

    /// Whether the lock is the caller's: it waits for it, [`WAIT_MAX`] at the most.
    fn wait_for(&self, hash: u64) -> bool {
        let shard = self.shard(hash);
        let mut waiter: Option<Arc<Waiter>> = None;
        let mut until = None;
        // Given back when the wait is over.
        let mut _loan = None;
        loop {
            let waiter = {
                let mut locks = shard.locks.lock();
                let lock = locks.entry(hash).or_default();
                if lock.try_take() {
                    return true;
                }
                _loan = lock.holder.as_ref().and_then(|holder| holder.lend(baton_machine::niceness()));
                match &waiter {
                    None => {
                        let fresh = Arc::new(Waiter {
                            state: AtomicU8::new(WAITING),
                            defeats: AtomicU8::new(0),
                            thread: std::thread::current(),
                            bearer: baton_machine::bearer(),
                        });
                        lock.queue.push_back(Arc::clone(&fresh));
                        waiter.insert(fresh)
                    }
                    Some(known) => {
                        known.state.store(WAITING, Ordering::Relaxed);
                        known.defeats.fetch_add(1, Ordering::Relaxed);
                        lock.queue.push_front(Arc::clone(known));
                        known
                    }
                }
            };
            let until = *until.get_or_insert_with(|| Instant::now() + WAIT_MAX);
            let _waiting = about_to_wait();
            while waiter.state.load(Ordering::Acquire) == WAITING {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() && shard.leave(hash, waiter) {
                    return false;
                }
                // Who has been taken out of the queue is told in a moment.
                std::thread::park_timeout(left.max(Duration::from_micros(50)));
            }
            if waiter.state.load(Ordering::Acquire) == OWNER {
                return true;
            }
        }
    }

    /// Gives a lock back.
    fn let_go(&self, hash: u64) {
        let mut locks = self.shard(hash).locks.lock();
        let Some(lock) = locks.get_mut(&hash) else { return };
        let Some(next) = lock.queue.pop_front() else {
            locks.remove(&hash);
            return;
        };
        let is_given = next.defeats.load(Ordering::Relaxed) >= DEFEATS_MAX;
        lock.holder = is_given.then(|| Arc::clone(&next.bearer));
        drop(locks);
        next.state.store(if is_given { OWNER } else { RETRY }, Ordering::Release);
        next.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_second_holder_waits_until_the_first_lets_go() {
        let table = Arc::new(LockTable::default());
        let inside = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (table, inside) = (Arc::clone(&table), Arc::clone(&inside));
                std::thread::spawn(move || {
                    for _ in 0..500 {
                        let mut set = LockSet::default();
                        assert!(table.lock(&mut set, 1, b"hot"));
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                        inside.fetch_sub(1, Ordering::SeqCst);
                        set.release();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a holder panicked");
        }
    }

    #[test]
    fn trying_fails_on_a_held_key_and_succeeds_on_ones_own() {
        let table = Arc::new(LockTable::default());
        let (mut mine, mut other) = (LockSet::default(), LockSet::default());
        assert!(table.try_lock(&mut mine, 1, b"a"));
        assert!(table.try_lock(&mut mine, 1, b"a"));
        assert!(!table.try_lock(&mut other, 1, b"a"));
        mine.release();
        assert!(table.try_lock(&mut other, 1, b"a"));
    }

    /// As an early return does, and a panic.
    #[test]
    fn a_set_that_is_dropped_gives_its_locks_back() {
        let table = Arc::new(LockTable::default());
        let dropped = {
            let table = Arc::clone(&table);
            std::thread::spawn(move || {
                let mut set = LockSet::default();
                assert!(table.lock(&mut set, 1, b"document"));
                assert!(table.lock_sorted(&mut set, [(2, &b"key"[..])].into_iter()));
                panic!("on purpose");
            })
        };
        assert!(dropped.join().is_err());
        let mut next = LockSet::default();
        assert!(table.try_lock(&mut next, 1, b"document"));
        assert!(table.try_lock(&mut next, 2, b"key"));
    }

    /// Whoever waits is asked now and then, and who came away empty-handed stands in nobody's way.
    #[test]
    fn a_wait_ends_without_the_lock_and_leaves_nothing() {
        let table = Arc::new(LockTable::default());
        let (mut holder, mut waiter) = (LockSet::default(), LockSet::default());
        assert!(table.lock(&mut holder, 1, b"a"));
        assert!(!table.lock(&mut waiter, 1, b"a"));
        assert!(!table.lock_sorted(&mut waiter, [(1, &b"a"[..])].into_iter()));
        holder.release();
        assert!(table.try_lock(&mut waiter, 1, b"a"));
        waiter.release();
        assert!(table.shards.iter().all(|shard| shard.locks.lock().is_empty()), "a lock that nobody has or wants");
    }
}
