//! `baton bench spill`: a sort of a whole table with little memory beside one that fits.
//!
//! Both sort whole records and send one field of each, and both answers are checked: every record, in order. The sort that fits
//! needs a member with much memory (its cache lends an eighth); the member is the same for both. They take turns.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use serde_json::json;

use crate::client::{ThinFactory, Wire, WriteConcern};
use crate::member::{MemberSpec, PlaceArgs};
use crate::process::Process;
use crate::record::{DATABASE, Layout};
use crate::target::Target;
use crate::{Failure, conclude, machine, runner};

/// A sort that spills.
#[derive(Clone, Debug, clap::Args)]
pub struct SpillArgs {
    /// Records (1 KB each) in the table
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// What the sort that spills may hold, in MB
    #[arg(long, default_value_t = 100)]
    pub sort_mb: u64,
    /// The member's cache, in GB: an eighth of it must hold the sort that fits
    #[arg(long, default_value_t = 12.0)]
    pub cache_gb: f64,
    /// How often each is measured
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    #[command(flatten)]
    place: PlaceArgs,
}

const RATIO_MAX: f64 = 4.0;
const MIB: f64 = 1024.0 * 1024.0;
const PATIENCE: Duration = Duration::from_secs(900);
const FIELD: &str = "field0";

/// One sort, as it was measured.
struct Sort {
    seconds: f64,
    /// Resident memory of the member, at its peak, beyond what it had before.
    grown_mb: f64,
}

struct Subject<'a> {
    args: &'a SpillArgs,
    member: Process,
    wire: Wire,
}

/// Loads a table, sorts it both ways, and prints how long that took.
///
/// # Errors
/// If the member does not start, or an answer is wrong.
pub fn run(args: &SpillArgs) -> Result<(), Failure> {
    let scratch = args.place.fresh("spill")?;
    let member = MemberSpec::new(&args.place, scratch.path(), args.cache_gb)?.start()?;
    runner::load(&ThinFactory::new(&member.uri(), WriteConcern::W1, Layout::Fields)?, args.records, 4, 500, false)?;
    let wire = Wire::connect(&format!("127.0.0.1:{}", member.port))?;
    wire.be_patient(PATIENCE)?;
    let mut subject = Subject { args, member, wire };
    subject.conclude()
}

impl Subject<'_> {
    fn conclude(&mut self) -> Result<(), Failure> {
        // Both find the table in memory.
        self.ok(&doc! { "count": "usertable", "query": { FIELD: "" }, "$db": DATABASE })?;
        let (mut spilled, mut fitting) = (Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            spilled.push(self.sort(true)?);
            fitting.push(self.sort(false)?);
        }
        let (slow, fast) = (median(&spilled), median(&fitting));
        let place = format!("{} records, {} MB", self.args.records, self.args.sort_mb);
        let targets = [Target {
            demand: "a sort that spills, of the time of one that fits".into(),
            place,
            figure: slow / fast,
            bound: RATIO_MAX,
            at_least: false,
        }];
        // Later ones find memory that earlier ones have freed.
        let grown_mb = spilled.first().map_or(f64::NAN, |sort| sort.grown_mb);
        let text = format!(
            "with {} MB                {slow:7.2} s, {grown_mb:6.0} MB more resident than before\n\
             with memory for all       {fast:7.2} s\n",
            self.args.sort_mb
        );
        let seconds = |sorts: &[Sort]| sorts.iter().map(|sort| sort.seconds).collect::<Vec<_>>();
        let report = json!({
            "records": self.args.records, "sortMb": self.args.sort_mb, "spilledSeconds": seconds(&spilled),
            "fittingSeconds": seconds(&fitting), "grownMb": grown_mb,
        });
        conclude(&self.args.place, &text, report, &targets)
    }

    /// Sorts the table with little memory, or with enough and not allowed to spill.
    fn sort(&mut self, spills: bool) -> Result<Sort, Failure> {
        let bytes = if spills { self.args.sort_mb << 20 } else { i64::MAX as u64 };
        let limit = doc! {
            "setParameter": 1, "internalQueryMaxBlockingSortMemoryUsageBytes": bytes as i64, "$db": "admin",
        };
        self.ok(&limit)?;
        let before = self.spills()?;
        machine::forget_peak(self.member.pid())?;
        let (resident_before, _) = self.resident()?;
        let begun = Instant::now();
        self.check_order(&doc! {
            "find": "usertable", "sort": { FIELD: 1 }, "projection": { FIELD: 1, "_id": 0 }, "batchSize": 10_000,
            "allowDiskUse": spills, "$db": DATABASE,
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        let grown_mb = self.resident()?.1.saturating_sub(resident_before) as f64 / MIB;
        if (self.spills()? > before) != spills {
            return Err(if spills { "the sort did not spill" } else { "the sort that was to fit has spilled" }.into());
        }
        Ok(Sort { seconds, grown_mb })
    }

    /// The member's resident memory, now and at its peak, in bytes.
    fn resident(&self) -> Result<(u64, u64), Failure> {
        machine::resident_bytes(self.member.pid()).ok_or_else(|| "the member is gone".into())
    }

    fn check_order(&mut self, command: &Document) -> Result<(), Failure> {
        let mut reply = self.ok(command)?;
        let (mut last, mut count) = (String::new(), 0);
        loop {
            let cursor = reply.get_document("cursor")?;
            let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"))?;
            for record in batch {
                let value = record.as_document().and_then(|record| record.get_str(FIELD).ok());
                let value = value.ok_or("a record came without the field it was sorted by")?;
                if value < last.as_str() {
                    return Err(format!("record {count} is out of order").into());
                }
                value.clone_into(&mut last);
                count += 1;
            }
            let id = cursor.get_i64("id")?;
            if id == 0 {
                break;
            }
            reply =
                self.ok(&doc! { "getMore": id, "collection": "usertable", "batchSize": 10_000, "$db": DATABASE })?;
        }
        if count == self.args.records {
            return Ok(());
        }
        Err(format!("the sort gave {count} of {} records", self.args.records).into())
    }

    /// How often sorts have spilled.
    fn spills(&mut self) -> Result<i64, Failure> {
        let status = self.ok(&doc! { "serverStatus": 1, "$db": "admin" })?;
        let sort = status.get_document("metrics")?.get_document("query")?.get_document("sort")?;
        Ok(sort.get_i64("spillToDisk")?)
    }

    fn ok(&mut self, command: &Document) -> Result<Document, Failure> {
        let reply = self.wire.command(command)?;
        if reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) {
            return Ok(reply);
        }
        Err(reply.get_str("errmsg").unwrap_or("the member gave an error without a text").into())
    }
}

fn median(sorts: &[Sort]) -> f64 {
    let mut seconds: Vec<f64> = sorts.iter().map(|sort| sort.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}
