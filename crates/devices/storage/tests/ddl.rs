//! The rule of DDL: what is decided about a collection is decided about the one that is there, and what was dropped stays
//! dropped, over a restart too.

use baton_storage::{
    Collection, CollectionOptions, CreateOutcome, Durability, IndexDefinition, IndexModification, IndexState, Inserted,
    LoggedCommand, Modification, Storage, StorageOptions, Transaction,
};
use baton_types::{ErrorCode, Namespace, Result, Timestamp};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than an index build puts into one transaction.
const DOCUMENTS: i32 = 600;

fn open(path: &Path) -> Arc<Storage> {
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    Storage::open(path, options).expect("the directory opens")
}

fn name(collection: &str) -> Namespace {
    Namespace::new("test", collection).expect("a valid name")
}

fn create(storage: &Storage, collection: &str, options: &RawDocument) -> Arc<Collection> {
    let options = CollectionOptions::parse(options).expect("valid options");
    let uuid = bson::Uuid::new().bytes();
    let outcome = storage.by_member().create_collection(&name(collection), options, uuid).expect("created");
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = outcome;
    collection
}

fn insert(storage: &Storage, collection: &str, document: &RawDocument) -> Result<()> {
    storage.with_collection(&name(collection), |collection| {
        let collection = collection.expect("there");
        let mut transaction = Transaction::default();
        match storage.insert(&mut transaction, collection, document, None) {
            Ok(Inserted::Added) => storage.by_member().commit(transaction, Durability::Applied).map(|_| ()),
            Ok(Inserted::CommitFirst) => unreachable!("a transaction of one never waits for itself"),
            Err(error) => {
                storage.abandon(transaction);
                Err(error)
            }
        }
    })
}

/// A collection whose last documents alone have arrays at `a`: an index on it becomes multikey at the end of its build.
fn fill(storage: &Storage, collection: &str) {
    create(storage, collection, &rawdoc! {});
    for i in 0..DOCUMENTS {
        let document = if i < DOCUMENTS - 10 {
            rawdoc! { "_id": i, "a": i }
        } else {
            rawdoc! { "_id": i, "a": [i, -i] }
        };
        insert(storage, collection, &document).expect("inserted");
    }
}

fn on_a(unique: bool) -> IndexDefinition {
    let mut spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
    if unique {
        spec.append(bson::raw::cstr!("unique"), true);
    }
    IndexDefinition::parse(&spec).expect("a definition")
}

fn hide(name: &str) -> Modification {
    let index = IndexModification { name: name.into(), hidden: Some(true), expire_after_secs: None };
    Modification { options: RawDocumentBuf::new(), index: Some(index) }
}

fn modify(storage: &Storage, collection: &str, modification: &Modification) -> Result<()> {
    let catalog = storage.by_member().lock_catalog();
    catalog.collection(&name(collection)).expect("there").modify(modification)
}

fn names(storage: &Storage) -> Vec<String> {
    storage.catalog().database("test").map(|collection| collection.namespace.coll().to_owned()).collect()
}

fn assert_valid(storage: &Storage, collection: &str) {
    let collection = storage.collection(&name(collection)).expect("there");
    let report = storage.validate(&collection, &mut |_, _| Ok(())).expect("validated");
    assert!(report.is_valid(), "{:?}", report.errors);
}

#[test]
fn a_collection_dropped_while_an_index_of_it_turns_multikey_stays_dropped_over_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let storage = open(folder.path());
        fill(&storage, "c");
        // After its first batch; those that follow tell of arrays.
        let built = storage.by_member().create_index(&name("c"), on_a(false), &mut |done, _| {
            if done < i32::MAX as u64 && storage.collection(&name("c")).is_some() {
                storage.by_member().drop_collection(&name("c"))?;
            }
            Ok(())
        });
        assert_eq!(built.map_err(|error| error.code), Err(ErrorCode::IndexBuildAborted));
        assert!(names(&storage).is_empty());
    }
    assert!(names(&open(folder.path())).is_empty(), "a dropped collection is back");
}

#[test]
fn a_collection_renamed_while_an_index_of_it_turns_multikey_keeps_its_new_name_over_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let storage = open(folder.path());
        fill(&storage, "c");
        let built = storage.by_member().create_index(&name("c"), on_a(false), &mut |_, _| match storage
            .collection(&name("c"))
        {
            Some(_) => storage.by_member().rename_collection(&name("c"), &name("d"), false),
            None => Ok(()),
        });
        built.expect("built");
        assert_valid(&storage, "d");
    }
    let storage = open(folder.path());
    assert_eq!(names(&storage), ["d"]);
    let index = storage.collection(&name("d")).and_then(|d| d.index("a_1")).expect("there");
    assert_eq!((index.state(), index.multikey()), (IndexState::Ready, 1));
}

#[test]
fn an_index_altered_while_it_is_built_is_completed_and_keeps_keys_unique() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let storage = open(folder.path());
        fill(&storage, "c");
        let mut is_altered = false;
        let built = storage.by_member().create_index(&name("c"), on_a(true), &mut |_, _| {
            if !std::mem::replace(&mut is_altered, true) {
                modify(&storage, "c", &hide("a_1"))?;
            }
            Ok(())
        });
        built.expect("built");
        let index = storage.collection(&name("c")).and_then(|c| c.index("a_1")).expect("there");
        assert!(index.state() == IndexState::Ready && index.definition.hidden && index.multikey() == 1);
        let duplicate = insert(&storage, "c", &rawdoc! { "_id": -1, "a": 7 });
        assert_eq!(duplicate.map_err(|error| error.code), Err(ErrorCode::DuplicateKey));
        assert_valid(&storage, "c");
    }
    let storage = open(folder.path());
    let index = storage.collection(&name("c")).and_then(|c| c.index("a_1")).expect("there");
    assert!(index.state() == IndexState::Ready && index.definition.hidden && index.multikey() == 1);
}

#[test]
fn a_build_that_panics_leaves_no_index_that_others_would_wait_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    fill(&storage, "c");
    let build = || storage.by_member().create_index(&name("c"), on_a(false), &mut |_, _| panic!("drawn by the test"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(build)).is_err());
    assert!(storage.collection(&name("c")).expect("there").indexes().is_empty());
    storage.by_member().create_index(&name("c"), on_a(false), &mut |_, _| Ok(())).expect("built");
    assert_valid(&storage, "c");
}

#[test]
fn what_is_held_is_neither_dropped_nor_altered_by_anybody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    create(&storage, "c", &rawdoc! { "capped": true, "size": 8192 });
    let is_dropped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let catalog = storage.by_member().lock_catalog();
        let held = catalog.collection(&name("c")).expect("there");
        scope.spawn(|| {
            storage.by_member().drop_collection(&name("c")).expect("dropped");
            is_dropped.store(true, Ordering::SeqCst);
        });
        // Long enough for a drop that does not wait.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!is_dropped.load(Ordering::SeqCst), "dropped while it was held");
        let options = rawdoc! { "size": 4096 };
        held.modify(&Modification { options, index: None }).expect("altered");
        drop(catalog);
    });
    assert!(names(&storage).is_empty());
    let log = storage.oplog().entries_from(Timestamp::ZERO, usize::MAX).expect("readable");
    let commands: Vec<String> = log
        .iter()
        .filter_map(|entry| entry.get_document("o").ok()?.iter().next()?.ok().map(|(name, _)| name.as_str().to_owned()))
        .collect();
    assert_eq!(commands, ["create", "collMod", "drop"], "the log has them in the order of the decisions");
}

#[test]
fn a_modification_makes_no_collection_of_another_kind_and_leaves_nothing_when_it_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    create(&storage, "c", &rawdoc! {});
    let before = storage.oplog().entries_from(Timestamp::ZERO, usize::MAX).expect("readable").len();
    let refused = |modification: &Modification| modify(&storage, "c", modification).map_err(|error| error.code);
    let capped = Modification { options: rawdoc! { "capped": true, "size": 4096 }, index: None };
    assert_eq!(refused(&capped), Err(ErrorCode::IllegalOperation));
    assert_eq!(refused(&hide("a_1")), Err(ErrorCode::IndexNotFound));
    // `capped` is no field that a member that follows would find in a collMod.
    let unknown = Modification { options: rawdoc! { "flags": 1 }, index: None };
    assert_eq!(refused(&unknown), Err(ErrorCode::FailedToParse));
    let c = storage.collection(&name("c")).expect("there");
    assert!(c.options.document.is_empty());
    assert_eq!(storage.oplog().entries_from(Timestamp::ZERO, usize::MAX).expect("readable").len(), before);
    assert_valid(&storage, "c");
}

#[test]
fn a_logged_command_reads_back_as_what_it_was() {
    let options = CollectionOptions::parse(&rawdoc! { "capped": true, "size": 4096, "max": 7 }).expect("options");
    let modification = Modification {
        options: rawdoc! { "validator": { "a": 1 }, "validationLevel": "strict", "size": 9000, "max": 3 },
        index: Some(IndexModification { name: "a_1".into(), hidden: Some(false), expire_after_secs: Some(60) }),
    };
    let target = name("c");
    for command in [
        LoggedCommand::Create(options),
        LoggedCommand::CreateIndexes(vec![on_a(true)]),
        LoggedCommand::CreateIndexes(vec![on_a(true), on_a(false)]),
        LoggedCommand::DropIndex("a_1".into()),
        LoggedCommand::Modify(modification),
        LoggedCommand::Modify(hide("a_1")),
        LoggedCommand::Rename { to: name("d"), drop_target: None },
        LoggedCommand::Rename { to: name("d"), drop_target: Some([3; 16]) },
        LoggedCommand::Drop,
    ] {
        let o = command.document(&target).expect("a document");
        let (read_target, read) = LoggedCommand::parse("test", &o).expect("readable");
        assert_eq!((read_target, read.document(&target).expect("a document")), (target.clone(), o));
    }
    let unknown = LoggedCommand::parse("test", &rawdoc! { "frob": "c" }).map(|_| ()).map_err(|error| error.code);
    assert_eq!(unknown, Err(ErrorCode::OplogOperationUnsupported));
}

#[test]
fn the_end_of_a_build_leaves_the_files_of_the_others() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let storage = open(&directory.path().join("db"));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let storage = &storage;
            scope.spawn(move || {
                for round in 0..250 {
                    let collection = format!("c{thread}_{round}");
                    create(storage, &collection, &rawdoc! {});
                    insert(storage, &collection, &rawdoc! { "_id": 1, "a": 1 }).expect("inserted");
                    let definition = IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" });
                    let definition = definition.expect("a valid definition");
                    storage
                        .by_member()
                        .create_index(&name(&collection), definition, &mut |_, _| Ok(()))
                        .expect("built");
                }
            });
        }
    });
}
