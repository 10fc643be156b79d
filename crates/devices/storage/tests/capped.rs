//! Capped collections: what is dropped from their old end costs nobody anything afterwards.
//!
//! Counted is what RocksDB walks over on the way to what is asked for, not time.

#![allow(clippy::unwrap_used)]

use baton_storage::{
    Bounds, CarriedOut, Collection, CollectionOptions, CopyRequest, CreateOutcome, Durability, EntryChange, Inserted,
    Modification, Order, Storage, StorageOptions, Transaction, View, stored_document,
};
use baton_types::{Namespace, Timestamp};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use rust_rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use std::path::Path;
use std::sync::Arc;

/// A collection that has room for some 40 of the documents below.
const SIZE: i64 = 4096;

fn open(path: &Path) -> Arc<Storage> {
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    Storage::open(path, options).unwrap()
}

fn name(coll: &str) -> Namespace {
    Namespace::new("test", coll).unwrap()
}

fn create(storage: &Storage, coll: &str, options: &RawDocument, uuid: u8) -> Arc<Collection> {
    let options = CollectionOptions::parse(options).unwrap();
    match storage.by_member().create_collection(&name(coll), options, [uuid; 16]).unwrap() {
        CreateOutcome::Created(collection) | CreateOutcome::Exists(collection) => collection,
    }
}

fn capped(storage: &Storage) -> Arc<Collection> {
    create(storage, "ring", &rawdoc! { "capped": true, "size": SIZE }, 1)
}

fn document(id: i32) -> RawDocumentBuf {
    rawdoc! { "_id": id, "text": "x".repeat(64) }
}

fn insert(storage: &Storage, collection: &Arc<Collection>, ids: std::ops::Range<i32>) {
    for id in ids {
        let mut transaction = Transaction::default();
        let inserted = storage.insert(&mut transaction, collection, &document(id), None).unwrap();
        assert_eq!(inserted, Inserted::Added);
        storage.by_member().commit(transaction, Durability::Applied).unwrap();
    }
}

fn ids(view: &View<'_>, collection: &Collection, order: Order) -> Vec<i32> {
    let mut cursor = view.documents(collection, &Bounds::default(), order);
    let mut ids = Vec::new();
    while let Some((_, document)) = cursor.next_document().unwrap() {
        ids.push(document.get_i32("_id").unwrap());
    }
    ids
}

/// How many keys RocksDB walked over in vain.
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
fn an_insert_into_a_full_collection_costs_as_much_after_four_thousand_as_at_first() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let ring = capped(&storage);
    insert(&storage, &ring, 0..500);
    let early = walked_over(|| insert(&storage, &ring, 500..600));
    insert(&storage, &ring, 600..4_000);
    let late = walked_over(|| insert(&storage, &ring, 4_000..4_100));
    assert!(late <= 2 * early + 1000, "{early} keys walked over for a hundred inserts, then {late}");
    // Each of the hundred would walk over four thousand; so it does over what was dropped since the start was noted.
    assert!(late <= 100 * 200, "{late}");
}

#[test]
fn a_reader_from_either_end_walks_over_nothing_that_was_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let ring = capped(&storage);
    insert(&storage, &ring, 0..3_000);
    let mut seen = (Vec::new(), Vec::new());
    let walked = walked_over(|| {
        seen = (ids(&storage.view(), &ring, Order::Forward), ids(&storage.view(), &ring, Order::Backward));
    });
    assert!(walked <= 1000, "{walked} keys for two reads of {} documents", seen.0.len());
    assert_eq!(seen.0.last(), Some(&2_999));
    assert!(seen.0.len() > 20 && seen.0.is_sorted());
    seen.1.reverse();
    assert_eq!(seen.0, seen.1);
}

/// Fails if the start of now cuts off what an older view still sees.
#[test]
fn a_view_sees_all_that_was_there_when_it_was_taken() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let ring = capped(&storage);
    insert(&storage, &ring, 0..1_000);
    let (view, then) = (storage.view(), storage.queue().applied().timestamp);
    let before = ids(&view, &ring, Order::Forward);
    insert(&storage, &ring, 1_000..3_000);
    assert_eq!(ids(&view, &ring, Order::Forward), before);
    assert_eq!(ids(&storage.view_at(Some(then)).unwrap(), &ring, Order::Forward), before, "as of that time");
    assert_ne!(ids(&storage.view(), &ring, Order::Forward), before);
}

#[test]
fn after_a_restart_it_goes_on_where_it_was_without_looking_for_its_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let ring = capped(&storage);
    insert(&storage, &ring, 0..5_000);
    let before = ids(&storage.view(), &ring, Order::Forward);
    drop(storage);
    let mut storage = None;
    let walked = walked_over(|| storage = Some(open(directory.path())));
    assert!(walked <= 4_000, "{walked} keys walked over at the start");
    let storage = storage.unwrap();
    let ring = storage.collection(&name("ring")).unwrap();
    assert_eq!(ids(&storage.view(), &ring, Order::Forward), before);
    insert(&storage, &ring, 5_000..5_100);
    assert_eq!(ids(&storage.view(), &ring, Order::Forward).last(), Some(&5_099));
}

/// Fails if record keys begin anew below the start that was kept: what is inserted then is seen by nobody.
#[test]
fn a_collection_that_was_emptied_shows_what_comes_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let ring = capped(&storage);
    insert(&storage, &ring, 0..5_000);
    let mut records = Vec::new();
    let view = storage.view();
    let mut cursor = view.documents(&ring, &Bounds::default(), Order::Forward);
    while let Some((record, document)) = cursor.next_document().unwrap() {
        records.push((record.to_vec(), document.to_owned()));
    }
    drop((cursor, view));
    for (record, before) in records {
        let mut transaction = Transaction::default();
        assert!(storage.lock_document(&mut transaction, &ring, &record));
        storage.delete(&mut transaction, &ring, &record, &before, None).unwrap();
        storage.by_member().commit(transaction, Durability::Applied).unwrap();
    }
    drop(ring);
    drop(storage);
    let storage = open(directory.path());
    let ring = storage.collection(&name("ring")).unwrap();
    insert(&storage, &ring, 5_000..5_003);
    assert_eq!(ids(&storage.view(), &ring, Order::Forward), [5_000, 5_001, 5_002]);
}

#[test]
fn a_capped_copy_has_the_newest_that_fit_and_costs_as_much_as_they_do() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let plain = create(&storage, "plain", &RawDocumentBuf::new(), 2);
    insert(&storage, &plain, 0..5_000);
    let options = rawdoc! { "capped": true, "size": 100_000 };
    let mut steps = 0;
    let before = storage.queue().applied();
    let walked = walked_over(|| {
        let request = CopyRequest {
            from: &name("plain"),
            to: &name("plain"),
            temporary: &name("tmp"),
            options: &|_| CollectionOptions::parse(&options),
            uuid: &|| [3; 16],
            with_indexes: false,
            drop_target: true,
            drop_source: false,
        };
        storage
            .by_member()
            .copy_collection(&request, &mut |_, _| {
                steps += 1;
                Ok(())
            })
            .unwrap();
    });
    let copy = storage.collection(&name("plain")).unwrap();
    let kept = ids(&storage.view(), &copy, Order::Forward);
    assert_eq!(kept.last(), Some(&4_999));
    assert!(kept.is_sorted() && copy.counts().bytes <= 100_000, "{:?}", copy.counts());
    assert!(copy.counts().bytes + document(0).as_bytes().len() as i64 > 100_000, "more would fit: {:?}", copy.counts());
    assert!(walked <= 30_000, "{walked} keys walked over");
    // A transaction holds many of them, and what does not fit is not copied first.
    let mut entries = 0;
    let view = storage.view();
    let oplog = storage.collection(&Namespace::new("local", "oplog.rs").unwrap()).unwrap();
    let mut cursor = view.documents(&oplog, &Storage::oplog_from(before.timestamp), Order::Forward);
    while cursor.next_document().unwrap().is_some() {
        entries += 1;
    }
    assert!(entries <= kept.len() + 10, "{entries} entries for {} documents", kept.len());
    insert(&storage, &copy, 5_000..5_010);
    assert_eq!(ids(&storage.view(), &copy, Order::Forward).last(), Some(&5_009));
}

/// While documents are copied others create collections, and write to the source. Fails if they wait for the copy, or if a write is
/// not in it.
#[test]
fn a_copy_under_way_keeps_nobody_waiting_and_loses_no_write() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let plain = create(&storage, "plain", &RawDocumentBuf::new(), 2);
    insert(&storage, &plain, 0..1_000);
    let request = CopyRequest {
        from: &name("plain"),
        to: &name("plain"),
        temporary: &name("tmp"),
        options: &|_| CollectionOptions::parse(&rawdoc! { "capped": true, "size": 1 << 20 }),
        uuid: &|| [3; 16],
        with_indexes: false,
        drop_target: true,
        drop_source: false,
    };
    let mut is_first = true;
    storage
        .by_member()
        .copy_collection(&request, &mut |_, _| {
            if std::mem::take(&mut is_first) {
                let (done, is_done) = std::sync::mpsc::channel();
                let (storage, plain) = (Arc::clone(&storage), Arc::clone(&plain));
                std::thread::spawn(move || {
                    create(&storage, "other", &RawDocumentBuf::new(), 4);
                    insert(&storage, &plain, 1_000..1_001);
                    done.send(()).unwrap();
                });
                is_done.recv_timeout(std::time::Duration::from_secs(30)).expect("they wait for the copy");
            }
            Ok(())
        })
        .unwrap();
    let copy = storage.collection(&name("plain")).unwrap();
    assert_eq!(ids(&storage.view(), &copy, Order::Forward), (0..1_001).collect::<Vec<_>>());
    assert!(storage.collection(&name("other")).is_some() && storage.collection(&name("tmp")).is_none());
}

/// Deletes the document with this `_id`, which lies at a record key that only the collection knows.
fn delete(storage: &Storage, collection: &Arc<Collection>, id: i32) {
    let mut transaction = Transaction::default();
    let change = EntryChange::Delete { id: RawBsonRef::Int32(id) };
    assert!(matches!(storage.carry_out(&mut transaction, collection, change, None), Ok(CarriedOut::Done(_))));
    storage.by_member().commit(transaction, Durability::Applied).unwrap();
}

/// Fails if a rollback follows the log alone, which has no entry of what made room, and leads nowhere once its document is gone.
#[test]
fn a_rollback_brings_back_what_a_full_collection_dropped_for_what_is_rolled_back() {
    let (directory, removed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (before, counts);
    {
        let storage = open(directory.path());
        let ring = capped(&storage);
        insert(&storage, &ring, 0..1_000);
        let common = storage.queue().applied();
        (before, counts) = (ids(&storage.view(), &ring, Order::Forward), ring.counts());
        assert!(before.len() > 20);
        // One of the middle goes, one comes again at the new end, and all of them are pushed out, more than once.
        delete(&storage, &ring, before[10]);
        delete(&storage, &ring, before[12]);
        insert(&storage, &ring, before[12]..before[12] + 1);
        assert_eq!(ids(&storage.view(), &ring, Order::Forward).last(), Some(&before[12]));
        insert(&storage, &ring, 1_000..1_010);
        let some = ids(&storage.view(), &ring, Order::Forward);
        assert!(some[0] > before[0] && some.contains(before.last().unwrap()), "some are pushed out");
        storage.queue().close_to_writes();
        storage.follower().roll_back(common, removed.path()).unwrap();
        assert_eq!(ids(&storage.view(), &ring, Order::Forward), before);

        storage.open_to_writes(common.term + 1);
        insert(&storage, &ring, 2_000..2_200);
        assert!(ids(&storage.view(), &ring, Order::Forward)[0] > 2_000, "all are pushed out");
        storage.queue().close_to_writes();
        storage.follower().roll_back(common, removed.path()).unwrap();
        assert_eq!(ids(&storage.view(), &ring, Order::Forward), before);
        assert_eq!(ring.counts(), counts);
        storage.sync();
    }
    let storage = open(directory.path());
    let ring = storage.collection(&name("ring")).unwrap();
    assert_eq!(
        (ids(&storage.view(), &ring, Order::Forward), ring.counts()),
        (before.clone(), counts),
        "after a restart"
    );
    let report = storage.validate(&ring, &mut |_, _| Ok(())).unwrap();
    assert!(report.is_valid(), "{report:?}");
    // It drops the oldest again to make room.
    insert(&storage, &ring, 3_000..3_001);
    let after = ids(&storage.view(), &ring, Order::Forward);
    assert_eq!((after[0], after.last()), (before[1], Some(&3_000)));
}

/// Changes or deletes the oldest document there is, as a client does that found it a moment ago.
fn disturb_oldest(storage: &Storage, ring: &Arc<Collection>, n: i32) {
    let view = storage.view();
    let mut oldest = view.documents(ring, &Bounds::default(), Order::Forward);
    let Some(record) = oldest.next_document().unwrap().map(|(record, _)| record.to_vec()) else { return };
    let mut transaction = Transaction::default();
    assert!(storage.lock_document(&mut transaction, ring, &record));
    let Some(before) = storage.get_locked(ring, &record).unwrap() else { return };
    let before = stored_document(&before).unwrap();
    if n % 3 == 0 {
        storage.delete(&mut transaction, ring, &record, before, None).unwrap();
    } else {
        let id = before.get_i32("_id").unwrap();
        let after = rawdoc! { "_id": id, "text": "x".repeat((n % 100) as usize) };
        storage.update(&mut transaction, ring, &record, (before, &after), &after, None).unwrap();
    }
    storage.by_member().commit(transaction, Durability::Applied).unwrap();
}

#[test]
fn what_is_let_go_beside_those_who_change_it_is_gone_once_and_on_all_members() {
    let directory = tempfile::tempdir().unwrap();
    let options = rawdoc! { "capped": true, "size": SIZE, "max": 7 };
    let primary = open(&directory.path().join("primary"));
    let ring = create(&primary, "ring", &options, 1);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in 0..3 {
            let (primary, ring, is_over) = (&primary, &ring, &is_over);
            scope.spawn(move || {
                let mut n = first;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    n += 1;
                    disturb_oldest(primary, ring, n);
                }
            });
        }
        for id in 0..4000 {
            let mut transaction = Transaction::default();
            while primary.insert(&mut transaction, &ring, &document(id), None).unwrap() == Inserted::CommitFirst {
                primary.abandon(std::mem::take(&mut transaction));
            }
            primary.by_member().commit(transaction, Durability::Applied).unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let left = ids(&primary.view(), &ring, Order::Forward);
    assert!(left.len() <= 7, "{left:?}");
    assert_eq!(ring.counts().documents, left.len() as i64, "counted is what is there");

    let follower = follow(&directory.path().join("follower"), &primary, &options);
    let copy = follower.collection(&ring.namespace).unwrap();
    assert_eq!(ids(&follower.view(), &copy, Order::Forward), left);
    assert_eq!(copy.counts(), ring.counts());
}

/// Another member, which has applied what the primary logged of its collection of these options, many entries at a time.
fn follow(path: &Path, primary: &Storage, options: &RawDocument) -> Arc<Storage> {
    let follower = open(path);
    follower.queue().close_to_writes();
    let of = CollectionOptions::parse(options).unwrap();
    follower.follower().unlogged(|writer| writer.create_collection(&name("ring"), of, [1; 16])).unwrap();
    let log = primary.oplog().entries_from(Timestamp::ZERO, usize::MAX).unwrap();
    let entries: Vec<&RawDocument> =
        log.iter().map(|entry| &**entry).filter(|entry| entry.get_str("op").unwrap() != "c").collect();
    for part in entries.chunks(50) {
        follower.follower().apply_entries(part).unwrap();
    }
    follower
}

#[test]
fn what_follows_an_insert_at_once_is_applied_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = rawdoc! { "capped": true, "size": SIZE };
    let primary = open(&directory.path().join("primary"));
    let ring = create(&primary, "ring", &options, 1);
    for id in 0..4 {
        insert(&primary, &ring, id..id + 1);
        // Deleted, changed, changed again, deleted.
        disturb_oldest(&primary, &ring, id);
    }
    let everything = |storage: &Storage| -> Vec<RawDocumentBuf> {
        let ring = storage.collection(&name("ring")).unwrap();
        let view = storage.view();
        let mut cursor = view.documents(&ring, &Bounds::default(), Order::Forward);
        let mut all = Vec::new();
        while let Some((_, document)) = cursor.next_document().unwrap() {
            all.push(document.to_owned());
        }
        all
    };
    let follower = follow(&directory.path().join("follower"), &primary, &options);
    assert_eq!(everything(&follower), everything(&primary));
}

#[test]
fn limits_that_were_lowered_are_kept_after_a_few_inserts_in_bounded_steps() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let ring = create(&storage, "ring", &rawdoc! { "capped": true, "size": 1 << 20 }, 1);
    insert(&storage, &ring, 0..1000);
    let modification = Modification { options: rawdoc! { "max": 10 }, index: None };
    storage.by_member().lock_catalog().collection(&ring.namespace).unwrap().modify(&modification).unwrap();
    let ring = storage.collection(&ring.namespace).unwrap();
    let mut left = ring.counts().documents;
    for id in 1000..1004 {
        insert(&storage, &ring, id..id + 1);
        let now = ring.counts().documents;
        assert!(left - now <= 256, "{left} to {now}");
        left = now;
    }
    assert_eq!(ids(&storage.view(), &ring, Order::Forward), (994..1004).collect::<Vec<_>>());
}

/// An insert after `collMod` has lowered the limits lets go of little, and the next ones see to the rest.
#[test]
fn what_one_insert_lets_go_of_is_small_in_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let ring = create(&storage, "ring", &rawdoc! { "capped": true, "size": 64 << 20 }, 1);
    let put = |id: i32| {
        let ring = storage.collection(&ring.namespace).unwrap();
        let mut transaction = Transaction::default();
        let document = rawdoc! { "_id": id, "text": "x".repeat(300 << 10) };
        assert_eq!(storage.insert(&mut transaction, &ring, &document, None).unwrap(), Inserted::Added);
        storage.by_member().commit(transaction, Durability::Applied).unwrap();
        ring.counts().documents
    };
    for id in 0..40 {
        assert_eq!(put(id), i64::from(id) + 1);
    }
    let modification = Modification { options: rawdoc! { "size": 4096 << 8 }, index: None };
    storage.by_member().lock_catalog().collection(&ring.namespace).unwrap().modify(&modification).unwrap();
    let mut before = 40;
    for id in 40..60 {
        let now = put(id);
        assert!(now < before || now <= 3, "{now} after {before}");
        assert!(before + 1 - now <= 5, "{} at once", before + 1 - now);
        before = now;
    }
    assert_eq!(before, 3);
}
