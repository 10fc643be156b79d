//! `baton bench door`: what priorities cost where nobody says a class: `settings.priority.mode` full, which is the default, beside off.
//!
//! The cells are those of `bench one` (workloads A and C, `w: 1`) and of `bench set` (majority writes of a kilobyte on three members). In a round
//! the mode is changed beneath the same connections, several times, each mode first in turn: with new connections for each turn eight
//! clients of one member had 59,000 to 117,000 answers a second, of either mode. What counts is the median of the rounds' ratios.
//! Mode off has its turn twice: what it is of itself says how much of a ratio is chance.

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
    /// Seconds of every turn
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Turns that each mode has on the same connections
    #[arg(long, default_value_t = 6)]
    pub turns: usize,
    /// How often to measure everything, on other connections each time
    #[arg(long, default_value_t = 7)]
    pub rounds: usize,
    /// Memory for each member's cache
    #[arg(long, default_value_t = 1.0)]
    pub cache_gb: f64,
    #[command(flatten)]
    place: PlaceArgs,
}

const MODES: [&str; 3] = ["off", "full", "off"];
/// Each mode as often first, in the middle and last, before any other and after it.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]];
/// What `full` may cost of `off`: a fiftieth.
const THROUGHPUT_MIN: f64 = 0.98;
const P99_MAX: f64 = 1.02;
/// After the mode is another one.
const WARMUP: Duration = Duration::from_millis(250);

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

/// Of one mode in one round.
#[derive(Clone, Copy)]
struct Figures {
    per_sec: f64,
    p99_us: f64,
}

/// A cell's throughput, or its 99th percentile: medians of the rounds.
struct Cell {
    off: f64,
    full: f64,
    /// Full, of the mean of both offs.
    ratio: f64,
    /// The second off, of the first.
    chance: f64,
}

impl Cell {
    fn json(&self) -> Value {
        json!({ "off": self.off, "full": self.full, "ratio": self.ratio, "chance": self.chance })
    }
}

/// What the modes gave on the same connections, in the order of [`MODES`].
struct Round {
    modes: [Figures; 3],
    /// What the processors did for others meanwhile.
    others: f64,
}

/// Measures both halves, and prints each cell's ratios.
///
/// # Errors
/// If a member does not start or a request fails.
pub fn run(args: &DoorArgs) -> Result<(), Failure> {
    if args.records == 0 || args.rounds == 0 || args.turns == 0 || args.clients.contains(&0) || args.seconds <= 0.0 {
        return Err("--records, --rounds, --turns, --clients and --seconds must be above 0".into());
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
    conclude(
        &args.place,
        &text,
        json!({ "records": args.records, "seconds": args.seconds, "turns": args.turns, "cells": cells }),
        &targets,
    )
}

/// The rounds of one cell.
fn measure(
    args: &DoorArgs,
    set: &LocalSet,
    factory: &ThinFactory,
    workload: Workload,
    clients: usize,
) -> Result<Vec<Round>, Failure> {
    let round = |round: usize| {
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
        let records = Records::loaded(args.records);
        let order = order(round, args.turns);
        let measured = runner::run_in_turns(factory, &records, &plan, &order, |of| configure(set, MODES[of]))?;
        let others = Moment::now(&pids)?.since(&before).others;
        let [off, full, again] = measured.map(|mode| {
            Ok::<_, Failure>(Figures { per_sec: mode.throughput(), p99_us: mode.latencies.quantile_us(0.99)? })
        });
        Ok(Round { modes: [off?, full?, again?], others })
    };
    (0..args.rounds).map(round).collect()
}

/// Whose turn it is when.
fn order(round: usize, turns: usize) -> Vec<usize> {
    (0..turns).flat_map(|turn| ORDERS[(round + turn) % ORDERS.len()]).collect()
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
fn conclude_cell(name: &str, rounds: &[Round], targets: &mut Vec<Target>) -> (String, Value) {
    let of = |figure: fn(&Figures) -> f64| {
        let all =
            |figure: &dyn Fn(&[Figures; 3]) -> f64| median(rounds.iter().map(|round| figure(&round.modes)).collect());
        Cell {
            off: all(&|modes| figure(&modes[0])),
            full: all(&|modes| figure(&modes[1])),
            ratio: all(&|modes| 2.0 * figure(&modes[1]) / (figure(&modes[0]) + figure(&modes[2]))),
            chance: all(&|modes| figure(&modes[2]) / figure(&modes[0])),
        }
    };
    let (throughput, p99) = (of(|figures| figures.per_sec), of(|figures| figures.p99_us));
    let others = rounds.iter().map(|round| round.others).fold(0.0, f64::max);
    for (demand, figure, bound, at_least) in [
        ("throughput, of mode off", throughput.ratio, THROUGHPUT_MIN, true),
        ("p99, of mode off", p99.ratio, P99_MAX, false),
    ] {
        targets.push(Target { demand: demand.into(), place: name.into(), figure, bound, at_least });
    }
    let line = format!(
        "{name:37} off {:>6.0}/s p99 {:>5.0} us   full {:>6.0}/s p99 {:>5.0} us   full of off {:.3} {:.2}, off of off {:.3} {:.2}   (others {:.0} % at the most)\n",
        throughput.off,
        p99.off,
        throughput.full,
        p99.full,
        throughput.ratio,
        p99.ratio,
        throughput.chance,
        p99.chance,
        100.0 * others
    );
    let figures = json!({
        "cell": name,
        "perSecond": throughput.json(),
        "p99us": p99.json(),
        "rounds": rounds.iter().map(|round| json!(round.modes.map(|mode| [mode.per_sec, mode.p99_us]))).collect::<Vec<_>>(),
    });
    (line, figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_as_many_turns_in_each_place_and_next_to_each_other() {
        let counted = |count: &dyn Fn(&[usize; 3]) -> bool| ORDERS.iter().filter(|order| count(order)).count();
        for mode in 0..3 {
            for place in 0..3 {
                assert_eq!(counted(&|order| order[place] == mode), 2, "{mode} at {place}");
            }
            for next in (0..3).filter(|next| *next != mode) {
                assert_eq!(counted(&|order| order.windows(2).any(|pair| pair == [mode, next])), 2, "{mode}, {next}");
            }
        }
        assert_eq!(order(5, 2), [1, 0, 2, 0, 1, 2]);
    }

    #[test]
    fn what_counts_is_the_median_of_the_rounds_ratios() {
        let round = |off: [f64; 2], full: [f64; 2], again: [f64; 2]| Round {
            modes: [off, full, again].map(|[per_sec, p99_us]| Figures { per_sec, p99_us }),
            others: 0.0,
        };
        // The machine is twice as fast in the second round.
        let rounds = [
            round([100.0, 10.0], [99.0, 10.0], [110.0, 10.0]),
            round([200.0, 4.0], [206.0, 5.5], [220.0, 6.0]),
            round([100.0, 10.0], [98.0, 9.9], [100.0, 8.0]),
        ];
        let mut targets = Vec::new();
        let (line, report) = conclude_cell("cell", &rounds, &mut targets);
        assert!(line.starts_with("cell"));
        assert!((report["perSecond"]["ratio"].as_f64().unwrap() - 0.98).abs() < 1e-9);
        assert!((report["p99us"]["ratio"].as_f64().unwrap() - 1.1).abs() < 1e-9);
        assert!((report["perSecond"]["chance"].as_f64().unwrap() - 1.1).abs() < 1e-9);
        assert!((report["p99us"]["chance"].as_f64().unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(targets.len(), 2);
    }
}
