//! Hot documents by their keys, in front of RocksDB: a look-up here costs a hash and a copy of a pointer, one there
//! searches memtables, filters, an index block and a data block.
//!
//! Only look-ups of a document's newest version come here (reads by `_id`, and writers reading what they change). A
//! document is let in while there is room, and then when it is looked up twice within a while, so that walking over a
//! large collection by `_id` turns nothing out; it stays while it is looked up again before the hand comes round (CLOCK).
//! Writers replace what is here.
//!
//! Invariants:
//! - A hit is what RocksDB would have answered at some moment since the call began: a document leaves before its new
//!   version is written and comes back after ([`RecordCache::before_write`], [`RecordCache::after_write`]), and what a
//!   reader found in RocksDB is let in only if nobody wrote in its shard since it looked ([`Miss`]).
//! - The bytes held never exceed the budget.
//!
//! What is hot is known by how often each document was looked up, which ages ([`RecordCache::age`]): a document's new version takes
//! its heat over.

use crate::documents::version::Version;
use ahash::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 256;
/// Keys a shard remembers as looked up once: a power of two.
const SEEN_ONCE: usize = 1024;
/// What a version costs beyond its key and document.
const ENTRY_BYTES: usize = 128;
/// Documents whose heat is looked at while a shard is held: some tens of microseconds.
const AGED_AT_ONCE: usize = 512;
/// Documents that are looked at to find the hottest.
const LOOKED_AT_MAX: usize = 1 << 20;
/// A document is let in if it takes at most this part of a shard's budget: one large document is not worth many small ones.
const LARGEST_PART: usize = 8;

struct Slot {
    version: Version,
    /// Its place in the ring.
    at: u32,
}

fn bytes_of(version: &Version) -> usize {
    ENTRY_BYTES + version.key().len() + version.len()
}

/// What a look-up needs stands in front: one line of the CPU's cache with the lock.
#[repr(C)]
struct Shard {
    table: HashTable<Slot>,
    /// Counts writes.
    writes: u64,
    hits: u64,
    misses: u64,
    /// The hashes of what is in the table, in the order in which the hand comes round.
    ring: Vec<u64>,
    hand: usize,
    bytes: usize,
    /// What was looked up once: for each place the rest of the hash.
    seen_once: Box<[u16]>,
    /// Bytes of what was looked up between the last two times that it aged.
    hot_bytes: u64,
}

#[derive(Default)]
#[repr(align(64))]
struct Guarded(Mutex<Shard>);

impl Default for Shard {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            writes: 0,
            hits: 0,
            misses: 0,
            ring: Vec::new(),
            hand: 0,
            bytes: 0,
            seen_once: vec![0; SEEN_ONCE].into(),
            hot_bytes: 0,
        }
    }
}

impl Shard {
    fn find(&self, hash: u64, key: &[u8]) -> Option<&Version> {
        self.table.find(hash, |slot| slot.version.key() == key).map(|slot| &slot.version)
    }

    /// Tells whether the key was looked up a while ago, and remembers it.
    fn was_seen(&mut self, hash: u64) -> bool {
        let (place, tag) = ((hash >> 16) as usize % SEEN_ONCE, (hash >> 40) as u16 | 1);
        std::mem::replace(&mut self.seen_once[place], tag) == tag
    }

    fn insert(&mut self, version: Version, budget: usize) {
        let bytes = bytes_of(&version);
        while self.bytes + bytes > budget && !self.ring.is_empty() {
            self.evict_one();
        }
        self.bytes += bytes;
        let (hash, at) = (version.hash(), self.ring.len() as u32);
        self.ring.push(hash);
        self.table.insert_unique(hash, Slot { version, at }, |slot| slot.version.hash());
    }

    fn evict_one(&mut self) {
        loop {
            self.hand = if self.hand < self.ring.len() { self.hand } else { 0 };
            let (hash, hand) = (self.ring[self.hand], self.hand as u32);
            let is_recent =
                self.table.find(hash, |slot| slot.at == hand).is_some_and(|slot| slot.version.take_recent());
            if !is_recent {
                self.remove(hash, |slot| slot.at == hand);
                return;
            }
            self.hand += 1;
        }
    }

    /// Takes out what is wanted, and gives it if it was there.
    fn remove(&mut self, hash: u64, is_wanted: impl Fn(&Slot) -> bool) -> Option<Version> {
        let entry = self.table.find_entry(hash, is_wanted).ok()?;
        let (Slot { version, at }, _) = entry.remove();
        self.bytes -= bytes_of(&version);
        self.ring.swap_remove(at as usize);
        let last = self.ring.len() as u32;
        if let Some(moved) = self.ring.get(at as usize)
            && let Some(slot) = self.table.find_mut(*moved, |slot| slot.at == last)
        {
            slot.at = at;
        }
        Some(version)
    }

    /// What stands at these places of the ring.
    fn at_places(&self, places: std::ops::Range<usize>) -> impl Iterator<Item = &Version> {
        let hashes = self.ring.get(places.start..places.end.min(self.ring.len())).unwrap_or_default();
        let places = places.start as u32..;
        hashes.iter().zip(places).filter_map(|(hash, at)| Some(&self.table.find(*hash, |slot| slot.at == at)?.version))
    }
}

/// What came of a look-up.
pub(crate) enum LookUp {
    /// The document.
    Hit(Version),
    /// Look in RocksDB, and offer what is found with this.
    Miss(Miss),
}

/// A look-up that found nothing: what is found elsewhere may be let in if no write came between.
pub(crate) struct Miss {
    hash: u64,
    writes: u64,
    /// It is let in at its first look-up.
    is_wanted: bool,
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
    /// Bytes of what was looked up within about the last minute.
    pub hot_bytes: u64,
}

/// See the file's header.
pub(crate) struct RecordCache {
    shards: Box<[Guarded]>,
    hasher: RandomState,
    /// Of each shard.
    budget_bytes: usize,
    /// The shard that ages next.
    ages_next: AtomicUsize,
}

impl RecordCache {
    /// A cache that holds about so many bytes; versions given to it have their hashes from this hasher.
    pub fn new(budget_bytes: usize, hasher: RandomState) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Guarded::default()).collect(),
            hasher,
            budget_bytes: budget_bytes / SHARDS,
            ages_next: AtomicUsize::new(0),
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[hash as usize % SHARDS].0
    }

    fn is_small(&self, key: &[u8], document: &[u8]) -> bool {
        ENTRY_BYTES + key.len() + document.len() <= self.budget_bytes / LARGEST_PART
    }

    /// Looks a document up.
    pub fn get(&self, key: &[u8]) -> LookUp {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).lock();
        if let Some(version) = shard.find(hash, key) {
            let version = version.clone();
            shard.hits += 1;
            drop(shard);
            version.mark_recent();
            return LookUp::Hit(version);
        }
        shard.misses += 1;
        LookUp::Miss(Miss { hash, writes: shard.writes, is_wanted: false })
    }

    /// As [`Self::get`], by who will keep what it finds and needs it for nothing else; none: it is here already.
    pub fn look_to_warm(&self, key: &[u8]) -> Option<Miss> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash).lock();
        shard.find(hash, key).is_none().then(|| Miss { hash, writes: shard.writes, is_wanted: true })
    }

    /// Offers what was found after a miss.
    pub fn offer(&self, miss: &Miss, key: &[u8], document: &[u8]) {
        if !self.is_small(key, document) {
            return;
        }
        let mut shard = self.shard(miss.hash).lock();
        let has_room = shard.bytes + ENTRY_BYTES + key.len() + document.len() <= self.budget_bytes;
        let is_wanted = shard.was_seen(miss.hash) || has_room || miss.is_wanted;
        if is_wanted && shard.writes == miss.writes && shard.find(miss.hash, key).is_none() {
            shard.insert(Version::new(miss.hash, key, document), self.budget_bytes);
        }
    }

    /// The hash by which a key is found.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// To be called before a new version of a document is written; gives the old one's heat if it was here.
    pub fn before_write(&self, hash: u64, key: &[u8]) -> Option<u8> {
        let mut shard = self.shard(hash).lock();
        shard.writes += 1;
        shard.remove(hash, |slot| slot.version.key() == key).map(|old| old.heat())
    }

    /// To be called once the new version can be read: makes it, and keeps it, if the old one was here; none: it is deleted.
    pub fn after_write(&self, hash: u64, key: &[u8], was_here: Option<u8>, make: impl FnOnce() -> Option<Version>) {
        let mut shard = self.shard(hash).lock();
        shard.writes += 1;
        shard.remove(hash, |slot| slot.version.key() == key);
        if let Some(heat) = was_here
            && let Some(version) = make()
            && self.is_small(key, &version)
        {
            version.set_heat(heat);
            shard.insert(version, self.budget_bytes);
        }
    }

    /// The keys of the documents that were looked up most of late, the hottest first: so many, of so many bytes, at the most. Of a
    /// large cache a part is looked at, a few documents at a time.
    pub fn hottest(&self, keys_max: usize, bytes_max: u64) -> Vec<Vec<u8>> {
        let documents: usize = self.shards.iter().map(|shard| shard.0.lock().ring.len()).sum();
        let every = documents.div_ceil(LOOKED_AT_MAX).max(1);
        let mut by_heat = [(0_usize, 0_u64); 256];
        self.look_at_every(every, |version| {
            let (keys, bytes) = &mut by_heat[usize::from(version.heat())];
            *keys += 1;
            *bytes += bytes_of(version) as u64;
        });
        // The part that is looked at stands for all, and gives all that it has.
        let (mut least, mut keys, mut bytes) = (256, 0, 0);
        while least > 1 && bytes < bytes_max && keys < keys_max {
            least -= 1;
            keys += by_heat[least].0;
            bytes += by_heat[least].1;
        }
        let mut hottest: Vec<(u8, Vec<u8>, u64)> = Vec::new();
        self.look_at_every(every, |version| {
            let heat = version.heat();
            if usize::from(heat) >= least && hottest.len() < keys {
                hottest.push((heat, version.key().to_vec(), bytes_of(version) as u64));
            }
        });
        hottest.sort_by_key(|(heat, ..)| std::cmp::Reverse(*heat));
        let mut bytes = 0;
        let within = hottest.into_iter().take(keys_max).take_while(|(_, _, of_this)| {
            bytes += of_this;
            bytes <= bytes_max
        });
        within.map(|(_, key, _)| key).collect()
    }

    /// Looks at what is in every so-manieth shard, and holds it for a few at a time.
    fn look_at_every(&self, every: usize, mut look: impl FnMut(&Version)) {
        for shard in self.shards.iter().step_by(every) {
            let mut place = 0;
            loop {
                let shard = shard.0.lock();
                shard.at_places(place..place + AGED_AT_ONCE).for_each(&mut look);
                place += AGED_AT_ONCE;
                if place >= shard.ring.len() {
                    break;
                }
            }
        }
    }

    /// Lets a share of all documents age (1: all of them), a few at a time, so that nobody waits long for a look-up. To be called
    /// again and again, so that all have had their turn within a minute.
    pub fn age(&self, share: f64) {
        let shards = (share.clamp(0.0, 1.0) * SHARDS as f64).ceil() as usize;
        for _ in 0..shards {
            let shard = &self.shards[self.ages_next.fetch_add(1, Ordering::Relaxed) % SHARDS].0;
            let (mut hot_bytes, mut place) = (0, 0);
            loop {
                let mut shard = shard.lock();
                let places = place..place + AGED_AT_ONCE;
                hot_bytes += shard
                    .at_places(places)
                    .filter(|version| version.age())
                    .map(|version| bytes_of(version) as u64)
                    .sum::<u64>();
                place += AGED_AT_ONCE;
                if place >= shard.ring.len() {
                    shard.hot_bytes = hot_bytes;
                    break;
                }
            }
        }
    }

    /// Figures as of now.
    pub fn figures(&self) -> RecordCacheFigures {
        let mut sum = RecordCacheFigures::default();
        for shard in &self.shards {
            let shard = shard.0.lock();
            sum.bytes += shard.bytes as u64;
            sum.documents += shard.ring.len() as u64;
            sum.hot_bytes += shard.hot_bytes.min(shard.bytes as u64);
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

    fn cache(budget_bytes: usize) -> RecordCache {
        RecordCache::new(budget_bytes, RandomState::new())
    }

    fn before_write(cache: &RecordCache, key: &[u8]) -> Option<u8> {
        cache.before_write(cache.hash(key), key)
    }

    fn after_write(cache: &RecordCache, key: &[u8], was_here: Option<u8>, document: Option<&[u8]>) {
        let hash = cache.hash(key);
        cache.after_write(hash, key, was_here, || document.map(|document| Version::new(hash, key, document)));
    }

    fn read(cache: &RecordCache, key: &[u8], stored: &[u8]) {
        if let LookUp::Miss(miss) = cache.get(key) {
            cache.offer(&miss, key, stored);
        }
    }

    #[test]
    fn a_full_cache_lets_a_document_in_at_its_second_look_up() {
        let cache = cache(SHARDS * 4096);
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
        let cache = cache(SHARDS * 4096);
        read(&cache, b"k", b"one");
        assert_eq!(hit(&cache, b"k").as_deref(), Some(&b"one"[..]));
        assert_eq!(before_write(&cache, b"k"), Some(1));
        assert_eq!(hit(&cache, b"k"), None, "while it is written nobody can tell which version is the newest");
        after_write(&cache, b"k", Some(1), Some(b"two"));
        assert_eq!(hit(&cache, b"k").as_deref(), Some(&b"two"[..]));
        assert_eq!(before_write(&cache, b"k"), Some(2), "the new version took the heat over");
        after_write(&cache, b"k", Some(2), None);
        assert_eq!(hit(&cache, b"k"), None);
    }

    #[test]
    fn the_budget_holds_and_what_is_looked_up_again_stays() {
        let cache = cache(SHARDS * 4096);
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

    #[test]
    fn a_large_document_turns_nothing_out() {
        let cache = cache(SHARDS * 4096);
        read(&cache, b"small", &[1; 100]);
        // The same shard's budget is half a kilobyte for one document at most, whichever shard it is.
        for other in 0..10_000_u32 {
            let key = other.to_be_bytes();
            read(&cache, &key, &[2; 500]);
            read(&cache, &key, &[2; 500]);
            assert_eq!(hit(&cache, &key), None);
        }
        assert_eq!(hit(&cache, b"small"), Some(vec![1; 100]));
        assert!(before_write(&cache, b"small").is_some());
        after_write(&cache, b"small", Some(1), Some(&[2; 500]));
        assert_eq!(hit(&cache, b"small"), None);
    }

    #[test]
    fn what_is_looked_up_is_hot_for_a_while() {
        let cache = cache(SHARDS * 4096);
        for key in 0..1000_u32 {
            read(&cache, &key.to_be_bytes(), &[1; 100]);
        }
        for key in 0..100_u32 {
            assert!(hit(&cache, &key.to_be_bytes()).is_some());
        }
        assert_eq!(cache.figures().hot_bytes, 0, "nobody has looked yet");
        (0..4).for_each(|_| cache.age(0.25));
        let each = (ENTRY_BYTES + 4 + 100) as u64;
        assert_eq!(cache.figures().hot_bytes, 100 * each);
        cache.age(1.0);
        assert_eq!(cache.figures().hot_bytes, 0, "nothing was looked up since");
    }

    #[test]
    fn the_hottest_come_first_and_are_no_more_than_was_asked_for() {
        let cache = cache(SHARDS * 16384);
        for key in 0..1000_u32 {
            read(&cache, &key.to_be_bytes(), &[1; 100]);
        }
        for key in 0..100_u32 {
            (0..=key).for_each(|_| assert!(hit(&cache, &key.to_be_bytes()).is_some()));
        }
        let hottest = |keys, bytes| -> Vec<u32> {
            let keys = cache.hottest(keys, bytes);
            keys.iter().map(|key| u32::from_be_bytes(key.as_slice().try_into().unwrap())).collect()
        };
        let all: Vec<u32> = (0..100).rev().collect();
        assert_eq!(hottest(1000, u64::MAX), all, "what nobody has looked up again is not hot");
        assert_eq!(hottest(10, u64::MAX), all[..10]);
        let each = (ENTRY_BYTES + 4 + 100) as u64;
        assert_eq!(hottest(1000, 5 * each), all[..5]);
        assert!(hottest(0, u64::MAX).is_empty() && hottest(1000, 0).is_empty());
        (0..2).for_each(|_| cache.age(1.0));
        (0..60).for_each(|_| assert!(hit(&cache, &7_u32.to_be_bytes()).is_some()));
        assert_eq!(hottest(1, u64::MAX), [7], "what was is half as much each time");
    }

    /// A thread in the middle of what it does.
    enum Thread {
        Reader { key: u8, miss: Option<Miss>, found: Option<u32> },
        Writer { key: u8, was_here: Option<u8>, stage: u8, value: u32 },
    }

    proptest! {
        /// Readers and writers of three keys, one step of one of them at a time in any order: a hit is never older than
        /// the newest version whose write had ended when the look-up began.
        #[test]
        fn a_hit_is_never_stale(choices in prop::collection::vec((any::<u8>(), 0_u8..3, any::<bool>()), 1..300)) {
            let cache = cache(SHARDS * 4096);
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
                        threads.push(Thread::Writer { key, was_here: None, stage: 0, value: next });
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
                        *was_here = before_write(&cache, &[*key]);
                        *stage = 1;
                        false
                    }
                    Thread::Writer { key, stage: stage @ 1, value, .. } => {
                        stored.insert(*key, *value);
                        *stage = 2;
                        false
                    }
                    Thread::Writer { key, was_here, value, .. } => {
                        after_write(&cache, &[*key], *was_here, Some(&value.to_be_bytes()));
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
