//! `baton-sim`: runs worlds, one seed after another, and stops at the first that breaks a property.

use baton_sim::{Tally, Weather, run};
use clap::{Arg, ArgAction, Command, value_parser};
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
            Arg::new("trace")
                .long("trace")
                .action(ArgAction::SetTrue)
                .help("Tell every step of every member on stderr"),
        )
        .get_matches();
    let single = matches.get_one::<u64>("seed").copied();
    let from = single.or_else(|| matches.get_one::<u64>("from").copied()).unwrap_or_else(seed_from_clock);
    let worlds = if single.is_some() { 1 } else { *matches.get_one::<u64>("worlds").unwrap_or(&1000) };
    let limit = matches.get_one::<u64>("seconds").map(|seconds| Duration::from_secs(*seconds));
    let weather = Weather { trace: matches.get_flag("trace"), ..Weather::default() };
    let begun = Instant::now();
    let mut sum = Tally::default();
    let mut done = 0;
    while limit.map_or(done < worlds, |limit| begun.elapsed() < limit) {
        match run(from.wrapping_add(done), weather) {
            Ok(tally) => sum.add(&tally),
            Err(failure) => {
                eprintln!("{failure}");
                eprintln!("again: baton-sim --seed {}", failure.seed);
                return ExitCode::FAILURE;
            }
        }
        done += 1;
    }
    let rate = done as f64 / begun.elapsed().as_secs_f64() * 60.0;
    println!("{done} worlds from seed {from}, {rate:.0} a minute, every property held: {sum:?}");
    ExitCode::SUCCESS
}

fn seed_from_clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
