//! Writes of high class stand before others in the commit queue, unless they build on what stands there.

mod common;

use baton_storage::{Author, Collection, Durability, Placed, Storage, id_of, record_key};
use baton_types::Class;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use common::{create, open};
use std::sync::Arc;

/// Has its place, and nobody writes it yet.
fn placed_insert(storage: &Storage, c: &Arc<Collection>, class: Class, document: &RawDocument) -> Placed {
    let author = Author::of(class);
    let writer = storage.by(&author);
    let mut transaction = writer.transaction();
    storage.insert(&mut transaction, c, document, None).expect("added");
    writer.place(transaction, Durability::Applied).expect("placed")
}

fn placed_update(
    storage: &Storage,
    c: &Arc<Collection>,
    class: Class,
    before: &RawDocument,
    after: &RawDocument,
) -> Placed {
    let author = Author::of(class);
    let writer = storage.by(&author);
    let mut transaction = writer.transaction();
    let record = record_key(id_of(before).expect("an _id")).expect("a key");
    assert!(storage.lock_document(&mut transaction, c, &record));
    storage.update(&mut transaction, c, &record, (before, after), after, None).expect("updated");
    writer.place(transaction, Durability::Applied).expect("placed")
}

#[test]
fn what_is_urgent_is_written_first_and_what_it_builds_on_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    let low = placed_insert(&storage, &c, Class::Low, &rawdoc! { "_id": 1 });
    let normal = placed_insert(&storage, &c, Class::Normal, &rawdoc! { "_id": 2, "n": 0 });
    let high = placed_insert(&storage, &c, Class::High, &rawdoc! { "_id": 3 });
    let (before, after): (RawDocumentBuf, RawDocumentBuf) =
        (rawdoc! { "_id": 2, "n": 0 }, rawdoc! { "_id": 2, "n": 1 });
    let builds_on_it = placed_update(&storage, &c, Class::High, &before, &after);
    let [builds_on_it, high, low, normal] = [builds_on_it, high, low, normal].map(Placed::wait);
    assert!(high < low && low < normal && normal < builds_on_it, "{high:?}, {low:?}, {normal:?}, {builds_on_it:?}");
    assert_eq!(common::documents(&storage, "c"), [rawdoc! { "_id": 1 }, after, rawdoc! { "_id": 3 }]);
}

/// However much is urgent, the first of the others goes along.
#[test]
fn nobody_stands_in_the_queue_for_ever_beside_what_is_urgent() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let c = create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    let large = "x".repeat(300 * 1024);
    let low = placed_insert(&storage, &c, Class::Low, &rawdoc! { "_id": 0 });
    let urgent: Vec<_> = (1..=600)
        .map(|id| placed_insert(&storage, &c, Class::High, &rawdoc! { "_id": id, "x": large.as_str() }))
        .collect();
    let low = low.wait();
    let after = urgent.into_iter().map(Placed::wait).filter(|urgent| *urgent > low).count();
    assert!(after > 400, "of 600 which fill many groups {after} are written after the one that is not urgent");
}
