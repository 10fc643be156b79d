//! Background work asks the gate before it begins, and is in the registry.
#![allow(clippy::unwrap_used, missing_docs)]

use baton_storage::tasks::{Admission, AlwaysOpen, Gate, Pace, Proposal, TaskKind};
use baton_storage::{
    Collection, CollectionOptions, CreateOutcome, Durability, IndexDefinition, Storage, StorageOptions, Transaction,
};
use baton_types::Namespace;
use bson::{RawDocumentBuf, rawdoc};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CAN_WAIT: [TaskKind; 3] = [TaskKind::Compaction, TaskKind::OplogTruncation, TaskKind::DropCleanup];

/// Notes who asks. Closed until it is opened.
#[derive(Default)]
struct NotingGate {
    is_open: AtomicBool,
    flushes_early: AtomicBool,
    asked: Mutex<BTreeSet<TaskKind>>,
    asked_for_pace: Mutex<BTreeSet<TaskKind>>,
}

impl Gate for NotingGate {
    fn may_begin(&self, proposal: &Proposal<'_>) -> Admission {
        self.asked.lock().unwrap().insert(proposal.kind);
        if self.is_open.load(Ordering::Relaxed) {
            Admission::Begin(Pace::Full)
        } else {
            Admission::Wait { why: "it is closed" }
        }
    }

    fn pace(&self, proposal: &Proposal<'_>) -> Pace {
        self.asked_for_pace.lock().unwrap().insert(proposal.kind);
        Pace::Full
    }

    fn may_flush_early(&self, proposal: &Proposal<'_>) -> bool {
        assert_eq!(proposal.kind, TaskKind::Flush);
        self.flushes_early.load(Ordering::Relaxed)
    }
}

/// How many tasks of a kind have ended.
fn ended(storage: &Storage, kind: TaskKind) -> u64 {
    storage.tasks().totals().iter().find(|(other, _)| *other == kind).map_or(0, |(_, totals)| totals.count)
}

fn open(directory: &std::path::Path, gate: &Arc<NotingGate>, oplog_bytes_max: u64) -> (Arc<Storage>, Arc<Collection>) {
    let options = StorageOptions { cache_bytes: 64 << 20, oplog_bytes_max, ..StorageOptions::default() };
    let storage = Storage::open(directory, options).unwrap();
    storage.tasks().bind(Arc::clone(gate) as Arc<dyn Gate>);
    let namespace = Namespace::new("test", "c").unwrap();
    let options = CollectionOptions::parse(&rawdoc! {}).unwrap();
    let collection = match storage.by_member().create_collection(&namespace, options, [7; 16]).unwrap() {
        CreateOutcome::Created(collection) | CreateOutcome::Exists(collection) => collection,
    };
    (storage, collection)
}

fn insert(storage: &Storage, collection: &Arc<Collection>, document: &RawDocumentBuf) {
    let mut transaction = Transaction::default();
    storage.insert(&mut transaction, collection, document, None).unwrap();
    storage.by_member().commit(transaction, Durability::Applied).unwrap();
}

#[test]
fn what_can_wait_asks_the_gate_and_is_registered() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(NotingGate::default());
    // So small an oplog is always to be truncated.
    let (storage, collection) = open(directory.path(), &gate, 1);
    for round in 0..6 {
        for id in 0..50 {
            insert(&storage, &collection, &rawdoc! { "_id": round * 1000 + id });
        }
        storage.flush().unwrap();
    }
    storage
        .by_member()
        .create_collection(&Namespace::new("test", "gone").unwrap(), CollectionOptions::default(), [8; 16])
        .unwrap();
    storage.by_member().drop_collection(&Namespace::new("test", "gone").unwrap()).unwrap();
    let work = || {
        storage.chores().tend_compaction().unwrap();
        storage.chores().free_dropped(&|| true).unwrap();
        storage.chores().truncate_oplog()
    };
    for _ in 0..40 {
        assert_eq!(work(), 0, "nothing is truncated while the gate is closed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut shows = false;
    let validated = storage.validate(&collection, &mut |_, _| {
        shows = storage.tasks().waiting().iter().any(|task| task.kind == TaskKind::Validate);
        Err(baton_types::Error::bad_value("enough"))
    });
    assert!(validated.is_err() && shows && ended(&storage, TaskKind::Validate) == 0);
    let asked = gate.asked.lock().unwrap().clone();
    assert_eq!(asked, CAN_WAIT.into_iter().chain([TaskKind::Validate]).collect());
    for kind in CAN_WAIT {
        assert_eq!(ended(&storage, kind), 0, "{} waits", kind.name());
        let waiting = storage.tasks().waiting();
        let shown = waiting.iter().find(|task| task.kind == kind).unwrap();
        assert_eq!(shown.waits_for, Some("it is closed"));
        assert!(shown.started.elapsed() >= Duration::from_millis(80), "it is one task that waits, not five");
    }
    gate.is_open.store(true, Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(20);
    while CAN_WAIT.iter().any(|kind| ended(&storage, *kind) == 0) {
        assert!(Instant::now() < deadline, "what the gate lets begin is not in the registry");
        work();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(storage.tasks().waiting().iter().all(|task| task.kind != TaskKind::OplogTruncation));
}

#[test]
fn what_somebody_waits_for_asks_how_hard_it_may_work() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(NotingGate::default());
    let (storage, collection) = open(&directory.path().join("db"), &gate, 1 << 30);
    for id in 0..50 {
        insert(&storage, &collection, &rawdoc! { "_id": id, "n": id });
    }
    storage.flush().unwrap();
    let definition = IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n_1" }).unwrap();
    storage.by_member().create_index(&collection.namespace, definition, &mut |_, _| Ok(())).unwrap();
    let checkpoint = storage.begin_checkpoint("a test").unwrap();
    storage.end_checkpoint(checkpoint.id);
    storage.by_member().drop_collection(&collection.namespace).unwrap();
    let expected = [
        TaskKind::Flush,
        TaskKind::IndexBuild,
        TaskKind::DropCleanup,
        TaskKind::Checkpoint,
        TaskKind::InitialSyncSource,
    ];
    let deadline = Instant::now() + Duration::from_secs(20);
    // What was dropped waits for those who may still read it.
    while !gate.asked_for_pace.lock().unwrap().contains(&TaskKind::DropCleanup)
        && !gate.asked.lock().unwrap().contains(&TaskKind::DropCleanup)
        && Instant::now() < deadline
    {
        storage.chores().free_dropped(&|| true).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let asked: BTreeSet<TaskKind> =
        gate.asked_for_pace.lock().unwrap().union(&gate.asked.lock().unwrap()).copied().collect();
    for kind in expected {
        assert!(asked.contains(&kind), "{} did not ask", kind.name());
    }
}

#[test]
fn a_commit_does_not_truncate_the_oplog() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(NotingGate::default());
    gate.is_open.store(true, Ordering::Relaxed);
    let (storage, collection) = open(directory.path(), &gate, 1);
    for id in 0..5000 {
        insert(&storage, &collection, &rawdoc! { "_id": id });
        if id % 1000 == 0 {
            storage.flush().unwrap();
        }
    }
    assert_eq!(ended(&storage, TaskKind::OplogTruncation), 0, "a client's commit truncated");
    assert!(storage.chores().truncate_oplog() > 0, "whoever is there for it does");
    assert_eq!(ended(&storage, TaskKind::OplogTruncation), 1);
}

/// Writes a kilobyte at a time until a flush has begun; gives how many bytes that took.
fn bytes_until_flushed(storage: &Storage, collection: &Arc<Collection>, ids: &mut i32) -> usize {
    let (flushes, text) = (ended(storage, TaskKind::Flush), "x".repeat(1000));
    let mut bytes = 0;
    let runs = || storage.tasks().running().iter().any(|task| task.kind == TaskKind::Flush);
    while ended(storage, TaskKind::Flush) == flushes && !runs() {
        assert!(bytes < 200 << 20, "no memtable is flushed");
        *ids += 1;
        insert(storage, collection, &rawdoc! { "_id": *ids, "text": text.as_str() });
        bytes += 1000;
        if bytes % 100_000 == 0 {
            storage.chores().tend_flushes().unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    bytes
}

#[test]
fn a_gate_chooses_when_to_flush_and_cannot_stop_it() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(NotingGate::default());
    let (storage, collection) = open(directory.path(), &gate, 1 << 30);
    let mut ids = 0;
    let when_full = bytes_until_flushed(&storage, &collection, &mut ids);
    storage.flush().unwrap();
    gate.flushes_early.store(true, Ordering::Relaxed);
    let when_told = bytes_until_flushed(&storage, &collection, &mut ids);
    assert!(when_told < when_full / 20 * 19, "{when_told} bytes and {when_full}");
}

#[test]
fn the_gate_is_bound_when_there_is_a_set_to_ask() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, collection) = open(directory.path(), &Arc::new(NotingGate::default()), 1 << 30);
    let mut tries = 0;
    let interrupted = storage.compact(&collection, &mut || {
        tries += 1;
        if tries > 2 { Err(baton_types::Error::bad_value("enough")) } else { Ok(()) }
    });
    assert!(interrupted.is_err() && ended(&storage, TaskKind::Compaction) == 0);
    storage.tasks().bind(Arc::new(AlwaysOpen));
    storage.compact(&collection, &mut || Ok(())).unwrap();
    assert!(ended(&storage, TaskKind::Compaction) > 0);
}
