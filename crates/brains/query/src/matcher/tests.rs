//! What filters match: each test's name is its claim. The cases are those of MongoDB's manual and of its known corners.

use super::{MatchDetails, Matcher};
use crate::Context;
use baton_types::Error;
use bson::raw::RawDocumentBuf;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, Regex, bson, doc};

fn ctx() -> Context {
    Context::new(bson::DateTime::from_millis(0), 7)
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a test's document")
}

fn parse(filter: &Document) -> Result<Matcher, Error> {
    Matcher::parse(&raw(filter), &ctx())
}

fn matches(filter: &Document, document: &Document) -> bool {
    parse(filter).expect("a test's filter").matches(&raw(document)).expect("a test's match")
}

fn assert_matches(filter: Document, yes: &[Document], no: &[Document]) {
    for document in yes {
        assert!(matches(&filter, document), "{filter} must match {document}");
    }
    for document in no {
        assert!(!matches(&filter, document), "{filter} must not match {document}");
    }
}

fn assert_refused(filter: Document, code: i32, part_of_message: &str) {
    let error = parse(&filter).expect_err("the filter is malformed");
    assert_eq!(error.code.0, code, "{filter}: {error}");
    assert!(error.message.contains(part_of_message), "{filter}: {error}");
}

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(Regex {
        pattern: pattern.try_into().expect("no NUL"),
        options: options.try_into().expect("no NUL"),
    })
}

#[test]
fn an_empty_filter_matches_everything() {
    assert_matches(doc! {}, &[doc! {}, doc! { "a": 1 }], &[]);
    assert!(parse(&doc! {}).unwrap().is_always());
}

#[test]
fn equality_compares_numbers_by_value_and_documents_in_order() {
    assert_matches(
        doc! { "a": 1 },
        &[doc! { "a": 1 }, doc! { "a": 1i64 }, doc! { "a": 1.0 }, doc! { "a": [0, 1] }],
        &[doc! { "a": 2 }, doc! { "a": "1" }, doc! {}, doc! { "a": null }, doc! { "a": [[1]] }],
    );
    assert_matches(
        doc! { "a": { "x": 1, "y": 2 } },
        &[doc! { "a": { "x": 1, "y": 2i64 } }, doc! { "a": [{ "x": 1, "y": 2 }] }],
        &[doc! { "a": { "y": 2, "x": 1 } }, doc! { "a": { "x": 1, "y": 2, "z": 3 } }],
    );
    assert_matches(doc! { "a": { "$eq": {} } }, &[doc! { "a": {} }], &[doc! { "a": { "b": 1 } }]);
}

#[test]
fn an_array_equals_itself_or_an_element_of_an_outer_array() {
    assert_matches(
        doc! { "a": [1, 2] },
        &[doc! { "a": [1, 2] }, doc! { "a": [[1, 2], 3] }],
        &[doc! { "a": [2, 1] }, doc! { "a": [1, 2, 3] }, doc! { "a": 1 }],
    );
    assert_matches(doc! { "a": [] }, &[doc! { "a": [] }, doc! { "a": [[]] }], &[doc! { "a": [1] }, doc! {}]);
}

#[test]
fn null_matches_missing_and_undefined() {
    assert_matches(
        doc! { "a": null },
        &[doc! {}, doc! { "a": null }, doc! { "a": Bson::Undefined }, doc! { "a": [1, null] }],
        &[doc! { "a": 0 }, doc! { "a": [] }, doc! { "a": false }],
    );
    assert_matches(
        doc! { "a.b": null },
        &[doc! {}, doc! { "a": 1 }, doc! { "a": {} }, doc! { "a": [{ "b": 1 }, {}] }],
        &[doc! { "a": { "b": 1 } }, doc! { "a": [1, 2] }, doc! { "a": [] }],
    );
    assert_matches(doc! { "a": { "$gte": null } }, &[doc! {}, doc! { "a": null }], &[doc! { "a": 1 }]);
    assert_matches(doc! { "a": { "$gt": null } }, &[], &[doc! {}, doc! { "a": null }, doc! { "a": 1 }]);
    assert_matches(
        doc! { "a": { "$ne": null } },
        &[doc! { "a": 1 }, doc! { "a": [] }],
        &[doc! {}, doc! { "a": [null] }],
    );
    assert_matches(doc! { "a": { "$in": [null, 5] } }, &[doc! {}, doc! { "a": 5 }], &[doc! { "a": 4 }]);
    assert_matches(doc! { "a": { "$nin": [null] } }, &[doc! { "a": 1 }], &[doc! {}]);
}

#[test]
fn comparisons_stay_within_the_type_bracket() {
    assert_matches(
        doc! { "a": { "$gt": 5 } },
        &[doc! { "a": 6 }, doc! { "a": 5.5 }, doc! { "a": i64::MAX }, doc! { "a": [1, 9] }],
        &[doc! { "a": 5 }, doc! { "a": "6" }, doc! { "a": true }, doc! {}, doc! { "a": Bson::MaxKey }],
    );
    assert_matches(
        doc! { "a": { "$lt": "m" } },
        &[doc! { "a": "a" }, doc! { "a": Bson::Symbol("b".into()) }],
        &[doc! { "a": "z" }, doc! { "a": 1 }, doc! { "a": null }],
    );
    assert_matches(doc! { "a": { "$lt": true } }, &[doc! { "a": false }], &[doc! { "a": 0 }, doc! { "a": true }]);
    assert_matches(doc! { "a": { "$gte": [1] } }, &[doc! { "a": [1] }, doc! { "a": [2] }], &[doc! { "a": [0, 9] }]);
    assert_matches(
        doc! { "a": { "$lt": 9i64, "$gt": 3.5 } },
        &[doc! { "a": 4 }, doc! { "a": [1, 10] }],
        &[doc! { "a": 3 }],
    );
}

#[test]
fn min_key_and_max_key_bound_everything() {
    assert_matches(
        doc! { "a": { "$gt": Bson::MinKey } },
        &[doc! {}, doc! { "a": 1 }, doc! { "a": Bson::MaxKey }],
        &[doc! { "a": Bson::MinKey }],
    );
    assert_matches(doc! { "a": { "$gte": Bson::MinKey } }, &[doc! {}, doc! { "a": Bson::MinKey }], &[]);
    assert_matches(doc! { "a": { "$lt": Bson::MaxKey } }, &[doc! { "a": "x" }, doc! {}], &[doc! { "a": Bson::MaxKey }]);
    assert_matches(doc! { "a": { "$lt": Bson::MinKey } }, &[], &[doc! { "a": 1 }, doc! { "a": Bson::MinKey }]);
}

#[test]
fn nan_equals_nan_and_is_neither_less_nor_greater() {
    let nan = f64::NAN;
    assert_matches(doc! { "a": nan }, &[doc! { "a": nan }], &[doc! { "a": 0 }, doc! {}]);
    assert_matches(doc! { "a": { "$lt": 5 } }, &[doc! { "a": 1 }], &[doc! { "a": nan }]);
    assert_matches(
        doc! { "a": { "$gte": nan } },
        &[doc! { "a": nan }],
        &[doc! { "a": 1 }, doc! { "a": f64::INFINITY }],
    );
    assert_matches(doc! { "a": { "$gt": nan } }, &[], &[doc! { "a": nan }, doc! { "a": 1 }]);
    assert_matches(doc! { "a": { "$in": [nan] } }, &[doc! { "a": nan }], &[doc! { "a": 1 }]);
}

#[test]
fn paths_reach_through_arrays_by_name_and_by_number() {
    assert_matches(
        doc! { "a.b": 1 },
        &[doc! { "a": { "b": 1 } }, doc! { "a": [{ "b": 2 }, { "b": 1 }] }, doc! { "a": [{ "b": [1] }] }],
        &[doc! { "a": [[{ "b": 1 }]] }, doc! { "a": [1] }],
    );
    assert_matches(
        doc! { "a.0": 1 },
        &[doc! { "a": [1, 2] }, doc! { "a": { "0": 1 } }, doc! { "a": [9, { "0": 1 }] }],
        &[doc! { "a": [2, 1] }, doc! { "a": [[1]] }],
    );
    assert_matches(doc! { "a.1.b": 4 }, &[doc! { "a": [0, { "b": 4 }] }], &[doc! { "a": [{ "b": 4 }] }]);
    assert_matches(doc! { "a.0.1": 7 }, &[doc! { "a": [[6, 7]] }], &[doc! { "a": [[7, 6]] }]);
    // Two conditions on one array may be met by different elements.
    assert_matches(doc! { "a.b": 1, "a.c": 2 }, &[doc! { "a": [{ "b": 1 }, { "c": 2 }] }], &[]);
}

#[test]
fn logical_operators_combine() {
    assert_matches(doc! { "$and": [{ "a": 1 }, { "b": 2 }] }, &[doc! { "a": 1, "b": 2 }], &[doc! { "a": 1 }]);
    assert_matches(doc! { "$or": [{ "a": 1 }, { "b": 2 }] }, &[doc! { "a": 1 }, doc! { "b": 2 }], &[doc! { "a": 2 }]);
    assert_matches(doc! { "$nor": [{ "a": 1 }, { "b": 2 }] }, &[doc! {}, doc! { "a": 2 }], &[doc! { "b": 2 }]);
    assert_matches(
        doc! { "a": { "$not": { "$gt": 5 } } },
        &[doc! { "a": 5 }, doc! {}, doc! { "a": "x" }],
        &[doc! { "a": 6 }],
    );
    assert_matches(doc! { "a": { "$not": regex("^x", "") } }, &[doc! { "a": "ax" }, doc! {}], &[doc! { "a": "xa" }]);
    assert_matches(doc! { "a": { "$ne": 1 } }, &[doc! {}, doc! { "a": [2] }], &[doc! { "a": [1, 2] }]);
    assert_matches(doc! { "$alwaysTrue": 1 }, &[doc! {}], &[]);
    assert_matches(doc! { "$alwaysFalse": 1 }, &[], &[doc! {}]);
    assert_matches(doc! { "$comment": "why", "a": { "$gt": 1, "$comment": "how" } }, &[doc! { "a": 2 }], &[doc! {}]);
}

#[test]
fn membership_finds_values_and_regular_expressions() {
    assert_matches(
        doc! { "a": { "$in": [1, "x", regex("^ab", "i"), [7]] } },
        &[doc! { "a": 1.0 }, doc! { "a": "x" }, doc! { "a": "ABC" }, doc! { "a": [7] }, doc! { "a": ["q", "abz"] }],
        &[doc! { "a": 2 }, doc! { "a": 7 }, doc! {}, doc! { "a": "cab" }],
    );
    assert_matches(doc! { "a": { "$in": [] } }, &[], &[doc! {}, doc! { "a": 1 }]);
    assert_matches(doc! { "a": { "$nin": [1, 2] } }, &[doc! { "a": 3 }, doc! {}], &[doc! { "a": [3, 2] }]);
}

#[test]
fn exists_and_type_look_at_presence_and_type() {
    assert_matches(doc! { "a": { "$exists": true } }, &[doc! { "a": null }, doc! { "a": [] }], &[doc! { "b": 1 }]);
    assert_matches(doc! { "a": { "$exists": 0 } }, &[doc! {}], &[doc! { "a": null }]);
    assert_matches(
        doc! { "a.b": { "$exists": false } },
        &[doc! { "a": [1] }, doc! { "a": [] }],
        &[doc! { "a": [{ "b": 1 }] }],
    );
    assert_matches(
        doc! { "a": { "$type": "number" } },
        &[doc! { "a": 1 }, doc! { "a": 1.5 }, doc! { "a": 1i64 }, doc! { "a": ["x", 1] }],
        &[doc! { "a": "1" }, doc! {}],
    );
    assert_matches(doc! { "a": { "$type": "array" } }, &[doc! { "a": [] }, doc! { "a": [[1]] }], &[doc! { "a": 1 }]);
    assert_matches(
        doc! { "a": { "$type": [2, "bool"] } },
        &[doc! { "a": "x" }, doc! { "a": true }],
        &[doc! { "a": 1 }],
    );
    assert_matches(doc! { "a": { "$type": -1 } }, &[doc! { "a": Bson::MinKey }], &[doc! { "a": Bson::MaxKey }]);
    assert_matches(doc! { "a": { "$type": 10 } }, &[doc! { "a": null }], &[doc! {}]);
}

#[test]
fn array_operators_see_whole_arrays() {
    assert_matches(
        doc! { "a": { "$all": ["x", "y"] } },
        &[doc! { "a": ["y", "z", "x"] }],
        &[doc! { "a": ["x"] }, doc! { "a": "x" }],
    );
    assert_matches(
        doc! { "a": { "$all": [[1, 2]] } },
        &[doc! { "a": [1, 2] }, doc! { "a": [[1, 2]] }],
        &[doc! { "a": [1] }],
    );
    assert_matches(doc! { "a": { "$all": [] } }, &[], &[doc! { "a": [] }]);
    assert_matches(
        doc! { "a": { "$all": [{ "$elemMatch": { "b": 1, "c": 1 } }, { "$elemMatch": { "b": 2 } }] } },
        &[doc! { "a": [{ "b": 1, "c": 1 }, { "b": 2 }] }],
        &[doc! { "a": [{ "b": 1 }, { "c": 1 }, { "b": 2 }] }],
    );
    assert_matches(
        doc! { "a": { "$size": 2 } },
        &[doc! { "a": [1, 2] }],
        &[doc! { "a": [[1, 2]] }, doc! { "a": 2 }, doc! {}],
    );
    assert_matches(
        doc! { "a": { "$elemMatch": { "b": 1, "c": { "$gt": 1 } } } },
        &[doc! { "a": [{ "b": 1, "c": 2 }] }],
        &[doc! { "a": [{ "b": 1 }, { "c": 2 }] }, doc! { "a": { "b": 1, "c": 2 } }],
    );
    assert_matches(
        doc! { "a": { "$elemMatch": { "$gt": 3, "$lt": 5 } } },
        &[doc! { "a": [1, 4] }],
        &[doc! { "a": [1, 9] }, doc! { "a": 4 }],
    );
    assert_matches(
        doc! { "a": { "$elemMatch": { "$elemMatch": { "$eq": 1 } } } },
        &[doc! { "a": [[1]] }],
        &[doc! { "a": [1] }],
    );
    assert_matches(
        doc! { "a": { "$elemMatch": { "$not": { "$gt": 3 } } } },
        &[doc! { "a": [9, 1] }],
        &[doc! { "a": [9] }],
    );
    assert_matches(
        doc! { "a": { "$elemMatch": { "$or": [{ "b": 1 }, { "c": 1 }] } } },
        &[doc! { "a": [{ "c": 1 }] }],
        &[doc! { "a": [{}] }],
    );
    assert_matches(doc! { "a": { "$elemMatch": { "0": 5 } } }, &[doc! { "a": [[5, 6]] }], &[doc! { "a": [[6, 5]] }]);
}

#[test]
fn modulo_cuts_towards_zero() {
    assert_matches(
        doc! { "a": { "$mod": [4, 0] } },
        &[doc! { "a": 8 }, doc! { "a": 0 }, doc! { "a": 4.7 }, doc! { "a": -4 }, doc! { "a": [1, 12] }],
        &[doc! { "a": 5 }, doc! { "a": "4" }, doc! { "a": f64::NAN }, doc! { "a": 1e300 }, doc! {}],
    );
    assert_matches(doc! { "a": { "$mod": [-1, 0] } }, &[doc! { "a": i64::MIN }], &[]);
    assert_matches(doc! { "a": { "$mod": [4.9, 1] } }, &[doc! { "a": 5 }], &[doc! { "a": 6 }]);
}

#[test]
fn bit_tests_read_numbers_and_binary_data() {
    let binary = |bytes: Vec<u8>| Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes });
    assert_matches(
        doc! { "a": { "$bitsAllSet": [1, 5] } },
        &[doc! { "a": 54 }, doc! { "a": 54.0 }, doc! { "a": binary(vec![0x36]) }, doc! { "a": -1 }],
        &[doc! { "a": 20 }, doc! { "a": 54.5 }, doc! { "a": "54" }, doc! {}],
    );
    assert_matches(doc! { "a": { "$bitsAnyClear": 35 } }, &[doc! { "a": 20 }], &[doc! { "a": 35 }, doc! { "a": 99 }]);
    assert_matches(doc! { "a": { "$bitsAllClear": binary(vec![0x20]) } }, &[doc! { "a": 20 }], &[doc! { "a": 54 }]);
    assert_matches(
        doc! { "a": { "$bitsAnySet": [200] } },
        &[doc! { "a": -5 }],
        &[doc! { "a": 5 }, doc! { "a": binary(vec![255]) }],
    );
}

#[test]
fn regular_expressions_speak_pcre() {
    for (pattern, options, yes, no) in [
        ("^ab", "", vec!["abc"], vec!["xab", "AB"]),
        ("AB", "i", vec!["xaby"], vec!["a b"]),
        ("^b$", "m", vec!["a\nb\nc"], vec!["a b"]),
        ("a.c", "s", vec!["a\nc"], vec!["ac"]),
        ("a.c", "", vec!["axc"], vec!["a\nc"]),
        ("a b # c", "x", vec!["ab"], vec!["a b"]),
        ("a[ ]b", "x", vec!["a b"], vec!["ab"]),
        ("b$", "", vec!["ab", "ab\n"], vec!["ab\nc"]),
        (r"^\w+$", "", vec!["a_1"], vec!["é", ""]),
        (r"[\w.-]x", "", vec!["-x", ".x"], vec!["+x"]),
        (r"\Qa.b\E", "", vec!["xa.by"], vec!["axb"]),
        (r"\d{2,}", "", vec!["12"], vec!["1", "٣٣"]),
        ("a{", "", vec!["a{"], vec!["a"]),
        ("[[]x[&&]", "", vec!["[x&"], vec!["x"]),
        (r"(a)\1", "", vec!["aa"], vec!["ab"]),
        ("foo(?!bar)", "", vec!["foob"], vec!["foobar"]),
        ("(?<=a)b", "", vec!["ab"], vec!["cb"]),
        (r"\<b\>", "", vec!["<b>"], vec!["b"]),
        ("[[:digit:]z-]", "", vec!["4", "-", "z"], vec!["q"]),
        ("[]a]", "", vec!["]"], vec!["b"]),
        (r"^\S+@\S+\.com$", "", vec!["x@y.com"], vec!["x @y.com"]),
        ("ÄÖ", "i", vec!["äö"], vec!["ao"]),
    ] {
        let filter = doc! { "a": { "$regex": pattern, "$options": options } };
        for text in yes {
            assert!(matches(&filter, &doc! { "a": text }), "/{pattern}/{options} must find {text:?}");
        }
        for text in no {
            assert!(!matches(&filter, &doc! { "a": text }), "/{pattern}/{options} must not find {text:?}");
        }
    }
    assert_matches(
        doc! { "a": regex("x", "i") },
        &[doc! { "a": regex("x", "i") }, doc! { "a": ["X"] }],
        &[doc! { "a": regex("x", "") }, doc! { "a": 1 }],
    );
    // Options that stand first and are empty give way.
    assert_matches(
        doc! { "a": { "$options": "", "$regex": regex("x", "i") } },
        &[doc! { "a": "X" }],
        &[doc! { "a": "y" }],
    );
    assert_matches(doc! { "a": { "$options": "i", "$regex": "x" } }, &[doc! { "a": "X" }], &[doc! { "a": "y" }]);
    assert_matches(doc! { "a": { "$eq": regex("x", "") } }, &[doc! { "a": regex("x", "") }], &[doc! { "a": "x" }]);
}

#[test]
fn a_search_that_goes_back_without_end_fails_and_does_not_pass_for_not_found() {
    let bomb = "a".repeat(40) + "!";
    for filter in [
        doc! { "a": { "$regex": "^(a+)+$" } },
        doc! { "a": { "$not": regex("^(a+)+$", "") } },
        doc! { "a": { "$in": [1, regex("^(a+)+$", "")] } },
        doc! { "$jsonSchema": { "properties": { "a": { "pattern": "^(a+)+$" } } } },
    ] {
        let error = parse(&filter).unwrap().matches(&raw(&doc! { "a": &bomb })).unwrap_err();
        let message = "Error occurred while executing the regular expression '^(a+)+$': match limit exceeded";
        assert_eq!((error.code.0, error.message.as_str()), (51156, message), "{filter}");
    }
    // A pattern that explodes when compiled is refused as malformed, not compiled.
    let explosive = doc! { "a": { "$regex": "((a{1,1000}){1,1000}){1,1000}" } };
    assert_refused(explosive, 51091, "Regular expression is invalid: regular expression is too large");
}

#[test]
fn the_position_is_that_of_the_last_conjunct_that_entered_an_array() {
    let position =
        |filter: Document, document: Document| parse(&filter).unwrap().matches_with_position(&raw(&document)).unwrap();
    let at = |i| Some(MatchDetails { array_index: i });
    assert_eq!(position(doc! { "a": 2 }, doc! { "a": [1, 2] }), at(Some(1)));
    assert_eq!(position(doc! { "a": 3 }, doc! { "a": [1, 2] }), None);
    assert_eq!(position(doc! { "a.b": 2 }, doc! { "a": [{ "b": 1 }, { "b": [0, 2] }] }), at(Some(1)));
    assert_eq!(position(doc! { "a": { "$elemMatch": { "b": 2 } } }, doc! { "a": [{}, {}, { "b": 2 }] }), at(Some(2)));
    assert_eq!(position(doc! { "a": 2, "b": 7 }, doc! { "a": [1, 2], "b": [7] }), at(Some(0)));
    assert_eq!(position(doc! { "a": [1, 2] }, doc! { "a": [1, 2] }), at(None));
    assert_eq!(position(doc! { "a.1": 2 }, doc! { "a": [1, 2] }), at(None));
    assert_eq!(position(doc! { "$or": [{ "a": 2 }, { "a": 5 }] }, doc! { "a": [1, 2] }), at(None));
}

#[test]
fn a_json_schema_restricts_what_it_speaks_of() {
    let schema = doc! { "$jsonSchema": {
        "bsonType": "object", "title": "student", "required": ["name", "year"], "additionalProperties": false,
        "properties": {
            "_id": {},
            "name": { "bsonType": "string", "minLength": 2, "maxLength": 5, "pattern": "^A", "description": "…" },
            "year": { "bsonType": ["int", "long"], "minimum": 2017, "maximum": 3017, "exclusiveMaximum": true },
            "tags": { "type": "array", "items": { "enum": ["x", "y"] }, "uniqueItems": true, "maxItems": 2 },
            "address": { "anyOf": [{ "type": "string" }, { "type": "object", "minProperties": 1 }] },
            "card": {},
            "billing": {},
        },
        "patternProperties": { "^n_": { "type": "number", "multipleOf": 2 } },
        "dependencies": { "card": ["billing"] },
    } };
    let ok = doc! { "_id": 1, "name": "Anna", "year": 2020 };
    let with = |name: &str, value: Bson| {
        let mut document = ok.clone();
        document.insert(name, value);
        document
    };
    assert_matches(
        schema,
        &[
            ok.clone(),
            with("tags", bson!(["x", "y"])),
            with("address", bson!({ "street": 1 })),
            with("n_a", bson!(4)),
            doc! { "name": "Anna", "year": 2020, "card": 1, "billing": 2 },
        ],
        &[
            doc! { "name": "Anna" },
            with("name", bson!("A")),
            with("name", bson!("Bernd")),
            with("name", bson!("Ananassaft")),
            with("year", bson!(3017)),
            with("year", bson!("2020")),
            with("tags", bson!(["x", "x"])),
            with("tags", bson!(["z"])),
            with("tags", bson!("x")),
            with("address", bson!({})),
            with("address", bson!(1)),
            with("n_a", bson!(3)),
            with("card", bson!(1)),
            with("other", bson!(1)),
        ],
    );
    assert_matches(doc! { "$jsonSchema": { "not": { "required": ["a"] } } }, &[doc! {}], &[doc! { "a": 1 }]);
    assert_matches(
        doc! { "$jsonSchema": { "properties": { "a": { "items": [{ "type": "number" }], "additionalItems": false } } } },
        &[doc! { "a": [1] }, doc! { "a": "x" }],
        &[doc! { "a": ["x"] }, doc! { "a": [1, 2] }],
    );
    assert_refused(doc! { "$jsonSchema": { "foo": 1 } }, 9, "Unknown $jsonSchema keyword: foo");
    assert_refused(doc! { "$jsonSchema": { "required": [] } }, 9, "cannot be an empty array");
    assert_refused(doc! { "$jsonSchema": { "minimum": "x" } }, 14, "'minimum' must be a number");
    assert_refused(doc! { "$jsonSchema": { "type": "integer" } }, 9, "'integer' is not currently supported");
}

#[test]
fn a_json_schema_divides_in_decimal() {
    let multiple = |of: Bson| doc! { "$jsonSchema": { "properties": { "a": { "multipleOf": of } } } };
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    assert_matches(
        multiple(bson!(0.1)),
        &[
            doc! { "a": 0.3 },
            doc! { "a": 0.7 },
            doc! { "a": 4 },
            doc! { "a": decimal("1.1") },
            doc! { "a": -0.2 },
            doc! {},
        ],
        &[doc! { "a": 0.35 }, doc! { "a": decimal("1.11") }, doc! { "a": f64::NAN }, doc! { "a": f64::INFINITY }],
    );
    assert_matches(multiple(decimal("0.01")), &[doc! { "a": 19.99 }, doc! { "a": 1e9 }], &[doc! { "a": 19.995 }]);
    assert_matches(multiple(bson!(1.5)), &[doc! { "a": 3 }, doc! { "a": 4.5 }], &[doc! { "a": 4 }]);
}

#[test]
fn a_json_schema_compares_documents_whatever_the_order_of_their_fields() {
    let schema = |rule: Document| doc! { "$jsonSchema": { "properties": { "a": rule } } };
    assert_matches(
        schema(doc! { "enum": [{ "x": 1, "y": [{ "z": 1, "w": 2 }] }, 5] }),
        &[doc! { "a": { "y": [{ "w": 2, "z": 1.0 }], "x": 1 } }, doc! { "a": 5.0 }],
        &[doc! { "a": { "x": 1 } }, doc! { "a": { "x": 1, "y": [{ "z": 1 }, { "w": 2 }] } }],
    );
    assert_matches(
        schema(doc! { "uniqueItems": true }),
        &[doc! { "a": [{ "x": 1, "y": 2 }, { "x": 2, "y": 1 }, 1, "1"] }],
        &[doc! { "a": [{ "x": 1, "y": 2 }, 3, { "y": 2, "x": 1 }] }, doc! { "a": [1, 1.0] }],
    );
}

#[test]
fn malformed_json_schemas_are_refused() {
    let duplicates = bson!([{ "x": 1, "y": 2 }, { "y": 2, "x": 1 }]);
    for (schema, code, text) in [
        (doc! { "minLength": "x" }, 9, "Expected a number in: minLength: \"x\""),
        (doc! { "maxItems": -1 }, 9, "Expected a non-negative number in: maxItems: -1"),
        (doc! { "minProperties": 1.5 }, 9, "Expected an integer: minProperties: 1.5"),
        (doc! { "multipleOf": 0 }, 9, "must have a positive value"),
        (doc! { "multipleOf": "x" }, 14, "'multipleOf' must be a number"),
        (doc! { "anyOf": [] }, 2, "'anyOf' must be a non-empty array"),
        (doc! { "enum": [] }, 9, "'enum' cannot be an empty array"),
        (doc! { "enum": duplicates }, 9, "'enum' array cannot contain duplicate values."),
        (doc! { "bsonType": ["int", "int"] }, 9, "'bsonType' has duplicate value: int"),
        (doc! { "dependencies": { "title": 1 } }, 14, "'dependencies'"),
    ] {
        assert_refused(doc! { "$jsonSchema": { "properties": { "a": schema } } }, code, text);
    }
}

#[test]
fn database_references_are_literals() {
    let reference = doc! { "$ref": "c", "$id": 5 };
    assert_matches(doc! { "a": reference.clone() }, &[doc! { "a": reference.clone() }], &[doc! { "a": 5 }]);
    assert_matches(doc! { "a.$id": 5 }, &[doc! { "a": reference.clone() }], &[doc! { "a": 5 }]);
    assert_matches(doc! { "a": { "$in": [reference.clone()] } }, &[doc! { "a": reference }], &[]);
}

#[test]
fn sampling_follows_the_rate() {
    let count = |rate: f64| {
        let matcher = parse(&doc! { "$sampleRate": rate }).unwrap();
        (0..10_000).filter(|_| matcher.matches(&raw(&doc! {})).unwrap()).count()
    };
    assert_eq!(count(0.0), 0);
    assert_eq!(count(1.0), 10_000);
    assert!((4_500..5_500).contains(&count(0.5)));
}

#[test]
fn malformed_filters_are_refused_with_mongodbs_errors() {
    for (filter, code, message) in [
        (doc! { "a": { "$foo": 1 } }, 2, "unknown operator: $foo"),
        (doc! { "a": { "$gt": 1, "b": 2 } }, 2, "unknown operator: b"),
        (doc! { "$foo": 1 }, 2, "unknown top level operator: $foo"),
        (doc! { "$not": { "a": 1 } }, 2, "If you are trying to negate an entire expression, use $nor."),
        (doc! { "a": { "$where": "1" } }, 2, "$where cannot be applied to a field"),
        (doc! { "a": { "$elemMatch": { "$sampleRate": 1 } } }, 2, "$sampleRate can only be applied to the top-level"),
        (doc! { "a.".repeat(180) + "a": 1 }, 5_729_100, "FieldPath is too long"),
        (doc! { "a": { "$options": "m", "$regex": regex("a", "i") } }, 51074, "options set in both"),
        (doc! { "a": { "$regex": regex("a", "i"), "$options": "" } }, 51075, "options set in both"),
        (doc! { "$and": 1 }, 2, "$and must be an array"),
        (doc! { "$or": [] }, 2, "$and/$or/$nor must be a nonempty array"),
        (doc! { "$nor": [1] }, 2, "$or/$and/$nor entries need to be full objects"),
        (doc! { "a": { "$in": 1 } }, 2, "$in needs an array"),
        (doc! { "a": { "$nin": {} } }, 2, "$nin needs an array"),
        (doc! { "a": { "$in": [{ "$gt": 1 }] } }, 2, "cannot nest $ under $in"),
        (doc! { "a": { "$not": 1 } }, 2, "$not needs a regex or a document"),
        (doc! { "a": { "$not": {} } }, 2, "$not cannot be empty"),
        (doc! { "a": { "$ne": regex("x", "") } }, 2, "Can't have regex as arg to $ne."),
        (doc! { "a": { "$gt": regex("x", "") } }, 2, "Can't have RegEx as arg to predicate over field 'a'."),
        (doc! { "a": Bson::Undefined }, 2, "cannot compare to undefined"),
        (doc! { "a": { "$size": -1 } }, 2, "Failed to parse $size. Expected a non-negative number in: $size: -1"),
        (doc! { "a": { "$size": 1.5 } }, 2, "Failed to parse $size. Expected an integer: $size: 1.5"),
        (doc! { "a": { "$size": "2" } }, 2, "Failed to parse $size. Expected a number in: $size: \"2\""),
        (doc! { "a": { "$all": 1 } }, 2, "$all needs an array"),
        (doc! { "a": { "$all": [1, { "$elemMatch": {} }] } }, 2, "no $ expressions in $all"),
        (doc! { "a": { "$all": [{ "$gt": 1 }] } }, 2, "no $ expressions in $all"),
        (doc! { "a": { "$elemMatch": 1 } }, 2, "$elemMatch needs an Object"),
        (doc! { "a": { "$mod": 1 } }, 2, "malformed mod, needs to be an array"),
        (doc! { "a": { "$mod": [1] } }, 2, "malformed mod, not enough elements"),
        (doc! { "a": { "$mod": [1, 2, 3] } }, 2, "malformed mod, too many elements"),
        (doc! { "a": { "$mod": ["x", 2] } }, 2, "malformed mod, divisor not a number"),
        (doc! { "a": { "$mod": [0, 2] } }, 2, "divisor cannot be 0"),
        (doc! { "a": { "$mod": [f64::NAN, 2] } }, 2, "NaN is an invalid argument"),
        (doc! { "a": { "$type": "foo" } }, 2, "Unknown type name alias: foo"),
        (doc! { "a": { "$type": 99 } }, 2, "Invalid numerical type code: 99"),
        (doc! { "a": { "$type": {} } }, 14, "type must be represented as a number or a string"),
        (doc! { "a.b": { "$type": [] } }, 9, "a.b must match at least one type"),
        (doc! { "a": { "$ref": "c" } }, 2, "unknown operator: $ref"),
        (doc! { "a": { "$id": 1, "$db": "d" } }, 2, "unknown operator: $id"),
        (doc! { "a": { "$regex": "(" } }, 51091, "Regular expression is invalid: missing closing parenthesis"),
        (
            doc! { "a": { "$regex": "[a" } },
            51091,
            "Regular expression is invalid: missing terminating ] for character class",
        ),
        (doc! { "a": { "$regex": "a\\" } }, 51091, "Regular expression is invalid: \\ at end of pattern"),
        (
            doc! { "a": { "$regex": "*" } },
            51091,
            "Regular expression is invalid: quantifier does not follow a repeatable item",
        ),
        // Perl takes the hyphen for itself, with a warning; PCRE2 cannot warn.
        (
            doc! { "a": { "$regex": r"[\w-.]" } },
            51091,
            "Regular expression is invalid: invalid range in character class",
        ),
        (doc! { "a": regex("a**b(", "") }, 51091, "Regular expression is invalid"),
        (doc! { "a": { "$regex": "a\0b" } }, 2, "embedded null byte"),
        (doc! { "a": { "$regex": "a", "$options": "z" } }, 51108, "invalid flag in regex options: z"),
        (doc! { "a": { "$regex": 1 } }, 2, "$regex has to be a string"),
        (doc! { "a": { "$options": "i" } }, 2, "$options needs a $regex"),
        (
            doc! { "a": { "$regex": regex("a", "i"), "$options": "m" } },
            51075,
            "options set in both $regex and $options",
        ),
        (doc! { "a": { "$bitsAllSet": "x" } }, 2, "$bitsAllSet takes an Array, a number, or a BinData but received"),
        (doc! { "a": { "$bitsAllSet": -1 } }, 9, "Expected a non-negative number in: $bitsAllSet: -1"),
        (doc! { "a": { "$bitsAnySet": [-1] } }, 2, "Failed to parse bit position"),
        (doc! { "a": { "$near": [0, 0] } }, 238, "$near"),
        (doc! { "a": { "$geoWithin": {} } }, 238, "$geoWithin"),
        (doc! { "$text": { "$search": "x" } }, 238, "$text"),
        (doc! { "$where": "true" }, 2, "$where"),
        (doc! { "$alwaysTrue": 2 }, 9, "$alwaysTrue must be an integer value of 1"),
        (doc! { "$sampleRate": 2 }, 2, "must be in [0, 1]"),
        (doc! { "a": { "$elemMatch": { "$expr": true } } }, 2, "$expr can only be applied to the top-level document"),
    ] {
        assert_refused(filter, code, message);
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| (0..depth).fold(doc! { "a": 1 }, |inner, _| doc! { "$and": [inner, { "b": 1 }] });
    assert!(parse(&nested(90)).is_ok());
    assert_refused(nested(101), 2, "exceeded maximum query tree depth");
    let negated = (0..120).fold(doc! { "$gt": 1 }, |inner, _| doc! { "$not": inner });
    assert_refused(doc! { "a": negated }, 2, "exceeded maximum query tree depth");
}

#[test]
fn equalities_are_what_an_upsert_starts_from() {
    let equalities = |filter: Document| parse(&filter).unwrap().equalities();
    let names = |filter| equalities(filter).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(
        names(
            doc! { "_id": 1, "a.b": "x", "c": { "$gt": 1 }, "d": { "$in": [4] }, "e": { "$all": [1] }, "f": regex("x", "") }
        ),
        ["_id", "a.b", "d", "e"]
    );
    assert_eq!(names(doc! { "$and": [{ "a": 1 }, { "$and": [{ "b": 2 }] }], "$or": [{ "c": 1 }] }), ["a", "b", "c"]);
    assert_eq!(names(doc! { "$or": [{ "a": 1 }, { "b": 1 }], "c": { "$ne": 1 } }), [] as [&str; 0]);
    for filter in [doc! { "$and": [{ "a": 1 }, { "a": 2 }] }, doc! { "a": 1, "a.b": 2 }] {
        assert_eq!(equalities(filter).unwrap_err().code.0, 54);
    }
}

#[test]
fn a_constant_is_given_back_as_it_was_whatever_its_type_and_size() {
    let id = bson::oid::ObjectId::from_bytes([7; 12]);
    for value in [
        Bson::from("user1"),
        Bson::from(""),
        Bson::from("x".repeat(22)),
        Bson::from("x".repeat(23)),
        Bson::from("x".repeat(24)),
        Bson::from("x".repeat(1000)),
        Bson::Symbol("user1".to_owned()),
        Bson::from(id),
        Bson::from(1),
        Bson::from(1_i64),
        Bson::from(1.0),
        Bson::Null,
        Bson::from(true),
        Bson::from(bson::Uuid::from_bytes([7; 16])),
        Bson::from(doc! { "a": "b" }),
        Bson::from(vec![1, 2]),
    ] {
        let matcher = parse(&doc! { "_id": value.clone() }).unwrap();
        assert!(matches(&doc! { "_id": value.clone() }, &doc! { "_id": value.clone() }), "{value}");
        assert!(!matches(&doc! { "_id": value.clone() }, &doc! { "_id": "user2" }), "{value}");
        assert_eq!(matcher.equalities().unwrap(), [("_id".to_owned(), value.clone())]);
        assert_eq!(matcher.to_document(), doc! { "_id": { "$eq": value.clone() } });
        let sole = crate::planner::sole_id(&matcher).map(|id| Bson::try_from(id).unwrap());
        assert_eq!(sole, (!matches!(value, Bson::Array(_))).then_some(value));
    }
}

#[test]
fn operators_apply_to_values_for_pull() {
    let matcher = Matcher::parse_operators(&raw(&doc! { "$gte": 5, "$ne": 7 }), &ctx()).unwrap();
    let holds = |value: Bson| {
        let holder = raw(&doc! { "v": value });
        matcher.matches_value(holder.get("v").unwrap().unwrap()).unwrap()
    };
    assert!(holds(bson!(6)));
    assert!(!holds(bson!(7)));
    assert!(!holds(bson!([6])));
    let fields = parse(&doc! { "a": 1 }).unwrap();
    let holder = raw(&doc! { "v": { "a": [1] }, "w": 1 });
    assert!(fields.matches_value(holder.get("v").unwrap().unwrap()).unwrap());
    assert!(!fields.matches_value(holder.get("w").unwrap().unwrap()).unwrap());
}

#[test]
fn the_normal_form_shows_positive_operators_below_a_not() {
    for (filter, normal) in [
        (doc! {}, doc! {}),
        (doc! { "a": 1 }, doc! { "a": { "$eq": 1 } }),
        (
            doc! { "a": 1, "b": { "$ne": 2 } },
            doc! { "$and": [{ "a": { "$eq": 1 } }, { "b": { "$not": { "$eq": 2 } } }] },
        ),
        (doc! { "a": { "$in": [3, 1, 3] } }, doc! { "a": { "$in": [1, 3] } }),
        (
            doc! { "a": { "$elemMatch": { "$gt": 1, "$lt": 3 } } },
            doc! { "a": { "$elemMatch": { "$gt": 1, "$lt": 3 } } },
        ),
        (doc! { "$or": [{ "a": 1 }] }, doc! { "a": { "$eq": 1 } }),
    ] {
        assert_eq!(parse(&filter).unwrap().to_document(), normal);
    }
}
