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
