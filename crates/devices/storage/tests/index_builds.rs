//! Builds of a set, by one member's storage: they outlive a restart, go on beside what is applied, and end whole.

use baton_storage::{
    BuildOfSet, Collection, CollectionOptions, CreateOutcome, Durability, FillPosition, IndexBuild, IndexDefinition,
    IndexState, Inserted, LoggedCommand, Pass, Started, Storage, StorageOptions, Transaction,
};
use baton_types::{Error, ErrorCode, Namespace, Result, Timestamp};
use bson::{RawBson, RawDocument, rawdoc};
use std::path::Path;
use std::sync::Arc;

/// More than is put into one transaction.
const DOCUMENTS: i32 = 1000;
const BUILD: [u8; 16] = [7; 16];

fn open(path: &Path) -> Arc<Storage> {
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    Storage::open(path, options).expect("the directory opens")
}

fn name() -> Namespace {
    Namespace::new("test", "c").expect("a valid name")
}

fn create(storage: &Storage) -> Arc<Collection> {
    let outcome =
        storage.by_member().create_collection(&name(), CollectionOptions::default(), [1; 16]).expect("created");
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = outcome;
    collection
}

fn collection(storage: &Storage) -> Arc<Collection> {
    storage.collection(&name()).expect("there")
}

fn insert(storage: &Storage, document: &RawDocument) -> Result<()> {
    let mut transaction = Transaction::default();
    match storage.insert(&mut transaction, &collection(storage), document, None) {
        Ok(Inserted::Added) => storage.by_member().commit(transaction, Durability::Applied).map(|_| ()),
        Ok(Inserted::CommitFirst) => unreachable!("a transaction of one never waits for itself"),
        Err(error) => {
            storage.abandon(transaction);
            Err(error)
        }
    }
}

fn filled(storage: &Storage) {
    create(storage);
    for i in 0..DOCUMENTS {
        insert(storage, &rawdoc! { "_id": i, "a": i, "b": i % 7 }).expect("inserted");
    }
}

fn definitions() -> Vec<IndexDefinition> {
    let parse = |spec: &RawDocument| IndexDefinition::parse(spec).expect("a definition");
    vec![
        parse(&rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true }),
        parse(&rawdoc! { "v": 2, "key": { "b": 1 }, "name": "b_1" }),
    ]
}

fn build() -> IndexBuild {
    IndexBuild { uuid: BUILD, commit_quorum: RawBson::String("votingMembers".into()) }
}

fn start(storage: &Storage) -> Started {
    let catalog = storage.by_member().lock_catalog();
    let held = catalog.collection(&name()).expect("there");
    held.start_build(&build(), &definitions(), true).expect("begun")
}

fn under_way(storage: &Storage) -> BuildOfSet {
    storage.builds_of_set().pop().expect("a build is under way")
}

fn commit(storage: &Storage) -> bool {
    let catalog = storage.by_member().lock_catalog();
    catalog.collection(&name()).expect("there").commit_build(BUILD).expect("committed")
}

fn commands(storage: &Storage) -> Vec<String> {
    let log = storage.oplog().entries_from(Timestamp::ZERO, usize::MAX).expect("readable");
    let of = |entry: &RawDocument| match entry.get_str("op") {
        Ok("c") => Some(entry.get_document("o").ok()?.iter().next()?.ok()?.0.as_str().to_owned()),
        _ => None,
    };
    log.iter().filter_map(|entry| of(entry)).collect()
}

fn assert_valid(storage: &Storage) {
    let report = storage.validate(&collection(storage), &mut |_, _| Ok(())).expect("validated");
    assert!(report.is_valid(), "{:?}", report.errors);
}

fn states(storage: &Storage) -> Vec<IndexState> {
    collection(storage).indexes().iter().map(|index| index.state()).collect()
}

#[test]
fn a_build_goes_on_after_a_restart_from_where_it_was_and_its_indexes_are_complete_together() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let storage = open(folder.path());
        filled(&storage);
        assert_eq!(start(&storage), Started::Building);
        let of = under_way(&storage);
        assert_eq!((of.definitions.len(), &of.build), (2, &build()));
        let interrupted =
            storage.fill_build(&of, Pass::Decide, &mut FillPosition::default(), &Arc::default(), &mut |done, _| {
                if done < 500 { Ok(()) } else { Err(Error::new(ErrorCode::Interrupted, "stopped")) }
            });
        assert_eq!(interrupted.map_err(|error| error.code), Err(ErrorCode::Interrupted));
        insert(&storage, &rawdoc! { "_id": "before", "a": "before" }).expect("inserted");
    }
    let storage = open(folder.path());
    insert(&storage, &rawdoc! { "_id": "after", "a": "after" }).expect("inserted");
    let of = under_way(&storage);
    let mut at = storage.build_position(&of).expect("readable");
    assert!(!at.is_start());
    let mut seen = Vec::new();
    storage
        .fill_build(&of, Pass::Decide, &mut at, &Arc::default(), &mut |done, _| {
            seen.push(done);
            Ok(())
        })
        .expect("filled");
    assert!(seen[0] > 500, "it began anew: {seen:?}");
    assert_eq!(states(&storage), [IndexState::Building; 2]);
    assert!(commit(&storage) && !commit(&storage));
    assert_eq!(states(&storage), [IndexState::Ready; 2]);
    assert_valid(&storage);
    assert!(storage.builds_of_set().is_empty());
    drop(storage);
    let storage = open(folder.path());
    assert_eq!(states(&storage), [IndexState::Ready; 2]);
    assert_eq!(commands(&storage), ["create", "startIndexBuild", "commitIndexBuild"]);
}

#[test]
fn indexes_of_an_empty_collection_are_complete_at_once_and_each_an_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    create(&storage);
    assert_eq!(start(&storage), Started::Complete);
    assert_eq!(states(&storage), [IndexState::Ready; 2]);
    assert_eq!(commands(&storage), ["create", "createIndexes", "createIndexes"]);
    insert(&storage, &rawdoc! { "_id": 1, "a": 1 }).expect("inserted");
    assert_eq!(insert(&storage, &rawdoc! { "_id": 2, "a": 1 }).map_err(|e| e.code), Err(ErrorCode::DuplicateKey));
    assert_valid(&storage);
}

#[test]
fn a_pass_that_follows_takes_what_one_that_asks_refuses() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    filled(&storage);
    insert(&storage, &rawdoc! { "_id": "twin", "a": 7 }).expect("inserted");
    start(&storage);
    let of = under_way(&storage);
    let pass = |pass| {
        storage
            .fill_build(&of, pass, &mut FillPosition::default(), &Arc::default(), &mut |_, _| Ok(()))
            .map_err(|error| error.code)
    };
    assert_eq!(pass(Pass::Decide), Err(ErrorCode::DuplicateKey));
    assert_eq!(pass(Pass::Follow), Ok(()));
    assert_eq!(pass(Pass::Verify), Err(ErrorCode::DuplicateKey));
    storage
        .with_collection(&name(), |collection| {
            let collection = collection.expect("there");
            let record = baton_storage::record_key(bson::RawBsonRef::String("twin")).expect("a key");
            let mut transaction = Transaction::default();
            assert!(storage.lock_document(&mut transaction, collection, &record));
            let twin = rawdoc! { "_id": "twin", "a": 7 };
            storage.delete(&mut transaction, collection, &record, &twin, None)?;
            storage.by_member().commit(transaction, Durability::Applied)
        })
        .expect("deleted");
    assert_eq!(pass(Pass::Verify), Ok(()));
    assert!(commit(&storage));
    assert_valid(&storage);
}

#[test]
fn a_build_that_is_given_up_leaves_nothing_and_a_pass_under_way_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    filled(&storage);
    start(&storage);
    let of = under_way(&storage);
    let cause = Error::new(ErrorCode::Interrupted, "killed");
    let ended = storage.fill_build(&of, Pass::Follow, &mut FillPosition::default(), &Arc::default(), &mut |_, _| {
        storage.by_member().abort_build(of.collection, BUILD, &cause).map(|_| ())
    });
    assert_eq!(ended.map_err(|error| error.code), Err(ErrorCode::IndexBuildAborted));
    assert!(collection(&storage).indexes().is_empty());
    assert!(!storage.by_member().abort_build(of.collection, BUILD, &cause).expect("asked"));
    let log = storage.oplog().entries_from(Timestamp::ZERO, usize::MAX).expect("readable");
    let last = log.last().expect("an entry").get_document("o").expect("o");
    let cause = last.get_document("cause").expect("a cause");
    assert_eq!(cause.get_i32("code").expect("a code"), ErrorCode::Interrupted.0);
    let (target, command) = LoggedCommand::parse("test", last).expect("readable");
    assert!(target == name() && matches!(command, LoggedCommand::AbortBuild { build, .. } if build.uuid == BUILD));
    // The same build can be had, and nothing of the first is in its way.
    start(&storage);
    let of = under_way(&storage);
    assert!(!storage.is_build_filled(&of));
    storage
        .fill_build(&of, Pass::Decide, &mut FillPosition::default(), &Arc::default(), &mut |_, _| Ok(()))
        .expect("filled");
    assert!(storage.is_build_filled(&of));
    assert!(commit(&storage));
    assert_valid(&storage);
}

#[test]
fn dropping_an_index_that_a_build_makes_gives_up_the_build() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    filled(&storage);
    start(&storage);
    storage.by_member().drop_index(&collection(&storage), "b_1").expect("dropped");
    assert!(collection(&storage).indexes().is_empty());
    assert_eq!(commands(&storage), ["create", "startIndexBuild", "abortIndexBuild"]);
}

#[test]
fn a_build_gets_another_quorum_and_keeps_it_over_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let changed = IndexBuild { uuid: BUILD, commit_quorum: RawBson::Int32(2) };
    {
        let storage = open(folder.path());
        filled(&storage);
        start(&storage);
        let catalog = storage.by_member().lock_catalog();
        let held = catalog.collection(&name()).expect("there");
        assert!(held.set_commit_quorum(&changed).expect("set"));
        let other = IndexBuild { uuid: [8; 16], ..changed.clone() };
        assert!(!held.set_commit_quorum(&other).expect("asked"));
    }
    assert_eq!(under_way(&open(folder.path())).build, changed);
}

#[test]
fn a_member_that_is_of_no_set_forgets_builds() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    filled(&storage);
    start(&storage);
    storage.forget_builds_of_set().expect("forgotten");
    assert!(storage.builds_of_set().is_empty() && collection(&storage).indexes().is_empty());
    assert_eq!(commands(&storage), ["create", "startIndexBuild"]);
}

#[test]
fn a_build_by_another_protocol_is_refused_with_the_reason() {
    let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: BUILD.to_vec() };
    let o = rawdoc! { "startIndexBuild": "c", "indexBuildUUID": uuid, "indexes": [], "protocol": 2 };
    let refused = LoggedCommand::parse("test", &o).map(|_| ()).expect_err("read");
    assert_eq!(refused.code, ErrorCode::OplogOperationUnsupported);
    assert!(refused.message.contains("the same version"), "{refused}");
}
