//! What is dropped while a query is under way: the query ends with an error, not with a part of its answer.

use crate::common::{Ground, go_on, matcher};
use baton_execution::{Given, Query, QuerySpec};
use baton_types::ErrorCode;
use bson::rawdoc;

/// Takes the first three documents, of ten.
fn begin(query: &mut Query) {
    let mut taken = 0;
    let more = query.run(&go_on, &mut |_, _| {
        taken += 1;
        Ok(if taken == 3 { Given::TakenLast } else { Given::Taken })
    });
    assert!(more.expect("the first batch is read"));
}

fn goes_on(query: &mut Query) -> Result<usize, ErrorCode> {
    let mut rest = 0;
    let more = query.run(&go_on, &mut |_, _| {
        rest += 1;
        Ok(Given::Taken)
    });
    more.map(|_| rest).map_err(|error| error.code)
}

fn ground() -> Ground {
    Ground::new((0..10).map(|n| rawdoc! { "_id": n, "a": n })).index("a_1", rawdoc! { "a": 1 })
}

#[test]
fn a_query_on_a_collection_that_is_dropped_is_killed() {
    let ground = ground();
    let namespace = ground.collection().namespace.clone();
    let mut query = ground.query(QuerySpec::matching(matcher(&rawdoc! {})));
    begin(&mut query);
    ground.storage.by_member().drop_collection(&namespace).unwrap();
    assert_eq!(goes_on(&mut query), Err(ErrorCode::QueryPlanKilled));
}

#[test]
fn a_query_by_an_index_that_is_dropped_is_killed_and_one_by_another_way_goes_on() {
    let ground = ground();
    let mut by_index = ground.query(ground.by("a_1", &rawdoc! { "a": { "$gte": 0 } }));
    let mut by_scan = ground.query(QuerySpec::matching(matcher(&rawdoc! {})));
    begin(&mut by_index);
    begin(&mut by_scan);
    ground.storage.by_member().drop_index(&ground.collection(), "a_1").unwrap();
    assert_eq!(goes_on(&mut by_index), Err(ErrorCode::QueryPlanKilled));
    assert_eq!(goes_on(&mut by_scan), Ok(7));
}

#[test]
fn a_query_on_a_collection_that_is_renamed_goes_on() {
    let ground = ground();
    let namespace = ground.collection().namespace.clone();
    let mut query = ground.query(ground.by("a_1", &rawdoc! { "a": { "$gte": 0 } }));
    begin(&mut query);
    let other = baton_types::Namespace::new(namespace.db(), "renamed").unwrap();
    ground.storage.by_member().rename_collection(&namespace, &other, false).unwrap();
    assert_eq!(goes_on(&mut query), Ok(7));
}
