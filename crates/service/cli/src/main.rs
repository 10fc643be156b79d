//! The binary: subcommands, and nothing that another program could want.
//!
//! Invariant: an error is one line on standard error that says what to do, and an exit code.

mod arguments;
mod config_file;
mod connection;
mod dump;
mod inert;
mod local_set;
mod serve;
mod settings;
mod shares;
mod status;
mod task;
mod topology;
mod uri;
mod uri_argument;

use clap::Command;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const EXAMPLES: &str = "\
First steps:
  baton up                                    start a local replica set of one member
  mongosh 'mongodb://127.0.0.1:27017/?replicaSet=rs0'
                                              talk to it, with any MongoDB client
  baton status mongodb://127.0.0.1:27017      who the members are and what they do
  baton backup mongodb://127.0.0.1:27017 --out dump
                                              save everything, as of one moment, in mongodump's format
  baton task --uri mongodb://127.0.0.1:27017 -- PROGRAM
                                              run a program when a member may be busy
  baton serve --help                          mongod's flags, for a real installation";

fn main() -> ExitCode {
    if let Some(code) = refuse_foreign_flags() {
        return code;
    }
    let command = Command::new("baton")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Baton: a document database that MongoDB's clients use as they would MongoDB")
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve::up_command())
        .subcommand(serve::serve_command())
        .subcommand(status::command())
        .subcommand(task::command())
        .subcommand(dump::backup::command())
        .subcommand(dump::restore::command());
    let command = command.subcommand(<baton_bench::Args as clap::Args>::augment_args(
        Command::new("bench")
            .about("Load a server that speaks the MongoDB protocol with YCSB's core workloads, and measure it"),
    ));
    match command.get_matches().subcommand() {
        Some(("serve", matches)) => serve::serve(matches),
        Some(("up", matches)) => serve::up(matches),
        Some(("status", matches)) => status::run(matches),
        Some(("task", matches)) => task::run(matches),
        Some(("backup", matches)) => dump::backup::run(matches),
        Some(("restore", matches)) => dump::restore::run(matches),
        Some(("bench", matches)) => bench(matches),
        _ => ExitCode::from(2),
    }
}

/// Who is used to mongodump types its flags: each is answered by what to do instead.
fn refuse_foreign_flags() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let subcommand = arguments.next().filter(|name| matches!(name.as_str(), "backup" | "restore" | "status"))?;
    let hint = dump::foreign::hint(arguments)?;
    eprintln!("baton {subcommand}: {hint}");
    Some(ExitCode::from(2))
}

fn bench(matches: &clap::ArgMatches) -> ExitCode {
    let outcome = <baton_bench::Args as clap::FromArgMatches>::from_arg_matches(matches)
        .map_err(|error| error.to_string())
        .and_then(|arguments| baton_bench::run(arguments).map_err(|error| error.to_string()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("baton bench: {reason}");
            ExitCode::FAILURE
        }
    }
}
