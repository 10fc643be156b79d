//! Workloads and figures: the YCSB core workloads, a client thin enough to leave the CPU to the server, and the peers
//! the figures are compared with.
//!
//! It measures any server that speaks the MongoDB protocol and knows nothing of Baton's insides; what it compares Baton
//! with (a bare RocksDB, a bare socket) it builds itself from the same parts. Its failures are texts for the operator:
//! nothing catches them by kind.

pub mod client;
pub mod connections;
pub mod distribution;
pub mod disturbance;
pub mod door;
pub mod failover;
mod histogram;
pub mod idle;
pub mod index_build;
pub mod initial_sync;
pub mod local_set;
pub mod machine;
pub mod member;
pub mod memory;
pub mod one;
pub mod process;
pub mod record;
pub mod recovery;
pub mod runner;
pub mod scale;
pub mod set;
pub mod spill;
pub mod statistics;
pub mod target;
pub mod workload;
mod ycsb;

use std::path::Path;

pub use histogram::Latencies;
use serde_json::Value;
pub use ycsb::{ClientKind, YcsbArgs};

/// What went wrong, in words for the operator.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// `baton bench`: a YCSB run, or one of the experiments.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    experiment: Option<Experiment>,
    #[command(flatten)]
    ycsb: YcsbArgs,
}

/// What else can be measured; each starts its own servers.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Experiment {
    /// Baton beside mongo-java-server, Redis, a ping-pong, RocksDB alone and a bare file, in one run
    One(Box<one::OneArgs>),
    /// Throughput of one working set in tables of growing size
    Scale(scale::ScaleArgs),
    /// Memory and CPU of a member that nobody asks anything
    Idle(idle::IdleArgs),
    /// What idle connections cost in memory, and those that work beside them
    Connections(connections::ConnectionsArgs),
    /// Memory of a member with a small cache, whatever its clients do
    Memory(memory::MemoryArgs),
    /// Time from `kill -9` under load to the next acknowledged insert
    Recovery(recovery::RecoveryArgs),
    /// Time until a new member has its data, by cloning and by file
    InitialSync(initial_sync::InitialSyncArgs),
    /// An index build beside a restore of the same documents
    IndexBuild(index_build::IndexBuildArgs),
    /// A sort that spills beside one that fits
    Spill(spill::SpillArgs),
    /// Majority writes of a set of three beside etcd's
    Set(set::SetArgs),
    /// What priorities cost where nobody says a class
    Door(door::DoorArgs),
    /// How long a set takes no majority writes when its primary is killed, falls silent or hands over
    Failover(failover::FailoverArgs),
    /// What steady clients notice of drops, index builds, large deletes, compactions, backups and copies
    Disturbance(disturbance::DisturbanceArgs),
    /// The ping-pong's server
    #[command(hide = true)]
    Echo {
        /// Where to listen, on loopback
        #[arg(long)]
        port: u16,
    },
}

/// Carries out what the command line asks for and prints the figures.
///
/// # Errors
/// With a text for the operator.
pub fn run(args: Args) -> Result<(), Failure> {
    match args.experiment {
        None => ycsb::run(&args.ycsb),
        Some(Experiment::One(args)) => one::run(&args),
        Some(Experiment::Scale(args)) => scale::run(&args),
        Some(Experiment::Idle(args)) => idle::run(&args),
        Some(Experiment::Connections(args)) => connections::run(&args),
        Some(Experiment::Memory(args)) => memory::run(&args),
        Some(Experiment::Recovery(args)) => recovery::run(&args),
        Some(Experiment::InitialSync(args)) => initial_sync::run(&args),
        Some(Experiment::IndexBuild(args)) => index_build::run(&args),
        Some(Experiment::Spill(args)) => spill::run(&args),
        Some(Experiment::Set(args)) => set::run(&args),
        Some(Experiment::Door(args)) => door::run(&args),
        Some(Experiment::Failover(args)) => failover::run(&args),
        Some(Experiment::Disturbance(args)) => disturbance::run(&args),
        Some(Experiment::Echo { port }) => client::serve_echo(port),
    }
}

/// Ends an experiment: prints its text and its targets (or its report as JSON), and writes the file.
fn conclude(
    place: &member::PlaceArgs,
    text: &str,
    mut report: Value,
    targets: &[target::Target],
) -> Result<(), Failure> {
    report["machine"] = machine::describe();
    report["targets"] = target::json(targets);
    if !place.json {
        println!("{text}\n{}", target::text(targets));
    }
    emit(&report, place.json, place.output.as_deref())
}

/// Prints a report as JSON, if that is wanted, and writes it to a file, if one is named.
fn emit(report: &Value, print: bool, file: Option<&Path>) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report)?;
    if print {
        println!("{text}");
    }
    if let Some(path) = file {
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
