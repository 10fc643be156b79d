//! `baton bench scale`: throughput of one working set in tables of growing size.
//!
//! The working set is kept fixed by asking only for the first `hot` records of every table (they lie scattered over it,
//! for keys are hashed), so that what grows is the table: its files, its levels, its indexes and filters. Every size has
//! a member of its own, and the members are measured in turn, round by round, so that a drift of the machine meets all.

use std::time::Duration;

use serde_json::json;

use crate::client::{ThinFactory, WriteConcern};
use crate::machine::{self, Moment};
use crate::member::{MemberSpec, PlaceArgs};
use crate::process::Process;
use crate::record::Layout;
use crate::runner::{self, Plan};
use crate::target::Target;
use crate::workload::{Records, Workload};
use crate::{Failure, conclude};

/// Growing tables.
#[derive(Clone, Debug, clap::Args)]
pub struct ScaleArgs {
    /// Records (1 KB each) in the tables; the largest takes some 1.5 KB of disk for each
    #[arg(long, value_delimiter = ',', default_value = "100000,1000000,10000000")]
    pub sizes: Vec<u64>,
    /// Records that are asked for: the working set
    #[arg(long, default_value_t = 100_000)]
    pub hot: u64,
    /// Workloads
    #[arg(long, value_enum, value_delimiter = ',', default_value = "a,c")]
    pub workloads: Vec<Workload>,
    /// Connections
    #[arg(long, default_value_t = 8)]
    pub clients: usize,
    /// Seconds of every measurement
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Seconds before every measurement
    #[arg(long, default_value_t = 1.0)]
    pub warmup: f64,
    /// How often to measure everything; the round in the middle counts
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Memory for each member's cache
    #[arg(long, default_value_t = 4.0)]
    pub cache_gb: f64,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value = "w1")]
    pub write_concern: WriteConcern,
    #[command(flatten)]
    place: PlaceArgs,
}

const FLAT_SHARE_MIN: f64 = 0.9;
/// What a record takes on disk at the worst moment of a load: itself, what a compaction is rewriting, the oplog.
const DISK_BYTES_A_RECORD: u64 = 2600;

struct Table {
    size: u64,
    member: Process,
    factory: ThinFactory,
    hot: Records,
    /// Operations a second by workload, one for each round.
    rates: Vec<Vec<f64>>,
}

/// Loads a table of every size, measures them in turn, and prints how flat the figures are.
///
/// # Errors
/// If the disk is too small, a member does not start, or a request fails.
pub fn run(args: &ScaleArgs) -> Result<(), Failure> {
    if args.sizes.iter().any(|&size| size < args.hot) || args.hot == 0 || args.clients == 0 || args.rounds == 0 {
        return Err("every size must be at least --hot; --hot, --clients and --rounds above 0".into());
    }
    let scratch = args.place.fresh("scale")?;
    let (wanted, free) = (args.sizes.iter().sum::<u64>() * DISK_BYTES_A_RECORD, free_bytes(scratch.path())?);
    if wanted > free {
        let (wanted, free) = (wanted >> 30, free >> 30);
        return Err(
            format!("needs some {wanted} GB of disk and has {free}: choose smaller --sizes, or another --dir").into()
        );
    }
    let mut tables = Vec::new();
    for &size in &args.sizes {
        let spec = MemberSpec::new(&args.place, &scratch.path().join(size.to_string()), args.cache_gb)?;
        std::fs::create_dir_all(&spec.dir)?;
        let member = spec.start()?;
        let factory = ThinFactory::new(&member.uri(), args.write_concern, Layout::Fields)?;
        eprintln!("loading {size} records");
        let rate = runner::load(&factory, size, 4, 500, false)?;
        let rested = machine::settle(&[member.pid()], Duration::from_secs(600))?;
        eprintln!("loaded at {rate:.0}/s{}", if rested { "" } else { ", and still compacting after ten minutes" });
        let rates = vec![Vec::new(); args.workloads.len()];
        tables.push(Table { size, member, factory, hot: Records::loaded(args.hot), rates });
    }
    let pids: Vec<u32> = tables.iter().map(|table| table.member.pid()).collect();
    let mut others = Vec::new();
    for round in 0..args.rounds {
        for (number, &workload) in args.workloads.iter().enumerate() {
            for table in &mut tables {
                let before = Moment::now(&pids)?;
                let rate = table.measure(workload, round, args)?;
                let used = Moment::now(&pids)?.since(&before);
                others.push(used.others);
                eprintln!(
                    "round {}, workload {}, {} records: {rate:.0}/s (others used {:.0} % of the CPUs)",
                    round + 1,
                    workload.name().to_uppercase(),
                    table.size,
                    used.others * 100.0
                );
                table.rates[number].push(rate);
            }
        }
    }
    report(args, &tables, &others)
}

impl Table {
    fn measure(&self, workload: Workload, round: usize, args: &ScaleArgs) -> Result<f64, Failure> {
        // The first round also brings the hot records into the cache, all of them.
        if round == 0 {
            let plan = Plan { operations: Some(args.hot * 3), uniform: true, ..self.plan(Workload::C, 60.0, 99, args) };
            runner::run(&self.factory, &self.hot, &plan)?;
        }
        let plan = self.plan(workload, args.seconds, round as u64, args);
        Ok(runner::run(&self.factory, &self.hot, &plan)?.throughput())
    }

    fn plan(&self, workload: Workload, seconds: f64, seed: u64, args: &ScaleArgs) -> Plan {
        Plan {
            workload,
            clients: args.clients,
            warmup: Duration::from_secs_f64(args.warmup),
            duration: Duration::from_secs_f64(seconds),
            operations: None,
            uniform: false,
            seed,
            verbose: false,
        }
    }
}

fn middle(rates: &[f64]) -> f64 {
    let mut order = rates.to_vec();
    order.sort_by(f64::total_cmp);
    order.get((order.len().max(1) - 1) / 2).copied().unwrap_or(f64::NAN)
}

fn report(args: &ScaleArgs, tables: &[Table], others: &[f64]) -> Result<(), Failure> {
    let mut text = format!(
        "{} clients ask for {} records of every table; the middle of {} rounds of {} s; others used up to {:.0} % of the CPUs\n",
        args.clients,
        args.hot,
        args.rounds,
        args.seconds,
        others.iter().copied().fold(0.0, f64::max) * 100.0
    );
    let (mut targets, mut rows) = (Vec::new(), Vec::new());
    for (number, workload) in args.workloads.iter().enumerate() {
        let name = workload.name().to_uppercase();
        let rates: Vec<f64> = tables.iter().map(|table| middle(&table.rates[number])).collect();
        for (table, rate) in tables.iter().zip(&rates) {
            text += &format!("workload {name}, {:>10} records: {rate:>9.0} operations/s\n", table.size);
            rows.push(json!({
                "workload": workload.name(), "records": table.size,
                "operationsPerSecond": rate, "rounds": table.rates[number],
            }));
        }
        let (slowest, fastest) = rates.iter().fold((f64::MAX, 0.0f64), |(low, high), &r| (low.min(r), high.max(r)));
        targets.push(Target {
            demand: format!("workload {name}: slowest table, of the fastest"),
            place: format!("{:?} records", args.sizes),
            figure: slowest / fastest,
            bound: FLAT_SHARE_MIN,
            at_least: true,
        });
    }
    let report = json!({ "hot": args.hot, "clients": args.clients, "rows": rows, "others": others });
    conclude(&args.place, &text, report, &targets)
}

fn free_bytes(path: &std::path::Path) -> Result<u64, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `name` ends in a zero and `stat` is a valid place for the result.
    #[allow(unsafe_code)]
    let stat = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(name.as_ptr(), &raw mut stat) != 0 {
            return Err(format!("{}: {}", path.display(), std::io::Error::last_os_error()).into());
        }
        stat
    };
    Ok(stat.f_bavail * stat.f_frsize)
}
