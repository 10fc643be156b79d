//! `baton serve` and `baton up`: one member in the foreground.
//!
//! Invariant: the exit code is mongod's: 0 after a clean stop, 2 for bad options, 48 for a port in use, 100 for a data
//! directory that cannot be used.

use crate::arguments;
use crate::local_set::LocalSet;
use crate::settings::{self, Config, LogSettings, Value};
use baton_node::signals::Signals;
use baton_node::{Member, StartError};
use baton_telemetry::Log;
use baton_telemetry::log::{Format, Options as LogOptions, Output, Rotation};
use clap::{Arg, ArgMatches, Command};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The name of the set that `baton up` makes.
const SET_NAME: &str = "rs0";

const SERVE_EXAMPLES: &str = "\
Examples:
  baton serve --dbpath ./data
      A standalone on 127.0.0.1:27017 that keeps its data in ./data.
  baton serve --dbpath ./data --replSet rs0
      A member of a replica set. A set is made once, on one of its members: mongosh --eval 'rs.initiate()'
  baton serve --dbpath /var/lib/baton --bind_ip 127.0.0.1,10.0.0.5 --logpath /var/log/baton.log --logappend
      For a service manager.
  baton serve --config /etc/baton.yaml
      The same from a file in mongod's form:
          storage: { dbPath: /var/lib/baton }
          net: { port: 27017, bindIp: 127.0.0.1 }
          replication: { replSetName: rs0 }

Stop it with Ctrl-C or SIGTERM: what was acknowledged is on disk then. SIGUSR1 begins a new log file.
SIGUSR2 writes what its step machines did during the last minute to a file in diagnostic.data.";

const UP_EXAMPLES: &str = "\
Examples:
  baton up
      A replica set rs0 of one member on 127.0.0.1:27017, with its data in ./baton-data.
  baton up --members 3
      One of three members, on ports 27017 to 27019, which share the memory and the disk that one would take. Kill one of its
      processes and watch it return.
  baton up --port 5000 --data /tmp/try
      Another one beside it.

Ctrl-C stops it; the data stays, and the next `baton up` goes on with it.";

/// The description of `baton serve`.
pub fn serve_command() -> Command {
    arguments::add_to(Command::new("serve").about("Run one member, with mongod's flags").after_help(SERVE_EXAMPLES))
}

/// The description of `baton up`.
pub fn up_command() -> Command {
    Command::new("up")
        .about("Start a local replica set and print how to connect to it")
        .after_help(UP_EXAMPLES)
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("PORT")
                .default_value("27017")
                .value_parser(clap::value_parser!(u16))
                .help("The port of the first member; others have the next ones"),
        )
        .arg(
            Arg::new("members")
                .long("members")
                .value_name("N")
                .default_value("1")
                .value_parser(clap::value_parser!(u16).range(1..=7))
                .help("How many members, 1 to 7"),
        )
        .arg(
            Arg::new("data")
                .long("data")
                .value_name("DIRECTORY")
                .default_value("baton-data")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Where the data is; made if it is not there"),
        )
}

/// Carries out `baton serve`.
pub fn serve(matches: &ArgMatches) -> ExitCode {
    let config = arguments::given(matches).and_then(|given| settings::resolve(&given));
    match config {
        Ok(config) => run(config, |_| {}),
        Err(why) => fail(&StartError { reason: why, exit_code: 2 }),
    }
}

/// Carries out `baton up`.
pub fn up(matches: &ArgMatches) -> ExitCode {
    let members = matches.get_one::<u16>("members").copied().unwrap_or(1);
    let port = matches.get_one::<u16>("port").copied().unwrap_or(27017);
    let data = matches.get_one::<PathBuf>("data").cloned().unwrap_or_else(|| "baton-data".into());
    if members > 1 { up_with_members(members, port, &data) } else { up_alone(port, &data) }
}

fn up_alone(port: u16, data: &Path) -> ExitCode {
    let given = settings::Given::from([
        ("net.port".into(), Value::Number(f64::from(port))),
        ("storage.dbPath".into(), Value::Text(data.display().to_string())),
        // The terminal is for the address; what else there is to say goes beside the data.
        ("systemLog.path".into(), Value::Text(data.join("baton.log").display().to_string())),
        ("systemLog.logAppend".into(), Value::Switch(true)),
        ("replication.replSetName".into(), Value::Text(SET_NAME.into())),
    ]);
    match settings::resolve(&given) {
        Ok(mut config) => {
            config.options.initiate = true;
            run(config, |member| {
                println!("Baton is up: a replica set of one member.");
                println!("  connect   mongosh '{}'", member.connection_string());
                let statistics = member.storage().statistics();
                let megabytes = |bytes: u64| bytes >> 20;
                println!(
                    "  sizes     cache {} MB, oplog {} MB",
                    megabytes(statistics.cache_bytes_max),
                    megabytes(statistics.oplog_bytes_max)
                );
                if let Some(page) = member.status_page() {
                    println!("  status    {page}");
                }
                let data = &member.server().identity.data_directory;
                println!("  data      {data} (its log is {data}/baton.log)");
                println!("  stop      Ctrl-C");
            })
        }
        Err(why) => fail(&StartError { reason: why, exit_code: 2 }),
    }
}

fn up_with_members(members: u16, port: u16, data: &Path) -> ExitCode {
    let signals = match Signals::install() {
        Ok(signals) => signals,
        Err(e) => return fail(&StartError { reason: format!("Signals cannot be handled: {e}"), exit_code: 100 }),
    };
    match LocalSet::start(SET_NAME, members, port, data) {
        Ok(mut set) => {
            println!("Baton is up: a replica set of {members} members.");
            println!("  connect   mongosh '{}'", set.connection_string());
            println!("  status    http://127.0.0.1:{}/", port.saturating_add(1000));
            for line in set.describe() {
                println!("  member    {line}");
            }
            println!("  sizes     {}", set.describe_sizes());
            println!("  stop      Ctrl-C");
            set.run(&signals);
            set.stop();
            ExitCode::SUCCESS
        }
        Err(reason) => fail(&StartError { reason, exit_code: 100 }),
    }
}

/// Begins this process again, as it was begun; returns only if the system does not let it.
fn start_anew() {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "baton".into());
    // The same program, also if its file has been replaced meanwhile.
    let error = std::process::Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
    tracing::error!(target: "CONTROL", error = %error, "The process cannot be started anew");
}

fn run(mut config: Config, started: impl FnOnce(&Member)) -> ExitCode {
    config.options.argv = std::env::args().collect();
    config.options.restart = Some(start_anew);
    let signals = match Signals::install() {
        Ok(signals) => signals,
        Err(e) => return fail(&StartError { reason: format!("Signals cannot be handled: {e}"), exit_code: 100 }),
    };
    // A log beside the data would be the first file in a directory that is not ours.
    let is_beside = config.log.path.as_deref().and_then(Path::parent) == Some(&config.options.data_directory);
    if is_beside && let Err(reason) = baton_node::contents::check(&config.options.data_directory) {
        return fail(&StartError { reason, exit_code: 100 });
    }
    let log = match open_log(&config.log) {
        Ok(log) => log,
        Err(reason) => return fail(&StartError { reason, exit_code: 2 }),
    };
    log.install();
    for warning in &config.warnings {
        tracing::warn!(target: "CONTROL", startupWarning = true, "{warning}");
    }
    let member = match Member::start(&config.options, &log) {
        Ok(member) => member,
        Err(error) => {
            tracing::error!(target: "CONTROL", id = 20557, error = %error, "The member did not start");
            return fail(&error);
        }
    };
    started(&member);
    member.run(|| {
        if signals.rotation_asked()
            && let Err(error) = log.rotate()
        {
            tracing::warn!(target: "CONTROL", error = %error, "Log rotation failed");
        }
        if signals.steps_asked() {
            member.write_steps();
        }
        signals.stop_asked()
    });
    member.stop();
    ExitCode::SUCCESS
}

/// Opens the log. A file that is there is moved away, unless it is to be gone on with.
fn open_log(settings: &LogSettings) -> Result<Log, String> {
    let Some(path) = &settings.path else {
        return Log::open(&LogOptions { verbosity: settings.verbosity, ..LogOptions::default() })
            .map_err(|e| format!("The log cannot be opened: {e}"));
    };
    let failed = |e: std::io::Error| format!("--logpath {}: {e}", path.display());
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let was_there = std::fs::metadata(path).is_ok_and(|m| m.len() > 0);
    let log = Log::open(&LogOptions {
        format: Format::Json,
        output: Output::File(path.clone()),
        rotation: if settings.reopen { Rotation::Reopen } else { Rotation::Rename },
        verbosity: settings.verbosity,
    })
    .map_err(failed)?;
    if was_there && !settings.append && !settings.reopen {
        log.rotate().map_err(failed)?;
    }
    Ok(log)
}

fn fail(error: &StartError) -> ExitCode {
    eprintln!("baton: {}", error.reason);
    ExitCode::from(error.exit_code)
}
