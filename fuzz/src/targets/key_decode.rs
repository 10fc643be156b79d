//! Index keys: decoding any bytes gives a value or an error; encoding keeps the order of the values, both ways.

use crate::grow;
use baton_document::keys::{self, Direction};
use baton_document::order;
use bson::RawBsonRef;
use std::cmp::Ordering;

/// Decodes the input as a key; and encodes the values of a document grown from it.
pub fn run(data: &[u8]) {
    for direction in [Direction::Ascending, Direction::Descending] {
        let (mut decoded, mut skipped) = (data, data);
        let value = keys::decode(&mut decoded, direction);
        let skip = keys::skip(&mut skipped, direction);
        if value.is_ok() {
            assert!(skip.is_ok() && decoded.len() == skipped.len(), "decoding and skipping disagree");
        }
    }
    let Some(document) = grow::document(data, &[]) else { return };
    let values: Vec<RawBsonRef<'_>> = document.iter().filter_map(|e| e.ok().map(|(_, value)| value)).collect();
    let encoded = |value: RawBsonRef<'_>, direction| {
        let mut key = Vec::new();
        keys::encode(&mut key, value, direction);
        let mut rest = &key[..];
        assert!(keys::decode(&mut rest, direction).is_ok() && rest.is_empty(), "a key that does not decode: {value:?}");
        key
    };
    for (at, a) in values.iter().enumerate() {
        for b in &values[at..] {
            let expected = order::compare(*a, *b);
            let ascending = encoded(*a, Direction::Ascending).cmp(&encoded(*b, Direction::Ascending));
            let descending = encoded(*a, Direction::Descending).cmp(&encoded(*b, Direction::Descending));
            assert_eq!((ascending, descending), (expected, expected.reverse()), "{a:?} against {b:?}");
        }
        assert_eq!(order::compare(*a, *a), Ordering::Equal);
    }
}

/// Keys of a few values, and documents.
pub fn seeds() -> Vec<Vec<u8>> {
    let document = bson::doc! {
        "a": 1, "b": -2.5, "c": "te\0xt", "d": [1, { "x": 2 }], "e": bson::Bson::Null, "f": i64::MAX, "g": 9.3e18, "h": true,
    };
    let mut seeds = super::bson_seeds(vec![document.clone()]);
    for (_, value) in &document {
        let mut key = Vec::new();
        if keys::encode_bson(&mut key, value, Direction::Ascending).is_ok() {
            seeds.push(key);
        }
    }
    seeds
}
