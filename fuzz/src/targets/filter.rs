//! Filters: parsing any document and matching with what parses.

use crate::grow;
use baton_query::matcher::Matcher;
use bson::doc;

const WORDS: &[&str] = &[
    "$and",
    "$or",
    "$nor",
    "$not",
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$exists",
    "$type",
    "$size",
    "$all",
    "$elemMatch",
    "$mod",
    "$regex",
    "$options",
    "$bitsAllSet",
    "$bitsAnyClear",
    "$expr",
    "$jsonSchema",
    "$comment",
    "$alwaysTrue",
    "$sampleRate",
    "$where",
    "$text",
    "$geoWithin",
    "bsonType",
    "properties",
    "required",
    "minimum",
    "pattern",
    "items",
    "anyOf",
    "additionalProperties",
    "$add",
    "$a",
];

/// Parses the input as a filter, and matches the samples with it.
pub fn run(data: &[u8]) {
    let Some(filter) = grow::document(data, WORDS) else { return };
    let context = super::context();
    let Ok(matcher) = Matcher::parse(&filter, &context) else { return };
    // What draws may match in one try and not in the next.
    let mentions = |word: &[u8]| filter.as_bytes().windows(word.len()).any(|bytes| bytes == word);
    let draws = mentions(b"$sampleRate") || mentions(b"$rand");
    for document in grow::samples(data) {
        let first = matcher.matches(&document);
        let second = matcher.matches(&document);
        if let (Ok(first), Ok(second)) = (first, second) {
            assert!(draws || first == second, "the same filter on the same document: {filter:?}");
        }
    }
    let _ = matcher.equalities();
}

/// Filters of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    super::bson_seeds(vec![
        doc! { "a": 1, "b": { "$gt": 1, "$lt": "x" } },
        doc! { "$or": [{ "a.b": { "$in": [1, null, bson::Regex { pattern: bson::cstr!("^a").into(), options: bson::cstr!("i").into() }] } }, { "$nor": [{ "e": { "$size": 3 } }] }] },
        doc! { "a": { "$elemMatch": { "b": { "$gte": 1 }, "$or": [{ "c": 1 }] } }, "e": { "$all": [1, 2] } },
        doc! { "b": { "$not": { "$regex": "(a+)+$", "$options": "i" } }, "a": { "$mod": [2, 1] }, "x": { "$type": ["string", 7] } },
        doc! { "$expr": { "$gt": [{ "$add": ["$a", 1] }, { "$size": "$e" }] } },
        doc! { "$jsonSchema": { "bsonType": "object", "required": ["a"], "properties": { "a": { "bsonType": ["int", "array"], "minimum": 1 } } } },
        doc! { "a": { "$bitsAllSet": [1, 5], "$exists": true } },
        doc! { "$sampleRate": 0.5 },
    ])
}
