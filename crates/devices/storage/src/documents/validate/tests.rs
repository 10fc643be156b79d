//! What a validation finds, whom it waits for, and whom it keeps waiting.

use super::*;
use crate::background::tasks::{Admission, Gate, Pace, Proposal, Task};
use crate::catalog::{CollectionOptions, IndexDefinition};
use crate::ddl::CreateOutcome;
use crate::options::StorageOptions;
use baton_types::Namespace;
use bson::{RawDocument, rawdoc};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A collection with a unique index on `a`, and one document.
fn collection(folder: &std::path::Path) -> (Arc<Storage>, Arc<Collection>) {
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    let storage = Storage::open(folder, options).unwrap();
    let namespace = Namespace::new("test", "c").unwrap();
    let created = storage.by_member().create_collection(&namespace, CollectionOptions::default(), [1; 16]).unwrap();
    let (CreateOutcome::Created(c) | CreateOutcome::Exists(c)) = created;
    let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true };
    storage.by_member().create_index(&namespace, IndexDefinition::parse(&spec).unwrap(), &mut |_, _| Ok(())).unwrap();
    put(&storage, &c, &rawdoc! { "_id": 1, "a": 7 });
    (storage, c)
}

/// Puts a document as one that another member has taken: nobody asks whether its key is there.
fn put(storage: &Storage, collection: &Arc<Collection>, document: &RawDocument) {
    let mut transaction = Transaction::replicating();
    let change = crate::EntryChange::Put(document);
    storage.carry_out(&mut transaction, collection, change, None).unwrap();
    storage.commit.commit_unasked(transaction, Durability::Applied);
}

fn faults(storage: &Storage, collection: &Arc<Collection>) -> Vec<String> {
    let report = storage.validate(collection, &mut |_, _| Ok(())).unwrap();
    assert_eq!(report.is_valid(), report.errors.is_empty());
    report.errors
}

#[test]
fn two_documents_on_a_key_of_a_unique_index_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    assert!(faults(&storage, &c).is_empty());
    put(&storage, &c, &rawdoc! { "_id": 2, "a": 7 });
    assert_eq!(faults(&storage, &c), ["index a_1: two documents share a key, and it is unique"]);
}

#[test]
fn an_array_that_the_index_does_not_know_of_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    put(&storage, &c, &rawdoc! { "_id": 2, "a": [8, 9] });
    assert!(faults(&storage, &c).is_empty());
    // The same index, which has forgotten.
    let index = &c.indexes()[0];
    c.indexes.store(Arc::new(vec![Arc::new(Index::complete(index.id, index.definition.clone()))]));
    let found = faults(&storage, &c);
    assert!(found.iter().any(|fault| fault.contains("and it is not multikey")), "{found:?}");
    assert!(
        found.iter().any(|fault| fault.contains("multikey fields on disk are 0b1, and in memory 0b0")),
        "{found:?}"
    );
}

#[test]
fn a_catalog_entry_that_says_something_else_than_memory_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    let other = c.altered(Namespace::new("test", "d").unwrap(), CollectionOptions::default()).unwrap();
    let entry = other.entry(&[]).encode();
    storage.db().put_cf(storage.family(family::CATALOG), prefix(c.id), entry.as_bytes()).unwrap();
    let found = faults(&storage, &c);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|fault| fault.starts_with("catalog: ")), "{found:?}");
    storage.db().delete_cf(storage.family(family::CATALOG), prefix(c.id)).unwrap();
    assert_eq!(faults(&storage, &c), ["catalog: the collection has no entry on disk"]);
}

#[test]
fn counts_that_are_wrong_are_mended() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    c.counters.add(Counts { documents: 3, bytes: -7 });
    assert!(storage.validate(&c, &mut |_, _| Ok(())).unwrap().counters_mended);
    assert_eq!(c.counts().documents, 1);
    assert!(!storage.validate(&c, &mut |_, _| Ok(())).unwrap().counters_mended);
}

/// Closed until it is opened; then half the time.
#[derive(Default)]
struct Closed {
    is_open: AtomicBool,
}

impl Gate for Closed {
    fn may_begin(&self, _: &Proposal<'_>) -> Admission {
        match self.is_open.load(Ordering::Relaxed) {
            true => Admission::Begin(Pace::Half),
            false => Admission::Wait { why: "others go first" },
        }
    }

    fn pace(&self, _: &Proposal<'_>) -> Pace {
        Pace::Half
    }
}

/// What another thread does, if nobody keeps it waiting.
fn done_meanwhile(work: impl FnOnce() + Send + 'static) -> bool {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(10)).is_ok()
}

/// Inserts as a client does, and changes the catalog.
fn writer(storage: &Arc<Storage>, c: &Arc<Collection>, id: i32) -> impl FnOnce() + Send + use<> {
    let (storage, c) = (Arc::clone(storage), Arc::clone(c));
    move || {
        let name = c.namespace.clone();
        storage
            .with_collection(&name, |collection| put(&storage, collection.unwrap(), &rawdoc! { "_id": id, "a": id }));
        let options = CollectionOptions::default();
        storage
            .by_member()
            .create_collection(&Namespace::new("test", &format!("d{id}")).unwrap(), options, [id as u8; 16])
            .unwrap();
    }
}

fn validating(storage: &Storage) -> Option<Arc<Task>> {
    let tasks = storage.tasks();
    tasks.running().into_iter().chain(tasks.waiting()).find(|task| task.kind == TaskKind::Validate)
}

#[test]
fn one_that_waits_at_the_gate_keeps_no_writer_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    let gate = Arc::new(Closed::default());
    storage.tasks().bind(Arc::clone(&gate) as Arc<dyn Gate>);
    let validation = {
        let (storage, c) = (Arc::clone(&storage), Arc::clone(&c));
        std::thread::spawn(move || storage.validate(&c, &mut |_, _| Ok(())).unwrap())
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while validating(&storage).is_none_or(|task| task.waits_for != Some("others go first")) {
        assert!(!validation.is_finished() && Instant::now() < deadline, "it does not wait for the gate");
        std::thread::yield_now();
    }
    assert!(done_meanwhile(writer(&storage, &c, 2)), "a writer waits for one that waits");
    gate.is_open.store(true, Ordering::Relaxed);
    let report = validation.join().unwrap();
    assert!(report.is_valid() && report.documents == 2, "{report:?}");
}

#[test]
fn one_that_is_not_to_go_on_waits_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    storage.tasks().bind(Arc::new(Closed::default()));
    let killed = storage.validate(&c, &mut |_, _| Err(Error::new(ErrorCode::Interrupted, "killed")));
    assert_eq!(killed.err().map(|error| error.code), Some(ErrorCode::Interrupted));
    assert!(validating(&storage).is_none());
}

#[test]
fn writers_go_on_beside_one_and_it_is_of_the_moment_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    for id in 2..=3000 {
        put(&storage, &c, &rawdoc! { "_id": id, "a": 1000 + id });
    }
    c.counters.add(Counts { documents: 5, bytes: 0 });
    let (mut steps, mut last) = (0, (0, 0));
    let report = storage
        .validate(&c, &mut |done, total| {
            if done > 0 {
                steps += 1;
                assert!(done <= last.0 + STEP_LOOKS && done <= total, "{last:?}, then {done} of {total}");
                assert_eq!(validating(&storage).unwrap().steps(), steps - 1, "it has rested after each");
                // An array, and a document less: seen by the next one.
                assert!(steps > 1 || done_meanwhile(writer(&storage, &c, 5000)), "a writer waits for a validation");
                if steps == 1 {
                    put(&storage, &c, &rawdoc! { "_id": 7, "a": [-1, -2] });
                }
            }
            last = (done, total);
            Ok(())
        })
        .unwrap();
    assert!(report.is_valid() && report.counters_mended && report.documents == 3000, "{report:?}");
    assert!(steps >= 3000 / STEP_LOOKS + 3000 / STEP_LOOKS, "documents, then entries: {steps}");
    assert_eq!(c.counts().documents, 3001, "what was wrong is taken off, not what came since");
    let report = storage.validate(&c, &mut |_, _| Ok(())).unwrap();
    assert!(report.is_valid() && !report.counters_mended && report.documents == 3001, "{report:?}");
}

#[test]
fn a_step_is_small_in_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    for id in 2..=20 {
        put(&storage, &c, &rawdoc! { "_id": id, "a": 1000 + id, "text": "x".repeat(STEP_BYTES / 2) });
    }
    let mut steps = 0;
    storage
        .validate(&c, &mut |done, _| {
            steps += u64::from(done > 0);
            Ok(())
        })
        .unwrap();
    assert!(steps >= 9, "{steps} steps over ten times the bytes of one");
}

#[test]
fn two_that_find_the_same_counters_wrong_mend_them_once() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, c) = collection(folder.path());
    for id in 2..=2000 {
        put(&storage, &c, &rawdoc! { "_id": id, "a": 1000 + id });
    }
    c.counters.add(Counts { documents: -3, bytes: 11 });
    let mut within = None;
    let outer = storage
        .validate(&c, &mut |done, _| {
            if done > 0 && within.is_none() {
                within = Some(storage.validate(&c, &mut |_, _| Ok(())).unwrap().counters_mended);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!((within, outer.counters_mended), (Some(true), false));
    assert_eq!(c.counts().documents, 2000);
}
