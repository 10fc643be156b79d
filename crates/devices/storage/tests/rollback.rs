//! Members that roll back: what the set never committed goes, and the new primary's entries come in its place.

mod common;

use baton_storage::{Collection, Durability, Fact, Inserted, Statement, Storage, Transaction};
use baton_types::{ErrorCode, OpTime, Timestamp};
use bson::{Binary, RawDocument, rawdoc};
use common::following::{follow, lsid, open_to_follow};
use common::{change, create, documents, index, insert, log, name, open};
use std::sync::Arc;
use std::time::Duration;

/// What this member acknowledged counts for the set: a start in the middle of a copy must not forget it.
#[test]
fn where_the_log_ended_that_was_given_up_is_known_until_a_copy_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let given_up = |storage: &Storage| storage.follower().given_up().expect("readable");
    let (entries, last) = {
        let storage = open(folder.path());
        create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
        assert_eq!(given_up(&storage), None);
        let last = storage.oplog().last_entry();
        storage.follower().note_not_whole(last);
        (log(&storage), last)
    };
    {
        let storage = open_to_follow(folder.path());
        assert_eq!(given_up(&storage), Some(last));
        storage.follower().begin_clone().expect("begun");
        storage.follower().begin_log_with(&entries[0]).expect("begun");
    }
    let storage = open_to_follow(folder.path());
    storage.follower().begin_clone().expect("begun anew");
    storage.follower().note_not_whole(OpTime::ZERO);
    assert_eq!((given_up(&storage), storage.oplog().last_entry()), (Some(last), OpTime::ZERO));
    storage.follower().begin_log_with(&entries[0]).expect("begun");
    storage.follower().end_clone();
    assert_eq!(given_up(&storage), None);
    // As a version wrote it that did not ask.
    storage.facts().put(Fact::Cloning, b"");
    assert_eq!(given_up(&storage), Some(OpTime::ZERO));
    storage.facts().put(Fact::Cloning, b"12345678");
    assert_eq!(storage.follower().given_up().expect_err("damaged").code, ErrorCode::DataCorruptionDetected);
}

/// What an entry of a write with this number in a session says, for documents of `c`.
fn retryable(storage: &Storage, c: &Arc<Collection>, lsid: &RawDocument, number: i64, id: i32) {
    let session = lsid.get_binary("id").expect("an id").bytes;
    let handle = storage.session(session).expect("readable");
    let mut record = handle.begin(number).expect("newest");
    let statement = Statement { lsid, txn_number: number, stmt_id: 0, prev: record.last, image: None };
    let mut transaction = Transaction::default();
    let document = rawdoc! { "_id": id, "by": number };
    let added = storage.insert(&mut transaction, c, &document, Some(statement)).expect("inserted");
    assert_eq!(added, Inserted::Added);
    record.add(&mut transaction, &handle, 0, rawdoc! { "n": 1 });
    record.last = storage.by_member().commit(transaction, Durability::Applied).expect("committed");
}

fn answers_again(storage: &Storage, session: &[u8], number: i64) -> bool {
    let handle = storage.session(session).expect("readable");
    handle.begin(number).expect("no newer write").statement(0).is_some()
}

#[test]
fn what_a_rollback_takes_away_leaves_no_trace_and_the_new_primarys_entries_are_read_in_its_place() {
    let (folder, other, removed) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let primary = open(other.path());
    let c = create(&primary, "c", [1; 16], &rawdoc! {}).expect("created");
    index(&primary, "c", &rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" }).expect("built");
    for id in 0..10 {
        insert(&primary, &c, &rawdoc! { "_id": id, "n": id }).expect("inserted");
    }
    let lsid = lsid(&[7; 16]);
    retryable(&primary, &c, &lsid, 3, 100);
    {
        // The old primary has all of it, and then writes what nobody else gets, its clock an hour ahead.
        let storage = open_to_follow(folder.path());
        follow(&storage, &log(&primary));
        let common = storage.oplog().last_entry();
        assert_eq!(common, primary.oplog().last_entry());
        storage.queue().advance_floor(Timestamp { seconds: common.timestamp.seconds + 3600, increment: 1 });
        storage.open_to_writes(2);
        let c = storage.collection(&name("c")).expect("there");
        let with = |n: i32| {
            move |before: &RawDocument| Some(rawdoc! { "_id": before.get_i32("_id").unwrap(), "n": n, "lost": true })
        };
        change(&storage, &c, 1, None, with(70)).expect("changed");
        change(&storage, &c, 1, None, with(71)).expect("changed");
        change(&storage, &c, 2, None, |_| None).expect("deleted");
        change(&storage, &c, 3, None, |_| None).expect("deleted");
        insert(&storage, &c, &rawdoc! { "_id": 3, "n": [4, 5], "lost": true }).expect("inserted");
        insert(&storage, &c, &rawdoc! { "_id": 11, "n": 11, "lost": true }).expect("inserted");
        retryable(&storage, &c, &lsid, 4, 101);
        index(&storage, "c", &rawdoc! { "v": 2, "key": { "lost": 1 }, "name": "lost_1" }).expect("built");
        let lost = create(&storage, "lost", [9; 16], &rawdoc! {}).expect("created");
        insert(&storage, &lost, &rawdoc! { "_id": 1 }).expect("inserted");
        storage.sync();
        let before = storage.oplog().last_entry();
        assert_eq!(
            storage.follower().roll_back(common, removed.path()).expect_err("it writes itself").code,
            ErrorCode::IllegalOperation
        );
        storage.queue().close_to_writes();
        let summary = storage.follower().roll_back(common, removed.path()).expect("rolled back");
        assert_eq!((summary.from, summary.to, summary.documents), (before, common, 5));
        assert_eq!((storage.oplog().last_entry(), storage.queue().durable()), (common, common));
        assert_eq!(documents(&storage, "c"), documents(&primary, "c"));
        assert!(storage.collection(&name("lost")).is_none());
        assert!(c.index("lost_1").is_none());
        assert!(answers_again(&storage, &[7; 16], 3), "the session's write before counts again");
        assert_eq!(storage.follower().rollback_id().expect("readable"), 2);
        let kept: usize = std::fs::read_dir(removed.path()).unwrap().count();
        assert_eq!(kept, 2, "one folder for each collection");
    }
    // Entries whose timestamps are an hour below those that were rolled back.
    let statement = |id: i32| move |_: &RawDocument| Some(rawdoc! { "_id": id, "n": 1000 + id });
    change(&primary, &c, 1, None, statement(1)).expect("changed");
    change(&primary, &c, 2, None, statement(2)).expect("changed");
    change(&primary, &c, 4, None, |_| None).expect("deleted");
    let storage = open_to_follow(folder.path());
    assert_eq!(documents(&storage, "c").len(), 11, "as rolled back, over a restart");
    follow(&storage, &log(&primary));
    assert_eq!(documents(&storage, "c"), documents(&primary, "c"));
    assert_eq!(log(&storage), log(&primary));
    let c = storage.collection(&name("c")).expect("there");
    let report = storage.validate(&c, &mut |_, _| Ok(())).expect("validated");
    assert!(report.is_valid(), "{report:?}");
    drop(storage);
    let storage = open_to_follow(folder.path());
    assert_eq!(documents(&storage, "c"), documents(&primary, "c"), "over another restart too");
}

/// What was not synced went with the machine, and a copy of it must not be kept; a process takes nothing along.
#[test]
fn a_start_of_the_machine_counts_as_a_rollback_and_one_of_the_process_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let number = |storage: &Storage| storage.follower().rollback_id().expect("readable");
    {
        let storage = open(folder.path());
        create(&storage, "c", [7; 16], &rawdoc! {}).expect("created");
        assert_eq!(number(&storage), 1, "nobody can have read what is new");
    }
    {
        let storage = open(folder.path());
        assert_eq!(number(&storage), 1);
        storage.facts().put(Fact::MachineStart, b"another start of the machine");
    }
    assert_eq!(number(&open(folder.path())), 2);
    assert_eq!(number(&open(folder.path())), 2, "told once");
}

/// One rollback, and before the log has come to where it was, another, to an entry that came in between. Entries' stamps are above
/// their timestamps then; read by its timestamp, the entry in between shows what the first rollback took away.
#[test]
fn a_second_rollback_soon_after_the_first_brings_back_what_was_there_in_between() {
    for restarts in 0..3 {
        let (folder, other, removed) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let primary = open(other.path());
        let c = create(&primary, "c", [1; 16], &rawdoc! {}).expect("created");
        let ring =
            create(&primary, "ring", [2; 16], &rawdoc! { "capped": true, "size": 4096, "max": 3 }).expect("made");
        index(&primary, "c", &rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" }).expect("built");
        index(&primary, "c", &rawdoc! { "v": 2, "key": { "m": 1 }, "name": "m_1" }).expect("built");
        for id in 0..6 {
            insert(&primary, &c, &rawdoc! { "_id": id, "n": id, "m": id }).expect("inserted");
            insert(&primary, &ring, &rawdoc! { "_id": id }).expect("inserted");
        }
        let mut storage = open_to_follow(folder.path());
        follow(&storage, &log(&primary));
        let set =
            |n: i32| move |was: &RawDocument| Some(rawdoc! { "_id": was.get_i32("_id").unwrap(), "n": n, "m": -n });
        let lose = |storage: &Storage, by: i32| {
            // Writes that nobody else gets, of a clock an hour ahead.
            let ahead = storage.oplog().last_entry().timestamp.seconds + 3600;
            storage.queue().advance_floor(Timestamp { seconds: ahead, increment: 1 });
            storage.open_to_writes(by.into());
            let c = storage.collection(&name("c")).expect("there");
            let ring = storage.collection(&name("ring")).expect("there");
            for n in 0..30 {
                change(storage, &c, n % 5, None, set(1000 * by + n)).expect("changed");
            }
            insert(storage, &ring, &rawdoc! { "_id": 100 * by }).expect("inserted");
            if by > 2 {
                storage.by_member().drop_index(&c, "m_1").expect("dropped");
                change(storage, &c, 3, None, set(7000 * by)).expect("changed");
                change(storage, &c, 4, None, |_| None).expect("deleted");
            }
            storage.queue().close_to_writes();
        };
        let mut common = storage.oplog().last_entry();
        for round in 2..5 {
            lose(&storage, round);
            for _ in 0..restarts {
                drop(storage);
                storage = open_to_follow(folder.path());
            }
            storage.follower().roll_back(common, removed.path()).expect("rolled back");
            let when = format!("{restarts} restarts, rollback {}", round - 1);
            for collection in ["c", "ring"] {
                assert_eq!(documents(&storage, collection), documents(&primary, collection), "{collection}, {when}");
                let collection = storage.collection(&name(collection)).expect("there");
                let report = storage.validate(&collection, &mut |_, _| Ok(())).expect("validated");
                assert!(report.is_valid(), "{when}: {report:?}");
            }
            assert_eq!(log(&storage), log(&primary), "{when}");
            // What is between this rollback and the next, an hour below what was rolled back.
            let from = log(&primary).len();
            for n in 0..7 {
                change(&primary, &c, n % 4, None, set(10 * round + n)).expect("changed");
                insert(&primary, &ring, &rawdoc! { "_id": 1000 * round + n }).expect("inserted");
                if restarts > 1 {
                    // Each time as late as it can be, so that no version of before is newer.
                    follow(&storage, &log(&primary)[from + 2 * n as usize..]);
                    drop(storage);
                    storage = open_to_follow(folder.path());
                }
            }
            if restarts < 2 {
                follow(&storage, &log(&primary)[from..]);
            }
            assert_eq!(documents(&storage, "c"), documents(&primary, "c"), "{when}");
            assert_eq!(documents(&storage, "ring"), documents(&primary, "ring"), "{when}");
            common = storage.oplog().last_entry();
            // Nobody else reads by such a timestamp.
            let refused = storage.view_at(Some(common.timestamp)).map(|_| ()).expect_err("stamps are above timestamps");
            assert_eq!(refused.code, ErrorCode::SnapshotUnavailable, "{when}");
        }
    }
}

#[test]
fn a_rollback_after_a_restart_ends_in_the_term_of_what_is_kept() {
    let (folder, removed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let common = {
        let storage = open(folder.path());
        let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
        let common = insert(&storage, &c, &rawdoc! { "_id": 1 }).expect("inserted");
        // Primary of the next term for a moment, and killed.
        storage.open_to_writes(common.term + 1);
        let lost = insert(&storage, &c, &rawdoc! { "_id": 2 }).expect("inserted");
        assert_eq!(lost.term, common.term + 1);
        storage.sync();
        common
    };
    let storage = open_to_follow(folder.path());
    assert_eq!(storage.oplog().last_entry().term, common.term + 1);
    storage.follower().roll_back(common, removed.path()).expect("rolled back");
    assert_eq!((storage.oplog().last_entry(), storage.queue().durable()), (common, common));
}

#[test]
fn a_rollback_that_the_log_forbids_changes_nothing() {
    let (folder, removed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    insert(&storage, &c, &rawdoc! { "_id": 1 }).expect("inserted");
    let common = storage.oplog().last_entry();
    insert(&storage, &c, &rawdoc! { "_id": 2 }).expect("inserted");
    storage.queue().close_to_writes();
    // A command that says nothing of what was before.
    let uuid = Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let entry = rawdoc! {
        "op": "c", "ns": "test.$cmd", "ui": uuid, "o": { "collMod": "c", "validationLevel": "off" },
        "ts": bson::Timestamp::from(Timestamp::from_u64(storage.oplog().last_entry().timestamp.as_u64() + 1)), "t": 1_i64, "v": 2_i64,
        "wall": bson::DateTime::now(),
    };
    storage.replay(&entry, |_| Ok(())).expect("logged");
    let all = log(&storage);
    assert_eq!(storage.follower().roll_back(common, removed.path()).expect_err("a collMod").code, ErrorCode(127));
    let elsewhere = OpTime { term: 9, ..common };
    assert_eq!(
        storage.follower().roll_back(elsewhere, removed.path()).expect_err("no such entry").code,
        ErrorCode(127)
    );
    assert_eq!(log(&storage), all);
}

#[test]
fn a_drop_that_is_rolled_back_after_a_restart_brings_back_all_there_was() {
    let (folder, removed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (common, then) = {
        let storage = open(folder.path());
        storage.facts().put(Fact::Configuration, &rawdoc! { "_id": "set" }.into_bytes());
        let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
        let ring = rawdoc! { "capped": true, "size": 4096, "max": 3 };
        let ring = create(&storage, "ring", [2; 16], &ring).expect("created");
        index(&storage, "c", &rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1", "unique": true }).expect("built");
        for id in 0..400 {
            insert(&storage, &c, &rawdoc! { "_id": id, "n": [id, -id] }).expect("inserted");
        }
        for id in 0..5 {
            insert(&storage, &ring, &rawdoc! { "_id": id }).expect("inserted");
        }
        create(&storage, "scratch", [4; 16], &rawdoc! { "temp": true }).expect("created");
        let common = storage.oplog().last_entry();
        storage.oplog().set_commit_point(common);
        let then = (documents(&storage, "c"), documents(&storage, "ring"));
        change(&storage, &c, 7, None, |_| Some(rawdoc! { "_id": 7, "n": 1000 })).expect("changed");
        // The index that comes back has an entry of the version in the middle, which is of no document then or now.
        change(&storage, &c, 9, None, |_| Some(rawdoc! { "_id": 9, "n": 2000 })).expect("changed");
        storage.by_member().drop_index(&c, "n_1").expect("dropped");
        change(&storage, &c, 8, None, |_| Some(rawdoc! { "_id": 8, "n": 9 })).expect("changed");
        change(&storage, &c, 9, None, |_| Some(rawdoc! { "_id": 9, "n": 3000 })).expect("changed");
        insert(&storage, &c, &rawdoc! { "_id": 500, "n": 9 }).expect("inserted");
        insert(&storage, &ring, &rawdoc! { "_id": 7 }).expect("inserted");
        insert(&storage, &ring, &rawdoc! { "_id": 8 }).expect("inserted, and 2 and 3 let go");
        storage.by_member().rename_collection(&name("scratch"), &name("ring"), true).expect("renamed");
        storage.by_member().drop_collection(&name("c")).expect("dropped");
        let other = create(&storage, "c", [3; 16], &rawdoc! {}).expect("created");
        insert(&storage, &other, &rawdoc! { "_id": 1 }).expect("inserted");
        storage.sync();
        (common, then)
    };
    let storage = open_to_follow(folder.path());
    storage.oplog().set_commit_point(common);
    for _ in 0..10 {
        storage.chores().free_dropped(&|| true).expect("nothing may go");
        std::thread::sleep(Duration::from_millis(100));
    }
    let summary = storage.follower().roll_back(common, removed.path()).expect("rolled back");
    assert_eq!(summary.documents, 8);
    let restored = |storage: &Storage| {
        assert_eq!((documents(storage, "c"), documents(storage, "ring")), then);
        for collection in ["c", "ring"].map(|c| storage.collection(&name(c)).expect("there")) {
            let report = storage.validate(&collection, &mut |_, _| Ok(())).expect("validated");
            assert!(report.is_valid(), "{report:?}");
        }
        let c = storage.collection(&name("c")).expect("there");
        assert_eq!((c.uuid, c.counts().documents), ([1; 16], 400));
        assert!(storage.collection(&name("scratch")).is_some_and(|scratch| scratch.options.temporary));
        assert!(c.index("n_1").is_some_and(|index| index.definition.unique && index.multikey() != 0));
    };
    restored(&storage);
    drop(storage);
    let storage = open(folder.path());
    restored(&storage);
    // What comes next into the ring stands behind what was there.
    let ring = storage.collection(&name("ring")).expect("there");
    insert(&storage, &ring, &rawdoc! { "_id": 9 }).expect("inserted");
    let newest: Vec<i32> = documents(&storage, "ring").iter().map(|d| d.get_i32("_id").expect("an _id")).collect();
    assert_eq!(newest, [3, 4, 9]);
}
