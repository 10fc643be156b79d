//! Index builds beside writers: whatever these do in whatever phase, and wherever a build is interrupted, its indexes have exactly what
//! the documents give in the end.

use baton_storage::tasks::TaskKind;
use baton_storage::{
    Bounds, BuildPhase, Collection, CollectionOptions, CreateOutcome, Durability, FillPosition, IndexBuild,
    IndexDefinition, IndexState, Inserted, Order, Pass, Started, Storage, StorageOptions, Transaction, record_key,
    stored_document,
};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

const BUILD: [u8; 16] = [7; 16];
/// More than one batch, and more than little.
const DOCUMENTS: i32 = 900;

fn open(path: &Path) -> Arc<Storage> {
    // So little that the scan writes runs, and merges them.
    let options = StorageOptions { cache_bytes: 64 << 20, index_build_bytes: 4 << 10, ..StorageOptions::default() };
    Storage::open(path, options).expect("the directory opens")
}

fn name() -> Namespace {
    Namespace::new("test", "c").expect("a valid name")
}

fn collection(storage: &Storage) -> Arc<Collection> {
    storage.collection(&name()).expect("there")
}

fn document(id: i32, value: i32) -> RawDocumentBuf {
    match value % 5 {
        // An array: two entries, or one.
        0 => rawdoc! { "_id": id, "a": [value, value / 2], "u": id, "p": value },
        1 => rawdoc! { "_id": id, "a": f64::from(value), "u": id, "p": -value },
        _ => rawdoc! { "_id": id, "a": value, "u": id, "p": value },
    }
}

fn insert(storage: &Storage, document: &RawDocument) -> Result<()> {
    storage.with_collection(&name(), |collection| {
        let mut transaction = Transaction::default();
        match storage.insert(&mut transaction, collection.expect("there"), document, None) {
            Ok(Inserted::Added) => storage.by_member().commit(transaction, Durability::Applied).map(|_| ()),
            Ok(Inserted::CommitFirst) => unreachable!("a transaction of one never waits for itself"),
            Err(error) => {
                storage.abandon(transaction);
                Err(error)
            }
        }
    })
}

/// Replaces the document of this `_id`, or deletes it.
fn change(storage: &Storage, id: i32, after: Option<&RawDocument>) -> Result<bool> {
    storage.with_collection(&name(), |collection| {
        let collection = collection.expect("there");
        let record = record_key(RawBsonRef::Int32(id))?;
        let mut transaction = Transaction::default();
        while !storage.lock_document(&mut transaction, collection, &record) {}
        let Some(before) = storage.get_locked(collection, &record)? else {
            storage.abandon(transaction);
            return Ok(false);
        };
        let before = stored_document(&before)?.to_owned();
        let changed = match after {
            Some(after) => storage.update(&mut transaction, collection, &record, (&before, after), after, None),
            None => storage.delete(&mut transaction, collection, &record, &before, None),
        };
        match changed {
            Ok(()) => storage.by_member().commit(transaction, Durability::Applied).map(|_| true),
            Err(error) => {
                storage.abandon(transaction);
                Err(error)
            }
        }
    })
}

fn filled(storage: &Storage) {
    let outcome =
        storage.by_member().create_collection(&name(), CollectionOptions::default(), [1; 16]).expect("created");
    assert!(matches!(outcome, CreateOutcome::Created(_)));
    for id in 0..DOCUMENTS {
        insert(storage, &document(id, id * 7)).expect("inserted");
    }
}

fn start(storage: &Storage) {
    let parse = |spec: &RawDocument| IndexDefinition::parse(spec).expect("a definition");
    let definitions = [
        parse(&rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }),
        parse(&rawdoc! { "v": 2, "key": { "u": -1 }, "name": "u_-1", "unique": true }),
        parse(
            &rawdoc! { "v": 2, "key": { "p": 1, "a": 1 }, "name": "p_1", "partialFilterExpression": { "p": { "$gt": 0 } } },
        ),
    ];
    let build = IndexBuild { uuid: BUILD, commit_quorum: RawBson::Int32(1) };
    let catalog = storage.by_member().lock_catalog();
    let held = catalog.collection(&name()).expect("there");
    assert_eq!(held.start_build(&build, &definitions, true).expect("begun"), Started::Building);
}

fn phase(storage: &Storage) -> BuildPhase {
    collection(storage).indexes()[0].phase()
}

fn fill(storage: &Storage, pass: Pass, progress: &mut dyn FnMut(BuildPhase, u64) -> Result<()>) -> Result<()> {
    let of = storage.builds_of_set().pop().expect("a build is under way");
    storage.fill_build(&of, pass, &mut FillPosition::default(), &Arc::default(), &mut |done, _| {
        progress(phase(storage), done)
    })
}

fn commit(storage: &Storage) {
    let catalog = storage.by_member().lock_catalog();
    assert!(catalog.collection(&name()).expect("there").commit_build(BUILD).expect("committed"));
}

/// Every index has what the documents give, nothing else, and no file or id is left of its build.
fn assert_whole(storage: &Storage, path: &Path) {
    let collection = collection(storage);
    // As it is, and once what lies above the tables that were taken in is merged with them.
    for compacts in [false, true] {
        if compacts {
            storage.compact(&collection, &mut || Ok(())).expect("compacted");
        }
        let report = storage.validate(&collection, &mut |_, _| Ok(())).expect("validated");
        assert!(report.is_valid() && !report.counters_mended, "{:?}", report.errors);
    }
    assert!(collection.indexes().iter().all(|index| index.state() == IndexState::Ready));
    assert_nothing_left(storage, path);
}

fn assert_nothing_left(storage: &Storage, path: &Path) {
    let builds = std::fs::read_dir(path.with_extension("builds")).into_iter().flatten();
    assert_eq!(builds.count(), 0, "the folder of the build is there");
    assert_eq!(storage.build_file_figures(), (0, 0));
    storage.chores().forget_history();
    let is_free = |_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        storage.chores().free_dropped(&|| true).expect("freed");
        storage.dropped_extents().expect("readable") == 0
    };
    assert!((0..1000).any(is_free), "something keeps its space");
}

/// What a writer does between two steps of a build.
#[derive(Clone, Copy, Debug)]
enum Write {
    Insert(i32),
    Update(i32, i32),
    Delete(i32),
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let id = 0..DOCUMENTS + 200;
    let write = prop_oneof![
        id.clone().prop_map(Write::Insert),
        (id.clone(), 0..200).prop_map(|(id, value)| Write::Update(id, value)),
        id.prop_map(Write::Delete),
    ];
    proptest::collection::vec(write, 0..40)
}

fn write(storage: &Storage, write: Write) {
    let done = match write {
        Write::Insert(id) => insert(storage, &document(id, id)),
        Write::Update(id, value) => change(storage, id, Some(&document(id, value))).map(|_| ()),
        Write::Delete(id) => change(storage, id, None).map(|_| ()),
    };
    if let Err(error) = done {
        assert_eq!(error.code, ErrorCode::DuplicateKey, "{write:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Fails if an entry is lost, left over or wrong, whatever is written in each phase and wherever the build is interrupted, or the
    /// member restarted.
    #[test]
    fn indexes_have_what_the_documents_give_whatever_is_written_while_they_are_built(
        steps in proptest::collection::vec(writes(), 1..30),
        interrupted_at in proptest::collection::vec((0_usize..20, any::<bool>()), 0..4),
        follows in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rocksdb");
        let mut storage = open(&path);
        filled(&storage);
        start(&storage);
        let mut steps = steps.into_iter().cycle();
        let pass = if follows { Pass::Follow } else { Pass::Decide };
        for (at, restarts) in interrupted_at {
            let mut number = 0;
            let ended = fill(&storage, pass, &mut |_, _| {
                steps.next().into_iter().flatten().for_each(|one| write(&storage, one));
                number += 1;
                if number > at { Err(Error::new(ErrorCode::Interrupted, "stopped")) } else { Ok(()) }
            });
            prop_assert!(ended.is_ok_and(|()| true) || number > at);
            if restarts {
                drop(storage);
                storage = open(&path);
            }
            steps.next().into_iter().flatten().for_each(|one| write(&storage, one));
        }
        fill(&storage, pass, &mut |_, _| {
            steps.next().into_iter().flatten().for_each(|one| write(&storage, one));
            Ok(())
        })
        .expect("filled");
        steps.next().into_iter().flatten().for_each(|one| write(&storage, one));
        fill(&storage, Pass::Verify, &mut |_, _| Ok(())).expect("as it should be");
        commit(&storage);
        assert_whole(&storage, &path);
        drop(storage);
        assert_whole(&open(&path), &path);
    }
}

/// Lets threads write for as long as a build takes, with pauses in it.
#[test]
fn writers_on_threads_of_their_own_and_a_build_end_with_an_index_that_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rocksdb");
    let storage = open(&path);
    filled(&storage);
    start(&storage);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_i32 {
            let (storage, is_over) = (&storage, &is_over);
            scope.spawn(move || {
                let mut draw = thread;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    draw = draw.wrapping_mul(1_103_515_245).wrapping_add(12345);
                    let (id, value) = ((draw >> 8).rem_euclid(DOCUMENTS + 300), (draw >> 4).rem_euclid(97));
                    match draw.rem_euclid(3) {
                        0 => write(storage, Write::Insert(id)),
                        1 => write(storage, Write::Delete(id)),
                        _ => write(storage, Write::Update(id, value)),
                    }
                }
            });
        }
        let filled = fill(&storage, Pass::Decide, &mut |_, _| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            Ok(())
        });
        if filled.is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            commit(&storage);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        filled.expect("built");
    });
    assert_whole(&storage, &path);
}

const PHASES: [BuildPhase; 4] = [BuildPhase::Scanning, BuildPhase::Loading, BuildPhase::Draining, BuildPhase::Checking];

/// Runs `then` once, in that phase; `true` if the build came to it.
fn fill_until(storage: &Storage, wanted: BuildPhase, then: &mut dyn FnMut()) -> bool {
    let mut was_there = false;
    let ended = fill(storage, Pass::Decide, &mut |phase, done| {
        if phase == wanted && !was_there && (phase != BuildPhase::Scanning || done > 0) {
            was_there = true;
            then();
            return Err(Error::new(ErrorCode::Interrupted, "stopped"));
        }
        Ok(())
    });
    assert!(was_there || ended.is_ok(), "{ended:?}");
    was_there
}

#[test]
fn a_restart_in_any_phase_goes_on_and_not_anew() {
    for wanted in PHASES {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rocksdb");
        {
            let storage = open(&path);
            filled(&storage);
            start(&storage);
            assert!(fill_until(&storage, wanted, &mut || {
                change(&storage, 5, Some(&document(5, 1_000))).expect("changed");
                change(&storage, 6, None).expect("deleted");
            }));
        }
        let storage = open(&path);
        let of = storage.builds_of_set().pop().expect("a build is under way");
        assert!(!storage.build_position(&of).expect("readable").is_start(), "{wanted:?}");
        let mut first = None;
        fill(&storage, Pass::Decide, &mut |phase, done| {
            first.get_or_insert((phase, done));
            Ok(())
        })
        .expect("filled");
        let (phase, done) = first.expect("told");
        match wanted {
            BuildPhase::Scanning => assert!(phase == BuildPhase::Scanning && done > 0, "{phase:?} {done}"),
            BuildPhase::Loading => assert_eq!(phase, BuildPhase::Loading),
            BuildPhase::Draining | BuildPhase::Checking => assert!(phase >= BuildPhase::Draining, "{phase:?}"),
        }
        commit(&storage);
        assert_whole(&storage, &path);
    }
}

/// Of documents that have no entries there is nothing to sort, and yet they are not read again.
#[test]
fn a_restart_of_a_sparse_build_goes_on_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rocksdb");
    {
        let storage = open(&path);
        filled(&storage);
        let catalog = storage.by_member().lock_catalog();
        let held = catalog.collection(&name()).expect("there");
        let sparse = IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "z": 1 }, "name": "z_1", "sparse": true });
        let build = IndexBuild { uuid: BUILD, commit_quorum: RawBson::Int32(1) };
        held.start_build(&build, &[sparse.expect("a definition")], true).expect("begun");
        drop(held);
        drop(catalog);
        assert!(fill_until(&storage, BuildPhase::Scanning, &mut || {}));
    }
    let storage = open(&path);
    let of = storage.builds_of_set().pop().expect("a build is under way");
    assert!(!storage.build_position(&of).expect("readable").is_start());
    change(&storage, 3, Some(&rawdoc! { "_id": 3, "z": 1 })).expect("changed");
    fill(&storage, Pass::Decide, &mut |_, _| Ok(())).expect("filled");
    commit(&storage);
    assert_whole(&storage, &path);
    let index = collection(&storage).index("z_1").expect("there");
    let view = storage.view();
    let mut entries = view.entries(&index, &Bounds::default(), Order::Forward);
    assert!(entries.next_entry().expect("readable").is_some() && entries.next_entry().expect("readable").is_none());
}

/// As a member finds it that has copied another's files.
#[test]
fn a_build_whose_runs_are_not_there_reads_from_the_beginning() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rocksdb");
    {
        let storage = open(&path);
        filled(&storage);
        start(&storage);
        assert!(fill_until(&storage, BuildPhase::Loading, &mut || {
            change(&storage, 5, Some(&document(5, 1_000))).expect("changed");
        }));
    }
    std::fs::remove_dir_all(path.with_extension("builds")).expect("there");
    let storage = open(&path);
    fill(&storage, Pass::Follow, &mut |_, _| Ok(())).expect("filled");
    commit(&storage);
    assert_whole(&storage, &path);
}

#[test]
fn two_documents_of_one_key_are_found_however_they_came() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rocksdb");
    let storage = open(&path);
    filled(&storage);
    start(&storage);
    let mut is_done = [false; 3];
    let twin = |id: i32| rawdoc! { "_id": id, "a": 1, "u": 7, "p": 1 };
    let found = fill(&storage, Pass::Decide, &mut |phase, done| {
        // Nobody is refused before the index is asked; then somebody is at once.
        match phase {
            BuildPhase::Scanning if done > 0 && !is_done[0] => {
                is_done[0] = true;
                insert(&storage, &twin(-1))?;
            }
            BuildPhase::Checking if !is_done[2] => {
                is_done[2] = true;
                let refused = insert(&storage, &rawdoc! { "_id": -3, "u": 9 });
                assert_eq!(refused.map_err(|error| error.code), Err(ErrorCode::DuplicateKey));
            }
            _ => {}
        }
        Ok(())
    });
    let error = found.expect_err("two documents have one key");
    assert_eq!(error.code, ErrorCode::DuplicateKey);
    assert_eq!(error.message, "E11000 duplicate key error collection: test.c index: u_-1 dup key: { u: 7 }");
    // Which is gone before the build is asked again.
    assert!(change(&storage, -1, None).expect("deleted"));
    fill(&storage, Pass::Decide, &mut |_, _| Ok(())).expect("filled");
    commit(&storage);
    assert_whole(&storage, &path);
}

/// A key that was scanned of one document and has gone to another is no violation.
#[test]
fn a_key_that_goes_from_document_to_document_in_any_phase_is_had_by_one() {
    for wanted in PHASES {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rocksdb");
        let storage = open(&path);
        filled(&storage);
        start(&storage);
        let mut is_done = false;
        fill(&storage, Pass::Decide, &mut |phase, done| {
            if phase == wanted && !is_done && (phase != BuildPhase::Scanning || done > 0) {
                is_done = true;
                change(&storage, 7, None)?;
                insert(&storage, &rawdoc! { "_id": -1, "u": 7 })?;
                change(&storage, 8, Some(&rawdoc! { "_id": 8, "u": -8 }))?;
                insert(&storage, &rawdoc! { "_id": -2, "u": 8 })?;
            }
            Ok(())
        })
        .expect("filled");
        assert!(is_done || wanted == BuildPhase::Checking, "{wanted:?}");
        commit(&storage);
        assert_whole(&storage, &path);
    }
}

/// The index has the key of its former document still, until what was set aside is brought in.
#[test]
fn a_key_given_up_while_documents_are_read_can_be_had_before_that_is_brought_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rocksdb");
    let storage = open(&path);
    filled(&storage);
    start(&storage);
    let (mut is_given_up, mut is_had) = (false, false);
    fill(&storage, Pass::Decide, &mut |phase, done| {
        if phase == BuildPhase::Scanning && done > 0 && !is_given_up {
            is_given_up = change(&storage, 7, Some(&rawdoc! { "_id": 7, "u": -7 }))?;
        } else if phase == BuildPhase::Draining && !is_had {
            is_had = true;
            insert(&storage, &rawdoc! { "_id": -1, "u": 7 })?;
        }
        Ok(())
    })
    .expect("filled");
    assert!(is_given_up && is_had);
    commit(&storage);
    assert_whole(&storage, &path);
}

#[test]
fn a_drop_or_an_end_in_any_phase_leaves_nothing() {
    for wanted in PHASES {
        for how in ["collection", "index", "abort"] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("rocksdb");
            let storage = open(&path);
            filled(&storage);
            start(&storage);
            let of = storage.builds_of_set().pop().expect("a build is under way");
            let mut is_done = false;
            let ended = fill_named(&storage, &of, wanted, &mut || {
                is_done = true;
                change(&storage, 5, Some(&document(5, 1_000))).expect("changed");
                match how {
                    "collection" => assert!(storage.by_member().drop_collection(&name()).expect("dropped").is_some()),
                    "index" => storage.by_member().drop_index(&collection(&storage), "a_1").expect("dropped"),
                    _ => {
                        let cause = Error::new(ErrorCode::Interrupted, "killed");
                        assert!(storage.by_member().abort_build(of.collection, BUILD, &cause).expect("ended"));
                    }
                }
            });
            assert!(is_done, "{wanted:?}");
            assert_eq!(ended.map_err(|error| error.code), Err(ErrorCode::IndexBuildAborted), "{wanted:?} {how}");
            assert!(storage.builds_of_set().is_empty());
            if let Some(collection) = storage.collection(&name()) {
                assert!(collection.indexes().is_empty());
            }
            assert_nothing_left(&storage, &path);
        }
    }
}

fn fill_named(
    storage: &Storage,
    of: &baton_storage::BuildOfSet,
    wanted: BuildPhase,
    then: &mut dyn FnMut(),
) -> Result<()> {
    let index = Arc::clone(&collection(storage).indexes()[0]);
    let mut is_done = false;
    storage.fill_build(of, Pass::Decide, &mut FillPosition::default(), &Arc::default(), &mut |done, _| {
        let phase = index.phase();
        if phase == wanted && !is_done && (phase != BuildPhase::Scanning || done > 0) {
            is_done = true;
            then();
        }
        Ok(())
    })
}

/// What is set aside is in nobody's way: an index is asked for nothing before it is complete.
#[test]
fn a_view_of_an_index_that_is_complete_has_its_entries_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rocksdb");
    let storage = open(&path);
    filled(&storage);
    start(&storage);
    fill(&storage, Pass::Decide, &mut |_, _| Ok(())).expect("filled");
    commit(&storage);
    let index = collection(&storage).index("u_-1").expect("there");
    let view = storage.view();
    let mut entries = view.entries(&index, &Bounds::default(), Order::Backward);
    let mut count = 0;
    while let Some(entry) = entries.next_entry().expect("readable") {
        let record = record_key(RawBsonRef::Int32(count)).expect("a key");
        assert_eq!(entry.record, record.as_slice());
        count += 1;
    }
    assert_eq!(count, DOCUMENTS);
}

/// Fails if a phase does not say how much there is to do, says another total at each step, or when it will have ended is not told, or
/// told from what another phase took.
#[test]
fn every_phase_of_a_build_tells_how_much_there_is_to_do_and_when_it_will_have_ended() {
    let directory = tempfile::tempdir().expect("a folder");
    let storage = open(directory.path());
    filled(&storage);
    start(&storage);
    let (mut told, mut changed) = (Vec::new(), 0);
    let of = storage.builds_of_set().pop().expect("a build is under way");
    let asked = Arc::default();
    storage
        .fill_build(&of, Pass::Decide, &mut FillPosition::default(), &asked, &mut |done, total| {
            let phase = phase(&storage);
            while phase == BuildPhase::Scanning && changed < 300 {
                // An entry of `a` goes and another comes; those of `u` and `p` stay.
                changed += 1;
                change(&storage, changed, Some(&rawdoc! { "_id": changed, "a": -changed, "u": changed, "p": 0 }))?;
            }
            let task = storage.tasks().running().into_iter().find(|task| task.kind == TaskKind::IndexBuild);
            let progress = task.expect("it is registered").progress();
            assert_eq!(progress.counts(), (done, total));
            told.push((phase, done, total, progress.eta_secs()));
            Ok(())
        })
        .expect("filled");
    let of_phase = |phase| told.iter().filter(move |told| told.0 == phase).collect::<Vec<_>>();
    for phase in [BuildPhase::Scanning, BuildPhase::Loading, BuildPhase::Draining, BuildPhase::Checking] {
        let told = of_phase(phase);
        let total = told[0].2;
        assert!(total > 0 && told.iter().all(|told| told.2 == total), "{phase:?}: {told:?}");
        assert!(told.windows(2).all(|two| two[0].1 <= two[1].1), "{phase:?}: {told:?}");
        let (_, done, _, eta) = told.last().expect("there are steps");
        assert_eq!((*done, *eta), (total, Some(0.0)), "{phase:?}: {told:?}");
    }
    let drained = of_phase(BuildPhase::Draining);
    assert!(drained[0].2 >= 600, "two entries of each document that was changed: {drained:?}");
    assert!(drained.iter().any(|(_, done, total, eta)| done < total && eta.is_some_and(|eta| eta > 0.0)));
    assert_eq!(of_phase(BuildPhase::Checking)[0].2, DOCUMENTS as u64);
    commit(&storage);
    assert_whole(&storage, directory.path());
}
