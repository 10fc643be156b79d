//! The in-memory sorter behind `sort`, `$sort` and `$sample`.
//!
//! Invariants: the sort is stable; with a limit of `k` it never holds more than `k` entries; what it holds never
//! exceeds its memory bound, which it reports as `QueryExceededMemoryLimitNoDiskUseAllowed` (292).
//!
//! What it deliberately does not do: spill to disk. A sort that outgrows its bound fails and says so.

use super::SortKey;
use baton_types::{Error, ErrorCode, MemoryAccount, Result};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What one entry costs beside its key and payload, in bytes.
const ENTRY_BYTES: usize = 64;

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

/// Collects values by key and gives them back in order.
pub struct Sorter<T> {
    held: Held<T>,
    position: u64,
    bytes: usize,
    memory: MemoryAccount,
}

impl<T> Sorter<T> {
    /// A sorter that keeps the first `limit` values in order (all, without a limit) in what `memory` may hold.
    pub fn new(limit: Option<u64>, memory: MemoryAccount) -> Self {
        let held = match limit.and_then(|n| usize::try_from(n).ok()) {
            Some(limit) => Held::Best { heap: BinaryHeap::new(), limit },
            None => Held::All(Vec::new()),
        };
        Self { held, position: 0, bytes: 0, memory }
    }

    /// Takes one value of `value_bytes` bytes.
    pub fn push(&mut self, key: SortKey, value: T, value_bytes: usize) -> Result<()> {
        let bytes = key.len() + value_bytes + ENTRY_BYTES;
        let entry = Entry { key, position: self.position, bytes, value };
        self.position += 1;
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
        if !self.memory.set(self.bytes) {
            return Err(memory_exceeded(&self.memory, self.bytes));
        }
        Ok(())
    }

    /// The key that a further value must sort before to be kept at all; `None` while everything is kept.
    pub fn threshold(&self) -> Option<&[u8]> {
        match &self.held {
            Held::Best { heap, limit } if heap.len() == *limit => heap.peek().map(|worst| worst.key.as_slice()),
            Held::Best { .. } | Held::All(_) => None,
        }
    }

    /// Bytes held at the moment.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Values held at the moment.
    pub fn len(&self) -> usize {
        match &self.held {
            Held::All(entries) => entries.len(),
            Held::Best { heap, .. } => heap.len(),
        }
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in order, each with its key.
    pub fn into_sorted(self) -> Sorted<T> {
        let entries = match self.held {
            Held::All(mut entries) => {
                entries.sort_unstable();
                entries
            }
            Held::Best { heap, .. } => heap.into_sorted_vec(),
        };
        Sorted { entries: entries.into_iter(), memory: self.memory }
    }
}

/// Values in order, each with its key. What is still to come counts as held.
pub struct Sorted<T> {
    entries: std::vec::IntoIter<Entry<T>>,
    memory: MemoryAccount,
}

impl<T> Sorted<T> {
    /// Nothing.
    pub fn empty() -> Self {
        Self { entries: Vec::new().into_iter(), memory: MemoryAccount::alone(0) }
    }

    /// The value that comes next.
    pub fn peek(&self) -> Option<&T> {
        self.entries.as_slice().first().map(|entry| &entry.value)
    }
}

impl<T> Iterator for Sorted<T> {
    type Item = (SortKey, T);

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entries.next()?;
        let left = self.memory.bytes().saturating_sub(entry.bytes);
        // To hold less is always allowed.
        let _ = self.memory.set(left);
        Some((entry.key, entry.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<T> ExactSizeIterator for Sorted<T> {}

/// The error of a sort that would hold so many bytes.
fn memory_exceeded(memory: &MemoryAccount, bytes: usize) -> Error {
    let bytes_max = memory.bytes_max();
    Error::new(
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
        if bytes > bytes_max {
            format!(
                "Sort exceeded memory limit of {bytes_max} bytes, and sorting on disk (allowDiskUse) is not implemented; \
                 sort by an index, ask for fewer documents, or raise internalQueryMaxBlockingSortMemoryUsageBytes."
            )
        } else {
            "Sort exceeded the memory that all requests share; try again when fewer sorts run or cursors are open, or \
             sort by an index."
                .to_owned()
        },
    )
}
