//! Which plans there are, as explain shows them.

use crate::Context;
use crate::matcher::Matcher;
use crate::planner::{Hint, IndexField, IndexSpec, KeyOrder, Plan, Projected, Query, plan, shape_hash, sole_id};
use crate::sort::SortPattern;
use baton_document::keys::Direction;
use baton_types::ErrorCode;
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, RawBsonRef, bson, doc};
use std::sync::Arc;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn parse(filter: &Document) -> Matcher {
    Matcher::parse(&raw(filter), &Context::new(bson::DateTime::from_millis(0), 1)).unwrap()
}

/// An index from a key pattern, named by it.
fn index(pattern: Document) -> IndexSpec {
    let mut spec = IndexSpec::ordered("", []);
    let mut names = Vec::new();
    for (path, order) in &pattern {
        let order = match order {
            Bson::Int32(-1) => KeyOrder::Ordered(Direction::Descending),
            Bson::String(kind) if kind == "hashed" => KeyOrder::Hashed(|_| Ok(7)),
            Bson::String(_) => KeyOrder::Unsearchable("text"),
            _ => KeyOrder::Ordered(Direction::Ascending),
        };
        names.push(format!("{path}_{}", pattern.get(path).unwrap().to_string().replace('"', "")));
        spec.key.push(IndexField { path: path.as_str().into(), order });
    }
    IndexSpec { name: names.join("_"), ..spec }
}

fn plans(filter: Document, indexes: Vec<IndexSpec>, ask: impl FnOnce(&mut Query<'_>)) -> Vec<Plan> {
    let matcher = parse(&filter);
    let mut query = Query::new(&matcher);
    ask(&mut query);
    plan(&query, &indexes.into_iter().map(Arc::new).collect::<Vec<_>>()).unwrap()
}

fn winning(filter: Document, indexes: Vec<IndexSpec>) -> Document {
    plans(filter, indexes, |_| {})[0].explain()
}

/// The index bounds of the first index scan in a plan.
fn bounds(filter: Document, spec: IndexSpec) -> Option<Document> {
    let explained = winning(filter, vec![spec]);
    let mut stage = &explained;
    loop {
        if let Ok(bounds) = stage.get_document("indexBounds") {
            return Some(bounds.clone());
        }
        stage = stage.get_document("inputStage").ok()?;
    }
}

fn sort(spec: Document) -> SortPattern {
    SortPattern::parse(&raw(&spec)).unwrap()
}

#[test]
fn without_an_index_the_collection_is_scanned() {
    assert_eq!(winning(doc! {}, vec![]), doc! { "stage": "COLLSCAN", "direction": "forward" });
    assert_eq!(
        winning(doc! { "a": 1 }, vec![index(doc! { "b": 1 })]),
        doc! { "stage": "COLLSCAN", "filter": { "a": { "$eq": 1 } }, "direction": "forward" }
    );
}

#[test]
fn an_id_is_looked_up() {
    assert_eq!(winning(doc! { "_id": 1 }, vec![]), doc! { "stage": "IDHACK" });
    let explained = winning(doc! { "_id": { "$in": [2, 1] }, "a": 1 }, vec![index(doc! { "a": 1 })]);
    assert_eq!(explained.get_str("stage").unwrap(), "FETCH");
    let all = plans(doc! { "_id": { "$in": [2, 1] } }, vec![], |_| {});
    assert!(matches!(&all[0], Plan::IdLookup { ids, .. } if ids.len() == 2 && ids[0] < ids[1]));
    let all = plans(doc! { "_id": { "$gt": 5 }, "a": 1 }, vec![], |_| {});
    assert!(matches!(&all[0], Plan::Filter { input, .. } if matches!(**input, Plan::IdScan { .. })));
    assert_eq!(sole_id(&parse(&doc! { "_id": 1 })), Some(RawBsonRef::Int32(1)));
    assert_eq!(sole_id(&parse(&doc! { "_id": 1, "a": 1 })), None);
    assert_eq!(sole_id(&parse(&doc! { "_id": { "$gt": 1 } })), None);
}

#[test]
fn an_index_scan_shows_its_bounds() {
    assert_eq!(
        winning(doc! { "a": { "$gte": 3, "$lt": 7 }, "b": "x" }, vec![index(doc! { "a": -1 })]),
        doc! {
            "stage": "FETCH",
            "filter": { "b": { "$eq": "x" } },
            "inputStage": {
                "stage": "IXSCAN",
                "keyPattern": { "a": -1 },
                "indexName": "a_-1",
                "isMultiKey": false,
                "multiKeyPaths": { "a": [] },
                "isUnique": false,
                "isSparse": false,
                "isPartial": false,
                "indexVersion": 2,
                "direction": "forward",
                "indexBounds": { "a": ["(7, 3]"] },
            },
        }
    );
}

#[test]
fn predicates_have_mongodbs_bounds() {
    for (filter, expected) in [
        (doc! { "a": 5 }, bson!(["[5, 5]"])),
        (doc! { "a": { "$gt": 5 } }, bson!(["(5, inf.0]"])),
        (doc! { "a": { "$lt": 5 } }, bson!(["[-inf.0, 5)"])),
        (doc! { "a": { "$gt": "x" } }, bson!(["(\"x\", {})"])),
        (doc! { "a": { "$in": [3, 1, "x"] } }, bson!(["[1, 1]", "[3, 3]", "[\"x\", \"x\"]"])),
        (doc! { "a": null }, bson!(["[undefined, undefined]", "[null, null]"])),
        (doc! { "a": { "$ne": 5 } }, bson!(["[MinKey, 5)", "(5, MaxKey]"])),
        (doc! { "a": { "$nin": [1, 2] } }, bson!(["[MinKey, 1)", "(1, 2)", "(2, MaxKey]"])),
        (doc! { "a": { "$not": { "$gt": 5 } } }, bson!(["[MinKey, 5]", "(inf.0, MaxKey]"])),
        (doc! { "a": { "$regex": "^abc" } }, bson!(["[\"abc\", \"abd\")", "[/^abc/, /^abc/]"])),
        (doc! { "a": { "$regex": "abc" } }, bson!(["[\"\", {})", "[/abc/, /abc/]"])),
        (doc! { "a": { "$type": "string" } }, bson!(["[\"\", {})"])),
        (doc! { "a": { "$exists": false } }, bson!(["[null, null]"])),
        (doc! { "a": [1, 2] }, bson!(["[1, 1]", "[[ 1, 2 ], [ 1, 2 ]]"])),
        (doc! { "a": { "$gt": 1, "$lt": 5, "$ne": 3 } }, bson!(["(1, 3)", "(3, 5)"])),
        (doc! { "a": true }, bson!(["[true, true]"])),
        (doc! { "a": { "$elemMatch": { "$gt": 1, "$lt": 5 } } }, bson!(["(1, 5)"])),
    ] {
        let found = bounds(filter.clone(), index(doc! { "a": 1 })).map(|bounds| bounds.get("a").unwrap().clone());
        assert_eq!(found, Some(expected), "{filter}");
    }
    for filter in [doc! { "a": { "$size": 2 } }, doc! { "a": { "$exists": true } }, doc! { "a": { "$type": "array" } }]
    {
        assert_eq!(winning(filter, vec![index(doc! { "a": 1 })]).get_str("stage").unwrap(), "COLLSCAN");
    }
}

#[test]
fn an_array_of_one_field_is_not_narrowed_by_two_predicates() {
    let multikey = |pattern: Document, bits: u64| IndexSpec { multikey: bits, ..index(pattern) };
    let found = bounds(doc! { "a": { "$gt": 1, "$lt": 5 } }, multikey(doc! { "a": 1 }, 1)).unwrap();
    assert_eq!(found.get_array("a").unwrap().len(), 1);
    assert_ne!(found, doc! { "a": ["(1, 5)"] });
    // Inside one $elemMatch both speak of the same element.
    let found = bounds(doc! { "a": { "$elemMatch": { "$gt": 1, "$lt": 5 } } }, multikey(doc! { "a": 1 }, 1)).unwrap();
    assert_eq!(found, doc! { "a": ["(1, 5)"] });
    // Two fields of the documents in one array.
    let pattern = doc! { "a.b": 1, "a.c": 1 };
    let found = bounds(doc! { "a.b": 1, "a.c": 2 }, multikey(pattern.clone(), 3)).unwrap();
    assert_eq!(found, doc! { "a.b": ["[1, 1]"], "a.c": ["[MinKey, MaxKey]"] });
    let found = bounds(doc! { "a": { "$elemMatch": { "b": 1, "c": 2 } } }, multikey(pattern, 3)).unwrap();
    assert_eq!(found, doc! { "a.b": ["[1, 1]"], "a.c": ["[2, 2]"] });
    // An array beside a plain field.
    let found = bounds(doc! { "a": 1, "b": 2 }, multikey(doc! { "a": 1, "b": 1 }, 1)).unwrap();
    assert_eq!(found, doc! { "a": ["[1, 1]"], "b": ["[2, 2]"] });
}

#[test]
fn an_index_that_leaves_documents_out_is_used_only_where_none_is_missed() {
    let sparse = || IndexSpec { sparse: true, ..index(doc! { "a": 1 }) };
    let uses = |filter: Document, spec: IndexSpec| !plans(filter, vec![spec], |_| {})[0].is_collection_scan();
    assert!(uses(doc! { "a": 1 }, sparse()));
    assert!(uses(doc! { "a": { "$exists": true } }, sparse()));
    assert!(!uses(doc! { "a": null }, sparse()));
    assert!(!uses(doc! { "a": { "$exists": false } }, sparse()));
    assert!(!uses(doc! { "a": { "$ne": 1 } }, sparse()));
    let partial = || IndexSpec { partial: Some(parse(&doc! { "b": { "$gt": 5 } })), ..index(doc! { "a": 1 }) };
    assert!(uses(doc! { "a": 1, "b": { "$gt": 5 } }, partial()));
    assert!(uses(doc! { "a": 1, "b": 6 }, partial()));
    assert!(uses(doc! { "a": 1, "b": { "$in": [7, 8] } }, partial()));
    assert!(uses(doc! { "a": 1, "$or": [{ "b": 6 }, { "b": { "$gte": 9 } }] }, partial()));
    assert!(!uses(doc! { "a": 1 }, partial()));
    assert!(!uses(doc! { "a": 1, "b": { "$gte": 5 } }, partial()));
    assert!(!uses(doc! { "a": 1, "b": "x" }, partial()));
    let hashed = || index(doc! { "a": "hashed" });
    assert!(uses(doc! { "a": 1 }, hashed()));
    assert!(uses(doc! { "a": { "$in": [1, 2] } }, hashed()));
    assert!(!uses(doc! { "a": { "$gt": 1 } }, hashed()));
    assert!(!uses(doc! { "a": 1 }, IndexSpec { hidden: true, ..index(doc! { "a": 1 }) }));
    assert!(!uses(doc! { "a": "x" }, index(doc! { "a": "text" })));
}

#[test]
fn an_index_in_the_order_asked_for_spares_the_sort() {
    let sorted = |filter: Document, pattern: Document, spec: Document| {
        let sort = sort(pattern);
        let plans = plans_sorted(filter, &sort, vec![index(spec)]);
        !plans[0].has_blocking_sort()
    };
    assert!(sorted(doc! {}, doc! { "a": 1 }, doc! { "a": 1 }));
    assert!(sorted(doc! {}, doc! { "a": -1 }, doc! { "a": 1 }));
    assert!(sorted(doc! {}, doc! { "a": -1, "b": 1 }, doc! { "a": 1, "b": -1 }));
    assert!(!sorted(doc! {}, doc! { "a": 1, "b": 1 }, doc! { "a": 1, "b": -1 }));
    assert!(!sorted(doc! {}, doc! { "b": 1 }, doc! { "a": 1, "b": 1 }));
    assert!(sorted(doc! { "a": 5 }, doc! { "b": 1 }, doc! { "a": 1, "b": 1 }));
    assert!(sorted(doc! { "a": 5 }, doc! { "b": 1, "a": 1 }, doc! { "a": 1, "b": 1 }));
    assert!(!sorted(doc! { "a": { "$gt": 5 } }, doc! { "b": 1 }, doc! { "a": 1, "b": 1 }));
    assert!(!sorted(doc! { "a": { "$in": [5, 6] } }, doc! { "b": 1 }, doc! { "a": 1, "b": 1 }));
    // The collection itself is in the order of _id.
    assert!(sorted(doc! { "x": 1 }, doc! { "_id": -1 }, doc! { "y": 1 }));
    let sort = sort(doc! { "a": -1 });
    let backward = plans_sorted(doc! {}, &sort, vec![index(doc! { "a": 1 })]);
    let bounds = backward[0].explain().get_document("inputStage").unwrap().get_document("indexBounds").unwrap().clone();
    assert_eq!(bounds, doc! { "a": ["[MaxKey, MinKey]"] });
}

fn plans_sorted(filter: Document, sort: &SortPattern, indexes: Vec<IndexSpec>) -> Vec<Plan> {
    let matcher = parse(&filter);
    let query = Query { sort: Some(sort), ..Query::new(&matcher) };
    plan(&query, &indexes.into_iter().map(Arc::new).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_query_is_covered_by_keys_without_arrays() {
    let spec = raw(&doc! { "a": 1, "b": 1, "_id": 0 });
    let covered = |filter: Document, index: IndexSpec| {
        let matcher = parse(&filter);
        let projection = Projected { spec: &spec, fields: Some(vec!["a".into(), "b".into()]), is_simple: true };
        let query = Query { projection: Some(projection), ..Query::new(&matcher) };
        plan(&query, &[Arc::new(index)]).unwrap()[0].explain().get_str("stage").unwrap().to_string()
    };
    assert_eq!(covered(doc! { "a": 1 }, index(doc! { "a": 1, "b": 1 })), "PROJECTION_COVERED");
    assert_eq!(covered(doc! { "a": 1, "b": { "$mod": [2, 0] } }, index(doc! { "a": 1, "b": 1 })), "PROJECTION_COVERED");
    assert_eq!(covered(doc! { "a": 1, "c": 1 }, index(doc! { "a": 1, "b": 1 })), "PROJECTION_SIMPLE");
    assert_eq!(covered(doc! { "a": 1 }, index(doc! { "a": 1 })), "PROJECTION_SIMPLE");
    let multikey = IndexSpec { multikey: 2, ..index(doc! { "a": 1, "b": 1 }) };
    assert_eq!(covered(doc! { "a": 1 }, multikey), "PROJECTION_SIMPLE");
}

#[test]
fn a_count_reads_keys_alone() {
    let count = |filter: Document| {
        let plans = plans(filter, vec![index(doc! { "a": 1 })], |query| query.is_count = true);
        let explained = plans[0].explain();
        explained.get_document("inputStage").unwrap().get_str("stage").unwrap().to_string()
    };
    assert_eq!(count(doc! { "a": { "$gt": 1 } }), "COUNT_SCAN");
    assert_eq!(count(doc! { "a": 1, "b": 1 }), "FETCH");
    assert_eq!(count(doc! {}), "RECORD_STORE_FAST_COUNT");
}

#[test]
fn a_disjunction_needs_an_index_for_each_branch() {
    let indexes = || vec![index(doc! { "a": 1 }), index(doc! { "b": 1 })];
    let explained = winning(doc! { "$or": [{ "a": 1 }, { "b": 2 }] }, indexes());
    assert_eq!(explained.get_str("stage").unwrap(), "FETCH");
    let union = explained.get_document("inputStage").unwrap();
    assert_eq!(union.get_str("stage").unwrap(), "OR");
    assert_eq!(union.get_array("inputStages").unwrap().len(), 2);
    let explained = winning(doc! { "$or": [{ "a": 1, "c": 1 }, { "b": 2 }] }, indexes());
    assert_eq!(explained.get_str("stage").unwrap(), "OR");
    assert_eq!(winning(doc! { "$or": [{ "a": 1 }, { "c": 2 }] }, indexes()).get_str("stage").unwrap(), "COLLSCAN");
    let summary = plans(doc! { "$or": [{ "a": 1 }, { "_id": 2 }], "c": 3 }, indexes(), |_| {})[0].summary();
    assert_eq!(summary, "IXSCAN { a: 1 }, IXSCAN { _id: 1 }");
}

#[test]
fn what_cannot_match_reads_nothing() {
    assert_eq!(winning(doc! { "$alwaysFalse": 1 }, vec![]), doc! { "stage": "EOF" });
    let contradiction = doc! { "a": { "$gt": 5, "$lt": 3 } };
    assert_eq!(winning(contradiction.clone(), vec![index(doc! { "a": 1 })]), doc! { "stage": "EOF" });
    assert_eq!(winning(contradiction, vec![]).get_str("stage").unwrap(), "COLLSCAN");
    assert_eq!(winning(doc! { "_id": { "$in": [] } }, vec![]), doc! { "stage": "EOF" });
}

#[test]
fn a_hint_chooses_the_index() {
    let indexes = || vec![index(doc! { "a": 1 }), index(doc! { "b": -1 })];
    let with = |hint: Bson| {
        let holder = raw(&doc! { "hint": hint });
        let hint = Hint::parse(holder.get("hint").unwrap().unwrap()).unwrap();
        let matcher = parse(&doc! { "a": 1 });
        let query = Query { hint: hint.as_ref(), ..Query::new(&matcher) };
        plan(&query, &indexes().into_iter().map(Arc::new).collect::<Vec<_>>())
    };
    assert_eq!(with(bson!("b_-1")).unwrap()[0].index_names(), ["b_-1"]);
    assert_eq!(with(bson!({ "b": -1.0 })).unwrap()[0].index_names(), ["b_-1"]);
    assert_eq!(with(bson!({ "_id": 1 })).unwrap()[0].index_names(), ["_id_"]);
    assert_eq!(with(bson!({ "$natural": -1 })).unwrap()[0].explain().get_str("direction").unwrap(), "backward");
    assert_eq!(with(bson!({})).unwrap()[0].index_names(), ["a_1"]);
    for unknown in [bson!("c_1"), bson!({ "b": 1 })] {
        let error = with(unknown).unwrap_err();
        assert_eq!(error.code.0, 2);
        assert!(error.message.contains("hint provided does not correspond to an existing index"), "{error}");
    }
}

#[test]
fn a_hinted_pattern_that_several_indexes_have_is_refused_and_their_names_are_not() {
    let sparse = IndexSpec { name: "sparse".into(), sparse: true, ..index(doc! { "a": 1 }) };
    let indexes = [Arc::new(index(doc! { "a": 1 })), Arc::new(sparse)];
    let matcher = parse(&doc! { "a": { "$gt": 1 } });
    let with = |hint: Hint| plan(&Query { hint: Some(&hint), ..Query::new(&matcher) }, &indexes);
    assert_eq!(with(Hint::Key(doc! { "a": 1 })).unwrap_err().code, ErrorCode::IndexNotFound);
    assert_eq!(with(Hint::Name("sparse".into())).unwrap()[0].index_names(), ["sparse"]);
}

#[test]
fn min_and_max_cut_the_hinted_index() {
    let hint = Hint::Name("a_1_b_-1".into());
    let with = |hint: Option<&Hint>, min: Option<Document>, max: Option<Document>| {
        let (min, max) = (min.map(|min| raw(&min)), max.map(|max| raw(&max)));
        let matcher = Matcher::always();
        let query = Query { hint, min: min.as_deref(), max: max.as_deref(), ..Query::new(&matcher) };
        plan(&query, &[Arc::new(index(doc! { "a": 1, "b": -1 }))]).map(|plans| plans[0].clone()).map_err(|e| e.code.0)
    };
    let Ok(Plan::Fetch { input }) = with(Some(&hint), Some(doc! { "a": 1, "b": 9 }), Some(doc! { "a": 3, "b": 2 }))
    else {
        panic!("a scan")
    };
    let Plan::IndexScan(scan) = *input else { panic!("a scan") };
    assert!(scan.ranges().len() == 1 && scan.ranges()[0].start < scan.ranges()[0].end);
    assert_eq!(with(None, Some(doc! { "a": 1, "b": 1 }), None).unwrap_err(), 51173);
    assert_eq!(with(Some(&hint), Some(doc! { "a": 1 }), None).unwrap_err(), 51174);
    assert_eq!(with(Some(&hint), Some(doc! { "b": 1, "a": 1 }), None).unwrap_err(), 51174);
    assert_eq!(with(Some(&hint), Some(doc! { "a": 3, "b": 1 }), Some(doc! { "a": 3, "b": 1 })).unwrap_err(), 51175);
    assert_eq!(with(Some(&hint), Some(doc! { "a": 1, "b": 1 }), Some(doc! { "a": 3 })).unwrap_err(), 51176);
}

#[test]
fn many_values_in_many_fields_do_not_multiply_without_end() {
    let many: Vec<i32> = (0..200).collect();
    let filter = doc! { "a": { "$in": &many }, "b": { "$in": &many }, "c": { "$in": &many } };
    let all = plans(filter, vec![index(doc! { "a": 1, "b": 1, "c": 1 })], |_| {});
    let Plan::Fetch { input } = &all[0] else { panic!("{}", all[0].explain()) };
    let Plan::IndexScan(scan) = &**input else { panic!("a scan") };
    assert!(scan.ranges().len() <= 4096 && scan.bounds.needs_check());
}

#[test]
fn queries_of_one_shape_share_their_key() {
    let shape = |filter: Document| Query::new(&parse(&filter)).shape(&[]);
    assert_eq!(shape(doc! { "a": 1, "b": { "$gt": 2 } }), shape(doc! { "a": "x", "b": { "$gt": 9.5 } }));
    assert_ne!(shape(doc! { "a": 1 }), shape(doc! { "a": null }));
    assert_ne!(shape(doc! { "a": 1 }), shape(doc! { "b": 1 }));
    assert_ne!(shape(doc! { "a": { "$gt": 1 } }), shape(doc! { "a": { "$lt": 1 } }));
    assert_ne!(shape(doc! { "a": { "$regex": "^x" } }), shape(doc! { "a": { "$regex": "x" } }));
    assert_eq!(shape_hash(&shape(doc! { "a": 1 })).len(), 8);
}
