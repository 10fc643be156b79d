//! Whatever is done while others wait is small, however many documents there are, were, or are changed, and however large.
//!
//! Counted is what RocksDB walks over, and what one step does, not time.

#![allow(clippy::unwrap_used)]

use baton_storage::{
    BuildOfSet, BuildPhase, Collection, CollectionOptions, CreateOutcome, Durability, FillPosition, IndexBuild,
    IndexDefinition, Inserted, Pass, Started, Storage, StorageOptions, Transaction, record_key, stored_document,
};
use baton_types::{Error, ErrorCode, Namespace};
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use rust_rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use std::path::Path;
use std::sync::Arc;

const DELETED: i32 = 5000;
const BUILD: [u8; 16] = [7; 16];

fn open(path: &Path) -> (Arc<Storage>, Arc<Collection>) {
    let options = StorageOptions { cache_bytes: 64 << 20, index_build_bytes: 4 << 10, ..StorageOptions::default() };
    let storage = Storage::open(path, options).unwrap();
    let created = storage.by_member().create_collection(&name(), CollectionOptions::default(), [1; 16]).unwrap();
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = created;
    (storage, collection)
}

fn name() -> Namespace {
    Namespace::new("test", "c").unwrap()
}

fn insert(storage: &Storage, c: &Arc<Collection>, document: &RawDocument) {
    let mut transaction = Transaction::default();
    assert_eq!(storage.insert(&mut transaction, c, document, None).unwrap(), Inserted::Added);
    storage.by_member().commit(transaction, Durability::Applied).unwrap();
}

/// Replaces a document, or deletes it.
fn change(storage: &Storage, c: &Arc<Collection>, id: i32, after: Option<&RawDocument>) {
    let record = record_key(RawBsonRef::Int32(id)).unwrap();
    let mut transaction = Transaction::default();
    assert!(storage.lock_document(&mut transaction, c, &record));
    let before = storage.get_locked(c, &record).unwrap().unwrap();
    let before = stored_document(&before).unwrap().to_owned();
    match after {
        Some(after) => storage.update(&mut transaction, c, &record, (&before, after), after, None).unwrap(),
        None => storage.delete(&mut transaction, c, &record, &before, None).unwrap(),
    }
    storage.by_member().commit(transaction, Durability::Applied).unwrap();
}

fn start(storage: &Storage, spec: &RawDocument) -> Started {
    let build = IndexBuild { uuid: BUILD, commit_quorum: RawBson::Int32(1) };
    let catalog = storage.by_member().lock_catalog();
    let definition = IndexDefinition::parse(spec).unwrap();
    catalog.collection(&name()).unwrap().start_build(&build, &[definition], true).unwrap()
}

fn under_way(storage: &Storage) -> BuildOfSet {
    storage.builds_of_set().pop().unwrap()
}

/// How many keys RocksDB walks over in vain.
fn walked_over(work: impl FnOnce()) -> u64 {
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut counters = PerfContext::default();
    counters.reset();
    work();
    let walked =
        counters.metric(PerfMetric::InternalDeleteSkippedCount) + counters.metric(PerfMetric::InternalKeySkippedCount);
    set_perf_stats(PerfStatsLevel::Disable);
    walked
}

#[test]
fn whether_a_collection_is_empty_is_not_asked_of_all_that_was_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, c) = open(directory.path());
    let spec = rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" };
    for id in 0..DELETED {
        insert(&storage, &c, &rawdoc! { "_id": id });
    }
    (0..DELETED).for_each(|id| change(&storage, &c, id, None));
    let mut started = None;
    let walked = walked_over(|| started = Some(start(&storage, &spec)));
    assert_eq!(started, Some(Started::Building), "it is not known to be empty");
    assert!(walked < 1200, "{walked} keys while nobody may write");
    let of = under_way(&storage);
    storage.fill_build(&of, Pass::Decide, &mut FillPosition::default(), &Arc::default(), &mut |_, _| Ok(())).unwrap();
    assert!(storage.by_member().lock_catalog().collection(&name()).unwrap().commit_build(BUILD).unwrap());
}

#[test]
fn of_a_collection_where_little_was_deleted_an_index_is_complete_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, c) = open(directory.path());
    for id in 0..50 {
        insert(&storage, &c, &rawdoc! { "_id": id });
        change(&storage, &c, id, None);
    }
    assert_eq!(start(&storage, &rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" }), Started::Complete);
}

#[test]
fn who_asks_whether_a_key_is_unique_does_not_walk_over_what_was_deleted_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, c) = open(directory.path());
    let spec = rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1", "unique": true };
    storage.by_member().create_index(&name(), IndexDefinition::parse(&spec).unwrap(), &mut |_, _| Ok(())).unwrap();
    for id in 1..=DELETED {
        insert(&storage, &c, &rawdoc! { "_id": id, "n": id });
    }
    (1..=DELETED).for_each(|id| change(&storage, &c, id, None));
    let walked = walked_over(|| insert(&storage, &c, &rawdoc! { "_id": -1, "n": 0 }));
    assert!(walked < 50, "{walked} keys while others wait for the lock");
}

/// What one step brings in of what was set aside while `documents` were replaced: how many changes, step by step.
fn drained(documents: &[RawDocumentBuf], after: impl Fn(&RawDocument) -> RawDocumentBuf) -> Vec<u64> {
    let directory = tempfile::tempdir().unwrap();
    let (storage, c) = open(directory.path());
    documents.iter().for_each(|document| insert(&storage, &c, document));
    assert_eq!(start(&storage, &rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" }), Started::Building);
    let (mut steps, mut last, mut is_changed) = (Vec::new(), 0, false);
    let of = under_way(&storage);
    let phase = || storage.collection(&name()).unwrap().indexes()[0].phase();
    storage
        .fill_build(&of, Pass::Decide, &mut FillPosition::default(), &Arc::default(), &mut |done, _| {
            if phase() == BuildPhase::Scanning && !std::mem::replace(&mut is_changed, true) {
                for document in documents {
                    change(&storage, &c, document.get_i32("_id").unwrap(), Some(&after(document)));
                }
            }
            if phase() == BuildPhase::Draining && done > last {
                steps.push(done - last);
                last = done;
            }
            Ok(())
        })
        .unwrap();
    assert!(storage.by_member().lock_catalog().collection(&name()).unwrap().commit_build(BUILD).unwrap());
    let report = storage.validate(&c, &mut |_, _| Ok(())).unwrap();
    assert!(report.is_valid(), "{:?}", report.errors);
    steps
}

#[test]
fn what_is_brought_in_at_once_is_small_in_bytes() {
    let of = |id: i32, n: i32| rawdoc! { "_id": id, "n": n, "text": "x".repeat(300 << 10) };
    let documents: Vec<_> = (0..12).map(|id| of(id, id)).collect();
    let steps = drained(&documents, |before| {
        let id = before.get_i32("_id").unwrap();
        of(id, id + 100)
    });
    assert_eq!(steps.iter().sum::<u64>(), 24, "two entries of each document");
    assert!(steps.iter().all(|changes| *changes <= 2), "of more than two documents at once: {steps:?}");
}

#[test]
fn a_document_with_many_entries_is_read_once_a_step() {
    let of = |from: i32| {
        let mut numbers = RawArrayBuf::new();
        (from..from + 600).for_each(|number| numbers.push(number));
        rawdoc! { "_id": 1, "n": numbers, "text": "x".repeat(1 << 20) }
    };
    let steps = drained(&[of(0)], |_| of(5000));
    assert_eq!(steps.iter().sum::<u64>(), 1200);
    assert!(steps.len() <= 10, "it is read for each of its entries: {steps:?}");
}

#[test]
fn what_a_build_has_sorted_is_removed_when_nobody_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, c) = open(directory.path());
    for id in 0..1000 {
        insert(&storage, &c, &rawdoc! { "_id": id, "n": id });
    }
    start(&storage, &rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" });
    let of = under_way(&storage);
    let enough = Error::new(ErrorCode::Interrupted, "enough");
    let stopped =
        storage.fill_build(&of, Pass::Decide, &mut FillPosition::default(), &Arc::default(), &mut |done, _| {
            if done > 600 { Err(enough.clone()) } else { Ok(()) }
        });
    assert!(stopped.is_err() && storage.build_file_figures().0 > 0);
    let files = storage.build_file_figures();
    storage.by_member().drop_collection(&name()).unwrap();
    assert_eq!(storage.build_file_figures(), files, "files were removed while the catalog was held");
    storage.chores().free_dropped(&|| true).unwrap();
    assert_eq!(storage.build_file_figures(), (0, 0));
}
