//! Operators on arrays: `$push`, `$addToSet`, `$pop`, `$pull`, `$pullAll`, and array indexes in paths.

use super::*;

#[test]
fn an_index_in_a_path_reaches_an_element() {
    check(
        rawdoc! { "_id": 1, "a": [1, { "b": 1 }, 3] },
        rawdoc! { "$set": { "a.0": 9, "a.1.b": 2 }, "$inc": { "a.2": 1 } },
        rawdoc! { "_id": 1, "a": [9, { "b": 2 }, 4] },
    );
}

#[test]
fn an_index_behind_the_end_pads_with_null() {
    check(rawdoc! { "_id": 1, "a": [1] }, rawdoc! { "$set": { "a.3": 4, "a.10.b": 1 } }, {
        rawdoc! { "_id": 1, "a": [1, null, null, 4, null, null, null, null, null, null, { "b": 1 }] }
    });
    check(rawdoc! { "_id": 1, "a": [1] }, rawdoc! { "$unset": { "a.3": "" } }, rawdoc! { "_id": 1, "a": [1] });
    refuse(
        rawdoc! { "_id": 1, "a": [] },
        rawdoc! { "$set": { "a.1500001": 1 } },
        34,
        "can't backfill more than 1500000 elements",
    );
}

#[test]
fn unset_leaves_null_in_an_array() {
    check(
        rawdoc! { "_id": 1, "a": [1, 2, 3] },
        rawdoc! { "$unset": { "a.1": "" } },
        rawdoc! { "_id": 1, "a": [1, null, 3] },
    );
}

#[test]
fn push_appends() {
    check(
        rawdoc! { "_id": 1, "a": [1] },
        rawdoc! { "$push": { "a": 2, "n": [3], "m.k": { "$each": [] } } },
        rawdoc! { "_id": 1, "a": [1, 2], "m": { "k": [] }, "n": [[3]] },
    );
    check(
        rawdoc! { "_id": 1, "a": [1] },
        rawdoc! { "$push": { "a": { "$each": [2, 3] } } },
        rawdoc! { "_id": 1, "a": [1, 2, 3] },
    );
    check(
        rawdoc! { "_id": 1, "a": [1] },
        rawdoc! { "$push": { "a": { "$each": [] } } },
        rawdoc! { "_id": 1, "a": [1] },
    );
}

#[test]
fn push_inserts_at_a_position() {
    for (position, expected) in [(0, [9, 1, 2]), (1, [1, 9, 2]), (5, [1, 2, 9]), (-1, [1, 9, 2]), (-9, [9, 1, 2])] {
        check(
            rawdoc! { "_id": 1, "a": [1, 2] },
            rawdoc! { "$push": { "a": { "$each": [9], "$position": position } } },
            rawdoc! { "_id": 1, "a": expected.map(bson::RawBson::Int32).into_iter().collect::<bson::RawArrayBuf>() },
        );
    }
}

#[test]
fn push_sorts_then_slices_whatever_the_order_of_its_clauses() {
    check(
        rawdoc! { "_id": 1, "quizzes": [{ "wk": 1, "score": 10 }, { "wk": 2, "score": 8 }, { "wk": 3, "score": 5 }, { "wk": 4, "score": 6 }] },
        rawdoc! { "$push": { "quizzes": {
            "$slice": 3,
            "$sort": { "score": -1 },
            "$each": [{ "wk": 5, "score": 8 }, { "wk": 6, "score": 7 }, { "wk": 7, "score": 6 }],
        } } },
        rawdoc! { "_id": 1, "quizzes": [{ "wk": 1, "score": 10 }, { "wk": 2, "score": 8 }, { "wk": 5, "score": 8 }] },
    );
    check(
        rawdoc! { "_id": 1, "a": [3, 1] },
        rawdoc! { "$push": { "a": { "$each": [2], "$sort": 1, "$slice": -2 } } },
        rawdoc! { "_id": 1, "a": [2, 3] },
    );
    check(
        rawdoc! { "_id": 1, "a": [3, 1] },
        rawdoc! { "$push": { "a": { "$each": [], "$slice": 0 } } },
        rawdoc! { "_id": 1, "a": [] },
    );
    check(
        rawdoc! { "_id": 1, "a": [{ "x": { "y": 2 } }, { "x": 1 }, 7, { "x": { "y": 1 } }] },
        rawdoc! { "$push": { "a": { "$each": [], "$sort": { "x.y": 1 } } } },
        rawdoc! { "_id": 1, "a": [{ "x": 1 }, 7, { "x": { "y": 1 } }, { "x": { "y": 2 } }] },
    );
}

#[test]
fn add_to_set_adds_what_is_not_there() {
    check(
        rawdoc! { "_id": 1, "a": [1, "x", { "b": 1 }] },
        rawdoc! { "$addToSet": { "a": { "$each": [1.0, "y", { "b": 1 }, "y", { "b": 2 }] } } },
        rawdoc! { "_id": 1, "a": [1, "x", { "b": 1 }, "y", { "b": 2 }] },
    );
    check(rawdoc! { "_id": 1, "a": ["x"] }, rawdoc! { "$addToSet": { "a": "x" } }, rawdoc! { "_id": 1, "a": ["x"] });
    check(rawdoc! { "_id": 1 }, rawdoc! { "$addToSet": { "a": ["x"] } }, rawdoc! { "_id": 1, "a": [["x"]] });
}

#[test]
fn pop_removes_from_an_end() {
    check(
        rawdoc! { "_id": 1, "a": [1, 2, 3], "b": [1, 2, 3], "c": [] },
        rawdoc! { "$pop": { "a": 1, "b": -1, "c": 1, "n": 1 } },
        {
            rawdoc! { "_id": 1, "a": [1, 2], "b": [2, 3], "c": [] }
        },
    );
}

#[test]
fn pull_all_removes_listed_values() {
    check(
        rawdoc! { "_id": 1, "scores": [0, 2, 5, 5, 1, 0] },
        rawdoc! { "$pullAll": { "scores": [0, 5.0], "n": [1] } },
        rawdoc! { "_id": 1, "scores": [2, 1] },
    );
}

#[test]
fn pull_removes_equal_values() {
    check(
        rawdoc! { "_id": 1, "a": [1, 2, 1.0, "x", [1]], "b": [[1, 2], [1]] },
        rawdoc! { "$pull": { "a": 1, "b": [1], "n": 1 } },
        rawdoc! { "_id": 1, "a": [2, "x", [1]], "b": [[1, 2]] },
    );
}

#[test]
fn pull_removes_what_matches_a_condition() {
    check(
        rawdoc! { "_id": 1, "fruits": ["apples", "pears", "oranges"], "votes": [3, 5, 6, 7] },
        rawdoc! { "$pull": { "fruits": { "$in": ["apples", "oranges"] }, "votes": { "$gte": 6 } } },
        rawdoc! { "_id": 1, "fruits": ["pears"], "votes": [3, 5] },
    );
    check(
        rawdoc! { "_id": 1, "results": [{ "item": "A", "score": 5 }, { "item": "B", "score": 8, "comment": "x" }, 8] },
        rawdoc! { "$pull": { "results": { "score": 8, "item": "B" } } },
        rawdoc! { "_id": 1, "results": [{ "item": "A", "score": 5 }, 8] },
    );
    check(
        rawdoc! { "_id": 1, "results": [{ "answers": [{ "q": 1, "a": 4 }, { "q": 2, "a": 6 }] }, { "answers": [{ "q": 1, "a": 8 }, { "q": 2, "a": 9 }] }] },
        rawdoc! { "$pull": { "results": { "answers": { "$elemMatch": { "q": 2, "a": { "$gte": 8 } } } } } },
        rawdoc! { "_id": 1, "results": [{ "answers": [{ "q": 1, "a": 4 }, { "q": 2, "a": 6 }] }] },
    );
}
