//! Writes over a real storage: what matches under its lock is changed, indexes follow, and what is refused changes
//! nothing.

use crate::common::{Ground, context, go_on, matcher, sorted_by};
use baton_execution::write::{DeleteStatement, Image, UpdateStatement, delete, delete_while, insert_one, update};
use baton_execution::{Given, QuerySpec};
use baton_query::Context;
use baton_query::update::Update;
use baton_storage::IndexDefinition;
use baton_types::{Error, ErrorCode, Namespace};
use bson::{Bson, RawBsonRef, RawDocumentBuf, rawdoc};
use std::cell::Cell;
use std::sync::Arc;

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
    let inserted = insert_one(&ground.work(&Arc::default()), &ground.namespace, &rawdoc! { "_id": 50, "u": "x" });
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
        let written =
            update(&ground.work(&Arc::default()), &ground.namespace, &statement, &context(), None).expect("updated");
        written.image.map(|image| image.get_i32("b").expect("a number"))
    };
    assert_eq!((change(Image::Before), change(Image::After), change(Image::None)), (Some(0), Some(2), None));
}

#[test]
fn a_delete_takes_one_by_its_sort_or_all() {
    let ground = ten();
    let remove = |filter: RawDocumentBuf, multi, sort| {
        let statement = DeleteStatement { filter: matcher(&filter), multi, hint: None, sort, image: Image::None };
        delete(&ground.work(&Arc::default()), &ground.namespace, &statement, &context(), None)
            .expect("deleted")
            .modified
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

/// Deletes from so many documents; `meanwhile` is called after each slice with how many went so far. Gives how many went, and how it
/// ended.
fn delete_in_slices(documents: i32, meanwhile: impl Fn(&Ground, u64)) -> (Ground, u64, Option<Error>) {
    let ground = Ground::new((0..documents).map(|n| rawdoc! { "_id": n }));
    let statement =
        DeleteStatement { filter: matcher(&rawdoc! {}), multi: true, hint: None, sort: None, image: Image::None };
    let mut deleted = 0;
    let outcome = delete_while(
        &ground.work(&Arc::default()),
        &ground.namespace,
        &statement,
        &|_| Ok(true),
        &mut |more| {
            deleted += more;
            meanwhile(&ground, deleted);
        },
        &context(),
    );
    (ground, deleted, outcome.err())
}

#[test]
fn many_documents_go_in_slices_and_ddl_has_its_turn_between_two() {
    let altered = Cell::new(0);
    let (ground, deleted, failed) = delete_in_slices(1000, |ground, _| {
        // Waits for nobody: else this never ended.
        let index = rawdoc! { "key": { "a": 1 }, "name": format!("a_{}", altered.get()) };
        let definition = IndexDefinition::parse(&index).unwrap();
        ground.storage.by_member().create_index(&ground.namespace, definition, &mut |_, _| Ok(())).unwrap();
        altered.set(altered.get() + 1);
    });
    assert!(failed.is_none() && altered.get() >= 7, "{failed:?}, {} slices", altered.get());
    assert_eq!((deleted, ground.collection().counts().documents), (1000, 0));
    ground.assert_valid();
}

#[test]
fn a_collection_that_is_dropped_ends_what_changes_many_of_its_documents() {
    let (ground, deleted, failed) = delete_in_slices(1000, |ground, _| {
        ground.storage.by_member().drop_collection(&ground.namespace).unwrap();
        // Another of its name is none of its business.
        ground.storage.by_member().collection_or_create(&ground.namespace, || [3; 16]).unwrap();
        insert_one(&ground.work(&Arc::default()), &ground.namespace, &rawdoc! { "_id": 1 }).unwrap();
    });
    let failed = failed.unwrap();
    assert_eq!(failed.code, ErrorCode::QueryPlanKilled);
    assert!(failed.message.starts_with("collection dropped. UUID "), "{}", failed.message);
    assert!((1..1000).contains(&deleted), "{deleted}");
    assert_eq!(ground.collection().counts().documents, 1);
}

#[test]
fn a_collection_that_is_renamed_ends_what_changes_many_of_its_documents() {
    let other = Namespace::new("test", "renamed").unwrap();
    let (ground, deleted, failed) = delete_in_slices(1000, |ground, _| {
        ground
            .storage
            .by_member()
            .rename_collection(&ground.namespace, &Namespace::new("test", "renamed").unwrap(), false)
            .unwrap();
    });
    let failed = failed.unwrap();
    assert_eq!(failed.code, ErrorCode::QueryPlanKilled);
    assert!(
        failed.message.starts_with("collection renamed from 'test.c' to 'test.renamed'. UUID "),
        "{}",
        failed.message
    );
    let left = ground.storage.collection(&other).unwrap().counts().documents;
    assert_eq!(left as u64 + deleted, 1000);
}

#[test]
fn a_query_ends_with_an_error_where_a_part_of_what_it_reads_was_dropped() {
    for drops_index in [false, true] {
        let ground = ten();
        let mut query = ground.query(QuerySpec {
            sort: sorted_by(&rawdoc! { "a": 1 }),
            ..QuerySpec::matching(matcher(&rawdoc! { "a": { "$gte": 0 } }))
        });
        assert!(query.run(&go_on, &mut |_, _| Ok(Given::TakenLast)).unwrap());
        if drops_index {
            ground.storage.by_member().drop_index(&ground.collection(), "a_1").unwrap();
        } else {
            ground.storage.by_member().drop_collection(&ground.namespace).unwrap();
        }
        let failed = query.run(&go_on, &mut |_, _| Ok(Given::Taken)).unwrap_err();
        assert_eq!(failed.code, ErrorCode::QueryPlanKilled);
        let said = if drops_index { "index 'a_1' dropped" } else { "collection dropped. UUID " };
        assert!(failed.message.contains(said), "{}", failed.message);
    }
}

/// Fails if an update forgets which documents it has changed: each would come again, further on in the index.
#[test]
fn an_update_that_moves_documents_along_their_index_remembers_as_many_as_the_memory_allows() {
    let ground = Ground::new((0..5000).map(|n| rawdoc! { "_id": n, "a": n })).index("a_1", rawdoc! { "a": 1 });
    let all = rawdoc! { "a": { "$gte": 0 } };
    let moved = ground.update(&all, &rawdoc! { "$inc": { "a": 10_000 } }, true, false).unwrap();
    assert_eq!((moved.matched, moved.modified), (5000, 5000));
    let mut scarce = Context::clone(&context());
    scarce.memory_bytes_max = 64 * 1024;
    let statement = UpdateStatement {
        multi: true,
        ..UpdateStatement::one(
            matcher(&all),
            Update::parse(RawBsonRef::Document(&rawdoc! { "$inc": { "a": 1 } }), &[] as &[RawDocumentBuf], &context())
                .unwrap(),
        )
    };
    let refused =
        update(&ground.work(&Arc::default()), &ground.namespace, &statement, &Arc::new(scarce), None).unwrap_err();
    assert_eq!(refused.code, ErrorCode::ExceededMemoryLimit);
    assert_eq!(ids_with(&ground, rawdoc! { "a": { "$lt": 10_000 } }), [] as [i32; 0]);
    ground.assert_valid();
}
