//! A few hundred bytes of a request must not make gigabytes: whatever multiplies what it is given stops, with MongoDB's
//! error, when it reaches its bound.
//!
//! One test, so that it is alone in its process: it looks at the most memory the process ever had. Without the bounds
//! these cases take from half a gigabyte to terabytes each.

use baton_query::expression::Expression;
use baton_query::pipeline::Pipeline;
use baton_query::sort::SortPattern;
use baton_query::update::Update;
use baton_query::{Check, Context, Interruption};
use baton_types::{MemoryPool, Result};
use bson::{Bson, DateTime, Document, RawBson, RawDocument, RawDocumentBuf, bson, doc};
use std::sync::Arc;

/// What the requests share.
const POOL_BYTES: usize = 24 * 1024 * 1024;
/// What the whole process may take at its peak: inputs, the pool, one value on its way, one document of each of two sizes.
const PEAK_BYTES_MAX: usize = 400 * 1024 * 1024;

fn context() -> Context {
    let mut context = Context::new(DateTime::from_millis(0), 0);
    context.memory = MemoryPool::new(POOL_BYTES);
    context.interruption.set(&(Arc::new(|| Ok(())) as Check));
    context
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("well formed")
}

/// The document with one array of numbers.
fn numbers(count: i32) -> RawDocumentBuf {
    raw(&doc! { "_id": 1, "b": (0..count).collect::<Vec<_>>() })
}

fn evaluate(expression: Bson, document: &RawDocument) -> Result<()> {
    let ctx = context();
    let wrapped = raw(&doc! { "e": expression });
    let parsed = Expression::parse(wrapped.get("e").expect("well formed").expect("well formed"), &ctx)?;
    parsed.evaluate(document, &ctx).map(drop)
}

fn aggregate(stages: &[Document], document: RawDocumentBuf) -> Result<()> {
    let stages: Vec<RawDocumentBuf> = stages.iter().map(raw).collect();
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    Pipeline::parse(&stages, &context())?.run_in_memory([document]).map(drop)
}

fn update(update: Bson, document: &RawDocument) -> Result<()> {
    let update = RawBson::try_from(update).expect("well formed");
    Update::parse::<RawDocumentBuf>(update.as_raw_bson_ref(), &[], &context())?.apply(document, None).map(drop)
}

/// `let` within `let`, each variable twice the one before.
fn doubled(levels: usize, twice: impl Fn(&str) -> Bson) -> Bson {
    (0..levels).rev().fold(bson!({ "$size": format!("$$v{levels}") }), |inner, level| {
        bson!({ "$let": { "vars": { format!("v{}", level + 1): twice(&format!("$$v{level}")) }, "in": inner } })
    })
}

fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("well formed");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("well formed");
    line.split_whitespace().nth(1).expect("well formed").parse::<usize>().expect("well formed") * 1024
}

#[track_caller]
fn refused(what: &str, outcome: Result<()>, code: i32) {
    let peak = peak_bytes();
    let found = outcome.as_ref().err().map(|error| error.code.0);
    assert_eq!(found, Some(code), "{what}: {outcome:?}");
    assert!(peak < PEAK_BYTES_MAX, "{what}: the process took {} MB", peak >> 20);
}

#[test]
fn what_multiplies_its_input_stops_at_a_bound() {
    const TOO_MUCH_MEMORY: i32 = 146;
    const TOO_LARGE: i32 = 10334;

    // Each element gets a copy of the array.
    refused("$set", aggregate(&[doc! { "$set": { "b.c": "$b" } }], numbers(16_000)), TOO_LARGE);
    refused(
        "$project",
        aggregate(&[doc! { "$project": { "b.c": { "$reverseArray": "$b" } } }], numbers(16_000)),
        TOO_LARGE,
    );
    refused("an update", update(bson!([{ "$set": { "b.c": "$b" } }]), &numbers(16_000)), TOO_LARGE);
    let fields: Document = (0..2_000).map(|i| (format!("f{i}"), Bson::String("$b".into()))).collect();
    refused("many fields", aggregate(&[doc! { "$project": fields }], numbers(16_000)), TOO_LARGE);
    let root = bson!({ "$map": { "input": "$b", "in": "$$ROOT" } });
    refused("$replaceWith", aggregate(&[doc! { "$replaceWith": { "a": root } }], numbers(16_000)), TOO_MUCH_MEMORY);

    // Loops.
    let empty = raw(&doc! {});
    let range = |to: i32| bson!({ "$range": [0, to] });
    refused("$range", evaluate(range(i32::MAX), &empty), TOO_MUCH_MEMORY);
    refused("a shorter $range", evaluate(range(6_000_000), &empty), TOO_MUCH_MEMORY);
    let nested = bson!({ "$map": { "input": range(4_000), "as": "i", "in": { "$map": { "input": range(4_000), "in": "$$i" } } } });
    refused("$map in $map", evaluate(nested, &empty), TOO_MUCH_MEMORY);
    refused(
        "$map of an array",
        evaluate(bson!({ "$map": { "input": "$b", "in": "$b" } }), &numbers(16_000)),
        TOO_MUCH_MEMORY,
    );
    let grow =
        |twice: Bson, start: Bson| bson!({ "$reduce": { "input": range(64), "initialValue": start, "in": twice } });
    refused(
        "$reduce of arrays",
        evaluate(grow(bson!({ "$concatArrays": ["$$value", "$$value"] }), bson!([1])), &empty),
        TOO_MUCH_MEMORY,
    );
    refused(
        "$reduce of strings",
        evaluate(grow(bson!({ "$concat": ["$$value", "$$value"] }), bson!("x")), &empty),
        TOO_MUCH_MEMORY,
    );
    refused(
        "$reduce of literals",
        evaluate(grow(bson!(["$$value", "$$value", "$$value"]), bson!(1)), &empty),
        TOO_MUCH_MEMORY,
    );

    // Variables within variables.
    let start = |inner: Bson| bson!({ "$let": { "vars": { "v0": "$b" }, "in": inner } });
    let arrays = doubled(40, |v| bson!({ "$concatArrays": [v, v] }));
    refused("$concatArrays in $let", evaluate(start(arrays), &numbers(1_000)), TOO_MUCH_MEMORY);
    let objects = doubled(40, |v| bson!({ "a": v, "b": v }));
    refused("objects in $let", evaluate(start(objects), &numbers(1_000)), TOO_MUCH_MEMORY);
    let many = bson!({ "$let": { "vars": { "v": range(100_000) }, "in": { "$concatArrays": vec!["$$v"; 1_000] } } });
    refused("many arguments", evaluate(many, &empty), TOO_MUCH_MEMORY);
    let computed = bson!({ "$concatArrays": vec![bson!({ "$slice": ["$b", 16_000] }); 1_000] });
    refused("many computed arguments", evaluate(computed, &numbers(16_000)), TOO_MUCH_MEMORY);

    // Operators that copy.
    let text = "x".repeat(1 << 20);
    let zip =
        bson!({ "$zip": { "inputs": [range(100_000), []], "useLongestLength": true, "defaults": [0, text.as_str()] } });
    refused("$zip", evaluate(zip, &empty), TOO_MUCH_MEMORY);
    let commas = raw(&doc! { "s": ",".repeat(8 << 20) });
    refused("$split", evaluate(bson!({ "$split": ["$s", ","] }), &commas), TOO_MUCH_MEMORY);
    let replaced = bson!({ "$replaceAll": { "input": "$s", "find": ",", "replacement": text.as_str() } });
    refused("$replaceAll", evaluate(replaced, &commas), TOO_MUCH_MEMORY);
    let empty_matches = bson!({ "$regexFindAll": { "input": "$s", "regex": "" } });
    refused("$regexFindAll", evaluate(empty_matches, &commas), 51151);
    let sets = bson!({ "$setUnion": (0..64).map(|i| bson!({ "$map": { "input": "$b", "in": { "$add": ["$$this", i * 16_000] } } })).collect::<Vec<_>>() });
    refused("$setUnion", evaluate(sets, &numbers(16_000)), TOO_MUCH_MEMORY);

    // Updates that put much into each element.
    let documents = raw(&doc! { "_id": 1, "b": vec![doc! { "c": [1] }; 10_000] });
    refused("$set in each", update(bson!({ "$set": { "b.$[].d": text.as_str() } }), &documents), 17419);
    refused(
        "$push in each",
        update(bson!({ "$push": { "b.$[].c": { "$each": vec![text.as_str(); 4] } } }), &documents),
        17419,
    );

    // What parsing computes in advance, and the values of variables: each stage has its own.
    let stages: Vec<Document> = (0..30).map(|_| doc! { "$set": { "a": range(100_000) } }).collect();
    let stages: Vec<RawDocumentBuf> = stages.iter().map(raw).collect();
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    let kept = Pipeline::parse(&stages, &context()).expect("well formed");
    let mut ctx = context();
    ctx.set_variable("v", Bson::Array((0..100_000).map(Bson::Int32).collect())).expect("well formed");
    let stage = raw(&doc! { "$match": { "$expr": { "$isArray": "$$v" } } });
    let shared = Pipeline::parse(&[&*stage; 200], &ctx).expect("well formed");
    assert!(
        shared.optimize().expect("well formed").run_in_memory([raw(&doc! { "_id": 1 })]).expect("well formed").len()
            == 1
    );
    assert!(peak_bytes() < PEAK_BYTES_MAX, "the process took {} MB", peak_bytes() >> 20);
    drop(kept);
    let mut ctx = context();
    let too_much = ctx.set_variable("v", Bson::Array((0..1_000_000).map(Bson::Int32).collect()));
    refused("a variable", too_much, TOO_MUCH_MEMORY);

    // A sort by many fields through one long array.
    let pattern: Document = (0..200).map(|i| (format!("b.f{i}"), Bson::Int32(1))).collect();
    let sorted = raw(&doc! { "b": vec![doc! { "f0": 1 }; 20_000] });
    SortPattern::parse(&raw(&pattern))
        .expect("well formed")
        .key(&sorted, &Interruption::default())
        .expect("well formed");
    assert!(peak_bytes() < PEAK_BYTES_MAX, "a sort key: the process took {} MB", peak_bytes() >> 20);
}
