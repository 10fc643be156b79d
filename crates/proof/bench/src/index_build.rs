//! `baton bench index-build`: how fast an index over a table is built, beside how fast `baton restore` inserts the same table, and
//! what a small writer notices of it.
//!
//! One member, alone in its set. The table is loaded, saved, and restored in place of itself without indexes: so both figures are
//! of the same documents in the same run. Then each round builds the indexes, while one client updates one document of the same
//! collection again and again, and checks that a query by the index finds all.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use serde_json::json;

use crate::client::{ThinFactory, Wire, WriteConcern};
use crate::member::{MemberSpec, PlaceArgs};
use crate::process::Process;
use crate::record::{DATABASE, Layout};
use crate::statistics::median;
use crate::target::Target;
use crate::{Failure, conclude, machine, runner};

/// Index builds over one table.
#[derive(Clone, Debug, clap::Args)]
pub struct IndexBuildArgs {
    /// Records (1 KB each) in the table
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// The member's cache, in GB
    #[arg(long, default_value_t = 1.0)]
    pub cache_gb: f64,
    /// How often the index is built
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    #[command(flatten)]
    place: PlaceArgs,
}

const RATIO_MIN: f64 = 1.0;
/// What a build may take beside the member's cache, in MB.
const MEMORY_MAX_MB: f64 = 256.0;
const MIB: f64 = 1024.0 * 1024.0;
const PATIENCE: Duration = Duration::from_secs(3600);
const FIELD: &str = "field0";
const NAME: &str = "by_field0";
/// Pause of the small writer between two writes.
const WRITER_PAUSE: Duration = Duration::from_millis(2);

/// One build, as it was measured.
struct Built {
    seconds: f64,
    writes: u64,
    longest_write: Duration,
    /// Resident memory of the member, at its peak.
    peak_mb: f64,
}

struct Subject<'a> {
    args: &'a IndexBuildArgs,
    member: Process,
    address: String,
    wire: Wire,
}

/// Loads a table, saves and restores it, builds an index of it, and prints how long that took.
///
/// # Errors
/// If the member does not start, or an answer is wrong.
pub fn run(args: &IndexBuildArgs) -> Result<(), Failure> {
    let scratch = args.place.fresh("index-build")?;
    let member = MemberSpec::new(&args.place, scratch.path(), args.cache_gb)?.start()?;
    runner::load(&ThinFactory::new(&member.uri(), WriteConcern::W1, Layout::Fields)?, args.records, 4, 500, false)?;
    let address = format!("127.0.0.1:{}", member.port);
    let wire = patient(&address)?;
    let mut subject = Subject { args, member, address, wire };
    let dump = scratch.path().join("dump");
    let dump = dump.to_str().ok_or("the folder's name is not text")?;
    subject.tool(&["backup", "--out", dump])?;
    let begun = Instant::now();
    subject.tool(&["restore", "--dir", dump, "--drop", "--noIndexRestore"])?;
    let restore_seconds = begun.elapsed().as_secs_f64();
    subject.conclude(restore_seconds)
}

fn patient(address: &str) -> Result<Wire, Failure> {
    let wire = Wire::connect(address)?;
    wire.be_patient(PATIENCE)?;
    Ok(wire)
}

impl Subject<'_> {
    /// Runs one of Baton's tools against the member.
    fn tool(&self, arguments: &[&str]) -> Result<(), Failure> {
        let binary = match &self.args.place.baton {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()?,
        };
        let (name, rest) = arguments.split_first().ok_or("no tool")?;
        let done = Command::new(binary)
            .args([name, self.member.uri().as_str()])
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()?;
        if done.status.success() {
            return Ok(());
        }
        Err(format!("baton {name}: {}", String::from_utf8_lossy(&done.stderr).trim()).into())
    }

    fn conclude(&mut self, restore_seconds: f64) -> Result<(), Failure> {
        let records = self.args.records as f64;
        let mut rounds = Vec::new();
        for _ in 0..self.args.rounds {
            rounds.push(self.build()?);
        }
        let seconds = median(rounds.iter().map(|built| built.seconds).collect());
        let longest = rounds.iter().map(|built| built.longest_write).max().unwrap_or_default();
        let writes: u64 = rounds.iter().map(|built| built.writes).sum();
        let peak_mb = rounds.iter().map(|built| built.peak_mb).fold(0.0, f64::max);
        let ratio = restore_seconds / seconds;
        let place = format!("{} records of 1 KB", self.args.records);
        let targets = [
            Target {
                demand: "an index build's documents/s, of a restore's".into(),
                place: place.clone(),
                figure: ratio,
                bound: RATIO_MIN,
                at_least: true,
            },
            Target {
                demand: "resident memory at its peak, in MB".into(),
                place,
                figure: peak_mb,
                bound: self.args.cache_gb * 1024.0 + MEMORY_MAX_MB,
                at_least: false,
            },
        ];
        let text = format!(
            "restore                  {restore_seconds:7.2} s, {:9.0} documents/s\n\
             index build              {seconds:7.2} s, {:9.0} documents/s\n\
             a small writer meanwhile {writes} writes, the longest {:.1} ms\n",
            records / restore_seconds,
            records / seconds,
            longest.as_secs_f64() * 1e3,
        );
        let report = json!({
            "records": self.args.records, "restoreSeconds": restore_seconds,
            "buildSeconds": rounds.iter().map(|built| built.seconds).collect::<Vec<_>>(),
            "longestWriteMs": longest.as_secs_f64() * 1e3, "writes": writes, "ratio": ratio, "peakMb": peak_mb,
        });
        conclude(&self.args.place, &text, report, &targets)
    }

    /// Builds the index beside a small writer, looks whether it has every record, and drops it again.
    fn build(&mut self) -> Result<Built, Failure> {
        machine::forget_peak(self.member.pid())?;
        let is_over = AtomicBool::new(false);
        let address = self.address.clone();
        let (seconds, written) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_until(&address, &is_over));
            let begun = Instant::now();
            let built = self.ok(&doc! {
                "createIndexes": "usertable", "indexes": [{ "key": { FIELD: 1 }, "name": NAME }], "$db": DATABASE,
            });
            let seconds = begun.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            let written = writer.join().map_err(|_| Failure::from("the small writer panicked"))?;
            built.map(|_| (seconds, written))
        })?;
        let (writes, longest_write) = written?;
        let (_, peak) = machine::resident_bytes(self.member.pid()).ok_or("the member is gone")?;
        let counted = self.ok(&doc! {
            "aggregate": "usertable", "hint": NAME, "cursor": {}, "$db": DATABASE,
            "pipeline": [{ "$match": { FIELD: { "$gte": "" } } }, { "$count": "n" }],
        })?;
        let first = counted.get_document("cursor")?.get_array("firstBatch")?.first().cloned();
        let count = first.as_ref().and_then(|first| first.as_document()).and_then(|first| first.get_i32("n").ok());
        if count.map(i64::from) != Some(self.args.records as i64) {
            return Err(format!("the index has {count:?} of {} records", self.args.records).into());
        }
        self.ok(&doc! { "dropIndexes": "usertable", "index": NAME, "$db": DATABASE })?;
        Ok(Built { seconds, writes, longest_write, peak_mb: peak as f64 / MIB })
    }

    fn ok(&mut self, command: &Document) -> Result<Document, Failure> {
        checked(self.wire.command(command)?)
    }
}

/// Updates one record again and again; gives how often, and how long the longest took.
fn write_until(address: &str, is_over: &AtomicBool) -> Result<(u64, Duration), Failure> {
    let mut wire = patient(address)?;
    let (mut writes, mut longest) = (0, Duration::ZERO);
    let first = checked(wire.command(&doc! { "find": "usertable", "limit": 1, "$db": DATABASE })?)?;
    let batch = first.get_document("cursor")?.get_array("firstBatch")?;
    let id = batch.first().and_then(|record| record.as_document()?.get("_id").cloned()).ok_or("the table is empty")?;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        checked(wire.command(&doc! {
            "update": "usertable", "$db": DATABASE,
            "updates": [{ "q": { "_id": id.clone() }, "u": { "$set": { FIELD: format!("written {writes}") } } }],
        })?)?;
        longest = longest.max(begun.elapsed());
        writes += 1;
        std::thread::sleep(WRITER_PAUSE);
    }
    Ok((writes, longest))
}

fn checked(reply: Document) -> Result<Document, Failure> {
    if reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) {
        return Ok(reply);
    }
    Err(reply.get_str("errmsg").unwrap_or("the member gave an error without a text").into())
}
