//! What is recorded of index builds, of a member that really builds.

use crate::testing::Member;
use baton_consensus::index_build::IndexBuild;
use baton_replay::{FORMAT, Header, Recording, read, replay, write};
use baton_types::{Error, ErrorCode};
use bson::{RawBsonRef, doc};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// As many as are recorded, and two more.
const BUILDS: usize = 18;
const HANGS: &str = "hangIndexBuildBeforeCommit";

fn recordings(member: &Member) -> Vec<(String, Recording<IndexBuild>)> {
    member.server.index_builds.recordings(Duration::from_secs(10))
}

fn await_that(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "no {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Steps through a recording again, as a file has it.
fn assert_replayed(of: &str, recording: &Recording<IndexBuild>) {
    let mut file = Vec::new();
    let header = Header { format: FORMAT, baton: String::new(), member: String::new(), written_secs: 0 };
    header.write(&mut file).unwrap();
    write(recording, Some(of), &mut file).unwrap();
    let replayed = replay::<IndexBuild>(&read(file.as_slice()).unwrap(), Some(of), &mut |_| {});
    assert_eq!(replayed.unwrap().steps, recording.steps());
}

#[test]
fn so_many_builds_are_recorded_at_a_time_and_what_has_ended_is_kept() {
    let member = Member::new();
    let names: Vec<String> = (0..BUILDS).map(|n| format!("carts{n}")).collect();
    for name in &names {
        member.ok("shop", doc! { "insert": name, "documents": [{ "_id": 1, "n": 1 }] });
    }
    let hangs = |mode| member.server.fail_points.configure(HANGS, RawBsonRef::String(mode), None).unwrap();
    hangs("alwaysOn");
    std::thread::scope(|scope| {
        for name in &names {
            let index = doc! { "key": { "n": 1 }, "name": "n_1" };
            let member = &member;
            scope.spawn(move || member.ok("shop", doc! { "createIndexes": name, "indexes": [index] }));
        }
        await_that("builds under way", || member.server.storage.builds_of_set().len() == BUILDS);
        // The last step: what is to be done from then on.
        let wait_to_end = |(_, recording): &(String, Recording<IndexBuild>)| {
            let last = recording.segments.last().and_then(|segment| segment.steps.last());
            last.is_some_and(|step| format!("{:?}", step.effects).contains("Commit("))
        };
        await_that("recordings of those that wait to end", || {
            let recordings = recordings(&member);
            assert!(recordings.len() <= 16, "{}", recordings.len());
            recordings.len() == 16 && recordings.iter().all(wait_to_end)
        });
        hangs("off");
    });
    await_that("end of all builds", || member.server.storage.builds_of_set().is_empty());
    let ended = recordings(&member);
    let titles: BTreeSet<&str> = ended.iter().map(|(of, _)| of.as_str()).collect();
    assert_eq!((ended.len(), titles.len()), (16, 16));
    for (of, recording) in &ended {
        let namespace = of.split_once(' ').map(|(_, namespace)| namespace.trim_start_matches("shop."));
        assert!(namespace.is_some_and(|name| names.iter().any(|one| one == name)), "{of}");
        assert_replayed(of, recording);
    }
    // Others that end take their place.
    member.ok("shop", doc! { "insert": "last", "documents": [{ "_id": 1, "n": 1 }] });
    let index = doc! { "key": { "n": 1 }, "name": "n_1" };
    member.ok("shop", doc! { "createIndexes": "last", "indexes": [index] });
    let ended = recordings(&member);
    assert_eq!(ended.len(), 16);
    let (of, recording) = &ended[15];
    assert!(of.ends_with(" shop.last") && recording.steps() >= 3, "{of}");
}

/// As by a rollback of its end, or by a copy. The thread took the index for filled, could not complete it, and tried for ever.
#[test]
fn a_build_that_is_begun_anew_between_two_looks_is_filled_anew() {
    let member = Member::new();
    member.ok("shop", doc! { "insert": "carts", "documents": [{ "_id": 1, "n": 1 }] });
    let storage = &member.server.storage;
    let hangs = |mode| member.server.fail_points.configure(HANGS, RawBsonRef::String(mode), None).unwrap();
    hangs("alwaysOn");
    std::thread::scope(|scope| {
        let index = doc! { "key": { "n": 1 }, "name": "n_1" };
        let command = doc! { "createIndexes": "carts", "indexes": [index] };
        scope.spawn(|| member.send("shop", command));
        await_that("build that waits to end", || {
            let is_filled = |of| storage.is_build_filled(&of);
            storage.builds_of_set().pop().is_some_and(is_filled)
        });
        let of = storage.builds_of_set().remove(0);
        let killed = Error::new(ErrorCode::Interrupted, "killed");
        assert!(storage.by_member().abort_build(of.collection, of.build.uuid, &killed).unwrap());
        let catalog = storage.by_member().lock_catalog();
        catalog.by_uuid(of.collection).unwrap().start_build(&of.build, &of.definitions, false).unwrap();
        drop(catalog);
        assert!(!storage.is_build_filled(&of));
        hangs("off");
        await_that("end of the build", || storage.builds_of_set().is_empty());
    });
    let listed = member.ok("shop", doc! { "listIndexes": "carts" });
    assert!(listed.to_string().contains("n_1"), "{listed}");
}
