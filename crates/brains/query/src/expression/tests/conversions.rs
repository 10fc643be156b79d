//! `$convert`, its shorthands, and `$type`.

use super::*;
use bson::oid::ObjectId;

#[test]
fn values_convert_by_mongodbs_table() {
    let id = ObjectId::parse_str("5ab9cbfa31c2ab715d42129e").unwrap();
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    yields(
        doc! {"n": null, "t": DateTime::from_millis(1_500_000_000_000), "id": id, "dec": decimal("5.5")},
        cases![
            {"$toInt": "42"} => 42,
            {"$toInt": 5.9} => 5,
            {"$toInt": "$dec"} => 5,
            {"$toInt": true} => 1,
            {"$toInt": "$n"} => null,
            {"$toLong": "-9"} => (-9i64),
            {"$toLong": "$t"} => 1_500_000_000_000i64,
            {"$toDouble": "1.5e2"} => 150.0,
            {"$toDouble": "$dec"} => 5.5,
            {"$toDecimal": "1.10"} => (decimal("1.10")),
            {"$toBool": "false"} => true,
            {"$toBool": 0} => false,
            {"$toBool": "$none"} => null,
            {"$toString": 2.5} => "2.5",
            {"$toString": 1.0} => "1",
            {"$toString": 1e21} => "1e+21",
            {"$toString": 1e16} => "1e+16",
            {"$toString": 1234567890123456.0} => "1234567890123456",
            {"$toString": 9e-05} => "9e-05",
            {"$toString": (-1.5e-7)} => "-1.5e-07",
            {"$toString": 0.0001} => "0.0001",
            {"$toString": 1e6} => "1000000",
            {"$toString": (-0.0)} => "-0",
            {"$toString": true} => "true",
            {"$toString": "$id"} => "5ab9cbfa31c2ab715d42129e",
            {"$toString": "$t"} => "2017-07-14T02:40:00.000Z",
            {"$toString": "$dec"} => "5.5",
            {"$toObjectId": "5ab9cbfa31c2ab715d42129e"} => id,
            {"$toDate": 1_500_000_000_000i64} => (DateTime::from_millis(1_500_000_000_000)),
            {"$toDate": "$id"} => (id.timestamp()),
            {"$toDate": "2017-07-14T02:40:00Z"} => (DateTime::from_millis(1_500_000_000_000)),
            {"$toDate": "2017-07"} => (DateTime::from_millis(1_498_867_200_000)),
            {"$convert": {"input": "x", "to": "int", "onError": "bad"}} => "bad",
            {"$convert": {"input": "$n", "to": "int", "onNull": 0}} => 0,
            {"$convert": {"input": "7", "to": 16}} => 7,
            {"$convert": {"input": 1, "to": "$n"}} => null,
            {"$type": "$none"} => "missing",
            {"$type": "$t"} => "date",
            {"$type": 1i64} => "long",
            {"$type": [[]]} => "array",
            {"$isNumber": "$dec"} => true,
            {"$isNumber": "1"} => false,
        ],
    );
}

#[test]
fn what_does_not_convert_fails_with_the_reason() {
    fails(
        doc! {"nan": f64::NAN, "list": [1]},
        failures![
            {"$toInt": "1.5"} => 241 "Failed to parse number '1.5'",
            {"$toInt": ""} => 241 "Failed to parse number ''",
            {"$toInt": 3e9} => 241 "overflow",
            {"$toLong": 1e19} => 241 "overflow",
            {"$toInt": "$nan"} => 241 "NaN",
            {"$toDouble": " 1"} => 241 "Failed to parse number",
            {"$toDate": 5} => 241 "int to date",
            {"$toObjectId": "123"} => 241 "objectId '123'",
            {"$toInt": "$list"} => 241 "Unsupported conversion from array to int",
            {"$convert": {"input": 1, "to": "array"}} => 241 "Unsupported conversion from int to array",
            {"$convert": {"input": 1, "to": "nope"}} => 2 "Unknown type name: nope",
            {"$convert": {"input": 1}} => 9 "Missing 'to'",
            {"$convert": {"input": 1, "to": true}} => 9 "must be a string or number, but is bool",
        ],
    );
}

#[test]
fn an_object_id_tells_its_time_with_a_sign() {
    let id = |hex: &str| ObjectId::parse_str(hex).unwrap();
    yields(
        doc! {"last": id("7fffffff0000000000000000"), "first": id("800000000000000000000000")},
        cases![
            {"$toDate": "$last"} => (DateTime::from_millis(i64::from(i32::MAX) * 1000)),
            {"$toDate": "$first"} => (DateTime::from_millis(i64::from(i32::MIN) * 1000)),
            {"$year": "$first"} => 1901,
        ],
    );
}

#[test]
fn a_number_in_text_has_one_sign() {
    for text in ["+-1", "-+1", "--1", "++1", "-", "+", ""] {
        for operator in ["$toInt", "$toLong"] {
            fails(doc! {}, vec![(bson::bson!({operator: text}), 241, "Failed to parse number")]);
        }
    }
    yields(doc! {}, cases![{"$toInt": "+1"} => 1, {"$toInt": "-1"} => (-1)]);
}
