//! Locks on single keys: document-level concurrency.
//!
//! A lock stands for the hash of a key, so two keys may share one by chance; that costs a wait and is never wrong.
//! Locks are taken before a document is read for a change and released by the commit queue once the change is applied; a
//! document's lock that somebody waits for is handed on as soon as the change has its place in the queue (`in_flight`).
//!
//! Invariant (no deadlock): whoever holds a lock waits for another only through [`LockTable::lock_sorted`], which takes
//! unique-index keys in ascending order, and no holder of such a key waits for a document. Everybody else tries, and
//! gives up what it holds when it must wait.

use ahash::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

const SHARDS: usize = 256;

/// A thread that waits for a lock.
struct Waiter {
    is_owner: AtomicBool,
    thread: Thread,
}

#[derive(Default)]
struct Shard {
    /// Locked hash → who waits for it, in order of arrival. The lock is handed from its owner to the first of them, so
    /// that a hot key wakes one thread for each release and starves none.
    held: Mutex<HashMap<u64, VecDeque<Arc<Waiter>>, RandomState>>,
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
        let mut held = self.shard(hash).held.lock();
        if held.contains_key(&hash) {
            return false;
        }
        held.insert(hash, VecDeque::new());
        set.documents.push(hash);
        true
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
            if set.holds(hash) {
                return false;
            }
            let mut held = self.shard(hash).held.lock();
            if held.contains_key(&hash) {
                return false;
            }
            held.insert(hash, VecDeque::new());
            set.keys.push(hash);
            true
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

    /// Whether somebody waits for the one document that `set` has locked; false if it has locked several, or none.
    pub(crate) fn is_awaited(&self, set: &LockSet) -> bool {
        let [hash] = set.documents[..] else { return false };
        self.shard(hash).held.lock().get(&hash).is_some_and(|queue| !queue.is_empty())
    }

    fn wait_for(&self, hash: u64) {
        let waiter = {
            let mut held = self.shard(hash).held.lock();
            match held.entry(hash) {
                Entry::Vacant(free) => {
                    free.insert(VecDeque::new());
                    None
                }
                Entry::Occupied(mut queue) => {
                    let waiter = Arc::new(Waiter { is_owner: AtomicBool::new(false), thread: std::thread::current() });
                    queue.get_mut().push_back(Arc::clone(&waiter));
                    Some(waiter)
                }
            }
        };
        while waiter.as_ref().is_some_and(|waiter| !waiter.is_owner.load(Ordering::Acquire)) {
            std::thread::park();
        }
    }

    /// Gives back everything in `set`.
    pub fn release(&self, set: &mut LockSet) {
        for hash in set.documents.drain(..).chain(set.keys.drain(..)) {
            let mut held = self.shard(hash).held.lock();
            let next = held.get_mut(&hash).and_then(VecDeque::pop_front);
            match next {
                None => {
                    held.remove(&hash);
                }
                Some(next) => {
                    drop(held);
                    next.is_owner.store(true, Ordering::Release);
                    next.thread.unpark();
                }
            }
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
