//! `baton status URI`: who the members are and what they are doing, as text.
//!
//! What it deliberately does not do: watch. `watch baton status …` does.

use crate::connection::Connection;
use bson::{Bson, Document, doc};
use clap::{Arg, ArgMatches, Command};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  baton status mongodb://127.0.0.1:27017
  watch baton status mongodb://127.0.0.1:27017";

/// The description of `baton status`.
pub fn command() -> Command {
    Command::new("status")
        .about("Show a set's members, their roles, lag and background tasks")
        .after_help(EXAMPLES)
        .arg(Arg::new("uri").value_name("URI").required(true).help("mongodb://host:port of a member"))
}

/// Carries it out: exit code 0, or 1 if the member cannot be asked.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let uri = matches.get_one::<String>("uri").map_or("", String::as_str);
    match ask(uri) {
        Ok((status, server)) => {
            print!("{}", describe(&status, &server));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("baton: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The set's status, or what a standalone has in its place; and the member's own figures.
fn ask(uri: &str) -> Result<(Document, Document), String> {
    let mut connection = Connection::open(uri)?;
    let server = connection.run(doc! { "serverStatus": 1, "metrics": 0 })?;
    let hello = connection.run(doc! { "hello": 1 })?;
    if hello.contains_key("setName") {
        return Ok((connection.run(doc! { "replSetGetStatus": 1 })?, server));
    }
    let host = server.get_str("host").unwrap_or_default();
    let uptime = server.get_f64("uptime").unwrap_or(0.0);
    Ok((doc! { "members": [{ "name": host, "stateStr": "STANDALONE", "uptime": uptime as i64 }] }, server))
}

fn number(document: &Document, key: &str) -> f64 {
    match document.get(key) {
        Some(Bson::Int32(n)) => f64::from(*n),
        Some(Bson::Int64(n)) => *n as f64,
        Some(Bson::Double(n)) => *n,
        _ => 0.0,
    }
}

/// Milliseconds of a date field.
fn date_ms(document: &Document, key: &str) -> Option<i64> {
    document.get_datetime(key).ok().map(|d| d.timestamp_millis())
}

fn describe(status: &Document, server: &Document) -> String {
    let mut text = String::new();
    if let Ok(set) = status.get_str("set") {
        text.push_str(&format!("set {set}, term {}\n", number(status, "term")));
    }
    let members: Vec<&Document> =
        status.get_array("members").map(|m| m.iter().filter_map(Bson::as_document).collect()).unwrap_or_default();
    let newest_ms = members.iter().filter_map(|m| date_ms(m, "optimeDate")).max();
    text.push_str(&format!("{:<28} {:<12} {:>10} {:>8}  tasks\n", "member", "role", "uptime s", "lag s"));
    for member in members {
        let lag = match (newest_ms, date_ms(member, "optimeDate")) {
            (Some(newest), Some(own)) => format!("{:.0}", (newest - own) as f64 / 1000.0),
            _ => "-".into(),
        };
        let tasks: Vec<String> = member
            .get_array("tasks")
            .map(|tasks| tasks.iter().filter_map(Bson::as_document).map(describe_task).collect())
            .unwrap_or_default();
        text.push_str(&format!(
            "{:<28} {:<12} {:>10.0} {lag:>8}  {}\n",
            member.get_str("name").unwrap_or("?"),
            member.get_str("stateStr").unwrap_or("?"),
            number(member, "uptime"),
            if tasks.is_empty() { "none".into() } else { tasks.join(", ") },
        ));
    }
    text.push_str(&sync_tree(status));
    text.push_str(&last_election(status));
    let section = |name: &str| server.get_document(name).cloned().unwrap_or_default();
    let (connections, memory) = (section("connections"), section("mem"));
    text.push_str(&format!(
        "asked {}: {:.0} connections, {:.0} MB resident\n",
        server.get_str("host").unwrap_or("?"),
        number(&connections, "current"),
        number(&memory, "resident"),
    ));
    text
}

/// Who fetches from whom, drawn; nothing for a set of one.
fn sync_tree(status: &Document) -> String {
    let members = status.get_array("members").map(Vec::as_slice).unwrap_or_default();
    let edges: Vec<(&str, &str)> = members
        .iter()
        .filter_map(Bson::as_document)
        .filter_map(|member| Some((member.get_str("name").ok()?, member.get_str("syncSourceHost").unwrap_or_default())))
        .collect();
    if edges.len() < 2 {
        return String::new();
    }
    let mut text = String::from("fetching\n");
    let is_member = |name: &str| edges.iter().any(|(member, _)| *member == name);
    for (name, _) in edges.iter().filter(|(_, source)| !is_member(source)) {
        text.push_str(&format!("  {name}\n"));
        draw_below(name, "  ", &edges, edges.len(), &mut text);
    }
    text
}

/// `depth` ends a circle, which members' views of different moments can make.
fn draw_below(source: &str, indent: &str, edges: &[(&str, &str)], depth: usize, text: &mut String) {
    let below: Vec<&str> = edges.iter().filter(|(_, of)| *of == source).map(|(name, _)| *name).collect();
    for (place, name) in below.iter().enumerate().filter(|_| depth > 0) {
        let (branch, more) = if place + 1 == below.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        text.push_str(&format!("{indent}{branch}{name}\n"));
        draw_below(name, &format!("{indent}{more}"), edges, depth - 1, text);
    }
}

/// When and why the primary was elected, and up to when all is committed, as far as the member asked knows.
fn last_election(status: &Document) -> String {
    let mut text = String::new();
    if let Some(at) = status.get_document("optimes").ok().and_then(|optimes| date_ms(optimes, "lastCommittedWallTime"))
    {
        text.push_str(&format!("committed up to {}\n", bson::DateTime::from_millis(at)));
    }
    if let Ok(election) = status.get_document("electionCandidateMetrics") {
        let when = election.get_datetime("lastElectionDate").map(ToString::to_string).unwrap_or_default();
        let why = election.get_str("lastElectionReason").unwrap_or("?");
        text.push_str(&format!("elected {when} ({why})\n"));
    }
    text
}

fn describe_task(task: &Document) -> String {
    let kind = task.get_str("kind").unwrap_or("?");
    let state = task.get_str("state").unwrap_or("?");
    format!("{kind} ({state} {:.0} s)", number(task, "sinceMs") / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_a_line_with_its_lag_and_its_tasks() {
        let at = |ms| bson::DateTime::from_millis(ms);
        let task = doc! { "kind": "compaction", "state": "running", "sinceMs": 2000_i64 };
        let status = doc! { "set": "rs0", "term": 3_i64, "members": [
            { "name": "a:1", "stateStr": "PRIMARY", "uptime": 9, "optimeDate": at(10_000), "tasks": [task] },
            { "name": "b:1", "stateStr": "SECONDARY", "uptime": 9, "optimeDate": at(7_000), "tasks": [] },
        ] };
        let text = describe(&status, &doc! { "host": "a:1" });
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains("set rs0, term 3"));
        assert!(lines[2].contains("PRIMARY") && lines[2].ends_with("compaction (running 2 s)"), "{text}");
        let words: Vec<_> = lines[3].split_whitespace().collect();
        assert_eq!(words, ["b:1", "SECONDARY", "9", "3", "none"]);
    }

    #[test]
    fn who_fetches_from_whom_is_a_tree_and_a_circle_ends() {
        let member = |name: &str, source: &str| doc! { "name": name, "syncSourceHost": source };
        let status = doc! { "members": [member("a", ""), member("b", "a"), member("c", "b"), member("d", "a")] };
        assert_eq!(sync_tree(&status), "fetching\n  a\n  ├─ b\n  │  └─ c\n  └─ d\n");
        let circle = doc! { "members": [member("a", "b"), member("b", "a"), member("c", "")] };
        assert_eq!(sync_tree(&circle), "fetching\n  c\n");
        assert_eq!(sync_tree(&doc! { "members": [member("a", "")] }), "");
    }
}
