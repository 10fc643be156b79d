//! RocksDB's flushes and compactions as tasks. It decides itself when they begin: the gate is asked before, where that can be put
//! off ([`crate::governor`]), and here it is told, job by job.
//!
//! Never blocks: a blocked listener holds a background thread and the files it picked.

use super::{TaskGuard, TaskKind, TaskRegistry};
use parking_lot::Mutex;
use rust_rocksdb::event_listener::{CompactionJobInfo, EventListener, FlushJobInfo};
use std::collections::HashMap;
use std::sync::Arc;

/// Feeds the jobs of one database into the registry.
pub struct TaskListener {
    registry: Arc<TaskRegistry>,
    jobs: Mutex<HashMap<(TaskKind, i32), TaskGuard>>,
}

impl TaskListener {
    /// A listener for one database.
    pub fn new(registry: Arc<TaskRegistry>) -> Self {
        Self { registry, jobs: Mutex::default() }
    }

    fn began(&self, kind: TaskKind, job: i32, family: Option<Vec<u8>>, bytes: u64) {
        let name = family.map_or_else(String::new, |name| String::from_utf8_lossy(&name).into_owned());
        let guard = self.registry.admit_now(kind, name, bytes);
        self.jobs.lock().insert((kind, job), guard);
    }

    fn ended(&self, kind: TaskKind, job: i32) {
        let guard = self.jobs.lock().remove(&(kind, job));
        drop(guard);
    }
}

impl EventListener for TaskListener {
    fn on_flush_begin(&self, info: &FlushJobInfo) {
        self.began(TaskKind::Flush, info.job_id(), info.cf_name(), 0);
        crash_point!("flush-begin");
    }

    fn on_flush_completed(&self, info: &FlushJobInfo) {
        crash_point!("flush-completed");
        self.ended(TaskKind::Flush, info.job_id());
    }

    fn on_compaction_begin(&self, info: &CompactionJobInfo) {
        self.began(TaskKind::Compaction, info.job_id(), info.cf_name(), info.total_input_bytes());
        crash_point!("compaction-begin");
    }

    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        crash_point!("compaction-completed");
        self.ended(TaskKind::Compaction, info.job_id());
    }
}
