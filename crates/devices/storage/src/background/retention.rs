//! Truncation of the oplog: whole files dropped from its old end, which costs no compaction.
//!
//! Invariant: an entry younger than the minimum retention stays; and what goes is a prefix of the log, so no reader
//! ever meets a gap, only an end. Cursors that stood in the dropped part get `CappedPositionLost` (136).

use crate::background::Chores;
use crate::background::tasks::{Asked, TaskGuard, TaskKind, WaitingTask};
use crate::documents::format::{family, oplog_key};
use crate::log::Oplog;
use crate::log::facts::Fact;
use crate::machine::read_failure;
use crate::options::StorageOptions;
use crate::storage::Storage;
use baton_types::{OpTime, Result, Timestamp, must_not_unwind};
use parking_lot::Mutex;
use rust_rocksdb::DB;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The limits, and what is gone.
pub struct Retention {
    /// The truncation that waits for the gate. Held by the one who truncates.
    waiting: Mutex<Option<WaitingTask>>,
    bytes_max: AtomicU64,
    retention_secs_min: AtomicU64,
    /// Everything below this timestamp may be gone.
    oldest: AtomicU64,
    /// Versions of documents below this timestamp may be gone, unless they are the newest.
    history_from: AtomicU64,
    /// Versions as of this timestamp are kept: a rollback reads them. The highest there is while no set says otherwise.
    commit_point: AtomicU64,
}

/// How large the oplog may grow, and how old its entries get at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OplogLimits {
    pub(crate) bytes_max: u64,
    pub(crate) retention_secs_min: u64,
}

impl OplogLimits {
    /// Those that are kept; where there are none they are decided now, and kept. What the operator says of the size counts for a new
    /// oplog only; of the age at every start.
    pub(crate) fn of(db: &DB, options: &StorageOptions) -> Result<Self> {
        let meta = db.cf_handle(family::META).unwrap_or_else(|| unreachable!("opened"));
        let stored = db.get_pinned_cf(meta, Fact::OplogLimits.key()).map_err(read_failure)?;
        let stored = stored.and_then(|bytes| Self::decode(&bytes));
        let limits = Self {
            bytes_max: stored.map_or(options.oplog_bytes_max, |stored| stored.bytes_max),
            retention_secs_min: options
                .oplog_retention_secs_min
                .unwrap_or_else(|| stored.map_or(0, |stored| stored.retention_secs_min)),
        };
        if stored != Some(limits) {
            db.put_cf(meta, Fact::OplogLimits.key(), limits.encode()).map_err(read_failure)?;
        }
        Ok(limits)
    }

    fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.bytes_max.to_le_bytes());
        bytes[8..].copy_from_slice(&self.retention_secs_min.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes_max, secs) = bytes.split_first_chunk::<8>()?;
        Some(Self {
            bytes_max: u64::from_le_bytes(*bytes_max),
            retention_secs_min: u64::from_le_bytes(secs.try_into().ok()?),
        })
    }
}

impl Retention {
    /// Of a member of a set nothing counts as committed before the set has said so.
    pub(crate) fn new(limits: OplogLimits, is_member: bool) -> Self {
        Self {
            waiting: Mutex::default(),
            bytes_max: AtomicU64::new(limits.bytes_max),
            retention_secs_min: AtomicU64::new(limits.retention_secs_min),
            oldest: AtomicU64::new(0),
            history_from: AtomicU64::new(0),
            commit_point: AtomicU64::new(if is_member { 0 } else { u64::MAX }),
        }
    }

    /// Timestamps below this may have been dropped.
    pub fn oldest(&self) -> Timestamp {
        Timestamp::from_u64(self.oldest.load(Ordering::Acquire))
    }

    /// The oldest time as of which documents can be read.
    pub fn history_from(&self) -> Timestamp {
        Timestamp::from_u64(self.history_from.load(Ordering::Acquire))
    }

    /// The size it is truncated at.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// How old entries get at least, in seconds.
    pub(crate) fn retention_secs_min(&self) -> u64 {
        self.retention_secs_min.load(Ordering::Relaxed)
    }

    /// Sets new limits; tells which they are then.
    fn resize(&self, bytes_max: Option<u64>, retention_secs_min: Option<u64>) -> OplogLimits {
        if let Some(bytes) = bytes_max {
            self.bytes_max.store(bytes, Ordering::Relaxed);
        }
        if let Some(secs) = retention_secs_min {
            self.retention_secs_min.store(secs, Ordering::Relaxed);
        }
        OplogLimits { bytes_max: self.bytes_max(), retention_secs_min: self.retention_secs_min() }
    }
}

impl Oplog<'_> {
    /// Notes what the set has committed: no rollback goes back behind it, so history is kept from there on.
    pub fn set_commit_point(&self, optime: OpTime) {
        self.0.retention.commit_point.store(optime.timestamp.as_u64(), Ordering::Release);
        self.0.queue().note_committed(optime.timestamp);
        self.0.flow.advanced();
    }

    /// What the set is known to have committed; nothing, if no set has said so.
    pub fn commit_point(&self) -> Option<Timestamp> {
        let known = self.0.retention.commit_point.load(Ordering::Acquire);
        (known != u64::MAX).then_some(Timestamp::from_u64(known))
    }

    /// The oldest timestamp a reader of the oplog may begin at.
    pub fn readable_from(&self) -> Timestamp {
        self.0.retention.oldest()
    }

    /// The size that the oplog is truncated at, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.0.retention.bytes_max()
    }

    /// Sets new limits for the oplog (`replSetResizeOplog`), and keeps them.
    pub fn resize(&self, bytes_max: Option<u64>, retention_secs_min: Option<u64>) {
        let limits = self.0.retention.resize(bytes_max, retention_secs_min);
        self.0.facts().put(Fact::OplogLimits, &limits.encode());
    }
}

impl Chores<'_> {
    /// Lets compaction drop versions of documents older than the history window. Called now and then.
    pub fn forget_history(&self) {
        let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let seconds = now_secs.saturating_sub(u64::from(self.0.options.history_secs)) as u32;
        let low = Timestamp { seconds, increment: 0 }
            .as_u64()
            .min(self.0.queue().applied().timestamp.as_u64())
            .min(self.0.retention.commit_point.load(Ordering::Acquire));
        self.0.retention.history_from.fetch_max(low, Ordering::AcqRel);
        for name in [family::DOCUMENTS, family::INDEXES] {
            if let Err(error) = self.0.db().increase_full_history_ts_low(self.0.family(name), low.to_le_bytes()) {
                tracing::debug!(component = "STORAGE", error = %error, family = name, "History window not moved");
            }
        }
    }

    /// Drops the oplog's oldest files while it is larger than it may be. Returns the bytes dropped. To be called about once a
    /// second, by a thread on which no client waits: nobody's commit truncates.
    pub fn truncate_oplog(&self) -> u64 {
        let Some(mut waiting) = self.0.retention.waiting.try_lock() else { return 0 };
        let asked_before = waiting.take();
        let excess = self.0.oplog_bytes().saturating_sub(self.0.retention.bytes_max());
        if excess == 0 {
            return 0;
        }
        let asked = match asked_before {
            Some(waiting) => waiting.ask_again(),
            None => self.0.tasks().admit(TaskKind::OplogTruncation, "local.oplog.rs", excess),
        };
        match asked {
            Asked::Admitted(task) => {
                let _guard = must_not_unwind("truncating the oplog");
                self.0.drop_oldest_files(excess, &task)
            }
            Asked::Waits(again) => {
                *waiting = Some(again);
                0
            }
        }
    }
}

impl Storage {
    /// Whether no rollback takes this entry away: the set has committed it, or there is no set.
    pub(crate) fn is_committed(&self, optime: OpTime) -> bool {
        optime.timestamp.as_u64() <= self.retention.commit_point.load(Ordering::Acquire)
    }

    fn drop_oldest_files(&self, mut excess: u64, task: &TaskGuard) -> u64 {
        let retention = &self.retention;
        let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let secs_min = retention.retention_secs_min.load(Ordering::Relaxed);
        // Entries of that second are in part too young; without a minimum none is.
        let keep_from_secs = if secs_min == 0 { u32::MAX } else { now_secs.saturating_sub(secs_min) as u32 };
        let Ok(mut files) = self.db().live_files() else { return 0 };
        files.retain(|file| file.column_family_name == family::OPLOG);
        files.sort_by(|a, b| a.start_key.cmp(&b.start_key));
        let total = excess;
        let mut dropped = 0;
        // A rollback looks for the last common entry, which is no older than what is committed; and wants to know its stamp.
        let committed = retention.commit_point.load(Ordering::Acquire);
        let keep_from = self.commit.stamps_needed_from(committed).map_or(committed, |from| from.min(committed));
        for file in files {
            let Some(last) = file.end_key.as_deref().and_then(crate::documents::format::oplog_timestamp) else {
                continue;
            };
            if excess < file.size as u64 || last.seconds >= keep_from_secs {
                break;
            }
            let end = Timestamp::from_u64(last.as_u64() + 1);
            if last.as_u64() >= keep_from {
                break;
            }
            // Readers are told first, so that none takes a dropped file for the log's beginning.
            retention.oldest.fetch_max(end.as_u64(), Ordering::AcqRel);
            crash_point!("oplog-truncation-before-file");
            self.keep_for_removal(&file);
            if let Err(error) = self.db().delete_file_in_range_cf(self.family(family::OPLOG), [0; 8], oplog_key(end)) {
                tracing::warn!(component = "STORAGE", error = %error, "Could not drop an oplog file; trying again later");
                break;
            }
            crash_point!("oplog-truncation-after-file");
            excess -= file.size as u64;
            dropped += file.size as u64;
            task.progress(dropped, total);
        }
        dropped
    }
}
