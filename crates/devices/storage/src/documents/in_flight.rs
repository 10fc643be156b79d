//! Documents between two states of being written: their transaction stands in the commit queue and is not yet readable.
//!
//! Whoever changed a document gives its lock back as soon as the transaction has its place in the queue, and leaves the
//! new version here. The next writer builds on that, and its transaction stands behind the first one. So the lock is held
//! for microseconds and no sleep, and a hot document takes as many changes in one group as there are writers, not one.
//!
//! Invariants: what is here will be applied, since a queued transaction cannot fail; only who holds the document's lock
//! looks here; a version leaves when it is readable, unless a newer one has taken its place.

use crate::documents::format::DocumentKey;
use crate::documents::version::Version;
use ahash::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 64;

struct Entry {
    hash: u64,
    key: DocumentKey,
    number: u64,
    /// Absent: the document is deleted.
    version: Option<Version>,
}

/// See the file's header.
pub(crate) struct InFlight {
    shards: Box<[Mutex<HashTable<Entry>>]>,
    hasher: RandomState,
    count: AtomicUsize,
    next_number: AtomicU64,
}

/// Names a version that was put in, for the one who takes it out.
pub(crate) struct Ticket {
    pub hash: u64,
    key: DocumentKey,
    number: u64,
    /// Absent: the document is deleted.
    pub version: Option<Version>,
    /// Whether the version that it follows is not readable yet, either.
    pub builds_on_another: bool,
}

impl InFlight {
    /// Versions in it have their hashes from this hasher.
    pub fn new(hasher: RandomState) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher,
            count: AtomicUsize::new(0),
            next_number: AtomicU64::new(0),
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Entry>> {
        &self.shards[hash as usize % SHARDS]
    }

    /// Leaves a version for the next holder of the document's lock, which the caller still holds.
    pub fn put(&self, key: &[u8], document: Option<&[u8]>) -> Ticket {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let hash = self.hasher.hash_one(key);
        let version = document.map(|document| Version::new(hash, key, document));
        let key = DocumentKey::from_slice(key);
        let mut ticket = Ticket { hash, key, number, version, builds_on_another: false };
        let entry = Entry { hash, key: ticket.key.clone(), number, version: ticket.version.clone() };
        let mut shard = self.shard(hash).lock();
        match shard.find_mut(hash, |known| known.key == entry.key) {
            Some(known) => {
                *known = entry;
                ticket.builds_on_another = true;
            }
            None => {
                shard.insert_unique(hash, entry, |entry| entry.hash);
                self.count.fetch_add(1, Ordering::Release);
            }
        }
        ticket
    }

    /// The version left for a document, if there is one.
    pub fn get(&self, key: &[u8]) -> Option<Option<Version>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        self.shard(hash).lock().find(hash, |entry| *entry.key == *key).map(|entry| entry.version.clone())
    }

    /// Takes a version out, now that it is readable.
    pub fn remove(&self, ticket: &Ticket) {
        let mut shard = self.shard(ticket.hash).lock();
        if let Ok(entry) =
            shard.find_entry(ticket.hash, |entry| entry.number == ticket.number && entry.key == ticket.key)
        {
            entry.remove();
            self.count.fetch_sub(1, Ordering::Release);
        }
    }
}
