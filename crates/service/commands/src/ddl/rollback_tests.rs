//! A law: whatever a primary did after the last entry that the set has too, a rollback takes it away, DDL as well.
//!
//! Commands are drawn as for the law that followers agree (`agreement_tests`). At some entry it is noted what there is; then more
//! commands are carried out, and rolled back. The catalog with its UUIDs, options and indexes in their order, and all documents,
//! must be what was noted, the indexes must agree with the documents, and giving back the space of what was dropped must harm
//! nothing. Some seeds stay, some are the commit's.

use super::agreement_tests::{Grammar, shown};
use crate::commands::list_collections;
use crate::ddl::indexes;
use crate::testing::Member;
use baton_storage::Storage;
use baton_types::Timestamp;
use bson::{Document, doc};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};

const SEEDS: u64 = 5;
const ROUNDS: usize = 3;

/// What a member has.
fn noted(member: &Member) -> Vec<String> {
    let catalog = member.server.storage.catalog();
    let collections = catalog.iter().filter(|collection| collection.namespace.db() == "db");
    let mut noted: Vec<String> = collections
        .map(|collection| {
            let indexes: Vec<String> = indexes::documents(collection).iter().map(|index| shown(index)).collect();
            let states: Vec<_> = collection.indexes().iter().map(|index| (index.id, index.state())).collect();
            let uuid = bson::Uuid::from_bytes(collection.uuid);
            let counts = collection.counts();
            format!("{} {uuid} {indexes:?} {states:?} {counts:?}", shown(&list_collections::entry(collection)))
        })
        .collect();
    let hash = member.ok("db", doc! { "dbHash": 1 });
    noted.push(format!("{:?} {:?}", hash.get("collections"), hash.get("md5")));
    noted
}

fn check(storage: &Storage, when: &str) {
    for collection in storage.catalog().database("db").filter(|collection| collection.options.view.is_none()) {
        let report = storage.validate(collection, &mut |_, _| Ok(())).unwrap();
        assert!(report.is_valid(), "{when}: {}: {:?}", collection.namespace, report.errors);
    }
}

/// What indexes that come back are to be right about: dropped between changes of the same documents.
fn write(random: &mut StdRng) -> Document {
    let name = *["a", "b", "c", "d"].choose(random).unwrap();
    let x = random.random_range(0..100);
    match random.random_range(0..10) {
        0 => {
            let hidden = random.random_bool(0.5);
            let index = doc! { "name": *["i1", "i2", "i3", "i4"].choose(random).unwrap(), "hidden": hidden };
            doc! { "collMod": name, "index": index }
        }
        1 => doc! { "dropIndexes": name, "index": *["i1", "i2", "i3", "i4"].choose(random).unwrap() },
        2 => doc! { "delete": name, "deletes": [ { "q": { "_id": { "$mod": [5, x % 5] } }, "limit": 0 } ] },
        _ => {
            let u = doc! { "$set": { "x": x, "y": [x, -x], "x2": { "z": x } } };
            doc! { "update": name, "updates": [ { "q": { "_id": { "$mod": [3, x % 3] } }, "u": u, "multi": true } ] }
        }
    }
}

fn draw(member: &Member, grammar: &mut Grammar, commands: usize, done: &mut Vec<String>) {
    for _ in 0..commands {
        let (db, command) = if grammar.0.random_bool(0.3) { ("db", write(&mut grammar.0)) } else { grammar.command() };
        let reply = member.send(db, command.clone());
        let code = reply.get_i32("code").unwrap_or(0);
        assert!(![1, 8].contains(&code), "{command}: {reply}");
        if code == 0 {
            done.push(command.to_string());
        }
    }
}

#[test]
fn whatever_a_primary_did_is_taken_away_by_a_rollback() {
    let drawn = std::env::var("BATON_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1 << 32);
    for seed in (0..SEEDS).chain(drawn..drawn + SEEDS) {
        let member = Member::new();
        let storage = &member.server.storage;
        let removed = tempfile::tempdir().unwrap();
        let mut grammar = Grammar(StdRng::seed_from_u64(seed));
        for round in 0..ROUNDS {
            draw(&member, &mut grammar, 30, &mut Vec::new());
            let common = storage.oplog().last_entry();
            let then = noted(&member);
            let mut done = Vec::new();
            let commands = grammar.0.random_range(1..30);
            draw(&member, &mut grammar, commands, &mut done);
            let when = format!("seed {seed}, round {round}, after {done:#?}");
            storage.queue().close_to_writes();
            storage.follower().roll_back(common, removed.path()).unwrap_or_else(|error| panic!("{error}: {when}"));
            let now = noted(&member);
            assert_eq!(then, now, "{when}");
            check(storage, &when);
            // Of the next term's primary, at a time that no stamp has reached yet.
            let next = Timestamp { seconds: common.timestamp.seconds + 60, increment: 1 };
            storage.queue().advance_floor(next);
            storage.open_to_writes(common.term + 1);
        }
        let then = noted(&member);
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            // The set has all that is there now.
            storage.oplog().set_commit_point(storage.queue().applied());
            storage.chores().forget_history();
            storage.chores().free_dropped(&|| true).unwrap();
            if storage.dropped_extents().unwrap() == 0 {
                break;
            }
            assert!(Instant::now() < until, "seed {seed}: what was dropped is not given back");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(then, noted(&member), "seed {seed}");
        check(storage, &format!("seed {seed}, when the space was given back"));
    }
}
