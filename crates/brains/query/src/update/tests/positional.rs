//! `$`, `$[]` and `$[identifier]`.

use super::*;

#[test]
fn dollar_is_the_element_the_filter_matched() {
    check_with(
        rawdoc! { "_id": 1, "grades": [80, 85, 90] },
        rawdoc! { "$set": { "grades.$": 82 } },
        &[],
        Some(0),
        rawdoc! { "_id": 1, "grades": [82, 85, 90] },
    );
    check_with(
        rawdoc! { "_id": 4, "grades": [{ "grade": 80, "std": 8 }, { "grade": 85, "std": 5 }] },
        rawdoc! { "$set": { "grades.$.std": 6, "grades.0.std": 1 } },
        &[],
        Some(1),
        rawdoc! { "_id": 4, "grades": [{ "grade": 80, "std": 1 }, { "grade": 85, "std": 6 }] },
    );
}

#[test]
fn dollar_needs_a_match() {
    refuse(
        rawdoc! { "_id": 1, "a": [1] },
        rawdoc! { "$set": { "a.$": 1 } },
        2,
        "The positional operator did not find the match needed from the query.",
    );
}

#[test]
fn dollar_may_not_meet_an_index() {
    let update = rawdoc! { "$set": { "a.$.x": 1, "a.0.x": 2 } };
    let error = apply_with(&rawdoc! { "_id": 1, "a": [{}] }, &update, &[], Some(0)).unwrap_err();
    assert_eq!((error.code.0, error.message.as_str()), (40, "Update created a conflict at 'a.0.x'"));
}

#[test]
fn all_elements() {
    check(
        rawdoc! { "_id": 1, "grades": [85, 82, 80], "nested": [[1], [2, 3]] },
        rawdoc! { "$inc": { "grades.$[]": 10, "nested.$[].$[]": 1 } },
        rawdoc! { "_id": 1, "grades": [95, 92, 90], "nested": [[2], [3, 4]] },
    );
    check(rawdoc! { "_id": 1, "a": [] }, rawdoc! { "$set": { "a.$[].b": 1 } }, rawdoc! { "_id": 1, "a": [] });
}

#[test]
fn filtered_elements() {
    check_with(
        rawdoc! { "_id": 1, "grades": [95, 102, 90, 150] },
        rawdoc! { "$set": { "grades.$[element]": 100 } },
        &[rawdoc! { "element": { "$gte": 100 } }],
        None,
        rawdoc! { "_id": 1, "grades": [95, 100, 90, 100] },
    );
    check_with(
        rawdoc! { "_id": 1, "grades": [{ "grade": 80, "mean": 75 }, { "grade": 85, "mean": 90 }] },
        rawdoc! { "$set": { "grades.$[elem].mean": 100 }, "$unset": { "grades.$[other].mean": "" } },
        &[rawdoc! { "elem.grade": { "$gte": 85 } }, rawdoc! { "other.grade": { "$lt": 85 } }],
        None,
        rawdoc! { "_id": 1, "grades": [{ "grade": 80 }, { "grade": 85, "mean": 100 }] },
    );
}

#[test]
fn two_filters_may_share_an_element_but_not_a_field() {
    let doc = rawdoc! { "_id": 1, "a": [{ "x": 0, "y": 0 }] };
    let filters = [rawdoc! { "i.x": 0 }, rawdoc! { "j.y": 0 }];
    check_with(
        doc.clone(),
        rawdoc! { "$set": { "a.$[i].x": 1, "a.$[j].y": 2 } },
        &filters,
        None,
        rawdoc! { "_id": 1, "a": [{ "x": 1, "y": 2 }] },
    );
    let error = apply_with(&doc, &rawdoc! { "$set": { "a.$[i].x": 1, "a.$[j].x": 2 } }, &filters, None).unwrap_err();
    assert_eq!((error.code.0, error.message.as_str()), (40, "Update created a conflict at 'a.0.x'"));
}

#[test]
fn array_updates_need_an_array() {
    refuse(
        rawdoc! { "_id": 1 },
        rawdoc! { "$set": { "a.b.$[]": 1 } },
        2,
        "The path 'a.b' must exist in the document in order to apply array updates.",
    );
    refuse(
        rawdoc! { "_id": 1, "a": 1 },
        rawdoc! { "$set": { "a.$[]": 1 } },
        2,
        "Cannot apply array updates to non-array element a: 1",
    );
}

#[test]
fn a_filter_that_no_path_uses_is_refused() {
    let error = parse_with(&rawdoc! { "$set": { "grades": "abc" } }, &[rawdoc! { "element": 1 }]).unwrap_err();
    assert_eq!(
        (error.code.0, error.message.as_str()),
        (9, r#"The array filter for identifier 'element' was not used in the update { $set: { grades: "abc" } }"#)
    );
    let error = parse_with(&rawdoc! { "a": 1 }, &[rawdoc! { "element": 1 }]).unwrap_err();
    assert_eq!(error.code.0, 9);
}
