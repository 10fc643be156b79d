//! Tables of validators, documents, and what MongoDB documents (and tests) to be told of them.

use super::*;
use bson::{DateTime, bson};

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn info(validator: &Document, document: &Document) -> Document {
    let ctx = Context::new(DateTime::from_millis(0), 0);
    let (validator, document) = (raw(validator), raw(document));
    Document::try_from(&*violation(&validator, &document, &ctx).unwrap()).unwrap()
}

#[track_caller]
fn tells(validator: Document, document: Document, details: Document) {
    let matcher = crate::matcher::Matcher::parse(&raw(&validator), &Context::new(DateTime::from_millis(0), 0)).unwrap();
    assert!(!matcher.matches(&raw(&document)).unwrap_or(false), "{document} passes {validator}");
    assert_eq!(info(&validator, &document), doc! { "details": details }, "{validator} of {document}");
}

/// A validator of one path; what is told of it begins with its operator and with the rule itself.
#[track_caller]
fn tells_of_path(operators: Document, document: Document, rest: Document) {
    let operator = operators.keys().next().unwrap().clone();
    let validator = doc! { "a": operators };
    let mut details = doc! { "operatorName": operator, "specifiedAs": validator.clone() };
    details.extend(rest);
    tells(validator, document, details);
}

/// A schema; what is told of it are its rules.
#[track_caller]
fn tells_of_schema(schema: Document, document: Document, rules: Bson) {
    let details = doc! { "operatorName": "$jsonSchema", "schemaRulesNotSatisfied": rules };
    tells(doc! { "$jsonSchema": schema }, document, details);
}

/// A schema of the property `a`; what is told of it are the rules that the property fails.
#[track_caller]
fn tells_of_property(schema: Document, value: impl Into<Bson>, rules: Bson) {
    let told = bson!([{ "operatorName": "properties", "propertiesNotSatisfied": [
        { "propertyName": "a", "details": rules },
    ] }]);
    tells_of_schema(doc! { "properties": { "a": schema } }, doc! { "a": value.into() }, told);
}

#[test]
fn the_document_is_named_by_its_id() {
    let told = info(&doc! { "a": { "$eq": 2 } }, &doc! { "_id": 10, "a": 1 });
    let details = doc! { "operatorName": "$eq", "specifiedAs": { "a": { "$eq": 2 } }, "reason": "comparison failed", "consideredValue": 1 };
    assert_eq!(told, doc! { "failingDocumentId": 10, "details": details });
}

#[test]
fn a_comparison_tells_the_values_it_was_made_with() {
    let failed = "comparison failed";
    tells_of_path(doc! { "$gt": 3 }, doc! { "a": 0 }, doc! { "reason": failed, "consideredValue": 0 });
    tells_of_path(doc! { "$gt": 3 }, doc! { "b": 0 }, doc! { "reason": "field was missing" });
    tells_of_path(doc! { "$lt": 0 }, doc! { "a": [3, 4] }, doc! { "reason": failed, "consideredValues": [3, 4] });
    tells_of_path(doc! { "$gte": 3 }, doc! { "a": [] }, doc! { "reason": failed, "consideredValues": [] });
    tells_of_path(doc! { "$eq": [1] }, doc! { "a": [] }, doc! { "reason": failed, "consideredValues": [] });
    tells_of_path(
        doc! { "$ne": 2 },
        doc! { "a": [1, 2] },
        doc! { "reason": "comparison succeeded", "consideredValues": [1, 2] },
    );
    let many: Vec<i32> = (0..11).collect();
    let rest = doc! { "reason": failed, "consideredValues": &many[..10], "consideredValuesTruncated": true };
    tells_of_path(doc! { "$lt": 0 }, doc! { "a": &many }, rest);
    tells_of_path(
        doc! { "$lt": 0 },
        doc! { "a": &many[..10] },
        doc! { "reason": failed, "consideredValues": &many[..10] },
    );
    let details =
        doc! { "operatorName": "$eq", "specifiedAs": { "a.b": 0 }, "reason": failed, "consideredValues": [1, 2, 3] };
    tells(doc! { "a.b": 0 }, doc! { "a": [{ "b": [1, 2] }, { "b": 3 }] }, details);
}

#[test]
fn an_operator_tells_which_types_it_is_about() {
    let numbers = bson!(["decimal", "double", "int", "long"]);
    let texts = bson!(["regex", "string", "symbol"]);
    let wrong = "type did not match";
    tells_of_path(
        doc! { "$mod": [2, 1] },
        doc! { "a": 2 },
        doc! { "reason": "$mod did not evaluate to expected remainder", "consideredValue": 2 },
    );
    let rest =
        doc! { "reason": wrong, "consideredType": "string", "expectedTypes": &numbers, "consideredValue": "two" };
    tells_of_path(doc! { "$mod": [2, 1] }, doc! { "a": "two" }, rest);
    let rest = doc! { "reason": wrong, "consideredType": "int", "expectedTypes": texts, "consideredValues": [0, 1] };
    tells_of_path(doc! { "$regex": "x", "$options": "i" }, doc! { "a": [0, 1] }, rest);
    tells_of_path(
        doc! { "$regex": "x" },
        doc! { "a": "y" },
        doc! { "reason": "regular expression did not match", "consideredValue": "y" },
    );
    tells_of_path(
        doc! { "$size": 2 },
        doc! { "a": [1] },
        doc! { "reason": "array length was not equal to given size", "consideredValue": [1] },
    );
    let rest = doc! { "reason": wrong, "consideredType": "int", "expectedType": "array", "consideredValue": 3 };
    tells_of_path(doc! { "$size": 2 }, doc! { "a": 3 }, rest);
    tells_of_path(
        doc! { "$elemMatch": { "$gt": 0, "$lt": 10 } },
        doc! { "a": [10, 11] },
        doc! { "reason": "array did not satisfy the child predicate", "consideredValue": [10, 11] },
    );
    let bits = bson!(["binData", "decimal", "double", "int", "long"]);
    let rest = doc! { "reason": wrong, "consideredType": "string", "expectedTypes": bits, "consideredValue": "s" };
    tells_of_path(doc! { "$bitsAnyClear": 3 }, doc! { "a": "s" }, rest);
    tells_of_path(
        doc! { "$bitsAllSet": 2 },
        doc! { "a": 5 },
        doc! { "reason": "bitwise operator failed to match", "consideredValue": 5 },
    );
}

#[test]
fn each_operator_has_words_of_its_own() {
    tells_of_path(
        doc! { "$in": [1, 2] },
        doc! { "a": 4 },
        doc! { "reason": "no matching value found in array", "consideredValue": 4 },
    );
    tells_of_path(
        doc! { "$nin": [1, 3] },
        doc! { "a": 3 },
        doc! { "reason": "matching value found in array", "consideredValue": 3 },
    );
    tells_of_path(doc! { "$exists": true }, doc! { "b": 4 }, doc! { "reason": "path does not exist" });
    tells_of_path(doc! { "$exists": false }, doc! { "a": 4 }, doc! { "reason": "path does exist" });
    let rest = doc! { "reason": "type did not match", "consideredValue": "one", "consideredType": "string" };
    tells_of_path(doc! { "$type": "int" }, doc! { "a": "one" }, rest);
    tells_of_path(
        doc! { "$type": "double" },
        doc! { "a": [] },
        doc! { "reason": "type did not match", "consideredValues": [] },
    );
    let rest = doc! { "reason": "array did not contain all specified values", "consideredValue": [1, 4] };
    tells_of_path(doc! { "$all": [1, 2] }, doc! { "a": [1, 4] }, rest);
    tells_of_path(doc! { "$all": [] }, doc! { "a": [1] }, doc! { "reason": "expression always evaluates to false" });
    let literal =
        Bson::RegularExpression(bson::Regex { pattern: "^S".try_into().unwrap(), options: "".try_into().unwrap() });
    let details = doc! {
        "operatorName": "$regex", "specifiedAs": { "a": literal.clone() },
        "reason": "regular expression did not match", "consideredValue": "so",
    };
    tells(doc! { "a": literal }, doc! { "a": "so" }, details);
}

#[test]
fn clauses_are_told_of_by_their_places() {
    let less = |value: i32| {
        doc! { "operatorName": "$lt", "specifiedAs": { "a": { "$lt": 10 } }, "reason": "comparison failed", "consideredValue": value }
    };
    let and = doc! { "operatorName": "$and", "clausesNotSatisfied": [{ "index": 1, "details": less(11) }] };
    tells(doc! { "a": { "$gt": 0, "$lt": 10 } }, doc! { "a": 11 }, and.clone());
    tells(doc! { "$and": [{ "b": { "$gt": 0 } }, { "a": { "$lt": 10 } }] }, doc! { "a": 11, "b": 2 }, and.clone());
    tells(doc! { "b": 2, "a": { "$lt": 10 } }, doc! { "a": 11, "b": 2 }, and);
    let or = doc! { "operatorName": "$or", "clausesNotSatisfied": [{ "index": 0, "details": less(11) }] };
    tells(doc! { "$or": [{ "a": { "$lt": 10 } }] }, doc! { "a": 11 }, or);
    let more = doc! { "operatorName": "$lt", "specifiedAs": { "b": { "$lt": 9 } }, "reason": "comparison succeeded", "consideredValue": 8 };
    let nor = doc! { "operatorName": "$nor", "clausesSatisfied": [{ "index": 1, "details": &more }] };
    tells(doc! { "$nor": [{ "a": { "$gt": 10 } }, { "b": { "$lt": 9 } }] }, doc! { "a": 9, "b": 8 }, nor);
    let not = doc! { "operatorName": "$not", "details": &more };
    tells(doc! { "b": { "$not": { "$lt": 9 } } }, doc! { "b": 8 }, not);
    let twice = doc! { "operatorName": "$not", "details": { "operatorName": "$not", "details": less(11) } };
    tells(doc! { "a": { "$not": { "$not": { "$lt": 10 } } } }, doc! { "a": 11 }, twice);
    let both = |operator: &str, rule: i32| {
        doc! { "operatorName": operator, "specifiedAs": { "a": { operator: rule } }, "reason": "comparison succeeded", "consideredValue": 10 }
    };
    let not = doc! { "operatorName": "$not", "details": { "operatorName": "$and", "clausesSatisfied": [
        { "index": 0, "details": both("$lt", 20) }, { "index": 1, "details": both("$gt", 5) },
    ] } };
    tells(doc! { "a": { "$not": { "$lt": 20, "$gt": 5 } } }, doc! { "a": 10 }, not);
}

#[test]
fn an_expression_tells_its_result_or_why_it_has_none() {
    let rule = doc! { "$expr": { "$eq": ["$a", "$b"] } };
    let details = doc! { "operatorName": "$expr", "specifiedAs": &rule, "reason": "expression did not match", "expressionResult": false };
    tells(rule, doc! { "a": 1, "b": 2 }, details);
    let rule = doc! { "$expr": { "$divide": [10, "$a"] } };
    let details = doc! {
        "operatorName": "$expr", "specifiedAs": &rule, "reason": "failed to evaluate aggregation expression",
        "details": { "code": 2, "codeName": "BadValue", "errmsg": "can't $divide by zero" },
    };
    tells(rule, doc! { "a": 0 }, details);
    let rule = doc! { "$expr": { "$literal": { "b": 1 } } };
    let details = doc! { "operatorName": "$expr", "specifiedAs": &rule, "reason": "expression did match", "expressionResult": { "b": 1 } };
    let nor = doc! { "operatorName": "$nor", "clausesSatisfied": [{ "index": 0, "details": details }] };
    tells(doc! { "$nor": [rule] }, doc! {}, nor);
}

#[test]
fn a_schema_tells_its_rules_by_property() {
    let schema = doc! {
        "bsonType": "object",
        "title": "Students",
        "required": ["name", "year", "address"],
        "properties": {
            "name": { "bsonType": "string", "description": "must be a string and is required" },
            "year": { "bsonType": "int", "minimum": 2017, "maximum": 3017, "exclusiveMaximum": true, "description": "a year" },
            "gpa": { "bsonType": ["double"], "title": "grade", "description": "must be a double" },
            "address": { "bsonType": "object", "properties": { "street": { "bsonType": "string" } } },
        },
    };
    let document = doc! { "year": 3017, "gpa": 5, "address": { "street": 5 } };
    let year = bson!({ "propertyName": "year", "description": "a year", "details": [{
        "operatorName": "maximum", "specifiedAs": { "maximum": 3017, "exclusiveMaximum": true },
        "reason": "comparison failed", "consideredValue": 3017,
    }] });
    let wrong_type = |specified: Bson| {
        bson!([{ "operatorName": "bsonType", "specifiedAs": { "bsonType": specified },
            "reason": "type did not match", "consideredValue": 5, "consideredType": "int" }])
    };
    let gpa = bson!({ "propertyName": "gpa", "title": "grade", "description": "must be a double", "details": (wrong_type(bson!(["double"]))) });
    let street = bson!({ "propertyName": "street", "details": (wrong_type(bson!("string"))) });
    let address = bson!({ "propertyName": "address", "details": [
        { "operatorName": "properties", "propertiesNotSatisfied": [street] },
    ] });
    let details = doc! {
        "operatorName": "$jsonSchema",
        "title": "Students",
        "schemaRulesNotSatisfied": [
            { "operatorName": "properties", "propertiesNotSatisfied": [year, gpa, address] },
            { "operatorName": "required", "specifiedAs": { "required": ["name", "year", "address"] }, "missingProperties": ["name"] },
        ],
    };
    tells(doc! { "$jsonSchema": schema }, document, details);
}

#[test]
fn rules_of_values_tell_the_value() {
    for (keyword, argument, value, reason) in [
        ("minLength", bson!(3), bson!("ab"), "specified string length was not satisfied"),
        ("maxLength", bson!(1), bson!("ab"), "specified string length was not satisfied"),
        ("pattern", bson!("^x"), bson!("ab"), "regular expression did not match"),
        ("multipleOf", bson!(0.1), bson!(0.35), "considered value is not a multiple of the specified value"),
        ("minimum", bson!(3), bson!(2), "comparison failed"),
        ("enum", bson!([1, "x"]), bson!(2), "value was not found in enum"),
    ] {
        let mut rule = Document::new();
        rule.insert(keyword, argument);
        let told = bson!([{ "operatorName": keyword, "specifiedAs": (rule.clone()), "reason": reason, "consideredValue": (value.clone()) }]);
        tells_of_property(rule, value, told);
    }
    tells_of_schema(
        doc! { "enum": [1] },
        doc! { "_x": 1 },
        bson!([{ "operatorName": "enum", "specifiedAs": { "enum": [1] }, "reason": "value was not found in enum", "consideredValue": { "_x": 1 } }]),
    );
}

#[test]
fn rules_of_arrays_tell_the_element() {
    let wrong = |value: i32| {
        bson!([{ "operatorName": "type", "specifiedAs": { "type": "string" }, "reason": "type did not match",
            "consideredValue": value, "consideredType": "int" }])
    };
    tells_of_property(
        doc! { "minItems": 2 },
        bson!([1]),
        bson!([{ "operatorName": "minItems", "specifiedAs": { "minItems": 2 }, "reason": "array did not match specified length",
            "consideredValue": [1], "numberOfItems": 1 }]),
    );
    tells_of_property(
        doc! { "uniqueItems": true },
        bson!([3, 1, 2, 1, 3]),
        bson!([{ "operatorName": "uniqueItems", "specifiedAs": { "uniqueItems": true }, "reason": "found a duplicate item",
            "consideredValue": [3, 1, 2, 1, 3], "duplicatedValue": 1 }]),
    );
    tells_of_property(
        doc! { "items": { "type": "string", "description": "texts" } },
        bson!(["x", 1, 2]),
        bson!([{ "operatorName": "items", "description": "texts", "reason": "At least one item did not match the sub-schema",
            "itemIndex": 1, "details": (wrong(1)) }]),
    );
    tells_of_property(
        doc! { "items": [{ "type": "string" }, {}, { "type": "string" }], "additionalItems": false },
        bson!([1, 2, 3, 4, 5]),
        bson!([
            { "operatorName": "items", "details": [
                { "itemIndex": 0_i64, "details": (wrong(1)) }, { "itemIndex": 2_i64, "details": (wrong(3)) },
            ] },
            { "operatorName": "additionalItems", "specifiedAs": { "additionalItems": false }, "reason": "found additional items",
                "additionalItems": [4, 5] },
        ]),
    );
    tells_of_property(
        doc! { "items": [{}], "additionalItems": { "type": "string" } },
        bson!([1, 2]),
        bson!([{ "operatorName": "additionalItems", "reason": "At least one additional item did not match the sub-schema",
            "itemIndex": 1, "details": (wrong(2)) }]),
    );
}

#[test]
fn rules_of_objects_tell_the_property() {
    let wrong = |value: i32| {
        bson!([{ "operatorName": "type", "specifiedAs": { "type": "string" }, "reason": "type did not match",
            "consideredValue": value, "consideredType": "int" }])
    };
    tells_of_schema(
        doc! { "properties": { "a": {} }, "patternProperties": { "^p": { "type": "string" } }, "additionalProperties": false },
        doc! { "a": 1, "pq": 2, "b": 3, "c": 4 },
        bson!([
            { "operatorName": "additionalProperties", "specifiedAs": { "additionalProperties": false }, "additionalProperties": ["b", "c"] },
            { "operatorName": "patternProperties", "details": [
                { "propertyName": "pq", "regexMatched": "^p", "details": (wrong(2)) },
            ] },
        ]),
    );
    tells_of_schema(
        doc! { "additionalProperties": { "type": "string", "title": "t" } },
        doc! { "a": "x", "b": 3 },
        bson!([{ "operatorName": "additionalProperties", "title": "t",
            "reason": "at least one additional property did not match the subschema", "failingProperty": "b", "details": (wrong(3)) }]),
    );
    tells_of_schema(
        doc! { "minProperties": 3 },
        doc! { "a": 1 },
        bson!([{ "operatorName": "minProperties", "specifiedAs": { "minProperties": 3 },
            "reason": "specified number of properties was not satisfied", "numberOfProperties": 1 }]),
    );
    tells_of_schema(
        doc! { "dependencies": { "title": "d", "a": ["b", "c"], "b": { "required": ["z"] } } },
        doc! { "a": 1, "b": 2 },
        bson!([{ "operatorName": "dependencies", "title": "d", "failingDependencies": [
            { "conditionalProperty": "a", "missingProperties": ["c"] },
            { "conditionalProperty": "b", "details": [
                { "operatorName": "required", "specifiedAs": { "required": ["z"] }, "missingProperties": ["z"] },
            ] },
        ] }]),
    );
}

#[test]
fn schemas_within_schemas_are_told_of_by_their_places() {
    let required = |name: &str| bson!([{ "operatorName": "required", "specifiedAs": { "required": [name] }, "missingProperties": [name] }]);
    let schemas = bson!([{ "required": ["a"], "title": "first" }, { "required": ["b"] }, {}]);
    let two = bson!([{ "required": ["a"], "title": "first" }, { "required": ["b"] }]);
    let told = bson!([{ "index": 0, "title": "first", "details": (required("a")) }, { "index": 1, "details": (required("b")) }]);
    for (keyword, schemas) in [("allOf", &schemas), ("anyOf", &two), ("oneOf", &two)] {
        let rules = bson!([{ "operatorName": keyword, "schemasNotSatisfied": (told.clone()) }]);
        tells_of_schema(doc! { keyword: schemas }, doc! { "z": 1 }, rules);
    }
    tells_of_schema(
        doc! { "oneOf": two },
        doc! { "a": 1, "b": 1 },
        bson!([{ "operatorName": "oneOf", "reason": "more than one subschema matched", "matchingSchemaIndexes": [0, 1] }]),
    );
    tells_of_schema(
        doc! { "not": { "required": ["a"] } },
        doc! { "a": 1 },
        bson!([{ "operatorName": "not", "reason": "child expression matched" }]),
    );
    let nor = doc! { "operatorName": "$nor", "clausesSatisfied": [
        { "index": 0, "details": { "operatorName": "$jsonSchema", "reason": "schema matched" } },
    ] };
    tells(doc! { "$nor": [{ "$jsonSchema": {} }] }, doc! { "a": 1 }, nor);
    let validator = doc! { "$jsonSchema": { "type": "string" } };
    let details = doc! { "operatorName": "$jsonSchema", "specifiedAs": &validator, "reason": "expression always evaluates to false" };
    tells(validator, doc! {}, details);
}

#[test]
fn what_is_too_long_leaves_out_values_and_rules_and_what_is_too_deep_everything() {
    let text = "x".repeat(13 * 1024 * 1024);
    let told = info(&doc! { "a": { "$eq": 1 } }, &doc! { "_id": 7, "a": text });
    let details = doc! { "operatorName": "$eq", "reason": "comparison failed" };
    assert_eq!(told, doc! { "failingDocumentId": 7, "truncated": true, "details": details });
    let mut deep = doc! { "a": 1 };
    for level in 0..80 {
        deep = doc! { "$or": [deep, { "a": level }] };
    }
    let told = info(&deep, &doc! { "_id": 7, "a": "x" });
    assert_eq!(told, doc! { "reason": "generated error was too deeply nested", "truncated": true });
}
