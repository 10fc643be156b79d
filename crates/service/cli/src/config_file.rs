//! The configuration file: mongod's YAML.
//!
//! Invariant: a key that is not in the table of options is refused by its full name, so a misspelt option is never
//! silently left out.
//! What it deliberately does not do: expansion (`__exec`, `__rest`).

use crate::settings::{self, Value};
use serde_yaml_ng::Value as Yaml;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads a file.
///
/// # Errors
/// With a text for the operator that names the file and the key.
pub fn read(path: &Path) -> Result<BTreeMap<&'static str, Value>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|e| format!("Error opening config file {}: {e}", path.display()))?;
    parse(&text).map_err(|e| format!("Error parsing config file {}: {e}", path.display()))
}

fn parse(text: &str) -> Result<BTreeMap<&'static str, Value>, String> {
    let mut given = BTreeMap::new();
    match serde_yaml_ng::from_str(text).map_err(|e| e.to_string())? {
        Yaml::Null => {}
        Yaml::Mapping(mapping) => flatten("", &mapping, &mut given)?,
        _ => return Err("the file must be a mapping of options".into()),
    }
    Ok(given)
}

fn flatten(
    prefix: &str,
    mapping: &serde_yaml_ng::Mapping,
    given: &mut BTreeMap<&'static str, Value>,
) -> Result<(), String> {
    for (name, yaml) in mapping {
        let name = name.as_str().ok_or_else(|| format!("a key below '{prefix}' is not a word"))?;
        let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        match (settings::by_key(&key), yaml) {
            (Some(setting), Yaml::Mapping(pairs)) => {
                let pairs = pairs.iter().map(|(k, v)| {
                    let name = k.as_str().ok_or_else(|| format!("a key below '{key}' is not a word"))?;
                    Ok((name.to_owned(), scalar(&format!("{key}.{name}"), v)?))
                });
                given.insert(setting.key, Value::Pairs(pairs.collect::<Result<_, String>>()?));
            }
            (Some(setting), value) => {
                given.insert(setting.key, scalar(&key, value)?);
            }
            (None, Yaml::Mapping(inner)) if is_section(&key) => flatten(&key, inner, given)?,
            (None, Yaml::Null) if is_section(&key) => {}
            (None, _) => return Err(format!("Unrecognized option: {key}")),
        }
    }
    Ok(())
}

/// Whether some option's key begins with this one.
fn is_section(key: &str) -> bool {
    settings::SETTINGS.iter().any(|s| s.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
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

    #[test]
    fn an_unknown_key_is_named_in_full() {
        assert_eq!(parse("net:\n  prot: 5\n").unwrap_err(), "Unrecognized option: net.prot");
        assert_eq!(parse("nett:\n  port: 5\n").unwrap_err(), "Unrecognized option: nett");
    }

    #[test]
    fn what_is_no_mapping_is_refused_and_an_empty_file_is_not() {
        assert!(parse("- a\n- b\n").is_err());
        assert!(parse("net:\n  port:\n").is_err());
        assert!(parse("").unwrap().is_empty());
    }
}
