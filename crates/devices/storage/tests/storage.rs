//! Storage on a real directory: what is written is read back, over a restart too, and every index agrees with its
//! documents.

use baton_storage::tasks::{Admission, Gate, Pace, Proposal, TaskKind};
use baton_storage::{
    Bounds, Collection, CollectionOptions, CopyRequest, CreateOutcome, Durability, IndexDefinition, IndexState,
    Inserted, Order, Storage, StorageOptions, Transaction, record_key,
};
use baton_types::{ErrorCode, Namespace, Timestamp};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path) -> Arc<Storage> {
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    Storage::open(path, options).expect("the directory opens")
}

fn create(storage: &Storage, name: &str, options: RawDocumentBuf) -> Arc<Collection> {
    let namespace = Namespace::new("test", name).expect("a valid name");
    let options = CollectionOptions::parse(&options).expect("valid options");
    match storage.by_member().create_collection(&namespace, options, [7; 16]).expect("created") {
        CreateOutcome::Created(collection) | CreateOutcome::Exists(collection) => collection,
    }
}

fn insert(storage: &Storage, collection: &Arc<Collection>, document: &RawDocument) -> baton_types::Result<()> {
    let mut transaction = Transaction::default();
    match storage.insert(&mut transaction, collection, document, None) {
        Ok(Inserted::Added) => {
            storage.by_member().commit(transaction, Durability::Synced).expect("committed");
            Ok(())
        }
        Ok(Inserted::CommitFirst) => unreachable!("nobody holds a lock for long"),
        Err(error) => {
            storage.abandon(transaction);
            Err(error)
        }
    }
}

fn replace(storage: &Storage, collection: &Arc<Collection>, id: i32, after: &RawDocument) {
    let record = record_key(RawBsonRef::Int32(id)).expect("a key");
    let mut transaction = Transaction::default();
    assert!(storage.lock_document(&mut transaction, collection, &record));
    let before = storage.get(collection, &record).expect("readable").expect("there").to_vec();
    let before = RawDocument::from_bytes(&before).expect("a document");
    storage.update(&mut transaction, collection, &record, (before, after), after, None).expect("updated");
    storage.by_member().commit(transaction, Durability::Applied).expect("committed");
}

fn documents(storage: &Storage, collection: &Collection) -> Vec<RawDocumentBuf> {
    let mut cursor = storage.view().documents(collection, &Bounds::default(), Order::Forward);
    let mut all = Vec::new();
    while let Some((_, document)) = cursor.next_document().expect("readable") {
        all.push(document.to_owned());
    }
    all
}

fn index(storage: &Storage, collection: &Collection, spec: &RawDocument) -> baton_types::Result<()> {
    let definition = IndexDefinition::parse(spec)?;
    storage.by_member().create_index(&collection.namespace, definition, &mut |_, _| Ok(()))
}

fn assert_valid(storage: &Storage, collection: &Arc<Collection>) {
    let report = storage.validate(collection, &mut |_, _| Ok(())).expect("validated");
    assert!(report.is_valid(), "{:?}", report.errors);
    assert!(!report.counters_mended, "the counters were wrong");
}

#[test]
fn documents_survive_a_restart_in_the_order_of_their_ids() {
    let directory = tempfile::tempdir().expect("a folder");
    let last = {
        let storage = open(directory.path());
        let collection = create(&storage, "c", rawdoc! {});
        for id in [5, 1, 3] {
            insert(&storage, &collection, &rawdoc! { "_id": id, "x": "y" }).expect("inserted");
        }
        storage.queue().durable()
    };
    let storage = open(directory.path());
    let collection = storage.collection(&Namespace::new("test", "c").expect("valid")).expect("still there");
    let ids: Vec<i32> = documents(&storage, &collection).iter().map(|d| d.get_i32("_id").expect("an id")).collect();
    assert_eq!(ids, [1, 3, 5]);
    assert_eq!(collection.counts().documents, 3);
    assert_eq!(storage.queue().applied(), last, "OpTimes go on from where they were");
    assert_valid(&storage, &collection);
}

#[test]
fn a_second_document_with_the_same_id_is_refused_with_its_key() {
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let collection = create(&storage, "c", rawdoc! {});
    insert(&storage, &collection, &rawdoc! { "_id": 1 }).expect("inserted");
    let error = insert(&storage, &collection, &rawdoc! { "_id": 1.0 }).expect_err("the same number in another type");
    assert_eq!(error.code, ErrorCode::DuplicateKey);
    assert!(
        error.message.contains("E11000 duplicate key error collection: test.c index: _id_ dup key: { _id: 1.0 }"),
        "{}",
        error.message
    );
    assert_eq!(collection.counts().documents, 1);
}

#[test]
fn an_index_built_over_documents_and_kept_by_writers_validates() {
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let collection = create(&storage, "c", rawdoc! {});
    for id in 0..700 {
        insert(&storage, &collection, &rawdoc! { "_id": id, "a": [id, id % 7], "u": id }).expect("inserted");
    }
    index(&storage, &collection, &rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).expect("built");
    index(&storage, &collection, &rawdoc! { "v": 2, "key": { "u": -1 }, "name": "u_-1", "unique": true })
        .expect("built");
    replace(&storage, &collection, 3, &rawdoc! { "_id": 3, "a": "now a string", "u": 1000 });
    let a = collection.index("a_1").expect("there");
    assert_eq!((a.state(), a.multikey()), (IndexState::Ready, 1));
    assert_valid(&storage, &collection);

    let error = insert(&storage, &collection, &rawdoc! { "_id": 9999, "u": 5 }).expect_err("u is unique");
    assert_eq!(error.code, ErrorCode::DuplicateKey);
    assert!(error.message.ends_with("index: u_-1 dup key: { u: 5 }"), "{}", error.message);

    let error = index(&storage, &collection, &rawdoc! { "v": 2, "key": { "a": 1 }, "name": "bad", "unique": true });
    assert_eq!(error.expect_err("a repeats").code, ErrorCode::DuplicateKey);
    assert!(collection.index("bad").is_none(), "a failed build leaves nothing");

    storage.by_member().drop_index(&collection, "a_1").expect("dropped");
    assert_eq!(collection.indexes().len(), 1);
    assert_valid(&storage, &collection);
}

#[test]
fn a_capped_collection_keeps_the_newest_in_order_of_arrival() {
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let collection = create(&storage, "log", rawdoc! { "capped": true, "size": 100_000, "max": 3 });
    for id in [9, 8, 7, 6, 5] {
        insert(&storage, &collection, &rawdoc! { "_id": id }).expect("inserted");
    }
    let ids: Vec<i32> = documents(&storage, &collection).iter().map(|d| d.get_i32("_id").expect("an id")).collect();
    assert_eq!(ids, [7, 6, 5]);
    assert_valid(&storage, &collection);
}

#[test]
fn every_change_is_in_the_oplog_once_and_in_order() {
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let collection = create(&storage, "c", rawdoc! {});
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let (storage, collection) = (Arc::clone(&storage), Arc::clone(&collection));
            std::thread::spawn(move || {
                for i in 0..50 {
                    insert(&storage, &collection, &rawdoc! { "_id": thread * 1000 + i }).expect("inserted");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a writer panicked");
    }
    let oplog = storage.collection(&Namespace::new("local", "oplog.rs").expect("valid")).expect("there");
    let entries = documents(&storage, &oplog);
    assert_eq!(entries.len(), 401, "one create and four hundred inserts");
    let stamps: Vec<_> = entries.iter().map(|e| e.get_timestamp("ts").expect("ts")).collect();
    assert!(stamps.is_sorted_by(|a, b| a < b), "OpTimes strictly increase");
    assert_eq!(entries[0].get_document("o").expect("o").get_str("create").expect("create"), "c");
    assert_eq!(collection.counts().documents, 400);
    assert_eq!(storage.queue().durable(), storage.queue().applied());
}

#[test]
fn dropping_and_renaming_leave_no_keys_behind() {
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let collection = create(&storage, "c", rawdoc! {});
    for id in 0..10 {
        insert(&storage, &collection, &rawdoc! { "_id": id }).expect("inserted");
    }
    let renamed = Namespace::new("test", "d").expect("valid");
    storage.by_member().rename_collection(&collection.namespace, &renamed, false).expect("renamed");
    let now = storage.collection(&renamed).expect("there under its new name");
    assert_eq!((documents(&storage, &now).len(), now.uuid), (10, collection.uuid));
    storage.by_member().drop_collection(&renamed).expect("dropped").expect("was there");
    assert!(storage.collection(&renamed).is_none());
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !documents(&storage, &collection).is_empty() {
        assert!(std::time::Instant::now() < until, "the keys are not given back");
        storage.chores().free_dropped(&|| true).expect("freed");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    storage.flush().expect("flushed");
}

#[test]
fn a_time_before_a_copy_took_its_name_is_not_read() {
    let name = |db, coll| Namespace::new(db, coll).expect("valid");
    let (c, d, elsewhere) = (name("test", "c"), name("test", "d"), name("other", "c"));
    for (to, drop_source) in [(&c, false), (&d, false), (&elsewhere, true)] {
        let directory = tempfile::tempdir().expect("a folder");
        let storage = open(directory.path());
        let collection = create(&storage, "c", rawdoc! {});
        insert(&storage, &collection, &rawdoc! { "_id": 1 }).expect("inserted");
        let before = storage.queue().applied().timestamp;
        storage.view_at(Some(before)).expect("readable until the copy");
        let request = CopyRequest {
            from: &c,
            to,
            temporary: &name(to.db(), "tmp"),
            options: &|_| Ok(CollectionOptions::default()),
            uuid: &|| [8; 16],
            with_indexes: false,
            drop_target: true,
            drop_source,
        };
        storage.by_member().copy_collection(&request, &mut |_, _| Ok(())).expect("copied");
        let refused = storage.view_at(Some(before)).map(drop).expect_err("the catalog of now misreads that time");
        assert_eq!(refused.code, ErrorCode::SnapshotUnavailable, "to {to}");
        storage.view_at(Some(storage.queue().applied().timestamp)).expect("readable since the copy");
        assert_eq!(documents(&storage, &storage.collection(to).expect("there")).len(), 1);
    }
}

#[test]
fn a_temporary_collection_lasts_once_renamed_and_else_goes_with_the_restart() {
    let directory = tempfile::tempdir().expect("a folder");
    let lasting = Namespace::new("test", "lasting").expect("valid");
    {
        let storage = open(directory.path());
        let renamed = create(&storage, "one", rawdoc! { "temp": true });
        insert(&storage, &renamed, &rawdoc! { "_id": 1 }).expect("inserted");
        storage.by_member().rename_collection(&renamed.namespace, &lasting, false).expect("renamed");
        let left = create(&storage, "other", rawdoc! { "temp": true });
        insert(&storage, &left, &rawdoc! { "_id": 1 }).expect("inserted");
    }
    let storage = open(directory.path());
    let names: Vec<_> = storage.catalog().database("test").map(|collection| collection.namespace.clone()).collect();
    assert_eq!(names, [lasting]);
    assert_eq!(documents(&storage, &storage.collection(&names[0]).expect("there")).len(), 1);
}

#[test]
fn what_a_session_did_is_known_after_a_restart_until_it_expires() {
    let directory = tempfile::tempdir().expect("a folder");
    let reply = rawdoc! { "n": 1, "after": { "_id": 1 } };
    {
        let storage = open(directory.path());
        let collection = create(&storage, "c", rawdoc! {});
        let session = storage.session(b"session").expect("readable");
        // A long write of an older number leaves more rows than the newer one replaces.
        for (txn_number, transactions) in [(6, 3), (7, 2)] {
            let mut record = session.begin(txn_number).expect("newer than before");
            for stmt_id in 0..transactions {
                let mut transaction = Transaction::default();
                let document = rawdoc! { "_id": txn_number * 10 + i64::from(stmt_id) };
                storage.insert(&mut transaction, &collection, &document, None).expect("inserted");
                record.add(&mut transaction, &session, stmt_id, reply.clone());
                storage.by_member().commit(transaction, Durability::Synced).expect("committed");
            }
        }
    }
    let storage = open(directory.path());
    {
        let session = storage.session(b"session").expect("readable");
        assert_eq!(session.begin(6).expect_err("an older write").code, ErrorCode::TransactionTooOld);
        let record = session.begin(7).expect("the same write");
        assert_eq!(record.statement(0), Some(&reply));
        assert_eq!(record.statement(1), Some(&reply));
        assert_eq!(record.statement(2), None, "a row of an older write does not count");
        assert_eq!(record.last, storage.queue().applied());
    }
    storage.chores().expire_sessions(60).expect("looked");
    assert!(storage.session(b"session").expect("readable").begin(7).expect("known").statement(0).is_some());
    std::thread::sleep(std::time::Duration::from_millis(1100));
    storage.chores().expire_sessions(0).expect("expired");
    assert!(storage.session(b"session").expect("readable").begin(6).expect("forgotten").statement(0).is_none());
}

/// A gate that lets compaction wait.
#[derive(Default)]
struct SwitchedGate(std::sync::atomic::AtomicBool);

impl Gate for SwitchedGate {
    fn may_begin(&self, proposal: &Proposal<'_>) -> Admission {
        let is_open = self.0.load(std::sync::atomic::Ordering::Relaxed);
        if proposal.kind != TaskKind::Compaction || is_open {
            Admission::Begin(Pace::Full)
        } else {
            Admission::Wait { why: "it is closed" }
        }
    }
}

#[test]
fn automatic_compaction_waits_for_the_gate() {
    let directory = tempfile::tempdir().expect("a folder");
    let gate = Arc::new(SwitchedGate::default());
    let storage = Storage::open(directory.path(), StorageOptions::default()).expect("opened");
    storage.tasks().bind(gate.clone());
    let collection = create(&storage, "c", rawdoc! {});
    for round in 0..6 {
        for id in 0..50 {
            insert(&storage, &collection, &rawdoc! { "_id": round * 1000 + id }).expect("inserted");
        }
        storage.flush().expect("flushed");
    }
    let compactions = || {
        let totals = storage.tasks().totals();
        totals.iter().find(|(kind, _)| *kind == TaskKind::Compaction).map_or(0, |(_, totals)| totals.count)
    };
    for _ in 0..10 {
        storage.chores().tend_compaction().expect("looked");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(compactions(), 0, "nothing is merged while the gate is closed");
    gate.0.store(true, std::sync::atomic::Ordering::Relaxed);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while compactions() == 0 && std::time::Instant::now() < deadline {
        storage.chores().tend_compaction().expect("looked");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(compactions() > 0, "once it is open, what is due is merged");
    assert_eq!(documents(&storage, &collection).len(), 300);
}

/// Adds 1 to the counter of a document, or inserts it, or deletes it when the counter has reached `wrap`.
fn count_up(storage: &Storage, collection: &Arc<Collection>, wrap: i32) {
    let record = record_key(RawBsonRef::Int32(1)).expect("a key");
    let mut transaction = Transaction::default();
    assert!(storage.lock_document(&mut transaction, collection, &record));
    let before = storage.get_locked(collection, &record).expect("readable").map(|document| document.to_vec());
    let before = before.as_deref().map(|bytes| RawDocument::from_bytes(bytes).expect("a document"));
    match before.map(|before| (before, before.get_i32("n").expect("a counter"))) {
        None => {
            storage.abandon(transaction);
            return match insert(storage, collection, &rawdoc! { "_id": 1, "n": 1 }) {
                Err(error) if error.code == ErrorCode::DuplicateKey => count_up(storage, collection, wrap),
                inserted => inserted.expect("inserted"),
            };
        }
        Some((before, n)) if n == wrap => {
            storage.delete(&mut transaction, collection, &record, before, None).expect("deleted");
        }
        Some((before, n)) => {
            let after = rawdoc! { "_id": 1, "n": n + 1 };
            storage.update(&mut transaction, collection, &record, (before, &after), &after, None).expect("updated");
        }
    }
    storage.by_member().commit(transaction, Durability::Synced).expect("committed");
}

#[test]
fn writers_of_one_document_build_on_each_other_in_the_order_of_the_oplog() {
    const THREADS: usize = 16;
    const CHANGES_EACH: usize = 100;
    const WRAP: i32 = 30;
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let collection = create(&storage, "hot", rawdoc! {});
    index(&storage, &collection, &rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1", "unique": true }).expect("built");
    let before = storage.queue().metrics.batches.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..CHANGES_EACH).for_each(|_| count_up(&storage, &collection, WRAP)));
        }
    });
    // Insert, count up to WRAP, delete, and again: each change saw the one before it.
    let mut expected = 0;
    let view = storage.view();
    let oplog = storage.collection(&Namespace::new("local", "oplog.rs").expect("valid")).expect("there");
    let mut entries = view.documents(&oplog, &Bounds::default(), Order::Forward);
    let mut changes = 0;
    while let Some((_, entry)) = entries.next_document().expect("readable") {
        let o = entry.get_document("o").expect("there");
        match entry.get_str("op").expect("there") {
            "i" => assert_eq!((expected, o.get_i32("n").expect("there")), (0, 1)),
            "u" => assert_eq!(o.get_i32("n").expect("there"), expected + 1),
            "d" => assert_eq!(expected, WRAP),
            _ => continue,
        }
        expected = if entry.get_str("op").is_ok_and(|op| op == "d") { 0 } else { expected + 1 };
        changes += 1;
    }
    assert_eq!(changes, THREADS * CHANGES_EACH);
    let found = documents(&storage, &collection);
    assert_eq!(found.first().map_or(0, |document| document.get_i32("n").expect("there")), expected);
    assert_valid(&storage, &collection);
    let batches = storage.queue().metrics.batches.load(std::sync::atomic::Ordering::Relaxed) - before;
    assert!(batches < changes as u64, "{batches} batches for {changes} changes: no two shared one");
}

/// Commits from several threads, none of which waits for a sync; gives the last OpTime.
fn write_wanting_syncs(storage: &Arc<Storage>, writers: i32, first: i32) -> baton_types::OpTime {
    let collection = create(storage, "wanted", rawdoc! {});
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (storage, collection) = (&storage, &collection);
            scope.spawn(move || {
                for n in 0..200 {
                    let mut transaction = Transaction::default();
                    storage
                        .insert(&mut transaction, collection, &rawdoc! { "_id": first + writer * 1000 + n }, None)
                        .expect("inserted");
                    storage.by_member().commit(transaction, Durability::Wanted).expect("committed");
                }
            });
        }
    });
    storage.queue().applied()
}

#[test]
fn what_wants_a_sync_gets_one_whether_or_not_a_thread_is_there_for_it() {
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let last = write_wanting_syncs(&storage, 4, 0);
    // Whoever led the last sync has seen to it before it returned.
    assert_eq!(storage.queue().durable(), last);

    let (stop, syncer) = (Arc::new(std::sync::atomic::AtomicBool::new(false)), Arc::clone(&storage));
    let stopping = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        while !stopping.load(std::sync::atomic::Ordering::Relaxed) {
            syncer.queue().serve_syncs(std::time::Duration::from_millis(5));
        }
    });
    let last = write_wanting_syncs(&storage, 4, 100_000);
    let began = std::time::Instant::now();
    while storage.queue().durable() < last {
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "a wish was forgotten");
        std::thread::yield_now();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    thread.join().expect("no panic");
}

#[test]
fn a_note_that_is_waited_for_is_on_disk_when_a_lone_writer_returns() {
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let namespace = Namespace::new("admin", "$cmd").expect("a name");
    let noted = storage
        .by_member()
        .note_durably(&namespace, &rawdoc! { "msg": "nothing" }, Durability::Wanted)
        .expect("this member writes");
    assert_eq!(storage.queue().durable(), noted);
}

#[test]
fn a_follower_finds_every_entry_once_whether_it_reads_in_memory_or_on_disk() {
    const WRITERS: i32 = 4;
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    let begin = storage.oplog().last_entry().timestamp;
    let next = |seen: Timestamp| Timestamp::from_u64(seen.as_u64() + 1);
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut in_memory = 0;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_wanting_syncs(&storage, WRITERS, 0));
        let mut follower = None;
        let mut seen = begin;
        loop {
            let is_over = writing.is_finished();
            // Now and then nobody follows, and the follower that comes back has missed some.
            follower = if found.len() % 3 == 2 { None } else { Some(follower.unwrap_or_else(|| storage.follow_log())) };
            let before = found.len();
            if let Some(entries) = storage.queue().newest_entries(next(seen)) {
                found.extend(entries.iter().map(|(_, entry)| Vec::clone(entry)));
                in_memory += entries.len();
            } else {
                let entries = storage.oplog().entries_from(next(seen), 10_000).expect("readable");
                found.extend(entries.into_iter().map(RawDocumentBuf::into_bytes));
            }
            if let Some(last) = found.last() {
                seen = baton_storage::optime_of(RawDocument::from_bytes(last).expect("an entry"))
                    .expect("an OpTime")
                    .timestamp;
            }
            if is_over && found.len() == before {
                break;
            }
        }
    });
    let on_disk = storage.oplog().entries_from(next(begin), usize::MAX).expect("readable");
    assert!(found.iter().map(Vec::as_slice).eq(on_disk.iter().map(|entry| entry.as_bytes())));
    assert!(in_memory > 0, "nothing of {} was found in memory", on_disk.len());
}

/// The oplog's size is decided when it is made; what changes it later lasts.
#[test]
fn the_oplogs_limits_are_those_it_was_made_with_or_given_since() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = |bytes: u64, secs: Option<u64>| {
        let options = StorageOptions {
            cache_bytes: 64 << 20,
            oplog_bytes_max: bytes,
            oplog_retention_secs_min: secs,
            ..StorageOptions::default()
        };
        let storage = Storage::open(directory.path(), options).expect("opened");
        let statistics = storage.statistics();
        (storage, statistics.oplog_bytes_max, statistics.oplog_retention_secs_min)
    };
    let (storage, bytes, secs) = open(7 << 30, Some(60));
    assert_eq!((bytes, secs), (7 << 30, 60));
    drop(storage);
    let (storage, bytes, secs) = open(3 << 30, None);
    assert_eq!((bytes, secs), (7 << 30, 60), "the disk of the day counts for nothing");
    storage.oplog().resize(Some(5 << 30), Some(90));
    drop(storage);
    let (storage, bytes, secs) = open(3 << 30, None);
    assert_eq!((bytes, secs), (5 << 30, 90));
    drop(storage);
    let (_storage, bytes, secs) = open(3 << 30, Some(30));
    assert_eq!((bytes, secs), (5 << 30, 30), "what is said of the age counts");
}

/// A panic in an index build is that request's; what it had registered is taken away again.
#[test]
fn an_index_build_that_panics_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let storage = open(directory.path());
    let collection = create(&storage, "c", rawdoc! {});
    for id in 0..1000 {
        insert(&storage, &collection, &rawdoc! { "_id": id, "a": id }).expect("inserted");
    }
    let definition = || IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).expect("valid");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        storage.by_member().create_index(&collection.namespace, definition(), &mut |done, _| {
            assert!(done < 500, "on purpose");
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert!(storage.collection(&collection.namespace).expect("there").index("a_1").is_none());
    insert(&storage, &collection, &rawdoc! { "_id": 1000, "a": 1 }).expect("no lock is left");
    storage.by_member().create_index(&collection.namespace, definition(), &mut |_, _| Ok(())).expect("built");
    assert_valid(&storage, &collection);
}
