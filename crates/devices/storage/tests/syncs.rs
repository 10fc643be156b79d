//! When the log is synced though nobody waits for that.

mod common;

use baton_storage::{Durability, Transaction};
use bson::rawdoc;
use common::{create, open};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A document of this size is in the log and in its family.
const DOCUMENT_BYTES: usize = 50 * 1024;

#[test]
fn syncs_begin_by_themselves_shortly_before_a_change_of_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    storage.sync();
    let syncs = || storage.statistics().log_syncs;
    let text = "x".repeat(DOCUMENT_BYTES);
    let insert = |id: i32| {
        let mut transaction = Transaction::default();
        storage.insert(&mut transaction, &c, &rawdoc! { "_id": id, "t": text.as_str() }, None).expect("added");
        storage.by_member().commit(transaction, Durability::Applied).expect("committed");
    };
    let is_over = AtomicBool::new(false);
    let (early, in_time) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                storage.queue().serve_syncs(Duration::from_millis(20));
            }
        });
        let before = syncs();
        (0..20).for_each(insert);
        std::thread::sleep(Duration::from_millis(50));
        let early = syncs() - before;
        // A memtable is full with 8 MB.
        (20..120).for_each(insert);
        let until = Instant::now() + Duration::from_secs(30);
        while syncs() == before && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
        (early, syncs() > before)
    });
    assert_eq!(early, 0, "a megabyte is left to who syncs now and then");
    assert!(in_time);
}
