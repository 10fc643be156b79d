//! Operators on single values: `$set`, `$unset`, `$inc`, `$mul`, `$min`, `$max`, `$bit`, `$currentDate`, `$rename`.

use super::*;

#[test]
fn set_keeps_the_place_of_fields_and_appends_new_ones_in_order() {
    check(
        rawdoc! { "_id": 1, "x": 1, "y": 2 },
        rawdoc! { "$set": { "y": "text", "b": 1, "a": 2, "x": null } },
        rawdoc! { "_id": 1, "x": null, "y": "text", "a": 2, "b": 1 },
    );
    // New fields are ordered by name across operators, numbers by value.
    check(
        rawdoc! { "_id": 1 },
        rawdoc! { "$set": { "z": 1, "10": 1 }, "$inc": { "9": 1, "m": 1 } },
        rawdoc! { "_id": 1, "9": 1, "10": 1, "m": 1, "z": 1 },
    );
}

/// An update of one field of the document itself, and the same beside others that find nothing to do: below that field's neighbours, in
/// arrays, and at the top.
#[test]
fn an_operator_does_the_same_alone_and_among_others() {
    let idle = [
        rawdoc! { "$unset": { "no.such.field": 1 } },
        rawdoc! { "$unset": { "none": 1, "zz": 1, "other": 1 } },
        rawdoc! { "$setOnInsert": { "others.$[]": 1, "none.0.a": 1 } },
    ];
    let document = rawdoc! {
        "_id": "user1", "n": 5, "big": i64::MAX, "text": "x".repeat(100), "list": [1, 2], "below": { "a": 1, "b": "y".repeat(50) },
        "others": [1], "$odd": 1, "0": "number",
    };
    let alone = [
        rawdoc! { "$set": { "n": 5 } },
        rawdoc! { "$set": { "n": 6 } },
        rawdoc! { "$set": { "n": "text" } },
        rawdoc! { "$set": { "text": "x".repeat(99) } },
        rawdoc! { "$set": { "new": { "a": { "b": [1] } } } },
        rawdoc! { "$set": { "below": { "a": 2, "b": "y".repeat(50) } } },
        rawdoc! { "$set": { "0": "other" } },
        rawdoc! { "$set": { "10": 1 } },
        rawdoc! { "$set": { "$odd": 2 } },
        rawdoc! { "$set": { "$new": 1 } },
        rawdoc! { "$set": { "_id": "user1" } },
        rawdoc! { "$set": { "_id": "user2" } },
        rawdoc! { "$unset": { "_id": 1 } },
        rawdoc! { "$unset": { "n": 1 } },
        rawdoc! { "$unset": { "missing": 1 } },
        rawdoc! { "$inc": { "n": 1 } },
        rawdoc! { "$inc": { "n": 0 } },
        rawdoc! { "$inc": { "new": 1.5 } },
        rawdoc! { "$inc": { "big": 1 } },
        rawdoc! { "$inc": { "text": 1 } },
        rawdoc! { "$inc": { "n": "1" } },
        rawdoc! { "$mul": { "n": 3 } },
        rawdoc! { "$max": { "n": 3 } },
        rawdoc! { "$push": { "list": 3 } },
        rawdoc! { "$push": { "n": 3 } },
        rawdoc! { "$pull": { "list": { "$gt": 1 } } },
        rawdoc! { "$rename": { "n": "m" } },
        rawdoc! { "$set": { "": 1 } },
        rawdoc! { "$set": { "$": 1 } },
        rawdoc! { "$set": { "$[]": 1 } },
    ];
    for update in &alone {
        let expected = apply_with(&document, update, &[], None);
        for others in &idle {
            let mut all = bson::Document::try_from(update).unwrap();
            for (operator, fields) in bson::Document::try_from(others).unwrap() {
                let known = all.entry(operator).or_insert_with(|| bson::doc! {}.into());
                known.as_document_mut().unwrap().extend(fields.as_document().unwrap().clone());
            }
            let found = apply_with(&document, &RawDocumentBuf::try_from(&all).unwrap(), &[], None);
            match (&expected, found) {
                (Ok(expected), Ok(found)) => {
                    assert_eq!((&expected.document, &expected.oplog), (&found.document, &found.oplog), "{all}");
                }
                (Err(expected), Err(found)) => {
                    assert_eq!((expected.code, &expected.message), (found.code, &found.message), "{all}");
                }
                (expected, found) => panic!("{all}: {expected:?} alone, {found:?} among others"),
            }
        }
    }
}

#[test]
fn one_field_is_for_one_operator_only() {
    for (update, path, place) in [
        (rawdoc! { "$set": { "a": 1 }, "$inc": { "a": 1 } }, "a", "a"),
        (rawdoc! { "$set": { "a": 1, "b": 1 }, "$unset": { "b": 1 } }, "b", "b"),
        (rawdoc! { "$set": { "a": 1 }, "$inc": { "a.b": 1 } }, "a.b", "a"),
        (rawdoc! { "$inc": { "a.b": 1 }, "$set": { "a": 1 } }, "a", "a"),
        (rawdoc! { "$set": { "_id": 1 }, "$setOnInsert": { "_id": 1 } }, "_id", "_id"),
        (rawdoc! { "$set": { "a": 1 }, "$rename": { "b": "a" } }, "a", "a"),
    ] {
        let message = format!("Updating the path '{path}' would create a conflict at '{place}'");
        refuse(rawdoc! { "_id": 1, "b": 2 }, update, 40, &message);
    }
}

#[test]
fn set_of_the_same_value_changes_nothing() {
    check(
        rawdoc! { "_id": 1, "a": 1, "b": { "c": [1] } },
        rawdoc! { "$set": { "a": 1, "b.c": [1], "_id": 1 } },
        rawdoc! { "_id": 1, "a": 1, "b": { "c": [1] } },
    );
    // The same number of another type is a change.
    check(rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "$set": { "a": 1.0 } }, rawdoc! { "_id": 1, "a": 1.0 });
    check(rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "$set": {} }, rawdoc! { "_id": 1, "a": 1 });
}

#[test]
fn set_reaches_into_documents_and_creates_them() {
    check(
        rawdoc! { "_id": 1, "a": { "b": 1, "c": 2 } },
        rawdoc! { "$set": { "a.b": 9, "a.d.e": 1, "n.0.m": 1 } },
        rawdoc! { "_id": 1, "a": { "b": 9, "c": 2, "d": { "e": 1 } }, "n": { "0": { "m": 1 } } },
    );
}

#[test]
fn set_on_insert_does_nothing_to_a_document_that_is_there() {
    check(rawdoc! { "_id": 1 }, rawdoc! { "$setOnInsert": { "a": 1, "b.c": 1 } }, rawdoc! { "_id": 1 });
}

#[test]
fn unset_removes_fields_and_ignores_what_is_not_there() {
    check(
        rawdoc! { "_id": 1, "a": 1, "b": { "c": 1, "d": 2 }, "e": 5 },
        rawdoc! { "$unset": { "a": "", "b.c": 1, "x": "", "x2.y": "", "e.f": "" } },
        rawdoc! { "_id": 1, "b": { "d": 2 }, "e": 5 },
    );
}

#[test]
fn inc_adds_and_widens() {
    check(
        rawdoc! { "_id": 1, "i": 1, "l": 1_i64, "d": 1.5, "max": i32::MAX },
        rawdoc! { "$inc": { "i": 2, "l": 1, "d": 1, "max": 1, "new": 7, "a.b": -1 } },
        rawdoc! { "_id": 1, "i": 3, "l": 2_i64, "d": 2.5, "max": i64::from(i32::MAX) + 1, "a": { "b": -1 }, "new": 7 },
    );
    check(rawdoc! { "_id": 1, "i": 1 }, rawdoc! { "$inc": { "i": 0 } }, rawdoc! { "_id": 1, "i": 1 });
    check(rawdoc! { "_id": 1, "i": 1 }, rawdoc! { "$inc": { "i": 1.5 } }, rawdoc! { "_id": 1, "i": 2.5 });
    let decimal = |text: &str| text.parse::<bson::Decimal128>().unwrap();
    check(
        rawdoc! { "_id": 1, "i": 1 },
        rawdoc! { "$inc": { "i": decimal("0.1") } },
        rawdoc! { "_id": 1, "i": decimal("1.1") },
    );
}

#[test]
fn mul_multiplies_and_starts_at_zero() {
    check(
        rawdoc! { "_id": 1, "i": 3, "d": 1.5, "big": 1 << 30 },
        rawdoc! { "$mul": { "i": 2, "d": 2, "big": 4, "n": 5, "l": 5_i64, "f": 5.0 } },
        rawdoc! { "_id": 1, "i": 6, "d": 3.0, "big": 1_i64 << 32, "f": 0.0, "l": 0_i64, "n": 0 },
    );
    let decimal = |text: &str| text.parse::<bson::Decimal128>().unwrap();
    check(rawdoc! { "_id": 1 }, rawdoc! { "$mul": { "d": decimal("2.5") } }, rawdoc! { "_id": 1, "d": decimal("0") });
}

#[test]
fn integers_that_do_not_fit_are_refused() {
    refuse(
        rawdoc! { "_id": 1, "a": i64::MAX },
        rawdoc! { "$inc": { "a": 1 } },
        2,
        "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for document {_id: 1}",
    );
    refuse(
        rawdoc! { "_id": "x", "a": 5 },
        rawdoc! { "$mul": { "a": i64::MAX } },
        2,
        "Failed to apply $mul operations to current value ((NumberInt)5) for document {_id: \"x\"}",
    );
}

#[test]
fn min_and_max_compare_across_types() {
    check(
        rawdoc! { "_id": 1, "a": 5, "b": 5, "c": "x" },
        rawdoc! { "$min": { "a": 3, "b": 7, "n": 1 }, "$max": { "c": 100, "m": 1 } },
        rawdoc! { "_id": 1, "a": 3, "b": 5, "c": "x", "m": 1, "n": 1 },
    );
    check(rawdoc! { "_id": 1, "a": 5 }, rawdoc! { "$max": { "a": "text" } }, rawdoc! { "_id": 1, "a": "text" });
    // Equal by value is not less.
    check(rawdoc! { "_id": 1, "a": 5 }, rawdoc! { "$min": { "a": 5.0 } }, rawdoc! { "_id": 1, "a": 5 });
}

#[test]
fn bit_combines_integers() {
    check(
        rawdoc! { "_id": 1, "a": 13, "o": 3, "x": 1, "l": 12_i64, "both": 13 },
        rawdoc! { "$bit": { "a": { "and": 10 }, "o": { "or": 5 }, "x": { "xor": 5 }, "l": { "and": 10 }, "n": { "or": 3 }, "both": { "and": 10_i64, "or": 1 } } },
        rawdoc! { "_id": 1, "a": 8, "o": 7, "x": 4, "l": 8_i64, "both": 9_i64, "n": 3 },
    );
    check(rawdoc! { "_id": 1, "a": -1 }, rawdoc! { "$bit": { "a": { "xor": 1 } } }, rawdoc! { "_id": 1, "a": -2 });
}

#[test]
fn current_date_takes_the_time_of_the_request() {
    let timestamp = bson::Timestamp { time: 1_700_000_000, increment: 1 };
    check(
        rawdoc! { "_id": 1 },
        rawdoc! { "$currentDate": { "a": true, "b": { "$type": "timestamp" }, "c": { "$type": "date" } } },
        rawdoc! { "_id": 1, "a": DateTime::from_millis(NOW_MS), "b": timestamp, "c": DateTime::from_millis(NOW_MS) },
    );
    let mut ctx = context();
    ctx.cluster_time = Some(baton_types::Timestamp { seconds: 5, increment: 6 });
    let update = rawdoc! { "$currentDate": { "t": { "$type": "timestamp" } } };
    let update = Update::parse::<RawDocumentBuf>(RawBsonRef::Document(&update), &[], &ctx).unwrap();
    let after = update.apply(&rawdoc! { "_id": 1 }, None).unwrap().document.unwrap();
    assert_eq!(after.get_timestamp("t").unwrap(), bson::Timestamp { time: 5, increment: 6 });
}

#[test]
fn rename_moves_a_value() {
    check(
        rawdoc! { "_id": 1, "a": 1, "b": 2 },
        rawdoc! { "$rename": { "a": "c" } },
        rawdoc! { "_id": 1, "b": 2, "c": 1 },
    );
    check(rawdoc! { "_id": 1, "a": 1, "b": 2 }, rawdoc! { "$rename": { "a": "b" } }, rawdoc! { "_id": 1, "b": 1 });
    check(
        rawdoc! { "_id": 1, "a": { "b": [1] } },
        rawdoc! { "$rename": { "a.b": "c.d" } },
        rawdoc! { "_id": 1, "a": {}, "c": { "d": [1] } },
    );
    check(
        rawdoc! { "_id": 1, "a": 1 },
        rawdoc! { "$rename": { "nothing": "a", "n.m": "b" } },
        rawdoc! { "_id": 1, "a": 1 },
    );
}
