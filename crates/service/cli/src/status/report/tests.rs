//! What is told of sets in every state.

use super::*;
use bson::{Timestamp, doc};

/// A member that answers as `state`, with its newest entry at so many seconds.
fn member(name: &str, state: &str, at_secs: u32, more: Document) -> Told {
    let mut own = doc! { "name": name, "self": true, "stateStr": state, "infoMessage": "", "tasks": [] };
    if at_secs > 0 {
        own.insert("optime", doc! { "ts": Timestamp { time: at_secs, increment: 1 }, "t": 3_i64 });
    } else {
        own.insert("optime", doc! { "ts": Timestamp { time: 0, increment: 0 }, "t": -1_i64 });
    }
    own.extend(more);
    let mut hello = doc! { "setName": "rs0", "me": name };
    hello.insert("isWritablePrimary", state == "PRIMARY");
    let server = doc! { "uptime": 9.0, "connections": { "current": 4 }, "mem": { "resident": 30 } };
    Told {
        name: name.into(),
        host: name.into(),
        hello: Ok(hello),
        status: Ok(doc! { "term": 3_i64, "members": [own] }),
        server,
    }
}

fn silent(name: &str) -> Told {
    Told {
        name: name.into(),
        host: name.into(),
        hello: Err(format!("cannot reach {name}: Connection refused; is a member running there?")),
        status: Err(String::new()),
        server: Document::new(),
    }
}

fn survey(told: Vec<Told>) -> Survey {
    let members: Vec<Bson> = told.iter().map(|told| Bson::Document(doc! { "host": &told.name, "votes": 1 })).collect();
    Survey { told, configuration: Some(doc! { "_id": "rs0", "members": members }) }
}

fn text_of(told: Vec<Told>) -> String {
    Report::of(&survey(told)).to_text()
}

fn words(text: &str, member: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.starts_with(member)).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_set_that_is_well_says_so_first_and_each_member_has_its_own_uptime_lag_and_tasks() {
    let task = doc! { "kind": "compaction", "state": "running", "sinceMs": 2000_i64 };
    let mut behind = member("b:1", "SECONDARY", 7, doc! { "syncSourceHost": "a:1" });
    behind.server.insert("uptime", 5.0);
    let waits = doc! { "kind": "backup", "state": "waiting", "sinceMs": 3000_i64, "why": "others go first" };
    let built = doc! { "done": 300_i64, "total": 400_i64, "etaSecs": 4.0 };
    let build = doc! { "kind": "indexBuild", "state": "running", "sinceMs": 12_000_i64 };
    let build = build.into_iter().chain(built).collect::<Document>();
    let text = text_of(vec![member("a:1", "PRIMARY", 10, doc! { "tasks": [task, waits, build] }), behind]);
    assert!(text.starts_with("set rs0: OK: primary a:1, term 3, 2 of 2 members are well\n"), "{text}");
    let tasks =
        "compaction (running 2 s), backup (waiting 3 s: others go first), indexBuild (running 12 s, 75 %, 4 s left)";
    assert!(text.lines().nth(2).unwrap().ends_with(tasks), "{text}");
    assert_eq!(words(&text, "b:1"), ["b:1", "SECONDARY", "5", "3", "none"]);
    assert!(text.contains("fetching\n  a:1\n  └─ b:1\n"), "{text}");
}

#[test]
fn an_idle_primary_is_not_behind_its_secondaries() {
    // The secondary has an entry that came after the primary was asked.
    let text = text_of(vec![member("a:1", "PRIMARY", 10, doc! {}), member("b:1", "SECONDARY", 20, doc! {})]);
    assert_eq!(words(&text, "a:1")[3], "0");
    assert_eq!(words(&text, "b:1")[3], "0");
}

#[test]
fn without_a_primary_the_verdict_is_that_and_says_who_is_missing() {
    let report = Report::of(&survey(vec![member("a:1", "SECONDARY", 10, doc! {}), silent("b:1"), silent("c:1")]));
    let text = report.to_text();
    assert!(text.starts_with("set rs0: NO PRIMARY: 1 of 3 voting members answer, 2 are needed"), "{text}");
    assert!(text.contains("! cannot reach b:1"), "{text}");
    assert_eq!(words(&text, "b:1"), ["b:1", "DOWN", "-", "-", "none"]);
    assert!(!report.has_primary() && !report.may_elect() && !text.contains("fetching"));
    let report =
        Report::of(&survey(vec![member("a:1", "SECONDARY", 10, doc! {}), member("b:1", "SECONDARY", 9, doc! {})]));
    assert!(report.may_elect() && report.to_text().contains("enough to elect one"));
}

#[test]
fn a_member_that_has_nothing_yet_has_no_lag_and_says_how_far_its_copying_is() {
    let mut new = member("b:1", "STARTUP2", 0, doc! {});
    new.status.as_mut().unwrap().insert(
        "initialSyncStatus",
        doc! { "approxTotalDataSize": 200_i64, "approxTotalBytesCopied": 50_i64, "syncSource": "a:1" },
    );
    let text = text_of(vec![member("a:1", "PRIMARY", 1_795_342_505, doc! {}), new]);
    assert!(text.starts_with("set rs0: DEGRADED"), "{text}");
    assert_eq!(words(&text, "b:1")[..4], ["b:1", "STARTUP2", "9", "-"]);
    assert!(text.contains("copies a:1, 25 %"), "{text}");
    assert!(text.contains("w: \"majority\" wait: 1 of 2"), "{text}");
}

#[test]
fn why_a_member_recovers_is_told() {
    let stuck = member("c:1", "RECOVERING", 5, doc! { "infoMessage": "too stale: nobody has what follows" });
    let text = text_of(vec![member("a:1", "PRIMARY", 10, doc! {}), member("b:1", "SECONDARY", 10, doc! {}), stuck]);
    assert!(text.starts_with("set rs0: DEGRADED: primary a:1, term 3, 2 of 3"), "{text}");
    assert!(text.contains("! c:1 is RECOVERING: too stale: nobody has what follows"), "{text}");
}

#[test]
fn a_member_that_only_the_primary_hears_is_told_as_that() {
    let mut primary = member("a:1", "PRIMARY", 10, doc! {});
    let heard = doc! { "name": "b:1", "health": 1.0, "state": 2, "stateStr": "SECONDARY" };
    primary.status.as_mut().unwrap().get_array_mut("members").unwrap().push(Bson::Document(heard));
    let text = text_of(vec![primary, silent("b:1")]);
    assert!(text.contains("(a:1 hears it, as SECONDARY)"), "{text}");
    assert_eq!(words(&text, "b:1")[1], "SECONDARY?");
}

#[test]
fn who_is_in_no_set_is_told_as_what_it_is() {
    let mut alone = member("a:1", "", 0, doc! {});
    alone.hello = Ok(doc! { "isWritablePrimary": true });
    let report = Report::of(&Survey { told: vec![alone], configuration: None });
    assert!(report.to_text().starts_with("STANDALONE: ") && report.has_primary());
    let mut fresh = member("a:1", "", 0, doc! {});
    fresh.hello = Ok(doc! { "isreplicaset": true });
    let report = Report::of(&Survey { told: vec![fresh], configuration: None });
    assert!(report.to_text().starts_with("NOT INITIATED: ") && !report.has_primary());
}

#[test]
fn who_fetches_from_whom_is_a_tree_and_a_circle_ends() {
    let line = |name: &str, source: &str| Line {
        name: name.into(),
        source: Some(source.to_owned()).filter(|source| !source.is_empty()),
        answers: true,
        bears_data: true,
        ..Line::default()
    };
    let tree = sync_tree(&[line("a", ""), line("b", "a"), line("c", "b"), line("d", "a")]);
    assert_eq!(tree, "fetching\n  a\n  ├─ b\n  │  └─ c\n  └─ d\n");
    assert_eq!(sync_tree(&[line("a", "b"), line("b", "a"), line("c", "")]), "fetching\n  c\n");
    assert_eq!(sync_tree(&[line("a", "")]), "");
}

#[test]
fn programs_get_the_same() {
    let json = Report::of(&survey(vec![member("a:1", "PRIMARY", 10, doc! {}), silent("b:1")])).to_json();
    assert_eq!((json["verdict"].as_str(), json["primary"].as_str()), (Some("degraded"), Some("a:1")));
    assert_eq!(json["members"][1]["role"], "DOWN");
    assert_eq!(json["members"][1]["lagSecs"], Value::Null);
}

#[test]
fn moves_are_told_by_date_whoever_made_them_with_why_and_gap() {
    let at = |secs: i64| bson::DateTime::from_millis(secs * 1000);
    let moved = doc! {
        "date": at(20), "trigger": "backup", "to": "b:1", "why": "the task costs more", "writeGapMs": 11.4,
    };
    let failed =
        doc! { "date": at(30), "trigger": "compaction", "failedTo": "a:1", "why": "always", "error": "it lags" };
    let by_hand = doc! { "date": at(10), "trigger": "replSetHandoff", "to": "a:1" };
    let mut a = member("a:1", "PRIMARY", 10, doc! {});
    let mut b = member("b:1", "SECONDARY", 10, doc! {});
    a.status.as_mut().unwrap().insert("handoffs", vec![moved]);
    b.status.as_mut().unwrap().insert("handoffs", vec![by_hand, failed]);
    let report = Report::of(&survey(vec![a, b]));
    let text = report.to_text();
    let lines: Vec<&str> = text.lines().skip_while(|line| *line != "leadership moved").skip(1).take(3).collect();
    let expected = [
        "  1970-01-01 0:00:10.0 +00:00:00 from b:1 to a:1 (replSetHandoff)",
        "  1970-01-01 0:00:20.0 +00:00:00 from a:1 to b:1 (backup: the task costs more); nobody took writes for 11 ms",
        "  1970-01-01 0:00:30.0 +00:00:00 from b:1 to a:1 (compaction: always); it did not: it lags",
    ];
    assert_eq!(lines, expected);
    let json = report.to_json();
    assert_eq!(json["moves"][1]["writeGapMs"], 11.4);
    assert_eq!(json["moves"][2]["error"], "it lags");
}
