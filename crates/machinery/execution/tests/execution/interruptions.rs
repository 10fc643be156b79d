//! Whatever takes long on storage asks whether to go on, also where it gives nothing; and stops at the first no.

use crate::common::{self, Ground, asking, context, matcher, no_at, sorted_by};
use baton_execution::write::{DeleteStatement, delete};
use baton_execution::{Check, Given, Query, QuerySpec};
use baton_query::pipeline::Pipeline;
use baton_types::{ErrorCode, Result};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn thousand() -> Ground {
    Ground::new((0..1_000).map(|n| rawdoc! { "_id": n, "a": n, "b": n % 2, "m": [n, n] }))
}

#[track_caller]
fn interrupted<T>(outcome: Result<T>) {
    assert_eq!(outcome.map(drop).map_err(|error| error.code), Err(ErrorCode::Interrupted));
}

fn run(mut query: Query, nth: u32) -> (Result<bool>, Query) {
    let outcome = query.run(&no_at(nth), &mut |_, _| Ok(Given::Taken));
    (outcome, query)
}

#[test]
fn a_walk_over_documents_stops_at_the_next_question() {
    let ground = thousand();
    let (outcome, query) = run(ground.query(QuerySpec::matching(matcher(&rawdoc! { "none": 1 }))), 3);
    interrupted(outcome);
    assert_eq!(query.examined().documents, 3 * 128);
}

#[test]
fn entries_that_are_passed_over_count_too() {
    // `a` and then `b` between bounds: every key has to be looked at, and none of them counts.
    let ground = thousand().index("a_1_b_1", rawdoc! { "a": 1, "b": 1 });
    let spec = ground.by("a_1_b_1", &rawdoc! { "a": { "$gte": 0 }, "b": { "$gt": 5 } });
    let (outcome, query) = run(ground.query(spec), 2);
    interrupted(outcome);
    assert_eq!((query.examined().keys, query.examined().documents), (2 * 128, 0));
}

#[test]
fn look_ups_that_find_nothing_count_too() {
    let ground = thousand();
    let absent: Vec<i32> = (5_000..6_000).collect();
    let mut list = bson::RawArrayBuf::new();
    absent.iter().for_each(|id| list.push(*id));
    let (outcome, query) = run(ground.query(QuerySpec::matching(matcher(&rawdoc! { "_id": { "$in": list } }))), 2);
    interrupted(outcome);
    assert_eq!((query.examined().keys, query.examined().documents), (2 * 128, 0));
}

#[test]
fn a_sort_and_a_count_stop_while_they_read() {
    let ground = thousand();
    let sorted = QuerySpec { sort: sorted_by(&rawdoc! { "b": 1 }), ..QuerySpec::matching(matcher(&rawdoc! {})) };
    interrupted(run(ground.query(sorted), 2).0);
    interrupted(ground.query(QuerySpec::matching(matcher(&rawdoc! { "b": 1 }))).count(&no_at(2)));
}

#[test]
fn evaluation_asks_the_operation_that_runs_the_query_now() {
    let ground = thousand();
    let context = context();
    let filter = rawdoc! { "$expr": { "$eq": [{ "$size": { "$range": [0, { "$add": [2000, "$a"] }] } }, -1] } };
    let filter = Arc::new(baton_query::matcher::Matcher::parse(&filter, &context).expect("a filter"));
    let spec = QuerySpec::matching(filter);
    let mut query = Query::new(&ground.storage, Some(ground.collection()), spec, context).expect("planned");
    let no: Check = Arc::new(no_at_once);
    query.ask(&no);
    // Nobody says no between two documents: evaluation does, within the first.
    interrupted(query.run(&common::go_on, &mut |_, _| Ok(Given::Taken)));
    assert_eq!(query.examined().documents, 1);
    // Another operation goes on with it.
    let yes: Check = Arc::new(|| Ok(()));
    query.ask(&yes);
    assert!(!query.run(&common::go_on, &mut |_, _| Ok(Given::Taken)).expect("read to the end"));
}

fn no_at_once() -> Result<()> {
    no_at(1)()
}

#[test]
fn a_trial_of_plans_ends_also_where_no_candidate_gives_a_document() {
    // Both candidates pass over every key. MongoDB's trial is of 10,000 works for each.
    const KEYS: u32 = 15_000;
    let ground = Ground::new((0..KEYS as i32).map(|n| rawdoc! { "_id": n, "a": n, "b": n, "c": n }))
        .index("a_1_b_1", rawdoc! { "a": 1, "b": 1 })
        .index("c_1_b_1", rawdoc! { "c": 1, "b": 1 });
    let spec = QuerySpec::matching(matcher(&rawdoc! { "a": { "$gte": 0 }, "c": { "$gte": 0 }, "b": { "$lt": -1 } }));
    let context = context();
    let asked = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&asked);
    let check: Check = Arc::new(move || {
        seen.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    context.interruption.set(&check);
    let query = Query::new(&ground.storage, Some(ground.collection()), spec, context).expect("planned");
    assert_eq!(query.rejected_plans().len(), 1, "there were two candidates");
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked <= 2 * (10_000 / 128 + 1), "asked {asked} times: the trial walked on");
    const { assert!(KEYS / 128 > 10_000 / 128 + 1, "the indexes are long enough to tell") };
}

fn aggregation_stops(ground: &Ground, stages: &[RawDocumentBuf]) {
    let context = context();
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    let host = ground.host();
    let pipeline = Pipeline::parse(&stages, &context).expect("a pipeline");
    let mut aggregation = host.open(&ground.namespace, pipeline, None, &context).expect("opened");
    let asked = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&asked);
    let check: Check = Arc::new(move || {
        if seen.fetch_add(1, Ordering::Relaxed) < 4 {
            return Ok(());
        }
        no_at_once()
    });
    let mut outcome = Ok(true);
    while matches!(outcome, Ok(true)) {
        outcome = aggregation.run(&check, &mut |_| Ok(Given::Taken));
    }
    interrupted(outcome);
    assert_eq!(asked.load(Ordering::Relaxed), 5, "it went on after the first no");
}

#[test]
fn aggregations_stop_in_their_stages_and_in_the_pipelines_within() {
    let ground = thousand();
    let never = || rawdoc! { "$expr": { "$lt": ["$a", 0] } };
    for stages in [
        vec![rawdoc! { "$group": { "_id": "$a" } }],
        vec![rawdoc! { "$unwind": "$m" }, rawdoc! { "$match": { "none": 1 } }],
        vec![rawdoc! { "$lookup": { "from": "c", "pipeline": [{ "$match": never() }], "as": "o" } }],
        vec![rawdoc! { "$unionWith": { "coll": "c", "pipeline": [{ "$match": never() }] } }],
        vec![rawdoc! { "$limit": 1 }, rawdoc! { "$set": { "x": { "$range": [0, 100_000] } } }],
    ] {
        aggregation_stops(&ground, &stages);
    }
}

#[test]
fn an_update_of_many_stops_between_documents_and_leaves_whole_ones() {
    let ground = thousand().index("a_1", rawdoc! { "a": 1 });
    let outcome =
        ground.update_asking(&rawdoc! {}, &rawdoc! { "$inc": { "a": 10_000 } }, true, false, &asking(no_at(300)));
    interrupted(outcome);
    let changed = ground.ids(QuerySpec::matching(matcher(&rawdoc! { "a": { "$gte": 10_000 } }))).len();
    assert!((1..1_000).contains(&changed), "{changed} were changed");
    ground.assert_valid();
}

#[test]
fn a_delete_of_many_stops_between_documents() {
    let ground = thousand();
    let statement = DeleteStatement {
        filter: matcher(&rawdoc! { "b": 1 }),
        multi: true,
        hint: None,
        sort: None,
        image: Default::default(),
    };
    interrupted(delete(&ground.work(&asking(no_at(100))), &ground.namespace, &statement, &context(), None));
    let left = ground.collection().counts().documents;
    assert!((501..1_000).contains(&left), "{left} are left");
    ground.assert_valid();
}
