//! `baton bench one`: Baton and its peers on one machine, in one run, in turn.
//!
//! Every server is started by this command, in a directory and on a port of its own, loaded, warmed, measured and
//! stopped. The peers are measured one after the other within every workload and number of clients, so that a drift of
//! the machine meets all of them. All are driven by the same loop over blocking sockets, a thread for each connection;
//! client and server share the machine, as the peers' do.
//!
//! What it deliberately does not do: decide whether the machine was quiet. It says how quiet it was, cell by cell.

mod groups;
mod peers;
mod targets;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::READ_WAIT_MAX;
use crate::machine::{self, Moment, Use};
use crate::member::PlaceArgs;
use crate::runner::{self, Outcome, Plan};
use crate::workload::Workload;
use crate::{Failure, emit, target};
use groups::{Counts, Groups};
use peers::{Bench, Peer};

/// Baton beside its peers.
#[derive(Clone, Debug, clap::Args)]
pub struct OneArgs {
    /// Records (1 KB each) in the table of every peer but mongo-java-server
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// Records in mongo-java-server's table, whose load takes long; fewer records are to its advantage
    #[arg(long, default_value_t = 100_000)]
    pub java_records: u64,
    /// Workloads, in order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "a,b,c,f,d,e")]
    pub workloads: Vec<Workload>,
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "8,64")]
    pub clients: Vec<usize>,
    /// Records in the tables for updates that are synced
    #[arg(long, default_value_t = 100_000)]
    pub durable_records: u64,
    /// Numbers of connections for updates that are synced
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    pub durable_clients: Vec<usize>,
    /// Seconds of every measurement
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Seconds before every measurement
    #[arg(long, default_value_t = 2.0)]
    pub warmup: f64,
    /// Seconds of watching what else the machine does, before every measurement
    #[arg(long, default_value_t = 0.5)]
    pub rest: f64,
    /// Seconds of reading all over the table, once, after it was loaded
    #[arg(long, default_value_t = 15.0)]
    pub first_warmup: f64,
    /// How often to measure everything; the round in the middle counts
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
    /// Memory for Baton's cache and for that of RocksDB used directly
    #[arg(long, default_value_t = 4.0)]
    pub cache_gb: f64,
    /// Leave out peers (java, redis, echo, rocksdb, append) or the synced updates (durable)
    #[arg(long, value_delimiter = ',')]
    pub without: Vec<String>,
    /// Folder of mongo-java-server's jars and of H2Server.java
    #[arg(long)]
    pub java: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
}

impl OneArgs {
    fn with(&self, name: &str) -> bool {
        !self.without.iter().any(|left_out| left_out == name)
    }
}

/// The two kinds of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// YCSB's workloads, writes acknowledged when applied.
    Ycsb,
    /// Updates of a whole kilobyte, acknowledged when synced.
    Durable,
}

impl Section {
    fn name(self) -> &'static str {
        match self {
            Self::Ycsb => "ycsb",
            Self::Durable => "durable",
        }
    }
}

/// What was measured, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which kind of cell.
    pub section: Section,
    /// The mix.
    pub workload: Workload,
    /// Connections.
    pub clients: usize,
}

impl Place {
    fn text(&self) -> String {
        match self.section {
            Section::Ycsb => format!("workload {}, {} clients", self.workload.name().to_uppercase(), self.clients),
            Section::Durable => format!("synced updates of 1 KB, {} clients", self.clients),
        }
    }
}

/// One measurement of one peer.
pub struct Cell {
    /// What came out.
    pub outcome: Outcome,
    /// CPU time of the server for each operation, in microseconds; `None` where the store lives in this process.
    pub server_cpu_us: Option<f64>,
    /// How writes came together, in a member of Baton.
    pub groups: Option<Groups>,
    /// The machine just before, with the servers at rest.
    pub before: Use,
    /// The machine meanwhile.
    pub during: Use,
    /// The load average of the minute before.
    pub load_average: f64,
}

impl Cell {
    /// Switches of context of the whole machine for each operation; as the server's CPU, of the warm-up, too.
    pub fn switches(&self) -> f64 {
        self.during.switches / self.outcome.operations_with_warmup.max(1) as f64
    }
}

/// All cells: of each place and peer (in the order of measuring), one for every round.
pub type Cells = BTreeMap<Place, Vec<(&'static str, Vec<Cell>)>>;

/// Carries the comparison out and prints it.
///
/// # Errors
/// With a text for the operator: a server that does not start, the first request that failed.
pub fn run(args: &OneArgs) -> Result<(), Failure> {
    let numbers = args.clients.iter().chain(&args.durable_clients);
    if numbers.clone().any(|&n| n == 0) || args.records == 0 || args.java_records == 0 || args.seconds <= 0.0 {
        return Err("--clients, --records, --java-records and --seconds must be above 0".into());
    }
    let scratch = args.place.fresh("one")?;
    let dir = scratch.path();
    let mut bench = Bench::start(args, dir)?;
    let mut loads = Vec::new();
    for peer in &bench.peers {
        loads.push(prepare(peer, args)?);
    }
    let rested = machine::settle(&bench.pids(), Duration::from_secs(120))?;
    if !rested {
        eprintln!("the servers did not come to rest within two minutes of the load; going on");
    }
    let mut cells = Cells::new();
    for round in 0..args.rounds.max(1) {
        for place in places(args) {
            for peer in &bench.peers {
                if peer.takes_part(place) {
                    let cell = measure(peer, place, round, &bench, args)?;
                    enter(&mut cells, place, peer.name, cell);
                }
            }
        }
    }
    let report = report(args, &bench, &loads, &cells, rested);
    if !args.place.json {
        print!("{}", text(args, &bench, &loads, &cells));
    }
    emit(&report, args.place.json, args.place.output.as_deref())?;
    bench.stop();
    Ok(())
}

fn places(args: &OneArgs) -> Vec<Place> {
    let mut places = Vec::new();
    if args.with("durable") {
        for &clients in &args.durable_clients {
            places.push(Place { section: Section::Durable, workload: Workload::Replace, clients });
        }
    }
    for &workload in &args.workloads {
        for &clients in &args.clients {
            places.push(Place { section: Section::Ycsb, workload, clients });
        }
    }
    places
}

fn enter(cells: &mut Cells, place: Place, name: &'static str, cell: Cell) {
    let peers = cells.entry(place).or_default();
    match peers.iter_mut().find(|(known, _)| *known == name) {
        Some((_, rounds)) => rounds.push(cell),
        None => peers.push((name, vec![cell])),
    }
}

/// The round in the middle, by throughput.
pub fn median(rounds: &[Cell]) -> Option<&Cell> {
    let mut order: Vec<&Cell> = rounds.iter().collect();
    order.sort_by(|a, b| a.outcome.throughput().total_cmp(&b.outcome.throughput()));
    order.get((order.len().max(1) - 1) / 2).copied()
}

/// Loads and warms one peer; gives the records per second of its load.
fn prepare(peer: &Peer, args: &OneArgs) -> Result<Option<f64>, Failure> {
    if !peer.loads {
        return Ok(None);
    }
    let count = peer.records.count();
    eprintln!("{}: loading {count} records", peer.name);
    let rate = runner::load(peer.factory.as_ref(), count, 4, 500, false).map_err(|e| format!("{}: {e}", peer.name))?;
    if peer.reads {
        eprintln!("{}: loaded at {rate:.0} records/s; reading all over the table", peer.name);
        let plan = Plan {
            workload: Workload::C,
            clients: 8,
            warmup: Duration::ZERO,
            duration: Duration::from_secs_f64(args.first_warmup),
            operations: Some(count * 2),
            uniform: true,
            seed: 77,
            verbose: false,
        };
        runner::run(peer.factory.as_ref(), &peer.records, &plan).map_err(|e| format!("{}: {e}", peer.name))?;
    }
    Ok(Some(rate))
}

fn measure(peer: &Peer, place: Place, round: usize, bench: &Bench, args: &OneArgs) -> Result<Cell, Failure> {
    let pids = bench.pids();
    let load_average = machine::load_average();
    let at_rest = Moment::now(&pids)?;
    std::thread::sleep(Duration::from_secs_f64(args.rest));
    let begun = Moment::now(&pids)?;
    let server_cpu = |pid: u32| machine::cpu_secs(pid).unwrap_or(0.0);
    let server_before = peer.pid.map(server_cpu);
    let groups = || peer.queue.as_deref().map(Counts::of).transpose();
    let groups_before = groups()?;
    let plan = Plan {
        workload: place.workload,
        clients: place.clients,
        warmup: Duration::from_secs_f64(args.warmup),
        duration: Duration::from_secs_f64(args.seconds),
        operations: None,
        uniform: false,
        seed: 1 + round as u64,
        verbose: false,
    };
    let outcome = match runner::run(peer.factory.as_ref(), &peer.records, &plan) {
        // A peer that cannot do the work is a result; Baton must.
        Err(error) if !peer.name.starts_with(peers::BATON) && is_timeout(&error) => Outcome::silence(READ_WAIT_MAX)?,
        outcome => outcome.map_err(|e| format!("{}, {}: {e}", peer.name, place.text()))?,
    };
    // The server's CPU covers the warm-up as well, so it is divided by the operations of both.
    let operations = outcome.operations_with_warmup.max(1) as f64;
    let server_cpu_us = peer.pid.zip(server_before).map(|(pid, before)| (server_cpu(pid) - before) * 1e6 / operations);
    let cell = Cell {
        server_cpu_us,
        groups: groups()?.zip(groups_before).map(|(now, before)| now.since(&before)),
        before: begun.since(&at_rest),
        during: Moment::now(&pids)?.since(&begun),
        load_average,
        outcome,
    };
    eprintln!(
        "{}: {}: {:.0}/s, p99 {:.0} us (others used {:.0} % of the CPUs)",
        place.text(),
        peer.name,
        cell.outcome.throughput(),
        cell.outcome.latencies.quantile_us(0.99)?,
        cell.during.others * 100.0
    );
    Ok(cell)
}

/// Whether a request was not answered in the time that a client waits.
fn is_timeout(error: &Failure) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn text(args: &OneArgs, bench: &Bench, loads: &[Option<f64>], cells: &Cells) -> String {
    let mut text = format!(
        "\nBaton beside its peers, {} s a cell after {} s of warm-up, the middle of {} round(s).\n",
        args.seconds,
        args.warmup,
        args.rounds.max(1)
    );
    for (peer, load) in bench.peers.iter().zip(loads) {
        let load =
            load.map_or(String::new(), |rate| format!(" [{} records, {rate:.0}/s]", peer.records.loaded_count()));
        text += &format!("  {:20} {}{load}\n", peer.name, peer.what);
    }
    let sizes = bench.sizes;
    text += &format!(
        "Bytes of request and reply, as Baton's: read {} and {}, update {} and {}.\n",
        sizes.read_request, sizes.read_reply, sizes.update_request, sizes.update_reply
    );
    text += "Latencies in microseconds; CPU in microseconds for an operation, of the client and of the server.\n";
    text += "switch: switches of context of the machine for an operation; batch, sync: transactions in one of the member's.\n";
    text +=
        "others: CPU used by other processes meanwhile; idle: of the half second before; load: average of a minute.\n";
    for (place, peers) in cells {
        text += &format!(
            "\n{:40} {:>9} {:>8} {:>8} {:>8} {:>9} {:>7} {:>7} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6} {:>5}\n",
            place.text(),
            "ops/s",
            "p50",
            "p95",
            "p99",
            "max",
            "client",
            "server",
            "switch",
            "batch",
            "sync",
            "others",
            "stolen",
            "idle",
            "load"
        );
        for (name, rounds) in peers {
            let Some(cell) = median(rounds) else { continue };
            if cell.outcome.is_silence() {
                text += &format!("  {name:38} {:>9} (no answer for {:.0} s)\n", 0, cell.outcome.seconds);
                continue;
            }
            let us = |q: f64| cell.outcome.latencies.quantile_us(q).unwrap_or(f64::NAN);
            let figure = |of: Option<f64>| of.filter(|of| of.is_finite()).map_or("-".into(), |of| format!("{of:.1}"));
            text += &format!(
                "  {name:38} {:>9.0} {:>8.0} {:>8.0} {:>8.0} {:>9.0} {:>7.1} {:>7} {:>6.2} {:>6} {:>6} {:>6.1}% {:>5.1}% {:>5.0}% {:>5.1}\n",
                cell.outcome.throughput(),
                us(0.5),
                us(0.95),
                us(0.99),
                cell.outcome.latencies.max_us(),
                cell.outcome.client_cpu_us,
                figure(cell.server_cpu_us),
                cell.switches(),
                figure(cell.groups.map(|groups| groups.batch)),
                figure(cell.groups.map(|groups| groups.sync)),
                cell.during.others * 100.0,
                cell.during.stolen * 100.0,
                cell.before.idle * 100.0,
                cell.load_average
            );
        }
    }
    text + "\n" + &target::text(&targets::judge(cells))
}

fn report(args: &OneArgs, bench: &Bench, loads: &[Option<f64>], cells: &Cells, rested: bool) -> Value {
    let peers: Vec<Value> = bench
        .peers
        .iter()
        .zip(loads)
        .map(|(peer, load)| {
            json!({ "name": peer.name, "what": peer.what, "records": peer.records.loaded_count(), "loadRecordsPerSecond": load })
        })
        .collect();
    let mut rows = Vec::new();
    for (place, peers) in cells {
        for (name, rounds) in peers {
            for (round, cell) in rounds.iter().enumerate() {
                let us = |q: f64| cell.outcome.latencies.quantile_us(q).unwrap_or(f64::NAN);
                rows.push(json!({
                    "section": place.section.name(), "workload": place.workload.name(), "clients": place.clients,
                    "peer": name, "round": round,
                    "operationsPerSecond": cell.outcome.throughput(),
                    "p50Us": us(0.5), "p95Us": us(0.95), "p99Us": us(0.99), "p999Us": us(0.999),
                    "maxUs": cell.outcome.latencies.max_us(),
                    "serverCpuUs": cell.server_cpu_us, "switches": cell.switches(),
                    "transactions": cell.groups.map(Groups::json),
                    "loadAverage": cell.load_average, "before": cell.before.json(), "during": cell.during.json(),
                    "run": cell.outcome.json(),
                }));
            }
        }
    }
    let sizes = bench.sizes;
    json!({
        "machine": machine::describe(),
        "settings": {
            "seconds": args.seconds, "warmup": args.warmup, "rounds": args.rounds, "cacheGb": args.cache_gb,
            "settledAfterLoad": rested,
        },
        "messageBytes": {
            "readRequest": sizes.read_request, "readReply": sizes.read_reply,
            "updateRequest": sizes.update_request, "updateReply": sizes.update_reply,
        },
        "peers": peers,
        "cells": rows,
        "targets": target::json(&targets::judge(cells)),
    })
}
