//! Figures of storage for `serverStatus`, `collStats`, `dbStats` and `/metrics`.

use crate::catalog::{Collection, CollectionKind, Index};
use crate::format::family;
use crate::record_cache::RecordCacheFigures;
use crate::storage::Storage;
use rust_rocksdb::{Range, SizeApproximationOptions};
use std::sync::atomic::Ordering;

/// Figures of storage as a whole. Bytes unless the name says otherwise.
#[derive(Clone, Debug, Default)]
pub struct StorageStatistics {
    /// Memory for blocks, memtables and hot documents: configured and in use, and the part that cannot be evicted.
    pub cache_bytes_max: u64,
    /// In use.
    pub cache_bytes: u64,
    /// Pinned by readers.
    pub cache_pinned_bytes: u64,
    /// Hot documents held by themselves.
    pub record_cache: RecordCacheFigures,
    /// Memtables of all families.
    pub memtable_bytes: u64,
    /// Files on disk.
    pub sst_bytes: u64,
    /// Of what was dropped and still takes space.
    pub dropped_bytes: u64,
    /// Bytes that compaction has yet to rewrite.
    pub pending_compaction_bytes: u64,
    /// Files in level 0, over all families.
    pub level0_files: u64,
    /// Flushes and compactions running now.
    pub running_flushes: u64,
    /// See `running_flushes`.
    pub running_compactions: u64,
    /// Whether writes are stopped by compaction debt, and the rate they are held to if only slowed (0: not).
    pub write_stopped: bool,
    /// Bytes per second.
    pub delayed_write_rate: u64,
    /// Batches, transactions and syncs of the commit queue, and time spent.
    pub commit_batches: u64,
    /// Transactions committed.
    pub commit_transactions: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Microseconds in syncs.
    pub log_sync_micros: u64,
    /// Microseconds in writing batches.
    pub commit_write_micros: u64,
    /// The oplog's size.
    pub oplog_bytes: u64,
    /// The size it is truncated at.
    pub oplog_bytes_max: u64,
    /// How old its entries get at least, in seconds.
    pub oplog_retention_secs_min: u64,
}

const FAMILIES: [&str; 6] =
    [family::CATALOG, family::META, family::SESSIONS, family::DOCUMENTS, family::INDEXES, family::OPLOG];

impl Storage {
    fn property(&self, family: &str, name: &str) -> u64 {
        self.db().property_int_value_cf(self.family(family), name).ok().flatten().unwrap_or(0)
    }

    fn property_sum(&self, name: &str) -> u64 {
        FAMILIES.iter().map(|family| self.property(family, name)).sum()
    }

    /// Figures as of now.
    pub fn statistics(&self) -> StorageStatistics {
        let metrics = &self.commit.metrics;
        let record_cache = self.record_cache.figures();
        StorageStatistics {
            cache_bytes_max: self.options.cache_bytes as u64,
            cache_bytes: self.cache.get_usage() as u64 + record_cache.bytes,
            record_cache,
            cache_pinned_bytes: self.cache.get_pinned_usage() as u64,
            memtable_bytes: self.property_sum("rocksdb.cur-size-all-mem-tables"),
            sst_bytes: self.property_sum("rocksdb.total-sst-files-size"),
            dropped_bytes: self.dropped_bytes(),
            pending_compaction_bytes: self.property_sum("rocksdb.estimate-pending-compaction-bytes"),
            level0_files: self.property_sum("rocksdb.num-files-at-level0"),
            running_flushes: self.property(family::DOCUMENTS, "rocksdb.num-running-flushes"),
            running_compactions: self.property(family::DOCUMENTS, "rocksdb.num-running-compactions"),
            write_stopped: self.property(family::DOCUMENTS, "rocksdb.is-write-stopped") != 0,
            delayed_write_rate: self.property(family::DOCUMENTS, "rocksdb.actual-delayed-write-rate"),
            commit_batches: metrics.batches.load(Ordering::Relaxed),
            commit_transactions: metrics.transactions.load(Ordering::Relaxed),
            log_syncs: metrics.syncs.load(Ordering::Relaxed),
            log_sync_micros: metrics.sync_nanos.load(Ordering::Relaxed) / 1000,
            commit_write_micros: metrics.write_nanos.load(Ordering::Relaxed) / 1000,
            oplog_bytes: self.oplog_bytes(),
            oplog_bytes_max: self.retention.bytes_max(),
            oplog_retention_secs_min: self.retention.retention_secs_min(),
        }
    }

    /// Bytes a key range takes, in files and memtables: RocksDB's estimate.
    pub(crate) fn range_bytes(&self, family: &str, from: &[u8], to: &[u8]) -> u64 {
        let mut options = SizeApproximationOptions::default();
        options.set_include_memtables(true);
        let ranges = [Range::new(from, to)];
        let sizes = self.db().get_approximate_sizes_cf_with_options(self.family(family), &options, &ranges);
        sizes.ok().and_then(|sizes| sizes.first().copied()).unwrap_or(0)
    }

    /// Bytes a collection's documents take on disk.
    pub fn collection_bytes(&self, collection: &Collection) -> u64 {
        if collection.kind == CollectionKind::Oplog {
            return self.oplog_bytes();
        }
        let (from, to) = Self::extent(collection.id);
        self.range_bytes(family::DOCUMENTS, &from, &to)
    }

    /// Bytes an index takes on disk.
    pub fn index_bytes(&self, index: &Index) -> u64 {
        let (from, to) = Self::extent(index.id);
        self.range_bytes(family::INDEXES, &from, &to)
    }

    /// Bytes the oplog takes on disk and in memory.
    pub fn oplog_bytes(&self) -> u64 {
        self.range_bytes(family::OPLOG, &[0; 8], &[0xff; 8])
    }
}
