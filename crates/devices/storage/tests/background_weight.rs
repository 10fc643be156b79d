//! What RocksDB does in the background by itself weighs next to nothing beside clients: docs/spikes/background-weight.md.

#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use baton_storage::{CollectionOptions, CreateOutcome, Durability, Storage, StorageOptions, Transaction};
use baton_types::Namespace;
use bson::rawdoc;

/// The niceness of a thread of this process, by its id.
fn niceness(thread: &str) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    // The fields after the name, which may have spaces; niceness is the 19th of all (proc(5)).
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(16).unwrap().parse().unwrap()
}

/// The niceness of the threads whose name begins so.
fn of_threads(name: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let id = thread.file_name().into_string().unwrap();
        let named = std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.starts_with(name));
        if named {
            found.push(niceness(&id));
        }
    }
    found
}

#[test]
fn compactions_are_nice_and_flushes_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
    let storage = Storage::open(&directory.path().join("db"), options).unwrap();
    let name = Namespace::new("test", "c").unwrap();
    let created = storage.by_member().create_collection(&name, CollectionOptions::default(), [1; 16]).unwrap();
    let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = created;
    for id in 0..100 {
        let mut transaction = Transaction::default();
        let _ = storage.insert(&mut transaction, &collection, &rawdoc! { "_id": id }, None).unwrap();
        storage.by_member().commit(transaction, Durability::Applied).unwrap();
    }
    storage.flush().unwrap();
    storage.compact(&collection, &mut || Ok(())).unwrap();
    let own = rustix::process::getpriority_process(None).unwrap();
    let (compactions, flushes) = (of_threads("rocksdb:low"), of_threads("rocksdb:high"));
    assert!(!compactions.is_empty() && compactions.iter().all(|niceness| *niceness == 19), "{compactions:?}");
    assert!(!flushes.is_empty() && flushes.iter().all(|niceness| *niceness == own), "{flushes:?}");
}
