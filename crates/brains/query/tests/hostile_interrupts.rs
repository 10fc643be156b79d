//! Whatever can be made to take long looks, again and again, whether it is to go on; and stops when it is told to.
//!
//! Each case is small enough to be done in no time, and must have looked several times until then: a look comes once in
//! a thousand steps, so that one case a thousand times larger would have looked a thousand times as often. Then it is
//! interrupted at its second look, and must look no more.

use baton_document::path::{Path, index_keys};
use baton_query::expression::Expression;
use baton_query::interruption::STEPS_PER_LOOK;
use baton_query::matcher::{Matcher, violation};
use baton_query::pipeline::Pipeline;
use baton_query::projection::{Mode, Projection};
use baton_query::sort::SortPattern;
use baton_query::update::Update;
use baton_query::{Check, Context};
use baton_types::{Error, ErrorCode, Result};
use bson::raw::cstr;
use bson::{Bson, DateTime, Document, RawBson, RawDocument, RawDocumentBuf, bson, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("well formed")
}

/// A context that is interrupted at look number `at`, counted from 1, and how often it was looked at.
fn interrupted_at(at: usize) -> (Context, Arc<AtomicUsize>) {
    let context = Context::new(DateTime::from_millis(0), 0);
    let looks = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&looks);
    let check: Check = Arc::new(move || {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 >= at {
            return Err(Error::new(ErrorCode::Interrupted, "operation was interrupted"));
        }
        Ok(())
    });
    context.interruption.set(&check);
    (context, looks)
}

#[track_caller]
fn can_be_stopped(what: &str, work: impl Fn(&Context) -> Result<()>) {
    let (context, looks) = interrupted_at(usize::MAX);
    let outcome = work(&context);
    assert!(outcome.is_ok(), "{what}: {outcome:?}");
    let all = looks.load(Ordering::Relaxed);
    assert!(all >= 3, "{what}: it looked {all} times until it was done");
    let (context, looks) = interrupted_at(2);
    let outcome = work(&context);
    assert_eq!(outcome.map_err(|error| error.code), Err(ErrorCode::Interrupted), "{what}");
    // Where a value is computed in advance, or a violation told of, a look or two more tell an interrupt from an error that counts.
    let after = looks.load(Ordering::Relaxed) - 2;
    assert!(after <= 2, "{what}: it looked {after} times more after it was told to stop");
}

/// The stack of a connection's thread: frames are larger without optimisation.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 4 << 20 } else { 1 << 20 };

/// Many more than pass between two looks.
const MANY: i32 = 4 * STEPS_PER_LOOK as i32;

fn documents() -> RawDocumentBuf {
    raw(
        &doc! { "_id": 1, "b": (0..MANY).map(|i| doc! { "x": i, "y": [i] }).collect::<Vec<_>>(), "s": "ab".repeat(1 << 14) },
    )
}

fn numbers() -> RawDocumentBuf {
    raw(&doc! { "_id": 1, "b": (0..MANY).collect::<Vec<_>>() })
}

#[test]
fn expressions_can_be_stopped() {
    let range = || bson!({ "$range": [0, MANY] });
    let within = |body: Bson| bson!({ "$let": { "vars": { "v": "$b" }, "in": body } });
    let many = |body: Bson| bson!({ "$map": { "input": { "$range": [0, 64] }, "in": body } });
    for expression in [
        range(),
        bson!({ "$map": { "input": "$b", "in": 1 } }),
        bson!({ "$map": { "input": { "$reverseArray": "$b" }, "in": 1 } }),
        bson!({ "$filter": { "input": "$b", "cond": false } }),
        bson!({ "$reduce": { "input": "$b", "initialValue": 0, "in": "$$this.x" } }),
        bson!("$b.x"),
        bson!("$b.y.z"),
        within(bson!("$$v.x")),
        within(bson!({ "$in": [-1, "$$v"] })),
        bson!({ "$in": [-1, "$b"] }),
        within(bson!({ "$indexOfArray": ["$$v", -1] })),
        within(bson!({ "$eq": ["$$v", "$$v"] })),
        within(bson!({ "$setUnion": ["$$v", []] })),
        within(bson!({ "$setIntersection": ["$$v", "$$v"] })),
        within(bson!({ "$setDifference": ["$$v", []] })),
        within(bson!({ "$setIsSubset": ["$$v", "$$v"] })),
        within(bson!({ "$setEquals": ["$$v", "$$v"] })),
        within(bson!({ "$allElementsTrue": ["$$v"] })),
        within(bson!({ "$concatArrays": ["$$v", "$$v"] })),
        within(bson!({ "$reverseArray": "$$v" })),
        within(bson!({ "$slice": ["$$v", MANY] })),
        within(bson!({ "$sum": "$$v" })),
        within(bson!({ "$max": "$$v" })),
        within(bson!({ "$zip": { "inputs": ["$$v"] } })),
        within(bson!({ "$sortArray": { "input": "$$v", "sortBy": { "x": -1 } } })),
        within(bson!({ "$maxN": { "input": "$$v", "n": 3 } })),
        many(bson!({ "$size": "$b" })),
        many(bson!({ "$last": "$b" })),
        many(bson!({ "$toUpper": "$s" })),
        many(bson!({ "$strLenCP": "$s" })),
        many(bson!({ "$replaceAll": { "input": "$s", "find": "b", "replacement": "" } })),
        bson!({ "$split": ["$s", "b"] }),
        bson!({ "$regexFindAll": { "input": { "$substrBytes": ["$s", 0, 2_000] }, "regex": "a" } }),
        // PCRE2's own limit is one of each attempt.
        bson!({ "$regexFindAll": { "input": "a".repeat(300), "regex": "[ab]*[ab]*[bc]" } }),
        bson!({ "$regexMatch": { "input": "a".repeat(300), "regex": "[ab]*[ab]*[bc]" } }),
        bson!({ "$switch": { "branches": (0..8).map(|i| bson!({ "case": { "$eq": ["$b", i] }, "then": 1 })).collect::<Vec<_>>(), "default": 0 } }),
    ] {
        let document = documents();
        let wrapped = raw(&doc! { "e": &expression });
        can_be_stopped(&expression.to_string(), |ctx| {
            let parsed = Expression::parse(wrapped.get("e").expect("well formed").expect("well formed"), ctx)?;
            parsed.evaluate(&document, ctx).map(drop)
        });
    }
}

#[test]
fn filters_can_be_stopped() {
    let each = |condition: Document| vec![condition; 8];
    let deep = (0..14).fold(bson!([{ "0": 1 }]), |inner, _| bson!([{ "0": inner }]));
    let document = raw(&doc! {
        "_id": 1,
        "b": (0..MANY).map(|i| doc! { "x": i, "y": [i] }).collect::<Vec<_>>(),
        "s": (0..MANY / 16).map(|i| i.to_string()).collect::<Vec<_>>(),
        "d": deep,
        "t": "a".repeat(300),
    });
    for filter in [
        doc! { "b.x": -1 },
        doc! { "b.y": -1 },
        doc! { "$or": each(doc! { "b.y.z": 1 }) },
        doc! { "b": { "$elemMatch": { "x": -1 } } },
        doc! { "b": { "$elemMatch": { "y": { "$elemMatch": { "$lt": 0 } } } } },
        doc! { "b": { "$not": { "$elemMatch": { "x": MANY - 1 } } } },
        doc! { "$or": each(doc! { "nothing": 1 }) },
        doc! { "$nor": each(doc! { "b.none": { "$exists": true } }) },
        doc! { "s": { "$regex": "^x" } },
        doc! { "s": { "$in": [regex("^x")] } },
        doc! { "t": { "$regex": "[ab]*[ab]*[bc]" } },
        doc! { "t": { "$in": (0..MANY).map(|i| regex(&format!("^x{i}"))).collect::<Vec<_>>() } },
        doc! { "$or": [{ "b": { "$size": MANY + 1 } }] },
        doc! { "$expr": { "$in": [-1, "$b.x"] } },
        // A number is a name and an index: the ways through the arrays multiply.
        doc! { format!("d.{}", vec!["0"; 22].join(".")): 5 },
    ] {
        let raw_filter = raw(&filter);
        can_be_stopped(&filter.to_string(), |ctx| Matcher::parse(&raw_filter, ctx)?.matches(&document).map(drop));
    }
}

fn regex(pattern: &str) -> Bson {
    let text = |text: &str| bson::raw::CString::try_from(text).expect("well formed");
    Bson::RegularExpression(bson::Regex { pattern: text(pattern), options: text("") })
}

/// Documents that conform, and what they conform to: all of it is looked at.
fn schemas() -> Vec<(RawDocumentBuf, Document)> {
    let wide = |value: Bson| raw(&(0..MANY).map(|i| (format!("f{i}"), value.clone())).collect::<Document>());
    let numbered = || (0..MANY).map(|i| format!("f{i}")).collect::<Vec<_>>();
    let property = |rule: Document| doc! { "properties": { "b": rule } };
    vec![
        (numbers(), property(doc! { "items": { "minimum": 0 } })),
        (documents(), property(doc! { "items": [{ "type": "object" }], "additionalItems": { "required": ["x"] } })),
        (documents(), property(doc! { "uniqueItems": true })),
        (documents(), property(doc! { "enum": [(0..MANY).map(|i| doc! { "y": [i], "x": i }).collect::<Vec<_>>()] })),
        (numbers(), property(doc! { "items": { "anyOf": [{ "type": "string" }, { "maximum": MANY }] } })),
        (numbers(), property(doc! { "not": { "items": { "type": "string", "minimum": 5 } }, "maxItems": MANY })),
        (wide(1.into()), doc! { "patternProperties": { "^f": { "type": "number" } } }),
        (wide(1.into()), doc! { "additionalProperties": { "type": "number" } }),
        (wide(1.into()), doc! { "required": numbered() }),
        (wide(1.into()), doc! { "dependencies": { "f1": numbered() } }),
        (wide("a".into()), doc! { "additionalProperties": { "pattern": "^a$", "minLength": 1 } }),
        (raw(&doc! { "b": "a".repeat(300) }), property(doc! { "not": { "pattern": "[ab]*[ab]*[bc]" } })),
    ]
}

#[test]
fn schemas_can_be_stopped() {
    for (document, schema) in schemas() {
        let filter = raw(&doc! { "$jsonSchema": &schema });
        let nobody = Context::new(DateTime::from_millis(0), 0);
        // Nothing ends it early.
        let is_negated = schema.to_string().contains("\"not\": Document({\"items");
        let matches = Matcher::parse(&filter, &nobody).expect("well formed").matches(&document);
        assert!(matches.expect("well formed") || is_negated, "{schema}");
        can_be_stopped(&shortened(&schema), |ctx| Matcher::parse(&filter, ctx)?.matches(&document).map(drop));
    }
}

/// A validator, or the filter of a partial index, was parsed for nobody: who writes the document is asked.
#[test]
fn what_many_requests_share_asks_the_one_that_runs_it() {
    let nobody = Context::new(DateTime::from_millis(0), 0);
    let shared = |filter: &Document| Matcher::parse(&raw(filter), &nobody).expect("well formed");
    for (document, filter) in [
        (documents(), doc! { "b.x": -1 }),
        (documents(), doc! { "$expr": { "$in": [-1, "$b.x"] } }),
        (
            documents(),
            doc! { "$or": [{ "$nor": [{ "$expr": { "$allElementsTrue": ["$b.y"] } }] }, { "b.x": { "$gt": MANY } }] },
        ),
    ] {
        let matcher = shared(&filter);
        can_be_stopped(&filter.to_string(), |ctx| matcher.matches_asking(&document, &ctx.interruption).map(drop));
    }
    for (document, schema) in schemas() {
        let matcher = shared(&doc! { "$jsonSchema": &schema });
        can_be_stopped(&shortened(&schema), |ctx| matcher.matches_asking(&document, &ctx.interruption).map(drop));
    }
}

/// Why a document is refused takes as long to find out as that it is.
#[test]
fn telling_of_a_violation_can_be_stopped() {
    for (document, validator) in [
        (numbers(), doc! { "$jsonSchema": { "properties": { "b": { "items": { "maximum": MANY - 2 } } } } }),
        (documents(), doc! { "$jsonSchema": { "properties": { "b": { "not": { "uniqueItems": true } } } } }),
        (documents(), doc! { "$nor": [{ "b.none": { "$exists": false } }] }),
    ] {
        let validator = raw(&validator);
        can_be_stopped(&format!("{validator:?}"), |ctx| violation(&validator, &document, ctx).map(drop));
    }
}

fn shortened(schema: &Document) -> String {
    schema.to_string().chars().take(120).collect()
}

#[test]
fn sorts_and_keys_of_indexes_can_be_stopped() {
    let document = documents();
    for paths in [&["b"][..], &["b.x"], &["b.y"], &["s", "b.x", "b.none", "_id"]] {
        let pattern = raw(&paths.iter().map(|path| ((*path).to_owned(), Bson::Int32(1))).collect::<Document>());
        let pattern = SortPattern::parse(&pattern).expect("well formed");
        can_be_stopped(&format!("a sort by {paths:?}"), |ctx| pattern.key(&document, &ctx.interruption).map(drop));
        let paths: Vec<Path> = paths.iter().map(|path| Path::parse(path)).collect();
        can_be_stopped(&format!("an index on {paths:?}"), |ctx| {
            index_keys(&document, &paths, false, &ctx.interruption).map(drop)
        });
    }
}

#[test]
fn projections_can_be_stopped() {
    for (document, projection) in [
        (documents(), doc! { "b.x": 1 }),
        (documents(), doc! { "b.x": 0 }),
        (numbers(), doc! { "b.1.c": "$b.0" }),
        (documents(), doc! { "b.z": { "$rand": {} } }),
        (documents(), doc! { "b": { "$elemMatch": { "x": -1 } } }),
    ] {
        let spec = raw(&projection);
        can_be_stopped(&projection.to_string(), |ctx| {
            Projection::parse(&spec, None, ctx, Mode::Find)?.apply(&document, None).map(drop)
        });
    }
}

#[test]
fn updates_can_be_stopped() {
    let listed = || (0..MANY).collect::<Vec<_>>();
    for (document, update, filters) in [
        (numbers(), bson!({ "$inc": { "b.$[]": 1 } }), vec![]),
        (numbers(), bson!({ "$inc": { "b.$[i]": 1 } }), vec![doc! { "i": { "$lt": 0 } }]),
        (documents(), bson!({ "$set": { "b.$[].x": 1 } }), vec![]),
        (documents(), bson!({ "$set": { "b.$[i].x": 1 } }), vec![doc! { "i.x": { "$gt": 5 } }]),
        (numbers(), bson!({ "$pull": { "b": { "$lt": 0 } } }), vec![]),
        (documents(), bson!({ "$pull": { "b": { "x": -1 } } }), vec![]),
        (numbers(), bson!({ "$pullAll": { "b": listed() } }), vec![]),
        (numbers(), bson!({ "$addToSet": { "b": { "$each": listed() } } }), vec![]),
        (numbers(), bson!({ "$set": { format!("b.{}", MANY * 2): 1 } }), vec![]),
        (numbers(), bson!([{ "$set": { "b.1.c": "$b.0" } }]), vec![]),
        (documents(), bson!([{ "$replaceWith": { "c": { "$map": { "input": "$b", "in": "$$this.x" } } } }]), vec![]),
    ] {
        let spec = RawBson::try_from(update.clone()).expect("well formed");
        let filters: Vec<RawDocumentBuf> = filters.iter().map(raw).collect();
        can_be_stopped(&update.to_string(), |ctx| {
            Update::parse(spec.as_raw_bson_ref(), &filters, ctx)?.apply(&document, None).map(drop)
        });
    }
}

#[test]
fn pipelines_can_be_stopped_within_one_document() {
    for stages in [
        vec![doc! { "$unwind": "$b" }, doc! { "$match": { "none": 1 } }],
        vec![doc! { "$unwind": "$b" }, doc! { "$group": { "_id": "$b.x", "n": { "$sum": 1 } } }],
        vec![doc! { "$unwind": "$b" }, doc! { "$unwind": "$b.y" }, doc! { "$count": "n" }],
        vec![doc! { "$facet": { "a": [{ "$unwind": "$b" }, { "$match": { "none": 1 } }] } }],
        vec![doc! { "$redact": { "$cond": [{ "$eq": ["$x", -1] }, "$$PRUNE", "$$DESCEND"] } }],
    ] {
        let raw_stages: Vec<RawDocumentBuf> = stages.iter().map(raw).collect();
        let raw_stages: Vec<&RawDocument> = raw_stages.iter().map(|stage| &**stage).collect();
        can_be_stopped(&format!("{stages:?}"), |ctx| {
            Pipeline::parse(&raw_stages, ctx)?.run_in_memory([documents()]).map(drop)
        });
    }
}

#[test]
fn what_nests_too_deep_is_an_error_on_the_stack_of_a_connection() {
    // Written by hand: to build such a value as one takes a stack of its own.
    let nested = |levels: usize, wrap: fn(RawBson) -> RawBson, inner: RawBson| {
        let mut holder = RawDocumentBuf::new();
        holder.append(cstr!("e"), (0..levels).fold(inner, |inner, _| wrap(inner)));
        holder
    };
    let not: fn(RawBson) -> RawBson = |inner| single(cstr!("$not"), inner);
    let field: fn(RawBson) -> RawBson = |inner| single(cstr!("a"), inner);
    let and: fn(RawBson) -> RawBson = |inner| single(cstr!("$and"), array(inner));
    let path = || RawBson::String("$x".to_owned());
    let expressions = [
        ("operators", nested(2_000, not, RawBson::Boolean(true))),
        ("arrays", nested(2_000, array, path())),
        ("objects", nested(2_000, field, path())),
        (
            "$reduce",
            raw(&doc! { "e": { "$reduce": {
                "input": { "$range": [0, 100_000] }, "initialValue": 1, "in": { "a": ["$$value"] },
            } } }),
        ),
    ];
    let filter = nested(2_000, and, single(cstr!("a"), RawBson::Int32(1)));
    let work = move || {
        let ctx = Context::new(DateTime::from_millis(0), 0);
        for (what, holder) in &expressions {
            let parsed = Expression::parse(holder.get("e").expect("well formed").expect("well formed"), &ctx);
            let outcome = parsed.and_then(|expression| expression.evaluate(&raw(&doc! {}), &ctx));
            assert_eq!(outcome.map_err(|error| error.code), Err(ErrorCode::Overflow), "{what}");
        }
        let outcome = Matcher::parse(filter.get_document("e").expect("well formed"), &ctx);
        assert_eq!(outcome.map(drop).map_err(|error| error.code), Err(ErrorCode::BadValue), "a filter");
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("well formed").join().expect("well formed");
}

fn single(name: &bson::raw::CStr, inner: RawBson) -> RawBson {
    let mut document = RawDocumentBuf::new();
    document.append(name, inner);
    RawBson::Document(document)
}

fn array(inner: RawBson) -> RawBson {
    RawBson::Array([inner].into_iter().collect())
}
