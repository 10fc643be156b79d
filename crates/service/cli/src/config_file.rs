//! The configuration file: mongod's YAML.
//!
//! Invariant: a key that Baton does not know is refused by its full name and its line, and all of them at once, so that a misspelt
//! option is never silently left out.
//! What it deliberately does not do: expansion (`__exec`, `__rest`).

use crate::inert;
use crate::settings::{self, Given, Value};
use serde_yaml_ng::Value as Yaml;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads a file.
///
/// # Errors
/// With a text for the operator that names the file and every key that is wrong.
pub fn read(path: &Path) -> Result<Given, String> {
    let text =
        std::fs::read_to_string(path).map_err(|e| format!("Error opening config file {}: {e}", path.display()))?;
    parse(&text).map_err(|why| {
        let apart = if why.contains('\n') { "\n  " } else { " " };
        format!("Error parsing config file {}:{apart}{}", path.display(), why.replace('\n', "\n  "))
    })
}

fn parse(text: &str) -> Result<Given, String> {
    let mut file = File { given: Given::new(), faults: Vec::new() };
    match serde_yaml_ng::from_str(text).map_err(|e| e.to_string())? {
        Yaml::Null => {}
        Yaml::Mapping(mapping) => file.flatten("", &mapping),
        _ => return Err("the file must be a mapping of options".into()),
    }
    if file.faults.is_empty() {
        return Ok(file.given);
    }
    let lines = lines_of(text);
    let mut faults: Vec<(usize, String)> =
        file.faults.into_iter().map(|(key, why)| (line_of(&lines, &key), why)).collect();
    faults.sort();
    let told = faults.into_iter().map(|(line, why)| if line == 0 { why } else { format!("line {line}: {why}") });
    Err(told.collect::<Vec<_>>().join("\n"))
}

/// A file that is being read.
struct File {
    given: Given,
    /// What is wrong, and with which key.
    faults: Vec<(String, String)>,
}

impl File {
    fn flatten(&mut self, prefix: &str, mapping: &serde_yaml_ng::Mapping) {
        for (name, yaml) in mapping {
            let Some(name) = name.as_str() else {
                self.faults.push((prefix.to_owned(), format!("a key below '{prefix}' is not a word")));
                continue;
            };
            let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            if let Err(why) = self.take(&key, yaml) {
                self.faults.push((key, why));
            }
        }
    }

    fn take(&mut self, key: &str, yaml: &Yaml) -> Result<(), String> {
        match (settings::by_key(key), yaml) {
            // A section whose options are all commented out.
            (_, Yaml::Null) if is_section(key) => {}
            (Some(setting), Yaml::Mapping(pairs)) => {
                let pairs = pairs.iter().map(|(k, v)| {
                    let name = k.as_str().ok_or_else(|| format!("a key below '{key}' is not a word"))?;
                    Ok((name.to_owned(), scalar(&format!("{key}.{name}"), v)?))
                });
                self.given.insert(setting.key.into(), Value::Pairs(pairs.collect::<Result<_, String>>()?));
            }
            (Some(setting), value) => {
                self.given.insert(setting.key.into(), scalar(key, value)?);
            }
            (None, Yaml::Mapping(inner)) if is_section(key) => self.flatten(key, inner),
            (None, yaml) => {
                inert::by_key(key).ok_or_else(|| format!("Unrecognized option: {key}"))?;
                self.given.insert(key.to_owned(), any(yaml));
            }
        }
        Ok(())
    }
}

/// Whether some option's key begins with this one.
fn is_section(key: &str) -> bool {
    let is_within = |other: &str| other.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
    settings::SETTINGS.iter().any(|s| is_within(s.key)) || inert::ROWS.iter().any(|row| is_within(row.key))
}

fn scalar(key: &str, yaml: &Yaml) -> Result<Value, String> {
    match yaml {
        Yaml::String(text) => Ok(Value::Text(text.clone())),
        Yaml::Bool(on) => Ok(Value::Switch(*on)),
        Yaml::Number(n) => Ok(Value::Number(n.as_f64().unwrap_or(f64::NAN))),
        // `bindIp: [a, b]` is as good as `bindIp: a,b`.
        Yaml::Sequence(list) => {
            let words: Option<Vec<_>> = list.iter().map(Yaml::as_str).collect();
            words.map(|w| Value::Text(w.join(","))).ok_or_else(|| format!("{key} must be a list of words"))
        }
        Yaml::Null => Err(format!("{key} has no value")),
        Yaml::Mapping(_) | Yaml::Tagged(_) => Err(format!("{key} must be one value")),
    }
}

/// A value of whatever form, of an option that has no effect in any.
fn any(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Mapping(pairs) => {
            Value::Pairs(pairs.iter().filter_map(|(k, v)| Some((k.as_str()?.to_owned(), any(v)))).collect())
        }
        other => scalar("", other).unwrap_or_else(|_| Value::Text(String::new())),
    }
}

/// The line of each key, by its full name. It knows the form with indentation, one key a line; of `{a: 1, b: 2}` the line of
/// what is before it.
fn lines_of(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let Some((name, rest)) = trimmed.split_once(':') else { continue };
        if trimmed.starts_with(['#', '-', '{', '[']) || !(rest.is_empty() || rest.starts_with(' ')) {
            continue;
        }
        let indent = line.len() - trimmed.len();
        above.retain(|(other, _)| *other < indent);
        let name = name.trim().trim_matches(['"', '\'']);
        let key = above.last().map_or_else(|| name.to_owned(), |(_, prefix)| format!("{prefix}.{name}"));
        lines.entry(key.clone()).or_insert(index + 1);
        above.push((indent, key));
    }
    lines
}

/// The line of a key, or of the nearest section that it is in; 0 if it is not found.
fn line_of(lines: &BTreeMap<String, usize>, key: &str) -> usize {
    let mut key = key;
    loop {
        if let Some(line) = lines.get(key) {
            return *line;
        }
        match key.rsplit_once('.') {
            Some((section, _)) => key = section,
            None => return 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mongods_file_is_understood() {
        let given = parse(
            "storage:\n  dbPath: /d\nnet:\n  port: 5\n  bindIp: [127.0.0.1, '::1']\nsetParameter:\n  notablescan: true\n\
             security:\n",
        )
        .unwrap();
        assert_eq!(given["storage.dbPath"], Value::Text("/d".into()));
        assert_eq!(given["net.port"], Value::Number(5.0));
        assert_eq!(given["net.bindIp"], Value::Text("127.0.0.1,::1".into()));
        assert_eq!(given["setParameter"], Value::Pairs(vec![("notablescan".into(), Value::Switch(true))]));
    }

    /// What MongoDB's package for Debian puts into /etc/mongod.conf, with its comments away, and older files' sections.
    #[test]
    fn the_file_of_mongodbs_package_is_understood() {
        let given = parse(
            "# mongod.conf\n\nstorage:\n  dbPath: /var/lib/mongodb\n#  engine:\n#  wiredTiger:\n  journal:\n    enabled: true\n\
             systemLog:\n  destination: file\n  logAppend: true\n  path: /var/log/mongodb/mongod.log\n\
             net:\n  port: 27017\n  bindIp: 127.0.0.1\nprocessManagement:\n  timeZoneInfo: /usr/share/zoneinfo\n\
             #security:\n#operationProfiling:\n#replication:\n#sharding:\nreplication:\noperationProfiling:\nsetParameter:\n",
        )
        .unwrap();
        assert_eq!(given["processManagement.timeZoneInfo"], Value::Text("/usr/share/zoneinfo".into()));
        assert_eq!(given["storage.journal.enabled"], Value::Switch(true));
        assert!(!given.contains_key("setParameter"));
    }

    #[test]
    fn all_unknown_keys_are_named_in_full_with_their_lines() {
        let why =
            parse("# a\nnet:\n  prot: 5\n  port: 6\nstorage:\n  # b\n  wiredTigger:\n    x: 1\nnett: 1\n").unwrap_err();
        assert_eq!(
            why,
            "line 3: Unrecognized option: net.prot\nline 7: Unrecognized option: storage.wiredTigger\n\
             line 9: Unrecognized option: nett"
        );
        assert_eq!(
            parse("net: { prot: 5, http: { enabld: 1 } }\n").unwrap_err(),
            "line 1: Unrecognized option: net.http.enabld\nline 1: Unrecognized option: net.prot"
        );
    }

    #[test]
    fn what_is_no_mapping_is_refused_and_an_empty_file_is_not() {
        assert!(parse("- a\n- b\n").is_err());
        assert!(parse("net:\n  port:\n").unwrap_err().contains("line 2: net.port has no value"));
        assert!(parse("").unwrap().is_empty());
    }
}
