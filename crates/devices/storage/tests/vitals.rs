//! What storage says of how it is, and what tasks cost.
#![allow(clippy::unwrap_used, missing_docs)]

use baton_storage::tasks::{Admission, Gate, Pace, Proposal, TaskCost, TaskKind};
use baton_storage::{
    Bounds, Collection, CollectionOptions, CreateOutcome, Durability, Order, Storage, StorageOptions, Transaction,
    record_key,
};
use baton_types::Namespace;
use bson::{RawDocumentBuf, rawdoc};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Lets everything begin, and notes what it cost.
#[derive(Default)]
struct NotingGate {
    ended: Mutex<Vec<(TaskKind, String, Option<TaskCost>)>>,
}

impl Gate for NotingGate {
    fn may_begin(&self, _: &Proposal<'_>) -> Admission {
        Admission::Begin(Pace::Full)
    }

    fn ended(&self, proposal: &Proposal<'_>, cost: Option<TaskCost>) {
        self.ended.lock().unwrap().push((proposal.kind, proposal.name.to_owned(), cost));
    }
}

impl NotingGate {
    fn cost(&self, kind: TaskKind, name: &str) -> Option<TaskCost> {
        let ended = self.ended.lock().unwrap();
        ended.iter().rev().find(|(k, n, _)| *k == kind && n == name).and_then(|(_, _, cost)| *cost)
    }
}

fn open(directory: &std::path::Path, cache_bytes: usize) -> (Arc<Storage>, Arc<Collection>) {
    let storage = Storage::open(directory, StorageOptions { cache_bytes, ..StorageOptions::default() }).unwrap();
    let namespace = Namespace::new("test", "c").unwrap();
    let collection =
        match storage.by_member().create_collection(&namespace, CollectionOptions::default(), [7; 16]).unwrap() {
            CreateOutcome::Created(collection) | CreateOutcome::Exists(collection) => collection,
        };
    (storage, collection)
}

fn document(id: i32) -> RawDocumentBuf {
    // Nothing that compresses.
    let noise: String = (0..64_u64)
        .map(|n| {
            format!(
                "{:016x}",
                (id as u64 * 64 + n)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(31)
                    .wrapping_mul(0xd6e8_feb8_6659_fd93)
            )
        })
        .collect();
    rawdoc! { "_id": id, "noise": noise }
}

fn insert(storage: &Storage, collection: &Arc<Collection>, ids: impl Iterator<Item = i32>, durability: Durability) {
    for id in ids {
        let mut transaction = Transaction::default();
        storage.insert(&mut transaction, collection, &document(id), None).unwrap();
        storage.by_member().commit(transaction, durability).unwrap();
    }
}

fn read(storage: &Storage, collection: &Collection, id: i32) {
    let document = document(id);
    let key = record_key(document.get("_id").unwrap().unwrap()).unwrap();
    assert!(storage.get(collection, &key).unwrap().is_some());
}

#[test]
fn what_nobody_has_done_yet_is_not_known() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, _) = open(directory.path(), 64 << 20);
    let vitals = storage.vitals();
    assert_eq!((vitals.cache_hit_ratio, vitals.load), (None, None));
    assert_eq!((vitals.debt_bytes, vitals.debt_levels, vitals.stall_nearness), (0, 0, 0.0));
    assert!(vitals.cpus > 0.0 && vitals.disk_free.is_some_and(|free| free > 0.0 && free <= 1.0), "{vitals:?}");
}

#[test]
fn debt_and_nearness_grow_with_files_that_are_not_merged() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, collection) = open(directory.path(), 64 << 20);
    let mut seen = Vec::new();
    for round in 0..12 {
        insert(&storage, &collection, round * 10..round * 10 + 10, Durability::Applied);
        storage.flush().unwrap();
        seen.push(storage.vitals());
    }
    assert_eq!((seen[2].debt_levels, seen[2].stall_nearness), (0, 0.0), "three files are due to nothing");
    let last = seen[11];
    assert!(last.debt_bytes > seen[4].debt_bytes && seen[4].debt_bytes > 0, "{seen:?}");
    assert!(last.debt_levels >= 1);
    assert_eq!(last.stall_nearness, 0.5, "twelve files, of four that are due and twenty that slow writers down");
    storage.compact(&collection, &mut || Ok(())).unwrap();
}

#[test]
fn reads_that_need_a_file_are_told_from_those_that_do_not() {
    let directory = tempfile::tempdir().unwrap();
    {
        let (storage, collection) = open(directory.path(), 64 << 20);
        insert(&storage, &collection, 0..2000, Durability::Applied);
        storage.flush().unwrap();
    }
    let (storage, collection) = open(directory.path(), 64 << 20);
    storage.vitals();
    for id in (0..2000).step_by(40) {
        read(&storage, &collection, id);
    }
    let cold = storage.vitals().cache_hit_ratio.unwrap();
    assert!(cold < 0.3, "each of them is in a block of its own: {cold}");
    for _ in 0..20 {
        for id in (0..2000).step_by(40) {
            read(&storage, &collection, id);
        }
    }
    let warm = storage.vitals();
    assert!(warm.cache_hit_ratio.unwrap() > 0.9, "{warm:?}");
    assert!(warm.cache_hot_bytes > 0 && warm.cache_hot_bytes < 64 << 20, "{warm:?}");
    let view = storage.view();
    let mut walk = view.documents(&collection, &Bounds::default(), Order::Forward);
    let mut documents = 0;
    while walk.next_document().unwrap().is_some() {
        documents += 1;
    }
    drop(walk);
    assert_eq!(documents, 2000);
    assert!(storage.vitals().cache_hot_bytes >= warm.cache_hot_bytes, "a walk is a read, too");
}

#[test]
fn what_threads_do_for_clients_is_load_and_syncs_have_a_latency() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, collection) = open(directory.path(), 64 << 20);
    storage.vitals();
    let begun = Instant::now();
    let mut id = 0;
    while begun.elapsed() < Duration::from_millis(300) {
        insert(&storage, &collection, id..id + 1, Durability::Synced);
        (0..200).for_each(|_| read(&storage, &collection, id));
        id += 1;
    }
    let vitals = storage.vitals();
    assert!(vitals.load.is_some_and(|load| load > 0.01 && load <= 1.0), "{vitals:?}");
    assert!(
        vitals.sync_latency.is_some_and(|latency| latency > Duration::ZERO && latency < Duration::from_secs(5)),
        "{vitals:?}"
    );
}

#[test]
fn every_end_tells_what_the_task_cost() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, collection) = open(directory.path(), 64 << 20);
    let gate = Arc::new(NotingGate::default());
    storage.tasks().bind(Arc::clone(&gate) as Arc<dyn Gate>);
    for odd in [0, 1] {
        // Files that lie within each other have to be merged.
        insert(&storage, &collection, (odd..3000).step_by(2), Durability::Applied);
        storage.flush().unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while gate.cost(TaskKind::Flush, "documents").is_none() {
        assert!(Instant::now() < deadline, "no flush has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    let flush = gate.cost(TaskKind::Flush, "documents").unwrap();
    assert!(flush.cpu.is_some_and(|cpu| cpu > Duration::ZERO), "{flush:?}");

    storage.compact(&collection, &mut || Ok(())).unwrap();
    let asked = gate.cost(TaskKind::Compaction, "test.c").unwrap();
    let job = gate.cost(TaskKind::Compaction, "documents").unwrap();
    for cost in [asked, job] {
        assert!(cost.cpu.is_some_and(|cpu| cpu > Duration::ZERO), "{cost:?}");
        assert!(cost.read_bytes.is_some_and(|bytes| bytes > 2_000_000), "{cost:?}");
        assert!(cost.written_bytes.is_some_and(|bytes| bytes > 1_000_000), "{cost:?}");
    }
    assert!(asked.duration >= job.duration && asked.read_bytes >= job.read_bytes);

    let totals = storage.tasks().totals();
    let compactions =
        totals.iter().find(|(kind, _)| *kind == TaskKind::Compaction).map(|(_, totals)| totals.spent).unwrap();
    let of_jobs: u64 = {
        let ended = gate.ended.lock().unwrap();
        let jobs = ended.iter().filter(|(kind, name, _)| *kind == TaskKind::Compaction && name != "test.c");
        jobs.filter_map(|(_, _, cost)| cost.and_then(|cost| cost.read_bytes)).sum()
    };
    assert_eq!(compactions.read_bytes, Some(of_jobs), "what was asked for was done by jobs, which count");

    storage.validate(&collection, &mut |_, _| Ok(())).unwrap();
    let validation = gate.cost(TaskKind::Validate, "test.c").unwrap();
    assert!(validation.cpu.is_some_and(|cpu| cpu > Duration::ZERO && cpu <= validation.duration * 2), "{validation:?}");

    let checkpoint = storage.begin_checkpoint("somebody").unwrap();
    let (name, size) = checkpoint.files.iter().max_by_key(|(_, size)| *size).unwrap().clone();
    std::thread::scope(|scope| {
        // On whichever thread.
        scope.spawn(|| storage.read_checkpoint(checkpoint.id, &name, 0, size as usize).unwrap());
    });
    storage.end_checkpoint(checkpoint.id);
    let source = gate.cost(TaskKind::InitialSyncSource, "somebody").unwrap();
    assert!(source.cpu.is_some_and(|cpu| cpu > Duration::ZERO), "{source:?}");
}

#[test]
fn what_another_thread_ended_or_nobody_measures_is_not_known_and_what_was_given_up_cost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, _) = open(directory.path(), 64 << 20);
    let gate = Arc::new(NotingGate::default());
    storage.tasks().bind(Arc::clone(&gate) as Arc<dyn Gate>);
    let task = storage.tasks().admit_now(TaskKind::Backup, "elsewhere", 0);
    std::thread::spawn(move || drop(task)).join().unwrap();
    let cost = gate.cost(TaskKind::Backup, "elsewhere").unwrap();
    assert_eq!((cost.cpu, cost.read_bytes, cost.written_bytes), (None, None, None));
    assert!(cost.duration > Duration::ZERO);

    struct Closed(NotingGate);
    impl Gate for Closed {
        fn may_begin(&self, _: &Proposal<'_>) -> Admission {
            Admission::Wait { why: "it is closed" }
        }

        fn ended(&self, proposal: &Proposal<'_>, cost: Option<TaskCost>) {
            self.0.ended(proposal, cost);
        }
    }
    let closed = Arc::new(Closed(NotingGate::default()));
    storage.tasks().bind(Arc::clone(&closed) as Arc<dyn Gate>);
    drop(storage.tasks().admit(TaskKind::Backup, "given up", 0));
    assert_eq!(*closed.0.ended.lock().unwrap(), [(TaskKind::Backup, "given up".to_owned(), None)]);
}
