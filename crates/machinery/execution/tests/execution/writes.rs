//! Writes over a real storage: what matches under its lock is changed, indexes follow, and what is refused changes
//! nothing.

use crate::common::{Ground, context, go_on, matcher, sorted_by};
use baton_execution::QuerySpec;
use baton_execution::write::{DeleteStatement, Image, UpdateStatement, delete, insert_one, update};
use baton_query::update::Update;
use baton_types::ErrorCode;
use bson::{Bson, RawBsonRef, RawDocumentBuf, rawdoc};

fn ten() -> Ground {
    Ground::new((0..10).map(|n| rawdoc! { "_id": n, "a": n, "b": 0 })).index("a_1", rawdoc! { "a": 1 })
}

fn ids_with(ground: &Ground, filter: RawDocumentBuf) -> Vec<i32> {
    ground.ids(QuerySpec { sort: sorted_by(&rawdoc! { "_id": 1 }), ..QuerySpec::matching(matcher(&filter)) })
}

#[test]
fn one_or_all_that_match_are_changed_and_counted() {
    let ground = ten();
    let one =
        ground.update(&rawdoc! { "a": { "$gt": 5 } }, &rawdoc! { "$set": { "b": 1 } }, false, false).expect("updated");
    assert_eq!((one.matched, one.modified), (1, 1));
    let all =
        ground.update(&rawdoc! { "a": { "$gt": 5 } }, &rawdoc! { "$set": { "b": 1 } }, true, false).expect("updated");
    assert_eq!((all.matched, all.modified), (4, 3), "one of them had it already");
    assert_eq!(ids_with(&ground, rawdoc! { "b": 1 }), [6, 7, 8, 9]);
    ground.assert_valid();
}

#[test]
fn a_document_that_moves_in_the_index_it_is_found_by_is_changed_once() {
    let ground = ten();
    let moved =
        ground.update(&rawdoc! { "a": { "$gte": 0 } }, &rawdoc! { "$inc": { "a": 5 } }, true, false).expect("updated");
    assert_eq!((moved.matched, moved.modified), (10, 10));
    assert_eq!(ids_with(&ground, rawdoc! { "a": { "$gte": 10 } }), [5, 6, 7, 8, 9]);
    ground.assert_valid();
}

#[test]
fn an_upsert_inserts_what_its_filter_and_update_make() {
    let ground = ten();
    let upserted = ground
        .update(&rawdoc! { "_id": 77, "k": "x" }, &rawdoc! { "$inc": { "a": 3 } }, false, true)
        .expect("upserted");
    assert_eq!((upserted.matched, upserted.upserted), (0, Some(Bson::Int32(77))));
    assert_eq!(ids_with(&ground, rawdoc! { "k": "x", "a": 3 }), [77]);
    let again =
        ground.update(&rawdoc! { "_id": 77, "k": "x" }, &rawdoc! { "$inc": { "a": 3 } }, false, true).expect("updated");
    assert_eq!((again.matched, again.modified, again.upserted), (1, 1, None));
    ground.assert_valid();
}

#[test]
fn a_duplicate_key_changes_nothing() {
    let ground = ten().index_with("u_1", rawdoc! { "u": 1 }, &rawdoc! { "unique": true, "sparse": true });
    ground.update(&rawdoc! { "_id": 1 }, &rawdoc! { "$set": { "u": "x" } }, false, false).expect("updated");
    let refused = ground.update(&rawdoc! { "_id": 2 }, &rawdoc! { "$set": { "u": "x", "b": 9 } }, false, false);
    assert_eq!(refused.err().map(|error| error.code), Some(ErrorCode::DuplicateKey));
    let inserted = insert_one(&ground.work(&go_on), &ground.namespace, &rawdoc! { "_id": 50, "u": "x" });
    assert_eq!(inserted.err().map(|error| error.code), Some(ErrorCode::DuplicateKey));
    assert_eq!(ids_with(&ground, rawdoc! { "$or": [{ "b": 9 }, { "_id": 50 }] }), [] as [i32; 0]);
    ground.assert_valid();
}

#[test]
fn a_result_too_large_to_store_changes_nothing() {
    let ground = ten();
    let text = "x".repeat(9 << 20);
    ground
        .update(&rawdoc! { "_id": 1 }, &rawdoc! { "$set": { "t": text.as_str() } }, false, false)
        .expect("it fits once");
    let twice = ground.update(&rawdoc! { "_id": 1 }, &rawdoc! { "$set": { "t2": text.as_str() } }, false, false);
    assert_eq!(twice.err().map(|error| error.code.0), Some(17419));
    assert_eq!(ids_with(&ground, rawdoc! { "t2": { "$exists": true } }), [] as [i32; 0]);
    ground.assert_valid();
}

#[test]
fn the_image_is_the_document_before_or_after() {
    let ground = ten();
    let change = |image| {
        let set = rawdoc! { "$inc": { "b": 1 } };
        let parsed = Update::parse::<RawDocumentBuf>(RawBsonRef::Document(&set), &[], &context()).expect("an update");
        let statement = UpdateStatement { image, ..UpdateStatement::one(matcher(&rawdoc! { "_id": 3 }), parsed) };
        let written = update(&ground.work(&go_on), &ground.namespace, &statement, &context(), None).expect("updated");
        written.image.map(|image| image.get_i32("b").expect("a number"))
    };
    assert_eq!((change(Image::Before), change(Image::After), change(Image::None)), (Some(0), Some(2), None));
}

#[test]
fn a_delete_takes_one_by_its_sort_or_all() {
    let ground = ten();
    let remove = |filter: RawDocumentBuf, multi, sort| {
        let statement = DeleteStatement { filter: matcher(&filter), multi, hint: None, sort, image: Image::None };
        delete(&ground.work(&go_on), &ground.namespace, &statement, &context(), None).expect("deleted").modified
    };
    assert_eq!(remove(rawdoc! { "b": 0 }, false, sorted_by(&rawdoc! { "a": -1 })), 1);
    assert_eq!(ids_with(&ground, rawdoc! { "a": { "$gte": 8 } }), [8]);
    assert_eq!(remove(rawdoc! { "a": { "$lt": 4 } }, true, None), 4);
    assert_eq!(ground.collection().counts().documents, 5);
    ground.assert_valid();
}

#[test]
fn writers_of_one_document_wait_for_each_other() {
    let ground = ten();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    ground
                        .update(&rawdoc! { "_id": 5 }, &rawdoc! { "$inc": { "n": 1 } }, false, false)
                        .expect("updated");
                }
            });
        }
    });
    assert_eq!(ids_with(&ground, rawdoc! { "n": 200 }), [5]);
    ground.assert_valid();
}
