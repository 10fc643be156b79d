//! Updates: parsing any specification and applying what parses; what comes out is valid BSON.

use crate::grow;
use baton_document::validate;
use baton_query::matcher::Matcher;
use baton_query::update::Update;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, doc, oid::ObjectId, rawdoc};

const WORDS: &[&str] = &[
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$setOnInsert",
    "$currentDate",
    "$push",
    "$pushAll",
    "$addToSet",
    "$pop",
    "$pull",
    "$pullAll",
    "$bit",
    "$each",
    "$position",
    "$slice",
    "$sort",
    "$type",
    "and",
    "or",
    "xor",
    "a.$[e].b",
    "a.$[]",
    "e.0",
    "a.b.c",
    "_id",
    "$gt",
    "$in",
    "$elemMatch",
    "$replaceWith",
    "$add",
    "$v",
    "diff",
];

/// Parses the input as an update, as a pipeline if it has a field `pipeline`, and applies it to the samples.
pub fn run(data: &[u8]) {
    let Some(spec) = grow::document(data, WORDS) else { return };
    let context = super::context();
    let filters = [rawdoc! { "e.b": { "$gte": 1 } }, rawdoc! { "f": 1 }];
    for filters in [&filters[..0], &filters[..1], &filters[..]] {
        let value = match spec.get("pipeline") {
            Ok(Some(pipeline @ RawBsonRef::Array(_))) => pipeline,
            _ => RawBsonRef::Document(&spec),
        };
        let Ok(update) = Update::parse(value, filters, &context) else { continue };
        for document in grow::samples(data) {
            if let Ok(applied) = update.apply(&document, None) {
                applied.document.as_deref().into_iter().for_each(valid);
            }
        }
        let filter: RawDocumentBuf = rawdoc! { "_id": 1, "a.b": 5, "e": { "$gt": 3 } };
        if let Ok(matcher) = Matcher::parse(&filter, &context) {
            if let Ok(document) = update.upsert_document(&matcher, ObjectId::from_bytes([9; 12])) {
                valid(&document);
            }
        }
    }
}

fn valid(document: &RawDocument) {
    if let Err(e) = validate::document(document.as_bytes()) {
        panic!("an update made invalid BSON: {e}");
    }
}

/// Updates of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    super::bson_seeds(vec![
        doc! { "$set": { "a.b": 1, "x.0.y": [1] }, "$inc": { "c": 2.5 }, "$unset": { "b": "" } },
        doc! { "$push": { "e": { "$each": [3, { "b": 1 }], "$sort": -1, "$slice": -3, "$position": 1 } } },
        doc! { "$pull": { "e": { "$gt": 1 } }, "$addToSet": { "a": { "$each": [1, 1] } } },
        doc! { "$set": { "a.$[e].b": 7 }, "$max": { "b": "zzz" }, "$currentDate": { "t": { "$type": "timestamp" } } },
        doc! { "$bit": { "a": { "xor": 5 } }, "$rename": { "b": "n.m" }, "$pop": { "e": -1 }, "$mul": { "l": 3i64 } },
        doc! { "replaced": true, "a": [1, 2] },
        doc! { "pipeline": [{ "$set": { "n": { "$add": ["$a", 1] } } }, { "$unset": ["b"] }, { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "k": 1 }] } }] },
    ])
}
