//! Members that follow: what one logged is carried out by another.

mod common;

use baton_storage::{
    Bounds, CarriedOut, Collection, Durability, EntryChange, Fact, Inserted, Order, RetryImage, Statement, Storage,
    Transaction, WriteGate, Writer, optime_of, record_key,
};
use baton_types::{ErrorCode, Namespace, OpTime, Result, Timestamp};
use bson::{Binary, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use common::{change, create, create_as, documents, index, index_as, insert, log, name, open};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A member that follows.
fn open_to_follow(path: &Path) -> Arc<Storage> {
    let storage = open(path);
    storage.queue().close_to_writes();
    storage
}

fn kind(entry: &RawDocument) -> &str {
    entry.get_str("op").expect("an entry has a kind")
}

/// Carries out the command of an entry, as far as these tests have commands.
fn carry_out(writer: Writer<'_>, entry: &RawDocument) -> Result<()> {
    let o = entry.get_document("o").expect("o");
    let (command, value) = o.iter().next().expect("a command").expect("well-formed");
    let target = value.as_str().expect("a collection");
    let rest = || {
        let mut rest = RawDocumentBuf::new();
        for element in o.iter().skip(1) {
            let (name, value) = element.expect("well-formed");
            if name != "idIndex" {
                rest.append(name, value);
            }
        }
        rest
    };
    match command.as_str() {
        "create" => {
            let uuid = entry.get_binary("ui").expect("a uuid").bytes.try_into().expect("16 bytes");
            create_as(writer, target, uuid, &rest()).map(|_| ())
        }
        "createIndexes" => index_as(writer, target, &rest()),
        "drop" => writer.drop_collection(&name(target)).map(|_| ()),
        "dropIndexes" => {
            let collection = writer.collection(&name(target)).expect("there");
            writer.drop_index(&collection, o.get_str("index").expect("an index"))
        }
        other => unreachable!("no test logs {other}"),
    }
}

/// Brings a follower up to what `entries` say.
fn follow(follower: &Storage, entries: &[RawDocumentBuf]) {
    for part in entries.chunk_by(|a, b| (kind(a) == "c") == (kind(b) == "c")) {
        if kind(&part[0]) == "c" {
            for entry in part {
                follower.replay(entry, |writer| carry_out(writer, entry)).expect("replayed");
            }
        } else {
            let part: Vec<&RawDocument> = part.iter().map(AsRef::as_ref).collect();
            follower.follower().apply_entries(&part).expect("applied");
        }
    }
}

fn assert_same(primary: &Storage, follower: &Storage) {
    assert_eq!(log(primary), log(follower), "the logs are the same, byte for byte");
    assert_eq!(primary.oplog().last_entry(), follower.oplog().last_entry());
    let names = |storage: &Storage| -> Vec<_> {
        let catalog = storage.catalog();
        catalog
            .database("test")
            .map(|c| (c.namespace.clone(), c.uuid, c.counts(), c.options.document.clone()))
            .collect()
    };
    assert_eq!(names(primary), names(follower));
    for collection in follower.catalog().database("test") {
        assert_eq!(documents(primary, collection.namespace.coll()), documents(follower, collection.namespace.coll()));
        let indexes = |storage: &Storage| -> Vec<_> {
            let collection = storage.collection(&collection.namespace).expect("there");
            collection.indexes().iter().map(|i| (i.definition.name.clone(), i.state(), i.multikey())).collect()
        };
        assert_eq!(indexes(primary), indexes(follower));
        let report = follower.validate(collection, &mut |_, _| Ok(())).expect("validated");
        assert!(report.is_valid() && !report.counters_mended, "{:?}", report.errors);
    }
}

fn lsid(session: &[u8; 16]) -> RawDocumentBuf {
    rawdoc! { "id": Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: session.to_vec() } }
}

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
