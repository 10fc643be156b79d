//! What is left of what was dropped, and when.

use crate::background::tasks::TaskKind;
use crate::catalog::{Collection, CollectionOptions, IndexDefinition};
use crate::documents::format::{beside, family, prefix, prefix_end};
use crate::documents::transaction::Transaction;
use crate::log::commit::Durability;
use crate::storage::Storage;
use crate::{CreateOutcome, StorageOptions};
use baton_types::Namespace;
use bson::{RawDocumentBuf, rawdoc};
use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn open(path: &Path) -> Arc<Storage> {
    let options = StorageOptions { cache_bytes: 64 << 20, history_secs: 0, ..StorageOptions::default() };
    Storage::open(path, options).unwrap()
}

fn name(collection: &str) -> Namespace {
    Namespace::new("test", collection).unwrap()
}

/// A collection with an index, of so many documents of about that size.
fn fill(storage: &Storage, collection: &str, documents: i32, bytes: usize) -> Arc<Collection> {
    let uuid = bson::Uuid::new().bytes();
    let created = storage.by_member().create_collection(&name(collection), CollectionOptions::default(), uuid).unwrap();
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = created;
    let definition = IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).unwrap();
    storage.by_member().create_index(&collection.namespace, definition, &mut |_, _| Ok(())).unwrap();
    add(storage, &collection, 0..documents, bytes);
    collection
}

/// Documents with these ids.
fn add(storage: &Storage, collection: &Arc<Collection>, ids: impl Iterator<Item = i32>, bytes: usize) {
    let mut noise = 1_u64;
    for id in ids {
        let mut bytes = vec![0; bytes];
        // Nothing that could be packed.
        for eight in bytes.chunks_exact_mut(8) {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            eight.copy_from_slice(&noise.to_le_bytes());
        }
        let mut document: RawDocumentBuf = rawdoc! { "_id": id, "a": -id };
        document.append(bson::raw::cstr!("b"), bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes });
        let mut transaction = Transaction::default();
        storage.insert(&mut transaction, collection, &document, None).unwrap();
        storage.by_member().commit(transaction, Durability::Applied).unwrap();
    }
}

/// Keys that the ids of a collection and its index have.
fn keys(storage: &Storage, collection: &Collection) -> (usize, usize) {
    let count = |family, id| {
        let mut options = crate::documents::view::newest(family);
        options.set_iterate_upper_bound(prefix_end(id).to_vec());
        let mut iterator = storage.db().raw_iterator_cf_opt(storage.family(family), options);
        iterator.seek(prefix(id));
        let mut keys = 0;
        while iterator.valid() {
            keys += 1;
            iterator.next();
        }
        keys
    };
    let index = collection.indexes().first().map_or(0, |index| index.id);
    (count(family::DOCUMENTS, collection.id), count(family::INDEXES, index))
}

/// Frees until nothing waits; `false` if something still does after two seconds.
fn free(storage: &Storage) -> bool {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        storage.chores().forget_history();
        storage.chores().free_dropped(&|| true).unwrap();
        if storage.dropped().unwrap().is_empty() {
            assert_eq!(storage.dropped_bytes(), 0);
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_drop_is_answered_with_its_keys_there_and_they_go_later_with_no_neighbours() {
    for documents in [100, 3000] {
        let directory = tempfile::tempdir().unwrap();
        let storage = open(directory.path());
        let (before, dropped) = (fill(&storage, "a", 50, 8), fill(&storage, "b", documents, 8));
        let after = fill(&storage, "c", 50, 8);
        storage.by_member().drop_collection(&name("b")).unwrap();
        storage.by_member().drop_index(&after, "a_1").unwrap();
        let all = documents as usize;
        assert_eq!(keys(&storage, &dropped), (all, all));
        assert_eq!(storage.dropped().unwrap().len(), 3);
        assert!(free(&storage));
        assert_eq!(keys(&storage, &dropped), (0, 0));
        drop(storage);
        let storage = open(directory.path());
        assert_eq!(keys(&storage, &dropped), (0, 0));
        assert_eq!(keys(&storage, &before), (50, 50));
        assert_eq!(keys(&storage, &after).0, 50);
        assert!(storage.dropped().unwrap().is_empty());
    }
}

#[test]
fn what_a_rollback_may_bring_back_stays_until_it_is_committed() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let collection = fill(&storage, "c", 300, 8);
    storage.oplog().set_commit_point(storage.queue().applied());
    storage.by_member().drop_collection(&name("c")).unwrap();
    assert!(!free(&storage));
    assert_eq!(keys(&storage, &collection), (300, 300));
    storage.facts().put(crate::Fact::Configuration, &rawdoc! { "_id": "set" }.into_bytes());
    drop(storage);
    // Nor does a start take for committed what the set has not said is.
    let storage = open(directory.path());
    assert!(!free(&storage));
    assert_eq!(keys(&storage, &collection), (300, 300));
    storage.oplog().set_commit_point(storage.queue().applied());
    assert!(free(&storage));
    assert_eq!(keys(&storage, &collection), (0, 0));
}

#[test]
fn who_reads_from_before_the_drop_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let collection = fill(&storage, "c", 300, 8);
    let view = storage.view();
    storage.by_member().drop_collection(&name("c")).unwrap();
    assert!(!free(&storage));
    assert!(view.get(&collection, &crate::record_key(bson::RawBsonRef::Int32(7)).unwrap()).unwrap().is_some());
    drop(view);
    assert!(free(&storage));
}

#[test]
fn a_stop_after_any_step_is_gone_on_from() {
    for steps in 0..8_u32 {
        let directory = tempfile::tempdir().unwrap();
        let storage = open(directory.path());
        let (collection, other) = (fill(&storage, "b", 400, 8), fill(&storage, "c", 400, 8));
        storage.flush().unwrap();
        storage.compact(&collection, &mut || Ok(())).unwrap();
        storage.by_member().drop_collection(&name("b")).unwrap();
        let left = Cell::new(steps);
        let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
        for _ in 0..60 {
            storage.chores().free_dropped(&goes_on).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(storage);
        let storage = open(directory.path());
        assert!(free(&storage), "after {steps} steps");
        assert_eq!((keys(&storage, &collection), keys(&storage, &other)), ((0, 0), (400, 400)), "after {steps} steps");
    }
}

#[test]
fn whole_files_go_and_what_is_left_of_much_is_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let bytes = || storage.statistics().sst_bytes >> 20;
    let merged = fill(&storage, "merged", 6000, 2048);
    storage.flush().unwrap();
    storage.compact(&merged, &mut || Ok(())).unwrap();
    let fresh = fill(&storage, "fresh", 11_000, 2048);
    storage.flush().unwrap();
    // The oplog has it all as well.
    let full = bytes();
    assert!(full > 50, "{full} MiB");
    storage.by_member().drop_collection(&merged.namespace).unwrap();
    storage.by_member().drop_collection(&fresh.namespace).unwrap();
    // Nothing is written any more: history passes the tombstones all the same.
    std::thread::sleep(Duration::from_secs(1));
    assert!(free(&storage));
    assert_eq!((keys(&storage, &merged), keys(&storage, &fresh)), ((0, 0), (0, 0)));
    let documents = storage.db().live_files().unwrap();
    let documents: usize = documents.iter().filter(|f| f.column_family_name != family::OPLOG).map(|f| f.size).sum();
    assert!(documents < 1 << 20, "{documents} bytes are left");
    let totals = storage.tasks().totals();
    assert!(totals.iter().any(|(kind, totals)| *kind == TaskKind::DropCleanup && totals.count >= 2), "{totals:?}");
}

#[test]
fn the_keys_of_an_index_whose_build_failed_go_too() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path());
    let collection = fill(&storage, "c", 300, 8);
    let definition = |key: &str| {
        let mut keys = RawDocumentBuf::new();
        keys.append(bson::raw::CString::try_from(key).unwrap(), 1);
        IndexDefinition::parse(&rawdoc! { "v": 2, "key": keys, "name": key }).unwrap()
    };
    let fail = |_, _| Err(baton_types::Error::failed_to_parse("enough"));
    storage.by_member().create_index(&collection.namespace, definition("x"), &mut { fail }).unwrap_err();
    assert!(free(&storage));
    // Its collection is dropped and gone before the build notices: what it adds then goes as well.
    let mut id = 0;
    let built = storage.by_member().create_index(&collection.namespace, definition("y"), &mut |_, _| {
        if let Some(index) = collection.index("y") {
            id = index.id;
        }
        if storage.by_member().drop_collection(&collection.namespace)?.is_some() {
            assert!(free(&storage));
        }
        Ok(())
    });
    assert!(built.is_err());
    assert!(free(&storage));
    let mut options = crate::documents::view::newest(family::INDEXES);
    options.set_iterate_upper_bound(prefix_end(id).to_vec());
    let mut iterator = storage.db().raw_iterator_cf_opt(storage.family(family::INDEXES), options);
    iterator.seek(prefix(id));
    assert!(id > 0 && !iterator.valid(), "index {id} has keys");
}

/// Tables that have a second name.
fn kept(storage: &Storage) -> Vec<std::fs::Metadata> {
    let folder = storage.db().path().with_extension(beside::REMOVED);
    std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap()).collect()
}

#[test]
fn tables_of_compactions_and_of_drops_are_kept_until_nobody_has_them_and_go_then() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(&directory.path().join("rocksdb"));
    let stays = fill(&storage, "stays", 0, 4000);
    add(&storage, &stays, (0..500).step_by(2), 4000);
    storage.flush().unwrap();
    add(&storage, &stays, (1..500).step_by(2), 4000);
    storage.flush().unwrap();
    storage.compact(&stays, &mut || Ok(())).unwrap();
    let goes = fill(&storage, "goes", 500, 4000);
    storage.flush().unwrap();
    storage.compact(&goes, &mut || Ok(())).unwrap();
    let of_compactions = kept(&storage).len();
    assert!(of_compactions > 0, "a compaction has made tables obsolete");
    storage.by_member().drop_collection(&goes.namespace).unwrap();
    assert!(free(&storage));
    assert!(kept(&storage).len() > of_compactions, "what was dropped has tables of its own");
    let until = Instant::now() + Duration::from_secs(10);
    // RocksDB removes its names on a thread of its own.
    while kept(&storage).iter().any(|table| table.nlink() == 1) || storage.statistics().removed_bytes > 0 {
        assert!(Instant::now() < until, "{:?}", kept(&storage));
        storage.chores().remove_files(&|_| true).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(keys(&storage, &stays), (500, 500));
    assert_eq!(keys(&storage, &goes), (0, 0));
}
