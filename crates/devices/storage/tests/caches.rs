//! What is read on behalf of the low class takes no place in the caches that another's has.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use baton_storage::{Bounds, Collection, Durability, Order, Storage, StorageOptions, record_key};
use baton_types::Class;
use bson::{RawBsonRef, rawdoc};
use rust_rocksdb::perf::{self, PerfContext, PerfMetric, PerfStatsLevel};
use std::sync::Arc;

const DOCUMENTS: i32 = 4000;
const DOCUMENT_BYTES: usize = 4096;

/// A storage with twice as many documents on disk, in tables, as it has memory for.
fn open() -> (Arc<Storage>, Arc<Collection>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = StorageOptions { cache_bytes: 16 << 20, ..StorageOptions::default() };
    let storage = Storage::open(directory.path(), options).unwrap();
    let collection = common::create(&storage, "c", [7; 16], &rawdoc! {}).unwrap();
    // Of what cannot be compressed a byte on disk is a byte in memory.
    let mut state = 1_u64;
    for id in 0..DOCUMENTS {
        let noise: Vec<u8> = (0..DOCUMENT_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        let binary = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: noise };
        let mut transaction = storage.by_member().transaction();
        storage.insert(&mut transaction, &collection, &rawdoc! { "_id": id, "t": binary }, None).unwrap();
        storage.by_member().commit(transaction, Durability::Applied).unwrap();
    }
    storage.flush().unwrap();
    (storage, collection, directory)
}

/// Reads documents in their order, from there to the end or so many; gives how many blocks came from disk for that.
fn scan(storage: &Storage, collection: &Collection, class: Class, documents_max: i32) -> u64 {
    perf::set_perf_stats(PerfStatsLevel::EnableCount);
    let mut context = PerfContext::default();
    context.reset();
    let view = storage.view().read_by(class);
    let mut documents = view.documents(collection, &Bounds::default(), Order::Forward);
    let mut count = 0;
    while count < documents_max && documents.next_document().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, documents_max);
    context.metric(PerfMetric::BlockReadCount)
}

fn look_up_all(storage: &Storage, collection: &Collection, class: Class) {
    for id in 0..DOCUMENTS {
        let record = record_key(RawBsonRef::Int32(id)).unwrap();
        assert!(storage.get_by(class, collection, &record).unwrap().is_some());
    }
}

#[test]
fn what_the_low_class_reads_takes_nobodys_place_in_the_caches() {
    const HOT: i32 = DOCUMENTS / 16;
    let (storage, collection, _directory) = open();
    let hot = || scan(&storage, &collection, Class::High, HOT);
    // The cache is full of what was read once; then of what is read often.
    scan(&storage, &collection, Class::Normal, DOCUMENTS);
    let first = hot();
    assert!(first > 50, "its blocks have given way: {first}");
    for class in [Class::Low, Class::Background] {
        hot();
        assert_eq!(hot(), 0, "what is read again is there");
        let read = scan(&storage, &collection, class, DOCUMENTS);
        assert!(read > 5 * first, "there is much more than there is room for: {read}");
        look_up_all(&storage, &collection, class);
        assert_eq!(hot(), 0, "after a scan of {class}");
    }
    let before = storage.statistics().record_cache.hits;
    look_up_all(&storage, &collection, Class::Low);
    assert_eq!(storage.statistics().record_cache.hits, before, "nor are documents kept");
    scan(&storage, &collection, Class::Normal, DOCUMENTS);
    assert!(hot() > first / 2, "others' reads do that");
}
