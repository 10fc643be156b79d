//! One member, put together: lock, storage, commands, network; started in that order and stopped in the reverse one.
//!
//! Invariants: a start that fails leaves nothing behind but a made directory; after [`Member::stop`] every acknowledged
//! write is on disk and the next start replays nothing.
//! What it deliberately does not do: read flags, or decide when to stop. The command line does.

use crate::descriptors::Descriptors;
use crate::latencies::Latencies;
use crate::lock::DirectoryLock;
use crate::options::Options;
use crate::service::Commands;
use crate::timeline::{self, Timeline};
use crate::upkeep::{self, Upkeep};
use crate::{metrics, status_page};
use baton_commands::server::{Hooks, Identity, LogLines, Parts};
use baton_commands::{Server, membership};
use baton_machine::Right;
use baton_machine::host;
use baton_storage::{Fact, Storage, StorageOptions};
use baton_telemetry::{HttpServer, Log, Metrics, Pages};
use baton_types::{Error, Namespace, must_not_unwind};
use baton_wire::DocumentWriter;
use bson::{cstr, rawdoc};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often sessions and cursors that nobody uses are looked for.
const TEND_INTERVAL: Duration = Duration::from_secs(5);
/// How long another member may take to catch up when this one stops as primary.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(10);
/// How long requests that run may take to end when the member stops.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Why a member did not start, with mongod's exit code for it.
#[derive(Debug)]
pub struct StartError {
    /// For the operator.
    pub reason: String,
    /// 2 bad options, 48 address in use, 100 anything else, as mongod.
    pub exit_code: u8,
}

impl StartError {
    fn new(exit_code: u8, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), exit_code }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for StartError {}

/// A member that runs.
pub struct Member {
    server: Arc<Server>,
    network: baton_net::Server,
    storage: Arc<Storage>,
    http: Option<HttpServer>,
    timeline: Arc<Timeline>,
    latencies: Arc<Latencies>,
    upkeep: Option<Upkeep>,
    pid_file: Option<PidFile>,
    _lock: DirectoryLock,
}

/// The network's counters, once it has started; the hooks are made before that.
type NetworkCounters = Arc<OnceLock<Arc<baton_net::Counters>>>;

impl Member {
    /// Starts a member.
    ///
    /// # Errors
    /// With a reason for the operator and an exit code.
    pub fn start(options: &Options, log: &Log) -> Result<Self, StartError> {
        let lock = DirectoryLock::acquire(&options.data_directory).map_err(|e| StartError::new(100, e))?;
        if lock.was_unclean {
            warn!(target: "STORAGE", id = 22271, "Detected unclean shutdown - the lock file is not empty; recovering");
        }
        let pid_file = options.pid_file.as_deref().map(PidFile::write).transpose()?;
        #[cfg(feature = "crash-points")]
        crate::crash_points::arm().map_err(|reason| StartError::new(2, reason))?;
        let descriptors = Descriptors::claim().map_err(|e| StartError::new(100, e))?;
        say_what_niceness_may_do();
        let storage = open_storage(options, descriptors)?;
        let port = port_of(options)?;
        let counters = NetworkCounters::default();
        let server = Server::new(Parts {
            identity: identity(options, port),
            set: options.replica_set.clone().map(|name| (name, address_of(options, port))),
            storage: storage.clone(),
            hooks: hooks(log, &counters, options.restart),
            slow_ms: options.slow_ms,
            profile_level: options.profile_level,
        });
        server
            .set_startup_parameters(options.parameters.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .map_err(|e| StartError::new(2, format!("--setParameter: {}", e.message)))?;
        if options.replica_set.is_none() {
            begin_as_standalone(&storage)?;
        }
        let upkeep = Upkeep::start(&server)
            .map_err(|e| StartError::new(100, format!("Failed to start background threads: {e}")))?;
        let network = baton_net::Server::start(
            &baton_net::Options {
                hosts: options.bind_ip.clone(),
                port,
                unix_socket: options.unix_socket_directory.as_ref().map(|d| d.join(format!("mongodb-{port}.sock"))),
                connection_count_max: descriptors.connections_of(options.connection_count_max),
                message_memory: Arc::clone(&server.request_memory),
                ..baton_net::Options::default()
            },
            Arc::new(Commands::new(server.clone())),
        )
        .map_err(|e| StartError::new(48, format!("Failed to set up listener: {e}")))?;
        let _ = counters.set(network.counters());
        if let Some(set) = server.topology.set() {
            let failed = |e: Error| StartError::new(100, e.message);
            membership::start(&server, &set, &options.data_directory).map_err(failed)?;
            if options.initiate {
                membership::initiate_alone(&server, &set).map_err(failed)?;
            }
        }
        let timeline = Arc::<Timeline>::default();
        let latencies = Arc::<Latencies>::default();
        let http = start_http(options, descriptors, &server, &network, (&timeline, &latencies));
        info!(target: "NETWORK", id = 23016, port, "Waiting for connections");
        Ok(Self { server, network, storage, http, upkeep: Some(upkeep), timeline, latencies, pid_file, _lock: lock })
    }

    /// The state its connections share.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Its storage.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// The addresses it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.network.addresses()
    }

    /// The address of the status page, if it has one.
    pub fn status_page(&self) -> Option<String> {
        let address = self.http.as_ref()?.addresses().first()?;
        Some(format!("http://{address}/"))
    }

    /// The connection string for it.
    pub fn connection_string(&self) -> String {
        match self.server.topology.set() {
            Some(set) => format!("mongodb://{}/?replicaSet={}", set.me, set.name),
            None => match self.addresses().first() {
                Some(address) => format!("mongodb://{address}/"),
                None => format!("mongodb://{}/", self.server.identity.host),
            },
        }
    }

    /// Serves until somebody asks it to stop: a client by `shutdown`, or `asked`, which is looked at every now and then.
    pub fn run(&self, mut asked: impl FnMut() -> bool) {
        // Short, so that a signal is noticed soon; what is done meanwhile is next to nothing.
        const SLICE: Duration = Duration::from_millis(200);
        /// Who leads may change and change back within a second; tasks take longer.
        const LOOKS_BETWEEN_TASKS: u64 = 5;
        let _guard = must_not_unwind("the member's own thread");
        let mut since_tended = Duration::ZERO;
        let mut looks = 0_u64;
        while !self.server.wait_for_shutdown_request(SLICE) && !asked() {
            timeline::look(&self.timeline, &self.server, looks.is_multiple_of(LOOKS_BETWEEN_TASKS));
            self.latencies.look(&self.server);
            looks += 1;
            since_tended += SLICE;
            if since_tended >= TEND_INTERVAL {
                self.server.tend();
                since_tended = Duration::ZERO;
            }
        }
    }

    /// Hands over, if this is the primary, and gives drivers time to turn to another member.
    fn leave_set(&self) {
        let patience = match self.server.shutdown_request() {
            // Who asked by a command has waited for the handing over already.
            Some(request) => request.quiesce,
            None => {
                let ms = self.server.parameters.shutdown_timeout_ms.load(Ordering::Relaxed);
                let patience = Duration::from_millis(ms.unsigned_abs());
                let began = Instant::now();
                if let Err(error) =
                    membership::hand_over(&self.server, patience.min(HAND_OVER_PATIENCE), true, &|| Ok(()))
                {
                    warn!(target: "REPL", error = %error, "Stopping as primary: leadership could not be handed over");
                }
                patience.saturating_sub(began.elapsed())
            }
        };
        membership::quiesce(&self.server, patience);
    }

    /// Has what the step machines did written to a file, by a thread of its own.
    pub fn write_steps(&self) {
        membership::write_steps(&self.server);
    }

    /// Stops cleanly: leadership is handed over, drivers are told, what runs is interrupted, connections end, everything is flushed.
    pub fn stop(mut self) {
        info!(target: "CONTROL", id = 23138, "Shutting down");
        self.leave_set();
        self.server.begin_shutdown();
        if let Some(http) = &self.http {
            http.stop();
        }
        if !self.network.stop(STOP_PATIENCE) {
            warn!(target: "NETWORK", id = 22947, "Some connections did not end in time");
        }
        drop(self.upkeep.take());
        if let Err(error) = self.storage.flush() {
            warn!(target: "STORAGE", id = 22273, error = %error, "The last flush failed; the next start will replay the log");
        }
        drop(self.pid_file.take());
        info!(target: "CONTROL", id = 20565, "Now exiting");
    }
}

fn open_storage(options: &Options, descriptors: Descriptors) -> Result<Arc<Storage>, StartError> {
    let storage_options = StorageOptions {
        cache_bytes: options.cache_bytes(),
        oplog_bytes_max: options.oplog_bytes(),
        oplog_retention_secs_min: options.oplog_retention_secs_min,
        open_tables_max: descriptors.tables,
        open_spills_max: descriptors.spills,
        ..StorageOptions::default()
    }
    .with_memtables_by_chance();
    let path = options.data_directory.join(crate::contents::DATABASE);
    baton_storage::take_over(&path, &storage_options).map_err(|e| StartError::new(100, e.message))?;
    let storage = Storage::open(&path, storage_options).map_err(|e| StartError::new(100, e.message))?;
    // Before anything else runs: what this member logged of its own would have the OpTime of another entry that its primary logs.
    if options.replica_set.is_some() {
        storage.queue().close_to_writes();
    }
    let bytes = storage.oplog().bytes_max();
    if let Some(wanted) = options.oplog_size_bytes.filter(|wanted| *wanted != bytes) {
        warn!(
            target: "STORAGE", startupWarning = true, oplogSizeMB = wanted >> 20, existingMB = bytes >> 20,
            "The oplog is there already and keeps its size; replSetResizeOplog changes it"
        );
    }
    Ok(storage)
}

/// Without the right to raise its threads' priority a member has the door alone, and its operator is to know.
fn say_what_niceness_may_do() {
    let right = baton_machine::right();
    if right != Right::All {
        warn!(
            target: "CONTROL", startupWarning = true, niceness = right.name(),
            "The niceness of threads may not be set as requests of high priority need it: they are first at the door, and not on the \
             processors. Give the process CAP_SYS_NICE, or a limit of niceness of 40 (LimitNICE=-20 for systemd, ulimit -e 40)"
        );
    }
}

/// What the service needs of the log and of the network.
fn hooks(log: &Log, counters: &NetworkCounters, restart: Option<fn()>) -> Hooks {
    let (read, rotate, verbosity, counters) = (log.clone(), log.clone(), log.clone(), counters.clone());
    Hooks {
        log: Box::new(move |name| {
            let (lines, total) = match name {
                "startupWarnings" => {
                    let lines = read.startup_warnings();
                    let total = lines.len() as u64;
                    (lines, total)
                }
                _ => read.recent(),
            };
            Some(LogLines { total: total as i64, lines: lines.iter().map(ToString::to_string).collect() })
        }),
        rotate_log: Box::new(move || rotate.rotate()),
        set_log_level: Box::new(move |level| verbosity.set_verbosity(level)),
        restart,
        give_up: || std::process::exit(baton_machine::EXIT_ABRUPT),
        start_thread: upkeep::start_thread,
        append_network_status: Box::new(move |status| {
            if let Some(counters) = counters.get() {
                append_network_status(status, &counters.snapshot());
            }
        }),
    }
}

/// serverStatus's sections about the network.
fn append_network_status(status: &mut DocumentWriter<'_>, counters: &baton_net::CountersSnapshot) {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    status.begin_document(cstr!("connections"));
    status.append(cstr!("current"), count(counters.current));
    status.append(cstr!("available"), count(counters.available));
    status.append(cstr!("totalCreated"), counters.total_created as i64);
    status.append(cstr!("rejected"), counters.rejected as i64);
    status.append(cstr!("active"), count(counters.active));
    // Of the others the client is silent, and nothing is carried out.
    status.append(cstr!("threaded"), count(counters.current.saturating_sub(counters.resting)));
    status.end();
    status.begin_document(cstr!("network"));
    status.append(cstr!("bytesIn"), counters.bytes_in as i64);
    status.append(cstr!("bytesOut"), counters.bytes_out as i64);
    status.append(cstr!("numRequests"), counters.requests as i64);
    status.append(cstr!("malformedMessages"), counters.malformed as i64);
    status.append(cstr!("timedOutMessages"), counters.timed_out as i64);
    status.end();
}

/// The pages for eyes and for Prometheus. A member without them is still a member, so a taken port is only a warning.
fn start_http(
    options: &Options,
    descriptors: Descriptors,
    server: &Arc<Server>,
    network: &baton_net::Server,
    (timeline, latencies): (&Arc<Timeline>, &Arc<Latencies>),
) -> Option<HttpServer> {
    /// How far above the member's port its pages are.
    const PORT_DISTANCE: u16 = 1000;
    if !options.http {
        return None;
    }
    let addresses: Option<Vec<_>> = network
        .addresses()
        .iter()
        .map(|a| Some(SocketAddr::new(a.ip(), a.port().checked_add(PORT_DISTANCE)?)))
        .collect();
    let process = Metrics::new().map_err(|e| warn!(target: "NETWORK", error = %e, "No metrics of the process")).ok();
    let (status_server, metrics_server, counters) = (server.clone(), server.clone(), network.counters());
    let (status_counters, health) = (network.counters(), server.clone());
    let (timeline, latencies) = (Arc::clone(timeline), Arc::clone(latencies));
    let (named, given_names) = (server.clone(), options.bind_ip.clone());
    let pages = Pages {
        names: Box::new(move || names_of(&named, &given_names)),
        status: Box::new(move || {
            status_page::render(&status_server, &status_counters.snapshot(), &timeline, &latencies)
        }),
        metrics: Box::new(move || {
            let mut text = process.as_ref().map(Metrics::render).unwrap_or_default();
            metrics::render(&metrics_server, &counters.snapshot(), &mut text);
            text
        }),
        health: Box::new(move || {
            if health.operations.is_shutting_down() { Err("the member is stopping".into()) } else { Ok(()) }
        }),
    };
    match HttpServer::start(&addresses?, descriptors.http, pages) {
        Ok(http) => Some(http),
        Err(error) => {
            warn!(target: "NETWORK", error = %error, "There is no status page");
            None
        }
    }
}

/// The names by which this member may be asked for its pages: those it listens on, the machine's, and the set's hosts.
fn names_of(server: &Server, bind_ip: &[String]) -> Vec<String> {
    let mut names = bind_ip.to_vec();
    names.push(host::name());
    if let Some(set) = server.topology.set() {
        let hosts = set.configuration().map(|c| c.members.iter().map(|m| m.host.clone()).collect::<Vec<_>>());
        names.extend(hosts.unwrap_or_default());
        names.push(set.me.clone());
    }
    names
}

/// The port to use. Port 0 is settled here, because the replica set's address has it in it.
fn port_of(options: &Options) -> Result<u16, StartError> {
    if options.port != 0 {
        return Ok(options.port);
    }
    let host = options.bind_ip.first().map_or("127.0.0.1", String::as_str);
    std::net::TcpListener::bind((host, 0))
        .and_then(|l| l.local_addr())
        .map(|a| a.port())
        .map_err(|e| StartError::new(48, format!("No free port on {host}: {e}")))
}

fn identity(options: &Options, port: u16) -> Identity {
    Identity {
        host: format!("{}:{port}", host::name()),
        port,
        argv: options.argv.clone(),
        parsed_options: options.parsed.clone(),
        compressors: options.compressors.clone(),
        data_directory: options.data_directory.display().to_string(),
    }
}

/// The address by which members and clients are to reach this member.
fn address_of(options: &Options, port: u16) -> String {
    options.advertised_host.clone().unwrap_or_else(|| advertised_host(&options.bind_ip, port))
}

/// An address that clients reach this member at: the first it listens on, or the machine's name if that is all of them.
fn advertised_host(bind_ip: &[String], port: u16) -> String {
    match bind_ip.first().map(String::as_str) {
        None | Some("0.0.0.0" | "::" | "*") => format!("{}:{port}", host::name()),
        Some(ip) if ip.contains(':') => format!("[{ip}]:{port}"),
        Some(ip) => format!("{ip}:{port}"),
    }
}

/// A standalone's first entry in the oplog, by which its clock starts. Where the data are a set's the log is not touched: what it
/// said would pass for the set's, and could win an election.
fn begin_as_standalone(storage: &Storage) -> Result<(), StartError> {
    storage.forget_builds_of_set().map_err(|e| StartError::new(100, e.message))?;
    if storage.facts().get(Fact::Configuration).map_err(|e| StartError::new(100, e.message))?.is_some() {
        for line in [
            "** WARNING: started without --replSet, yet there is a replica set configuration in local.system.replset",
            "**          What is written now is not logged: the other members of the set will not have it",
            "**          Restart with --replSet unless you are doing maintenance and no other clients are connected",
            "**          The TTL collection monitor does not run because of this",
        ] {
            warn!(target: "CONTROL", id = 20547, startupWarning = true, "{line}");
        }
        storage.queue().leave_log_alone();
        return Ok(());
    }
    let o = rawdoc! { "msg": "starting as a standalone", "pid": i64::from(std::process::id()) };
    let failed = |e: Error| StartError::new(100, e.message);
    storage.by_member().note(&Namespace::new("admin", "$cmd").map_err(failed)?, &o).map_err(failed)?;
    storage.sync();
    Ok(())
}

/// The file with the process id, removed when the member stops.
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &Path) -> Result<Self, StartError> {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|e| StartError::new(2, format!("--pidfilepath {}: {e}", path.display())))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_storage::WriteGate;

    #[test]
    fn the_advertised_address_is_one_that_clients_can_reach() {
        assert_eq!(advertised_host(&["127.0.0.1".into(), "10.0.0.1".into()], 27017), "127.0.0.1:27017");
        assert_eq!(advertised_host(&["::1".into()], 27017), "[::1]:27017");
        assert_eq!(advertised_host(&["0.0.0.0".into()], 5), format!("{}:5", host::name()));
    }

    #[test]
    fn the_storage_of_a_member_of_a_set_logs_nothing_until_it_is_primary() {
        for replica_set in [None, Some("rs0".to_owned())] {
            let directory = tempfile::tempdir().unwrap();
            let data_directory = directory.path().to_owned();
            let options = Options { data_directory, replica_set: replica_set.clone(), ..Options::default() };
            let descriptors = Descriptors { connections: 10, tables: 100, http: 1, spills: 10 };
            let storage = open_storage(&options, descriptors).unwrap();
            assert_eq!(storage.queue().write_gate() == WriteGate::Closed, replica_set.is_some());
        }
    }
}
