//! Workloads and figures: the YCSB core workloads, a client thin enough to leave the CPU to the server, and the peers
//! the figures are compared with.
//!
//! It measures any server that speaks the MongoDB protocol and knows nothing of Baton's insides; what it compares Baton
//! with (a bare RocksDB, a bare socket) it builds itself from the same parts. Its failures are texts for the operator:
//! nothing catches them by kind.

pub mod client;
pub mod distribution;
mod histogram;
pub mod record;
pub mod runner;
pub mod workload;
mod ycsb;

pub use histogram::Latencies;
pub use ycsb::{ClientKind, YcsbArgs};

/// What went wrong, in words for the operator.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// `baton bench`: a YCSB run, or one of the experiments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    ycsb: YcsbArgs,
}

/// Carries out what the command line asks for and prints the figures.
///
/// # Errors
/// With a text for the operator.
pub fn run(args: Args) -> Result<(), Failure> {
    ycsb::run(&args.ycsb)
}
