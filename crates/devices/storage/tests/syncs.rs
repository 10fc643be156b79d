//! When the log is synced though nobody waits for that.

mod common;

use baton_storage::{Collection, Durability, Storage, Transaction};
use bson::rawdoc;
use common::{create, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A document of this size is in the log and in its family.
const DOCUMENT_BYTES: usize = 50 * 1024;
const LONG: Duration = Duration::from_secs(30);

/// Documents one after the other, beside a thread that makes the syncs that begin by themselves.
struct Inserting<'a> {
    storage: &'a Storage,
    collection: Arc<Collection>,
    next: i32,
}

impl Inserting<'_> {
    fn insert(&mut self, durability: Durability) {
        let text = "x".repeat(DOCUMENT_BYTES);
        let document = rawdoc! { "_id": self.next, "t": text.as_str() };
        let mut transaction = Transaction::default();
        self.storage.insert(&mut transaction, &self.collection, &document, None).expect("added");
        self.storage.by_member().commit(transaction, durability).expect("committed");
        self.next += 1;
    }

    fn syncs(&self) -> u64 {
        self.storage.statistics().log_syncs
    }
}

fn with_a_helper(work: impl FnOnce(&mut Inserting<'_>)) {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let collection = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    storage.sync();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                storage.queue().serve_syncs(Duration::from_millis(20));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&mut Inserting { storage: &storage, collection, next: 0 });
        }));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|error| std::panic::resume_unwind(error));
    });
}

#[test]
fn where_nobody_wants_a_sync_one_begins_by_itself_for_each_part_of_the_log() {
    with_a_helper(|inserting| {
        // The sync that made the collection durable is forgotten.
        std::thread::sleep(Duration::from_millis(50));
        for part in 1..=4 {
            let (before, until) = (inserting.syncs(), Instant::now() + LONG);
            // Of 256 KB.
            (0..6).for_each(|_| inserting.insert(Durability::Applied));
            while inserting.syncs() == before {
                assert!(Instant::now() < until, "part {part}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

#[test]
fn what_others_write_is_left_to_who_wants_syncs_until_the_log_is_about_to_change() {
    with_a_helper(|inserting| {
        // Before he wants it: the sync itself may take as long as he is remembered.
        let began = Instant::now();
        inserting.insert(Durability::Synced);
        let before = inserting.syncs();
        // A memtable is full with 8 MB, and near it with four.
        (0..20).for_each(|_| inserting.insert(Durability::Applied));
        let took = began.elapsed();
        std::thread::sleep(Duration::from_millis(50));
        // On a machine that is so slow that he may have been forgotten nothing is said.
        assert!(inserting.syncs() == before || took > Duration::from_millis(8), "{took:?}");
        let mut begins_by_itself = false;
        // The memtable is not full, so that the log has not changed.
        while !begins_by_itself && inserting.next < 140 {
            inserting.insert(Durability::Synced);
            let before = inserting.syncs();
            (0..6).for_each(|_| inserting.insert(Durability::Applied));
            std::thread::sleep(Duration::from_millis(5));
            begins_by_itself = inserting.syncs() > before;
        }
        assert!(begins_by_itself);
    });
}
