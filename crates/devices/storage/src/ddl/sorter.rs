//! What an index build has read, sorted in memory.
//!
//! ```text
//!  places  ┌────┬────┬────┬────╌╌     one for each entry: the key's first bytes, and where it lies
//!          └─┬──┴─┬──┴─┬──┴─┬──╌╌     contiguous, for it is what is sorted; grows into another allocation
//!  chunks    └─▶ [key value key value …] [key value …]    never move
//! ```
//!
//! Invariant: the account has what the sorter's allocations take, as the allocator rounds them, and before they are made; while it
//! grows, what it leaves too. It has no more than it was given at the beginning, but for the entries of one document, which belong
//! together: for these it has more, whatever the pool has, until they are written.
//!
//! Not here: what becomes of entries when there is no room for more ([`super::sorted_runs`]).

use baton_types::{MemoryAccount, MemoryPool};
use std::sync::Arc;

/// The least that is sorted at once, in bytes, however little memory there is.
const SORTED_BYTES_MIN: usize = 1 << 20;
/// Bytes of a chunk, unless there is little memory or an entry is larger.
const CHUNK_BYTES: usize = 256 << 10;
/// What an allocation is part of, at the least, in bytes.
const ALLOCATION_BYTES_MIN: usize = 64;

/// Where an entry lies in the sorter's memory.
#[derive(Clone, Copy)]
struct Place {
    /// The key's first bytes, by which most comparisons are decided.
    first: u128,
    chunk: u32,
    at: u32,
    key: u32,
    value: u32,
}

/// Entries in memory.
pub(super) struct Sorter {
    chunks: Vec<Vec<u8>>,
    /// The chunk that is being filled; those behind are empty, and were used before.
    filling: usize,
    places: Vec<Place>,
    /// Of all entries.
    bytes: usize,
    /// What the allocations take.
    held: usize,
    chunk_bytes: usize,
    /// What the account was given at the beginning.
    bytes_max: usize,
    account: MemoryAccount,
}

/// What an allocation of so many bytes takes: allocators have four sizes to each doubling.
fn allocated(bytes: usize) -> usize {
    let bytes = bytes.max(ALLOCATION_BYTES_MIN);
    let step = bytes.next_power_of_two() / 8;
    bytes.next_multiple_of(step)
}

impl Sorter {
    /// One that may hold `bytes_max`, or what the pool has left for it.
    pub(super) fn new(pool: &Arc<MemoryPool>, bytes_max: usize) -> Self {
        let mut account = pool.account(bytes_max);
        account.set_up_to(bytes_max);
        let least = SORTED_BYTES_MIN.min(bytes_max);
        if account.bytes() < least {
            account.set_anyway(least);
        }
        let bytes_max = account.bytes();
        let chunk_bytes = allocated((bytes_max / 8).min(CHUNK_BYTES));
        Self { chunks: Vec::new(), filling: 0, places: Vec::new(), bytes: 0, held: 0, chunk_bytes, bytes_max, account }
    }

    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.make_room_for(key.len() + value.len());
        if self.places.len() == self.places.capacity() {
            let fits = self.next_places().find(|bytes| self.held + bytes <= self.bytes_max);
            let bytes = fits.or_else(|| self.next_places().last());
            self.grow_places(bytes.unwrap_or_else(|| unreachable!("there is always a next size")));
        }
        let mut first = [0; 16];
        let length = key.len().min(first.len());
        first[..length].copy_from_slice(&key[..length]);
        let chunk = &mut self.chunks[self.filling];
        // What four bytes count: a chunk is no larger than one entry, or 256 KiB, and there are no more of them than entries.
        self.places.push(Place {
            first: u128::from_be_bytes(first),
            chunk: self.filling as u32,
            at: chunk.len() as u32,
            key: key.len() as u32,
            value: value.len() as u32,
        });
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value);
        self.bytes += key.len() + value.len();
    }

    /// Whether the next entry may be one too many: to be asked after each document.
    pub(super) fn is_full(&self) -> bool {
        let places_fit = self.places.len() < self.places.capacity()
            || self.next_places().any(|bytes| self.held + bytes <= self.bytes_max);
        let is_chunk_there = self.filling + 1 < self.chunks.len();
        let chunk_fits = is_chunk_there || self.held + self.chunk_bytes <= self.bytes_max;
        let room = self.chunks.get(self.filling).map_or(0, |chunk| chunk.capacity() - chunk.len());
        self.held > self.bytes_max || !places_fit || !(chunk_fits || room >= self.mean_entry())
    }

    /// Bytes of an entry like those that are there.
    fn mean_entry(&self) -> usize {
        self.bytes.div_ceil(self.places.len().max(1))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Entries, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.places.len(), self.bytes)
    }

    /// Forgets the entries. The allocations stay, but for what was held beyond its part.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.chunks.iter_mut().for_each(Vec::clear);
        (self.filling, self.bytes) = (0, 0);
        if self.held > self.bytes_max {
            (self.chunks, self.places, self.held) = (Vec::new(), Vec::new(), 0);
            self.account.set_anyway(self.bytes_max);
        }
    }

    /// The account has so many bytes more than the allocations take now.
    fn have(&mut self, bytes: usize) {
        if self.held + bytes > self.account.bytes() {
            self.account.set_anyway(self.held + bytes);
        }
    }

    /// Sees to it that the chunk that is being filled has room for so many bytes.
    fn make_room_for(&mut self, bytes: usize) {
        let fits = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= bytes;
        if self.chunks.get(self.filling).is_some_and(fits) {
            return;
        }
        if let Some(further) = self.chunks.iter().skip(self.filling + 1).position(fits) {
            self.filling += 1;
            self.chunks.swap(self.filling, self.filling + further);
            return;
        }
        let taken = allocated(bytes).max(self.chunk_bytes);
        self.have(taken);
        self.held += taken;
        self.chunks.push(Vec::with_capacity(taken));
        self.filling = if self.chunks.len() == 1 { 0 } else { self.filling + 1 };
        let last = self.chunks.len() - 1;
        self.chunks.swap(self.filling, last);
    }

    /// Sizes in bytes to which the places may grow, the best first.
    fn next_places(&self) -> impl Iterator<Item = usize> + use<> {
        let now = self.places.capacity() * size_of::<Place>();
        let first = self.chunk_bytes.max(8 * size_of::<Place>());
        let sizes = if now == 0 { [first; 2] } else { [now + now / 2, now + now / 4] };
        sizes.into_iter().map(allocated)
    }

    fn grow_places(&mut self, bytes: usize) {
        let before = self.places.capacity() * size_of::<Place>();
        self.have(bytes);
        let mut places = Vec::with_capacity(bytes / size_of::<Place>());
        places.extend_from_slice(&self.places);
        self.places = places;
        self.held = self.held + bytes - before;
    }

    fn key(&self, place: &Place) -> &[u8] {
        let at = place.at as usize;
        &self.chunks[place.chunk as usize][at..at + place.key as usize]
    }

    /// All entries, in order.
    pub(super) fn sorted(&mut self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut places = std::mem::take(&mut self.places);
        places.sort_unstable_by(|a, b| a.first.cmp(&b.first).then_with(|| self.key(a).cmp(self.key(b))));
        self.places = places;
        self.places.iter().map(|place| {
            let value = place.at as usize + place.key as usize;
            (self.key(place), &self.chunks[place.chunk as usize][value..value + place.value as usize])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What its allocations take.
    fn taken(sorter: &Sorter) -> usize {
        let places = sorter.places.capacity() * size_of::<Place>();
        let chunks: usize = sorter.chunks.iter().map(|chunk| allocated(chunk.capacity())).sum();
        chunks + if places == 0 { 0 } else { allocated(places) }
    }

    #[test]
    fn a_sorter_is_full_within_what_the_pool_has_left() {
        let pool = MemoryPool::new(8 << 20);
        let mut large = Sorter::new(&pool, 6 << 20);
        let mut small = Sorter::new(&pool, 6 << 20);
        let fill = |sorter: &mut Sorter| {
            while !sorter.is_full() {
                sorter.add(&[7; 100], &[]);
            }
            sorter.size().1
        };
        let (large, small) = (fill(&mut large), fill(&mut small));
        assert!(large < 6 << 20 && small < 2 << 20 && large > 2 * small, "{large} {small}");
    }

    #[test]
    fn sizes_are_those_of_allocators() {
        let sizes = [1, 64, 65, 80, 81, 1000, 1024, 1025, 3 << 20, (3 << 20) + 1].map(allocated);
        assert_eq!(sizes, [64, 64, 80, 80, 96, 1024, 1024, 1280, 3 << 20, (3 << 20) + (512 << 10)]);
    }

    #[test]
    fn of_what_it_may_hold_most_is_entries() {
        for (key, value) in [(8, 0), (25, 0), (25, 4), (100, 20), (3000, 0)] {
            let mut sorter = Sorter::new(&MemoryPool::new(1 << 30), 8 << 20);
            while !sorter.is_full() {
                sorter.add(&vec![1; key], &vec![2; value]);
            }
            let (entries, bytes) = sorter.size();
            let share = (bytes + entries * size_of::<Place>()) as f64 / (8 << 20) as f64;
            assert!(share > 0.55, "{share:.2} of it with {key} and {value} bytes an entry");
            assert_eq!(sorter.account.bytes(), 8 << 20, "one at a time goes never beyond");
        }
    }

    #[test]
    fn who_comes_when_the_pool_is_used_up_sorts_little_and_that_is_counted() {
        let pool = MemoryPool::new(8 << 20);
        let first = Sorter::new(&pool, 8 << 20);
        let mut second = Sorter::new(&pool, 8 << 20);
        assert_eq!(pool.bytes(), (8 << 20) + SORTED_BYTES_MIN);
        while !second.is_full() {
            second.add(&[7; 100], &[]);
        }
        assert!(taken(&second) <= SORTED_BYTES_MIN && second.size().1 > SORTED_BYTES_MIN / 2);
        drop((first, second));
        assert_eq!(pool.bytes(), 0);
    }

    proptest! {
        /// Documents of some entries each. Fails if its allocations ever take more than its account says, also while it grows, if it
        /// goes beyond its part by more than a document, or if what it gives is not what it was given.
        #[test]
        fn the_account_has_what_the_allocations_take(
            bytes_max in (1_usize << 10)..(1 << 18),
            documents in prop::collection::vec(prop::collection::vec((0_usize..900, 0_usize..30), 1..20), 1..200),
        ) {
            let pool = MemoryPool::new(1 << 30);
            let mut sorter = Sorter::new(&pool, bytes_max);
            let (mut given, mut number) = (Vec::new(), 0_u32);
            for document in documents {
                let mut sizes = 0;
                for (key, value) in document {
                    number += 1;
                    let key = [&number.wrapping_mul(2_654_435_761).to_be_bytes()[..], &vec![3; key]].concat();
                    let places = sorter.places.capacity();
                    let before = taken(&sorter);
                    sorter.add(&key, &vec![4; value]);
                    sizes += allocated(key.len() + value).max(sorter.chunk_bytes);
                    given.push((key, vec![4; value]));
                    let grown = sorter.places.capacity() != places;
                    let most = taken(&sorter) + if grown { places * size_of::<Place>() } else { 0 };
                    prop_assert!(most <= sorter.account.bytes() && most <= pool.bytes(), "{most} of {}", sorter.account.bytes());
                    prop_assert!(taken(&sorter) >= before && taken(&sorter) == sorter.held);
                }
                prop_assert!(sorter.account.bytes() <= 2 * bytes_max + 2 * sizes + (1 << 10), "{}", sorter.account.bytes());
                if sorter.is_full() {
                    given.sort();
                    let sorted: Vec<_> = sorter.sorted().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                    prop_assert!(sorted == given);
                    sorter.clear();
                    given.clear();
                    prop_assert_eq!(sorter.account.bytes(), bytes_max);
                }
            }
        }
    }
}
