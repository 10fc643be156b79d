//! The connection string on a command line: as the first argument, or as `--uri`, which is how mongodump takes it.

use clap::{Arg, ArgMatches, Command};

/// The first argument.
pub const FIRST: &str = "uri";
/// `--uri`.
pub const FLAG: &str = "uri-flag";

/// Adds both to a command.
pub fn add_to(command: Command, help: &'static str) -> Command {
    let flag = Arg::new(FLAG).long("uri").value_name("URI").help("The same as the first argument");
    command.arg(Arg::new(FIRST).value_name("URI").required_unless_present(FLAG).help(help)).arg(flag)
}

/// What was given.
///
/// # Errors
/// If it was not, or twice.
pub fn given(matches: &ArgMatches) -> Result<String, String> {
    match (matches.get_one::<String>(FIRST), matches.get_one::<String>(FLAG)) {
        (Some(text), None) | (None, Some(text)) => Ok(text.clone()),
        (None, None) => Err("needs a connection string: mongodb://HOST:PORT".into()),
        (Some(first), Some(_)) => Err(format!("'{first}' beside --uri: one connection string is enough")),
    }
}
