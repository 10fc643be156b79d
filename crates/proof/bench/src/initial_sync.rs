//! `baton bench initial-sync`: how long a new member takes to its data, by cloning and by file, and what its source's clients
//! lose meanwhile.
//!
//! The clock starts with the reconfiguration that adds the member and stops when it is a secondary. Each method runs twice: beside
//! nobody, which is how fast it is, and beside clients that use all that both members' machine has, which is what these lose. The
//! source counts their requests itself: for some seconds before, and while the member copies, which then takes the longer the less
//! they leave it.

use std::path::Path;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use serde_json::{Value, json};

use crate::client::{ThinFactory, Wire, WriteConcern, primary_of};
use crate::member::{MemberSpec, PlaceArgs};
use crate::process::Process;
use crate::record::{DATABASE, Layout};
use crate::runner::Plan;
use crate::target::Target;
use crate::workload::{Records, Workload};
use crate::{Failure, conclude, machine, runner};

/// A member added under load.
#[derive(Clone, Debug, clap::Args)]
pub struct InitialSyncArgs {
    /// Records (1 KB each) in the table
    #[arg(long, default_value_t = 2_000_000)]
    pub records: u64,
    /// Connections of the load on the source; 0 for none
    #[arg(long, default_value_t = 4)]
    pub clients: usize,
    /// The load's mix
    #[arg(long, value_enum, default_value = "b")]
    pub workload: Workload,
    /// Seconds of load before the member is added
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Memory for each member's cache
    #[arg(long, default_value_t = 1.0)]
    pub cache_gb: f64,
    #[command(flatten)]
    place: PlaceArgs,
}

const METHODS: [&str; 2] = ["logical", "fileCopyBased"];
/// How many times as fast the second is to be.
const RATIO_MIN: f64 = 3.0;
/// How much of their throughput the source's clients may lose, in percent.
const LOSS_MAX_PERCENT: f64 = 10.0;
/// How long a member may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What one copy took.
struct Copied {
    secs: f64,
    before_per_sec: f64,
    during_per_sec: f64,
}

impl Copied {
    fn loss_percent(&self) -> f64 {
        100.0 * (1.0 - self.during_per_sec / self.before_per_sec)
    }
}

/// What one method took.
struct Taken {
    alone: Copied,
    beside_clients: Option<Copied>,
}

/// Loads a member, and adds another by each method.
///
/// # Errors
/// If a member does not start, or does not come to its data.
pub fn run(args: &InitialSyncArgs) -> Result<(), Failure> {
    if args.records == 0 {
        return Err("--records must be above 0".into());
    }
    let scratch = args.place.fresh("initial-sync")?;
    let spec = MemberSpec::new(&args.place, scratch.path(), args.cache_gb)?;
    let source = spec.start()?;
    eprintln!("loading {} records", args.records);
    let factory = ThinFactory::new(&source.uri(), WriteConcern::Journaled, Layout::Fields)?;
    runner::load(&factory, args.records, 4, 500, false)?;
    command(spec.port, &doc! { "fsync": 1, "$db": "admin" })?;
    machine::settle(&[source.pid()], Duration::from_secs(120))?;
    source.kill()?;
    let mut taken = Vec::new();
    for method in METHODS {
        let alone = measure(args, 0, &spec, &factory, method, scratch.path())?;
        eprintln!("{method}: {:.2} s", alone.secs);
        let mut beside_clients = None;
        if args.clients > 0 {
            let copied = measure(args, args.clients, &spec, &factory, method, scratch.path())?;
            eprintln!("{method}, beside clients: {:.2} s; they lost {:.1} %", copied.secs, copied.loss_percent());
            beside_clients = Some(copied);
        }
        taken.push(Taken { alone, beside_clients });
    }
    let records = format!("{} records of 1 KB", args.records);
    let mut targets = vec![Target {
        demand: "initial sync by file, times as fast as by cloning".into(),
        place: records.clone(),
        figure: taken[0].alone.secs / taken[1].alone.secs,
        bound: RATIO_MIN,
        at_least: true,
    }];
    let mut text = String::new();
    let mut figures = serde_json::Map::new();
    for (method, one) in METHODS.iter().zip(&taken) {
        text += &format!("{method}: {:.2} s\n", one.alone.secs);
        if let Some(copied) = &one.beside_clients {
            text += &format!(
                "{method}, beside {} clients: {:.2} s; requests a second at the source {:.0} before, {:.0} meanwhile\n",
                args.clients, copied.secs, copied.before_per_sec, copied.during_per_sec
            );
            targets.push(Target {
                demand: format!("% of throughput lost at the source, {method}"),
                place: format!("{records}, {} clients", args.clients),
                figure: copied.loss_percent(),
                bound: LOSS_MAX_PERCENT,
                at_least: false,
            });
        }
        figures.insert((*method).to_owned(), figures_of(one));
    }
    let report = json!({ "records": args.records, "clients": args.clients, "methods": figures });
    conclude(&args.place, &text, report, &targets)
}

fn figures_of(one: &Taken) -> Value {
    let beside_clients = one.beside_clients.as_ref().map(|copied| {
        json!({
            "secs": copied.secs, "beforePerSec": copied.before_per_sec, "duringPerSec": copied.during_per_sec,
            "lossPercent": copied.loss_percent(),
        })
    });
    json!({ "secs": one.alone.secs, "besideClients": beside_clients })
}

/// Starts the source, puts the load of so many clients on it, adds a member, and takes it away again.
fn measure(
    args: &InitialSyncArgs,
    clients: usize,
    spec: &MemberSpec,
    factory: &ThinFactory,
    method: &str,
    scratch: &Path,
) -> Result<Copied, Failure> {
    let source = spec.start_spare(&[])?;
    primary_of(&source.uri())?;
    let records = Records::loaded(args.records);
    let plan = Plan {
        workload: args.workload,
        clients,
        warmup: Duration::ZERO,
        duration: PATIENCE,
        operations: None,
        uniform: false,
        seed: 1,
        verbose: false,
    };
    std::thread::scope(|scope| {
        let load = (clients > 0).then(|| scope.spawn(|| runner::run(factory, &records, &plan)));
        let outcome = watch(args, clients, spec, method, scratch);
        // That ends the load, too.
        source.kill()?;
        if let Some(load) = load {
            let _ = load.join();
        }
        outcome
    })
}

fn watch(
    args: &InitialSyncArgs,
    clients: usize,
    spec: &MemberSpec,
    method: &str,
    scratch: &Path,
) -> Result<Copied, Failure> {
    let load = Duration::from_secs_f64(if clients > 0 { args.seconds } else { 0.0 });
    // The first moments fill the source's cache.
    std::thread::sleep(load / 2);
    let (begun, before) = (Instant::now(), requests(spec.port)?);
    std::thread::sleep(load);
    let before_per_sec = (requests(spec.port)? - before) / begun.elapsed().as_secs_f64();
    let spare = MemberSpec { dir: scratch.join(method), ..MemberSpec::new(&args.place, scratch, args.cache_gb)? };
    let process: Process = spare.start_spare(&[("initialSyncMethod", method)])?;
    let (begun, counted) = (Instant::now(), requests(spec.port)?);
    reconfigure(spec.port, Some(spare.port))?;
    await_secondary(spare.port)?;
    let secs = begun.elapsed().as_secs_f64();
    let during_per_sec = (requests(spec.port)? - counted) / secs;
    check(spec.port, spare.port, method)?;
    process.kill()?;
    reconfigure(spec.port, None)?;
    std::fs::remove_dir_all(&spare.dir)?;
    Ok(Copied { secs, before_per_sec, during_per_sec })
}

fn command(port: u16, body: &Document) -> Result<Document, Failure> {
    let reply = Wire::connect(&format!("127.0.0.1:{port}"))?.command(body)?;
    if reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
        return Ok(reply);
    }
    Err(format!("{body} was answered with {reply}").into())
}

/// Reads and writes that the member has counted. Those of a new member are `getMore`s and commands, which do not count.
fn requests(port: u16) -> Result<f64, Failure> {
    let status = command(port, &doc! { "serverStatus": 1, "$db": "admin" })?;
    let counters = status.get_document("opcounters")?;
    let count = |name: &str| match counters.get(name) {
        Some(Bson::Int32(n)) => f64::from(*n),
        Some(Bson::Int64(n)) => *n as f64,
        _ => 0.0,
    };
    Ok(["query", "insert", "update", "delete"].into_iter().map(count).sum())
}

/// Makes the set the source and, if there is one, a member that neither votes nor stands for election.
fn reconfigure(source: u16, spare: Option<u16>) -> Result<(), Failure> {
    let reply = command(source, &doc! { "replSetGetConfig": 1, "$db": "admin" })?;
    let mut config = reply.get_document("config")?.clone();
    config.insert("version", config.get_i32("version")? + 1);
    let mut members = config.get_array("members")?.clone();
    members.truncate(1);
    if let Some(port) = spare {
        members.push(Bson::Document(doc! {
            "_id": 1, "host": format!("127.0.0.1:{port}"), "votes": 0, "priority": 0,
        }));
    }
    config.insert("members", members);
    command(source, &doc! { "replSetReconfig": config, "$db": "admin" }).map(|_| ())
}

fn await_secondary(port: u16) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // While it starts anew it does not answer.
        let hello = command(port, &doc! { "hello": 1, "$db": "admin" });
        if hello.is_ok_and(|hello| hello.get_bool("secondary").unwrap_or(false)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err("the new member did not come to its data".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A fast copy that lacks something would be no figure.
fn check(source: u16, spare: u16, method: &str) -> Result<(), Failure> {
    let count = |port| -> Result<Bson, Failure> {
        let count = doc! { "count": Layout::Fields.collection(), "$db": DATABASE, "$readPreference": { "mode": "secondaryPreferred" } };
        Ok(command(port, &count)?.get("n").cloned().unwrap_or(Bson::Null))
    };
    let (there, here) = (count(source)?, count(spare)?);
    if there != here || there == Bson::Int32(0) {
        return Err(format!("{method}: the source has {there} records, the new member {here}").into());
    }
    Ok(())
}
