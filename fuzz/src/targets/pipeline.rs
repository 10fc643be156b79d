//! Pipelines: parsing any array of stages, optimising what parses, running what needs no storage.

use super::expression;
use crate::grow::{self, Choices};
use baton_document::validate;
use baton_query::pipeline::{Flow, NoStorage, Pipeline, Stage, stage_names};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, doc};
use std::collections::VecDeque;

const ARGUMENTS: &[&str] = &[
    "path",
    "preserveNullAndEmptyArrays",
    "includeArrayIndex",
    "groupBy",
    "boundaries",
    "buckets",
    "output",
    "default",
    "granularity",
    "from",
    "localField",
    "foreignField",
    "let",
    "pipeline",
    "as",
    "coll",
    "newRoot",
    "size",
    "$push",
    "$addToSet",
    "$top",
    "$bottomN",
    "$count",
    "into",
    "on",
    "whenMatched",
];

/// Parses the input as a pipeline, and runs it on the samples.
pub fn run(data: &[u8]) {
    let stages = stages(data);
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    let context = super::context();
    let Ok(pipeline) = Pipeline::parse(&stages, &context) else { return };
    let _ = pipeline.explain();
    execute(&pipeline, data);
    if let Ok(optimized) = pipeline.optimize() {
        let _ = optimized.leading_query();
        execute(&optimized, data);
    }
}

fn execute(pipeline: &Pipeline, data: &[u8]) {
    let Ok(mut chain) = pipeline.start(&NoStorage) else { return };
    let mut out = VecDeque::new();
    for document in grow::samples(data) {
        let mut flow = chain.push(document, &mut out);
        while let Ok(Flow::Again) = flow {
            flow = chain.resume(&mut out);
        }
        match flow {
            Ok(Flow::More | Flow::Again) => {}
            Ok(Flow::Done) => break,
            Err(_) => return,
        }
    }
    if chain.finish_all(&mut out).is_ok() {
        for document in &out {
            if let Err(e) = validate::document(document.as_bytes()) {
                panic!("a pipeline made invalid BSON: {e}");
            }
        }
    }
}

/// The stages in the field `pipeline` of a BSON input; else one to four, each with its name and arguments chosen.
fn stages(data: &[u8]) -> Vec<RawDocumentBuf> {
    if let Ok(Some(RawBsonRef::Array(array))) = validate::document(data).map(|d| d.get("pipeline").ok().flatten()) {
        return array.into_iter().filter_map(|e| e.ok()?.as_document().map(ToOwned::to_owned)).collect();
    }
    let names: Vec<&str> = stage_names().collect();
    let words = [expression::WORDS, ARGUMENTS].concat();
    let Some((count, rest)) = data.split_first() else { return Vec::new() };
    let parts = usize::from(count % 4) + 1;
    let size = rest.len().div_ceil(parts).max(1);
    rest.chunks(size)
        .filter_map(|part| {
            let (name, choices) = part.split_first()?;
            let name = names[usize::from(*name) % names.len()];
            let grown = Choices::new(choices, &words).document();
            // Half of the stages take something else than a document.
            let argument = if choices.first().is_some_and(|b| b % 3 == 0) {
                grown.values().next().cloned().unwrap_or_default()
            } else {
                grown.into()
            };
            RawDocumentBuf::try_from(&doc! { name: argument }).ok()
        })
        .collect()
}

/// Pipelines with every stage that needs no storage.
pub fn seeds() -> Vec<Vec<u8>> {
    super::bson_seeds(vec![
        doc! { "pipeline": [{ "$match": { "a": { "$gt": 0 } } }, { "$project": { "a": 1, "n": { "$size": { "$ifNull": ["$e", []] } } } }, { "$sort": { "n": -1, "_id": 1 } }, { "$limit": 3 }] },
        doc! { "pipeline": [{ "$unwind": { "path": "$e", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true } }, { "$group": { "_id": "$b", "s": { "$sum": "$e" }, "p": { "$push": "$$ROOT" }, "t": { "$top": { "output": "$a", "sortBy": { "e": 1 } } } } }] },
        doc! { "pipeline": [{ "$facet": { "x": [{ "$count": "n" }], "y": [{ "$sortByCount": "$b" }] } }, { "$replaceRoot": { "newRoot": { "$arrayElemAt": ["$x", 0] } } }] },
        doc! { "pipeline": [{ "$bucket": { "groupBy": "$_id", "boundaries": [0, 2, 10], "default": "other", "output": { "n": { "$sum": 1 } } } }] },
        doc! { "pipeline": [{ "$bucketAuto": { "groupBy": "$_id", "buckets": 2, "granularity": "R5" } }, { "$skip": 1 }, { "$set": { "x": "$$NOW" } }, { "$unset": "x" }] },
        doc! { "pipeline": [{ "$lookup": { "from": "c", "localField": "a", "foreignField": "b", "as": "j", "let": { "v": "$a" }, "pipeline": [{ "$match": { "$expr": { "$eq": ["$b", "$$v"] } } }] } }, { "$unwind": "$j" }, { "$merge": { "into": "m", "on": "_id", "whenMatched": "replace" } }] },
        doc! { "pipeline": [{ "$redact": { "$cond": [{ "$gt": ["$a", 1] }, "$$KEEP", "$$PRUNE"] } }, { "$sample": { "size": 2 } }, { "$unionWith": { "coll": "d", "pipeline": [] } }] },
    ])
}
