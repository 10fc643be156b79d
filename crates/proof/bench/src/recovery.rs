//! `baton bench recovery`: how long after `kill -9` a member takes writes again.
//!
//! The clock starts when the new process does and stops when an insert with `j: true` is acknowledged. Before the kill,
//! clients insert and update; afterwards, the insertions acknowledged last must be there: a fast start that lost
//! something would be no figure.

use std::time::{Duration, Instant};

use bson::doc;
use serde_json::json;

use crate::client::{Factory, ThinFactory, Wire, WriteConcern};
use crate::member::{MemberSpec, PlaceArgs};
use crate::record::{Layout, key_of};
use crate::runner::Plan;
use crate::target::Target;
use crate::workload::{Records, Workload};
use crate::{Failure, conclude, machine, runner};

/// Kills under load.
#[derive(Clone, Debug, clap::Args)]
pub struct RecoveryArgs {
    /// Records (1 KB each) in the table
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// How often to kill it
    #[arg(long, default_value_t = 5)]
    pub kills: usize,
    /// Seconds of load before a kill
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Connections of the load
    #[arg(long, default_value_t = 16)]
    pub clients: usize,
    /// Memory for the member's cache
    #[arg(long, default_value_t = 4.0)]
    pub cache_gb: f64,
    #[command(flatten)]
    place: PlaceArgs,
}

const SECONDS_MAX: f64 = 2.0;
/// How many of the insertions acknowledged last are looked for.
const LOOKED_FOR: u64 = 2000;

/// Loads, kills, starts again, and prints how long it took.
///
/// # Errors
/// If a member does not start, or an acknowledged insertion is missing.
pub fn run(args: &RecoveryArgs) -> Result<(), Failure> {
    if args.kills == 0 || args.clients == 0 || args.records == 0 {
        return Err("--kills, --clients and --records must be above 0".into());
    }
    let scratch = args.place.fresh("recovery")?;
    let spec = MemberSpec::new(&args.place, scratch.path(), args.cache_gb)?;
    let mut member = spec.start()?;
    eprintln!("loading {} records", args.records);
    let factory = ThinFactory::new(&member.uri(), WriteConcern::Journaled, Layout::Fields)?;
    runner::load(&factory, args.records, 4, 500, false)?;
    machine::settle(&[member.pid()], Duration::from_secs(120))?;
    let records = Records::loaded(args.records);
    let mut times = Vec::new();
    for kill in 0..args.kills {
        let updates = Records::loaded(args.records);
        let first = records.count();
        std::thread::scope(|scope| -> Result<(), Failure> {
            let halves = [(Workload::Insert, &records), (Workload::A, &updates)];
            let load = halves.map(|(workload, records)| {
                let plan = Plan {
                    workload,
                    clients: args.clients.div_ceil(2),
                    warmup: Duration::ZERO,
                    duration: Duration::from_secs(3600),
                    operations: None,
                    uniform: true,
                    seed: kill as u64,
                    verbose: false,
                };
                let factory = &factory;
                scope.spawn(move || runner::run(factory, records, &plan))
            });
            std::thread::sleep(Duration::from_secs_f64(args.seconds));
            let early = load.iter().any(|half| half.is_finished());
            member.kill()?;
            for half in load {
                // That the kill ended it is what was wanted; that something else did is not.
                if let (true, Ok(Err(error))) = (early, half.join()) {
                    return Err(format!("the load ended before the kill: {error}").into());
                }
            }
            Ok(())
        })?;
        let begun = Instant::now();
        member = spec.start()?;
        let listening = begun.elapsed().as_secs_f64();
        until_written(&format!("127.0.0.1:{}", member.port), kill)?;
        let writing = begun.elapsed().as_secs_f64();
        eprintln!("kill {}: listening after {listening:.3} s, an insert acknowledged after {writing:.3} s", kill + 1);
        let mut client = factory.connect()?;
        for record in first.max(records.count().saturating_sub(LOOKED_FOR))..records.count() {
            client.read(&key_of(record)).map_err(|e| format!("record {record} was acknowledged: {e}"))?;
        }
        records.abandon_unacknowledged();
        times.push(json!({ "listeningSecs": listening, "writingSecs": writing }));
    }
    let slowest = times.iter().filter_map(|time| time["writingSecs"].as_f64()).fold(0.0, f64::max);
    let targets = [Target {
        demand: "seconds from a start after kill -9 to a write".into(),
        place: format!("{} records, slowest of {}", args.records, args.kills),
        figure: slowest,
        bound: SECONDS_MAX,
        at_least: false,
    }];
    let text = times.iter().fold(String::new(), |text, time| {
        let secs = |name: &str| time[name].as_f64().unwrap_or(f64::NAN);
        text + &format!("listening after {:.3} s, writing after {:.3} s\n", secs("listeningSecs"), secs("writingSecs"))
    });
    let report = json!({ "records": args.records, "clients": args.clients, "kills": times });
    conclude(&args.place, &text, report, &targets)
}

/// Tries to insert until it is acknowledged.
fn until_written(address: &str, kill: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(120);
    let command = doc! {
        "insert": "recovered", "documents": [ { "kill": kill as i64 } ],
        "writeConcern": { "w": 1, "j": true }, "$db": "ycsb",
    };
    loop {
        let tried = Wire::connect(address).and_then(|mut wire| wire.command(&command));
        match tried {
            Ok(reply) if reply.get_i32("n").is_ok_and(|n| n == 1) && !reply.contains_key("writeErrors") => {
                return Ok(());
            }
            Ok(reply) if Instant::now() > deadline => return Err(format!("no insert in two minutes: {reply}").into()),
            Err(error) if Instant::now() > deadline => return Err(format!("no insert in two minutes: {error}").into()),
            Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
