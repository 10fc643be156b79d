//! How RocksDB is set up, and what an operator may set.

use crate::background::compaction_pace::{CompactionPace, Pacing};
use crate::background::tasks::listener::TaskListener;
use crate::documents::format::family;
use rust_rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, Env, Options, RateLimiterMode,
    WriteBufferManager,
};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Logs kept to be written over.
const RECYCLED_LOG_FILES: usize = 3;

/// The most that flushes and compactions write, in bytes a second. They begin, after any pause, with a twentieth of it, and may write
/// a twentieth more each tenth of a second (a hundred refills) as long as they use it up. That twentieth has to be more than clients
/// write: with 32 MB a second memtables filled faster than they were flushed, and RocksDB stopped everybody for seconds.
const BACKGROUND_BYTES_PER_SEC_MAX: i64 = 8_000_000_000;
/// How often they are given their share, in microseconds. A longer period gives more at once.
const BACKGROUND_REFILL_MICROS: i64 = 1000;
/// Compactions come before a waiting flush once in so many times.
const BACKGROUND_FAIRNESS: i32 = 10;

/// Files in level 0 from which RocksDB compacts, and from which it slows writers down, each its default.
pub(crate) const LEVEL0_FILES_DUE: u64 = 4;
pub(crate) const LEVEL0_FILES_SLOWDOWN: u64 = 20;
/// Bytes that wait for compaction from which it slows writers down: its default, too.
pub(crate) const PENDING_BYTES_SLOWDOWN: u64 = 64 << 30;
/// Memtables of a family; when one less than that wait to be flushed, it slows writers down.
pub(crate) const MEMTABLES_MAX: u64 = 4;
/// The size of the first level below level 0, at the most, and how many times larger each further one may be.
pub(crate) const LEVEL_BASE_BYTES: u64 = 256 << 20;
pub(crate) const LEVEL_FACTOR: u64 = 10;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// What an operator may set about storage.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// Memory for blocks, memtables and hot documents together, in bytes.
    pub cache_bytes: usize,
    /// Size at which a new oplog is truncated from its old end, in bytes. One that is there has its own.
    pub oplog_bytes_max: u64,
    /// Entries younger than this stay, whatever the oplog's size, in seconds; as it was, if absent.
    pub oplog_retention_secs_min: Option<u64>,
    /// Threads for flushes and compactions.
    pub background_jobs: i32,
    /// How far back documents can be read as they were, in seconds. Older versions go with the next compaction.
    pub history_secs: u32,
    /// Size of its memtables, in percent of what the cache's size makes them: see [`Self::with_memtables_by_chance`].
    pub memtable_percent: u8,
    /// Tables kept open, so a share of the process's file descriptors. What is read beyond them is opened anew each time.
    pub open_tables_max: i32,
    /// Files of spilled queries kept open, the same way.
    pub open_spills_max: usize,
    /// What one index build sorts in memory at once, in bytes; all together twice that.
    pub index_build_bytes: usize,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 1024 * MIB,
            oplog_bytes_max: 990 * MIB as u64,
            oplog_retention_secs_min: None,
            background_jobs: 2,
            history_secs: 10,
            memtable_percent: 100,
            open_tables_max: 4096,
            open_spills_max: 64,
            index_build_bytes: 64 * MIB,
        }
    }
}

impl StorageOptions {
    /// The same, with memtables up to 15 % larger or smaller. Members of a set take the same bytes in the same order: with
    /// memtables of one size all would write them out at the same moment, and nobody would be left to acknowledge a majority.
    pub fn with_memtables_by_chance(self) -> Self {
        let chance = RandomState::new().hash_one(self.cache_bytes);
        Self { memtable_percent: 85 + (chance % 31) as u8, ..self }
    }

    /// Memtables of all families together; charged to the cache. Also bounds the log that a restart replays.
    fn memtable_bytes(&self) -> usize {
        (self.cache_bytes / 4).clamp(16 * MIB, 128 * MIB) / 100 * usize::from(self.memtable_percent)
    }

    /// Size at which a family's memtable is full, in bytes; of one of the large families.
    pub(crate) fn family_memtable_bytes(&self) -> usize {
        self.memtable_bytes() / 2
    }

    /// The block cache, shared by all families; of the kind whose look-ups take no lock.
    pub(crate) fn cache(&self) -> Cache {
        Cache::new_hyper_clock_cache(self.block_cache_bytes(), 0)
    }

    /// The part of the memory that is for blocks and memtables, in bytes.
    pub(crate) fn block_cache_bytes(&self) -> usize {
        self.cache_bytes - self.record_cache_bytes()
    }

    /// The part of the memory that holds hot documents by themselves, in bytes. A byte here serves more look-ups by `_id` than
    /// one in a block, which has a page of neighbours beside the document asked for; blocks serve all else.
    pub(crate) fn record_cache_bytes(&self) -> usize {
        self.cache_bytes / 2
    }

    /// Options of the database as a whole.
    pub(crate) fn database(&self, cache: &Cache, listener: TaskListener) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_max_background_jobs(self.background_jobs);
        options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
            self.memtable_bytes(),
            false,
            cache.clone(),
        ));
        // A torn tail is what a crash leaves; what else may be wrong with the log is looked for before: see `log_check`.
        options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        options.set_max_total_wal_size(2 * self.memtable_bytes() as u64);
        // Writing over an old log changes no file's size, so a sync writes data and no metadata: the median falls by a third,
        // and the 99th percentile, where others use the disk, from milliseconds to a fraction of one.
        options.set_recycle_log_file_num(RECYCLED_LOG_FILES);
        // A disk that was given everything at once makes each sync wait for it, so what flushes and compactions write is spread over
        // the time that they have: see docs/spikes/background-writes.md.
        options.set_ratelimiter_with_mode(
            BACKGROUND_BYTES_PER_SEC_MAX,
            BACKGROUND_REFILL_MICROS,
            BACKGROUND_FAIRNESS,
            RateLimiterMode::KWritesOnly,
            true,
        );
        options.set_bytes_per_sync(256 * KIB as u64);
        // Where the disk is throttled, what it was told to write and nobody waits for is in front of the next sync.
        options.set_strict_bytes_per_sync(true);
        options.set_compaction_readahead_size(2 * MIB);
        // Who reads last of a file that is obsolete, or of a memtable, would remove it: files of a collection that was dropped went on
        // the time of a client's read by `_id`. They are left to the background.
        options.set_avoid_unnecessary_blocking_io(true);
        // Compactions have the niceness 19, flushes (for which writers may wait) none: see docs/spikes/background-weight.md.
        match Env::new() {
            Ok(mut env) => {
                env.lower_thread_pool_cpu_priority();
                options.set_env(&env);
            }
            Err(error) => {
                tracing::warn!(component = "STORAGE", error = %error, "Compactions weigh as much as clients");
            }
        }
        options.set_max_open_files(self.open_tables_max);
        options.set_keep_log_file_num(4);
        options.set_max_log_file_size(8 * MIB);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options.add_event_listener(listener);
        options
    }

    /// All column families with their options.
    pub(crate) fn families(&self, cache: &Cache, pace: &Arc<CompactionPace>) -> Vec<ColumnFamilyDescriptor> {
        let paced = |mut options: Options| {
            options.set_compaction_filter_factory(Pacing(Arc::clone(pace)));
            options
        };
        [
            (rust_rocksdb::DEFAULT_COLUMN_FAMILY_NAME, self.small(cache)),
            (family::CATALOG, self.small(cache)),
            (family::META, self.small(cache)),
            (family::SESSIONS, self.small(cache)),
            (family::DOCUMENTS, paced(self.documents(cache))),
            (family::INDEXES, paced(self.indexes(cache))),
            (family::OPLOG, paced(self.oplog(cache))),
        ]
        .into_iter()
        .map(|(name, options)| ColumnFamilyDescriptor::new(name, options))
        .collect()
    }

    fn table(cache: &Cache, block_bytes: usize) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        table.set_block_size(block_bytes);
        table.set_format_version(6);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table
    }

    fn documents(&self, cache: &Cache) -> Options {
        let mut table = Self::table(cache, 4 * KIB);
        table.set_bloom_filter(10.0, false);
        let mut options = Self::versioned(self.leveled(&table));
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(0.02);
        options
    }

    /// Options of the family of indexes, and of tables that it takes in.
    pub(crate) fn indexes(&self, cache: &Cache) -> Options {
        Self::versioned(self.leveled(&Self::table(cache, 4 * KIB)))
    }

    /// RocksDB's own comparator for keys that end in a 64-bit timestamp; a comparator in Rust costs a call through C for
    /// every comparison.
    fn versioned(mut options: Options) -> Options {
        options
            .get_options_from_string("comparator=leveldb.BytewiseComparator.u64ts")
            .unwrap_or_else(|error| unreachable!("RocksDB knows its own comparator: {error}"))
    }

    /// The oplog is written in key order and dropped by whole files from the old end: it needs no filters, and small
    /// files, so that truncation follows its limit closely.
    fn oplog(&self, cache: &Cache) -> Options {
        let mut options = self.leveled(&Self::table(cache, 32 * KIB));
        options.set_target_file_size_base(32 * MIB as u64);
        options
    }

    fn small(&self, cache: &Cache) -> Options {
        let mut options = self.leveled(&Self::table(cache, 4 * KIB));
        options.set_write_buffer_size(4 * MIB);
        options
    }

    fn leveled(&self, table: &BlockBasedOptions) -> Options {
        let mut options = Options::default();
        options.set_block_based_table_factory(table);
        // What is rewritten soon is not worth the cycles: level 0 and the one that it is merged into stay as they are.
        let (none, lz4) = (DBCompressionType::None, DBCompressionType::Lz4);
        options.set_compression_per_level(&[none, none, lz4, lz4, lz4, lz4, lz4]);
        options.set_write_buffer_size(self.family_memtable_bytes());
        options.set_max_write_buffer_number(MEMTABLES_MAX as i32);
        options.set_level_zero_file_num_compaction_trigger(LEVEL0_FILES_DUE as i32);
        options.set_level_zero_slowdown_writes_trigger(LEVEL0_FILES_SLOWDOWN as i32);
        options.set_soft_pending_compaction_bytes_limit(PENDING_BYTES_SLOWDOWN as usize);
        options.set_max_bytes_for_level_base(LEVEL_BASE_BYTES);
        options.set_max_bytes_for_level_multiplier(LEVEL_FACTOR as f64);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_target_file_size_base(64 * MIB as u64);
        // Switched on when the gate agrees: see the governor.
        options.set_disable_auto_compactions(true);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_memtables_differ_by_chance_and_by_no_more_than_a_sixth() {
        let sizes: std::collections::BTreeSet<usize> =
            (0..100).map(|_| StorageOptions::default().with_memtables_by_chance().memtable_bytes()).collect();
        assert!(sizes.len() > 10, "{sizes:?}");
        let usual = StorageOptions::default().memtable_bytes();
        assert!(sizes.iter().all(|size| (usual / 100 * 85..=usual / 100 * 115).contains(size)), "{sizes:?}");
    }
}
