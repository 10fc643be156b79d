//! What an index build has read, sorted in memory.
//!
//! Invariant: what it holds is bounded by its account of the memory that all builds share.
//!
//! Not here: what becomes of it when there is no room for more ([`super::sorted_runs`]).

use baton_types::{MemoryAccount, MemoryPool};
use std::sync::Arc;

/// The least that is sorted at once, in bytes, however little memory there is.
const SORTED_BYTES_MIN: usize = 1 << 20;

/// Where an entry lies in the sorter's memory.
#[derive(Clone, Copy)]
struct Place {
    /// The key's first bytes, by which most comparisons are decided.
    first: u128,
    at: u32,
    key: u32,
    value: u32,
}

/// Entries in memory.
pub(super) struct Sorter {
    bytes: Vec<u8>,
    places: Vec<Place>,
    bytes_max: usize,
    _account: MemoryAccount,
}

impl Sorter {
    /// One that may hold `bytes_max`, or what the pool has left for it.
    pub(super) fn new(pool: &Arc<MemoryPool>, bytes_max: usize) -> Self {
        let mut account = pool.account(bytes_max);
        account.set_up_to(bytes_max);
        let bytes_max = account.bytes().max(SORTED_BYTES_MIN.min(bytes_max));
        Self { bytes: Vec::new(), places: Vec::new(), bytes_max, _account: account }
    }

    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut first = [0; 16];
        let length = key.len().min(first.len());
        first[..length].copy_from_slice(&key[..length]);
        // Of one document's entries and the sorter's own bound, which four bytes count.
        let place = Place {
            first: u128::from_be_bytes(first),
            at: self.bytes.len() as u32,
            key: key.len() as u32,
            value: value.len() as u32,
        };
        self.places.push(place);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn is_full(&self) -> bool {
        // A vector that grows has its old half beside it for a moment.
        3 * (self.bytes.len() + self.places.len() * size_of::<Place>()) >= 2 * self.bytes_max
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Entries, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.places.len(), self.bytes.len())
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    fn key(&self, place: &Place) -> &[u8] {
        let at = place.at as usize;
        &self.bytes[at..at + place.key as usize]
    }

    /// All entries, in order.
    pub(super) fn sorted(&mut self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut places = std::mem::take(&mut self.places);
        places.sort_unstable_by(|a, b| a.first.cmp(&b.first).then_with(|| self.key(a).cmp(self.key(b))));
        self.places = places;
        self.places.iter().map(|place| {
            let value = place.at as usize + place.key as usize;
            (self.key(place), &self.bytes[value..value + place.value as usize])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
