//! `baton bench failover`: how long a set of three takes no majority writes when its primary is killed, falls silent, or hands over,
//! because it is told to or because it is to do something heavy.
//!
//! So many clients insert with `w: "majority"` one after the other. They learn who is primary as official drivers do, and write
//! again when a write fails. Told is the longest time without an acknowledgement to any of them around the event, the longest time that one
//! and the same client went without, and the time from the old primary's last acknowledgement to its successor's first. A primary that
//! moves by itself may wait for seconds before it does, and disks pause: so of it the last of these is the gap, and beside the first stands
//! the same of five quiet seconds just before. Of that one it is also told what its successor serves in its first ten seconds, of those five.
//! Every acknowledged insert is looked for at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bson::doc;
use serde_json::json;

use crate::client::{Discovery, Wire, is_of_no_primary};
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
    /// A backup is announced to the primary, for which leadership moves by itself
    Task,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::Handoff => "handoff",
            Self::Silence => "silence",
            Self::Task => "task",
        })
    }
}

impl Event {
    fn bound_secs(self) -> f64 {
        match self {
            Self::Kill => 0.5,
            Self::Handoff => 0.025,
            Self::Silence => 3.0,
            Self::Task => 0.015,
        }
    }

    /// A gap that is longer is to be explained: its members' logs are kept.
    fn unusual_secs(self) -> f64 {
        match self {
            Self::Kill | Self::Handoff | Self::Task => 0.5,
            Self::Silence => 3.0,
        }
    }

    /// What is bounded.
    fn gap(self, gap: &Gap) -> f64 {
        match self {
            Self::Kill | Self::Handoff | Self::Silence => gap.of_all,
            Self::Task => gap.between,
        }
    }
}

/// Time for the set to be level again between two events.
const REST: Duration = Duration::from_millis(500);
/// How long no write may be acknowledged before the experiment is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds without an acknowledgement around one event.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// To any client.
    of_all: f64,
    /// To the client that went longest without one.
    of_one: f64,
    /// From the old primary's last to the new one's first.
    between: f64,
    /// To any client in the five quiet seconds before it, if that was looked at.
    quiet: Option<f64>,
    /// Acknowledgements a second of the ten seconds after it, of those of the five before it, if that was looked at.
    served: Option<f64>,
}

/// What the clients know together.
struct Load {
    addresses: Vec<String>,
    discovery: Discovery,
    begun: Instant,
    stopping: AtomicBool,
    /// The next document's `_id`.
    next: AtomicU64,
    /// Nanoseconds since `begun` at which the newest acknowledgement came.
    last_ack: AtomicU64,
    /// The longest time without one since this was set to zero.
    longest: AtomicU64,
    /// The longest time without one of a single client since this was set to zero.
    longest_of_one: AtomicU64,
    /// Acknowledgements.
    count: AtomicU64,
    /// By member.
    of_members: Vec<OfMember>,
}

/// When a member acknowledged, in nanoseconds since `begun`.
struct OfMember {
    last: AtomicU64,
    /// Since this was set to the highest number.
    first: AtomicU64,
}

impl OfMember {
    fn new() -> Self {
        Self { last: AtomicU64::new(0), first: AtomicU64::new(u64::MAX) }
    }
}

impl Load {
    fn of(addresses: Vec<String>) -> Self {
        Self {
            discovery: Discovery::of(&addresses),
            of_members: addresses.iter().map(|_| OfMember::new()).collect(),
            addresses,
            begun: Instant::now(),
            stopping: AtomicBool::new(false),
            next: AtomicU64::new(0),
            last_ack: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            longest_of_one: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Looks for the longest time, and for every member's first acknowledgement, from now on.
    fn begin_looking(&self) {
        self.longest.store(0, Ordering::SeqCst);
        self.longest_of_one.store(0, Ordering::SeqCst);
        self.of_members.iter().for_each(|member| member.first.store(u64::MAX, Ordering::SeqCst));
    }

    /// From this member's last acknowledgement to the first of another one.
    fn gap_after(&self, old: usize) -> Duration {
        let others = self.of_members.iter().enumerate().filter(|(index, _)| *index != old);
        let first = others.map(|(_, member)| member.first.load(Ordering::SeqCst)).min().unwrap_or_default();
        Duration::from_nanos(first.saturating_sub(self.of_members[old].last.load(Ordering::SeqCst)))
    }

    /// A client whose last acknowledgement came at `before` has another one, of member `at`, and returns when.
    fn acknowledged(&self, at: usize, before: Option<u64>) -> u64 {
        let now = self.now();
        self.of_members[at].last.fetch_max(now, Ordering::SeqCst);
        self.of_members[at].first.fetch_min(now, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::Relaxed);
        let last = self.last_ack.fetch_max(now, Ordering::SeqCst);
        self.longest.fetch_max(now.saturating_sub(last), Ordering::SeqCst);
        self.longest_of_one.fetch_max(now - before.unwrap_or(now), Ordering::SeqCst);
        now
    }

    /// Acknowledgements a second for so many seconds.
    fn rate(&self, secs: u64) -> f64 {
        let (before, since) = (self.count.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(Duration::from_secs(secs));
        (self.count.load(Ordering::Relaxed) - before) as f64 / since.elapsed().as_secs_f64()
    }

    /// Writes until it is told to stop; gives what was acknowledged.
    fn client(&self) -> Vec<u64> {
        let (mut acknowledged, mut last) = (Vec::new(), None);
        let mut wires: Vec<Option<Wire>> = self.addresses.iter().map(|_| None).collect();
        while !self.stopping.load(Ordering::SeqCst) {
            let Some(at) = self.discovery.primary(Duration::from_millis(250)) else { continue };
            let connected = match wires[at].take() {
                Some(wire) => Ok(wire),
                None => Wire::connect(&self.addresses[at]),
            };
            match connected {
                Ok(wire) => {
                    wires[at] = self.write(at, wire, &mut acknowledged, &mut last);
                    if wires[at].is_none() {
                        self.discovery.failed(at);
                    }
                }
                // Its port refuses: the monitors notice, too.
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        acknowledged
    }

    /// Writes to this member until a write fails; gives the connection back, if it still can be used.
    fn write(&self, at: usize, mut wire: Wire, acknowledged: &mut Vec<u64>, last: &mut Option<u64>) -> Option<Wire> {
        // A member that is silent holds nobody up for ever.
        wire.be_patient(Duration::from_secs(2)).ok()?;
        while !self.stopping.load(Ordering::SeqCst) {
            let id = self.next.fetch_add(1, Ordering::SeqCst);
            let insert = doc! {
                "insert": "failover", "documents": [ { "_id": id as i64 } ],
                "writeConcern": { "w": "majority" }, "$db": "bench",
            };
            let reply = wire.command(&insert).ok()?;
            let is_done = reply.get_i32("n").is_ok_and(|n| n == 1)
                && !reply.contains_key("writeErrors")
                && !reply.contains_key("writeConcernError");
            if !is_done {
                // As drivers do, it does not ask there again before the member says anew that it is primary.
                if is_of_no_primary(&reply) {
                    self.discovery.failed(at);
                }
                break;
            }
            *last = Some(self.acknowledged(at, *last));
            acknowledged.push(id);
        }
        Some(wire)
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
        let figures = [
            ("no majority write of any client", (|gap| gap.of_all) as fn(&Gap) -> f64),
            ("no majority write of one client", |gap| gap.of_one),
            ("from the old primary's last acknowledgement to the new one's first", |gap| gap.between),
            ("in five quiet seconds before, no majority write of any client", |gap| gap.quiet.unwrap_or(f64::NAN)),
        ];
        for (what, of) in figures {
            if gaps.iter().any(|gap| of(gap).is_nan()) {
                continue;
            }
            gaps.sort_by(|a, b| of(a).total_cmp(&of(b)));
            let at = |quantile| of(quantile_of(&gaps, quantile));
            text += &format!(
                "{event}: {} times, {what} for {:.4} s (median), {:.4} s (p95), {:.4} s (longest)\n",
                gaps.len(),
                at(0.5),
                at(0.95),
                at(1.0)
            );
        }
        gaps.sort_by(|a, b| event.gap(a).total_cmp(&event.gap(b)));
        targets.push(Target {
            demand: format!("seconds without a majority write, {event}, p95"),
            place: format!("3 members, {} clients, {} times", args.clients, args.times),
            figure: event.gap(quantile_of(&gaps, 0.95)),
            bound: event.bound_secs(),
            at_least: false,
        });
        let mut served: Vec<f64> = gaps.iter().filter_map(|gap| gap.served).collect();
        served.sort_by(f64::total_cmp);
        if let (Some(least), Some(median)) = (served.first(), served.get(served.len() / 2)) {
            text += &format!(
                "{event}: the successor's first ten seconds, of the five before: {median:.2} (median), {least:.2} (least)\n"
            );
            targets.push(Target {
                demand: format!(
                    "majority writes a second in a successor's first ten seconds, of before, {event}, median"
                ),
                place: format!("3 members, {} clients, {} times", args.clients, args.times),
                figure: *median,
                bound: 0.9,
                at_least: true,
            });
        }
        let shown = gaps.iter().map(|gap| {
            json!({ "ofAll": gap.of_all, "ofOne": gap.of_one, "between": gap.between, "quiet": gap.quiet, "served": gap.served })
        });
        let shown: Vec<_> = shown.collect();
        report.insert(event.to_string(), json!(shown));
    }
    conclude(&args.place, &text, json!({ "clients": args.clients, "gapsSecs": report }), &targets)
}

fn quantile_of(sorted: &[Gap], quantile: f64) -> &Gap {
    &sorted[((sorted.len() as f64 * quantile) as usize).min(sorted.len() - 1)]
}

fn measure(args: &FailoverArgs, event: Event, directory: &std::path::Path) -> Result<Vec<Gap>, Failure> {
    let settings = match event {
        Event::Silence => doc! { "electionTimeoutMillis": 2000 },
        // Again and again.
        Event::Task => doc! { "leadership": {
            "mode": "costBased", "cooldownSecs": 1, "minTenureSecs": 1, "maxMovesPerHour": 3600,
        } },
        Event::Kill | Event::Handoff => doc! {},
    };
    let mut set = LocalSet::start(&args.place, directory, 3, 0.5, &settings)?;
    let load = Load::of(set.addresses());
    let (gaps, acknowledged) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..args.clients).map(|_| scope.spawn(|| load.client())).collect();
        let gaps = (0..args.times).map(|time| {
            let gap = one(&mut set, &load, event)?;
            eprintln!(
                "{event} {}: {:.4} s, one client {:.4} s, between primaries {:.4} s",
                time + 1,
                gap.of_all,
                gap.of_one,
                gap.between
            );
            if gap.of_all > event.unusual_secs() {
                let kept = args.place.dir.join(format!("failover-{event}-{}", time + 1));
                set.copy_logs(&kept)?;
                eprintln!("{event} {}: the members' logs are in {}", time + 1, kept.display());
            }
            Ok(gap)
        });
        let gaps: Result<Vec<Gap>, Failure> = gaps.collect();
        load.stopping.store(true, Ordering::SeqCst);
        let acknowledged: Vec<u64> = clients.into_iter().filter_map(|client| client.join().ok()).flatten().collect();
        (gaps, acknowledged)
    });
    let gaps = gaps?;
    let count = doc! { "count": "failover", "query": { "_id": { "$in": [] } }, "$db": "bench" };
    for part in acknowledged.chunks(10_000) {
        let mut count = count.clone();
        let ids: Vec<i64> = part.iter().map(|id| *id as i64).collect();
        count.insert("query", doc! { "_id": { "$in": ids } });
        let deadline = Instant::now() + PATIENCE;
        let there = loop {
            // Leadership may move while this is asked.
            let reply = set.ask(set.primary()?, &count)?;
            if reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
                break reply.get_i32("n").unwrap_or(0);
            }
            if Instant::now() > deadline {
                return Err(format!("no count: {reply}").into());
            }
        };
        if there as usize != part.len() {
            return Err(format!("{} acknowledged inserts are missing", part.len() - there as usize).into());
        }
    }
    eprintln!("{event}: all {} acknowledged inserts are there", acknowledged.len());
    Ok(gaps)
}

/// Brings the event about once.
fn one(set: &mut LocalSet, load: &Load, event: Event) -> Result<Gap, Failure> {
    set.settle()?;
    let deadline = Instant::now() + PATIENCE;
    let quiet = load.last_ack.load(Ordering::SeqCst);
    while load.last_ack.load(Ordering::SeqCst) == quiet && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(REST);
    let primary = set.primary()?;
    load.begin_looking();
    let before = (event == Event::Task).then(|| load.rate(5));
    let secs = |nanos: &AtomicU64| nanos.load(Ordering::SeqCst) as f64 / 1e9;
    let quiet = before.is_some().then(|| secs(&load.longest));
    load.begin_looking();
    // A task ends with the connection that it was begun on.
    let mut owner = None;
    match event {
        Event::Kill => set.kill(primary)?,
        Event::Silence => set.freeze(primary, true),
        Event::Task => {
            let mut wire = Wire::connect(&set.addresses()[primary])?;
            let reply = wire.command(&doc! {
                "replSetBeginTask": 1, "kind": "backup", "name": "failover", "expectedBytes": 64_i64 << 30, "maxWaitSecs": 60,
                "$db": "admin",
            })?;
            if !reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
                return Err(format!("no task: {reply}").into());
            }
            // It has moved for something of its own just before: the task begins on a secondary.
            if !reply.get_document("handoff").is_ok_and(|handoff| handoff.get_f64("writeGapMs").is_ok()) {
                drop(wire);
                return one(set, load, event);
            }
            owner = Some(wire);
        }
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
    let (of_all, of_one) = (secs(&load.longest), secs(&load.longest_of_one));
    let served = before.map(|before| load.rate(10) / before);
    let gap = Gap { of_all, of_one, between: load.gap_after(primary).as_secs_f64(), quiet, served };
    drop(owner);
    match event {
        Event::Kill => set.restart(primary)?,
        Event::Silence => set.freeze(primary, false),
        Event::Task => {}
        Event::Handoff => {
            set.ask(primary, &doc! { "replSetFreeze": 0, "$db": "admin" })?;
        }
    }
    Ok(gap)
}

fn takes_writes(address: &str) -> bool {
    let hello = Wire::connect(address).and_then(|mut wire| {
        wire.be_patient(Duration::from_millis(100))?;
        wire.command(&doc! { "hello": 1, "$db": "admin" })
    });
    hello.is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false))
}
