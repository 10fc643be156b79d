//! `baton bench failover`: how long a set of three takes no majority writes when its primary is killed, falls silent, or hands over.
//!
//! So many clients insert with `w: "majority"` one after the other, and look for a primary among the members when a write fails.
//! The gap begins with the event, or, of a handover, is the longest time between two acknowledgements around it; it ends with
//! the first write that a majority acknowledges to any client. Every acknowledged insert is looked for at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bson::doc;
use serde_json::json;

use crate::client::Wire;
use crate::local_set::LocalSet;
use crate::member::PlaceArgs;
use crate::target::Target;
use crate::{Failure, conclude};

/// Primaries that go.
#[derive(Clone, Debug, clap::Args)]
pub struct FailoverArgs {
    /// How often each event is brought about
    #[arg(long, default_value_t = 50)]
    pub times: usize,
    /// Connections that write
    #[arg(long, default_value_t = 64)]
    pub clients: usize,
    /// The events
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Event::Kill, Event::Handoff, Event::Silence])]
    pub events: Vec<Event>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// What happens to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Event {
    /// SIGKILL, default settings
    Kill,
    /// `replSetStepDown`, default settings
    Handoff,
    /// SIGSTOP, `electionTimeoutMillis: 2000`
    Silence,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::Handoff => "handoff",
            Self::Silence => "silence",
        })
    }
}

impl Event {
    fn bound_secs(self) -> f64 {
        match self {
            Self::Kill => 0.5,
            Self::Handoff => 0.025,
            Self::Silence => 3.0,
        }
    }
}

/// Time for the set to be level again between two events.
const REST: Duration = Duration::from_millis(500);
/// How long no write may be acknowledged before the experiment is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the clients know together.
struct Load {
    addresses: Vec<String>,
    begun: Instant,
    stopping: AtomicBool,
    /// The next document's `_id`.
    next: AtomicU64,
    /// Nanoseconds since `begun` at which the newest acknowledgement came.
    last_ack: AtomicU64,
    /// The longest time without one since this was set to zero.
    longest: AtomicU64,
}

impl Load {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn acknowledged(&self) {
        let now = self.now();
        let before = self.last_ack.fetch_max(now, Ordering::SeqCst);
        self.longest.fetch_max(now.saturating_sub(before), Ordering::SeqCst);
    }

    /// Writes until it is told to stop; gives what was acknowledged.
    fn client(&self, first: usize) -> Vec<u64> {
        let (mut acknowledged, mut at) = (Vec::new(), first);
        while !self.stopping.load(Ordering::SeqCst) {
            if let Ok(mut wire) = self.primary(&mut at) {
                self.write(&mut wire, &mut acknowledged);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        acknowledged
    }

    /// A connection to the member that says it takes writes; asks the next one otherwise.
    fn primary(&self, at: &mut usize) -> Result<Wire, Failure> {
        *at = (*at + 1) % self.addresses.len();
        let mut wire = Wire::connect(&self.addresses[*at])?;
        // One that is silent holds nobody up for long.
        wire.be_patient(Duration::from_millis(250))?;
        let hello = wire.command(&doc! { "hello": 1, "$db": "admin" })?;
        if !hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return Err("not primary".into());
        }
        wire.be_patient(Duration::from_secs(2))?;
        Ok(wire)
    }

    fn write(&self, wire: &mut Wire, acknowledged: &mut Vec<u64>) {
        while !self.stopping.load(Ordering::SeqCst) {
            let id = self.next.fetch_add(1, Ordering::SeqCst);
            let insert = doc! {
                "insert": "failover", "documents": [ { "_id": id as i64 } ],
                "writeConcern": { "w": "majority" }, "$db": "bench",
            };
            match wire.command(&insert) {
                Ok(reply)
                    if reply.get_i32("n").is_ok_and(|n| n == 1)
                        && !reply.contains_key("writeErrors")
                        && !reply.contains_key("writeConcernError") =>
                {
                    self.acknowledged();
                    acknowledged.push(id);
                }
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Brings the events about and measures the gaps.
///
/// # Errors
/// If the set does not recover, or an acknowledged insert is missing.
pub fn run(args: &FailoverArgs) -> Result<(), Failure> {
    if args.times == 0 || args.clients == 0 {
        return Err("--times and --clients must be above 0".into());
    }
    let (mut text, mut report, mut targets) = (String::new(), serde_json::Map::new(), Vec::new());
    for event in &args.events {
        let scratch = args.place.fresh(&format!("failover-{event}"))?;
        let mut gaps = measure(args, *event, scratch.path())?;
        gaps.sort_by(f64::total_cmp);
        let at = |quantile: f64| gaps[((gaps.len() as f64 * quantile) as usize).min(gaps.len() - 1)];
        text += &format!(
            "{event}: {} times, no majority write for {:.4} s (median), {:.4} s (p95), {:.4} s (longest)\n",
            gaps.len(),
            at(0.5),
            at(0.95),
            at(1.0)
        );
        targets.push(Target {
            demand: format!("seconds without a majority write, {event}, p95"),
            place: format!("3 members, {} clients, {} times", args.clients, args.times),
            figure: at(0.95),
            bound: event.bound_secs(),
            at_least: false,
        });
        report.insert(event.to_string(), json!(gaps));
    }
    conclude(&args.place, &text, json!({ "clients": args.clients, "gapsSecs": report }), &targets)
}

fn measure(args: &FailoverArgs, event: Event, directory: &std::path::Path) -> Result<Vec<f64>, Failure> {
    let settings = if event == Event::Silence {
        doc! { "electionTimeoutMillis": 2000 }
    } else {
        doc! {}
    };
    let mut set = LocalSet::start(&args.place, directory, 3, 0.5, &settings)?;
    let load = Load {
        addresses: set.addresses(),
        begun: Instant::now(),
        stopping: AtomicBool::new(false),
        next: AtomicU64::new(0),
        last_ack: AtomicU64::new(0),
        longest: AtomicU64::new(0),
    };
    let (gaps, acknowledged) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..args.clients)
            .map(|first| {
                scope.spawn({
                    let load = &load;
                    move || load.client(first)
                })
            })
            .collect();
        let gaps = (0..args.times).map(|time| {
            let gap = one(&mut set, &load, event)?;
            eprintln!("{event} {}: {gap:.4} s", time + 1);
            Ok(gap)
        });
        let gaps: Result<Vec<f64>, Failure> = gaps.collect();
        load.stopping.store(true, Ordering::SeqCst);
        let acknowledged: Vec<u64> = clients.into_iter().filter_map(|client| client.join().ok()).flatten().collect();
        (gaps, acknowledged)
    });
    let gaps = gaps?;
    let primary = set.primary()?;
    let count = doc! { "count": "failover", "query": { "_id": { "$in": [] } }, "$db": "bench" };
    for part in acknowledged.chunks(10_000) {
        let mut count = count.clone();
        let ids: Vec<i64> = part.iter().map(|id| *id as i64).collect();
        count.insert("query", doc! { "_id": { "$in": ids } });
        let there = set.ask(primary, &count)?.get_i32("n").unwrap_or(0);
        if there as usize != part.len() {
            return Err(format!("{} acknowledged inserts are missing", part.len() - there as usize).into());
        }
    }
    eprintln!("{event}: all {} acknowledged inserts are there", acknowledged.len());
    Ok(gaps)
}

/// Brings the event about once; seconds without an acknowledgement.
fn one(set: &mut LocalSet, load: &Load, event: Event) -> Result<f64, Failure> {
    set.settle()?;
    let deadline = Instant::now() + PATIENCE;
    let quiet = load.last_ack.load(Ordering::SeqCst);
    while load.last_ack.load(Ordering::SeqCst) == quiet && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(REST);
    let primary = set.primary()?;
    load.longest.store(0, Ordering::SeqCst);
    match event {
        Event::Kill => set.kill(primary)?,
        Event::Silence => set.freeze(primary, true),
        Event::Handoff => {
            let reply = set.ask(primary, &doc! { "replSetStepDown": 60, "$db": "admin" })?;
            if !reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
                return Err(format!("no step-down: {reply}").into());
            }
        }
    }
    // What the old primary acknowledged in its last moment does not end the gap: the new one's writes do.
    let new = loop {
        if Instant::now() > deadline {
            return Err(format!("no other primary a minute after {event}").into());
        }
        match set.addresses().iter().enumerate().find(|(index, address)| *index != primary && takes_writes(address)) {
            Some((index, _)) => break index,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let elected = load.now();
    while load.last_ack.load(Ordering::SeqCst) < elected {
        if Instant::now() > deadline {
            return Err(format!("no write to member {new} a minute after {event}").into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(REST);
    let gap = load.longest.load(Ordering::SeqCst);
    match event {
        Event::Kill => set.restart(primary)?,
        Event::Silence => set.freeze(primary, false),
        Event::Handoff => {
            set.ask(primary, &doc! { "replSetFreeze": 0, "$db": "admin" })?;
        }
    }
    Ok(gap as f64 / 1e9)
}

fn takes_writes(address: &str) -> bool {
    let hello = Wire::connect(address).and_then(|mut wire| {
        wire.be_patient(Duration::from_millis(100))?;
        wire.command(&doc! { "hello": 1, "$db": "admin" })
    });
    hello.is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false))
}
