//! How many documents a collection holds, and how many bytes: exact, over a crash too.
//!
//! Invariant: the counters that a `WriteBatch` stores are those after exactly the operations in it and before it,
//! because only the leader of the commit queue changes them, in commit order.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Documents and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Documents.
    pub documents: i64,
    /// Their BSON bytes, uncompressed.
    pub bytes: i64,
}

impl Counts {
    /// As stored: two little-endian 64-bit integers.
    pub fn encode(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.documents.to_le_bytes());
        out[8..].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    /// The inverse of [`Counts::encode`]; `None` for a value of another length.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (documents, bytes) = value.split_at_checked(8)?;
        Some(Self {
            documents: i64::from_le_bytes(documents.try_into().ok()?),
            bytes: i64::from_le_bytes(bytes.try_into().ok()?),
        })
    }
}

/// Counters in memory.
#[derive(Debug, Default)]
pub struct Counters {
    documents: AtomicI64,
    bytes: AtomicI64,
    /// How often what they say was found wrong and mended.
    mends: AtomicU64,
}

impl Counters {
    /// What they say now.
    pub fn get(&self) -> Counts {
        Counts { documents: self.documents.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// Adds a difference and returns the sum.
    pub fn add(&self, change: Counts) -> Counts {
        Counts {
            documents: self.documents.fetch_add(change.documents, Ordering::Relaxed) + change.documents,
            bytes: self.bytes.fetch_add(change.bytes, Ordering::Relaxed) + change.bytes,
        }
    }

    /// How often they were mended.
    pub(crate) fn mends(&self) -> u64 {
        self.mends.load(Ordering::Relaxed)
    }

    /// Whether they were mended no more often than so: then they count as mended once more.
    pub(crate) fn mend_once(&self, before: u64) -> bool {
        self.mends.compare_exchange(before, before + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Replaces the value, after a recount.
    pub fn set(&self, counts: Counts) {
        self.documents.store(counts.documents, Ordering::Relaxed);
        self.bytes.store(counts.bytes, Ordering::Relaxed);
    }
}
