//! Background work, as one concept: every flush, compaction, index build, TTL pass and oplog truncation is a task that
//! is registered before it starts, shows its progress, and is gated.
//!
//! The registry is what `currentOp`, `serverStatus` and the status page show. The gate is how storage asks whether a
//! task may begin without knowing what leadership is: a lone member always says yes.
//!
//! Invariant: a task is in the registry exactly while its [`TaskGuard`] lives.

use baton_types::Class;
use parking_lot::Mutex;
use rust_rocksdb::event_listener::{CompactionJobInfo, EventListener, FlushJobInfo};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// What kind of work a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskKind {
    /// A memtable on its way to disk.
    Flush,
    /// Files merged into others.
    Compaction,
    /// An index filled from its collection.
    IndexBuild,
    /// Old entries dropped from the oplog.
    OplogTruncation,
    /// Expired documents deleted.
    TtlDeletion,
    /// The keys of a dropped collection or index deleted.
    DropCleanup,
    /// A collection checked against its indexes.
    Validate,
    /// A backup, announced by its tool.
    Backup,
    /// This member's files copied by another.
    InitialSyncSource,
}

impl TaskKind {
    /// The name in `currentOp`, serverStatus and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::IndexBuild => "indexBuild",
            Self::OplogTruncation => "oplogTruncation",
            Self::TtlDeletion => "ttlDeletion",
            Self::DropCleanup => "dropCleanup",
            Self::Validate => "validate",
            Self::Backup => "backup",
            Self::InitialSyncSource => "initialSyncSource",
        }
    }
}

/// What the gate answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Go ahead.
    Begin,
    /// Not now; ask again later.
    Wait,
}

/// Decides whether a task may begin on this member now.
pub trait Gate: Send + Sync {
    /// Asked before a task begins, and again while it waits. Must not block.
    fn may_begin(&self, kind: TaskKind, name: &str, waited: Duration) -> Admission;
}

/// The gate of a member that has nobody to hand leadership to.
pub struct AlwaysOpen;

impl Gate for AlwaysOpen {
    fn may_begin(&self, _: TaskKind, _: &str, _: Duration) -> Admission {
        Admission::Begin
    }
}

/// One task, shared between who does it and who looks.
#[derive(Debug)]
pub struct Task {
    /// Unique since the start of the process.
    pub id: u64,
    /// What kind of work.
    pub kind: TaskKind,
    /// On what: a namespace, an index, a column family.
    pub name: String,
    /// Its class: the lowest, unless a user waits for it.
    pub class: Class,
    /// When it began, by the wall clock.
    pub started_at: SystemTime,
    /// When it began, for durations.
    pub started: Instant,
    done: AtomicU64,
    total: AtomicU64,
}

impl Task {
    /// Units done so far and in all (documents, bytes or keys by kind); the total is 0 while unknown.
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Seconds until the end at the pace so far, once there is one.
    pub fn eta_secs(&self) -> Option<f64> {
        let (done, total) = self.progress();
        let elapsed = self.started.elapsed().as_secs_f64();
        (done > 0 && total >= done).then(|| elapsed * (total - done) as f64 / done as f64)
    }
}

/// Sums over finished tasks of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskTotals {
    /// How many ended.
    pub count: u64,
    /// How long they took together.
    pub duration: Duration,
}

#[derive(Default)]
struct Registered {
    running: Vec<Arc<Task>>,
    totals: HashMap<TaskKind, TaskTotals>,
}

/// All tasks of a member.
#[derive(Default)]
pub struct TaskRegistry {
    next_id: AtomicU64,
    registered: Mutex<Registered>,
}

/// Keeps a task registered.
pub struct TaskGuard {
    registry: Arc<TaskRegistry>,
    task: Arc<Task>,
}

impl TaskRegistry {
    /// Registers a task that begins now.
    pub fn begin(self: &Arc<Self>, kind: TaskKind, name: impl Into<String>) -> TaskGuard {
        let task = Arc::new(Task {
            id: self.next_id.fetch_add(1, Ordering::Relaxed) + 1,
            kind,
            name: name.into(),
            class: Class::Background,
            started_at: SystemTime::now(),
            started: Instant::now(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
        });
        self.registered.lock().running.push(Arc::clone(&task));
        TaskGuard { registry: Arc::clone(self), task }
    }

    /// The tasks running now, oldest first.
    pub fn running(&self) -> Vec<Arc<Task>> {
        self.registered.lock().running.clone()
    }

    /// Finished tasks by kind.
    pub fn totals(&self) -> Vec<(TaskKind, TaskTotals)> {
        let mut totals: Vec<_> = self.registered.lock().totals.iter().map(|(kind, t)| (*kind, *t)).collect();
        totals.sort_by_key(|(kind, _)| *kind);
        totals
    }
}

impl TaskGuard {
    /// Says how far the task is.
    pub fn progress(&self, done: u64, total: u64) {
        self.task.done.store(done, Ordering::Relaxed);
        self.task.total.store(total, Ordering::Relaxed);
    }

    /// The task itself.
    pub fn task(&self) -> &Arc<Task> {
        &self.task
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let mut registered = self.registry.registered.lock();
        registered.running.retain(|task| task.id != self.task.id);
        let totals = registered.totals.entry(self.task.kind).or_default();
        totals.count += 1;
        totals.duration += self.task.started.elapsed();
    }
}

/// Feeds RocksDB's flushes and compactions into the registry. Never blocks: a blocked listener holds a background
/// thread and the files it picked.
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
        let guard = self.registry.begin(kind, name);
        guard.progress(0, bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_shows_while_it_runs_and_counts_once_it_ended() {
        let registry = Arc::new(TaskRegistry::default());
        let guard = registry.begin(TaskKind::IndexBuild, "shop.carts");
        guard.progress(25, 100);
        let running = registry.running();
        assert_eq!(running.len(), 1);
        assert_eq!(running[0].progress(), (25, 100));
        assert!(running[0].eta_secs().is_some());
        drop(guard);
        assert!(registry.running().is_empty());
        assert_eq!(registry.totals()[0].1.count, 1);
    }
}
