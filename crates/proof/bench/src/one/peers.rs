//! The peers: how each is started, and which measurements it takes part in.
//!
//! One row in [`Bench::start`] a peer. Servers that a machine lacks are left out by name (`--without`), never silently.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::{OneArgs, Place, Section};
use crate::Failure;
use crate::client::WriteConcern;
use crate::client::{AppendFactory, EchoFactory, EngineFactory, Factory, MessageSizes, RedisFactory, ThinFactory};
use crate::member::MemberSpec;
use crate::process::{Process, free_port};
use crate::record::{Layout, VALUE_BYTES, key_of};
use crate::workload::Records;

/// Baton, writes acknowledged when applied.
pub const BATON: &str = "Baton";
/// The same member and table, writes acknowledged when synced.
pub const BATON_SYNCED: &str = "Baton, j:true";
/// The same member, the table of whole kilobytes, writes acknowledged when synced.
pub const BATON_DURABLE: &str = "Baton $set, j:true";
/// The peer that speaks the MongoDB protocol.
pub const JAVA: &str = "mongo-java-server";
/// Redis without persistence.
pub const REDIS: &str = "Redis";
/// Redis that syncs every write.
pub const REDIS_DURABLE: &str = "Redis SET, synced";
/// The loopback alone.
pub const ECHO: &str = "ping-pong";
/// RocksDB in this process.
pub const ROCKSDB: &str = "RocksDB";
/// RocksDB in this process, syncing every group.
pub const ROCKSDB_DURABLE: &str = "RocksDB, synced";
/// One file.
pub const APPEND: &str = "append, fdatasync";

/// Something to be measured.
pub struct Peer {
    /// Its name in the tables.
    pub name: &'static str,
    /// A line about it.
    pub what: String,
    /// Makes connections to it.
    pub factory: Box<dyn Factory>,
    /// What its table holds.
    pub records: Arc<Records>,
    /// Whether its table is to be loaded (it may be another peer's).
    pub loads: bool,
    /// Whether it can read.
    pub reads: bool,
    /// Its server's process, if it has one.
    pub pid: Option<u32>,
    /// Where the member listens whose commit queue takes its writes, if it is one.
    pub queue: Option<String>,
    section: Section,
}

impl Peer {
    /// Whether it is measured there.
    pub fn takes_part(&self, place: Place) -> bool {
        // A key-value store has no key order, and an echo's scan would be a figure of nothing but copying.
        let can_scan = self.name != REDIS;
        // Where writes are few, waiting for their sync tells little more.
        let tells = self.name != BATON_SYNCED || place.workload.write_share() >= 0.5;
        self.section == place.section && (can_scan || !place.workload.scans()) && tells
    }
}

/// The peers and the processes behind them.
pub struct Bench {
    /// In the order of measuring.
    pub peers: Vec<Peer>,
    /// What Baton's messages weigh.
    pub sizes: MessageSizes,
    processes: Vec<Process>,
}

impl Bench {
    /// Starts all that are wanted.
    ///
    /// # Errors
    /// With what is missing, and what to do about it.
    pub fn start(args: &OneArgs, dir: &Path) -> Result<Self, Failure> {
        if let Some(unknown) = args.without.iter().find(|n| !OPTIONAL.contains(&n.as_str())) {
            return Err(format!("--without {unknown}: there are {}", OPTIONAL.join(", ")).into());
        }
        let mut bench = Self { peers: Vec::new(), sizes: MessageSizes::default(), processes: Vec::new() };
        let ycsb = || Arc::new(Records::loaded(args.records));
        let durable = || Arc::new(Records::loaded(args.durable_records));
        let cache_bytes = (args.cache_gb * f64::from(1 << 30)) as usize;

        bench.start_baton(args, dir)?;
        if args.with("java") {
            bench.start_java(args, dir)?;
        }
        if args.with("redis") {
            let (address, pid) = bench.start_redis(dir, "redis", &["--appendonly", "no"])?;
            let what = "redis-server, GET and SET of the whole record, no persistence";
            let factory = RedisFactory { address };
            bench.add(Section::Ycsb, REDIS, what, Box::new(factory), ycsb(), Some(pid));
            if args.with("durable") {
                let options = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];
                let (address, pid) = bench.start_redis(dir, "redis-durable", &options)?;
                let what = "redis-server, SET of the whole record, appendonly yes, appendfsync always";
                let factory = RedisFactory { address };
                bench.add(Section::Durable, REDIS_DURABLE, what, Box::new(factory), durable(), Some(pid));
            }
        }
        if args.with("echo") {
            let port = free_port()?;
            let mut command = Command::new(std::env::current_exe()?);
            if command.get_program().to_string_lossy().ends_with("baton") {
                command.arg("bench");
            }
            command.args(["echo", "--port", &port.to_string()]);
            let process = Process::start("echo", command, port, dir)?;
            let factory = EchoFactory { address: ([127, 0, 0, 1], port).into(), sizes: bench.sizes };
            let pid = process.pid();
            bench.processes.push(process);
            let what = "a process that answers messages of the same sizes, a thread for each connection";
            bench.add(Section::Ycsb, ECHO, what, Box::new(factory), ycsb(), Some(pid));
            bench.unloaded();
        }
        if args.with("rocksdb") {
            let engine = EngineFactory::new(&dir.join("rocksdb"), WriteConcern::W1, Layout::Fields, cache_bytes)?;
            let what = "in this process: point reads; document, index and oplog entry in one batch, unsynced";
            bench.add(Section::Ycsb, ROCKSDB, what, Box::new(engine), ycsb(), None);
            if args.with("durable") {
                let directory = dir.join("rocksdb-durable");
                let engine = EngineFactory::new(&directory, WriteConcern::Journaled, Layout::Whole, cache_bytes)?;
                let what = "in this process: document, index and oplog entry of all that wait in one synced batch";
                bench.add(Section::Durable, ROCKSDB_DURABLE, what, Box::new(engine), durable(), None);
            }
        }
        if args.with("append") && args.with("durable") {
            let factory = AppendFactory::new(&dir.join("append"), WriteConcern::Journaled)?;
            let what = "in this process: the same bytes of all that wait appended to a file, one fdatasync";
            bench.add(Section::Durable, APPEND, what, Box::new(factory), durable(), None);
            bench.unloaded();
        }
        Ok(bench)
    }

    fn add(
        &mut self,
        section: Section,
        name: &'static str,
        what: &str,
        factory: Box<dyn Factory>,
        records: Arc<Records>,
        pid: Option<u32>,
    ) {
        let what = what.to_owned();
        self.peers.push(Peer { name, what, factory, records, loads: true, reads: true, pid, queue: None, section });
    }

    /// The last peer's writes go through the commit queue of the member there.
    fn queues_at(&mut self, address: &str) {
        if let Some(peer) = self.peers.last_mut() {
            peer.queue = Some(address.to_owned());
        }
    }

    /// The last peer has no table.
    fn unloaded(&mut self) {
        if let Some(peer) = self.peers.last_mut() {
            peer.loads = false;
            peer.reads = false;
        }
    }

    fn start_baton(&mut self, args: &OneArgs, dir: &Path) -> Result<(), Failure> {
        let member = MemberSpec::new(&args.place, dir, args.cache_gb)?.start()?;
        let (uri, pid) = (member.uri(), Some(member.pid()));
        let address = member.address();
        self.processes.push(member);
        let table = Arc::new(Records::loaded(args.records));
        let factory = ThinFactory::new(&uri, WriteConcern::W1, Layout::Fields)?;
        // Before the load, with one record that the load's own will not miss.
        factory.clear()?;
        let key = key_of(u64::MAX);
        factory.connect()?.insert(&[(key, [b'x'; VALUE_BYTES])])?;
        self.sizes = factory.message_sizes(&key)?;
        factory.clear()?;
        let what = "a replica set of one member; writes w:1, acknowledged when applied";
        self.add(Section::Ycsb, BATON, what, Box::new(factory), table.clone(), pid);
        self.queues_at(&address);
        let factory = ThinFactory::new(&uri, WriteConcern::Journaled, Layout::Fields)?;
        let what = "the same member and table; writes acknowledged when synced";
        self.add(Section::Ycsb, BATON_SYNCED, what, Box::new(factory), table, pid);
        self.queues_at(&address);
        self.unloaded();
        if args.with("durable") {
            let factory = ThinFactory::new(&uri, WriteConcern::Journaled, Layout::Whole)?;
            let what = "the same member: $set of one field of 1 KB, the document's only one beside _id, j:true";
            let table = Arc::new(Records::loaded(args.durable_records));
            self.add(Section::Durable, BATON_DURABLE, what, Box::new(factory), table, pid);
            self.queues_at(&address);
        }
        Ok(())
    }

    fn start_java(&mut self, args: &OneArgs, dir: &Path) -> Result<(), Failure> {
        let folder = args.java.as_deref().ok_or("--java FOLDER of mongo-java-server's jars, or --without java")?;
        let port = free_port()?;
        let mut command = Command::new("java");
        command.arg("-cp").arg(folder.join("*")).arg(folder.join("H2Server.java"));
        command.arg(port.to_string()).arg(dir.join("h2.mv.db"));
        let process = Process::start("mongo-java-server", command, port, dir)?;
        let factory = ThinFactory::new(&process.uri(), WriteConcern::W1, Layout::Fields)?;
        let pid = process.pid();
        self.processes.push(process);
        let what = "1.47, H2 backend; writes w:1, which H2 syncs once a second or so";
        let table = Arc::new(Records::loaded(args.java_records));
        self.add(Section::Ycsb, JAVA, what, Box::new(factory), table, Some(pid));
        Ok(())
    }

    fn start_redis(&mut self, dir: &Path, name: &str, options: &[&str]) -> Result<(String, u32), Failure> {
        let port = free_port()?;
        let data = dir.join(name);
        std::fs::create_dir_all(&data)?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]);
        command.arg("--dir").arg(&data).args(options);
        let process = Process::start(name, command, port, dir)
            .map_err(|e| format!("{e}\ninstall Debian's redis-server, or leave it out: --without redis"))?;
        let pid = process.pid();
        self.processes.push(process);
        Ok((format!("127.0.0.1:{port}"), pid))
    }

    /// All processes that were started.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// Stops them all, and closes the stores of this process.
    pub fn stop(&mut self) {
        self.peers.clear();
        self.processes.clear();
    }
}

const OPTIONAL: [&str; 6] = ["java", "redis", "echo", "rocksdb", "append", "durable"];
