//! The hashes that are published, of MongoDB's own tests (`hasher_test.cpp`, `hash.js`) and its manual: they must never change.

use super::*;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc, rawdoc};
use serde_json::Value as Json;

fn of(value: impl Into<Bson>, seed: i32) -> i64 {
    let document = bson::RawDocumentBuf::try_from(&doc! { "check": value.into() }).unwrap();
    hash(document.get("check").unwrap().unwrap(), seed).unwrap()
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap())
}

/// A value in Extended JSON, of the kinds that the table has.
fn extended(json: &Json) -> Bson {
    let object = match json {
        Json::Bool(truth) => return Bson::Boolean(*truth),
        Json::String(text) => return Bson::String(text.clone()),
        Json::Array(values) => return Bson::Array(values.iter().map(extended).collect()),
        Json::Number(number) => {
            let whole = number.as_i64().map(|n| Bson::Int32(n as i32));
            return whole.unwrap_or_else(|| Bson::Double(number.as_f64().unwrap()));
        }
        Json::Null => return Bson::Null,
        Json::Object(object) => object,
    };
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let Some((name, value)) = object.iter().next() else { return Bson::Document(Document::new()) };
    match name.as_str() {
        "$numberLong" => Bson::Int64(text(value).parse().unwrap()),
        "$numberDouble" => Bson::Double(text(value).replace("Infinity", "inf").parse().unwrap()),
        "$minKey" => Bson::MinKey,
        "$maxKey" => Bson::MaxKey,
        "$undefined" => Bson::Undefined,
        "$oid" => Bson::ObjectId(ObjectId::parse_str(text(value)).unwrap()),
        "$date" => Bson::DateTime(bson::DateTime::from_millis(text(&value["$numberLong"]).parse().unwrap())),
        "$binary" => {
            let subtype = u8::from_str_radix(value["subType"].as_str().unwrap(), 16).unwrap();
            Bson::Binary(bson::Binary::from_base64(text(&value["base64"]), BinarySubtype::from(subtype)).unwrap())
        }
        "$regularExpression" => Bson::RegularExpression(bson::Regex {
            pattern: text(&value["pattern"]).try_into().unwrap(),
            options: text(&value["options"]).try_into().unwrap(),
        }),
        "$code" => match object.get("$scope") {
            None => Bson::JavaScriptCode(text(value)),
            Some(scope) => Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
                code: text(value),
                scope: extended(scope).as_document().unwrap().clone(),
            }),
        },
        _ => Bson::Document(object.iter().map(|(name, value)| (name.clone(), extended(value))).collect()),
    }
}

/// The table in docs/keys.md is what the code computes. Fails if either changes.
#[test]
fn the_vectors_are_as_drawn() {
    let drawn = include_str!("../../../../../docs/keys.md");
    let rows = drawn.split("## Hashes").nth(1).unwrap().lines().filter(|line| line.starts_with("| `"));
    let mut checked = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let json: Json = serde_json::from_str(cells[1]).unwrap();
        let value = extended(&json);
        let (seed, expected) = (cells[2].parse().unwrap(), cells[3].parse::<i64>().unwrap());
        assert_eq!(of(value, seed), expected, "{row}");
        checked += 1;
    }
    assert!(checked >= 30, "{checked} rows");
}

#[test]
fn numbers_hash_as_integers() {
    for (value, integer) in [
        (Bson::Double(42.123), 42),
        (Bson::Double(-1.789), -1),
        (Bson::Double(f64::NAN), 0),
        (Bson::Double(f64::MAX), i64::MAX),
        (Bson::Double(f64::INFINITY), i64::MAX),
        (Bson::Double(f64::NEG_INFINITY), i64::MIN),
        (Bson::Double(BEYOND), i64::MIN),
        (Bson::Double(BEYOND + 2048.0), i64::MAX),
        (decimal("42.4"), 42),
        (decimal("1.5"), 2),
        (decimal("2.5"), 2),
        (decimal("-0"), 0),
        (decimal("NaN"), 0),
        (decimal("1E+40"), i64::MAX),
        (decimal("-Infinity"), i64::MIN),
    ] {
        assert_eq!(of(value.clone(), 0), of(integer, 0), "{value}");
    }
}

#[test]
fn equal_values_hash_in_the_forms_that_are_told() {
    let told = |value: Bson| {
        let document = bson::RawDocumentBuf::try_from(&doc! { "v": value }).unwrap();
        forms(document.get("v").unwrap().unwrap())
    };
    assert_eq!(told(Bson::Int64(i64::MAX)), Forms::One);
    assert_eq!(told(Bson::Double(1.25)), Forms::One);
    assert_eq!(told(Bson::Double(1.5)), Forms::Integers(1, 2));
    assert_eq!(told(decimal("1.5")), Forms::Integers(1, 2));
    assert_eq!(told(Bson::Double(BEYOND)), Forms::Integers(i64::MIN, i64::MAX));
    assert_eq!(told(decimal("9223372036854775808")), Forms::Integers(i64::MIN, i64::MAX));
    assert_eq!(told(Bson::Document(doc! { "a": 1, "b": [2.0] })), Forms::One);
    assert_eq!(told(Bson::Document(doc! { "a": 1, "b": [2.75] })), Forms::Many);
    assert_eq!(told(Bson::String("1.5".into())), Forms::One);
}

#[test]
fn what_is_missing_hashes_as_null() {
    assert_eq!(index_hash(None).unwrap(), index_hash(Some(RawBsonRef::Null)).unwrap());
}

#[test]
fn a_symbol_hashes_as_its_string_and_a_pointer_as_its_bytes() {
    assert_eq!(of(Bson::Symbol("abc".into()), 0), 8_478_485_326_885_698_097);
    // The bytes of a document with a DBPointer, which the crate has no constructor for.
    let id = ObjectId::parse_str("010203040506070809101112").unwrap();
    let body = [&[0x0c, b'p', 0, 2, 0, 0, 0, b'c', 0][..], &id.bytes(), &[0]].concat();
    let bytes = [&(body.len() as i32 + 4).to_le_bytes()[..], &body].concat();
    let document = bson::RawDocumentBuf::from_bytes(bytes).unwrap();
    assert_eq!(hash(document.get("p").unwrap().unwrap(), 0).unwrap(), 940_175_826_736_461_384);
}

#[test]
fn a_field_that_is_malformed_is_an_error_and_no_panic() {
    let mut bytes = rawdoc! { "a": { "b": "c" } }.into_bytes();
    bytes[11] = 0x77;
    if let Ok(document) = RawDocument::from_bytes(&bytes)
        && let Ok(Some(value)) = document.get("a")
    {
        assert!(hash(value, 0).is_err());
    }
    assert_eq!(of(Document::new(), 0), 7_980_500_913_326_740_417);
}
