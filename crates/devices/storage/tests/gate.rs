//! Background work asks the gate before it begins, and is in the registry.
#![allow(clippy::unwrap_used, missing_docs)]

use baton_storage::tasks::{Admission, Gate, TaskKind};
use baton_storage::{CollectionOptions, CreateOutcome, Durability, Storage, StorageOptions, Transaction};
use baton_types::Namespace;
use bson::rawdoc;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CAN_WAIT: [TaskKind; 3] = [TaskKind::Compaction, TaskKind::OplogTruncation, TaskKind::DropCleanup];

/// Notes who asks. Closed until it is opened.
#[derive(Default)]
struct NotingGate {
    is_open: AtomicBool,
    asked: Mutex<BTreeSet<TaskKind>>,
}

impl Gate for NotingGate {
    fn may_begin(&self, kind: TaskKind, _: &str, _: Duration) -> Admission {
        self.asked.lock().unwrap().insert(kind);
        if self.is_open.load(Ordering::Relaxed) { Admission::Begin } else { Admission::Wait }
    }
}

/// How many tasks of a kind have ended.
fn ended(storage: &Storage, kind: TaskKind) -> u64 {
    storage.tasks().totals().iter().find(|(other, _)| *other == kind).map_or(0, |(_, totals)| totals.count)
}

#[test]
fn what_can_wait_asks_the_gate_and_is_registered() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(NotingGate::default());
    // So small an oplog is always to be truncated.
    let options = StorageOptions { cache_bytes: 64 << 20, oplog_bytes_max: 1, ..StorageOptions::default() };
    let storage = Storage::open(directory.path(), options, gate.clone()).unwrap();
    let namespace = Namespace::new("test", "c").unwrap();
    let options = CollectionOptions::parse(&rawdoc! {}).unwrap();
    let collection = match storage.create_collection(&namespace, options, [7; 16]).unwrap() {
        CreateOutcome::Created(collection) | CreateOutcome::Exists(collection) => collection,
    };
    for round in 0..6 {
        for id in 0..50 {
            let mut transaction = Transaction::default();
            storage.insert(&mut transaction, &collection, &rawdoc! { "_id": round * 1000 + id }, None).unwrap();
            storage.commit(transaction, Durability::Synced).unwrap();
        }
        storage.flush().unwrap();
    }
    storage.create_collection(&Namespace::new("test", "gone").unwrap(), CollectionOptions::default(), [8; 16]).unwrap();
    storage.drop_collection(&Namespace::new("test", "gone").unwrap()).unwrap();
    let work = || {
        storage.tend_compaction().unwrap();
        storage.free_dropped(&|| true).unwrap();
        storage.truncate_oplog()
    };
    for _ in 0..40 {
        assert_eq!(work(), 0, "nothing is truncated while the gate is closed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = gate.asked.lock().unwrap().clone();
    assert_eq!(asked, BTreeSet::from(CAN_WAIT));
    for kind in CAN_WAIT {
        assert_eq!(ended(&storage, kind), 0, "{} waits", kind.name());
    }
    gate.is_open.store(true, Ordering::Relaxed);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while CAN_WAIT.iter().any(|kind| ended(&storage, *kind) == 0) {
        assert!(std::time::Instant::now() < deadline, "what the gate lets begin is not in the registry");
        work();
        std::thread::sleep(Duration::from_millis(20));
    }
}
