//! `baton bench`: one YCSB workload against one server that speaks the MongoDB protocol.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

#[cfg(feature = "driver")]
use crate::client::DriverFactory;
use crate::client::{Factory, FollowingFactory, ThinFactory, WriteConcern};
use crate::runner::{self, Plan};
use crate::workload::{Records, Workload};
use crate::{Failure, emit};

/// Which client sends the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum ClientKind {
    /// A socket and patched requests: leaves the CPU to the server.
    Thin,
    /// The official Rust driver: what an application gets.
    #[cfg(feature = "driver")]
    Driver,
}

/// A YCSB run.
#[derive(Clone, Debug, clap::Args)]
pub struct YcsbArgs {
    /// Any server that speaks the MongoDB protocol; of a replica set the primary is found, and followed if several hosts are named
    #[arg(long, default_value = "mongodb://127.0.0.1:27017")]
    pub uri: String,
    /// The YCSB core workload (a to f), or only updates, or only inserts
    #[arg(long, value_enum, default_value = "a")]
    pub workload: Workload,
    /// Concurrent connections, each with one request at a time
    #[arg(long, default_value_t = 8)]
    pub clients: usize,
    /// Records (1 KB each) in the table
    #[arg(long, default_value_t = 100_000)]
    pub records: u64,
    /// How long to measure
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// Stop after so many operations
    #[arg(long)]
    pub operations: Option<u64>,
    /// Seconds before measuring begins
    #[arg(long, default_value_t = 5.0)]
    pub warmup: f64,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value = "journaled")]
    pub write_concern: WriteConcern,
    /// Which client sends the requests
    #[arg(long, value_enum, default_value = "thin")]
    pub client: ClientKind,
    /// Choose records uniformly instead of by the workload's distribution
    #[arg(long)]
    pub uniform: bool,
    /// The table is loaded already, with --records records
    #[arg(long)]
    pub skip_load: bool,
    /// Load only
    #[arg(long, conflicts_with = "skip_load")]
    pub load_only: bool,
    /// Records in one insert of the load
    #[arg(long, default_value_t = 500)]
    pub batch: u64,
    /// Which records are asked for, in which order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Write the result as JSON to a file, too
    #[arg(long)]
    pub output: Option<PathBuf>,
}

impl YcsbArgs {
    fn check(&self) -> Result<(), Failure> {
        let ok = self.clients > 0 && self.records > 0 && self.batch > 0 && self.seconds > 0.0 && self.warmup >= 0.0;
        if ok { Ok(()) } else { Err("--clients, --records, --batch and --seconds must be above 0".into()) }
    }

    fn factory(&self) -> Result<Box<dyn Factory>, Failure> {
        let layout = self.workload.layout();
        Ok(match self.client {
            ClientKind::Thin if self.uri.contains(',') => {
                Box::new(FollowingFactory::new(&self.uri, self.write_concern, layout))
            }
            ClientKind::Thin => Box::new(ThinFactory::new(&self.uri, self.write_concern, layout)?),
            #[cfg(feature = "driver")]
            ClientKind::Driver => Box::new(DriverFactory::new(&self.uri, self.write_concern, self.clients, layout)?),
        })
    }
}

/// Loads, runs, and prints; the lines per second go to standard error.
///
/// # Errors
/// With a text for the operator: a server that cannot be reached, or the first request that failed.
pub fn run(args: &YcsbArgs) -> Result<(), Failure> {
    args.check()?;
    let factory = args.factory()?;
    let mut report = json!({
        "uri": args.uri,
        "workload": args.workload.name(),
        "clients": args.clients,
        "records": args.records,
        "writeConcern": format!("{:?}", args.write_concern).to_lowercase(),
        "client": format!("{:?}", args.client).to_lowercase(),
    });
    if !args.skip_load {
        factory.clear()?;
        let rate = runner::load(factory.as_ref(), args.records, args.clients.min(8), args.batch, true)?;
        report["loadRecordsPerSecond"] = json!(rate);
        if !args.json {
            println!("load: {} records, {rate:.0} records/s", args.records);
        }
    }
    if !args.load_only {
        let plan = Plan {
            workload: args.workload,
            clients: args.clients,
            warmup: Duration::from_secs_f64(args.warmup),
            duration: Duration::from_secs_f64(args.seconds),
            operations: args.operations,
            uniform: args.uniform,
            seed: args.seed,
            verbose: true,
        };
        let outcome = runner::run(factory.as_ref(), &Records::loaded(args.records), &plan)?;
        report["run"] = outcome.json();
        if !args.json {
            println!("workload {}, {} clients: {}", args.workload.name(), args.clients, outcome.text());
        }
    }
    emit(&report, args.json, args.output.as_deref())
}
