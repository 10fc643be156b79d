//! The member's state that all connections share.
//!
//! Invariants: a [`Server`] is made once, by the node, and shared by reference; each registry in it looks after its own
//! locking, and no two are locked at once but the cursors' and an operation's slot, in that order.
//! What it deliberately does not do: I/O. What it needs of the machine comes as [`Hooks`]; documents are in [`Storage`].

pub mod client;
pub mod client_tasks;
pub mod counters;
pub mod cursors;
pub mod defaults;
pub mod failpoints;
mod kept;
pub mod operations;
pub mod parameters;
pub mod parsed;
pub mod profiler;
pub mod sessions;
pub mod topology;
pub mod write_lock;

pub use client::{Client, Connection};
pub use counters::Counters;
pub use cursors::{BatchBuilder, BatchEnd, Cursor, CursorInfo, Cursors};
pub use operations::{Begin, Operation, Operations};
pub use sessions::Session;
pub use topology::{ReplicaSet, Topology};

use baton_query::spill::{SpillSpace, SpillTotals};
use baton_replication::Replication;
use baton_request::SessionId;
use baton_storage::Storage;
use baton_types::{Error, MemoryPool, OpTime, Result, Timestamp};
use baton_wire::{Compressor, DocumentWriter};
use bson::Document;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Who this member is, and how it was started.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The machine's name and the port: `host:27017`.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The command line.
    pub argv: Vec<String>,
    /// The command line and the configuration file, as `getCmdLineOpts` shows them.
    pub parsed_options: Document,
    /// The compressors it will speak, most wanted first.
    pub compressors: Vec<Compressor>,
    /// Its data directory.
    pub data_directory: String,
}

/// A part of the log, for `getLog`.
#[derive(Clone, Debug, Default)]
pub struct LogLines {
    /// How many lines there were in all.
    pub total: i64,
    /// The newest of them.
    pub lines: Vec<String>,
}

type AppendTo = Box<dyn Fn(&mut DocumentWriter<'_>) + Send + Sync>;
/// See [`Hooks::start_thread`].
pub type StartThread = fn(&'static str, Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>;
type ReadLog = Box<dyn Fn(&str) -> Option<LogLines> + Send + Sync>;

/// What the service needs of the machine around it.
pub struct Hooks {
    /// A part of the log: `global` or `startupWarnings`.
    pub log: ReadLog,
    /// Begins a new log file.
    pub rotate_log: Box<dyn Fn() -> std::io::Result<()> + Send + Sync>,
    /// Sets how talkative the log is, 0 to 5.
    pub set_log_level: Box<dyn Fn(u8) + Send + Sync>,
    /// Starts the process anew, without coming back; absent where it is not the member's own.
    pub restart: Option<fn()>,
    /// Ends the process, without coming back: it must not go on.
    pub give_up: fn(),
    /// Starts a thread of this name, for work that nobody's request waits for on its own.
    pub start_thread: StartThread,
    /// Appends serverStatus's `connections` and `network`, which the network counts.
    pub append_network_status: AppendTo,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            log: Box::new(|_| None),
            rotate_log: Box::new(|| Err(std::io::Error::other("the log does not go to a file"))),
            set_log_level: Box::new(|_| {}),
            restart: None,
            give_up: || unreachable!("there is no process to end"),
            start_thread: |_, _| Err(std::io::Error::other("there are no threads")),
            append_network_status: Box::new(|_| {}),
        }
    }
}

/// Everything a [`Server`] is made of.
pub struct Parts {
    /// Who it is.
    pub identity: Identity,
    /// The replica set's name and this member's address in it; `None` for a standalone.
    pub set: Option<(String, String)>,
    /// The storage, open.
    pub storage: Arc<Storage>,
    /// The machine.
    pub hooks: Hooks,
    /// Milliseconds from which on an operation is slow.
    pub slow_ms: i64,
    /// The profiler's level for every database.
    pub profile_level: i32,
}

/// One member.
pub struct Server {
    /// Who it is.
    pub identity: Identity,
    /// When it started.
    pub started: Instant,
    /// The same by the wall clock.
    pub started_wall: SystemTime,
    /// Its place in the replica set.
    pub topology: Topology,
    /// Its connections.
    pub clients: client::Clients,
    /// The tasks that clients do.
    pub client_tasks: Arc<client_tasks::ClientTasks>,
    /// What runs.
    pub operations: Arc<Operations>,
    /// Logical sessions.
    pub sessions: sessions::Sessions,
    /// Open cursors.
    pub cursors: Cursors,
    /// What is counted.
    pub counters: Counters,
    /// Parameters.
    pub parameters: parameters::Values,
    /// The concerns of commands that name none.
    pub defaults: defaults::DefaultConcerns,
    /// What is done for the classes of requests.
    pub priority: crate::priority::Priority,
    /// Faults on demand.
    pub fail_points: failpoints::FailPoints,
    /// What is slow.
    pub profiler: profiler::Profiler,
    /// Documents, indexes and the oplog.
    pub storage: Arc<Storage>,
    /// The index builds of the set.
    pub index_builds: crate::ddl::builds::IndexBuilds,
    /// What `fsync` with `lock` holds.
    pub write_lock: write_lock::WriteLock,
    /// What the deletion of expired documents has done.
    pub ttl: crate::ttl::Figures,
    /// Where blocking stages put what they may not hold in memory.
    pub spill_space: Arc<dyn SpillSpace>,
    /// What blocking stages have done, over all requests.
    pub spill_totals: Arc<SpillTotals>,
    /// What blocking stages hold, over all requests.
    pub stage_memory: Arc<MemoryPool>,
    /// What large requests hold while they are received and carried out.
    pub request_memory: Arc<MemoryPool>,
    /// What filters, updates and pipelines of large requests may hold once they are parsed; one at a time may hold more.
    pub parsed_memory: Arc<MemoryPool>,
    /// The same of what their open cursors keep.
    pub cursor_memory: Arc<MemoryPool>,
    /// What large replies hold until they are sent. Not the requests' own, so that who reads slowly keeps nobody from
    /// asking.
    pub reply_memory: Arc<MemoryPool>,
    /// Reads that those who may follow carry out, too.
    pub mirroring: crate::mirroring::Mirroring,
    /// The machine.
    pub hooks: Hooks,
    replication: OnceLock<Replication>,
    /// When a client was last served after this member had begun to stop.
    served_while_stopping: Mutex<Option<Instant>>,
    shutdown: Mutex<Option<ShutdownRequest>>,
    shutdown_asked: Condvar,
}

/// A client's wish that this member stop.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownRequest {
    /// How long it may still serve what is asked.
    pub quiesce: Duration,
}

/// What blocking stages may hold beyond the part that the cache lends them, in bytes.
pub const STAGE_MEMORY_BYTES: usize = 16 * 1024 * 1024;
/// What large requests may hold, in bytes: one of the largest, and some.
const REQUEST_MEMORY_BYTES: usize = 50 * 1024 * 1024;
/// What parsed requests may hold, in bytes.
const PARSED_MEMORY_BYTES: usize = 32 * 1024 * 1024;
/// What open cursors may keep of large requests beyond the part that the cache lends them, in bytes.
const CURSOR_MEMORY_BYTES: usize = 64 * 1024 * 1024;
/// What large replies may hold, in bytes: two of the largest. Where none is left, batches are small.
const REPLY_MEMORY_BYTES: usize = 34 * 1024 * 1024;

impl Server {
    /// A member of these parts.
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            identity: parts.identity,
            started: Instant::now(),
            started_wall: SystemTime::now(),
            topology: Topology::new(parts.set),
            clients: client::Clients::default(),
            client_tasks: Arc::default(),
            operations: Arc::default(),
            sessions: sessions::Sessions::default(),
            cursors: Cursors::default(),
            counters: Counters::new(crate::table::COMMANDS.len()),
            parameters: parameters::Values::default(),
            defaults: defaults::DefaultConcerns::default(),
            priority: crate::priority::Priority::new(),
            fail_points: failpoints::FailPoints::default(),
            profiler: profiler::Profiler::new(parts.slow_ms, parts.profile_level),
            spill_space: Arc::new(parts.storage.spills().clone()),
            spill_totals: Arc::default(),
            stage_memory: MemoryPool::new(STAGE_MEMORY_BYTES + parts.storage.cache_bytes() / 8),
            request_memory: MemoryPool::new(REQUEST_MEMORY_BYTES),
            parsed_memory: MemoryPool::new(PARSED_MEMORY_BYTES),
            cursor_memory: MemoryPool::new(CURSOR_MEMORY_BYTES + parts.storage.cache_bytes() / 8),
            reply_memory: MemoryPool::new(REPLY_MEMORY_BYTES),
            storage: parts.storage,
            index_builds: crate::ddl::builds::IndexBuilds::default(),
            write_lock: write_lock::WriteLock::default(),
            ttl: crate::ttl::Figures::default(),
            mirroring: crate::mirroring::Mirroring::new(rand::random()),
            hooks: parts.hooks,
            replication: OnceLock::new(),
            served_while_stopping: Mutex::default(),
            shutdown: Mutex::default(),
            shutdown_asked: Condvar::new(),
        })
    }

    /// Hands this member its replication, once it has started.
    pub fn set_replication(&self, replication: Replication) {
        if self.replication.set(replication).is_err() {
            unreachable!("replication is started once");
        }
    }

    /// Waits until this member knows which set it is in, and as what. Its sockets are open before that: it finds itself in the
    /// configuration by asking.
    pub fn await_start(&self) {
        if self.topology.is_replicated() {
            self.replication.wait();
        }
    }

    /// Replication, unless this is a standalone.
    pub fn replication(&self) -> Option<&Replication> {
        self.replication.get()
    }

    /// The last entry that a majority of the set is known to have.
    pub fn commit_point(&self) -> OpTime {
        match self.replication() {
            Some(replication) if !self.topology.is_own_majority() => replication.waiters().commit_point(),
            _ => self.storage.queue().durable(),
        }
    }

    /// Sets parameters from the command line.
    ///
    /// # Errors
    /// If any is unknown or cannot take its value; all of these are named at once.
    pub fn set_startup_parameters<'a>(&self, settings: impl Iterator<Item = (&'a str, &'a str)>) -> Result<()> {
        let mut all: Option<Error> = None;
        for (name, value) in settings {
            let Err(error) = parameters::set(self, name, bson::RawBsonRef::String(value), true) else { continue };
            let told = format!("{name}: {}", error.message);
            match &mut all {
                Some(first) => first.message = format!("{}; {told}", first.message),
                None => all = Some(Error::new(error.code, told)),
            }
        }
        all.map_or(Ok(()), Err)
    }

    /// Asks the node to stop. The node does it; see [`Self::wait_for_shutdown_request`].
    pub fn request_shutdown(&self, request: ShutdownRequest) {
        *self.shutdown.lock() = Some(request);
        self.shutdown_asked.notify_all();
    }

    /// What a client has asked for, if one has.
    pub fn shutdown_request(&self) -> Option<ShutdownRequest> {
        *self.shutdown.lock()
    }

    /// Waits until a client asks this member to stop, at most that long; says whether one has.
    pub fn wait_for_shutdown_request(&self, at_most: Duration) -> bool {
        let mut asked = self.shutdown.lock();
        if asked.is_none() {
            self.shutdown_asked.wait_for(&mut asked, at_most);
        }
        asked.is_some()
    }

    /// A client is served although this member has begun to stop.
    pub fn note_served_while_stopping(&self) {
        *self.served_while_stopping.lock() = Some(Instant::now());
    }

    /// When that last was.
    pub fn served_while_stopping(&self) -> Option<Instant> {
        *self.served_while_stopping.lock()
    }

    /// Tells clients that this member stops, and interrupts what they run.
    pub fn begin_shutdown(&self) {
        self.topology.shut_down();
        self.operations.shut_down(0);
        self.cursors.kill_where(|_| true);
    }

    /// Ends sessions with all they own: their operations (except `own`) and their cursors.
    pub fn end_sessions(&self, own: u32, ended: &dyn Fn(SessionId) -> bool) {
        self.operations.kill_sessions(own, ended);
        self.cursors.kill_where(|c| c.session.is_some_and(ended));
    }

    /// The time of the newest entry of the oplog: `operationTime`.
    pub fn operation_time(&self) -> Timestamp {
        self.storage.queue().applied().timestamp
    }

    /// The newest time anybody in the set has spoken of: `$clusterTime`.
    pub fn cluster_time(&self) -> Timestamp {
        self.storage.queue().cluster_time()
    }

    /// What has to be looked after from time to time: sessions and cursors that nobody uses. Called every few seconds.
    pub fn tend(&self) {
        let expired = self.sessions.expire();
        if !expired.is_empty() {
            self.cursors.kill_where(|c| c.session.is_some_and(|s| expired.contains(&s)));
        }
        self.cursors.expire();
    }
}
