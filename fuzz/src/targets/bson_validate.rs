//! The BSON validator: what it lets through can be read to the last element, at every level.

use baton_document::validate;
use bson::{Bson, DateTime, RawBsonRef, RawDocument, doc, oid::ObjectId};

/// Validates the input, with its own length and with a true one, and reads what passes.
pub fn run(data: &[u8]) {
    check(data);
    if data.len() >= 5 {
        let mut honest = data.to_vec();
        honest[..4].copy_from_slice(&(data.len() as i32).to_le_bytes());
        if let Some(last) = honest.last_mut() {
            *last = 0;
        }
        check(&honest);
    }
}

fn check(bytes: &[u8]) {
    if let Ok(document) = validate::document(bytes) {
        assert_eq!(document.as_bytes(), bytes);
        read(document, 0);
    }
}

fn read(document: &RawDocument, depth: usize) {
    assert!(depth <= validate::DEPTH_MAX, "deeper than the validator allows");
    for element in document.iter() {
        match element {
            Ok((_, RawBsonRef::Document(inner))) => read(inner, depth + 1),
            Ok((_, RawBsonRef::Array(inner))) => {
                // An array is a document by another type.
                if let Ok(inner) = RawDocument::from_bytes(inner.as_bytes()) {
                    read(inner, depth + 1);
                }
            }
            Ok((_, RawBsonRef::JavaScriptCodeWithScope(code))) => read(code.scope, depth + 1),
            Ok(_) => {}
            Err(e) => panic!("validated, yet unreadable: {e}"),
        }
    }
}

/// A document with every type.
pub fn seeds() -> Vec<Vec<u8>> {
    let regex = bson::Regex { pattern: bson::cstr!("a.b").into(), options: bson::cstr!("i").into() };
    let scoped = bson::JavaScriptCodeWithScope { code: "f()".into(), scope: doc! { "x": [1] } };
    let binary = bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![1, 2, 3] };
    let every = doc! {
        "d": 1.5, "s": "text", "o": { "a": { "b": 1 } }, "r": [1, [2, [3]]], "b": true, "n": Bson::Null, "i": 1, "l": 2i64,
        "t": Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }), "id": ObjectId::from_bytes([1; 12]),
        "dt": DateTime::from_millis(5), "re": regex, "js": Bson::JavaScriptCode("f".into()),
        "jss": Bson::JavaScriptCodeWithScope(scoped), "bin": binary, "u": Bson::Undefined, "min": Bson::MinKey,
        "max": Bson::MaxKey, "sym": Bson::Symbol("s".into()),
    };
    let mut deep = doc! {};
    for _ in 0..190 {
        deep = doc! { "a": deep };
    }
    super::bson_seeds(vec![every, deep, doc! {}])
}
