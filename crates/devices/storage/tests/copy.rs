//! Copies of whole collections, while others write to what is copied, alter it, and drop the copy.
//!
//! What is done under the catalog's guard is counted, not timed.

use baton_storage::{
    Bounds, Collection, CollectionOptions, Copied, CopyRequest, CreateOutcome, Durability, IndexDefinition, Inserted,
    Modification, Order, Storage, StorageOptions, Transaction, record_key,
};
use baton_types::{ErrorCode, Namespace, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// What a copy carries over under the catalog's guard, at the most.
const HELD_MAX: u64 = 256;

fn open(path: &Path) -> Arc<Storage> {
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    Storage::open(path, options).expect("the directory opens")
}

fn name(db: &str, coll: &str) -> Namespace {
    Namespace::new(db, coll).expect("a valid name")
}

fn source() -> Namespace {
    name("test", "c")
}

fn create(storage: &Storage, namespace: &Namespace, options: &RawDocument) -> Arc<Collection> {
    let options = CollectionOptions::parse(options).expect("valid options");
    let outcome =
        storage.by_member().create_collection(namespace, options, bson::Uuid::new().bytes()).expect("created");
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = outcome;
    collection
}

/// Puts a document of that `_id`, or takes it away, as a writer does; `None` if there is no such collection.
fn write(storage: &Storage, namespace: &Namespace, id: i32, document: Option<&RawDocument>) -> Option<Result<()>> {
    storage.with_collection(namespace, |collection| {
        let collection = collection?;
        let record = record_key(RawBsonRef::Int32(id)).expect("a key");
        let mut transaction = Transaction::default();
        while !storage.lock_document(&mut transaction, collection, &record) {}
        let found = storage.get_locked(collection, &record).expect("readable").map(|found| found.to_vec());
        let before = found.as_deref().map(|found| RawDocument::from_bytes(found).expect("a document"));
        let outcome = match (before, document) {
            (None, Some(document)) => {
                transaction = Transaction::default();
                storage.insert(&mut transaction, collection, document, None).map(|inserted| {
                    assert_eq!(inserted, Inserted::Added);
                })
            }
            (Some(before), Some(after)) => {
                storage.update(&mut transaction, collection, &record, (before, after), after, None)
            }
            (Some(before), None) => storage.delete(&mut transaction, collection, &record, before, None),
            (None, None) => return Some(Ok(())),
        };
        Some(outcome.and_then(|()| storage.by_member().commit(transaction, Durability::Applied).map(|_| ())))
    })
}

fn put(storage: &Storage, id: i32, document: &RawDocument) {
    write(storage, &source(), id, Some(document)).expect("there").expect("written");
}

fn remove(storage: &Storage, id: i32) {
    write(storage, &source(), id, None).expect("there").expect("removed");
}

/// An insert into a capped collection.
fn append(storage: &Storage, collection: &Namespace, id: i32) {
    storage.with_collection(collection, |collection| {
        let mut transaction = Transaction::default();
        let inserted =
            storage.insert(&mut transaction, collection.expect("there"), &rawdoc! { "_id": id, "n": 0 }, None);
        assert_eq!(inserted.expect("inserted"), Inserted::Added);
        storage.by_member().commit(transaction, Durability::Applied).expect("committed");
    });
}

fn fill(storage: &Storage, ids: std::ops::Range<i32>) {
    create(storage, &source(), &rawdoc! {});
    for id in ids {
        put(storage, id, &rawdoc! { "_id": id, "n": 0 });
    }
}

fn build(storage: &Storage, spec: &RawDocument) -> Result<()> {
    storage.by_member().create_index(&source(), IndexDefinition::parse(spec).expect("a definition"), &mut |_, _| Ok(()))
}

fn unique_on_n() -> RawDocumentBuf {
    rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1", "unique": true }
}

fn documents(storage: &Storage, namespace: &Namespace) -> Vec<RawDocumentBuf> {
    let collection = storage.collection(namespace).expect("there");
    let mut cursor = storage.view().documents(&collection, &Bounds::default(), Order::Forward);
    let mut all = Vec::new();
    while let Some((_, document)) = cursor.next_document().expect("readable") {
        all.push(document.to_owned());
    }
    all
}

fn ids(storage: &Storage, namespace: &Namespace) -> Vec<i32> {
    documents(storage, namespace).iter().map(|document| document.get_i32("_id").expect("a number")).collect()
}

fn assert_valid(storage: &Storage, namespace: &Namespace) {
    let collection = storage.collection(namespace).expect("there");
    let report = storage.validate(&collection, &mut |_, _| Ok(())).expect("validated");
    assert!(report.is_valid() && !report.counters_mended, "{:?}", report.errors);
}

/// Nothing of a copy is left but what has the wanted name.
fn assert_names(storage: &Storage, wanted: &[&str]) {
    let names: Vec<_> = storage.catalog().iter().map(|collection| collection.namespace.to_string()).collect();
    let names: Vec<_> = names.iter().filter(|name| !name.starts_with("local.")).collect();
    assert_eq!(names, wanted);
}

/// A rename into another database, as `renameCollection` does it.
fn rename(storage: &Storage, between: &mut dyn FnMut()) -> Result<Copied> {
    let request = CopyRequest {
        from: &source(),
        to: &name("other", "c"),
        temporary: &name("other", "tmp"),
        options: &|source| Ok(source.options.clone()),
        uuid: &|| bson::Uuid::new().bytes(),
        with_indexes: true,
        drop_target: true,
        drop_source: true,
    };
    storage.by_member().copy_collection(&request, &mut |_, _| {
        between();
        Ok(())
    })
}

/// As `convertToCapped` does it.
fn cap(storage: &Storage, size: i64, between: &mut dyn FnMut()) -> Result<Copied> {
    let request = CopyRequest {
        from: &source(),
        to: &source(),
        temporary: &name("test", "tmp"),
        options: &|_| CollectionOptions::parse(&rawdoc! { "capped": true, "size": size }),
        uuid: &|| bson::Uuid::new().bytes(),
        with_indexes: false,
        drop_target: true,
        drop_source: false,
    };
    storage.by_member().copy_collection(&request, &mut |_, _| {
        between();
        Ok(())
    })
}

/// Runs it the first time only.
fn once(work: impl FnOnce()) -> impl FnMut() {
    let mut work = Some(work);
    move || {
        if let Some(work) = work.take() {
            work();
        }
    }
}

/// Four clients write all the time, each to documents of its own, and remember what was acknowledged. Fails if a write is in
/// neither the copy nor what has its name.
#[test]
fn every_write_acknowledged_beside_a_copy_is_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    fill(&storage, 0..4_000);
    build(&storage, &rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" }).expect("built");
    let draws = AtomicI32::new(0);
    let (copied, acknowledged) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|own| {
                let (storage, draws) = (&storage, &draws);
                scope.spawn(move || {
                    let mut acknowledged = BTreeMap::new();
                    loop {
                        let n = draws.fetch_add(1, Ordering::Relaxed);
                        let id = n.wrapping_mul(7919).rem_euclid(1_500) * 4 + own;
                        let document = (n % 5 != 0).then(|| rawdoc! { "_id": id, "n": n });
                        match write(storage, &source(), id, document.as_deref()) {
                            None => return acknowledged,
                            Some(outcome) => outcome.expect("written"),
                        }
                        acknowledged.insert(id, document);
                    }
                })
            })
            .collect();
        while draws.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        let copied = rename(&storage, &mut || ()).expect("copied");
        (copied, writers.into_iter().flat_map(|writer| writer.join().expect("wrote")).collect::<BTreeMap<_, _>>())
    });
    assert!(copied.attempts == 1 && copied.carried > 0 && copied.carried_held <= HELD_MAX, "{copied:?}");
    let mut wanted: BTreeMap<i32, RawDocumentBuf> = (0..4_000).map(|id| (id, rawdoc! { "_id": id, "n": 0 })).collect();
    for (id, document) in acknowledged {
        match document {
            Some(document) => wanted.insert(id, document),
            None => wanted.remove(&id),
        };
    }
    assert!(documents(&storage, &name("other", "c")) == wanted.into_values().collect::<Vec<_>>());
    assert_valid(&storage, &name("other", "c"));
    assert_names(&storage, &["other.c"]);
}

/// Fails if what was written while the copying went on is copied while nobody can change what exists.
#[test]
fn what_is_carried_over_under_the_guard_is_little_however_much_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    fill(&storage, 0..3_000);
    let mut rounds = 0;
    let copied = rename(&storage, &mut || {
        rounds += 1;
        // Many in the first place, and more than the guard allows again and again.
        let many = if rounds == 1 {
            8_000
        } else if rounds < 38 {
            300
        } else {
            0
        };
        for id in 0..many {
            put(&storage, id, &rawdoc! { "_id": id, "n": rounds });
        }
    })
    .expect("copied");
    assert!(copied.carried >= 8_000 && copied.carried_held <= HELD_MAX && copied.attempts == 1, "{copied:?}");
    assert_eq!(ids(&storage, &name("other", "c")), (0..8_000).collect::<Vec<_>>());
}

/// Fails if a copy asks of documents what the source has asked already, about states that the source never had.
#[test]
fn documents_that_swap_a_unique_key_while_they_are_copied_are_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    create(&storage, &source(), &rawdoc! {});
    for id in 0..600 {
        put(&storage, id, &rawdoc! { "_id": id, "n": id });
    }
    build(&storage, &unique_on_n()).expect("built");
    let swap = || {
        for (id, n) in [(1, -1), (500, 1), (1, 500)] {
            put(&storage, id, &rawdoc! { "_id": id, "n": n });
        }
    };
    rename(&storage, &mut once(swap)).expect("copied");
    let copy = name("other", "c");
    let copies = documents(&storage, &copy);
    assert!(copies[1] == rawdoc! { "_id": 1, "n": 500 } && copies[500] == rawdoc! { "_id": 500, "n": 1 });
    assert_valid(&storage, &copy);
    let twice = write(&storage, &copy, 9_000, Some(&rawdoc! { "_id": 9_000, "n": 7 })).expect("there");
    assert_eq!(twice.map_err(|error| error.code), Err(ErrorCode::DuplicateKey), "the index is unique");
}

/// As soon as the copy has its first index, a unique index of the source is dropped, and duplicates come in. Fails if a copy takes the
/// index of one moment and the documents of another.
/// Who watches the copy may be given the processor too late to meet the moment between its indexes and its first document.
#[test]
fn a_copy_takes_the_indexes_and_the_documents_of_one_moment() {
    assert!((0..50).any(|_| is_met_between_indexes_and_documents()), "the moment was never met");
}

/// Copies, while another drops an index and writes what that had forbidden; tells whether it did so in time to be seen.
fn is_met_between_indexes_and_documents() -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    fill(&storage, 0..1);
    for n in 0..12 {
        let field = format!("field{n}");
        let mut key = RawDocumentBuf::new();
        key.append(bson::raw::CString::try_from(field.as_str()).expect("a name"), 1);
        build(&storage, &rawdoc! { "v": 2, "key": key, "name": field }).expect("built");
    }
    build(&storage, &unique_on_n()).expect("built");
    let is_over = AtomicBool::new(false);
    let copied = std::thread::scope(|scope| {
        scope.spawn(|| {
            let copy = name("other", "tmp");
            while storage.collection(&copy).is_none_or(|copy| copy.indexes().is_empty()) {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                std::thread::yield_now();
            }
            // Too late, if the copy has taken its place.
            let Some(source) = storage.collection(&source()) else { return };
            if storage.by_member().drop_index(&source, "n_1").is_ok() {
                for id in [1, 2] {
                    put(&storage, id, &rawdoc! { "_id": id, "n": 7 });
                }
            }
        });
        let copied = rename(&storage, &mut || ());
        is_over.store(true, Ordering::Release);
        copied
    });
    let copied = copied.expect("copied");
    let copy = name("other", "c");
    assert_valid(&storage, &copy);
    if copied.attempts == 1 {
        return false;
    }
    assert_eq!((copied.attempts, ids(&storage, &copy)), (2, vec![0, 1, 2]));
    assert_eq!(storage.collection(&copy).expect("there").indexes().len(), 12);
    true
}

#[test]
fn a_copy_of_what_was_altered_meanwhile_begins_anew_and_gives_up_where_that_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    fill(&storage, 0..300);
    let alter = |n: i32| {
        let validator = Modification { options: rawdoc! { "validator": { "a": n } }, index: None };
        storage.by_member().lock_catalog().collection(&source()).expect("there").modify(&validator).expect("altered");
    };
    let before = storage.collection(&source()).expect("there").uuid;
    let mut times = 0;
    let refused = rename(&storage, &mut || {
        times += 1;
        alter(times);
    });
    let refused = refused.expect_err("altered each time");
    assert_eq!(refused.code, ErrorCode::ConflictingOperationInProgress);
    assert_eq!(refused.message, "test.c was altered while it was copied");
    assert_eq!(storage.collection(&source()).expect("there").uuid, before);
    assert_names(&storage, &["test.c"]);

    let copied = rename(&storage, &mut once(|| alter(-1))).expect("the second time");
    assert_eq!(copied.attempts, 2);
    let copy = storage.collection(&name("other", "c")).expect("there");
    assert_eq!(copy.options.document, rawdoc! { "validator": { "a": -1 } });
    let gone = rename(&storage, &mut || ());
    assert_eq!(gone.map_err(|error| error.code), Err(ErrorCode::NamespaceNotFound));
    assert_names(&storage, &["other.c"]);
}

/// Everything of a database may be dropped, also what is being made in it. Fails if keys get into what was dropped, or if the client
/// is told of a collection that it does not know.
#[test]
fn a_copy_that_is_dropped_while_it_is_made_is_made_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    fill(&storage, 0..1_000);
    build(&storage, &unique_on_n_of_some()).expect("built");
    let drop_copy = || {
        storage.by_member().drop_collection(&name("other", "tmp")).expect("dropped").expect("there");
    };
    let copied = rename(&storage, &mut once(drop_copy)).expect("copied");
    assert_eq!(copied.attempts, 2);
    assert_eq!(ids(&storage, &name("other", "c")).len(), 1_000);
    assert_names(&storage, &["other.c"]);
    create(&storage, &source(), &rawdoc! {});
    create(&storage, &name("other", "tmp"), &rawdoc! {});
    let taken = rename(&storage, &mut || ()).expect_err("the temporary name is taken");
    assert!(!taken.message.contains("tmp"), "{}", taken.message);
}

fn unique_on_n_of_some() -> RawDocumentBuf {
    rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1", "unique": true, "partialFilterExpression": { "n": { "$gt": 0 } } }
}

/// What is inserted into a plain collection meanwhile comes behind all that was there, in that order, whatever its `_id`; what was
/// there and did not fit stays away though it is changed; what is deleted goes, and what is deleted and inserted again is new.
#[test]
fn a_capped_copy_keeps_the_order_of_insertion_beside_writers() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    fill(&storage, 0..2_000);
    let beside = || {
        for id in [-1, 5_000, -2] {
            put(&storage, id, &rawdoc! { "_id": id, "n": 1 });
        }
        // The first has not fitted, the others have.
        for id in [3, 1_990, -1] {
            put(&storage, id, &rawdoc! { "_id": id, "n": 2 });
        }
        remove(&storage, 1_991);
        remove(&storage, 1_992);
        put(&storage, 1_992, &rawdoc! { "_id": 1_992, "n": 1 });
    };
    let bytes = i64::try_from(rawdoc! { "_id": 1, "n": 0 }.as_bytes().len()).expect("small");
    let copied = cap(&storage, 300 * bytes, &mut once(beside)).expect("copied");
    assert!(copied.attempts == 1 && copied.carried > 0, "{copied:?}");
    let mut wanted: Vec<i32> = (1_700..2_000).filter(|id| ![1_991, 1_992].contains(id)).collect();
    wanted.extend([-1, 5_000, -2, 1_992]);
    // Three new ones in place of the three that were the oldest by then; for the fourth there was room.
    assert_eq!(ids(&storage, &source()), wanted[3..]);
    let copies = documents(&storage, &source());
    for (id, n) in [(1_990, 2), (-1, 2), (1_992, 1)] {
        assert!(copies.contains(&rawdoc! { "_id": id, "n": n }), "{id}");
    }
    assert_valid(&storage, &source());
    append(&storage, &source(), 6_000);
    assert_eq!(ids(&storage, &source()).last(), Some(&6_000));
}

/// The source drops its oldest with each insert, which it does not lock. Fails if the copy keeps one of those, or loses the order.
#[test]
fn a_copy_of_a_full_capped_collection_beside_a_writer_is_what_that_is_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    create(&storage, &source(), &rawdoc! { "capped": true, "size": 1 << 20, "max": 500 });
    for id in 0..2_000 {
        append(&storage, &source(), id);
    }
    for target in ["same", "larger"] {
        let is_over = AtomicBool::new(false);
        let next = AtomicI32::new(ids(&storage, &source()).last().expect("some") + 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    append(&storage, &source(), next.fetch_add(1, Ordering::Relaxed));
                }
            });
            let request = CopyRequest {
                from: &source(),
                to: &source(),
                temporary: &name("test", "tmp"),
                options: &|source| match target {
                    "same" => Ok(source.options.clone()),
                    _ => CollectionOptions::parse(&rawdoc! { "capped": true, "size": 1 << 20 }),
                },
                uuid: &|| bson::Uuid::new().bytes(),
                with_indexes: false,
                drop_target: true,
                drop_source: false,
            };
            let copied = storage.by_member().copy_collection(&request, &mut |_, _| Ok(())).expect("copied");
            assert!(copied.carried_held <= HELD_MAX && copied.attempts == 1, "{copied:?}");
            is_over.store(true, Ordering::Relaxed);
        });
        let (kept, last) = (ids(&storage, &source()), next.load(Ordering::Relaxed));
        assert_eq!(kept, (kept[0]..last).collect::<Vec<_>>(), "{target}");
        assert!(if target == "same" { kept.len() == 500 } else { kept.len() >= 500 }, "{target}: {}", kept.len());
        assert_valid(&storage, &source());
    }
}
