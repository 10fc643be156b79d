//! Hot documents by their keys, in front of RocksDB: a look-up here costs a hash and a copy of a pointer, one there
//! searches memtables, filters, an index block and a data block.
//!
//! Only look-ups of a document's newest version come here (reads by `_id`, and writers reading what they change). A
//! document is let in while there is room, and then when it is looked up twice within a while, so that walking over a
//! large collection by `_id` turns nothing out; it stays while it is looked up again before the hand comes round (CLOCK). Writers replace what is here.
//!
//! Invariants:
//! - A hit is what RocksDB would have answered at some moment since the call began: a document leaves before its new
//!   version is written and comes back after ([`RecordCache::before_write`], [`RecordCache::after_write`]), and what a
//!   reader found in RocksDB is let in only if nobody wrote in its shard since it looked ([`Miss`]).
//! - The bytes held never exceed the budget, and no document turns out a large part of what is here: one that is larger
//!   than [`PART_MAX`] of its shard's budget is not let in.

use ahash::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;

const SHARDS: usize = 256;
/// Keys a shard remembers as looked up once: a power of two.
const SEEN_ONCE: usize = 1024;
/// What an entry costs beyond its document and key.
const ENTRY_BYTES: usize = 96;

/// The part of its shard's budget that a document may take: one by this.
const PART_MAX: usize = 8;

/// A key in the family of documents.
type Key = SmallVec<[u8; 32]>;

struct Slot {
    hash: u64,
    key: Key,
    document: Arc<[u8]>,
    /// Looked up since the hand passed.
    is_recent: bool,
}

impl Slot {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.document.len()
    }
}

struct Shard {
    /// Places in `slots`, by key.
    table: HashTable<u32>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
    /// Counts writes.
    version: u64,
    /// What was looked up once: for each place the rest of the hash.
    seen_once: Box<[u16]>,
    hits: u64,
    misses: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            slots: Vec::new(),
            hand: 0,
            bytes: 0,
            version: 0,
            seen_once: vec![0; SEEN_ONCE].into(),
            hits: 0,
            misses: 0,
        }
    }
}

impl Shard {
    fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.table.find(hash, |at| self.slots[*at as usize].key.as_slice() == key).map(|at| *at as usize)
    }

    /// Tells whether the key was looked up a while ago, and remembers it.
    fn was_seen(&mut self, hash: u64) -> bool {
        let (place, tag) = ((hash >> 16) as usize % SEEN_ONCE, (hash >> 40) as u16 | 1);
        std::mem::replace(&mut self.seen_once[place], tag) == tag
    }

    /// Whether there is room without turning anything out, for a document of so many bytes with a key of any usual size.
    fn has_room(&self, document_bytes: usize, budget: usize) -> bool {
        self.bytes + document_bytes + 2 * ENTRY_BYTES <= budget
    }

    fn insert(&mut self, hash: u64, key: &[u8], document: Arc<[u8]>, budget: usize) {
        let slot = Slot { hash, key: Key::from_slice(key), document, is_recent: false };
        while self.bytes + slot.bytes() > budget && !self.slots.is_empty() {
            self.evict_one();
        }
        self.bytes += slot.bytes();
        let at = self.slots.len() as u32;
        self.slots.push(slot);
        let slots = &self.slots;
        self.table.insert_unique(hash, at, |at| slots[*at as usize].hash);
    }

    fn evict_one(&mut self) {
        loop {
            self.hand = if self.hand < self.slots.len() { self.hand } else { 0 };
            let slot = &mut self.slots[self.hand];
            if !std::mem::take(&mut slot.is_recent) {
                return self.remove(self.hand);
            }
            self.hand += 1;
        }
    }

    fn remove(&mut self, at: usize) {
        let last = self.slots.len() - 1;
        if let Ok(entry) = self.table.find_entry(self.slots[at].hash, |other| *other as usize == at) {
            entry.remove();
        }
        if at != last
            && let Some(moved) = self.table.find_mut(self.slots[last].hash, |other| *other as usize == last)
        {
            *moved = at as u32;
        }
        self.bytes -= self.slots[at].bytes();
        self.slots.swap_remove(at);
    }
}

/// What came of a look-up.
pub(crate) enum LookUp {
    /// The document.
    Hit(Arc<[u8]>),
    /// Look in RocksDB, and offer what is found with this.
    Miss(Miss),
}

/// A look-up that found nothing: what is found elsewhere may be let in if no write came between.
pub(crate) struct Miss {
    hash: u64,
    version: u64,
}

/// Figures since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordCacheFigures {
    /// Bytes held.
    pub bytes: u64,
    /// Documents held.
    pub documents: u64,
    /// Look-ups answered here.
    pub hits: u64,
    /// Look-ups that went on to RocksDB.
    pub misses: u64,
}

/// See the file's header.
pub(crate) struct RecordCache {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// Of each shard.
    budget_bytes: usize,
}

impl RecordCache {
    /// A cache that holds about so many bytes.
    pub fn new(budget_bytes: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            budget_bytes: budget_bytes / SHARDS,
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[hash as usize % SHARDS]
    }

    /// Looks a document up.
    pub fn get(&self, key: &[u8]) -> LookUp {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).lock();
        match shard.place(hash, key) {
            Some(at) => {
                shard.hits += 1;
                shard.slots[at].is_recent = true;
                LookUp::Hit(Arc::clone(&shard.slots[at].document))
            }
            None => {
                shard.misses += 1;
                LookUp::Miss(Miss { hash, version: shard.version })
            }
        }
    }

    fn may_hold(&self, key: &[u8], document: &[u8]) -> bool {
        ENTRY_BYTES + key.len() + document.len() <= self.budget_bytes / PART_MAX
    }

    /// Offers what was found after a miss.
    pub fn offer(&self, miss: &Miss, key: &[u8], document: &[u8]) {
        if !self.may_hold(key, document) {
            return;
        }
        let mut shard = self.shard(miss.hash).lock();
        let is_wanted = shard.was_seen(miss.hash) || shard.has_room(document.len(), self.budget_bytes);
        if is_wanted && shard.version == miss.version && shard.place(miss.hash, key).is_none() {
            shard.insert(miss.hash, key, document.into(), self.budget_bytes);
        }
    }

    /// To be called before a new version of a document is written; tells whether the old one was here.
    pub fn before_write(&self, key: &[u8]) -> bool {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).lock();
        shard.version += 1;
        let at = shard.place(hash, key);
        if let Some(at) = at {
            shard.remove(at);
        }
        at.is_some()
    }

    /// To be called once the new version (none: it is deleted) can be read, with what [`Self::before_write`] told.
    pub fn after_write(&self, key: &[u8], was_here: bool, document: Option<&[u8]>) {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).lock();
        shard.version += 1;
        if let Some(at) = shard.place(hash, key) {
            shard.remove(at);
        }
        if let Some(document) = document.filter(|document| was_here && self.may_hold(key, document)) {
            shard.insert(hash, key, document.into(), self.budget_bytes);
        }
    }

    /// Figures as of now.
    pub fn figures(&self) -> RecordCacheFigures {
        let mut sum = RecordCacheFigures::default();
        for shard in &self.shards {
            let shard = shard.lock();
            sum.bytes += shard.bytes as u64;
            sum.documents += shard.slots.len() as u64;
            sum.hits += shard.hits;
            sum.misses += shard.misses;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn hit(cache: &RecordCache, key: &[u8]) -> Option<Vec<u8>> {
        match cache.get(key) {
            LookUp::Hit(document) => Some(document.to_vec()),
            LookUp::Miss(_) => None,
        }
    }

    fn read(cache: &RecordCache, key: &[u8], stored: &[u8]) {
        if let LookUp::Miss(miss) = cache.get(key) {
            cache.offer(&miss, key, stored);
        }
    }

    #[test]
    fn a_full_cache_lets_a_document_in_at_its_second_look_up() {
        let cache = RecordCache::new(SHARDS * 2048);
        for other in 0..10_000_u32 {
            read(&cache, &other.to_be_bytes(), &[1; 100]);
        }
        read(&cache, b"k", &[2; 100]);
        assert_eq!(hit(&cache, b"k"), None);
        read(&cache, b"k", &[2; 100]);
        assert_eq!(hit(&cache, b"k"), Some(vec![2; 100]));
    }

    #[test]
    fn a_document_is_let_in_while_there_is_room_and_replaced_by_its_writer() {
        let cache = RecordCache::new(1 << 20);
        read(&cache, b"k", b"one");
        assert_eq!(hit(&cache, b"k").as_deref(), Some(&b"one"[..]));
        assert!(cache.before_write(b"k"));
        assert_eq!(hit(&cache, b"k"), None, "while it is written nobody can tell which version is the newest");
        cache.after_write(b"k", true, Some(b"two"));
        assert_eq!(hit(&cache, b"k").as_deref(), Some(&b"two"[..]));
        assert!(cache.before_write(b"k"));
        cache.after_write(b"k", true, None);
        assert_eq!(hit(&cache, b"k"), None);
    }

    #[test]
    fn a_large_document_turns_nothing_out_and_an_old_version_of_it_does_not_stay() {
        let cache = RecordCache::new(SHARDS * 4096);
        let keys: Vec<[u8; 4]> = (0..1000_u32).map(u32::to_be_bytes).collect();
        for key in &keys {
            read(&cache, key, &[1; 100]);
        }
        let before = cache.figures();
        for large in [&[2; 600][..], &[2; 5000]] {
            for other in 1000..2000_u32 {
                read(&cache, &other.to_be_bytes(), large);
                read(&cache, &other.to_be_bytes(), large);
            }
            let after = cache.figures();
            assert_eq!((after.documents, after.bytes), (before.documents, before.bytes));
        }
        assert!(cache.before_write(&keys[0]));
        cache.after_write(&keys[0], true, Some(&[3; 5000]));
        assert_eq!(hit(&cache, &keys[0]), None);
        assert_eq!(cache.figures().documents, before.documents - 1);
    }

    #[test]
    fn the_budget_holds_and_what_is_looked_up_again_stays() {
        let cache = RecordCache::new(SHARDS * 4096);
        for round in 0..200_u32 {
            read(&cache, b"hot", &[7; 100]);
            for other in 0..100 {
                let key = (round * 100 + other).to_be_bytes();
                read(&cache, &key, &[1; 100]);
                read(&cache, &key, &[1; 100]);
                read(&cache, b"hot", &[7; 100]);
            }
        }
        let figures = cache.figures();
        assert!(figures.bytes <= (SHARDS * 4096) as u64, "{figures:?}");
        assert!(figures.documents > 1000, "{figures:?}");
        assert_eq!(hit(&cache, b"hot"), Some(vec![7; 100]));
    }

    /// A thread in the middle of what it does.
    enum Thread {
        Reader { key: u8, miss: Option<Miss>, found: Option<u32> },
        Writer { key: u8, was_here: bool, stage: u8, value: u32 },
    }

    proptest! {
        /// Readers and writers of three keys, one step of one of them at a time in any order: a hit is never older than
        /// the newest version whose write had ended when the look-up began.
        #[test]
        fn a_hit_is_never_stale(choices in prop::collection::vec((any::<u8>(), 0_u8..3, any::<bool>()), 1..300)) {
            let cache = RecordCache::new(1 << 20);
            let mut stored: HashMap<u8, u32> = (0..3).map(|key| (key, 0)).collect();
            let mut ended = stored.clone();
            let mut next = 0;
            let mut threads: Vec<Thread> = Vec::new();
            for (pick, key, writes) in choices {
                let writing = |threads: &[Thread]| threads.iter().any(|t| matches!(t, Thread::Writer { key: k, .. } if *k == key));
                if threads.len() < 6 && pick % 3 == 0 {
                    // Writers of one document are one at a time: they hold its lock.
                    if writes && !writing(&threads) {
                        next += 1;
                        threads.push(Thread::Writer { key, was_here: false, stage: 0, value: next });
                    } else {
                        match cache.get(&[key]) {
                            LookUp::Hit(document) => {
                                let seen = u32::from_be_bytes(document.as_ref().try_into().unwrap());
                                prop_assert!(seen >= ended[&key] && seen <= stored[&key]);
                            }
                            LookUp::Miss(miss) => threads.push(Thread::Reader { key, miss: Some(miss), found: None }),
                        }
                    }
                    continue;
                }
                if threads.is_empty() {
                    continue;
                }
                let at = pick as usize % threads.len();
                let is_done = match &mut threads[at] {
                    Thread::Reader { key, found: found @ None, .. } => {
                        *found = Some(stored[key]);
                        false
                    }
                    Thread::Reader { key, miss, found: Some(found) } => {
                        cache.offer(&miss.take().unwrap(), &[*key], &found.to_be_bytes());
                        true
                    }
                    Thread::Writer { key, was_here, stage: stage @ 0, .. } => {
                        *was_here = cache.before_write(&[*key]);
                        *stage = 1;
                        false
                    }
                    Thread::Writer { key, stage: stage @ 1, value, .. } => {
                        stored.insert(*key, *value);
                        *stage = 2;
                        false
                    }
                    Thread::Writer { key, was_here, value, .. } => {
                        cache.after_write(&[*key], *was_here, Some(&value.to_be_bytes()));
                        ended.insert(*key, *value);
                        true
                    }
                };
                if is_done {
                    threads.swap_remove(at);
                }
            }
        }
    }
}
