//! `baton bench door`: what priorities cost where nobody says a class: `settings.priority.mode` full, which is the default, beside off.
//!
//! The cells are those of `bench one` (workloads A and C, `w: 1`) and of `bench set` (majority writes of a kilobyte on three members). Both modes
//! are measured on the same members with the same data, one right after the other and each first in turn, for so many rounds; what counts is the
//! median of the rounds' ratios.

use std::time::Duration;

use bson::{Document, doc};
use serde_json::{Value, json};

use crate::client::{ThinFactory, WriteConcern, primary_of};
use crate::local_set::LocalSet;
use crate::machine::{self, Moment};
use crate::member::PlaceArgs;
use crate::record::Layout;
use crate::runner::{self, Plan};
use crate::statistics::median;
use crate::target::Target;
use crate::workload::{Records, Workload};
use crate::{Failure, conclude};

/// Both modes, in turns.
#[derive(Clone, Debug, clap::Args)]
pub struct DoorArgs {
    /// Records (1 KB each) in the tables
    #[arg(long, default_value_t = 100_000)]
    pub records: u64,
    /// Numbers of clients
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64])]
    pub clients: Vec<usize>,
    /// Seconds of every measurement
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// How often to measure everything
    #[arg(long, default_value_t = 7)]
    pub rounds: usize,
    /// Memory for each member's cache
    #[arg(long, default_value_t = 1.0)]
    pub cache_gb: f64,
    #[command(flatten)]
    place: PlaceArgs,
}

const MODES: [&str; 2] = ["off", "full"];
/// What `full` may cost of `off`: a fiftieth.
const THROUGHPUT_MIN: f64 = 0.98;
const P99_MAX: f64 = 1.02;
const WARMUP: Duration = Duration::from_secs(1);

/// A set, and what is asked of it.
struct Half {
    name: &'static str,
    members: usize,
    workloads: &'static [Workload],
    write_concern: WriteConcern,
    layout: Layout,
}

const HALVES: [Half; 2] = [
    Half {
        name: "one member",
        members: 1,
        workloads: &[Workload::A, Workload::C],
        write_concern: WriteConcern::W1,
        layout: Layout::Fields,
    },
    Half {
        name: "three members",
        members: 3,
        workloads: &[Workload::Replace],
        write_concern: WriteConcern::Majority,
        layout: Layout::Whole,
    },
];

/// One measurement.
#[derive(Clone, Copy)]
struct Figures {
    per_sec: f64,
    p99_us: f64,
    others: f64,
}

/// Measures both halves, and prints each cell's ratios.
///
/// # Errors
/// If a member does not start or a request fails.
pub fn run(args: &DoorArgs) -> Result<(), Failure> {
    if args.records == 0 || args.rounds == 0 || args.clients.contains(&0) || args.seconds <= 0.0 {
        return Err("--records, --rounds, --clients and --seconds must be above 0".into());
    }
    let scratch = args.place.fresh("door")?;
    let (mut text, mut cells, mut targets) = (String::new(), Vec::new(), Vec::new());
    for half in &HALVES {
        let directory = scratch.path().join(half.members.to_string());
        std::fs::create_dir_all(&directory)?;
        let set = LocalSet::start(
            &args.place,
            &directory,
            half.members,
            args.cache_gb,
            &doc! { "leadership": { "mode": "off" } },
        )?;
        let uri = format!("mongodb://{}/", primary_of(&set.uri())?);
        let factory = ThinFactory::new(&uri, half.write_concern, half.layout)?;
        runner::load(&factory, args.records, 4, 500, false)?;
        machine::settle(&set.pids(), Duration::from_secs(120))?;
        for &workload in half.workloads {
            for &clients in &args.clients {
                let rounds = measure(args, &set, &factory, workload, clients)?;
                let name = format!("{}, {workload:?}, {clients} clients", half.name);
                let (line, figures) = conclude_cell(&name, &rounds, &mut targets);
                eprint!("{line}");
                text += &line;
                cells.push(figures);
            }
        }
    }
    conclude(&args.place, &text, json!({ "records": args.records, "seconds": args.seconds, "cells": cells }), &targets)
}

/// The rounds of one cell: what each mode gave, in the order of [`MODES`].
fn measure(
    args: &DoorArgs,
    set: &LocalSet,
    factory: &ThinFactory,
    workload: Workload,
    clients: usize,
) -> Result<Vec<[Figures; 2]>, Failure> {
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        let mut found = [None; 2];
        for turn in 0..2 {
            let of = (round + turn) % 2;
            configure(set, MODES[of])?;
            let plan = Plan {
                workload,
                clients,
                warmup: WARMUP,
                duration: Duration::from_secs_f64(args.seconds),
                operations: None,
                uniform: false,
                seed: round as u64,
                verbose: false,
            };
            let pids = set.pids();
            let before = Moment::now(&pids)?;
            let outcome = runner::run(factory, &Records::loaded(args.records), &plan)?;
            found[of] = Some(Figures {
                per_sec: outcome.throughput(),
                p99_us: outcome.latencies.quantile_us(0.99)?,
                others: Moment::now(&pids)?.since(&before).others,
            });
        }
        if let [Some(off), Some(full)] = found {
            rounds.push([off, full]);
        }
    }
    Ok(rounds)
}

/// Has the set go by a mode.
fn configure(set: &LocalSet, mode: &str) -> Result<(), Failure> {
    let primary = set.primary()?;
    let reply = set.ask(primary, &doc! { "replSetGetConfig": 1, "$db": "admin" })?;
    let mut config = reply.get_document("config")?.clone();
    let version = config.get_i32("version").map(i64::from).or_else(|_| config.get_i64("version"))?;
    config.insert("version", version + 1);
    let mut settings = config.get_document("settings").cloned().unwrap_or_else(|_| Document::new());
    settings.insert("priority", doc! { "mode": mode });
    config.insert("settings", settings);
    let reply = set.ask(primary, &doc! { "replSetReconfig": config, "$db": "admin" })?;
    if reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) { Ok(()) } else { Err(format!("no mode {mode}: {reply}").into()) }
}

/// A line for people, figures for programs, and what was promised of them.
fn conclude_cell(name: &str, rounds: &[[Figures; 2]], targets: &mut Vec<Target>) -> (String, Value) {
    let of = |figure: fn(&Figures) -> f64| {
        let ratio = median(rounds.iter().map(|[off, full]| figure(full) / figure(off)).collect());
        let [off, full] = [0, 1].map(|mode| median(rounds.iter().map(|round| figure(&round[mode])).collect()));
        (off, full, ratio)
    };
    let (throughput, p99) = (of(|figures| figures.per_sec), of(|figures| figures.p99_us));
    let others = rounds.iter().flatten().map(|figures| figures.others).fold(0.0, f64::max);
    for (demand, figure, bound, at_least) in
        [("throughput, of mode off", throughput.2, THROUGHPUT_MIN, true), ("p99, of mode off", p99.2, P99_MAX, false)]
    {
        targets.push(Target { demand: demand.into(), place: name.into(), figure, bound, at_least });
    }
    let line = format!(
        "{name:40} off {:>7.0}/s p99 {:>6.0} us   full {:>7.0}/s p99 {:>6.0} us   (others {:.0} % at the most)\n",
        throughput.0,
        p99.0,
        throughput.1,
        p99.1,
        100.0 * others
    );
    let figures = json!({
        "cell": name,
        "perSecond": { "off": throughput.0, "full": throughput.1, "ratio": throughput.2 },
        "p99us": { "off": p99.0, "full": p99.1, "ratio": p99.2 },
        "rounds": rounds.iter().map(|[off, full]| json!([[off.per_sec, off.p99_us], [full.per_sec, full.p99_us]])).collect::<Vec<_>>(),
    });
    (line, figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_the_median_of_the_rounds_ratios() {
        let figures = |per_sec, p99_us| Figures { per_sec, p99_us, others: 0.0 };
        // The machine is twice as fast in the second round.
        let rounds = [
            [figures(100.0, 10.0), figures(99.0, 10.0)],
            [figures(200.0, 5.0), figures(196.0, 5.5)],
            [figures(100.0, 10.0), figures(90.0, 10.1)],
        ];
        let mut targets = Vec::new();
        let (line, report) = conclude_cell("cell", &rounds, &mut targets);
        assert!(line.starts_with("cell"));
        assert!((report["perSecond"]["ratio"].as_f64().unwrap() - 0.98).abs() < 1e-9);
        assert!((report["p99us"]["ratio"].as_f64().unwrap() - 1.01).abs() < 1e-9);
        assert_eq!(targets.len(), 2);
    }
}
