//! The benchmarks as a program of their own, for building them without the server; `baton bench` is the same.

use clap::Parser;
use std::process::ExitCode;

/// Load and latency of servers that speak the MongoDB protocol
#[derive(Parser)]
#[command(name = "baton-bench")]
struct Cli {
    #[command(flatten)]
    args: baton_bench::Args,
}

fn main() -> ExitCode {
    match baton_bench::run(Cli::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("baton-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
