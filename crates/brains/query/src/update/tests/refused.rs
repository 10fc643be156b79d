//! What is refused, with MongoDB's code and message.

use super::*;

#[test]
fn unknown_and_malformed_modifiers() {
    for name in ["$foo", "$pushAll"] {
        let mut update = RawDocumentBuf::new();
        update.append(<&bson::raw::CStr>::try_from(name).unwrap(), rawdoc! { "a": 1 });
        let message = format!(
            "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an array"
        );
        refuse(rawdoc! { "_id": 1 }, update, 9, &message);
    }
    refuse(
        rawdoc! { "_id": 1 },
        rawdoc! { "$set": 5 },
        9,
        "Modifiers operate on fields but we found type int instead. For example: {$mod: {<field>: ...}} not {$set: 5}",
    );
    // Once the first field is an operator, all must be; once it is not, none may be.
    refuse(
        rawdoc! { "_id": 1 },
        rawdoc! { "$set": { "a": 1 }, "b": 1 },
        9,
        "Unknown modifier: b. Expected a valid update modifier or pipeline-style update specified as an array",
    );
    refuse(
        rawdoc! { "_id": 1 },
        rawdoc! { "b": 1, "$set": { "a": 1 } },
        52,
        "The dollar ($) prefixed field '$set' in '$set' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith.",
    );
    let error = Update::parse::<RawDocumentBuf>(RawBsonRef::Int32(1), &[], &context()).unwrap_err();
    assert_eq!((error.code.0, error.message.as_str()), (9, "Update argument must be either an object or an array"));
}

#[test]
fn names_that_cannot_be_stored() {
    refuse(
        rawdoc! { "_id": 1 },
        rawdoc! { "$set": { "$a": 1 } },
        52,
        "The dollar ($) prefixed field '$a' in '$a' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith.",
    );
    let message = |name: &str| {
        format!(
            "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith."
        )
    };
    refuse(rawdoc! { "_id": 1 }, rawdoc! { "$inc": { "$a": 1 } }, 52, &message("$a"));
    refuse(rawdoc! { "_id": 1 }, rawdoc! { "$set": { "$a.b": 1 } }, 52, &message("$a"));
    refuse(rawdoc! { "_id": 1, "b": 1 }, rawdoc! { "$rename": { "b": "$a" } }, 52, &message("$a"));
    refuse(rawdoc! { "_id": 1 }, rawdoc! { "a": 1, "$a": 1 }, 52, &message("$a"));
    // An insert may have stored such a field: it is not written again, but what is below it may be, and it may go.
    refuse(rawdoc! { "_id": 1, "$a": 1 }, rawdoc! { "$set": { "$a": 2 } }, 52, &message("$a"));
    check(
        rawdoc! { "_id": 1, "$a": { "b": 1 } },
        rawdoc! { "$set": { "$a.b": 2 } },
        rawdoc! { "_id": 1, "$a": { "b": 2 } },
    );
    check(rawdoc! { "_id": 1, "$a": 1 }, rawdoc! { "$unset": { "$a": 1 } }, rawdoc! { "_id": 1 });
    check(rawdoc! { "_id": 1, "$a": 1 }, rawdoc! { "$set": { "b": 2 } }, rawdoc! { "_id": 1, "$a": 1, "b": 2 });
    // Below the top they may be, since MongoDB 5.0.
    check(rawdoc! { "_id": 1 }, rawdoc! { "$set": { "a.$b": 1 } }, rawdoc! { "_id": 1, "a": { "$b": 1 } });
    check(rawdoc! { "_id": 1 }, rawdoc! { "$set": { "a": { "$b": 1 } } }, rawdoc! { "_id": 1, "a": { "$b": 1 } });
    check(
        rawdoc! { "_id": 1 },
        rawdoc! { "a": { "$b": 1, "c.d": 1 } },
        rawdoc! { "_id": 1, "a": { "$b": 1, "c.d": 1 } },
    );
    check(rawdoc! { "_id": 1 }, rawdoc! { "a.b": 1 }, rawdoc! { "_id": 1, "a.b": 1 });
}

#[test]
fn a_database_reference_at_the_top_is_in_order() {
    let reference = || rawdoc! { "x": 1, "$ref": "c", "$id": 5, "$db": "d" };
    check(rawdoc! { "_id": 1 }, reference(), rawdoc! { "_id": 1, "x": 1, "$ref": "c", "$id": 5, "$db": "d" });
    for (replacement, message) in [
        (rawdoc! { "x": 1, "$id": 5 }, "Found $id field without a $ref before it, which is invalid."),
        (rawdoc! { "x": 1, "$ref": "c" }, "The DBRef $ref field must be followed by a $id field"),
        (rawdoc! { "x": 1, "$ref": 5, "$id": 5 }, "The DBRef $ref field must be a String, not a int"),
        (rawdoc! { "x": 1, "$db": "d" }, "Found $db field without a $id before it, which is invalid."),
        (rawdoc! { "x": 1, "$db": 5 }, "The DBRef $db field must be a String, not a int"),
    ] {
        refuse(rawdoc! { "_id": 1 }, replacement, 55, message);
    }
}

#[test]
fn the_id_does_not_change() {
    let immutable =
        |path: &str| format!("Performing an update on the path '{path}' would modify the immutable field '_id'");
    let doc = || rawdoc! { "_id": { "a": 1 }, "x": 1 };
    refuse(doc(), rawdoc! { "$set": { "_id": 2 } }, 66, &immutable("_id"));
    refuse(doc(), rawdoc! { "$set": { "_id.a": 2 } }, 66, &immutable("_id.a"));
    refuse(doc(), rawdoc! { "$unset": { "_id": 1 } }, 66, &immutable("_id"));
    refuse(doc(), rawdoc! { "$inc": { "_id.b": 2 } }, 66, &immutable("_id.b"));
    refuse(doc(), rawdoc! { "$rename": { "x": "_id" } }, 66, &immutable("_id"));
    check(doc(), rawdoc! { "$set": { "_id.a": 1 } }, doc());
}

#[test]
fn paths_through_values_without_fields() {
    refuse(
        rawdoc! { "_id": 1, "a": 5 },
        rawdoc! { "$set": { "a.b": 1 } },
        28,
        "Cannot create field 'b' in element {a: 5}",
    );
    refuse(
        rawdoc! { "_id": 1, "a": null },
        rawdoc! { "$inc": { "a.b.c": 1 } },
        28,
        "Cannot create field 'b' in element {a: null}",
    );
    refuse(
        rawdoc! { "_id": 1, "x": { "a": [1, "y"] } },
        rawdoc! { "$set": { "x.a.b": 1 } },
        28,
        "Cannot create field 'b' in element {a: [ 1, \"y\" ]}",
    );
    refuse(
        rawdoc! { "_id": 1, "a": 5 },
        rawdoc! { "$pop": { "a.b": 1 } },
        28,
        "Cannot use the part (b) of (a.b) to traverse the element ({a: 5})",
    );
    check(rawdoc! { "_id": 1, "a": 5 }, rawdoc! { "$unset": { "a.b": 1 } }, rawdoc! { "_id": 1, "a": 5 });
}

#[test]
fn arguments_of_the_wrong_type() {
    for (update, code, message) in [
        (rawdoc! { "$inc": { "a": "x" } }, 14, "Cannot increment with non-numeric argument: {a: \"x\"}"),
        (rawdoc! { "$mul": { "a": true } }, 14, "Cannot multiply with non-numeric argument: {a: true}"),
        (rawdoc! { "$pop": { "a": 5 } }, 9, "$pop expects 1 or -1, found: 5"),
        (rawdoc! { "$pop": { "a": true } }, 9, "Expected a number in: a: true"),
        (rawdoc! { "$pullAll": { "a": 1 } }, 2, "$pullAll requires an array argument but was given a int"),
        (
            rawdoc! { "$push": { "a": { "$each": 1 } } },
            2,
            "The argument to $each in $push must be an array but it was of type: int",
        ),
        (
            rawdoc! { "$push": { "a": { "$each": [], "$slice": "x" } } },
            2,
            "The value for $slice must be an integer value but was given type: string",
        ),
        (
            rawdoc! { "$push": { "a": { "$each": [], "$position": 1.5 } } },
            2,
            "The value for $position must be an integer value, not of type: double",
        ),
        (
            rawdoc! { "$push": { "a": { "$each": [], "$sort": {} } } },
            2,
            "The $sort pattern is empty when it should be a set of fields.",
        ),
        (
            rawdoc! { "$push": { "a": { "$each": [], "$sort": 2 } } },
            2,
            "The $sort element value must be either 1 or -1",
        ),
        (rawdoc! { "$push": { "a": { "$each": [], "x": 2 } } }, 2, "Unrecognized clause in $push: x"),
        (
            rawdoc! { "$addToSet": { "a": { "$each": 1 } } },
            14,
            "The argument to $each in $addToSet must be an array but it was of type int",
        ),
        (
            rawdoc! { "$bit": { "a": 1 } },
            2,
            "The $bit modifier is not compatible with a int. You must pass in an embedded document: {$bit: {field: {and/or/xor: #}}",
        ),
        (
            rawdoc! { "$bit": { "a": {} } },
            2,
            "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}",
        ),
        (
            rawdoc! { "$bit": { "a": { "nor": 1 } } },
            2,
            "The $bit modifier only supports 'and', 'or', and 'xor', not 'nor' which is an unknown operator: {nor: 1}",
        ),
        (
            rawdoc! { "$bit": { "a": { "or": 1.5 } } },
            2,
            "The $bit modifier field must be an Integer(32/64 bit); a 'double' is not supported here: {or: 1.5}",
        ),
        (
            rawdoc! { "$currentDate": { "a": 1 } },
            2,
            "int is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({$type: 'timestamp/date'}).",
        ),
        (
            rawdoc! { "$currentDate": { "a": { "$type": "x" } } },
            2,
            "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}",
        ),
        (rawdoc! { "$currentDate": { "a": { "x": 1 } } }, 2, "Unrecognized $currentDate option: x"),
        (rawdoc! { "$rename": { "a": 1 } }, 2, "The 'to' field for $rename must be a string: a: 1"),
        (rawdoc! { "$rename": { "a": "a" } }, 2, "The source and target field for $rename must differ: a: \"a\""),
        (
            rawdoc! { "$rename": { "a": "a.b" } },
            2,
            "The source and target field for $rename must not be on the same path: a: \"a.b\"",
        ),
        (rawdoc! { "$rename": { "a.$": "b" } }, 2, "The source field for $rename may not be dynamic: a.$"),
        (rawdoc! { "$rename": { "a": "b.$[]" } }, 2, "The destination field for $rename may not be dynamic: b.$[]"),
        (
            rawdoc! { "$rename": { "a": "b" }, "$set": { "b.c": 1 } },
            40,
            "Updating the path 'b.c' would create a conflict at 'b'",
        ),
    ] {
        refuse(rawdoc! { "_id": 1 }, update, code, message);
    }
}

#[test]
fn values_of_the_wrong_type() {
    let doc = || rawdoc! { "_id": 1, "s": "x", "n": 1, "o": { "p": "x" }, "a": [{ "b": 1 }] };
    for (update, code, message) in [
        (
            rawdoc! { "$inc": { "s": 1 } },
            14,
            "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 's' of non-numeric type string",
        ),
        (
            rawdoc! { "$mul": { "o.p": 1 } },
            14,
            "Cannot apply $mul to a value of non-numeric type. {_id: 1} has the field 'p' of non-numeric type string",
        ),
        (rawdoc! { "$push": { "n": 1 } }, 2, "The field 'n' must be an array but is of type int in document {_id: 1}"),
        (
            rawdoc! { "$addToSet": { "n": 1 } },
            2,
            "Cannot apply $addToSet to non-array field. Field named 'n' has non-array type int",
        ),
        (rawdoc! { "$pop": { "n": 1 } }, 14, "Path 'n' contains an element of non-array type 'int'"),
        (rawdoc! { "$pull": { "n": 1 } }, 2, "Cannot apply $pull to a non-array value"),
        (rawdoc! { "$pullAll": { "n": [1] } }, 2, "Cannot apply $pull to a non-array value"),
        (
            rawdoc! { "$bit": { "s": { "or": 1 } } },
            2,
            "Cannot apply $bit to a value of non-integral type._id: 1 has the field s of non-integer type string",
        ),
        (
            rawdoc! { "$rename": { "a.0": "b" } },
            2,
            "The source field cannot be an array element, 'a.0' in doc with _id: 1 has an array field called 'a'",
        ),
        (
            rawdoc! { "$rename": { "s": "a.0.c" } },
            2,
            "The destination field cannot be an array element, 'a.0.c' in doc with _id: 1 has an array field called 'a'",
        ),
        (
            rawdoc! { "$rename": { "n.m": "b" } },
            28,
            "Cannot use the part (m) of (n.m) to traverse the element ({n: 1})",
        ),
    ] {
        refuse(doc(), update, code, message);
    }
}

#[test]
fn documents_that_grow_too_deep_or_too_large() {
    let path = vec!["a"; 200].join(".");
    let mut fields = RawDocumentBuf::new();
    fields.append(<&bson::raw::CStr>::try_from(path.as_str()).unwrap(), 1);
    refuse(rawdoc! { "_id": 1 }, rawdoc! { "$set": fields }, 15, "Document exceeds maximum nesting depth of 180");
    let text = "x".repeat(9 << 20);
    refuse(
        rawdoc! { "_id": 1, "a": text.as_str() },
        rawdoc! { "$set": { "b": text.as_str() } },
        17419,
        "Resulting document after update is larger than 16777216",
    );
}
