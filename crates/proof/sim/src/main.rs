//! `baton-sim`: runs worlds, one seed after another on every processor, and stops at the first that breaks a property; or replays what a member wrote down.

use baton_replay::Seen;
use baton_sim::replay::{MACHINES, Report, replay_file};
use baton_sim::{Shape, Weather, Worlds};
use clap::{Arg, ArgAction, Command, value_parser};
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

// The one that members run with: worlds allocate much and keep little.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let matches = Command::new("baton-sim")
        .about("Run simulated replica sets, and check every step of them")
        .arg(Arg::new("seed").long("seed").value_parser(value_parser!(u64)).help("Run this world only"))
        .arg(
            Arg::new("from")
                .long("from")
                .value_parser(value_parser!(u64))
                .help("The first seed (by default drawn from the clock)"),
        )
        .arg(Arg::new("worlds").long("worlds").value_parser(value_parser!(u64)).default_value("1000").help("How many"))
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_parser(value_parser!(u64))
                .help("Run for so long instead of so many"),
        )
        .arg(
            Arg::new("threads")
                .long("threads")
                .value_parser(value_parser!(usize))
                .help("On so many threads (by default as many as there are processors)"),
        )
        .arg(
            Arg::new("members")
                .long("members")
                .value_parser(value_parser!(u8).range(1..=7))
                .help("With so many members in the first configuration (by default drawn, 1 to 7)"),
        )
        .arg(
            Arg::new("leadership")
                .long("leadership")
                .value_parser(["drawn", "storm", "together", "claims", "hour", "none"])
                .default_value("drawn")
                .help("In which kind of world leadership moves before heavy work"),
        )
        .arg(
            Arg::new("door")
                .long("door")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["seconds", "members", "leadership", "trace"])
                .help("Run worlds of the door at which requests wait for their turn, instead of replica sets"),
        )
        .arg(
            Arg::new("trace")
                .long("trace")
                .action(ArgAction::SetTrue)
                .help("Tell every step of every member on stderr, one world after the other"),
        )
        .arg(
            Arg::new("replay")
                .long("replay")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with_all(["seed", "from", "worlds", "seconds", "threads", "members", "leadership", "trace"])
                .help("Step the machines of a member again through what it wrote down (replSetWriteSteps, SIGUSR2), and compare"),
        )
        .arg(
            Arg::new("machine")
                .long("machine")
                .requires("replay")
                .value_parser(MACHINES)
                .help("Replay this machine only, or all of this kind"),
        )
        .arg(
            Arg::new("verbose")
                .long("verbose")
                .requires("replay")
                .action(ArgAction::SetTrue)
                .help("Tell every step that is replayed"),
        )
        .get_matches();
    if let Some(path) = matches.get_one::<PathBuf>("replay") {
        let only = matches.get_one::<String>("machine").map(String::as_str);
        return replay(path, only, matches.get_flag("verbose"));
    }
    let single = matches.get_one::<u64>("seed").copied();
    let from = single.or_else(|| matches.get_one::<u64>("from").copied()).unwrap_or_else(seed_from_clock);
    let begin_within = matches.get_one::<u64>("seconds").map(|seconds| Duration::from_secs(*seconds));
    let count = match (single, begin_within) {
        (Some(_), _) => 1,
        (None, Some(_)) => u64::MAX,
        (None, None) => *matches.get_one::<u64>("worlds").unwrap_or(&1000),
    };
    if matches.get_flag("door") {
        let threads = matches.get_one::<usize>("threads").copied().unwrap_or_else(processors);
        return doors(from, count, threads);
    }
    let trace = matches.get_flag("trace");
    let threads = matches.get_one::<usize>("threads").copied().unwrap_or_else(processors);
    let threads = if trace { 1 } else { threads };
    let leadership = match matches.get_one::<String>("leadership").map(String::as_str) {
        Some("none") => None,
        Some("storm") => Some(Some(Shape::Storm)),
        Some("together") => Some(Some(Shape::Together)),
        Some("claims") => Some(Some(Shape::Claims)),
        Some("hour") => Some(Some(Shape::Hour)),
        _ => Some(None),
    };
    let members = matches.get_one::<u8>("members").map(|members| usize::from(*members));
    let weather = Weather { members, trace, leadership, ..Weather::default() };
    let begun = Instant::now();
    let (done, sum) = match (Worlds { from, count, begin_within, threads, weather }).run() {
        Ok(done) => done,
        Err(failure) => {
            eprintln!("{failure}");
            let kind = matches.get_one::<String>("leadership").filter(|kind| *kind != "drawn");
            let kind = kind.map_or_else(String::new, |kind| format!(" --leadership {kind}"));
            let members = members.map_or_else(String::new, |members| format!(" --members {members}"));
            eprintln!("again: baton-sim --seed {}{kind}{members}", failure.seed);
            return ExitCode::FAILURE;
        }
    };
    let rate = done as f64 / begun.elapsed().as_secs_f64() * 60.0;
    println!("{done} worlds from seed {from}, {rate:.0} a minute, every property held: {sum:?}");
    ExitCode::SUCCESS
}

/// Runs so many worlds of the door.
fn doors(from: u64, count: u64, threads: usize) -> ExitCode {
    let begun = Instant::now();
    match baton_sim::door::run_seeds(from, count, threads) {
        Ok(sum) => {
            let rate = count as f64 / begun.elapsed().as_secs_f64() * 60.0;
            println!("{count} doors from seed {from}, {rate:.0} a minute, every property held: {sum:?}");
            ExitCode::SUCCESS
        }
        Err((seed, property, what)) => {
            eprintln!("seed {seed}: {property}: {what}");
            eprintln!("again: baton-sim --door --seed {seed}");
            ExitCode::FAILURE
        }
    }
}

fn replay(path: &Path, only: Option<&str>, tells: bool) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let mut tell = |seen: &Seen<'_>| {
        if tells {
            // Who reads no further has seen enough.
            let _ = writeln!(out, "{} {} at {:?}: {}", seen.machine, seen.number, seen.now, seen.input);
            let _ = writeln!(out, "    -> {}", seen.effects);
        }
    };
    let replayed = File::open(path)
        .map_err(|error| error.to_string())
        .and_then(|file| replay_file(BufReader::new(file), only, &mut tell));
    drop(out);
    match replayed {
        Ok(report) => {
            for machine in &report.broken {
                println!("{machine} breaks at its last step, as it did");
            }
            let Report { header, steps, machines, .. } = &report;
            if header.baton != env!("CARGO_PKG_VERSION") {
                println!("recorded by Baton {}, replayed by {}", header.baton, env!("CARGO_PKG_VERSION"));
            }
            println!("{steps} steps of {} machines, all as recorded", machines.len());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{}: {why}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn seed_from_clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
