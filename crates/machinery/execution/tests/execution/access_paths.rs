//! Access paths and plans: whichever way a query goes, in batches of whatever size, it gives each document once, and it
//! goes the way that the planner says.

use crate::common::{self, Ground, go_on, ids, matcher, sorted_by};
use baton_execution::{Given, Hint, QuerySpec};
use bson::{RawDocumentBuf, rawdoc};
use std::sync::Arc;

fn hundred() -> impl Iterator<Item = RawDocumentBuf> {
    (0..100).map(|n| rawdoc! { "_id": n, "a": n % 10, "b": [n, n + 1], "c": 100 - n })
}

#[test]
fn a_query_gives_the_same_in_batches_of_any_size() {
    let ground = Ground::new(hundred()).index("a_1", rawdoc! { "a": 1 }).index("b_1", rawdoc! { "b": 1 });
    let all: Vec<i32> = (0..100).collect();
    for (way, filter) in
        [("_id_", rawdoc! {}), ("a_1", rawdoc! { "a": { "$gte": 0 } }), ("b_1", rawdoc! { "b": { "$gte": 0 } })]
    {
        for at_once in [1, 7, 100, usize::MAX] {
            let mut found = ground.ids_by(ground.by(way, &filter), at_once);
            found.sort_unstable();
            assert_eq!(found, all, "by {way}, {at_once} at a time");
        }
    }
}

#[test]
fn a_document_with_several_entries_comes_once_also_over_batches() {
    let ground = Ground::new(hundred()).index("b_1", rawdoc! { "b": 1 });
    let spec = || ground.by("b_1", &rawdoc! { "b": { "$in": [5, 6, 7] } });
    assert_eq!(ground.ids_by(spec(), 1), [4, 5, 6, 7]);
    assert_eq!(ground.ids(spec()), [4, 5, 6, 7]);
}

#[test]
fn branches_of_an_or_give_what_several_of_them_match_once() {
    let ground = Ground::new(hundred()).index("a_1", rawdoc! { "a": 1 }).index("c_1", rawdoc! { "c": 1 });
    let spec = || QuerySpec::matching(matcher(&rawdoc! { "$or": [{ "a": 3 }, { "c": { "$gt": 95 } }] }));
    let query = ground.query(spec());
    assert!(query.plan_summary().contains("IXSCAN { a: 1 }, IXSCAN { c: 1 }"), "{}", query.plan_summary());
    for at_once in [1, 2, usize::MAX] {
        let mut found = ground.ids_by(spec(), at_once);
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4, 13, 23, 33, 43, 53, 63, 73, 83, 93]);
    }
}

#[test]
fn an_id_alone_is_one_look_up() {
    let ground = Ground::new(hundred());
    let mut query = ground.query(QuerySpec::matching(matcher(&rawdoc! { "_id": 42 })));
    assert_eq!(query.plan_summary(), "IDHACK");
    assert_eq!(ids(&mut query, 1), [42]);
    assert_eq!((query.examined().keys, query.examined().documents), (1, 1));
}

#[test]
fn the_trial_takes_the_index_that_gives_most_for_its_work() {
    // Nine tenths have the same `wide`; of `narrow` there is one.
    let documents = (0..2_000).map(|n| rawdoc! { "_id": n, "wide": n / 1_800, "narrow": n });
    let ground =
        Ground::new(documents).index("wide_1", rawdoc! { "wide": 1 }).index("narrow_1", rawdoc! { "narrow": 1 });
    let spec = QuerySpec::matching(matcher(&rawdoc! { "wide": 0, "narrow": 1_234 }));
    let mut query = ground.query(spec);
    assert_eq!(query.plan_summary(), "IXSCAN { narrow: 1 }");
    assert_eq!(query.rejected_plans().len(), 1);
    assert_eq!(ids(&mut query, 10), [1_234]);
    assert_eq!((query.examined().keys, query.examined().documents), (1, 1));
}

#[test]
fn an_index_that_holds_what_is_asked_for_reads_no_document() {
    let ground = Ground::new(hundred()).index("a_1", rawdoc! { "a": 1 });
    let mut spec = ground.by("a_1", &rawdoc! { "a": 4 });
    spec.is_count = true;
    let mut query = ground.query(spec);
    assert_eq!(query.count(&go_on).expect("counted"), 10);
    assert_eq!((query.examined().keys, query.examined().documents), (10, 0));
}

#[test]
fn an_empty_filter_is_counted_without_reading() {
    let ground = Ground::new(hundred());
    let counted = |skip, limit| {
        let spec = QuerySpec { skip, limit, is_count: true, ..QuerySpec::matching(matcher(&rawdoc! {})) };
        let mut query = ground.query(spec);
        let count = query.count(&go_on).expect("counted");
        assert_eq!(query.examined().documents, 0);
        count
    };
    assert_eq!((counted(0, None), counted(10, None), counted(95, Some(10)), counted(200, None)), (100, 90, 5, 0));
}

#[test]
fn an_index_gives_its_order_and_without_one_a_sort_does() {
    let by_c = |ground: &Ground| {
        let sort = sorted_by(&rawdoc! { "c": 1 });
        let spec = QuerySpec { sort, skip: 2, limit: Some(3), ..QuerySpec::matching(matcher(&rawdoc! {})) };
        let query = ground.query(spec.clone());
        (!query.winning_plan().to_string().contains("\"SORT\""), ground.ids_by(spec.clone(), 1), ground.ids(spec))
    };
    let ground = Ground::new(hundred());
    assert_eq!(by_c(&ground), (false, vec![97, 96, 95], vec![97, 96, 95]));
    let ground = ground.index("c_1", rawdoc! { "c": 1 });
    assert_eq!(by_c(&ground), (true, vec![97, 96, 95], vec![97, 96, 95]));
}

#[test]
fn what_is_not_taken_is_given_again() {
    let ground = Ground::new(hundred());
    let mut query = ground.query(QuerySpec::matching(matcher(&rawdoc! { "a": 1 })));
    let mut refused = 0;
    let more = query.run(&go_on, &mut |_, _| {
        refused += 1;
        Ok(Given::Refused)
    });
    assert!(more.expect("read") && refused == 1 && query.returned == 0);
    assert_eq!(ids(&mut query, usize::MAX), [1, 11, 21, 31, 41, 51, 61, 71, 81, 91]);
}

#[test]
fn a_hint_of_what_is_not_there_is_refused() {
    let ground = Ground::new(hundred());
    let spec = QuerySpec { hint: Some(Hint::Name("none_1".into())), ..QuerySpec::matching(matcher(&rawdoc! {})) };
    let planned = baton_execution::Query::new(&ground.storage, Some(ground.collection()), spec, common::context());
    assert_eq!(planned.err().map(|error| error.code.0), Some(2));
}

#[test]
fn a_query_goes_on_where_it_was_while_documents_come_and_go() {
    let ground = Ground::new(hundred());
    let mut query = ground.query(QuerySpec::matching(matcher(&rawdoc! {})));
    let mut first = Vec::new();
    query
        .run(&go_on, &mut |_, document| {
            first.push(document.get_i32("_id").expect("an _id"));
            Ok(if first.len() == 50 { Given::TakenLast } else { Given::Taken })
        })
        .expect("read");
    for id in [10, 60] {
        let delete = baton_execution::write::DeleteStatement {
            filter: matcher(&rawdoc! { "_id": id }),
            multi: false,
            hint: None,
            sort: None,
            image: Default::default(),
        };
        baton_execution::write::delete(
            &ground.work(&Arc::default()),
            &ground.namespace,
            &delete,
            &common::context(),
            None,
        )
        .expect("deleted");
    }
    baton_execution::write::insert_one(&ground.work(&Arc::default()), &ground.namespace, &rawdoc! { "_id": 1_000 })
        .expect("inserted");
    let rest = ids(&mut query, 7);
    let expected: Vec<i32> = (50..100).filter(|id| *id != 60).chain([1_000]).collect();
    assert_eq!((first.len(), rest), (50, expected));
}

#[test]
fn stages_that_need_storage_find_it() {
    let ground = Ground::new(hundred());
    let partners = rawdoc! { "from": "c", "localField": "a", "foreignField": "_id", "as": "p" };
    let joined = ground
        .aggregate(&[
            rawdoc! { "$match": { "_id": { "$lt": 12 } } },
            rawdoc! { "$lookup": partners },
            rawdoc! { "$unwind": "$p" },
        ])
        .expect("joined");
    assert_eq!(joined.len(), 12);
    let last = joined.last().expect("the last").get_document("p").expect("its partner");
    assert_eq!(last.get_i32("_id").expect("an _id"), 1);
    let united =
        ground.aggregate(&[rawdoc! { "$unionWith": { "coll": "c" } }, rawdoc! { "$count": "n" }]).expect("united");
    assert_eq!(united, [rawdoc! { "n": 200 }]);
    let written = ground.aggregate(&[rawdoc! { "$match": { "a": 3 } }, rawdoc! { "$out": "d" }]).expect("written");
    assert!(written.is_empty());
    let target = ground.storage.collection(&baton_types::Namespace::new("test", "d").expect("a name")).expect("there");
    assert_eq!(target.counts().documents, 10);
}
