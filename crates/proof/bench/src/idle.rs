//! `baton bench idle`: what a member takes that nobody asks anything.
//!
//! Measured twice: just started, and with a small table and ten connections that say nothing. The first is the target,
//! the second tells how much of it lasts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{ThinFactory, Wire, WriteConcern};
use crate::member::{MemberSpec, PlaceArgs};
use crate::record::Layout;
use crate::target::Target;
use crate::{Failure, conclude, machine, runner};

/// A member at rest.
#[derive(Clone, Debug, clap::Args)]
pub struct IdleArgs {
    /// How long to watch, in seconds
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// How long to leave the member alone before each watch, in seconds
    #[arg(long, default_value_t = 3.0)]
    pub rest: f64,
    /// Records (1 KB each) for the second watch
    #[arg(long, default_value_t = 10_000)]
    pub records: u64,
    #[command(flatten)]
    place: PlaceArgs,
}

const RESIDENT_MB_MAX: f64 = 60.0;
const CORE_SHARE_MAX: f64 = 0.01;
const CONNECTIONS: usize = 10;

struct Watch {
    resident_mb: f64,
    core_share: f64,
    threads: u64,
}

impl Watch {
    fn over(pid: u32, seconds: f64) -> Result<Self, Failure> {
        let gone = || Failure::from("the member is gone");
        let before = machine::cpu_secs(pid).ok_or_else(gone)?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let used = machine::cpu_secs(pid).ok_or_else(gone)? - before;
        let (resident, _) = machine::resident_bytes(pid).ok_or_else(gone)?;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.count() as u64;
        Ok(Self { resident_mb: resident as f64 / 1e6, core_share: used / seconds, threads })
    }

    fn text(&self, what: &str) -> String {
        let Self { resident_mb, core_share, threads } = self;
        format!("{what:44} {resident_mb:6.1} MB resident, {:.2} % of a core, {threads} threads\n", core_share * 100.0)
    }

    fn json(&self) -> Value {
        json!({ "residentMb": self.resident_mb, "coreShare": self.core_share, "threads": self.threads })
    }
}

/// Starts a member, watches it, and prints what it took.
///
/// # Errors
/// If the member does not start.
pub fn run(args: &IdleArgs) -> Result<(), Failure> {
    let scratch = args.place.fresh("idle")?;
    // The cache of a real installation: its size must not show in a member that has nothing to cache.
    let mut spec = MemberSpec::new(&args.place, scratch.path(), 4.0)?;
    spec.http = true;
    let member = spec.start()?;
    std::thread::sleep(Duration::from_secs_f64(args.rest));
    let empty = Watch::over(member.pid(), args.seconds)?;
    let factory = ThinFactory::new(&member.uri(), WriteConcern::Journaled, Layout::Fields)?;
    runner::load(&factory, args.records, 1, 500, false)?;
    let address = format!("127.0.0.1:{}", member.port);
    let connections = (0..CONNECTIONS).map(|_| Wire::connect(&address)).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(Duration::from_secs_f64(args.rest));
    let used = Watch::over(member.pid(), args.seconds)?;
    drop(connections);
    let place = format!("over {} s", args.seconds);
    let target = |demand: &str, figure: f64, bound: f64| Target {
        demand: demand.into(),
        place: place.clone(),
        figure,
        bound,
        at_least: false,
    };
    let targets = [
        target("idle member: MB resident", empty.resident_mb, RESIDENT_MB_MAX),
        target("idle member: share of a core", empty.core_share, CORE_SHARE_MAX),
    ];
    let text = empty.text("just started")
        + &used.text(&format!("with {} records, {CONNECTIONS} silent connections", args.records));
    let report = json!({ "seconds": args.seconds, "empty": empty.json(), "used": used.json() });
    conclude(&args.place, &text, report, &targets)
}
