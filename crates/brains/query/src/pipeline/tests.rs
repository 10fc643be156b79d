//! What each stage answers, from MongoDB's documented examples; what parsing refuses; and that optimising changes no
//! result.

use super::*;
use crate::Context;
use bson::{Bson, DateTime, Document, doc};

fn context() -> Context {
    Context::new(DateTime::from_millis(1_700_000_000_000), 7)
}

fn raw(doc: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc).expect("a document encodes")
}

fn parse_in(stages: &[Document], ctx: &Context) -> Result<Pipeline> {
    let stages: Vec<RawDocumentBuf> = stages.iter().map(raw).collect();
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    Pipeline::parse(&stages, ctx)
}

fn parse(stages: &[Document]) -> Result<Pipeline> {
    parse_in(stages, &context())
}

fn run_parsed(pipeline: &Pipeline, docs: &[Document]) -> Result<Vec<Document>> {
    let out = pipeline.run_in_memory(docs.iter().map(raw))?;
    Ok(out.iter().map(|doc| Document::try_from(doc).expect("a document decodes")).collect())
}

fn run(stages: &[Document], docs: &[Document]) -> Vec<Document> {
    let pipeline = parse(stages).expect("the pipeline parses");
    let plain = run_parsed(&pipeline, docs).expect("the pipeline runs");
    let optimized = pipeline.optimize().expect("the pipeline optimises");
    assert_eq!(run_parsed(&optimized, docs).expect("the optimised pipeline runs"), plain, "optimised: {stages:?}");
    plain
}

fn check(stages: &[Document], docs: &[Document], expected: &[Document]) {
    assert_eq!(run(stages, docs), expected, "{stages:?}");
}

fn names(pipeline: &Pipeline) -> Vec<&'static str> {
    pipeline.stages().iter().map(StageSpec::name).collect()
}

fn articles() -> Vec<Document> {
    vec![
        doc! { "_id": 1, "author": "dave", "score": 80, "views": 100 },
        doc! { "_id": 2, "author": "dave", "score": 85, "views": 521 },
        doc! { "_id": 3, "author": "ahn", "score": 60, "views": 1000 },
        doc! { "_id": 4, "author": "li", "score": 55, "views": 5000 },
        doc! { "_id": 5, "author": "annT", "score": 60, "views": 50 },
        doc! { "_id": 6, "author": "li", "score": 94, "views": 999 },
        doc! { "_id": 7, "author": "ty", "score": 95, "views": 1000 },
    ]
}

#[test]
fn match_keeps_what_the_filter_matches() {
    let docs = articles();
    check(&[doc! { "$match": { "author": "dave" } }], &docs, &docs[..2]);
    let popular = doc! { "$match": { "$or": [{ "score": { "$gt": 70, "$lt": 90 } }, { "views": { "$gte": 1000 } }] } };
    let count = doc! { "$group": { "_id": null, "count": { "$sum": 1 } } };
    check(&[popular, count], &docs, &[doc! { "_id": null, "count": 5 }]);
}

#[test]
fn sort_orders_and_is_stable() {
    let docs = articles();
    let ids = |stages: &[Document]| -> Vec<i32> {
        run(stages, &docs).iter().map(|doc| doc.get_i32("_id").expect("an int")).collect()
    };
    assert_eq!(ids(&[doc! { "$sort": { "score": 1 } }]), [4, 3, 5, 1, 2, 6, 7]);
    assert_eq!(ids(&[doc! { "$sort": { "score": -1, "views": 1 } }]), [7, 6, 2, 1, 5, 3, 4]);
    assert_eq!(ids(&[doc! { "$sort": { "score": 1 } }, doc! { "$limit": 3 }]), [4, 3, 5]);
    assert_eq!(ids(&[doc! { "$sort": { "score": 1 } }, doc! { "$skip": 2 }, doc! { "$limit": 2 }]), [5, 1]);
}

#[test]
fn skip_and_limit_make_a_window() {
    let docs = articles();
    check(&[doc! { "$skip": 5 }], &docs, &docs[5..]);
    check(&[doc! { "$limit": 2 }], &docs, &docs[..2]);
    check(&[doc! { "$skip": 2 }, doc! { "$limit": 2 }, doc! { "$skip": 1 }], &docs, &docs[3..4]);
    check(&[doc! { "$limit": 3 }, doc! { "$skip": 5 }], &docs, &[]);
}

#[test]
fn count_emits_one_document_or_none() {
    let over_80 = [doc! { "$match": { "score": { "$gt": 80 } } }, doc! { "$count": "passing" }];
    check(&over_80, &articles(), &[doc! { "passing": 3 }]);
    check(&over_80, &[], &[]);
}

#[test]
fn unwind_emits_an_element_at_a_time() {
    let unwind = |argument: Bson| vec![doc! { "$unwind": argument }];
    let item = doc! { "_id": 1, "item": "ABC1", "sizes": ["S", "M"], "z": 1 };
    let expected = [
        doc! { "_id": 1, "item": "ABC1", "sizes": "S", "z": 1 },
        doc! { "_id": 1, "item": "ABC1", "sizes": "M", "z": 1 },
    ];
    check(&unwind("$sizes".into()), std::slice::from_ref(&item), &expected);

    let docs = [
        doc! { "_id": 1, "a": [10, 20] },
        doc! { "_id": 2, "a": [] },
        doc! { "_id": 3, "a": "x" },
        doc! { "_id": 4 },
        doc! { "_id": 5, "a": null },
    ];
    let whole = doc! { "path": "$a" };
    check(
        &unwind(whole.into()),
        &docs,
        &[doc! { "_id": 1, "a": 10 }, doc! { "_id": 1, "a": 20 }, doc! { "_id": 3, "a": "x" }],
    );
    let preserving = doc! { "path": "$a", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "i" };
    check(
        &unwind(preserving.into()),
        &docs,
        &[
            doc! { "_id": 1, "a": 10, "i": 0_i64 },
            doc! { "_id": 1, "a": 20, "i": 1_i64 },
            doc! { "_id": 2, "i": null },
            doc! { "_id": 3, "a": "x", "i": null },
            doc! { "_id": 4, "i": null },
            doc! { "_id": 5, "a": null, "i": null },
        ],
    );
    let nested = [doc! { "_id": 1, "s": { "t": [1, 2], "u": 3 } }];
    check(
        &unwind("$s.t".into()),
        &nested,
        &[doc! { "_id": 1, "s": { "t": 1, "u": 3 } }, doc! { "_id": 1, "s": { "t": 2, "u": 3 } }],
    );
}

#[test]
fn what_is_left_of_a_large_document_holds_no_more_than_it_says() {
    let large = doc! { "_id": 1, "a": vec![Bson::Int32(7); 10_000], "pad": "x".repeat(50_000) };
    let project = doc! { "$project": { "a": 1 } };
    for stages in [vec![doc! { "$unset": "pad" }, doc! { "$unwind": "$a" }], vec![project, doc! { "$unset": "a" }]] {
        let out = parse(&stages).expect("parses").run_in_memory([raw(&large)]).expect("runs");
        let held: usize = out.into_iter().map(|document| document.into_bytes().capacity()).sum();
        assert!(held < 10_000 * 512, "{stages:?} held {held} bytes");
    }
    let unwound = parse(&[doc! { "$unwind": "$a" }]).expect("parses");
    assert_eq!(unwound.run_in_memory([raw(&doc! { "_id": 1, "a": [1, 2, 3] })]).expect("runs").len(), 3);
}

fn sales() -> Vec<Document> {
    vec![
        doc! { "_id": 1, "item": "abc", "price": 10, "quantity": 2 },
        doc! { "_id": 2, "item": "jkl", "price": 20, "quantity": 1 },
        doc! { "_id": 3, "item": "xyz", "price": 5, "quantity": 10 },
        doc! { "_id": 4, "item": "xyz", "price": 5, "quantity": 20 },
        doc! { "_id": 5, "item": "abc", "price": 10, "quantity": 10 },
        doc! { "_id": 6, "item": "def", "price": 7.5, "quantity": 5 },
    ]
}

#[test]
fn group_accumulates_by_key() {
    let by_item = [
        doc! { "$group": { "_id": "$item", "total": { "$sum": { "$multiply": ["$price", "$quantity"] } } } },
        doc! { "$match": { "total": { "$gte": 100 } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    check(&by_item, &sales(), &[doc! { "_id": "abc", "total": 120 }, doc! { "_id": "xyz", "total": 150 }]);
    let whole = [doc! { "$group": { "_id": null, "n": { "$sum": 1 }, "most": { "$max": "$quantity" } } }];
    check(&whole, &sales(), &[doc! { "_id": null, "n": 6, "most": 20 }]);
    check(&whole, &[], &[]);
    let compound = [doc! { "$group": { "_id": { "i": "$item", "p": "$price" }, "ids": { "$push": "$_id" } } }];
    check(
        &compound,
        &sales()[..3],
        &[
            doc! { "_id": { "i": "abc", "p": 10 }, "ids": [1] },
            doc! { "_id": { "i": "jkl", "p": 20 }, "ids": [2] },
            doc! { "_id": { "i": "xyz", "p": 5 }, "ids": [3] },
        ],
    );
}

#[test]
fn group_keys_are_equal_when_they_compare_equal() {
    let docs = [doc! { "a": 1 }, doc! { "a": 1.0 }, doc! { "a": 1_i64 }, doc! {}, doc! { "a": null }];
    check(
        &[doc! { "$group": { "_id": "$a", "n": { "$sum": 1 } } }],
        &docs,
        &[doc! { "_id": 1, "n": 3 }, doc! { "_id": null, "n": 2 }],
    );
}

#[test]
fn group_fails_beyond_its_memory_where_it_must_not_spill() {
    let mut ctx = context();
    ctx.group_memory_bytes_max = 10_000;
    let pipeline = parse_in(&[doc! { "$group": { "_id": "$a", "all": { "$push": "$b" } } }], &ctx).expect("it parses");
    let docs: Vec<Document> = (0..100).map(|a| doc! { "a": a, "b": "x".repeat(100) }).collect();
    let error = run_parsed(&pipeline, &docs).expect_err("too much is held");
    assert_eq!(error.code.0, 292);
}

#[test]
fn sort_by_count_counts_values() {
    let docs: Vec<Document> = ["a", "b", "a", "c", "a", "b"].iter().map(|t| doc! { "t": *t }).collect();
    check(
        &[doc! { "$sortByCount": "$t" }],
        &docs,
        &[doc! { "_id": "a", "count": 3 }, doc! { "_id": "b", "count": 2 }, doc! { "_id": "c", "count": 1 }],
    );
}

#[test]
fn bucket_groups_by_interval() {
    let docs: Vec<Document> = [12.0, 199.9, 200.0, 280.0, 399.0, 483.0].iter().map(|p| doc! { "price": *p }).collect();
    let argument = doc! { "groupBy": "$price", "boundaries": [0, 200, 400], "default": "Other" };
    check(
        &[doc! { "$bucket": argument }],
        &docs,
        &[doc! { "_id": 0, "count": 2 }, doc! { "_id": 200, "count": 3 }, doc! { "_id": "Other", "count": 1 }],
    );
    let strict = doc! { "groupBy": "$price", "boundaries": [0, 200, 400], "output": { "top": { "$max": "$price" } } };
    let pipeline = parse(&[doc! { "$bucket": strict }]).expect("it parses");
    let error = run_parsed(&pipeline, &docs).expect_err("483 is in no bucket");
    assert_eq!(error.code.0, 40066);
}

#[test]
fn bucket_auto_balances_its_buckets() {
    let docs: Vec<Document> = (0..100).map(|v| doc! { "_id": v, "v": v }).collect();
    let ranges = |argument: Document| -> Vec<(f64, f64, i32)> {
        let out = run(&[doc! { "$bucketAuto": argument }], &docs);
        let number = |value: &Bson| match value {
            Bson::Int32(n) => f64::from(*n),
            Bson::Double(n) => *n,
            other => panic!("no number: {other}"),
        };
        out.iter()
            .map(|doc| {
                let id = doc.get_document("_id").expect("an interval");
                (number(&id["min"]), number(&id["max"]), doc.get_i32("count").expect("a count"))
            })
            .collect()
    };
    let quarters = [(0.0, 25.0, 25), (25.0, 50.0, 25), (50.0, 75.0, 25), (75.0, 99.0, 25)];
    assert_eq!(ranges(doc! { "groupBy": "$v", "buckets": 4 }), quarters);
    // The manual's example of granularities, for the values 0 to 99 in five buckets.
    let e24 = [(0.0, 20.0, 20), (20.0, 43.0, 23), (43.0, 68.0, 25), (68.0, 91.0, 23), (91.0, 100.0, 9)];
    assert_eq!(ranges(doc! { "groupBy": "$v", "buckets": 5, "granularity": "E24" }), e24);
    let powers = [(0.0, 32.0, 32), (32.0, 64.0, 32), (64.0, 128.0, 36)];
    assert_eq!(ranges(doc! { "groupBy": "$v", "buckets": 5, "granularity": "POWERSOF2" }), powers);
}

#[test]
fn facet_runs_pipelines_side_by_side() {
    let docs = articles();
    let facet = doc! {
        "$facet": {
            "best": [{ "$sort": { "score": -1 } }, { "$limit": 1 }, { "$project": { "score": 1 } }],
            "first": [{ "$limit": 2 }, { "$count": "n" }],
            "none": [{ "$match": { "author": "nobody" } }],
            "by": [{ "$match": { "author": "li" } }, { "$project": { "_id": 1 } }],
        }
    };
    let expected = doc! {
        "best": [{ "_id": 7, "score": 95 }],
        "first": [{ "n": 2 }],
        "none": [],
        "by": [{ "_id": 4 }, { "_id": 6 }],
    };
    check(std::slice::from_ref(&facet), &docs, &[expected]);
    let empty = doc! { "best": [], "first": [], "none": [], "by": [] };
    check(&[facet], &[], &[empty]);
}

#[test]
fn facet_fails_beyond_its_memory() {
    let mut ctx = context();
    ctx.memory_bytes_max = 1_000;
    let pipeline = parse_in(&[doc! { "$facet": { "all": [] } }], &ctx).expect("it parses");
    let docs: Vec<Document> = (0..100).map(|a| doc! { "a": a, "b": "x".repeat(100) }).collect();
    assert_eq!(run_parsed(&pipeline, &docs).expect_err("too much is held").code.0, 4031700);
    // Held once as results and once as the document that they become.
    assert_eq!(run_parsed(&pipeline, &docs[..4]).expect_err("too much at the end").code.0, 4031700);
    assert_eq!(run_parsed(&pipeline, &docs[..3]).expect("enough for three").len(), 1);
}

#[test]
fn replace_root_promotes_a_document() {
    let docs = [doc! { "_id": 1, "name": { "first": "Gary" } }, doc! { "_id": 2, "name": { "first": "Lo" } }];
    let expected = [doc! { "first": "Gary" }, doc! { "first": "Lo" }];
    check(&[doc! { "$replaceRoot": { "newRoot": "$name" } }], &docs, &expected);
    check(&[doc! { "$replaceWith": "$name" }], &docs, &expected);
    let pipeline = parse(&[doc! { "$replaceWith": "$_id" }]).expect("it parses");
    let error = run_parsed(&pipeline, &docs).expect_err("an int is no document");
    assert_eq!(error.code.0, 40228);
    assert!(
        error.message.contains(
            "resulting value was: 1. Type of resulting value: 'int'. Input document: {_id: 1, name: {first: \"Gary\"}}"
        ),
        "{error}"
    );
}

#[test]
fn redact_descends_keeps_and_prunes() {
    let report = doc! {
        "_id": 1,
        "tags": ["G", "STLW"],
        "subsections": [
            { "subtitle": "One", "tags": ["SI", "G"], "content": "shown" },
            { "subtitle": "Two", "tags": ["STLW"], "content": "shown" },
            { "subtitle": "Three", "tags": ["TK"], "content": { "tags": ["G"] } },
        ],
    };
    let access = doc! {
        "$redact": {
            "$cond": {
                "if": { "$gt": [{ "$size": { "$setIntersection": ["$tags", ["STLW", "G"]] } }, 0] },
                "then": "$$DESCEND",
                "else": "$$PRUNE",
            }
        }
    };
    let expected = doc! {
        "_id": 1,
        "tags": ["G", "STLW"],
        "subsections": [
            { "subtitle": "One", "tags": ["SI", "G"], "content": "shown" },
            { "subtitle": "Two", "tags": ["STLW"], "content": "shown" },
        ],
    };
    check(&[access], &[report], &[expected]);
    let keep = doc! { "$redact": { "$cond": [{ "$eq": ["$level", 5] }, "$$PRUNE", "$$KEEP"] } };
    check(
        &[keep],
        &[doc! { "level": 5 }, doc! { "level": 1, "a": { "level": 5 } }],
        &[doc! { "level": 1, "a": { "level": 5 } }],
    );
    let wrong = parse(&[doc! { "$redact": "$level" }]).expect("it parses");
    assert_eq!(run_parsed(&wrong, &[doc! { "level": 5 }]).expect_err("5 is no verdict").code.0, 17053);
}

#[test]
fn sample_draws_by_seed_without_repeats() {
    let docs: Vec<Document> = (0..50).map(|i| doc! { "_id": i }).collect();
    let ids = |out: Vec<Document>| -> Vec<i32> { out.iter().map(|d| d.get_i32("_id").expect("an int")).collect() };
    let drawn = ids(run(&[doc! { "$sample": { "size": 10 } }], &docs));
    let distinct: std::collections::BTreeSet<i32> = drawn.iter().copied().collect();
    assert_eq!((drawn.len(), distinct.len()), (10, 10));
    assert_eq!(ids(run(&[doc! { "$sample": { "size": 10 } }], &docs)), drawn);
    let other = parse_in(&[doc! { "$sample": { "size": 10 } }], &Context::new(DateTime::from_millis(0), 8));
    assert_ne!(ids(run_parsed(&other.expect("it parses"), &docs).expect("it runs")), drawn);
    assert_eq!(run(&[doc! { "$sample": { "size": 100 } }], &docs).len(), 50);
}

#[test]
fn documents_brings_its_own_input() {
    let stages = [doc! { "$documents": [{ "x": 10 }, { "x": 2 }] }, doc! { "$sort": { "x": 1 } }];
    check(&stages, &[doc! { "ignored": 1 }], &[doc! { "x": 2 }, doc! { "x": 10 }]);
}

#[test]
fn reshaping_stages_project_add_and_unset() {
    let docs = [doc! { "_id": 1, "a": 2, "b": { "c": 3, "d": 4 } }];
    check(&[doc! { "$project": { "b.c": 1, "_id": 0 } }], &docs, &[doc! { "b": { "c": 3 } }]);
    check(
        &[doc! { "$set": { "s": { "$add": ["$a", "$b.c"] } } }, doc! { "$unset": ["a", "b"] }],
        &docs,
        &[doc! { "_id": 1, "s": 5 }],
    );
    check(
        &[doc! { "$addFields": { "b.e": "$a" } }, doc! { "$unset": "a" }],
        &docs,
        &[doc! { "_id": 1, "b": { "c": 3, "d": 4, "e": 2 } }],
    );
}

#[test]
fn bad_pipelines_are_refused_with_mongodbs_codes() {
    let cases: &[(i32, &[Document])] = &[
        (40323, &[doc! {}]),
        (40323, &[doc! { "$limit": 1, "$skip": 1 }]),
        (40324, &[doc! { "$foo": 1 }]),
        (238, &[doc! { "$setWindowFields": {} }]),
        (238, &[doc! { "$geoNear": {} }]),
        (238, &[doc! { "$graphLookup": {} }]),
        (40601, &[doc! { "$out": "a" }, doc! { "$limit": 1 }]),
        (40601, &[doc! { "$merge": "a" }, doc! { "$limit": 1 }]),
        (40602, &[doc! { "$limit": 1 }, doc! { "$documents": [] }]),
        (40602, &[doc! { "$limit": 1 }, doc! { "$collStats": {} }]),
        (40600, &[doc! { "$facet": { "a": [{ "$out": "b" }] } }]),
        (40600, &[doc! { "$facet": { "a": [{ "$facet": { "b": [] } }] } }]),
        (40600, &[doc! { "$facet": { "a": [{ "$collStats": {} }] } }]),
        (51047, &[doc! { "$lookup": { "from": "a", "as": "b", "pipeline": [{ "$out": "c" }] } }]),
        (31441, &[doc! { "$unionWith": { "coll": "a", "pipeline": [{ "$out": "c" }] } }]),
        (40169, &[doc! { "$facet": {} }]),
        (40170, &[doc! { "$facet": { "a": 1 } }]),
        (40171, &[doc! { "$facet": { "a": [1] } }]),
        (15959, &[doc! { "$match": 1 }]),
        (15969, &[doc! { "$project": 1 }]),
        (40272, &[doc! { "$addFields": 1 }]),
        (31002, &[doc! { "$unset": 1 }]),
        (31119, &[doc! { "$unset": [] }]),
        (31120, &[doc! { "$unset": [1] }]),
        (15973, &[doc! { "$sort": 1 }]),
        (15974, &[doc! { "$sort": { "a": "x" } }]),
        (15975, &[doc! { "$sort": { "a": 2 } }]),
        (15976, &[doc! { "$sort": {} }]),
        (5107201, &[doc! { "$limit": "a" }]),
        (5107201, &[doc! { "$limit": -1 }]),
        (5107201, &[doc! { "$limit": 1.5 }]),
        (15958, &[doc! { "$limit": 0 }]),
        (5107200, &[doc! { "$skip": -1 }]),
        (40156, &[doc! { "$count": 1 }]),
        (40157, &[doc! { "$count": "" }]),
        (40158, &[doc! { "$count": "$a" }]),
        (40160, &[doc! { "$count": "a.b" }]),
        (15981, &[doc! { "$unwind": 1 }]),
        (28812, &[doc! { "$unwind": {} }]),
        (28808, &[doc! { "$unwind": { "path": 1 } }]),
        (28818, &[doc! { "$unwind": "a" }]),
        (28811, &[doc! { "$unwind": { "path": "$a", "x": 1 } }]),
        (28809, &[doc! { "$unwind": { "path": "$a", "preserveNullAndEmptyArrays": 1 } }]),
        (28810, &[doc! { "$unwind": { "path": "$a", "includeArrayIndex": "" } }]),
        (28822, &[doc! { "$unwind": { "path": "$a", "includeArrayIndex": "$b" } }]),
        (15947, &[doc! { "$group": 1 }]),
        (15955, &[doc! { "$group": { "n": { "$sum": 1 } } }]),
        (40234, &[doc! { "$group": { "_id": 1, "n": 1 } }]),
        (40235, &[doc! { "$group": { "_id": 1, "n.m": { "$sum": 1 } } }]),
        (40236, &[doc! { "$group": { "_id": 1, "$n": { "$sum": 1 } } }]),
        (40238, &[doc! { "$group": { "_id": 1, "n": { "$sum": 1, "$max": 1 } } }]),
        (15952, &[doc! { "$group": { "_id": 1, "n": { "$foo": 1 } } }]),
        (40147, &[doc! { "$sortByCount": { "a": 1 } }]),
        (40148, &[doc! { "$sortByCount": "a" }]),
        (40149, &[doc! { "$sortByCount": 1 }]),
        (40198, &[doc! { "$bucket": {} }]),
        (40192, &[doc! { "$bucket": { "groupBy": "$a", "boundaries": [1] } }]),
        (40193, &[doc! { "$bucket": { "groupBy": "$a", "boundaries": [1, "a"] } }]),
        (40194, &[doc! { "$bucket": { "groupBy": "$a", "boundaries": [2, 1] } }]),
        (40199, &[doc! { "$bucket": { "groupBy": "$a", "boundaries": [1, 3], "default": 2 } }]),
        (40246, &[doc! { "$bucketAuto": {} }]),
        (40243, &[doc! { "$bucketAuto": { "groupBy": "$a", "buckets": 0 } }]),
        (40257, &[doc! { "$bucketAuto": { "groupBy": "$a", "buckets": 1, "granularity": "R7" } }]),
        (40229, &[doc! { "$replaceRoot": 1 }]),
        (40231, &[doc! { "$replaceRoot": {} }]),
        (28745, &[doc! { "$sample": 1 }]),
        (28749, &[doc! { "$sample": {} }]),
        (28747, &[doc! { "$sample": { "size": -1 } }]),
        (28747, &[doc! { "$sample": { "size": 0 } }]),
        (28803, &[doc! { "$indexStats": 1 }]),
        (40166, &[doc! { "$collStats": 1 }]),
        (40415, &[doc! { "$collStats": { "x": {} } }]),
        (9, &[doc! { "$currentOp": { "x": true } }]),
        (9, &[doc! { "$lookup": { "from": "a" } }]),
        (9, &[doc! { "$lookup": { "from": "a", "as": "b" } }]),
        (9, &[doc! { "$lookup": { "from": "a", "as": "b", "localField": "c" } }]),
        (9, &[doc! { "$lookup": { "as": "b", "pipeline": [] } }]),
        (9, &[doc! { "$unionWith": 1 }]),
        (16990, &[doc! { "$out": 1 }]),
        (17385, &[doc! { "$out": "system.users" }]),
        (40414, &[doc! { "$out": { "db": "a" } }]),
        (51181, &[doc! { "$merge": { "into": "a", "whenMatched": "fail", "whenNotMatched": "discard" } }]),
        (51199, &[doc! { "$merge": { "into": "a", "let": { "x": 1 } } }]),
        (51273, &[doc! { "$merge": { "into": "a", "let": { "new": 1 }, "whenMatched": [] } }]),
        (51187, &[doc! { "$merge": { "into": "a", "on": [] } }]),
        (2, &[doc! { "$merge": { "into": "a", "whenMatched": "foo" } }]),
    ];
    for (code, stages) in cases {
        match parse(stages) {
            Ok(_) => panic!("{stages:?} parsed"),
            Err(error) => assert_eq!(error.code.0, *code, "{stages:?}: {error}"),
        }
    }
}

#[test]
fn pipelines_nest_only_so_deep() {
    let mut inner = doc! { "$unionWith": "a" };
    for _ in 0..25 {
        inner = doc! { "$unionWith": { "coll": "a", "pipeline": [inner] } };
    }
    assert_eq!(parse(&[inner]).expect_err("too deep").code.0, 224);
    let long = vec![doc! { "$limit": 1 }; 1001];
    assert_eq!(parse(&long).expect_err("too long").code.0, 7749501);
}

#[test]
fn stages_that_need_storage_are_parsed_but_not_run_here() {
    let stages = [doc! { "$lookup": { "from": "b", "localField": "x", "foreignField": "y", "as": "z" } }];
    let pipeline = parse(&stages).expect("it parses");
    assert_eq!(run_parsed(&pipeline, &articles()).expect_err("no storage").code.0, 20);
}

#[test]
fn lookup_finds_partners_by_equality() {
    let pipeline = parse(&[doc! { "$lookup": { "from": "b", "localField": "x.k", "foreignField": "y", "as": "z" } }]);
    let pipeline = pipeline.expect("it parses");
    let StageSpec::Lookup(lookup) = &pipeline.stages()[0] else { panic!("a lookup") };
    let filter = |doc: Document| {
        let filter = lookup.foreign_filter(&raw(&doc)).expect("a document").expect("an equality");
        Document::try_from(&filter).expect("a document")
    };
    assert_eq!(filter(doc! { "x": { "k": 1 } }), doc! { "y": { "$eq": 1 } });
    assert_eq!(filter(doc! {}), doc! { "y": { "$eq": null } });
    assert_eq!(filter(doc! { "x": { "k": [1, 2] } }), doc! { "y": { "$in": [1, 2] } });
    assert_eq!(filter(doc! { "x": [{ "k": 1 }, { "k": [2, 3] }, 4] }), doc! { "y": { "$in": [1, 2, 3] } });
    let mut partners = bson::raw::RawArrayBuf::new();
    partners.push(1);
    let joined = lookup.attach(&raw(&doc! { "_id": 1, "z": 0, "q": 2 }), &partners).expect("a document");
    assert_eq!(Document::try_from(&joined).expect("a document"), doc! { "_id": 1, "z": [1], "q": 2 });
}

#[test]
fn lookup_binds_its_variables_for_each_document() {
    let stage = doc! {
        "$lookup": {
            "from": "b",
            "let": { "least": "$min" },
            "pipeline": [{ "$match": { "$expr": { "$gte": ["$v", "$$least"] } } }],
            "as": "z",
        }
    };
    let pipeline = parse(&[stage]).expect("it parses");
    let StageSpec::Lookup(lookup) = &pipeline.stages()[0] else { panic!("a lookup") };
    let partners = [doc! { "v": 1 }, doc! { "v": 5 }];
    for (min, expected) in [(0, 2), (3, 1), (9, 0)] {
        let bound = lookup.bind(&raw(&doc! { "min": min }), &context()).expect("it binds");
        let inner = lookup.pipeline(&bound).expect("it parses").expect("a pipeline");
        assert_eq!(run_parsed(&inner, &partners).expect("it runs").len(), expected, "{min}");
    }
}

#[test]
fn filters_move_to_the_front_and_limits_into_the_sort() {
    let optimized = |stages: &[Document]| parse(stages).expect("it parses").optimize().expect("it optimises");
    let moved = optimized(&[
        doc! { "$addFields": { "b": "$a" } },
        doc! { "$sort": { "a": 1 } },
        doc! { "$unwind": "$c" },
        doc! { "$match": { "a": 1, "b": 2, "c": 3 } },
    ]);
    assert_eq!(names(&moved), ["$match", "$addFields", "$match", "$sort", "$unwind", "$match"]);
    let merged = optimized(&[doc! { "$match": { "a": 1 } }, doc! { "$match": { "a": 2 } }]);
    assert_eq!(names(&merged), ["$match"]);
    let limited = optimized(&[
        doc! { "$sort": { "a": 1 } },
        doc! { "$project": { "a": 1 } },
        doc! { "$skip": 2 },
        doc! { "$limit": 3 },
    ]);
    assert_eq!(names(&limited), ["$sort", "$skip", "$project"]);
    let StageSpec::Sort(sort) = &limited.stages()[0] else { panic!("a sort") };
    assert_eq!(sort.limit, Some(5));
    let kept = optimized(&[doc! { "$sort": { "a": 1 } }, doc! { "$limit": 3 }, doc! { "$match": { "a": 1 } }]);
    assert_eq!(names(&kept), ["$sort", "$match"]);
}

#[test]
fn the_leading_part_becomes_a_query() {
    let leading =
        |stages: &[Document]| parse(stages).expect("it parses").optimize().expect("it optimises").leading_query();
    let query = leading(&[
        doc! { "$sort": { "a": -1 } },
        doc! { "$match": { "b": 1 } },
        doc! { "$skip": 2 },
        doc! { "$limit": 3 },
        doc! { "$group": { "_id": "$c", "n": { "$sum": "$d.e" } } },
    ]);
    assert_eq!(query.filter.map(|(filter, _)| filter), Some(raw(&doc! { "b": 1 })));
    assert_eq!(query.sort.map(|sort| sort.spec().to_owned()), Some(raw(&doc! { "a": -1 })));
    assert_eq!((query.skip, query.limit), (2, Some(3)));
    assert!(!query.dependencies.whole_document);
    assert_eq!(query.dependencies.fields.into_iter().collect::<Vec<_>>(), ["c", "d.e"]);
    assert_eq!(names(&query.rest), ["$group"]);

    let counting = leading(&[doc! { "$match": {} }, doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } }]);
    assert!(counting.filter.is_none() && !counting.dependencies.whole_document);
    assert!(counting.dependencies.fields.is_empty());

    let none = leading(&[doc! { "$limit": 2 }, doc! { "$skip": 5 }]);
    assert_eq!((none.skip, none.limit), (5, Some(0)));
    assert!(none.dependencies.whole_document);
}

#[test]
fn explain_shows_each_stage() {
    let stages = [
        doc! { "$match": { "a": 1 } },
        doc! { "$sort": { "b": 1 } },
        doc! { "$limit": 2 },
        doc! { "$unwind": "$c" },
        doc! { "$count": "n" },
    ];
    let pipeline = parse(&stages).expect("it parses").optimize().expect("it optimises");
    let shown: Vec<Document> =
        pipeline.explain().expect("it prints").iter().map(|d| Document::try_from(d).expect("a document")).collect();
    assert_eq!(
        shown,
        [
            doc! { "$match": { "a": 1 } },
            doc! { "$sort": { "sortKey": { "b": 1 }, "limit": 2_i64 } },
            doc! { "$unwind": { "path": "$c" } },
            doc! { "$count": "n" },
        ]
    );
}

/// Two arrays unwound one in the other make 40,000 documents of one.
fn twice_unwound(more: &[Document]) -> Chain {
    let mut stages = vec![
        doc! { "$set": { "a": { "$range": [0, 200] }, "b": { "$range": [0, 200] }, "rest": "x".repeat(1000) } },
        doc! { "$unwind": "$a" },
        doc! { "$unwind": { "path": "$b", "includeArrayIndex": "at" } },
    ];
    stages.extend_from_slice(more);
    parse(&stages).expect("the pipeline parses").start(&NoStorage).expect("the pipeline starts")
}

#[test]
fn a_long_array_is_unwound_in_parts_that_are_small_and_in_order() {
    let mut chain = twice_unwound(&[]);
    let (mut out, mut seen) = (VecDeque::new(), 0);
    let mut flow = chain.push(raw(&doc! { "_id": 1 }), &mut out).expect("runs");
    loop {
        assert!(out.len() <= 200, "{} documents at once", out.len());
        for doc in out.drain(..) {
            assert_eq!((doc.get_i32("a").unwrap(), doc.get_i32("b").unwrap()), (seen / 200, seen % 200));
            assert_eq!(doc.get_i64("at").unwrap(), i64::from(seen % 200));
            seen += 1;
        }
        if flow != Flow::Again {
            break;
        }
        flow = chain.resume(&mut out).expect("runs");
    }
    assert_eq!((flow, seen), (Flow::More, 40_000));
    assert_eq!(chain.finish(&mut out).expect("ends"), Flow::Done);
    assert!(out.is_empty());
}

#[test]
fn a_stage_that_wants_no_more_stops_the_unwinding_before_it() {
    let mut chain = twice_unwound(&[doc! { "$skip": 250 }, doc! { "$limit": 3 }]);
    let mut out = VecDeque::new();
    let mut flow = chain.push(raw(&doc! { "_id": 1 }), &mut out).expect("runs");
    while flow == Flow::Again {
        flow = chain.resume(&mut out).expect("runs");
    }
    assert_eq!(flow, Flow::Done);
    chain.finish_all(&mut out).expect("ends");
    let pairs: Vec<_> = out.iter().map(|doc| (doc.get_i32("a").unwrap(), doc.get_i32("b").unwrap())).collect();
    assert_eq!(pairs, [(1, 50), (1, 51), (1, 52)]);
}

#[test]
fn all_that_is_unwound_reaches_a_group() {
    let mut chain =
        twice_unwound(&[doc! { "$group": { "_id": "$a", "n": { "$sum": 1 } } }, doc! { "$sort": { "_id": 1 } }]);
    let mut out = VecDeque::new();
    let mut flow = chain.push(raw(&doc! { "_id": 1 }), &mut out).expect("runs");
    while flow == Flow::Again {
        flow = chain.resume(&mut out).expect("runs");
    }
    chain.finish_all(&mut out).expect("ends");
    assert_eq!(out.len(), 200);
    assert!(out.iter().zip(0..).all(|(doc, a)| (doc.get_i32("_id").unwrap(), doc.get_i32("n").unwrap()) == (a, 200)));
}
