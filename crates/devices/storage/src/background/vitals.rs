//! What this member's storage can say of how it is: what leadership is decided by.
//!
//! Entry point: [`Storage::vitals`], to be called about once a second.
//!
//! Invariants:
//! - What is not known is `None`, never 0 and never a guess.
//! - Nothing here waits for a client or makes one wait: figures are read from counters, RocksDB's properties and the kernel, and the
//!   record cache is looked at a few hundred documents at a time.
//!
//! What it deliberately does not do: judge (`baton-leadership` does).

mod levels;
mod reads;
mod smoothed;

use crate::documents::format::family;
use crate::options::{LEVEL0_FILES_SLOWDOWN, MEMTABLES_MAX, PENDING_BYTES_SLOWDOWN};
use crate::storage::Storage;
use baton_machine::{Limits, Spent};
use levels::FamilyFigures;
pub(crate) use levels::bytes_by_level;
pub(crate) use reads::Reads;
use rust_rocksdb::properties;
use smoothed::{LastMinute, Share, SyncLatency};
use std::time::{Duration, Instant};

/// How often the limits of the process's control groups are read again.
const LIMITS_INTERVAL: Duration = Duration::from_secs(2);
/// What is hot was looked up within this time.
const HOT_FOR: Duration = Duration::from_secs(60);
/// Blocks are of about this size in memory.
const BLOCK_BYTES: u64 = 4 << 10;

/// See the file's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vitals {
    /// Bytes that wait to be compacted, by RocksDB's estimate.
    pub debt_bytes: u64,
    /// Levels that are above their target, over all families.
    pub debt_levels: u32,
    /// How near RocksDB is to slowing writers down: 0 far, 1 there. The nearest of its triggers counts: files in level 0, bytes that
    /// wait for compaction, memtables that wait to be flushed.
    pub stall_nearness: f64,
    /// Share of reads within the last minute that needed nothing from a file; none: nothing was read.
    pub cache_hit_ratio: Option<f64>,
    /// Bytes in the caches that were read within about the last minute. Of documents held by themselves it is what was looked up; of
    /// blocks, the most that it can be.
    pub cache_hot_bytes: u64,
    /// Recent time of one sync of the log, smoothed over a second, and at least as long as the one under way has lasted; none: there
    /// was no sync within a minute.
    pub sync_latency: Option<Duration>,
    /// Share of the disk that is free.
    pub disk_free: Option<f64>,
    /// Share of what the member may use of processors and disk that is not spent on tasks, smoothed over some seconds; none at the
    /// first call.
    pub load: Option<f64>,
    /// Processors that the process may use, by its affinity and the quotas of its control groups.
    pub cpus: f64,
    /// What the control groups let the process read or write of the disk, in bytes a second; none: they set no bound.
    pub disk_bytes_per_sec: Option<f64>,
    /// Seconds that clients' statements which write in steps have taken so far, together.
    pub under_way_secs: f64,
}

/// What is kept from one call to the next.
#[derive(Default)]
pub(crate) struct Watch {
    last: Option<Last>,
    hits: LastMinute,
    syncs: SyncLatency,
    cpu_share: Share,
    disk_share: Share,
    limits: Option<(Instant, Limits)>,
}

struct Last {
    at: Instant,
    process: Spent,
    tasks: Spent,
}

impl Storage {
    /// How storage is now. For one caller, about once a second: figures that are smoothed are so from call to call.
    pub fn vitals(&self) -> Vitals {
        let mut watch = self.watch.lock();
        let now = Instant::now();
        let families = self.family_figures();
        let limits = self.limits(&mut watch, now);
        let since_last = watch.last.as_ref().map(|last| now.saturating_duration_since(last.at));
        if let Some(elapsed) = since_last {
            self.record_cache.age(elapsed.as_secs_f64() / HOT_FOR.as_secs_f64());
        }
        let load = load_of(&mut watch, now, self.tasks().spent(), &limits);
        let at = self.governors.running_for();
        let records = self.record_cache.figures();
        let blocks = self.reads.so_far();
        let read = watch.hits.measure(at, [records.hits + blocks.hits, blocks.misses, blocks.cached_blocks]);
        let metrics = &self.commit.metrics;
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let sync_latency = watch.syncs.measure(
            at,
            metrics.syncs.load(relaxed),
            Duration::from_nanos(metrics.sync_nanos.load(relaxed)),
            self.commit.syncs_since(),
        );
        // Memtables are charged to the cache, and are no blocks of it.
        let memtable_bytes = families.iter().map(|family| family.memtable_bytes).sum();
        let block_bytes = (self.cache.get_usage() as u64).saturating_sub(memtable_bytes);
        let hot_block_bytes = (read[2] * BLOCK_BYTES).min(block_bytes);
        Vitals {
            debt_bytes: families.iter().map(|family| family.pending_bytes).sum(),
            debt_levels: families.iter().map(FamilyFigures::levels_above_target).sum(),
            stall_nearness: families.iter().map(FamilyFigures::stall_nearness).fold(0.0, f64::max),
            cache_hit_ratio: (read[0] + read[1] > 0).then(|| read[0] as f64 / (read[0] + read[1]) as f64),
            cache_hot_bytes: records.hot_bytes + hot_block_bytes,
            sync_latency,
            disk_free: self.disk_free(),
            load,
            cpus: limits.cpus,
            disk_bytes_per_sec: limits.disk_bytes_per_sec,
            under_way_secs: self.flow.under_way_secs(),
        }
    }

    fn limits(&self, watch: &mut Watch, now: Instant) -> Limits {
        match &watch.limits {
            Some((read_at, limits)) if now.saturating_duration_since(*read_at) < LIMITS_INTERVAL => *limits,
            _ => {
                let limits = Limits::of_this_process(self.db().path());
                watch.limits = Some((now, limits));
                limits
            }
        }
    }

    fn disk_free(&self) -> Option<f64> {
        let disk = rustix::fs::statvfs(self.db().path()).ok()?;
        (disk.f_blocks > 0).then(|| disk.f_bavail as f64 / disk.f_blocks as f64)
    }

    fn family_figures(&self) -> Vec<FamilyFigures> {
        let names =
            [family::CATALOG, family::META, family::SESSIONS, family::DOCUMENTS, family::INDEXES, family::OPLOG];
        let figures = names.iter().map(|name| {
            let family = self.family(name);
            let figure =
                |name: &properties::PropName| self.db().property_int_value_cf(family, name).ok().flatten().unwrap_or(0);
            let levels = self.db().property_value_cf(family, properties::LEVELSTATS).ok().flatten();
            FamilyFigures {
                pending_bytes: figure(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
                level0_files: figure(&properties::num_files_at_level(0)),
                immutable_memtables: figure(properties::NUM_IMMUTABLE_MEM_TABLE),
                memtable_bytes: figure(properties::CUR_SIZE_ALL_MEM_TABLES),
                is_slowed: figure(properties::IS_WRITE_STOPPED) > 0
                    || figure(properties::ACTUAL_DELAYED_WRITE_RATE) > 0,
                level_bytes: bytes_by_level(&levels.unwrap_or_default()),
            }
        });
        figures.collect()
    }
}

/// See [`Vitals::load`].
fn load_of(watch: &mut Watch, now: Instant, tasks: Spent, limits: &Limits) -> Option<f64> {
    let process = Spent::of_this_process();
    let last = watch.last.replace(Last { at: now, process, tasks })?;
    let elapsed = now.saturating_duration_since(last.at);
    let of_clients = process.since(last.process).since(tasks.since(last.tasks));
    let bytes = of_clients.read_bytes.zip(of_clients.written_bytes).map(|(read, written)| read + written);
    let cpu = of_clients.cpu.map(|cpu| cpu.as_secs_f64() / limits.cpus);
    let disk = bytes.zip(limits.disk_bytes_per_sec).map(|(bytes, per_sec)| bytes as f64 / per_sec);
    let cpu = watch.cpu_share.measure(elapsed, cpu);
    let disk = watch.disk_share.measure(elapsed, disk);
    cpu.map(|cpu| cpu.max(disk.unwrap_or(0.0)))
}
