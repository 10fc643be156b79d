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

use ahash::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;

const SHARDS: usize = 256;

/// A thread that waits for a lock.
struct Waiter {
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
    is_held: bool,
    queue: VecDeque<Arc<Waiter>>,
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
        !std::mem::replace(&mut lock.is_held, true)
    }
}

/// All locks of one storage.
pub struct LockTable {
    shards: Box<[Shard]>,
    hasher: RandomState,
}

/// Locks held by one transaction. Released by [`LockTable::release`]; a set must not be dropped while it holds any.
#[derive(Default, Debug)]
pub struct LockSet {
    /// Locks on documents.
    documents: SmallVec<[u64; 1]>,
    /// Locks on keys of unique indexes.
    keys: SmallVec<[u64; 4]>,
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
        Self { documents: std::mem::take(&mut self.documents), keys: SmallVec::new() }
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

    /// Waits for the lock on `key` in `space` (a collection or index id) and adds it to `set`.
    ///
    /// The caller holds nothing yet (see the invariant above).
    pub fn lock(&self, set: &mut LockSet, space: u32, key: &[u8]) {
        let hash = self.hash(space, key);
        debug_assert!(set.is_empty() || set.holds(hash));
        if !set.holds(hash) {
            self.wait_for(hash);
            set.documents.push(hash);
        }
    }

    /// Takes the lock if nobody else has it.
    #[must_use]
    pub fn try_lock(&self, set: &mut LockSet, space: u32, key: &[u8]) -> bool {
        let hash = self.hash(space, key);
        if set.holds(hash) {
            return true;
        }
        let is_mine = self.shard(hash).try_lock(hash);
        if is_mine {
            set.documents.push(hash);
        }
        is_mine
    }

    /// As [`LockTable::try_lock`], but fails on a key the set itself holds: its change is not readable yet.
    #[must_use]
    pub fn try_lock_new(&self, set: &mut LockSet, space: u32, key: &[u8]) -> bool {
        !set.holds(self.hash(space, key)) && self.try_lock(set, space, key)
    }

    /// [`LockTable::try_lock_new`] on all keys. On failure those taken stay in the set.
    #[must_use]
    pub fn try_lock_all_new<'k>(&self, set: &mut LockSet, keys: impl Iterator<Item = (u32, &'k [u8])>) -> bool {
        let mut hashes: SmallVec<[u64; 8]> = keys.map(|(space, key)| self.hash(space, key)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.into_iter().all(|hash| {
            let is_mine = !set.holds(hash) && self.shard(hash).try_lock(hash);
            if is_mine {
                set.keys.push(hash);
            }
            is_mine
        })
    }

    /// Waits for the locks on all keys, in ascending order of their hashes.
    pub fn lock_sorted<'k>(&self, set: &mut LockSet, keys: impl Iterator<Item = (u32, &'k [u8])>) {
        let mut hashes: SmallVec<[u64; 8]> = keys.map(|(space, key)| self.hash(space, key)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        for hash in hashes {
            if !set.holds(hash) {
                self.wait_for(hash);
                set.keys.push(hash);
            }
        }
    }

    fn wait_for(&self, hash: u64) {
        let shard = self.shard(hash);
        let mut waiter: Option<Arc<Waiter>> = None;
        loop {
            let waiter = {
                let mut locks = shard.locks.lock();
                let lock = locks.entry(hash).or_default();
                if !std::mem::replace(&mut lock.is_held, true) {
                    return;
                }
                match &waiter {
                    None => {
                        let fresh = Arc::new(Waiter {
                            state: AtomicU8::new(WAITING),
                            defeats: AtomicU8::new(0),
                            thread: std::thread::current(),
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
            while waiter.state.load(Ordering::Acquire) == WAITING {
                std::thread::park();
            }
            if waiter.state.load(Ordering::Acquire) == OWNER {
                return;
            }
        }
    }

    /// Gives back everything in `set`.
    pub fn release(&self, set: &mut LockSet) {
        for hash in set.documents.drain(..).chain(set.keys.drain(..)) {
            let mut locks = self.shard(hash).locks.lock();
            let Some(lock) = locks.get_mut(&hash) else { continue };
            let Some(next) = lock.queue.pop_front() else {
                locks.remove(&hash);
                continue;
            };
            let is_given = next.defeats.load(Ordering::Relaxed) >= DEFEATS_MAX;
            lock.is_held = is_given;
            drop(locks);
            next.state.store(if is_given { OWNER } else { RETRY }, Ordering::Release);
            next.thread.unpark();
        }
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
                        table.lock(&mut set, 1, b"hot");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                        inside.fetch_sub(1, Ordering::SeqCst);
                        table.release(&mut set);
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
        let table = LockTable::default();
        let (mut mine, mut other) = (LockSet::default(), LockSet::default());
        assert!(table.try_lock(&mut mine, 1, b"a"));
        assert!(table.try_lock(&mut mine, 1, b"a"));
        assert!(!table.try_lock(&mut other, 1, b"a"));
        table.release(&mut mine);
        assert!(table.try_lock(&mut other, 1, b"a"));
        table.release(&mut other);
    }
}
