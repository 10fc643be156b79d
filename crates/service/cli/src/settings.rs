//! Every option of a member: its flag, its place in the configuration file, and what it sets. One table, one row each.
//!
//! Flags and keys are mongod's, because that is what hands know. A flag wins over the file.
//!
//! Invariants: what is in the table has an effect, or is refused with the reason; mongod's options that have none here are in a
//! table of their own ([`crate::inert`]); what is in neither is refused by name, in the file as on the command line.
//! What it deliberately does not do: read the file or the command line ([`crate::config_file`], [`crate::arguments`]).

use crate::inert;
use baton_node::Options;
use baton_wire::Compressor;
use bson::{Bson, Document};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What was given, by key.
pub type Given = BTreeMap<String, Value>;

/// A value as it was given.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A word.
    Text(String),
    /// A number.
    Number(f64),
    /// A switch.
    Switch(bool),
    /// Names with values (`setParameter`).
    Pairs(Vec<(String, Value)>),
}

impl Value {
    fn to_bson(&self) -> Bson {
        match self {
            Self::Text(text) => Bson::String(text.clone()),
            Self::Number(n) if n.fract() == 0.0 && n.abs() < 2e9 => Bson::Int32(*n as i32),
            Self::Number(n) => Bson::Double(*n),
            Self::Switch(on) => Bson::Boolean(*on),
            Self::Pairs(pairs) => Bson::Document(pairs.iter().map(|(k, v)| (k.clone(), v.to_bson())).collect()),
        }
    }

    /// As a word.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(n) => n.to_string(),
            Self::Switch(on) => on.to_string(),
            Self::Pairs(_) => String::new(),
        }
    }

    fn number(&self) -> Result<f64, String> {
        match self {
            Self::Number(n) => Ok(*n),
            Self::Text(text) => text.trim().parse().map_err(|_| format!("'{text}' is not a number")),
            Self::Switch(_) | Self::Pairs(_) => Err("must be a number".into()),
        }
    }

    fn number_in(&self, min: f64, max: f64) -> Result<f64, String> {
        let n = self.number()?;
        if (min..=max).contains(&n) { Ok(n) } else { Err(format!("{n} must be between {min} and {max}")) }
    }

    fn switch(&self) -> Result<bool, String> {
        match self {
            Self::Switch(on) => Ok(*on),
            Self::Text(text) if text == "true" => Ok(true),
            Self::Text(text) if text == "false" => Ok(false),
            other => Err(format!("'{}' is neither true nor false", other.text())),
        }
    }
}

/// Where the log goes and how talkative it is.
#[derive(Clone, Debug, Default)]
pub struct LogSettings {
    /// The file; `None` for standard output.
    pub path: Option<PathBuf>,
    /// Whether to go on with a file that is there, instead of moving it away.
    pub append: bool,
    /// On rotation, open the same file again instead of moving it away.
    pub reopen: bool,
    /// 0 to 5.
    pub verbosity: u8,
}

/// All that a member is told at its start.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The member's options.
    pub options: Options,
    /// The log's.
    pub log: LogSettings,
    /// What the operator is to know at the start.
    pub warnings: Vec<String>,
}

/// How a flag takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// One value, by the name that help gives it.
    One(&'static str),
    /// `name=value`, as often as wanted.
    Pair,
    /// Nothing: it is a switch.
    Nothing,
}

/// One option.
pub struct Setting {
    /// The key in the configuration file.
    pub key: &'static str,
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// How the flag takes its value.
    pub takes: Takes,
    /// What it does.
    pub help: &'static str,
    /// Does it.
    pub apply: fn(&mut Config, &Value) -> Result<(), String>,
}

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * 1024.0;
const GIB: f64 = MIB * 1024.0;

fn refuse_unless_false(value: &Value, why: &str) -> Result<(), String> {
    if value.switch()? { Err(why.to_owned()) } else { Ok(()) }
}

fn cache_size(config: &mut Config, value: &Value) -> Result<(), String> {
    config.options.cache_size_bytes = Some((value.number_in(0.0625, 10_000.0)? * GIB) as usize);
    Ok(())
}

/// All options, by key.
pub static SETTINGS: &[Setting] = &[
    Setting {
        key: "net.bindIp",
        flag: "bind_ip",
        takes: Takes::One("ADDRESSES"),
        help: "Addresses to listen on, separated by commas [default: 127.0.0.1]",
        apply: |c, v| {
            c.options.bind_ip =
                v.text().split(',').map(|ip| ip.trim().to_owned()).filter(|ip| !ip.is_empty()).collect();
            if c.options.bind_ip.is_empty() { Err("needs an address".into()) } else { Ok(()) }
        },
    },
    Setting {
        key: "net.bindIpAll",
        flag: "bind_ip_all",
        takes: Takes::Nothing,
        help: "Listen on every address of the machine",
        apply: |c, v| {
            if v.switch()? {
                c.options.bind_ip = vec!["0.0.0.0".into()];
            }
            Ok(())
        },
    },
    Setting {
        key: "net.compression.compressors",
        flag: "networkMessageCompressors",
        takes: Takes::One("NAMES"),
        help: "Compressors to offer, separated by commas, or 'disabled' [default: snappy,zstd,zlib]",
        apply: |c, v| {
            c.options.compressors.clear();
            for name in v.text().split(',').map(str::trim).filter(|n| *n != "disabled") {
                let known = [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib];
                match known.into_iter().find(|k| k.name() == name) {
                    Some(compressor) => c.options.compressors.push(compressor),
                    None => return Err(format!("'{name}' is no compressor; there are snappy, zstd and zlib")),
                }
            }
            Ok(())
        },
    },
    Setting {
        key: "net.http.enabled",
        flag: "http",
        takes: Takes::One("true|false"),
        help: "Whether to serve the status page, /metrics and /healthz over HTTP, on the port 1000 above [default: true]",
        apply: |c, v| {
            c.options.http = v.switch()?;
            Ok(())
        },
    },
    Setting {
        key: "net.maxIncomingConnections",
        flag: "maxConns",
        takes: Takes::One("COUNT"),
        help: "The most connections at once [default: 65536]",
        apply: |c, v| {
            c.options.connection_count_max = v.number_in(5.0, 1e6)? as usize;
            Ok(())
        },
    },
    Setting {
        key: "net.port",
        flag: "port",
        takes: Takes::One("PORT"),
        help: "The port to listen on; 0 takes any free one [default: 27017]",
        apply: |c, v| {
            c.options.port = v.number_in(0.0, 65_535.0)? as u16;
            Ok(())
        },
    },
    Setting {
        key: "net.tls.mode",
        flag: "tlsMode",
        takes: Takes::One("MODE"),
        help: "Only 'disabled': TLS is not implemented yet",
        apply: |_, v| match v.text().as_str() {
            "disabled" => Ok(()),
            _ => Err("TLS is not implemented yet; leave it 'disabled' and keep to trusted networks".into()),
        },
    },
    Setting {
        key: "net.unixDomainSocket.enabled",
        flag: "unixSocket",
        takes: Takes::One("true|false"),
        help: "Whether to listen on a Unix socket, too [default: true]",
        apply: |c, v| {
            if !v.switch()? {
                c.options.unix_socket_directory = None;
            }
            Ok(())
        },
    },
    Setting {
        key: "net.unixDomainSocket.pathPrefix",
        flag: "unixSocketPrefix",
        takes: Takes::One("DIRECTORY"),
        help: "The directory for the Unix socket [default: /tmp]",
        apply: |c, v| {
            c.options.unix_socket_directory = Some(PathBuf::from(v.text()));
            Ok(())
        },
    },
    Setting {
        key: "operationProfiling.mode",
        flag: "profile",
        takes: Takes::One("LEVEL"),
        help: "What to keep in system.profile: 0 or off, 1 or slowOp, 2 or all [default: off]",
        apply: |c, v| {
            c.options.profile_level = match v.text().as_str() {
                "0" | "off" => 0,
                "1" | "slowOp" => 1,
                "2" | "all" => 2,
                other => return Err(format!("'{other}' is no profiling level; use 0, 1 or 2 (off, slowOp, all)")),
            };
            Ok(())
        },
    },
    Setting {
        key: "operationProfiling.slowOpThresholdMs",
        flag: "slowms",
        takes: Takes::One("MILLISECONDS"),
        help: "From when on an operation is slow, and logged [default: 100]",
        apply: |c, v| {
            c.options.slow_ms = v.number_in(-1.0, 1e12)? as i64;
            Ok(())
        },
    },
    Setting {
        key: "processManagement.fork",
        flag: "fork",
        takes: Takes::Nothing,
        help: "Refused: leave the background to your service manager",
        apply: |_, v| {
            refuse_unless_false(
                v,
                "baton stays in the foreground; let systemd, a container or '&' put it in the background",
            )
        },
    },
    Setting {
        key: "processManagement.pidFilePath",
        flag: "pidfilepath",
        takes: Takes::One("FILE"),
        help: "A file to write the process id to",
        apply: |c, v| {
            c.options.pid_file = Some(PathBuf::from(v.text()));
            Ok(())
        },
    },
    Setting {
        key: "replication.advertisedHost",
        flag: "advertisedHost",
        takes: Takes::One("HOST:PORT"),
        help: "The address that drivers of the set are told to use [default: the first of --bind_ip]",
        apply: |c, v| {
            let host = v.text();
            if !host.contains(':') {
                return Err("must be host:port".into());
            }
            c.options.advertised_host = Some(host);
            Ok(())
        },
    },
    Setting {
        key: "replication.oplogSizeMB",
        flag: "oplogSize",
        takes: Takes::One("MEGABYTES"),
        help: "The size of a new oplog; one that is there keeps its own [default: a twentieth of the free disk space, 990 at \
               least]",
        apply: |c, v| {
            c.options.oplog_size_bytes = Some((v.number_in(1.0, 1e9)? * MIB) as u64);
            Ok(())
        },
    },
    Setting {
        key: "replication.replSetName",
        flag: "replSet",
        takes: Takes::One("NAME"),
        help: "Be a member of the replica set of this name; rs.initiate() on one of its members makes the set",
        apply: |c, v| {
            let text = v.text();
            let name = text.split('/').next().unwrap_or_default();
            if name.is_empty() {
                return Err("needs a name".into());
            }
            c.options.replica_set = Some(name.to_owned());
            Ok(())
        },
    },
    Setting {
        key: "security.authorization",
        flag: "authorization",
        takes: Takes::One("enabled|disabled"),
        help: "Only 'disabled': users are not implemented yet",
        apply: |_, v| {
            match v.text().as_str() {
            "disabled" | "false" => Ok(()),
            _ => Err("users and roles are not implemented yet: clients would not be checked. Set it to disabled, and listen \
                      on trusted addresses only (net.bindIp)"
                .into()),
        }
        },
    },
    Setting {
        key: "security.keyFile",
        flag: "keyFile",
        takes: Takes::One("FILE"),
        help: "Refused: users, and members' authentication to each other, are not implemented yet",
        apply: |_, _| {
            Err("members do not authenticate to each other yet, so that it would protect nothing. Leave it out, and listen \
                 on trusted addresses only (net.bindIp)"
                .into())
        },
    },
    Setting {
        key: "setParameter",
        flag: "setParameter",
        takes: Takes::Pair,
        help: "A parameter, as for the command of that name",
        apply: |c, v| match v {
            Value::Pairs(pairs) => {
                c.options.parameters.extend(pairs.iter().map(|(k, v)| (k.clone(), v.text())));
                Ok(())
            }
            _ => Err("must be name=value".into()),
        },
    },
    Setting {
        key: "storage.cacheSizeGB",
        flag: "cacheSizeGB",
        takes: Takes::One("GIGABYTES"),
        help: "Memory for data, as a fraction if wanted [default: half of what the machine has beyond 1]",
        apply: cache_size,
    },
    Setting {
        key: "storage.dbPath",
        flag: "dbpath",
        takes: Takes::One("DIRECTORY"),
        help: "Where the data is; made if it is not there [default: /data/db]",
        apply: |c, v| {
            c.options.data_directory = PathBuf::from(v.text());
            Ok(())
        },
    },
    Setting {
        key: "storage.engine",
        flag: "storageEngine",
        takes: Takes::One("NAME"),
        help: "Only 'rocksdb'; 'wiredTiger' is taken with a warning",
        apply: |c, v| match v.text().as_str() {
            "rocksdb" => Ok(()),
            "wiredTiger" => {
                c.warnings.push("storage.engine: wiredTiger has no effect: data is kept in RocksDB".into());
                Ok(())
            }
            other => Err(format!("there is no storage engine '{other}', only rocksdb")),
        },
    },
    Setting {
        key: "storage.oplogMinRetentionHours",
        flag: "oplogMinRetentionHours",
        takes: Takes::One("HOURS"),
        help: "How long entries stay in the oplog at least [default: as it was, 0 at first]",
        apply: |c, v| {
            c.options.oplog_retention_secs_min = Some((v.number_in(0.0, 1e6)? * 3600.0) as u64);
            Ok(())
        },
    },
    Setting {
        key: "storage.wiredTiger.engineConfig.cacheSizeGB",
        flag: "wiredTigerCacheSizeGB",
        takes: Takes::One("GIGABYTES"),
        help: "The same as --cacheSizeGB, by mongod's name",
        apply: cache_size,
    },
    Setting {
        key: "systemLog.destination",
        flag: "logDestination",
        takes: Takes::One("file"),
        help: "Only 'file', with --logpath; without it the log goes to standard output",
        apply: |_, v| match v.text().as_str() {
            "file" => Ok(()),
            other => Err(format!("the log cannot go to '{other}', only to a file or to standard output")),
        },
    },
    Setting {
        key: "systemLog.logAppend",
        flag: "logappend",
        takes: Takes::Nothing,
        help: "Go on with a log file that is there",
        apply: |c, v| {
            c.log.append = v.switch()?;
            Ok(())
        },
    },
    Setting {
        key: "systemLog.logRotate",
        flag: "logRotate",
        takes: Takes::One("rename|reopen"),
        help: "What logRotate and SIGUSR1 do with the file [default: rename]",
        apply: |c, v| {
            c.log.reopen = match v.text().as_str() {
                "rename" => false,
                "reopen" => true,
                other => return Err(format!("'{other}' is neither rename nor reopen")),
            };
            Ok(())
        },
    },
    Setting {
        key: "systemLog.path",
        flag: "logpath",
        takes: Takes::One("FILE"),
        help: "A file for the log [default: standard output]",
        apply: |c, v| {
            c.log.path = Some(PathBuf::from(v.text()));
            Ok(())
        },
    },
    Setting {
        key: "systemLog.verbosity",
        flag: "verbosity",
        takes: Takes::One("LEVEL"),
        help: "How talkative the log is, 0 to 5 [default: 0]",
        apply: |c, v| {
            c.log.verbosity = v.number_in(0.0, 5.0)? as u8;
            Ok(())
        },
    },
];

/// The option with this key.
pub fn by_key(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|s| s.key == key)
}

/// Makes a configuration of what was given; the error names every option that is wrong, as its giver knows it.
pub fn resolve(given: &Given) -> Result<Config, String> {
    let mut config = Config::default();
    let mut faults = Vec::new();
    for setting in SETTINGS {
        if let Some(value) = given.get(setting.key)
            && let Err(why) = (setting.apply)(&mut config, value)
        {
            faults.push(format!("--{} ({}): {why}", setting.flag, setting.key));
        }
    }
    if given.contains_key("systemLog.destination") && config.log.path.is_none() {
        faults.push("systemLog.destination: file needs systemLog.path".into());
    }
    judge_foreign(given, &mut config, &mut faults);
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    config.options.parsed = as_document(given);
    Ok(config)
}

/// mongod's options that Baton does not have.
fn judge_foreign(given: &Given, config: &mut Config, faults: &mut Vec<String>) {
    let mut judge = |key: &str, value: &Value| {
        let Some(row) = inert::by_key(key) else { return false };
        match row.judge(key, value) {
            Ok(warning) => config.warnings.extend(warning),
            Err(why) => faults.push(format!("{key}: {why}")),
        }
        true
    };
    for (key, value) in given.iter().filter(|(key, _)| by_key(key).is_none()) {
        judge(key, value);
    }
    let mut taken = Vec::new();
    if let Some(Value::Pairs(parameters)) = given.get("setParameter") {
        taken.extend(parameters.iter().filter(|(name, value)| judge(&format!("setParameter.{name}"), value)));
    }
    config.options.parameters.retain(|(name, _)| !taken.iter().any(|(other, _)| other == name));
}

/// The options as `getCmdLineOpts` shows them: nested by the dots in their keys.
fn as_document(given: &Given) -> Document {
    fn insert(document: &mut Document, key: &str, value: Bson) {
        match key.split_once('.') {
            None => {
                document.insert(key, value);
            }
            Some((head, rest)) => {
                let inner = document.entry(head).or_insert_with(|| Bson::Document(Document::new()));
                if let Bson::Document(inner) = inner {
                    insert(inner, rest, value);
                }
            }
        }
    }
    let mut document = Document::new();
    for (key, value) in given {
        insert(&mut document, key, value.to_bson());
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn the_table_is_sorted_and_no_flag_occurs_twice() {
        for pair in SETTINGS.windows(2) {
            assert!(pair[0].key < pair[1].key, "{} and {}", pair[0].key, pair[1].key);
        }
        let mut flags: Vec<_> = SETTINGS.iter().map(|s| s.flag).collect();
        flags.sort_unstable();
        flags.dedup();
        assert_eq!(flags.len(), SETTINGS.len());
    }

    #[test]
    fn what_was_given_is_applied_and_shown_nested() {
        let given = Given::from([
            ("net.port".into(), Value::Number(5000.0)),
            ("replication.replSetName".into(), Value::Text("rs0/ignored:1".into())),
            ("setParameter".into(), Value::Pairs(vec![("enableTestCommands".into(), Value::Text("1".into()))])),
        ]);
        let config = resolve(&given).unwrap();
        assert_eq!(config.options.port, 5000);
        assert_eq!(config.options.replica_set.as_deref(), Some("rs0"));
        assert_eq!(config.options.parameters, [("enableTestCommands".to_owned(), "1".to_owned())]);
        assert_eq!(
            config.options.parsed,
            doc! {
                "net": { "port": 5000 }, "replication": { "replSetName": "rs0/ignored:1" },
                "setParameter": { "enableTestCommands": "1" },
            }
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_the_reason() {
        for (key, value) in [
            ("net.port", Value::Text("x".into())),
            ("net.port", Value::Number(70_000.0)),
            ("processManagement.fork", Value::Switch(true)),
            ("security.keyFile", Value::Text("f".into())),
            ("net.tls.mode", Value::Text("requireTLS".into())),
            ("security.authorization", Value::Text("enabled".into())),
            ("net.tls.certificateKeyFile", Value::Text("f".into())),
            ("systemLog.destination", Value::Text("file".into())),
        ] {
            let error = resolve(&Given::from([(key.into(), value)])).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
    }
    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let given = Given::from([
            ("net.port".into(), Value::Text("x".into())),
            ("security.keyFile".into(), Value::Text("f".into())),
            ("security.ldap.servers".into(), Value::Text("s".into())),
        ]);
        assert_eq!(resolve(&given).unwrap_err().lines().count(), 3);
    }

    #[test]
    fn what_is_inert_is_taken_with_a_warning_each() {
        let given = Given::from([
            ("processManagement.timeZoneInfo".into(), Value::Text("/usr/share/zoneinfo".into())),
            ("storage.engine".into(), Value::Text("wiredTiger".into())),
            ("storage.wiredTiger.engineConfig.journalCompressor".into(), Value::Text("snappy".into())),
            (
                "setParameter".into(),
                Value::Pairs(vec![
                    ("enableLocalhostAuthBypass".into(), Value::Switch(false)),
                    ("notablescan".into(), Value::Switch(true)),
                ]),
            ),
        ]);
        let config = resolve(&given).unwrap();
        assert_eq!(config.warnings.len(), 4, "{:?}", config.warnings);
        assert!(config.warnings.iter().any(|w| w.starts_with("processManagement.timeZoneInfo has no effect")));
        assert_eq!(config.options.parameters, [("notablescan".to_owned(), "true".to_owned())]);
    }
}
