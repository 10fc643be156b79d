//! RocksDB's flushes and compactions as tasks. It decides itself when they begin: the gate is asked before, where that can be put
//! off ([`crate::background::governor`]), and here it is told, job by job.
//!
//! Never waits for anybody: a listener that does holds a background thread and the files it picked. What a compaction has made obsolete
//! gets its second name here ([`Removal`]), before RocksDB removes it: a link for each file, on the compaction's own thread.

use super::{Spent, TaskGuard, TaskKind, TaskRegistry};
use crate::background::removal::Removal;
use baton_machine::keep_long_slices;
use parking_lot::Mutex;
use rust_rocksdb::event_listener::{CompactionJobInfo, DBCompactionReason, EventListener, FlushJobInfo};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Feeds the jobs of one database into the registry.
pub struct TaskListener {
    registry: Arc<TaskRegistry>,
    jobs: Mutex<HashMap<(TaskKind, i32), TaskGuard>>,
    removal: Arc<Removal>,
}

impl TaskListener {
    /// A listener for one database.
    pub(crate) fn new(registry: Arc<TaskRegistry>, removal: Arc<Removal>) -> Self {
        Self { registry, jobs: Mutex::default(), removal }
    }

    fn began(&self, kind: TaskKind, job: i32, family: Option<Vec<u8>>, bytes: u64) {
        let name = family.map_or_else(String::new, |name| String::from_utf8_lossy(&name).into_owned());
        let guard = self.registry.admit_now(kind, name, bytes);
        self.jobs.lock().insert((kind, job), guard);
    }

    /// It costs what its thread spent; of a compaction RocksDB tells more.
    fn ended(&self, kind: TaskKind, job: i32, compaction: Option<&CompactionJobInfo>) {
        let Some(guard) = self.jobs.lock().remove(&(kind, job)) else { return };
        let Some(info) = compaction else { return };
        let cpu = Some(info.stats().cpu_micros()).filter(|micros| *micros > 0).map(Duration::from_micros);
        let spent = Spent {
            cpu: cpu.or_else(|| guard.spent().cpu),
            read_bytes: Some(info.total_input_bytes()),
            written_bytes: Some(info.total_output_bytes()),
        };
        if matches!(info.compaction_reason(), DBCompactionReason::KManualCompaction) {
            self.registry.asked_compactions.ended(spent);
        }
        guard.charge(spent);
    }
}

impl EventListener for TaskListener {
    fn on_flush_begin(&self, info: &FlushJobInfo) {
        self.began(TaskKind::Flush, info.job_id(), info.cf_name(), 0);
        crash_point!("flush-begin");
    }

    fn on_flush_completed(&self, info: &FlushJobInfo) {
        crash_point!("flush-completed");
        self.ended(TaskKind::Flush, info.job_id(), None);
    }

    fn on_compaction_begin(&self, info: &CompactionJobInfo) {
        // On the thread that compacts, which does nothing else in its life.
        keep_long_slices();
        self.began(TaskKind::Compaction, info.job_id(), info.cf_name(), info.total_input_bytes());
        crash_point!("compaction-begin");
    }

    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        crash_point!("compaction-completed");
        self.ended(TaskKind::Compaction, info.job_id(), Some(info));
        // What was only moved to another level stays.
        for file in info.input_files().filter(|input| info.output_files().all(|output| output != *input)) {
            self.removal.keep(Path::new(OsStr::from_bytes(file)));
        }
    }
}
