//! Reads that went to RocksDB, and whether its blocks were in memory.
//!
//! RocksDB counts the blocks that each thread took from the cache and from files; so do compactions, but on threads of RocksDB's own.
//! Whoever reads asks after a look-up or at the end of a walk what has been added on its thread.
//!
//! Invariant: what a thread has taken counts once.

use baton_types::Striped;
use rust_rocksdb::perf::{PerfContext, PerfMetric};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    cached_blocks: AtomicU64,
}

/// See the file's header.
pub(crate) struct Reads(Striped<Counts>);

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadCounts {
    /// Reads that needed no file.
    pub hits: u64,
    /// Reads that did.
    pub misses: u64,
    /// Blocks taken from the cache.
    pub cached_blocks: u64,
}

impl Default for Reads {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self(Striped::new(|| Counts { hits: zero(), misses: zero(), cached_blocks: zero() }))
    }
}

thread_local! {
    static BLOCKS: (PerfContext, Cell<(u64, u64)>) = (PerfContext::default(), Cell::new((0, 0)));
}

impl Reads {
    /// A read has ended on this thread.
    pub fn note(&self) {
        // A thread that ends has counted what it read.
        let taken = BLOCKS.try_with(|(context, before)| {
            let now = (context.metric(PerfMetric::BlockCacheHitCount), context.metric(PerfMetric::BlockReadCount));
            let before = before.replace(now);
            (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1))
        });
        let Ok((cached_blocks, read_blocks)) = taken else { return };
        let counts = self.0.mine();
        if read_blocks == 0 { &counts.hits } else { &counts.misses }.fetch_add(1, Relaxed);
        if cached_blocks > 0 {
            counts.cached_blocks.fetch_add(cached_blocks, Relaxed);
        }
    }

    pub(super) fn so_far(&self) -> ReadCounts {
        let add = |sum: ReadCounts, counts: &Counts| ReadCounts {
            hits: sum.hits + counts.hits.load(Relaxed),
            misses: sum.misses + counts.misses.load(Relaxed),
            cached_blocks: sum.cached_blocks + counts.cached_blocks.load(Relaxed),
        };
        self.0.all().fold(ReadCounts::default(), add)
    }
}
