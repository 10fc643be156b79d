//! `baton bench memory`: a million records, a small cache, and clients that ask for too much.
//!
//! What is measured is the peak of resident memory, phase by phase. A request that the member refuses with an error is as
//! good as one that it answers: the claim is that it does neither at the cost of its memory. Which it did is printed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use parking_lot::Mutex;
use serde_json::json;

use crate::client::{ThinFactory, Wire, WriteConcern};
use crate::member::{MemberSpec, PlaceArgs};
use crate::process::Process;
use crate::record::{DATABASE, Layout, key_of};
use crate::runner::{self, Plan};
use crate::target::Target;
use crate::workload::{Records, Workload};
use crate::{Failure, conclude, machine};

/// Clients that ask for too much.
#[derive(Clone, Debug, clap::Args)]
pub struct MemoryArgs {
    /// Records (1 KB each) in the table
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// The member's cache, in MB
    #[arg(long, default_value_t = 256)]
    pub cache_mb: u64,
    /// Connections at once
    #[arg(long, default_value_t = 2000)]
    pub connections: usize,
    /// Cursors with batches of 16 MB at once
    #[arg(long, default_value_t = 64)]
    pub cursors: usize,
    /// Seconds of reads and updates after the load
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Sorts, and aggregations of every kind, at once
    #[arg(long, default_value_t = 8)]
    pub at_once: usize,
    #[command(flatten)]
    place: PlaceArgs,
}

const BEYOND_CACHE_MB_MAX: f64 = 256.0;
const MIB: f64 = 1024.0 * 1024.0;
const PATIENCE: Duration = Duration::from_secs(900);
/// Threads over which the many connections are spread.
const THREADS: usize = 8;

/// How often each outcome occurred: "ok", or an error's code and name.
type Outcomes = BTreeMap<String, u64>;

struct Phase {
    name: &'static str,
    peak_mb: f64,
    seconds: f64,
    outcomes: Outcomes,
}

struct Subject<'a> {
    args: &'a MemoryArgs,
    member: Process,
    phases: Vec<Phase>,
}

/// Loads, asks for too much, and prints the peaks.
///
/// # Errors
/// If the member does not start or dies.
pub fn run(args: &MemoryArgs) -> Result<(), Failure> {
    let scratch = args.place.fresh("memory")?;
    let member = MemberSpec::new(&args.place, scratch.path(), args.cache_mb as f64 / 1024.0)?.start()?;
    let factory = ThinFactory::new(&member.uri(), WriteConcern::W1, Layout::Fields)?;
    let mut subject = Subject { args, member, phases: Vec::new() };
    subject.phase("load", |args, _| {
        runner::load(&factory, args.records, 4, 500, false)?;
        Ok(Outcomes::new())
    })?;
    subject.phase("reads and updates, 64 clients", |args, _| {
        let plan = Plan {
            workload: Workload::A,
            clients: 64,
            warmup: Duration::ZERO,
            duration: Duration::from_secs_f64(args.seconds),
            operations: None,
            uniform: true,
            seed: 5,
            verbose: false,
        };
        let outcome = runner::run(&factory, &Records::loaded(args.records), &plan)?;
        Ok(Outcomes::from([("ok".to_owned(), outcome.latencies.count())]))
    })?;
    subject.phase("sorts of the whole table", |args, address| {
        at_once(args.at_once, |number| {
            let sort = doc! { format!("field{}", number % 10): 1 };
            let command = doc! {
                "find": "usertable", "sort": sort, "batchSize": 1000, "allowDiskUse": number % 2 == 0, "$db": DATABASE,
            };
            drain(&mut connect(address)?, &command, 3)
        })
    })?;
    subject.phase("cursors with batches of 16 MB", |args, address| {
        at_once(args.cursors, |_| {
            drain(&mut connect(address)?, &doc! { "find": "usertable", "batchSize": 1_000_000, "$db": DATABASE }, 5)
        })
    })?;
    for (name, pipeline, may_spill) in aggregations() {
        subject.phase(name, |args, address| {
            at_once(args.at_once.div_ceil(2), |number| {
                let command = doc! {
                    "aggregate": "usertable", "pipeline": pipeline.clone(), "cursor": { "batchSize": 1000 },
                    "allowDiskUse": may_spill && number % 2 == 0, "$db": DATABASE,
                };
                drain(&mut connect(address)?, &command, 3)
            })
        })?;
    }
    subject.phase("many connections, all asking at once", many_connections)?;
    subject.conclude()
}

/// Pipelines that hold much, each for its own reason, and whether they may use the disk: not what would take all of it.
fn aggregations() -> Vec<(&'static str, Vec<Document>, bool)> {
    vec![
        (
            "$group of every record whole",
            vec![doc! { "$group": { "_id": "$_id", "all": { "$push": "$$ROOT" } } }],
            true,
        ),
        ("$group of everything in one", vec![doc! { "$group": { "_id": null, "all": { "$push": "$field0" } } }], true),
        ("$sort in a pipeline", vec![doc! { "$sort": { "field3": -1 } }, doc! { "$project": { "field3": 1 } }], true),
        (
            "$facet of the whole table",
            vec![doc! { "$facet": { "all": [ { "$match": {} } ], "count": [ { "$count": "n" } ] } }],
            true,
        ),
        (
            "$lookup of ten thousand records",
            vec![
                doc! { "$limit": 10_000 },
                doc! { "$lookup": { "from": "usertable", "localField": "_id", "foreignField": "_id", "as": "same" } },
                doc! { "$group": { "_id": null, "all": { "$push": "$same" } } },
            ],
            true,
        ),
        (
            "$unwind of long arrays",
            vec![
                doc! { "$limit": 2000 },
                doc! { "$set": { "long": { "$range": [0, 50_000] } } },
                doc! { "$unwind": "$long" },
                doc! { "$sort": { "long": 1 } },
            ],
            false,
        ),
        ("$sortByCount of every value", vec![doc! { "$sortByCount": "$field5" }], true),
    ]
}

fn connect(address: &str) -> Result<Wire, Failure> {
    let wire = Wire::connect(address)?;
    wire.be_patient(PATIENCE)?;
    Ok(wire)
}

fn outcome_of(reply: &Document) -> String {
    if reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) {
        return "ok".into();
    }
    format!("{} {}", reply.get_i32("code").unwrap_or(0), reply.get_str("codeName").unwrap_or("?"))
}

/// Runs a command that opens a cursor and fetches so many batches of it; leaves the cursor open.
fn drain(wire: &mut Wire, command: &Document, batches: usize) -> Result<String, Failure> {
    let mut reply = wire.command(command)?;
    for _ in 1..batches {
        let cursor = match reply.get_document("cursor") {
            Ok(cursor) if cursor.get_i64("id").unwrap_or(0) != 0 => cursor.clone(),
            Ok(_) | Err(_) => break,
        };
        let id = cursor.get_i64("id")?;
        reply = wire.command(&doc! { "getMore": id, "collection": "usertable", "$db": DATABASE })?;
    }
    Ok(outcome_of(&reply))
}

/// Calls `f` in so many threads at once; counts what they say.
fn at_once(count: usize, f: impl Fn(usize) -> Result<String, Failure> + Sync) -> Result<Outcomes, Failure> {
    let outcomes: Mutex<Outcomes> = Mutex::default();
    std::thread::scope(|scope| {
        for number in 0..count {
            let (f, outcomes) = (&f, &outcomes);
            scope.spawn(move || {
                let said = f(number).unwrap_or_else(|error| format!("lost: {error}"));
                *outcomes.lock().entry(said).or_default() += 1;
            });
        }
    });
    Ok(outcomes.into_inner())
}

/// Opens all connections and has every one of them ask before any is answered: reads, updates, insertions, scans with
/// the cursor left open.
fn many_connections(args: &MemoryArgs, address: &str) -> Result<Outcomes, Failure> {
    let outcomes: Mutex<Outcomes> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let outcomes = &outcomes;
            scope.spawn(move || {
                let count = args.connections / THREADS;
                if let Err(error) = ask_all(args, address, (thread * count) as u64, count, outcomes) {
                    *outcomes.lock().entry(format!("lost: {error}")).or_default() += 1;
                }
            });
        }
    });
    Ok(outcomes.into_inner())
}

fn ask_all(
    args: &MemoryArgs,
    address: &str,
    first: u64,
    count: usize,
    outcomes: &Mutex<Outcomes>,
) -> Result<(), Failure> {
    let mut wires = (0..count).map(|_| connect(address)).collect::<Result<Vec<_>, _>>()?;
    for round in 0..3u64 {
        for kind in 0..4 {
            for (wire, number) in wires.iter_mut().zip(first..) {
                let record = (number * 7919 + round * 104_729) % args.records.max(1);
                let key = String::from_utf8_lossy(&key_of(record)).into_owned();
                wire.send_command(&match kind {
                    0 => doc! { "find": "usertable", "filter": { "_id": key }, "$db": DATABASE },
                    1 => {
                        let change = doc! { "q": { "_id": key }, "u": { "$set": { "field1": "x".repeat(100) } } };
                        doc! { "update": "usertable", "updates": [ change ], "$db": DATABASE }
                    }
                    2 => {
                        let document = doc! { "thread": number as i64, "filler": "y".repeat(1000) };
                        doc! { "insert": "inserted", "documents": [ document ], "$db": DATABASE }
                    }
                    _ => doc! { "find": "usertable", "filter": { "_id": { "$gte": key } }, "$db": DATABASE },
                })?;
            }
            for wire in &mut wires {
                let said = outcome_of(&wire.receive_document()?);
                *outcomes.lock().entry(said).or_default() += 1;
            }
        }
    }
    Ok(())
}

impl Subject<'_> {
    fn phase(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&MemoryArgs, &str) -> Result<Outcomes, Failure>,
    ) -> Result<(), Failure> {
        machine::forget_peak(self.member.pid())?;
        let begun = Instant::now();
        let outcomes = work(self.args, &format!("127.0.0.1:{}", self.member.port));
        let (_, peak) = machine::resident_bytes(self.member.pid())
            .ok_or_else(|| format!("the member died in the phase '{name}'"))?;
        let outcomes = outcomes.map_err(|e| format!("{name}: {e}"))?;
        let phase = Phase { name, peak_mb: peak as f64 / MIB, seconds: begun.elapsed().as_secs_f64(), outcomes };
        eprintln!("{}", phase.text());
        self.phases.push(phase);
        Ok(())
    }

    fn conclude(&self) -> Result<(), Failure> {
        let peak = self.phases.iter().map(|phase| phase.peak_mb).fold(0.0, f64::max);
        let targets = [Target {
            demand: format!("peak MB resident, cache of {} MB", self.args.cache_mb),
            place: format!("{} records", self.args.records),
            figure: peak,
            bound: self.args.cache_mb as f64 + BEYOND_CACHE_MB_MAX,
            at_least: false,
        }];
        let text: String = self.phases.iter().map(|phase| phase.text() + "\n").collect();
        let phases: Vec<_> = self
            .phases
            .iter()
            .map(|p| json!({ "name": p.name, "peakMb": p.peak_mb, "seconds": p.seconds, "outcomes": p.outcomes }))
            .collect();
        let report = json!({ "records": self.args.records, "cacheMb": self.args.cache_mb, "phases": phases });
        conclude(&self.args.place, &text, report, &targets)
    }
}

impl Phase {
    fn text(&self) -> String {
        let outcomes: Vec<String> = self.outcomes.iter().map(|(said, count)| format!("{count} x {said}")).collect();
        format!("{:40} peak {:6.0} MB  {:6.1} s  {}", self.name, self.peak_mb, self.seconds, outcomes.join(", "))
    }
}
