//! `baton bench set`: acknowledged by a majority, on disk: three members of Baton (or how many are asked for) beside as many of etcd, in one
//! run.
//!
//! Both write a kilobyte under one of so many keys, each client one at a time on a connection of its own; a write counts when a
//! majority has it on disk. All members, and the clients, share this machine.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bson::doc;
use serde_json::{Value, json};

use crate::client::{ThinFactory, WriteConcern, primary_of};
use crate::local_set::LocalSet;
use crate::member::PlaceArgs;
use crate::process::{Process, free_ports};
use crate::record::Layout;
use crate::runner::Plan;
use crate::target::Target;
use crate::workload::{Records, Workload};
use crate::{Failure, conclude, machine, runner};

/// A set beside etcd.
#[derive(Clone, Debug, clap::Args)]
pub struct SetArgs {
    /// Records (1 KB each) in the table, and keys that etcd writes
    #[arg(long, default_value_t = 20_000)]
    pub records: u64,
    /// Numbers of members, 7 at most each
    #[arg(long, value_delimiter = ',', default_values_t = [3])]
    pub members: Vec<usize>,
    /// Numbers of clients
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64])]
    pub clients: Vec<usize>,
    /// Seconds for each cell
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// The program that is etcd's member and load (see peers/etcd); without it Baton is measured alone
    #[arg(long)]
    pub etcd: Option<PathBuf>,
    /// Whether leadership moves by itself: `settings.leadership.mode` (off, always, costBased)
    #[arg(long, default_value = "costBased")]
    pub leadership: String,
    /// Memory for each member's cache
    #[arg(long, default_value_t = 1.0)]
    pub cache_gb: f64,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Of a local set.
const MEMBERS_MAX: usize = 7;
/// Of so many members the bounds beside etcd are.
const MEMBERS_PROMISED: usize = 3;
/// Of etcd's puts a second, at several clients.
const THROUGHPUT_MIN: f64 = 4.0;
/// Of etcd's median latency, at one client.
const LATENCY_MAX: f64 = 0.5;

struct Cell {
    per_sec: f64,
    p50: f64,
    p99: f64,
    others_percent: f64,
}

/// Measures both, one after the other for each number of clients.
///
/// # Errors
/// If a member does not start or a load fails.
pub fn run(args: &SetArgs) -> Result<(), Failure> {
    if args.records == 0 || args.seconds == 0 || args.clients.contains(&0) {
        return Err("--records, --seconds and --clients must be above 0".into());
    }
    if args.members.iter().any(|members| !(1..=MEMBERS_MAX).contains(members)) {
        return Err(format!("--members must be from 1 to {MEMBERS_MAX} each").into());
    }
    let scratch = args.place.fresh("set")?;
    let (mut text, mut cells, mut targets) = (String::new(), Vec::new(), Vec::new());
    let mut numbers = args.members.clone();
    numbers.sort_unstable();
    for &clients in &args.clients {
        let mut fewest: Option<(usize, Cell)> = None;
        for &members in &numbers {
            let cluster = Cluster { members, clients, directory: scratch.path() };
            let etcd = args.etcd.as_ref().map(|program| measure_etcd(args, program, cluster)).transpose()?;
            let baton = measure_baton(args, cluster)?;
            for (who, cell) in [("etcd", etcd.as_ref()), ("Baton", Some(&baton))] {
                if let Some(Cell { per_sec, p50, p99, others_percent }) = cell {
                    let line = format!(
                        "{members} members  {clients:>3} clients  {who:6} {per_sec:>8.0}/s  p50 {p50:>7.0} us  p99 {p99:>7.0} us  (others used {others_percent:.0} % of the CPUs)\n"
                    );
                    eprint!("{line}");
                    text += &line;
                }
            }
            let promised = etcd.as_ref().filter(|_| members == MEMBERS_PROMISED);
            targets.extend(promised.map(|etcd| beside_etcd(cluster, &baton, etcd)));
            targets.extend(fewest.as_ref().map(|fewest| beside_fewer(cluster, &baton, fewest)));
            cells.push(json!({
                "members": members,
                "clients": clients,
                "baton": figures_of(&baton),
                "etcd": etcd.as_ref().map(figures_of),
            }));
            fewest.get_or_insert((members, baton));
        }
    }
    conclude(&args.place, &text, json!({ "records": args.records, "cells": cells }), &targets)
}

/// What is measured at once.
#[derive(Clone, Copy)]
struct Cluster<'a> {
    members: usize,
    clients: usize,
    directory: &'a std::path::Path,
}

impl Cluster<'_> {
    fn place(self) -> String {
        format!("{} members, 1 KB, {} clients", self.members, self.clients)
    }
}

fn beside_etcd(cluster: Cluster<'_>, baton: &Cell, etcd: &Cell) -> Target {
    if cluster.clients == 1 {
        return Target {
            demand: "median latency of a majority write, of etcd's".into(),
            place: cluster.place(),
            figure: baton.p50 / etcd.p50,
            bound: LATENCY_MAX,
            at_least: false,
        };
    }
    Target {
        demand: "majority writes a second, of etcd's".into(),
        place: cluster.place(),
        figure: baton.per_sec / etcd.per_sec,
        bound: THROUGHPUT_MIN,
        at_least: true,
    }
}

/// On the same processors so many members more do the same work so many times more often.
fn beside_fewer(cluster: Cluster<'_>, baton: &Cell, (fewest, with_fewest): &(usize, Cell)) -> Target {
    Target {
        demand: format!("majority writes a second, of those with {fewest} members"),
        place: cluster.place(),
        figure: baton.per_sec / with_fewest.per_sec,
        bound: *fewest as f64 / cluster.members as f64,
        at_least: true,
    }
}

fn figures_of(cell: &Cell) -> Value {
    json!({ "perSecond": cell.per_sec, "p50us": cell.p50, "p99us": cell.p99, "othersPercent": cell.others_percent })
}

fn measure_baton(args: &SetArgs, cluster: Cluster<'_>) -> Result<Cell, Failure> {
    let directory = cluster.directory.join("baton");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory)?;
    let settings = doc! { "leadership": { "mode": args.leadership.as_str() } };
    let set = LocalSet::start(&args.place, &directory, cluster.members, args.cache_gb, &settings)?;
    let uri = format!("mongodb://{}/", primary_of(&set.uri())?);
    let factory = ThinFactory::new(&uri, WriteConcern::Majority, Layout::Whole)?;
    runner::load(&factory, args.records, 4, 500, false)?;
    let pids = set.pids();
    machine::settle(&pids, Duration::from_secs(30))?;
    let plan = Plan {
        workload: Workload::Replace,
        clients: cluster.clients,
        warmup: Duration::from_secs(1),
        duration: Duration::from_secs(args.seconds),
        operations: None,
        uniform: true,
        seed: 1,
        verbose: false,
    };
    let before = machine::Moment::now(&pids)?;
    let outcome = runner::run(&factory, &Records::loaded(args.records), &plan)?;
    let used = machine::Moment::now(&pids)?.since(&before);
    Ok(Cell {
        per_sec: outcome.throughput(),
        p50: outcome.latencies.quantile_us(0.5)?,
        p99: outcome.latencies.quantile_us(0.99)?,
        others_percent: 100.0 * used.others,
    })
}

fn measure_etcd(args: &SetArgs, program: &std::path::Path, cluster: Cluster<'_>) -> Result<Cell, Failure> {
    let directory = cluster.directory.join("etcd");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory)?;
    let ports = free_ports(2 * cluster.members)?;
    let (serving, peering) = ports.split_at(cluster.members);
    let peers: Vec<String> =
        peering.iter().enumerate().map(|(i, port)| format!("m{i}=http://127.0.0.1:{port}")).collect();
    // A member listens to clients once there is a quorum: all must have been started before one is waited for.
    let mut members = Vec::new();
    for i in 0..cluster.members {
        let mut command = Command::new(program);
        command.args(["member", &format!("m{i}")]).arg(directory.join(format!("m{i}")));
        command.args([serving[i].to_string(), peering[i].to_string(), peers.join(",")]);
        members.push(Process::begin(&format!("etcd{i}"), command, serving[i], &directory)?);
    }
    for member in &mut members {
        member.await_listening(&directory)?;
    }
    let mut pids: Vec<u32> = members.iter().map(Process::pid).collect();
    machine::settle(&pids, Duration::from_secs(30))?;
    let endpoints: Vec<String> = serving.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
    let load = Command::new(program)
        .args([
            "load",
            &endpoints.join(","),
            &cluster.clients.to_string(),
            &args.seconds.to_string(),
            &args.records.to_string(),
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    pids.push(load.id());
    let before = machine::Moment::now(&pids)?;
    std::thread::sleep(Duration::from_secs(args.seconds));
    let used = machine::Moment::now(&pids)?.since(&before);
    let output = load.wait_with_output()?;
    let figures: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("etcd's load said nothing: {e}"))?;
    let figure =
        |name: &str| figures[name].as_f64().ok_or_else(|| Failure::from(format!("etcd's load names no {name}")));
    Ok(Cell { per_sec: figure("puts")?, p50: figure("p50")?, p99: figure("p99")?, others_percent: 100.0 * used.others })
}
