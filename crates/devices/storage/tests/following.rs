//! Members that follow: what one logged is carried out by another.

mod common;

use baton_storage::{
    Bounds, CarriedOut, Durability, EntryChange, Fact, Inserted, Order, RetryImage, Statement, Storage, Transaction,
    WriteGate, optime_of, record_key,
};
use baton_types::{ErrorCode, Namespace, OpTime, Timestamp};
use bson::{RawBsonRef, rawdoc};
use common::following::{assert_same, carry_out, follow, lsid, open_to_follow};
use common::{change, create, documents, index, insert, log, name, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A primary's life: a collection with a unique and a multikey index, documents that trade unique values, a capped
/// collection that overflows, one that is dropped, and retryable writes.
fn live(primary: &Storage) {
    let users = create(primary, "users", [1; 16], &rawdoc! {}).expect("created");
    for id in 0..40 {
        insert(primary, &users, &rawdoc! { "_id": id, "u": id, "tags": "one" }).expect("inserted");
    }
    index(primary, "users", &rawdoc! { "v": 2, "key": { "u": 1 }, "name": "u_1", "unique": true }).expect("built");
    index(primary, "users", &rawdoc! { "v": 2, "key": { "tags": 1 }, "name": "tags_1" }).expect("built");
    let set = |id: i32, u: i32| {
        change(primary, &users, id, None, |_| Some(rawdoc! { "_id": id, "u": u, "tags": [id, u] })).expect("changed");
    };
    // Two documents trade places by way of a third value.
    set(1, 1000);
    set(2, 1);
    set(1, 2);
    change(primary, &users, 3, None, |_| None).expect("deleted");
    set(4, 3);
    insert(primary, &users, &rawdoc! { "_id": 3, "u": 4 }).expect("inserted again");
    let ring = create(primary, "ring", [2; 16], &rawdoc! { "capped": true, "size": 4096, "max": 5 }).expect("created");
    for id in 0..12 {
        insert(primary, &ring, &rawdoc! { "_id": id, "x": "y" }).expect("inserted");
    }
    let short = create(primary, "short", [3; 16], &rawdoc! {}).expect("created");
    insert(primary, &short, &rawdoc! { "_id": 1 }).expect("inserted");
    index(primary, "short", &rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).expect("built");
    primary.by_member().drop_index(&short, "a_1").expect("dropped");
    primary.by_member().drop_collection(&name("short")).expect("dropped");
    primary
        .by_member()
        .note(&Namespace::new("admin", "$cmd").expect("valid"), &rawdoc! { "msg": "hello" })
        .expect("noted");
    let (key, lsid) = ([5; 16], lsid(&[5; 16]));
    let session = primary.session(&key).expect("readable");
    let mut record = session.begin(9).expect("the first write");
    for (stmt_id, id, image, gone) in [(0, 10, None, false), (1, 11, Some(RetryImage::Before), true)] {
        let before = documents(primary, "users")[id as usize].clone();
        let statement = Statement { lsid: &lsid, txn_number: 9, stmt_id, prev: record.last, image };
        let mut transaction = Transaction::default();
        let at = record_key(RawBsonRef::Int32(id)).expect("a key");
        assert!(primary.lock_document(&mut transaction, &users, &at));
        let mut reply = rawdoc! { "n": 1 };
        if gone {
            primary.delete(&mut transaction, &users, &at, &before, Some(statement)).expect("deleted");
            reply.append(bson::cstr!("image"), before);
        } else {
            let after = rawdoc! { "_id": id, "u": 500 };
            primary.update(&mut transaction, &users, &at, (&before, &after), &after, Some(statement)).expect("updated");
            reply.append(bson::cstr!("nModified"), 1);
        }
        record.add(&mut transaction, &session, stmt_id, reply);
        record.last = primary.by_member().commit(transaction, Durability::Applied).expect("committed");
    }
}

#[test]
fn what_a_primary_logged_makes_the_same_documents_indexes_counts_sessions_and_log() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let primary = open(folders[0].path());
    live(&primary);
    let entries = log(&primary);
    {
        let follower = open_to_follow(folders[1].path());
        follow(&follower, &entries);
        assert_same(&primary, &follower);
        // What is in the log already is skipped.
        follow(&follower, &entries[entries.len() / 2..]);
        assert_same(&primary, &follower);
        follower.sync();
    }
    let follower = open_to_follow(folders[1].path());
    assert_same(&primary, &follower);
    let (theirs, ours) = (primary.session(&[5; 16]).expect("readable"), follower.session(&[5; 16]).expect("readable"));
    let (theirs, ours) = (theirs.begin(9).expect("the same write"), ours.begin(9).expect("the same write"));
    assert_eq!(theirs.last, ours.last);
    assert_eq!(theirs.statement(0), ours.statement(0));
    assert_eq!(theirs.statement(1), ours.statement(1), "the image of what was deleted");
    assert!(ours.statement(1).is_some() && ours.statement(2).is_none());
}

/// Sixty-four clients count in one document: what they log comes in one batch, and goes to the log in one.
#[test]
fn changes_of_one_document_are_applied_together_and_each_can_be_read_as_of_its_time() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let primary = open(folders[0].path());
    let c = create(&primary, "c", [1; 16], &rawdoc! {}).expect("created");
    index(&primary, "c", &rawdoc! { "v": 2, "key": { "u": 1 }, "name": "u_1", "unique": true }).expect("built");
    insert(&primary, &c, &rawdoc! { "_id": 1, "u": 0 }).expect("inserted");
    let follower = open_to_follow(folders[1].path());
    let known = log(&primary);
    follow(&follower, &known);
    let mut states = Vec::new();
    for n in 1..=60 {
        match n % 20 {
            0 => change(&primary, &c, 1, None, |_| None).expect("deleted"),
            1 if n > 1 => insert(&primary, &c, &rawdoc! { "_id": 1, "u": n }).expect("inserted again"),
            _ => change(&primary, &c, 1, None, |_| Some(rawdoc! { "_id": 1, "u": n })).expect("changed"),
        };
        insert(&primary, &c, &rawdoc! { "_id": n + 1, "u": -n }).expect("inserted");
        states.push((primary.oplog().last_entry().timestamp, documents(&primary, "c")));
    }
    let before = follower.queue().metrics.batches.load(Ordering::Relaxed);
    follow(&follower, &log(&primary)[known.len()..]);
    assert_eq!(follower.queue().metrics.batches.load(Ordering::Relaxed) - before, 1, "together");
    assert_same(&primary, &follower);
    let there = follower.collection(&name("c")).expect("there");
    for (at, state) in states {
        let view = follower.view_at(Some(at)).expect("readable");
        let mut cursor = view.documents(&there, &Bounds::default(), Order::Forward);
        let mut read = Vec::new();
        while let Some((_, document)) = cursor.next_document().expect("readable") {
            read.push(document.to_owned());
        }
        assert_eq!(read, state, "as of {at:?}");
    }
}

#[test]
fn a_log_applied_to_documents_that_are_ahead_of_it_ends_the_same() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let primary = open(folders[0].path());
    live(&primary);
    let entries = log(&primary);
    let follower = open_to_follow(folders[1].path());
    let ahead = documents(&primary, "users");
    // As a copy taken late would be: the documents of the end, and then the whole log.
    follower
        .replay(&entries[0], |writer| {
            carry_out(writer, &entries[0])?;
            let users = writer.collection(&name("users")).expect("created");
            for document in &ahead {
                let mut transaction = writer.transaction();
                let done = writer.carry_out(&mut transaction, &users, EntryChange::Put(document), None)?;
                assert!(matches!(done, CarriedOut::Done(None)));
                writer.commit(transaction, Durability::Applied)?;
            }
            Ok(())
        })
        .expect("replayed");
    assert_eq!(log(&follower).len(), 1, "what the copy wrote is not logged");
    follow(&follower, &entries[1..]);
    assert_same(&primary, &follower);
}

#[test]
fn a_member_that_is_stopped_while_it_applies_has_an_entry_and_its_effect_or_neither() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let primary = open(folders[0].path());
    let c = create(&primary, "c", [1; 16], &rawdoc! {}).expect("created");
    index(&primary, "c", &rawdoc! { "v": 2, "key": { "x": 1 }, "name": "x_1" }).expect("built");
    let lsid = lsid(&[6; 16]);
    for id in 0..4000 {
        let mut transaction = Transaction::default();
        let statement = Statement { lsid: &lsid, txn_number: 1, stmt_id: id, prev: OpTime::ZERO, image: None };
        let added = primary.insert(&mut transaction, &c, &rawdoc! { "_id": id, "x": id }, Some(statement));
        assert_eq!(added.expect("inserted"), Inserted::Added);
        primary.by_member().commit(transaction, Durability::Applied).expect("committed");
    }
    let entries = log(&primary);
    let follower = open_to_follow(folders[1].path());
    follow(&follower, &entries[..2]);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for part in entries[2..].chunks(300) {
                follow(&follower, part);
            }
            is_done.store(true, Ordering::Release);
        });
        let mut stopped = 0;
        while !is_done.load(Ordering::Acquire) || stopped == 0 {
            stopped += 1;
            // What a process that ends here would leave: the files as they are.
            let left = tempfile::tempdir().expect("a folder");
            for file in std::fs::read_dir(folders[1].path()).expect("a folder") {
                let file = file.expect("a file");
                if file.file_name() != "LOCK" {
                    std::fs::copy(file.path(), left.path().join(file.file_name())).expect("copied");
                }
            }
            let left = open_to_follow(left.path());
            let (logged, there) = (log(&left), documents(&left, "c"));
            assert_eq!(logged[..], entries[..logged.len()], "a beginning of the log");
            assert_eq!(logged.len(), there.len() + 2, "as many entries as documents");
            let record = left.session(&[6; 16]).expect("readable");
            let record = record.begin(1).expect("the same write");
            for id in 0..there.len() as i32 {
                assert!(record.statement(id).is_some(), "statement {id} of {}", there.len());
            }
            assert!(record.statement(there.len() as i32).is_none());
            let c = left.collection(&name("c")).expect("there");
            let report = left.validate(&c, &mut |_, _| Ok(())).expect("validated");
            assert!(report.is_valid() && !report.counters_mended, "{:?}", report.errors);
        }
    });
    assert_same(&primary, &follower);
}

#[test]
fn entries_keep_their_terms_and_own_ones_come_after_them() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let primary = open(folders[0].path());
    let c = create(&primary, "c", [1; 16], &rawdoc! {}).expect("created");
    insert(&primary, &c, &rawdoc! { "_id": 1 }).expect("inserted");
    primary.open_to_writes(7);
    let seventh = insert(&primary, &c, &rawdoc! { "_id": 2 }).expect("inserted");
    assert_eq!(seventh.term, 7);
    assert_eq!(primary.queue().applied(), seventh);
    let entries = log(&primary);
    assert_eq!(entries.iter().map(|e| optime_of(e).expect("an OpTime").term).collect::<Vec<_>>(), [1, 1, 7]);
    let follower = open_to_follow(folders[1].path());
    follow(&follower, &entries[..2]);
    assert_eq!(follower.oplog().last_entry(), optime_of(&entries[1]).expect("an OpTime"));
    // A clock of the set that is ahead is not taken for an entry's, whatever this member writes for itself.
    follower.queue().advance_floor(Timestamp { seconds: u32::MAX - 1, increment: 1 });
    follower.facts().put(Fact::CommitPoint, b"somewhere");
    follow(&follower, &entries[2..]);
    assert_eq!(follower.oplog().last_entry(), seventh);
    assert_eq!(follower.sync(), seventh);
    assert_eq!(follower.queue().durable(), seventh);
    follower.open_to_writes(9);
    assert_eq!(follower.oplog().last_entry(), seventh, "a new term alone moves no position");
    let c = follower.collection(&name("c")).expect("there");
    let ninth = insert(&follower, &c, &rawdoc! { "_id": 3 }).expect("inserted");
    assert!(ninth.term == 9 && ninth.timestamp > seventh.timestamp && ninth.timestamp.seconds == u32::MAX - 1);
    let refused = follower.follower().apply_entries(&[&*entries[0]]).expect_err("it writes itself");
    assert_eq!(refused.code, ErrorCode::IllegalOperation);
}

#[test]
fn whoever_listens_hears_of_what_is_synced() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    let heard = Arc::new(AtomicU64::new(0));
    storage.queue().on_progress(Box::new({
        let (heard, storage) = (Arc::clone(&heard), Arc::downgrade(&storage));
        move || {
            // Positions can be asked for, and locks taken: none is held.
            let Some(storage) = storage.upgrade() else { return };
            heard.fetch_max(storage.queue().durable().timestamp.as_u64(), Ordering::SeqCst);
            assert_eq!(storage.queue().write_gate(), WriteGate::Open { term: 1 });
        }
    }));
    let applied = insert(&storage, &c, &rawdoc! { "_id": 1 }).expect("inserted").timestamp.as_u64();
    assert!(heard.load(Ordering::SeqCst) < applied);
    storage.sync();
    assert_eq!(heard.load(Ordering::SeqCst), applied);
}

#[test]
fn facts_survive_and_those_not_kept_are_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let storage = open_to_follow(folder.path());
        storage.facts().put(Fact::LastVote, b"first");
        storage.facts().put(Fact::LastVote, b"second");
        storage.facts().put(Fact::RollbackId, &[3]);
    }
    let storage = open(folder.path());
    assert_eq!(storage.facts().get(Fact::LastVote).expect("readable").as_deref(), Some(&b"second"[..]));
    assert_eq!(storage.facts().get(Fact::RollbackId).expect("readable"), Some(vec![3]));
    assert_eq!(storage.facts().get(Fact::Configuration).expect("readable"), None);
}

#[test]
fn a_member_of_a_set_logs_nothing_when_it_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    let last = {
        let storage = open(folder.path());
        create(&storage, "left", [1; 16], &rawdoc! { "temp": true }).expect("created");
        storage.facts().put(Fact::Configuration, b"a set's");
        storage.oplog().last_entry()
    };
    let storage = open(folder.path());
    assert_eq!(storage.oplog().last_entry(), last);
    storage.drop_temporary_collections().expect("dropped");
    assert!(storage.collection(&name("left")).is_none());
    assert!(storage.oplog().last_entry() > last);
}

#[test]
fn the_log_is_read_from_a_place_in_portions() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    assert_eq!(storage.oplog().last_entry(), OpTime::ZERO);
    assert_eq!(storage.oplog().oldest_entry().expect("readable"), None);
    assert_eq!(storage.oplog().entry_until(Timestamp::from_u64(u64::MAX)).expect("readable"), OpTime::ZERO);
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    for id in 0..10 {
        insert(&storage, &c, &rawdoc! { "_id": id }).expect("inserted");
    }
    let all = log(&storage);
    assert_eq!(all.len(), 11);
    let optimes: Vec<OpTime> = all.iter().map(|entry| optime_of(entry).expect("an OpTime")).collect();
    assert_eq!(storage.oplog().oldest_entry().expect("readable"), Some(optimes[0]));
    assert_eq!(storage.oplog().last_entry(), optimes[10]);
    assert_eq!(storage.oplog().entries_from(optimes[4].timestamp, 1).expect("readable"), all[4..5], "at least one");
    let two = all[4].as_bytes().len() + all[5].as_bytes().len();
    assert_eq!(storage.oplog().entries_from(optimes[4].timestamp, two).expect("readable"), all[4..6]);
    let after = Timestamp::from_u64(optimes[10].timestamp.as_u64() + 1);
    assert!(storage.oplog().entries_from(after, 1).expect("readable").is_empty());
    assert_eq!(storage.oplog().entry_until(after).expect("readable"), optimes[10]);
}
