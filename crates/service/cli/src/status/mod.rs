//! `baton status URI`: whether a set is well, and who its members are and what they do.
//!
//! The first line is the verdict. Every member is asked itself, so that what is told of it is its own word: a view of others can
//! be seconds old.
//!
//! Not here: what the answers mean (`report`), how they are got (`survey`).

mod priorities;
mod report;
mod survey;

pub(crate) use survey::whole;

use crate::uri::Uri;
use clap::{Arg, ArgAction, ArgMatches, Command};
use report::Report;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often `--watch` looks.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// For how long a set that can elect a primary may have none before that is told: leadership that moves is no alarm.
const ELECTION_PATIENCE: Duration = Duration::from_secs(2);
const ELECTION_LOOK_INTERVAL: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  baton status mongodb://127.0.0.1:27017
      One host of a set is enough while it answers; name several, and any may be down.
  baton status 'mongodb://127.0.0.1:27017,127.0.0.1:27018/?replicaSet=rs0' --watch
      The same again every two seconds, until Ctrl-C.
  baton status mongodb://127.0.0.1:27017 --json
      For programs: one document.

The exit code is 0 where there is a primary (or a standalone), and 1 where nobody answers or there is none, for two seconds where
enough members answer to elect one.";

/// The description of `baton status`.
pub fn command() -> Command {
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let command = Command::new("status")
        .about("Tell whether a set is well, who its members are, how far behind, and what they do")
        .after_help(EXAMPLES)
        .arg(switch("watch", "Show it again every two seconds"))
        .arg(switch("json", "As JSON; with --watch one document a line"));
    crate::uri_argument::add_to(command, "mongodb://host:port of a member, or of several")
}

/// Carries it out: exit code 0, or 1 if there is no primary or nobody can be asked.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let uri = match crate::uri_argument::given(matches).and_then(|text| Uri::parse(&text)) {
        Ok(uri) => uri,
        Err(why) => {
            eprintln!("baton status: {why}");
            return ExitCode::FAILURE;
        }
    };
    let (watch, json) = (matches.get_flag("watch"), matches.get_flag("json"));
    let clears = watch && !json && std::io::stdout().is_terminal();
    loop {
        let outcome = show(&uri, json, !watch, clears);
        if !watch {
            return outcome;
        }
        sleep(WATCH_INTERVAL);
    }
}

fn show(uri: &Uri, json: bool, over_lines: bool, clears: bool) -> ExitCode {
    // Who watches sees each moment.
    let patience = if over_lines { ELECTION_PATIENCE } else { Duration::ZERO };
    let report = match report_within(uri, patience) {
        Ok(report) => report,
        Err(why) => {
            eprintln!("baton status: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut text = match (json, over_lines) {
        (false, _) => report.to_text(),
        (true, true) => format!("{:#}\n", report.to_json()),
        (true, false) => format!("{}\n", report.to_json()),
    };
    if clears {
        // To the top left corner, and everything away that was there.
        text.insert_str(0, "\x1b[H\x1b[2J");
    }
    let mut out = std::io::stdout().lock();
    // Who reads this may have gone; then there is nobody to tell.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if report.has_primary() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is so, or what is within `patience` where a primary is being elected.
fn report_within(uri: &Uri, patience: Duration) -> Result<Report, String> {
    let until = Instant::now() + patience;
    loop {
        let report = Report::of(&survey::take(uri)?);
        if !report.may_elect() || Instant::now() >= until {
            return Ok(report);
        }
        sleep(ELECTION_LOOK_INTERVAL);
    }
}
