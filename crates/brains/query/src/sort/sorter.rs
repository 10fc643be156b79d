//! The sorter behind `sort`, `$sort`, `$sample` and `$bucketAuto`.
//!
//! Invariants: the sort is stable; with a limit of `k` it never holds more than `k` entries in memory, and no run on the
//! disk has more; what it holds never exceeds what its room lets it. Beyond that it spills ([`crate::spill`]), or reports
//! `QueryExceededMemoryLimitNoDiskUseAllowed` (292) where it must not.

use super::SortKey;
use crate::spill::{Merge, Room, Runs, Spillable, Spilled};
use baton_types::Result;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What one entry costs beside its key and payload, in bytes.
const ENTRY_BYTES: usize = 64;
/// So many runs of a sort with a limit are made one, which no longer holds what is not wanted.
const LIMITED_RUNS_MAX: usize = 16;

struct Entry<T> {
    key: SortKey,
    /// Position in the input: equal keys keep their order.
    position: u64,
    bytes: usize,
    value: T,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then(self.position.cmp(&other.position))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

enum Held<T> {
    /// No limit: everything, in the order it came.
    All(Vec<Entry<T>>),
    /// The best so far of at most `limit`, the worst of them on top.
    Best { heap: BinaryHeap<Entry<T>>, limit: usize },
}

impl<T> Held<T> {
    fn len(&self) -> usize {
        match self {
            Self::All(entries) => entries.len(),
            Self::Best { heap, .. } => heap.len(),
        }
    }

    /// What it holds, in order; it holds nothing then.
    fn take_sorted(&mut self) -> Vec<Entry<T>> {
        match self {
            Self::All(entries) => {
                entries.sort_unstable();
                std::mem::take(entries)
            }
            Self::Best { heap, .. } => std::mem::take(heap).into_sorted_vec(),
        }
    }
}

/// Collects values by key and gives them back in order.
pub struct Sorter<T> {
    held: Held<T>,
    position: u64,
    bytes: usize,
    taken_bytes: u64,
    room: Room,
    /// What was too much.
    runs: Option<Runs>,
    /// With a limit: as many entries as are wanted, all before this key, are in a run.
    cutoff: Option<SortKey>,
}

impl<T: Spillable> Sorter<T> {
    /// A sorter that keeps the first `limit` values in order (all, without a limit) in what there is room for.
    pub fn new(limit: Option<u64>, room: Room) -> Self {
        let held = match limit.and_then(|n| usize::try_from(n).ok()) {
            Some(limit) => Held::Best { heap: BinaryHeap::new(), limit },
            None => Held::All(Vec::new()),
        };
        Self { held, position: 0, bytes: 0, taken_bytes: 0, room, runs: None, cutoff: None }
    }

    /// Takes one value of `value_bytes` bytes.
    pub fn push(&mut self, key: SortKey, value: T, value_bytes: usize) -> Result<()> {
        self.taken_bytes += value_bytes as u64;
        let bytes = key.len() + value_bytes + ENTRY_BYTES;
        let entry = Entry { key, position: self.position, bytes, value };
        self.position += 1;
        if self.cutoff.as_ref().is_some_and(|cutoff| entry.key >= *cutoff) {
            return Ok(());
        }
        match &mut self.held {
            Held::All(entries) => entries.push(entry),
            Held::Best { limit: 0, .. } => return Ok(()),
            Held::Best { heap, limit } if heap.len() < *limit => heap.push(entry),
            Held::Best { heap, .. } => match heap.peek_mut() {
                Some(mut worst) if entry < *worst => {
                    self.bytes -= worst.bytes;
                    *worst = entry;
                }
                _ => return Ok(()),
            },
        }
        self.bytes += bytes;
        if !self.room.hold(self.bytes) {
            self.spill()?;
        }
        Ok(())
    }

    /// Writes what is held as a run.
    fn spill(&mut self) -> Result<()> {
        let limit = self.limit();
        if self.runs.is_none() {
            self.runs = self.room.runs()?;
        }
        let Some(runs) = &mut self.runs else {
            return Err(self.room.exceeded("Sort", self.bytes, |bytes_max| {
                format!(
                    "Sort exceeded memory limit of {bytes_max} bytes, but did not opt in to external sorting. Aborting \
                     operation. Pass allowDiskUse:true to opt in."
                )
            }));
        };
        let entries = self.held.take_sorted();
        let is_whole = limit.is_some_and(|limit| entries.len() as u64 >= limit);
        if let Some(worst) = entries.last().filter(|_| is_whole) {
            self.cutoff = Some(worst.key.clone());
        }
        runs.write(&mut self.room, |run| {
            entries.into_iter().try_for_each(|entry| run.put(&entry.key, |out| entry.value.put(out)))
        })?;
        self.bytes = 0;
        if let Some(limit) = limit.filter(|_| runs.len() >= LIMITED_RUNS_MAX)
            && let Some(last) = runs.reduce(&mut self.room, limit)?
        {
            self.cutoff = Some(last);
        }
        // To hold less is always allowed.
        let _ = self.room.hold(0);
        Ok(())
    }

    fn limit(&self) -> Option<u64> {
        match &self.held {
            Held::All(_) => None,
            Held::Best { limit, .. } => Some(*limit as u64),
        }
    }

    /// The key that a further value must sort before to be kept at all; `None` while everything is kept.
    pub fn threshold(&self) -> Option<&[u8]> {
        let worst = match &self.held {
            Held::Best { heap, limit } if heap.len() == *limit => heap.peek().map(|worst| worst.key.as_slice()),
            Held::Best { .. } | Held::All(_) => None,
        };
        worst.into_iter().chain(self.cutoff.as_deref()).min()
    }

    /// Bytes held in memory at the moment.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the values taken in so far.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// What was too much for it so far.
    pub fn spilled(&self) -> Spilled {
        self.room.spilled()
    }

    /// Values that it would give back now.
    pub fn len(&self) -> usize {
        let spilled = self.runs.as_ref().map_or(0, Runs::entries);
        let all = self.held.len() as u64 + spilled;
        usize::try_from(self.limit().map_or(all, |limit| all.min(limit))).unwrap_or(usize::MAX)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in order, each with its key.
    pub fn into_sorted(mut self) -> Result<Sorted<T>> {
        self.room.count_taken(self.position, self.taken_bytes);
        if self.runs.is_some() && self.held.len() > 0 {
            self.spill()?;
        }
        let (left, limit) = (self.len(), self.limit());
        let values = match self.runs {
            None => Values::InMemory(self.held.take_sorted().into_iter()),
            Some(runs) => Values::Merged(Box::new(runs.into_merge(&mut self.room, limit)?)),
        };
        Ok(Sorted { values, left, taken_bytes: self.taken_bytes, next: None, room: self.room })
    }
}

enum Values<T> {
    InMemory(std::vec::IntoIter<Entry<T>>),
    Merged(Box<Merge>),
}

/// Values in order, each with its key. What is still to come counts as held.
pub struct Sorted<T> {
    values: Values<T>,
    left: usize,
    taken_bytes: u64,
    /// What was looked at and not taken yet.
    next: Option<(SortKey, T)>,
    room: Room,
}

impl<T: Spillable> Sorted<T> {
    /// Nothing.
    pub fn empty() -> Self {
        let values = Values::InMemory(Vec::new().into_iter());
        Self { values, left: 0, taken_bytes: 0, next: None, room: Room::of_bytes(0) }
    }

    /// The value that comes next.
    pub fn peek(&mut self) -> Result<Option<&T>> {
        if self.next.is_none() {
            self.next = self.read()?;
        }
        Ok(self.next.as_ref().map(|(_, value)| value))
    }

    /// Takes the value that comes next.
    pub fn pop(&mut self) -> Result<Option<(SortKey, T)>> {
        let next = match self.next.take() {
            Some(next) => Some(next),
            None => self.read()?,
        };
        self.left -= usize::from(next.is_some());
        if self.left == 0 {
            // The file goes now, and not with the cursor.
            self.values = Values::InMemory(Vec::new().into_iter());
            let _ = self.room.hold(0);
        }
        Ok(next)
    }

    /// The same if it is one that is wanted.
    pub fn pop_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Result<Option<(SortKey, T)>> {
        if self.peek()?.is_some_and(is_wanted) { self.pop() } else { Ok(None) }
    }

    /// Passes over so many.
    pub fn skip(&mut self, count: usize) -> Result<()> {
        for _ in 0..count.min(self.left) {
            self.pop()?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<Option<(SortKey, T)>> {
        if self.left == 0 {
            return Ok(None);
        }
        match &mut self.values {
            Values::InMemory(entries) => {
                let Some(entry) = entries.next() else { return Ok(None) };
                let left = self.room.bytes().saturating_sub(entry.bytes);
                // To hold less is always allowed.
                let _ = self.room.hold(left);
                Ok(Some((entry.key, entry.value)))
            }
            Values::Merged(merge) => {
                let Some((key, value)) = merge.next()? else { return Ok(None) };
                Ok(Some((key.to_vec(), T::take(value)?)))
            }
        }
    }

    /// How many are still to come.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Bytes of the values that were sorted.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// What was too much for memory.
    pub fn spilled(&self) -> Spilled {
        self.room.spilled()
    }
}
