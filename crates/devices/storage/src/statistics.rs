//! Figures of storage for `serverStatus`, `collStats`, `dbStats` and `/metrics`.

use crate::catalog::{Collection, CollectionKind, Index};
use crate::documents::counters::Counts;
use crate::documents::format::family;
use crate::documents::record_cache::RecordCacheFigures;
use crate::storage::Storage;
use rust_rocksdb::{Range, SizeApproximationOptions};
use std::sync::atomic::Ordering;

/// How many of the newest entries of the oplog, and bytes of them, tell how large those are that are in memory only.
const SAMPLE_ENTRIES: u64 = 256;
const SAMPLE_BYTES: u64 = 1024 * 1024;

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
    /// Of files that nobody has any more, and that go piece by piece.
    pub removed_bytes: u64,
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
            removed_bytes: self.removal.bytes(),
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

    /// The oplog's entries, and their bytes uncompressed, from what RocksDB knows of its files. Until the next compaction entries
    /// count that were rolled back; of more than a few hundred in memory, the bytes are an estimate.
    pub fn oplog_counts(&self) -> Counts {
        let oplog = self.family(family::OPLOG);
        let files = self.db().property_value_cf(oplog, "rocksdb.aggregated-table-properties");
        let files = files.ok().flatten().unwrap_or_default();
        let of_files = |name| table_property(&files, name).unwrap_or(0);
        let (removed, ranges) = (of_files("# deletions"), of_files("# range deletions"));
        let mut entries = of_files("# entries").saturating_sub(removed.max(ranges));
        let mut bytes = of_files("raw value size");
        let in_memory = self.property(family::OPLOG, "rocksdb.num-entries-active-mem-table")
            + self.property(family::OPLOG, "rocksdb.num-entries-imm-mem-tables");
        if in_memory > 0 {
            entries += in_memory;
            let (mut sampled, mut sampled_bytes) = (0, 0);
            let mut newest = self.db().raw_iterator_cf(oplog);
            newest.seek_to_last();
            while let Some(entry) = newest.value()
                && sampled < in_memory.min(SAMPLE_ENTRIES)
                && sampled_bytes < SAMPLE_BYTES
            {
                sampled += 1;
                sampled_bytes += entry.len() as u64;
                newest.prev();
            }
            bytes += (u128::from(sampled_bytes) * u128::from(in_memory) / u128::from(sampled.max(1))) as u64;
        }
        Counts { documents: entries as i64, bytes: bytes as i64 }
    }
}

/// A figure in RocksDB's list of properties: `name=figure; `.
fn table_property(list: &str, name: &str) -> Option<u64> {
    list.split(';').find_map(|property| property.trim().strip_prefix(name)?.strip_prefix('=')?.trim().parse().ok())
}
