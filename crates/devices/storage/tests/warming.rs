//! The record cache of a member that may lead: what is named to it is read, and what it applies stays in memory.
#![allow(clippy::unwrap_used, missing_docs)]

use baton_storage::{
    Collection, CollectionOptions, CreateOutcome, Durability, HotRecords, Storage, StorageOptions, Transaction, Warmed,
    WarmingLimits, record_key,
};
use baton_types::{Error, Namespace, Timestamp};
use bson::{RawBsonRef, RawDocument, rawdoc};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn open(directory: &Path) -> Arc<Storage> {
    Storage::open(directory, StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() }).unwrap()
}

fn create(storage: &Storage, name: &str, uuid: u8) -> Arc<Collection> {
    let namespace = Namespace::new("test", name).unwrap();
    let outcome = storage.by_member().create_collection(&namespace, CollectionOptions::default(), [uuid; 16]).unwrap();
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = outcome;
    collection
}

fn insert(storage: &Storage, collection: &Arc<Collection>, ids: std::ops::Range<i32>) {
    for id in ids {
        let mut transaction = Transaction::default();
        storage.insert(&mut transaction, collection, &rawdoc! { "_id": id, "n": 0 }, None).unwrap();
        storage.by_member().commit(transaction, Durability::Applied).unwrap();
    }
}

fn set_n(storage: &Storage, collection: &Arc<Collection>, id: i32, n: i32) {
    let record = record_key(RawBsonRef::Int32(id)).unwrap();
    let mut transaction = Transaction::default();
    assert!(storage.lock_document(&mut transaction, collection, &record));
    let before = storage.get_locked(collection, &record).unwrap().unwrap().to_vec();
    let (before, after) = (RawDocument::from_bytes(&before).unwrap(), rawdoc! { "_id": id, "n": n });
    storage.update(&mut transaction, collection, &record, (before, &after), &after, None).unwrap();
    storage.by_member().commit(transaction, Durability::Applied).unwrap();
}

/// The document's `n`, and whether it was in the record cache.
fn look_up(storage: &Storage, collection: &Collection, id: i32) -> (i32, bool) {
    let hits = storage.statistics().record_cache.hits;
    let found = storage.get(collection, &record_key(RawBsonRef::Int32(id)).unwrap()).unwrap().unwrap().to_vec();
    let n = RawDocument::from_bytes(&found).unwrap().get_i32("n").unwrap();
    (n, storage.statistics().record_cache.hits > hits)
}

fn limits(bytes: u64) -> WarmingLimits {
    WarmingLimits { until: Instant::now() + Duration::from_secs(60), bytes }
}

#[test]
fn what_one_member_names_another_reads() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [primary, successor] = directories.each_ref().map(|directory| open(directory.path()));
    let collection = create(&primary, "c", 7);
    // Its collections have other ids.
    create(&successor, "other", 8);
    let copy = create(&successor, "c", 7);
    insert(&primary, &collection, 0..1000);
    insert(&successor, &copy, 0..999);
    for id in 900..1000 {
        (0..3).for_each(|_| _ = look_up(&primary, &collection, id));
    }
    let hot = primary.hottest(u64::MAX, 1000);
    assert_eq!((hot.collections.as_slice(), hot.records.len()), ([[7; 16]].as_slice(), 100));

    let interrupt = || Ok(());
    let late = WarmingLimits { until: Instant::now(), ..limits(u64::MAX) };
    assert_eq!(successor.warm(&hot, late, &interrupt).unwrap(), Warmed::default(), "there is no time");
    let refuse = || Err(Error::bad_value("enough"));
    assert!(successor.warm(&hot, limits(u64::MAX), &refuse).is_err());
    let few = successor.warm(&hot, limits(100), &interrupt).unwrap();
    assert!(few.read_bytes >= 100 && few.read < 10, "{few:?}");

    let warmed = successor.warm(&hot, limits(u64::MAX), &interrupt).unwrap();
    assert_eq!((warmed.read + warmed.had, warmed.had, warmed.missing), (99, few.read, 1));
    assert!((900..999).all(|id| look_up(&successor, &copy, id) == (0, true)));
    assert!(!look_up(&successor, &copy, 1).1, "nobody named it");
    let unknown = HotRecords { collections: vec![[9; 16]], records: hot.records.clone() };
    assert_eq!(successor.warm(&unknown, limits(u64::MAX), &interrupt).unwrap().missing, 100);
}

#[test]
fn what_a_follower_applies_stays_in_its_memory_in_the_newest_version() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [primary, follower] = directories.each_ref().map(|directory| open(directory.path()));
    let (collection, copy) = (create(&primary, "c", 7), create(&follower, "c", 7));
    follower.queue().close_to_writes();
    insert(&primary, &collection, 0..10);
    let mut applied = Timestamp::ZERO;
    let mut follow = || {
        let entries = primary.oplog().entries_from(applied, usize::MAX).unwrap();
        let entries: Vec<&RawDocument> = entries
            .iter()
            .map(AsRef::as_ref)
            .filter(|entry: &&RawDocument| entry.get_str("op").unwrap() != "c")
            .collect();
        follower.follower().apply_entries(&entries).unwrap();
        applied = entries.last().unwrap().get_timestamp("ts").unwrap().into();
    };
    follow();
    assert_eq!(look_up(&follower, &copy, 1), (0, false));
    set_n(&primary, &collection, 1, 5);
    set_n(&primary, &collection, 2, 6);
    follow();
    assert_eq!(look_up(&follower, &copy, 1), (5, true), "it was there, and is so anew");
    assert_eq!(look_up(&follower, &copy, 2), (6, true), "applying has read it");
    assert_eq!(look_up(&follower, &copy, 3), (0, false));
}
