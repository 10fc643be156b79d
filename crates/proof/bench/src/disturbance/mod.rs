//! `baton bench disturbance`: what everybody else notices while one client drops a table, builds an index, deletes a third, sorts,
//! compacts, validates, saves a backup, or a member copies everything.
//!
//! Three members on this machine; two steady clients, or many busy ones, of a database that no event touches. For each event their
//! latencies in two quiet stretches, one right before it and one after, and from the beginning of its work until it has ended on all
//! members, what secondaries build and clean up included. A task that waits for its turn has not begun. Before each stretch the clients rest until the members do, so that none pays for what
//! another left behind. The quiet before an event is the quiet after the one that came before it. With several rounds each figure is the
//! median of theirs: a machine differs from itself a minute later.

mod events;
mod load;
mod report;
mod table;
mod threads;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bson::doc;
use serde_json::{Value, json};

use crate::local_set::LocalSet;
use crate::member::PlaceArgs;
use crate::target::Target;
use crate::{Failure, conclude, machine};
use events::{Event, Outcome, Stage};
use load::{Figures, Load, Role, Stretch};
use report::{Round, Row};
use table::Table;
use threads::Threads;

/// Events beside steady clients.
#[derive(Clone, Debug, clap::Args)]
pub struct DisturbanceArgs {
    /// Documents (1 KB each) in the table that is disturbed
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// The events [default: all]; they come in the order in which they are listed here
    #[arg(long, value_enum, value_delimiter = ',')]
    pub events: Vec<Event>,
    /// So many clients that are never idle, in place of a steady writer and a steady reader
    #[arg(long, default_value_t = 0)]
    pub busy: usize,
    /// So many rounds, each with members of its own
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
    /// Seconds that are measured before each event, and after
    #[arg(long, default_value_t = 10.0)]
    pub quiet: f64,
    /// Seconds that the members may take to come to rest before an event
    #[arg(long, default_value_t = 120.0)]
    pub rest: f64,
    /// Another binary, whose members are measured first, by the same clients
    #[arg(long)]
    pub before: Option<PathBuf>,
    /// Memory for each member's cache
    #[arg(long, default_value_t = 0.5)]
    pub cache_gb: f64,
    #[command(flatten)]
    place: PlaceArgs,
}

const MEMBERS: usize = 3;
/// An event that is over sooner is watched this long, so that there is a 99th percentile.
const MEANWHILE_MIN: Duration = Duration::from_secs(1);
/// After a rest the clients go on for so long before anything counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// Brings the events about, one after the other, and prints what the clients noticed.
///
/// # Errors
/// If a member does not start, or an event can neither be carried out nor is refused.
pub fn run(args: &DisturbanceArgs) -> Result<(), Failure> {
    if args.records < 3 || args.rounds < 1 || args.quiet <= 0.0 || !(0.0..1e6).contains(&args.rest) {
        let needed = "--records must be at least 3, --rounds 1, --quiet above 0, and --rest so many seconds";
        return Err(needed.into());
    }
    let before = args.before.iter().map(|binary| ("before", Some(binary)));
    let (mut text, mut runs, mut targets) = (String::new(), Vec::new(), Vec::new());
    for (name, binary) in before.chain([("now", None)]) {
        let mut place = args.place.clone();
        place.baton = binary.cloned().or(place.baton);
        let mut rounds = Vec::new();
        for round in 0..args.rounds {
            let name = if round == 0 { name.to_owned() } else { format!("{name}-{}", round + 1) };
            let (rows, shown) = measure(args, &place, &name)?;
            rounds.push(rows);
            runs.push(json!({ "name": name, "report": shown }));
        }
        if args.before.is_some() {
            text += &format!("{name}\n");
        }
        let rows = report::gather(rounds);
        text += &report::text(&rows);
        text += &report::threads_text(&rows);
        if binary.is_none() {
            targets =
                rows.iter().flat_map(|row| report::targets(row, args.records, args.busy)).collect::<Vec<Target>>();
        }
    }
    conclude(&args.place, &text, json!({ "records": args.records, "busy": args.busy, "runs": runs }), &targets)
}

fn measure(args: &DisturbanceArgs, place: &PlaceArgs, name: &str) -> Result<(Vec<Row>, Value), Failure> {
    let scratch = place.fresh(&format!("disturbance-{name}"))?;
    let mut set = LocalSet::start(place, scratch.path(), MEMBERS, args.cache_gb, &doc! {})?;
    let table = Table { records: args.records };
    eprintln!("{name}: loading {} documents", args.records);
    table.load(&set, table::TABLE)?;
    let load = Load::start(set.addresses(), args.busy)?;
    let threads = Threads::watch(load.begun());
    let (mut rows, mut brought) = (Vec::new(), Vec::<Brought>::new());
    for event in Event::ALL.into_iter().filter(|event| args.events.is_empty() || args.events.contains(event)) {
        let next = one(args, &mut set, &load, table, event, scratch.path())?;
        if let Some(before) = brought.last() {
            rows.push(shown(before, next.quiet, &load, &threads)?);
        }
        brought.push(next);
    }
    if let Some(last) = brought.last() {
        rows.push(shown(last, quiet(args, &set, &load)?, &load, &threads)?);
    }
    load.rest();
    let shown = report::json(&rows, &load.samples());
    Ok((rows, shown))
}

/// An event that is over.
struct Brought {
    event: Event,
    outcome: Outcome,
    waited: Duration,
    answered: Duration,
    ended: Duration,
    quiet: Stretch,
    meanwhile: Stretch,
}

/// What the clients noticed of an event, now that the quiet after it is over, too; printed as it comes.
fn shown(brought: &Brought, quiet_after: Stretch, load: &Load, threads: &Threads) -> Result<Row, Failure> {
    let samples = load.samples();
    let figures = Role::ALL.into_iter().map(|role| {
        let pace = load.pace_ns(role);
        let quiet = Figures::of(&samples, role, &[brought.quiet, quiet_after], pace)?;
        Ok((role, quiet, Figures::of(&samples, role, &[brought.meanwhile], pace)?))
    });
    let row = Row {
        event: brought.event,
        refused: match &brought.outcome {
            Outcome::Done => None,
            Outcome::Refused(why) => Some(why.clone()),
        },
        rounds: vec![Round {
            waited_secs: brought.waited.as_secs_f64(),
            answered_secs: brought.answered.as_secs_f64(),
            ended_secs: brought.ended.as_secs_f64(),
            stretch: brought.meanwhile,
            figures: figures.collect::<Result<_, Failure>>()?,
            threads: [threads.used(&[brought.quiet, quiet_after]), threads.used(&[brought.meanwhile])],
        }],
    };
    let text = report::text(std::slice::from_ref(&row));
    eprint!("{}", text.lines().skip(2).map(|line| format!("{line}\n")).collect::<String>());
    Ok(row)
}

/// Lets the members come to rest, and the clients go on; measures for a while, and leaves the clients going.
fn quiet(args: &DisturbanceArgs, set: &LocalSet, load: &Load) -> Result<Stretch, Failure> {
    machine::settle(&set.pids(), Duration::from_secs_f64(args.rest))?;
    load.go_on();
    std::thread::sleep(WARM_UP);
    let start = load.now();
    std::thread::sleep(Duration::from_secs_f64(args.quiet));
    Ok(Stretch { start, end: load.now() })
}

/// Brings one event about.
fn one(
    args: &DisturbanceArgs,
    set: &mut LocalSet,
    load: &Load,
    table: Table,
    event: Event,
    scratch: &Path,
) -> Result<Brought, Failure> {
    let primary = set.primary()?;
    let mut stage = Stage { set, primary, table: &table, scratch };
    stage.prepare(event)?;
    let quiet = quiet(args, stage.set, load)?;
    stage.find_primary(event)?;
    let begun = Instant::now();
    let (outcome, worked_at, answered_at) = stage.bring_about_watched(event)?;
    let (answered, waited) = (answered_at - begun, worked_at - begun);
    let ended = stage.await_end(event)?.max(begun + answered) - begun;
    std::thread::sleep(MEANWHILE_MIN.saturating_sub(worked_at.elapsed()));
    let end = quiet.end + ended.max(waited + MEANWHILE_MIN).as_nanos() as u64;
    // Who is still stuck counts in full.
    load.rest();
    stage.find_primary(event)?;
    stage.clean_up(event)?;
    let meanwhile = Stretch { start: (quiet.end + waited.as_nanos() as u64).min(end), end };
    Ok(Brought { event, outcome, waited, answered, ended, quiet, meanwhile })
}
