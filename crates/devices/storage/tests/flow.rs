//! An operation that writes much stays close to what the set has committed.
#![allow(clippy::unwrap_used, missing_docs)]

use baton_storage::{
    Author, CREDIT_BYTES, Collection, CollectionOptions, CreateOutcome, Durability, Storage, StorageOptions, Throttle,
    Transaction,
};
use baton_types::{Class, Namespace, Result};
use bson::rawdoc;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const DOCUMENT_BYTES: usize = 4096;

/// A storage whose set has committed all there is, and a collection.
fn open() -> (Arc<Storage>, Arc<Collection>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    let storage = Storage::open(directory.path(), options).unwrap();
    let namespace = Namespace::new("test", "c").unwrap();
    let created = storage.by_member().create_collection(&namespace, CollectionOptions::default(), [7; 16]).unwrap();
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = created;
    storage.oplog().set_commit_point(storage.queue().applied());
    (storage, collection, directory)
}

/// Inserts so many documents; `each` is called before each, with how many are in the log. The set commits what `commits` says.
fn insert_many(documents: usize, commits: bool, each: impl Fn(&Storage, usize)) -> Arc<Storage> {
    let (storage, collection, _directory) = open();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while commits && !is_over.load(Ordering::Relaxed) {
                storage.oplog().set_commit_point(storage.queue().durable());
                // As far away as a majority is.
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let throttle = Throttle::default();
        let text = "x".repeat(DOCUMENT_BYTES);
        for id in 0..documents {
            throttle.wait(storage.by_member(), &|| Ok(())).unwrap();
            each(&storage, id);
            let mut transaction = Transaction::default();
            storage
                .insert(&mut transaction, &collection, &rawdoc! { "_id": id as i64, "t": text.as_str() }, None)
                .unwrap();
            throttle.commit(storage.by_member(), transaction, Durability::Applied).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    storage
}

/// Entries that no majority has, at the worst: three steps of 128 KB, of documents that are in the log and in their family.
const ENTRIES_MAX: usize = 3 * 128 * 1024 / (2 * DOCUMENT_BYTES) + 3;

#[test]
fn who_writes_much_waits_until_the_set_has_most_of_it() {
    let (written, worst) = (Cell::new(Vec::new()), Cell::new(0));
    let storage = insert_many(2000, true, |storage, _| {
        let mut optimes = written.take();
        optimes.push(storage.queue().applied().timestamp);
        let committed = storage.oplog().commit_point().unwrap();
        worst.set(worst.get().max(optimes.iter().rev().take_while(|optime| **optime > committed).count()));
        written.set(optimes);
    });
    let figures = storage.flow_figures();
    // A wait that is given up lets one step more pass: on a machine that stands still for long.
    let given_up = figures.wait_micros as usize / 100_000;
    assert!(worst.get() <= ENTRIES_MAX * (1 + given_up), "{} entries, {figures:?}", worst.get());
    assert!(figures.waits > 0, "{figures:?}");
}

/// A commit point of which nobody is told held each step of a lone member's loaders up for a tenth of a second.
#[test]
fn a_member_alone_waits_for_its_disk_and_not_for_its_commit_point() {
    let written = Cell::new(Vec::new());
    let storage = insert_many(2000, false, |storage, _| {
        storage.note_alone(true);
        let mut optimes = written.take();
        optimes.push(storage.queue().applied());
        let durable = storage.queue().durable();
        let unsafe_yet = optimes.iter().rev().take_while(|optime| **optime > durable).count();
        assert!(unsafe_yet <= ENTRIES_MAX, "{unsafe_yet} entries");
        written.set(optimes);
    });
    let figures = storage.flow_figures();
    // One thread syncs by itself what it has written.
    assert!(figures.waits <= 1, "{figures:?}");
}

#[test]
fn an_operation_of_one_step_costs_no_sync_and_one_of_two_asks_for_it() {
    let (storage, collection, _directory) = open();
    let (throttle, text) = (Throttle::default(), "x".repeat(64 * 1024));
    let syncs = || storage.statistics().log_syncs;
    let before = syncs();
    for (id, synced) in [(1, 0), (2, 1)] {
        throttle.wait(storage.by_member(), &|| Ok(())).unwrap();
        let mut transaction = Transaction::default();
        storage.insert(&mut transaction, &collection, &rawdoc! { "_id": id, "t": text.as_str() }, None).unwrap();
        throttle.commit(storage.by_member(), transaction, Durability::Applied).unwrap();
        assert_eq!(syncs(), before + synced);
    }
}

/// How large a transaction of an operation that begins now should be, in bytes.
fn step_bytes(storage: &Storage) -> usize {
    Throttle::default().transaction_bytes(storage)
}

#[test]
fn small_writes_make_steps_small_and_large_ones_leave_them() {
    let (storage, collection, _directory) = open();
    let write = |id: i32, throttle: &Throttle, bytes: usize| {
        let document = rawdoc! { "_id": id, "t": "x".repeat(bytes) };
        let mut transaction = Transaction::default();
        storage.insert(&mut transaction, &collection, &document, None).unwrap();
        throttle.commit(storage.by_member(), transaction, Durability::Applied).unwrap();
    };
    let large = step_bytes(&storage);
    // Loaders, of some megabytes in many transactions, and what the member does by itself.
    for id in 0..10 {
        write(id, &Throttle::default(), 300 * 1024);
    }
    write(10, &Throttle::of_member(), 100);
    assert_eq!(step_bytes(&storage), large);
    // A small operation counts once it is over: until then it may write much.
    let throttle = Throttle::default();
    write(11, &throttle, 100);
    assert_eq!(step_bytes(&storage), large);
    drop(throttle);
    // It counts for a second, in which this thread may not have had the processor.
    let is_small = |id| {
        write(id, &Throttle::default(), 100);
        step_bytes(&storage) < large
    };
    assert!((12..40).any(is_small));
}

#[test]
fn without_a_set_to_commit_it_transactions_are_of_any_size() {
    let (storage, ..) = open();
    let directory = tempfile::tempdir().unwrap();
    let alone = Storage::open(directory.path(), StorageOptions::default()).unwrap();
    assert!(Throttle::default().transaction_bytes(&storage) < 1 << 20);
    assert_eq!(Throttle::default().transaction_bytes(&alone), usize::MAX);
}

#[test]
fn a_commit_point_that_stands_still_holds_nobody_up_for_good() {
    let storage = insert_many(200, false, |_, _| ());
    assert!(storage.flow_figures().wait_micros < 3_000_000, "{:?}", storage.flow_figures());
}

#[test]
fn switched_off_it_never_waits() {
    let storage = insert_many(200, false, |storage, _| storage.switch_flow_control(false));
    assert_eq!((storage.flow_figures().waits, storage.flow_figures().is_on), (0, false));
}

#[test]
fn a_wait_can_be_interrupted() {
    let outcome: Cell<Option<Result<()>>> = Cell::new(None);
    let (storage, collection, _directory) = open();
    let throttle = Throttle::default();
    let text = "x".repeat(200 * 1024);
    for id in 0..10 {
        let killed = || Err(baton_types::Error::new(baton_types::ErrorCode::Interrupted, "killed"));
        if let Err(error) = throttle.wait(storage.by_member(), &killed) {
            outcome.set(Some(Err(error)));
            break;
        }
        let mut transaction = Transaction::default();
        storage.insert(&mut transaction, &collection, &rawdoc! { "_id": id, "t": text.as_str() }, None).unwrap();
        throttle.commit(storage.by_member(), transaction, Durability::Applied).unwrap();
    }
    let outcome = outcome.into_inner().unwrap();
    assert_eq!(outcome.unwrap_err().code, baton_types::ErrorCode::Interrupted);
}

const CREDIT_DOCUMENTS: usize = CREDIT_BYTES / 1024;

/// Writes documents of a kilobyte in that class, each an operation of its own, four times what the others may have on its way. Gives how far
/// the log was ahead of the commit point, in documents, when each began, at the most, and how often one waited. `before` is called
/// before each. The set commits when there is nearly as much as may be, after a while.
fn ahead_max(class: Class, before: impl Fn(&Storage, usize)) -> (usize, u64) {
    let (storage, collection, _directory) = open();
    let _follower = storage.follow_log();
    let (author, text) = (Author::of(class), "x".repeat(1024));
    let (written, committed, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let mut ahead_max = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if written.load(Ordering::SeqCst) - committed.load(Ordering::SeqCst) > CREDIT_DOCUMENTS / 2 {
                    std::thread::sleep(Duration::from_millis(50));
                    // What is known to be written is in the log.
                    committed.store(written.load(Ordering::SeqCst), Ordering::SeqCst);
                    storage.oplog().set_commit_point(storage.queue().applied());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for id in 0..4 * CREDIT_DOCUMENTS {
            before(&storage, id);
            let (writer, throttle) = (storage.by(&author), Throttle::default());
            throttle.wait(writer, &|| Ok(())).unwrap();
            ahead_max = ahead_max.max(id - committed.load(Ordering::SeqCst));
            let mut transaction = writer.transaction();
            let document = rawdoc! { "_id": id as i64, "t": text.as_str() };
            storage.insert(&mut transaction, &collection, &document, None).unwrap();
            throttle.commit(writer, transaction, Durability::Applied).unwrap();
            written.store(id + 1, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    (ahead_max, storage.flow_figures().waits)
}

/// Something of that class is written now and then.
fn now_and_then(class: Class) -> impl Fn(&Storage, usize) {
    let author = Author::of(class);
    move |storage, id| {
        if id % 50 == 0 {
            let namespace = Namespace::new("test", "$cmd").unwrap();
            storage.by(&author).note(&namespace, &rawdoc! { "msg": "now" }).unwrap();
        }
    }
}

#[test]
fn where_urgent_writes_come_the_others_have_little_on_its_way_to_a_majority() {
    for class in [Class::Low, Class::Normal] {
        let (ahead, waits) = ahead_max(class, now_and_then(Class::High));
        // Whoever has waited for a tenth of a second goes on, by one.
        assert!(ahead <= CREDIT_DOCUMENTS + 20, "{class}: {ahead} documents");
        assert!(waits > 0, "{class}");
    }
    assert_eq!(ahead_max(Class::Normal, now_and_then(Class::Normal)).1, 0, "where nothing is urgent nobody waits");
    assert_eq!(ahead_max(Class::High, now_and_then(Class::High)).1, 0, "nor does who is urgent");
}

#[test]
fn nobody_waits_for_what_a_lower_class_has_on_its_way_to_a_majority() {
    let (storage, collection, _directory) = open();
    let _follower = storage.follow_log();
    let write = |class: Class, id: i32, bytes: usize| {
        let author = Author::of(class);
        let (writer, throttle) = (storage.by(&author), Throttle::default());
        throttle.wait(writer, &|| Ok(())).unwrap();
        let mut transaction = writer.transaction();
        let document = rawdoc! { "_id": id, "t": "x".repeat(bytes) };
        storage.insert(&mut transaction, &collection, &document, None).unwrap();
        throttle.commit(writer, transaction, Durability::Applied).unwrap();
        storage.flow_figures().waits
    };
    write(Class::High, 1, 1);
    assert_eq!(write(Class::Low, 2, 2 * CREDIT_BYTES), 0, "there is nothing before it");
    assert_eq!(write(Class::Normal, 3, 2 * CREDIT_BYTES), 0);
    assert_eq!(write(Class::Low, 4, 1), 1);
}

#[test]
fn where_compactions_are_behind_the_low_class_writes_less_and_the_others_do_not() {
    let (storage, collection, _directory) = open();
    let write = |class: Class, id: i32| {
        let author = Author::of(class);
        let (writer, throttle) = (storage.by(&author), Throttle::default());
        throttle.wait(writer, &|| Ok(())).unwrap();
        let mut transaction = writer.transaction();
        storage.insert(&mut transaction, &collection, &rawdoc! { "_id": id }, None).unwrap();
        throttle.commit(writer, transaction, Durability::Applied).unwrap();
        storage.flow_figures().waits
    };
    let mut id = 0;
    let mut next = |class| {
        id += 1;
        write(class, id)
    };
    assert_eq!(next(Class::Low), 0, "nothing has piled up");
    // Nothing is compacted before it is tended to.
    for _ in 0..12 {
        next(Class::Normal);
        storage.flush().unwrap();
    }
    storage.chores().tend_compaction().unwrap();
    assert_eq!((next(Class::Normal), next(Class::High)), (0, 0));
    assert_eq!((next(Class::Low), next(Class::Low)), (1, 2));
}
