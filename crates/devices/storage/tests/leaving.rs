//! Transactions that their threads leave with the commit queue.

mod common;

use baton_storage::{Collection, Durability, Inserted, Placed, Storage};
use baton_types::{ErrorCode, OpTime};
use bson::rawdoc;
use common::{create, documents, index, insert, open};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn place(storage: &Storage, c: &Arc<Collection>, id: i32, durability: Durability) -> Placed {
    let mut transaction = storage.by_member().transaction();
    assert_eq!(storage.insert(&mut transaction, c, &rawdoc! { "_id": id }, None).expect("added"), Inserted::Added);
    storage.by_member().place(transaction, durability).expect("placed")
}

#[test]
fn a_lone_writer_writes_by_itself_and_is_called_before_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).unwrap();
    for (id, durability) in [(1, Durability::Applied), (2, Durability::Wanted), (3, Durability::Synced)] {
        let (told, optime) = mpsc::channel();
        let placed = place(&storage, &c, id, durability);
        assert!(!documents(&storage, "c").iter().any(|document| document.get_i32("_id").ok() == Some(id)), "not yet");
        placed.leave(Box::new(move |optime| told.send(optime).unwrap()));
        let optime: OpTime = optime.try_recv().expect("called by the thread that left it");
        assert_eq!(optime, storage.oplog().last_entry());
        assert!(durability != Durability::Synced || storage.queue().durable() >= optime);
        assert!(documents(&storage, "c").iter().any(|document| document.get_i32("_id").ok() == Some(id)));
    }
}

#[test]
fn what_was_left_is_called_once_each_whoever_writes_and_when_it_is_as_safe_as_was_asked_for() {
    const THREADS: i32 = 16;
    const EACH: i32 = 100;
    let folder = tempfile::tempdir().unwrap();
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let helpers: Vec<_> = [Storage::queue, Storage::queue]
        .into_iter()
        .enumerate()
        .map(|(n, queue)| {
            let (storage, is_over) = (Arc::clone(&storage), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let time = Duration::from_millis(5);
                    if n == 0 { queue(&storage).serve_writes(time) } else { queue(&storage).serve_syncs(time) }
                }
            })
        })
        .collect();
    let (told, all) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (storage, c, told) = (&storage, &c, told.clone());
            scope.spawn(move || {
                for n in 0..EACH {
                    let id = thread * EACH + n;
                    let durability = [Durability::Applied, Durability::Wanted, Durability::Synced][(id % 3) as usize];
                    // Some wait, as commands do that write more than once.
                    if n % 7 == 6 {
                        let optime = insert(storage, c, &rawdoc! { "_id": id }).unwrap();
                        told.send((id, optime)).unwrap();
                        continue;
                    }
                    let (told, of) = (told.clone(), Arc::clone(storage));
                    place(storage, c, id, durability).leave(Box::new(move |optime| {
                        let queue = of.queue();
                        let reached = if durability == Durability::Synced { queue.durable() } else { queue.applied() };
                        assert!(reached >= optime, "{durability:?}");
                        told.send((id, optime)).unwrap();
                    }));
                }
            });
        }
    });
    drop(told);
    let told: Vec<(i32, OpTime)> =
        (0..THREADS * EACH).map(|_| all.recv_timeout(Duration::from_secs(20)).expect("called")).collect();
    is_over.store(true, Ordering::Relaxed);
    helpers.into_iter().for_each(|helper| helper.join().unwrap());
    assert!(all.recv().is_err(), "none is called twice");
    let ids: BTreeSet<i32> = told.iter().map(|(id, _)| *id).collect();
    let optimes: BTreeSet<OpTime> = told.iter().map(|(_, optime)| *optime).collect();
    assert_eq!((ids.len(), optimes.len()), ((THREADS * EACH) as usize, (THREADS * EACH) as usize));
    assert_eq!(documents(&storage, "c").len(), (THREADS * EACH) as usize);
}

/// An index of an empty collection is complete at once: it was, without an entry for a document that stood in the queue.
#[test]
fn who_changes_the_catalog_and_who_drains_the_queue_see_what_had_its_place_before() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).unwrap();
    let placed = place(&storage, &c, 1, Durability::Applied);
    index(&storage, "c", &rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).unwrap();
    assert_eq!(documents(&storage, "c").len(), 1);
    let report = storage.validate(&storage.collection(&common::name("c")).unwrap(), &mut |_, _| Ok(())).unwrap();
    assert!(report.errors.is_empty() && report.missing_entries == 0, "{report:?}");
    assert!(placed.wait() < storage.oplog().last_entry());
    let placed = place(&storage, &c, 2, Durability::Applied);
    storage.queue().drain();
    assert_eq!(documents(&storage, "c").len(), 2);
    assert_eq!(placed.wait(), storage.oplog().last_entry());
}

#[test]
fn what_is_dropped_is_waited_for_and_what_the_gate_refuses_has_no_place() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).unwrap();
    drop(place(&storage, &c, 1, Durability::Synced));
    assert_eq!((documents(&storage, "c").len(), storage.queue().durable()), (1, storage.oplog().last_entry()));
    let placed = place(&storage, &c, 2, Durability::Applied);
    storage.queue().close_to_writes();
    assert_eq!(documents(&storage, "c").len(), 2, "what had its place is written before the gate is closed");
    drop(placed);
    let mut transaction = storage.by_member().transaction();
    storage.insert(&mut transaction, &c, &rawdoc! { "_id": 3 }, None).unwrap();
    let refused = storage.by_member().place(transaction, Durability::Applied).err().expect("closed");
    assert_eq!(refused.code, ErrorCode::NotWritablePrimary);
    storage.open_to_writes(2);
    insert(&storage, &c, &rawdoc! { "_id": 3 }).expect("its lock was given back");
}
