//! `baton bench connections`: what thousands of connections cost that say nothing, in memory, and those that work beside them.
//!
//! Each of the idle ones has said `hello` and read a record, as those of a driver's pool have, and is then silent. The same clients work with and
//! without them, each first in turn, for so many rounds; what counts are medians.

use std::net::TcpStream;
use std::time::Duration;

use bson::doc;
use serde_json::json;

use crate::client::{ThinFactory, Wire, WriteConcern};
use crate::member::{MemberSpec, PlaceArgs};
use crate::process::Process;
use crate::record::{DATABASE, Layout, key_of};
use crate::runner::{self, Plan};
use crate::statistics::median;
use crate::target::Target;
use crate::workload::{Records, Workload};
use crate::{Failure, conclude, machine};

/// Many connections, few of which work.
#[derive(Clone, Debug, clap::Args)]
pub struct ConnectionsArgs {
    /// Connections that say nothing; the limit of open files must leave room for them here and in the member
    #[arg(long, default_value_t = 10_000)]
    pub idle: usize,
    /// Connections that work
    #[arg(long, default_value_t = 64)]
    pub clients: usize,
    /// What they do
    #[arg(long, value_enum, value_delimiter = ',', default_value = "a,c")]
    pub workloads: Vec<Workload>,
    /// Records (1 KB each) in the table
    #[arg(long, default_value_t = 100_000)]
    pub records: u64,
    /// Seconds of every measurement
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// How often to measure everything
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    #[command(flatten)]
    place: PlaceArgs,
}

const BYTES_EACH_MAX: f64 = 24.0 * 1024.0;
const KEPT_MIN: f64 = 0.9;
/// A connection gives its thread and its buffers back when its client has been silent for five seconds, and the allocator what it holds when it looks next,
/// as of those who have gone.
const SILENCE: Duration = Duration::from_secs(8);

struct Subject<'a> {
    args: &'a ConnectionsArgs,
    member: Process,
    factory: ThinFactory,
    /// Resident bytes for each idle connection, one for each time that they came.
    bytes_each: Vec<f64>,
}

/// Measures with and without, and prints both.
///
/// # Errors
/// If the member does not start, or takes fewer connections.
pub fn run(args: &ConnectionsArgs) -> Result<(), Failure> {
    if args.idle == 0 || args.clients == 0 || args.records == 0 || args.rounds == 0 || args.seconds <= 0.0 {
        return Err("--idle, --clients, --records, --rounds and --seconds must be above 0".into());
    }
    let scratch = args.place.fresh("connections")?;
    let member = MemberSpec::new(&args.place, scratch.path(), 1.0)?.start()?;
    let factory = ThinFactory::new(&member.uri(), WriteConcern::W1, Layout::Fields)?;
    runner::load(&factory, args.records, 4, 500, false)?;
    machine::settle(&[member.pid()], Duration::from_secs(120))?;
    let mut subject = Subject { args, member, factory, bytes_each: Vec::new() };
    let (mut text, mut cells, mut targets) = (String::new(), Vec::new(), Vec::new());
    for &workload in &args.workloads {
        let mut rates: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
        for round in 0..args.rounds {
            for turn in 0..2 {
                let with = (round + turn) % 2;
                let idle = if with == 1 { subject.connect()? } else { Vec::new() };
                rates[with].push(subject.measure(workload, round as u64)?);
                drop(idle);
            }
        }
        let ratios = rates[1].iter().zip(&rates[0]).map(|(with, without)| with / without).collect();
        let [without, with] = rates.map(median);
        let kept = median(ratios);
        text += &format!(
            "{workload:?}, {} clients: {without:>7.0}/s alone, {with:>7.0}/s beside {} idle\n",
            args.clients, args.idle
        );
        cells.push(json!({ "workload": format!("{workload:?}"), "alone": without, "besideIdle": with, "kept": kept }));
        targets.push(Target {
            demand: "throughput beside idle connections, of without".into(),
            place: format!("{workload:?}, {} clients, {} idle", args.clients, args.idle),
            figure: kept,
            bound: KEPT_MIN,
            at_least: true,
        });
    }
    let bytes_each = median(subject.bytes_each);
    text += &format!("{:.1} KB resident for each idle connection\n", bytes_each / 1024.0);
    targets.push(Target {
        demand: "resident bytes for each idle connection".into(),
        place: format!("{} idle", args.idle),
        figure: bytes_each,
        bound: BYTES_EACH_MAX,
        at_least: false,
    });
    let report = json!({ "idle": args.idle, "clients": args.clients, "cells": cells, "bytesEach": bytes_each });
    conclude(&args.place, &text, report, &targets)
}

impl Subject<'_> {
    fn resident(&self) -> Result<f64, Failure> {
        let (resident, _) = machine::resident_bytes(self.member.pid()).ok_or("the member is gone")?;
        Ok(resident as f64)
    }

    /// Those that say nothing, after they have each said something; notes what they hold of the member's memory.
    fn connect(&mut self) -> Result<Vec<TcpStream>, Failure> {
        let address = format!("127.0.0.1:{}", self.member.port);
        std::thread::sleep(SILENCE);
        let before = self.resident()?;
        let mut idle = Vec::with_capacity(self.args.idle);
        for number in 0..self.args.idle {
            let mut wire = Wire::connect(&address)
                .map_err(|error| format!("connection {number}: {error} (is `ulimit -n` above {}?)", self.args.idle))?;
            wire.command(&doc! { "hello": 1, "$db": "admin" })?;
            let id = key_of(number as u64 % self.args.records);
            let id = std::str::from_utf8(&id)?;
            wire.command(&doc! { "find": "usertable", "filter": { "_id": id }, "limit": 1, "$db": DATABASE })?;
            idle.push(wire.into_stream());
        }
        std::thread::sleep(SILENCE);
        self.bytes_each.push((self.resident()? - before) / self.args.idle as f64);
        Ok(idle)
    }

    /// Operations a second of those that work.
    fn measure(&self, workload: Workload, seed: u64) -> Result<f64, Failure> {
        let plan = Plan {
            workload,
            clients: self.args.clients,
            warmup: Duration::from_secs(1),
            duration: Duration::from_secs_f64(self.args.seconds),
            operations: None,
            uniform: false,
            seed,
            verbose: false,
        };
        let throughput = runner::run(&self.factory, &Records::loaded(self.args.records), &plan)?.throughput();
        if throughput > 0.0 { Ok(throughput) } else { Err("nothing was answered to those that work".into()) }
    }
}
