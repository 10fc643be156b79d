//! Documents between two states of being written: their transaction stands in the commit queue and is not yet readable.
//!
//! Whoever changed a document gives its lock back as soon as the transaction has its place in the queue, and leaves the
//! new version here. The next writer builds on that, and its transaction stands behind the first one. So the lock is held
//! for microseconds and no sleep, and a hot document takes as many changes in one group as there are writers, not one.
//!
//! Invariants: what is here will be applied, since a queued transaction cannot fail; only who holds the document's lock
//! looks here; a version leaves when it is readable, unless a newer one has taken its place.

use crate::format::{CollectionId, RecordKey};
use ahash::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 64;

/// A document's place.
pub(crate) type Key = (CollectionId, RecordKey);

struct Version {
    number: u64,
    /// Absent: the document is deleted.
    document: Option<Arc<[u8]>>,
}

/// See the file's header.
pub(crate) struct InFlight {
    shards: Box<[Mutex<HashMap<Key, Version, RandomState>>]>,
    hasher: RandomState,
    count: AtomicUsize,
    next_number: AtomicU64,
}

/// Names a version that was put in, for the one who takes it out.
pub(crate) struct Ticket {
    key: Key,
    number: u64,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
            next_number: AtomicU64::new(0),
        }
    }
}

impl InFlight {
    fn shard(&self, key: &Key) -> &Mutex<HashMap<Key, Version, RandomState>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// Leaves a version for the next holder of the document's lock, which the caller still holds.
    pub fn put(&self, key: Key, document: Option<&[u8]>) -> Ticket {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let version = Version { number, document: document.map(Arc::from) };
        if self.shard(&key).lock().insert(key.clone(), version).is_none() {
            self.count.fetch_add(1, Ordering::Release);
        }
        Ticket { key, number }
    }

    /// The version left for a document, if there is one.
    pub fn get(&self, key: &Key) -> Option<Option<Arc<[u8]>>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.shard(key).lock().get(key).map(|version| version.document.clone())
    }

    /// Takes a version out, now that it is readable.
    pub fn remove(&self, ticket: &Ticket) {
        let mut shard = self.shard(&ticket.key).lock();
        if shard.get(&ticket.key).is_some_and(|version| version.number == ticket.number) {
            shard.remove(&ticket.key);
            self.count.fetch_sub(1, Ordering::Release);
        }
    }
}
