//! The gate of this member's own writes: closed, it refuses them and they leave nothing behind; blocked, it keeps them waiting.

mod common;

use baton_storage::{Durability, Fact, IndexModification, Modification, Transaction, WriteGate};
use baton_types::ErrorCode;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use common::{change, create, documents, index, insert, log, name, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn a_closed_gate_lets_nothing_through_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    insert(&storage, &c, &rawdoc! { "_id": 0, "n": 0 }).expect("inserted");
    for round in 0..20 {
        let written = AtomicU64::new(0);
        let before = documents(&storage, "c")[0].get_i32("n").expect("a number");
        let at_close = std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let more = |d: &RawDocument| Some(rawdoc! { "_id": 0, "n": d.get_i32("n").expect("n") + 1 });
                        match change(&storage, &c, 0, None, more) {
                            Ok(_) => written.fetch_add(1, Ordering::Relaxed),
                            Err(error) => {
                                assert_eq!(error.code, ErrorCode::NotWritablePrimary);
                                assert_eq!(error.message, "not primary");
                                break;
                            }
                        };
                    }
                });
            }
            while written.load(Ordering::Relaxed) < 10 {
                std::thread::yield_now();
            }
            if round % 2 == 1 {
                let blocked = storage.queue().block_writes();
                assert_eq!(storage.queue().applied(), blocked);
            }
            storage.queue().close_to_writes();
            storage.queue().applied()
        });
        assert_eq!(storage.queue().applied(), at_close, "nothing got an OpTime after the gate was closed");
        assert_eq!(storage.queue().write_gate(), WriteGate::Closed);
        let after = documents(&storage, "c")[0].get_i32("n").expect("a number");
        assert_eq!((after - before) as u64, written.load(Ordering::Relaxed), "every acknowledged write and no other");
        storage.open_to_writes(round + 2);
    }
    assert_eq!(log(&storage).len() as i32, 2 + documents(&storage, "c")[0].get_i32("n").expect("a number"));
}

#[test]
fn a_refused_change_of_the_catalog_or_of_an_index_leaves_memory_and_disk_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let storage = open(folder.path());
        let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
        index(&storage, "c", &rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).expect("built");
        storage.queue().close_to_writes();
        let not_primary = |code: Option<ErrorCode>| assert_eq!(code, Some(ErrorCode::NotWritablePrimary));
        not_primary(create(&storage, "other", [2; 16], &rawdoc! {}).err().map(|e| e.code));
        not_primary(storage.by_member().drop_collection(&name("c")).err().map(|e| e.code));
        not_primary(storage.by_member().rename_collection(&name("c"), &name("d"), false).err().map(|e| e.code));
        not_primary(storage.by_member().drop_index(&c, "a_1").err().map(|e| e.code));
        let index_change = IndexModification { name: "a_1".into(), hidden: Some(true), expire_after_secs: None };
        let hidden = Modification { options: RawDocumentBuf::new(), index: Some(index_change) };
        not_primary(
            storage
                .by_member()
                .lock_catalog()
                .collection(&name("c"))
                .expect("there")
                .modify(&hidden)
                .err()
                .map(|e| e.code),
        );
        let b = rawdoc! { "v": 2, "key": { "b": 1 }, "name": "b_1" };
        not_primary(index(&storage, "c", &b).err().map(|e| e.code));
        not_primary(insert(&storage, &c, &rawdoc! { "_id": 1, "a": [1, 2] }).err().map(|e| e.code));
        assert_eq!((c.counts().documents, c.indexes()[0].multikey()), (0, 0));
        // What was refused has not made the index multikey in memory alone; what comes next makes it so on disk too.
        storage.open_to_writes(2);
        insert(&storage, &c, &rawdoc! { "_id": 2, "a": [3, 4] }).expect("inserted");
        storage.sync();
    }
    let storage = open(folder.path());
    let names: Vec<_> = storage.catalog().database("test").map(|c| c.namespace.clone()).collect();
    assert_eq!(names, [name("c")]);
    let c = storage.collection(&name("c")).expect("there");
    let indexes: Vec<_> =
        c.indexes().iter().map(|i| (i.definition.name.clone(), i.definition.hidden, i.multikey())).collect();
    assert_eq!(indexes, [(String::from("a_1"), false, 1)]);
    assert_eq!(c.counts().documents, 1);
}

#[test]
fn a_refused_statement_of_a_retryable_write_counts_as_not_carried_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    let session = storage.session(&[5; 16]).expect("readable");
    let mut record = session.begin(3).expect("the first write");
    for (stmt_id, is_open) in [(0, true), (1, false), (1, true)] {
        if is_open {
            storage.open_to_writes(2)
        } else {
            storage.queue().close_to_writes()
        }
        let mut transaction = Transaction::default();
        storage.insert(&mut transaction, &c, &rawdoc! { "_id": stmt_id }, None).expect("added");
        record.add(&mut transaction, &session, stmt_id, rawdoc! { "n": 1 });
        let outcome = storage.by_member().commit(transaction, Durability::Applied);
        assert_eq!(outcome.is_ok(), is_open);
        if !is_open {
            record.undo(&storage, &session).expect("undone");
        }
        assert!(record.statement(0).is_some());
        assert_eq!(record.statement(1).is_some(), stmt_id == 1 && is_open);
    }
    drop(record);
    storage.sessions().shrink();
    drop(session);
    storage.sessions().shrink();
    let session = storage.session(&[5; 16]).expect("readable");
    let record = session.begin(3).expect("the same write");
    assert!(record.statement(0).is_some() && record.statement(1).is_some(), "both are on disk");
}

#[test]
fn a_blocked_write_waits_and_a_local_one_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    let last = storage.queue().block_writes();
    assert_eq!(last, storage.oplog().last_entry());
    let (done, outcome) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn({
        let (storage, c) = (Arc::clone(&storage), Arc::clone(&c));
        move || done.send(insert(&storage, &c, &rawdoc! { "_id": 1 })).expect("awaited")
    });
    assert!(outcome.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
    storage.facts().put(Fact::LastVote, b"somebody");
    assert_eq!(storage.oplog().last_entry(), last);
    assert!(documents(&storage, "c").is_empty());
    storage.queue().unblock_writes();
    let optime = outcome.recv().expect("an answer").expect("inserted");
    assert!(optime > last);
    waiting.join().expect("done");
    assert_eq!(documents(&storage, "c").len(), 1);
}

/// Who has the turn to change what exists keeps waiting whoever must know that nothing is being changed.
#[test]
fn a_change_of_the_catalog_that_comes_while_writes_are_blocked_waits_without_its_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    storage.queue().block_writes();
    let (done, outcome) = std::sync::mpsc::channel();
    let waiting: Vec<_> = (2..5_u8)
        .map(|i| {
            let (storage, done) = (Arc::clone(&storage), done.clone());
            std::thread::spawn(move || {
                let created = create(&storage, &format!("c{i}"), [i; 16], &rawdoc! {});
                done.send(created.map(drop)).expect("awaited");
            })
        })
        .collect();
    assert!(outcome.recv_timeout(Duration::from_millis(100)).is_err(), "they wait");
    // Waits for ever if one of them has the turn.
    storage.settle_catalog();
    drop(storage.freeze_catalog());
    assert_eq!(storage.catalog().database("test").count(), 1);
    storage.queue().unblock_writes();
    for _ in &waiting {
        outcome.recv().expect("an answer").expect("created");
    }
    storage.queue().block_writes();
    let refused = std::thread::spawn({
        let storage = Arc::clone(&storage);
        move || storage.by_member().drop_collection(&name("c")).err().map(|error| error.code)
    });
    storage.queue().close_to_writes();
    assert_eq!(refused.join().expect("done"), Some(ErrorCode::NotWritablePrimary));
    waiting.into_iter().for_each(|thread| thread.join().expect("done"));
    assert_eq!(storage.catalog().database("test").count(), 4);
}

/// Who hands leadership over tells the writes that wait only when it is known who leads; or it leads again.
#[test]
fn a_write_that_waited_when_the_gate_closed_may_be_kept_waiting_and_one_that_comes_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    for (id, leads_again) in [(1, false), (2, true)] {
        let last = storage.queue().block_writes();
        let (done, outcome) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn({
            let (storage, c) = (Arc::clone(&storage), Arc::clone(&c));
            move || done.send(insert(&storage, &c, &rawdoc! { "_id": id })).expect("awaited")
        });
        assert!(outcome.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
        storage.queue().close_and_keep();
        assert_eq!(storage.queue().write_gate(), WriteGate::Closed);
        assert!(outcome.recv_timeout(Duration::from_millis(100)).is_err(), "it has not been told");
        let comes = insert(&storage, &c, &rawdoc! { "_id": 9 }).expect_err("refused at once");
        assert_eq!(comes.code, ErrorCode::NotWritablePrimary);
        assert_eq!(storage.oplog().last_entry(), last);
        if leads_again {
            storage.open_to_writes(2);
            assert!(outcome.recv().expect("an answer").expect("inserted") > last);
        } else {
            storage.queue().refuse_kept();
            assert_eq!(outcome.recv().expect("an answer").expect_err("told").code, ErrorCode::NotWritablePrimary);
            storage.open_to_writes(1);
        }
        waiting.join().expect("done");
    }
    assert_eq!(documents(&storage, "c").len(), 1);
}
