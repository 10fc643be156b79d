//! The log's lines, their two forms, what is kept, and rotating.

#![allow(clippy::unwrap_used)]

use baton_telemetry::log::{Format, Log, Options, Output, Rotation};
use serde_json::{Value, json};
use tracing::subscriber::with_default;
use tracing::{debug, error, info, trace, warn};

fn log(format: Format, output: Output) -> Log {
    Log::open(&Options { format, output, rotation: Rotation::Rename, verbosity: 0 }).unwrap()
}

fn in_memory() -> Log {
    log(Format::Json, Output::Nowhere)
}

fn lines(log: &Log) -> Vec<Value> {
    log.recent().0.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_line_has_mongods_fields() {
    let log = in_memory();
    let thread = std::thread::Builder::new().name("conn7".into());
    let subscriber = log.subscriber();
    let write = move || {
        with_default(subscriber, || {
            info!(target: "NETWORK", id = 22943, remote = "127.0.0.1:5", connectionId = 7u64, ratio = 0.5, tls = false, "Connection accepted");
        });
    };
    thread.spawn(write).unwrap().join().unwrap();
    let line = lines(&log).remove(0);
    assert_eq!(line["s"], "I");
    assert_eq!(line["c"], "NETWORK");
    assert_eq!(line["id"], 22943);
    assert_eq!(line["ctx"], "conn7");
    assert_eq!(line["msg"], "Connection accepted");
    assert_eq!(
        line["attr"],
        serde_json::json!({ "remote": "127.0.0.1:5", "connectionId": 7, "ratio": 0.5, "tls": false })
    );
    let time = line["t"]["$date"].as_str().unwrap();
    assert!(time.ends_with("+00:00") && time.len() == 29, "{time}");
}

#[test]
fn whatever_a_client_sends_stays_one_valid_line() {
    let log = in_memory();
    let nasty = "a\"b\\c\n{\"s\":\"F\"}\u{0}\u{7f}\u{2028}é\r";
    with_default(log.subscriber(), || {
        info!(target: "COMMAND", id = 1, appName = nasty, infinite = f64::INFINITY, "{nasty}");
        info!(target: "COMMAND", id = 2, json.command = "{\"find\": \"c\"}", json.broken = "{\"find\": ", json.lines = "[1,\n2]", "Slow query");
    });
    for line in log.recent().0 {
        assert!(!line.contains('\n') && !line.contains('\r'));
    }
    let lines = lines(&log);
    assert_eq!(lines[0]["attr"]["appName"], nasty);
    assert_eq!(lines[0]["msg"], nasty);
    assert_eq!(lines[1]["attr"]["command"]["find"], "c");
    assert_eq!(lines[1]["attr"]["broken"], "{\"find\": ");
    assert_eq!(lines[1]["attr"]["lines"], "[1,\n2]");
}

#[test]
fn a_long_attribute_is_cut_and_the_line_says_so() {
    let log = in_memory();
    let long = "ü".repeat(20_000);
    with_default(log.subscriber(), || info!(target: "COMMAND", id = 1, long, "x"));
    let line = lines(&log).remove(0);
    assert_eq!(line["attr"]["long"].as_str().unwrap().len(), 10 * 1024);
    assert_eq!(line["truncated"]["long"], 40_000);
}

#[test]
fn severities_follow_the_level_and_verbosity_opens_the_lower_ones() {
    let log = in_memory();
    let write = || {
        error!(target: "CONTROL", id = 1, fatal = true, "f");
        error!(target: "CONTROL", id = 1, "e");
        warn!(target: "CONTROL", id = 1, "w");
        debug!(target: "CONTROL", id = 1, "d");
        trace!(target: "some::module", id = 1, "t");
    };
    let severities = |log: &Log| lines(log).iter().map(|l| l["s"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    with_default(log.subscriber(), || {
        write();
        assert_eq!(severities(&log), ["F", "E", "W"]);
        log.set_verbosity(2);
        write();
        log.set_verbosity(0);
    });
    assert_eq!(severities(&log), ["F", "E", "W", "F", "E", "W", "D1", "D2"]);
    assert_eq!(lines(&log).last().unwrap()["c"], "-", "another crate's target is no component");
}

#[test]
fn a_line_has_its_threads_name_or_that_in_which_the_thread_speaks() {
    let log = in_memory();
    with_default(log.subscriber(), || {
        info!(target: "NETWORK", id = 1, "of the thread");
        info!(target: "NETWORK", id = 2, ctx = "conn7", connectionId = 7, "of another");
    });
    let lines = lines(&log);
    assert_eq!(lines[0]["ctx"], std::thread::current().name().unwrap());
    assert_eq!((&lines[1]["ctx"], &lines[1]["attr"]), (&json!("conn7"), &json!({ "connectionId": 7 })));
}

#[test]
fn the_last_1024_lines_and_the_startup_warnings_are_kept() {
    let log = in_memory();
    with_default(log.subscriber(), || {
        warn!(target: "CONTROL", id = 22120, startupWarning = true, "Access control is not enabled");
        (0..2000).for_each(|n| info!(target: "CONTROL", id = n, "line"));
    });
    let (kept, total) = log.recent();
    assert_eq!((kept.len(), total), (1024, 2001));
    assert_eq!(lines(&log)[0]["id"], 2000 - 1024);
    let warnings = log.startup_warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains(r#""tags":["startupWarnings"]"#));
}

#[test]
fn a_file_is_appended_to_and_rotating_keeps_every_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("baton.log");
    std::fs::write(&path, "before\n").unwrap();
    let log = log(Format::Human, Output::File(path.clone()));
    with_default(log.subscriber(), || {
        for part in 0..3 {
            info!(target: "CONTROL", id = 1, part, "Part\nof the story");
            log.rotate().unwrap();
        }
        info!(target: "CONTROL", id = 1, "last");
    });
    let mut all = String::new();
    let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), 4);
    names.iter().for_each(|name| all += &std::fs::read_to_string(name).unwrap());
    assert!(all.contains("before\n"));
    for expected in ["part=0", "part=1", "part=2", "last"] {
        assert_eq!(all.matches(expected).count(), 1, "{all}");
    }
    assert!(all.contains(" I  CONTROL  "), "the human form: {all}");
    assert_eq!(all.lines().count(), 5, "one line each: {all}");
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
}

#[test]
fn reopening_follows_a_file_that_was_renamed_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("baton.log"), folder.path().join("moved"));
    let options =
        Options { format: Format::Json, output: Output::File(path.clone()), rotation: Rotation::Reopen, verbosity: 0 };
    let log = Log::open(&options).unwrap();
    with_default(log.subscriber(), || {
        info!(target: "CONTROL", id = 1, "one");
        std::fs::rename(&path, &moved).unwrap();
        info!(target: "CONTROL", id = 1, "two");
        log.rotate().unwrap();
        info!(target: "CONTROL", id = 1, "three");
    });
    assert_eq!(std::fs::read_to_string(&moved).unwrap().lines().count(), 2);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
}

#[test]
fn a_log_file_that_cannot_be_opened_is_named() {
    let output = Output::File("/no/such/folder/baton.log".into());
    let options = Options { format: Format::Json, output, rotation: Rotation::Rename, verbosity: 0 };
    assert!(Log::open(&options).err().unwrap().to_string().contains("/no/such/folder/baton.log"));
}

#[test]
fn a_full_disk_under_the_log_fails_nobody() {
    let log = log(Format::Json, Output::File("/dev/full".into()));
    with_default(log.subscriber(), || info!(target: "CONTROL", id = 1, "lost"));
    assert_eq!(log.failed_writes(), 1);
    assert_eq!(log.recent().1, 1);
}
