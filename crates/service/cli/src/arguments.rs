//! The command line of a member, made from the table of options.
//!
//! What it deliberately does not do: know an option. The table does.

use crate::inert::ROWS;
use crate::settings::{self, Given, SETTINGS, Takes, Value};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;

/// `config` and every option of the table, as flags.
pub fn add_to(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .short('f')
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("A configuration file in mongod's YAML; flags win over it");
    let foreign = ROWS.iter().filter(|row| !row.flag.is_empty());
    let foreign = foreign.map(|row| taking(Arg::new(row.key).long(row.flag).hide(true), row.takes));
    command.arg(config).args(SETTINGS.iter().map(flag)).args(foreign)
}

fn flag(setting: &settings::Setting) -> Arg {
    let heading = match setting.key.split('.').next().unwrap_or_default() {
        "net" => "Network",
        "storage" => "Storage",
        "replication" => "Replication",
        "systemLog" => "Log",
        "operationProfiling" => "Slow operations",
        "security" => "Security",
        _ => "Process",
    };
    taking(Arg::new(setting.key).long(setting.flag).help(setting.help).help_heading(heading), setting.takes)
}

fn taking(arg: Arg, takes: Takes) -> Arg {
    match takes {
        Takes::One(name) => arg.value_name(name).allow_hyphen_values(true),
        Takes::Pair => arg.value_name("NAME=VALUE").action(ArgAction::Append),
        Takes::Nothing => arg.action(ArgAction::SetTrue),
    }
}

/// What was given on the command line, by key; after what the file gave, if one was named.
///
/// # Errors
/// With a text for the operator.
pub fn given(matches: &ArgMatches) -> Result<Given, String> {
    let mut given = match matches.get_one::<PathBuf>("config") {
        Some(path) => crate::config_file::read(path)?,
        None => Given::new(),
    };
    let ours = SETTINGS.iter().map(|setting| (setting.key, setting.flag, setting.takes));
    let foreign = ROWS.iter().filter(|row| !row.flag.is_empty()).map(|row| (row.key, row.flag, row.takes));
    for (key, flag, takes) in ours.chain(foreign) {
        let value = match takes {
            Takes::One(_) => matches.get_one::<String>(key).map(|text| Value::Text(text.clone())),
            Takes::Nothing => matches.get_flag(key).then_some(Value::Switch(true)),
            Takes::Pair => pairs(flag, matches.get_many::<String>(key))?,
        };
        match (value, given.get_mut(key)) {
            (Some(Value::Pairs(more)), Some(Value::Pairs(pairs))) => pairs.extend(more),
            (Some(value), _) => {
                given.insert(key.to_owned(), number_if_it_is_one(value));
            }
            (None, _) => {}
        }
    }
    Ok(given)
}

/// So that `getCmdLineOpts` shows a port as a number, whether it came from a flag or from the file.
fn number_if_it_is_one(value: Value) -> Value {
    match value {
        Value::Text(text) => text.parse().map_or(Value::Text(text), Value::Number),
        other => other,
    }
}

fn pairs<'a>(flag: &str, texts: Option<impl Iterator<Item = &'a String>>) -> Result<Option<Value>, String> {
    let Some(texts) = texts else { return Ok(None) };
    let mut pairs = Vec::new();
    for text in texts {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("--{flag} {text}: must be name=value"))?;
        pairs.push((name.to_owned(), Value::Text(value.to_owned())));
    }
    Ok(Some(Value::Pairs(pairs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Given {
        given(&add_to(Command::new("t").no_binary_name(true)).get_matches_from(arguments)).unwrap()
    }

    #[test]
    fn flags_win_over_the_file_and_parameters_add_up() {
        let directory = std::env::temp_dir().join(format!("baton-arguments-{}", std::process::id()));
        std::fs::write(&directory, "net:\n  port: 5\n  bindIp: '::1'\nsetParameter: { a: 1 }\n").unwrap();
        let path = directory.to_str().unwrap();
        let given = parse(&["--config", path, "--port", "6", "--setParameter", "b=2"]);
        std::fs::remove_file(&directory).unwrap();
        assert_eq!(given["net.port"], Value::Number(6.0));
        assert_eq!(given["net.bindIp"], Value::Text("::1".into()));
        let Value::Pairs(pairs) = &given["setParameter"] else { panic!("{given:?}") };
        assert_eq!(pairs.iter().map(|(k, _)| k.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
