//! Projections as MongoDB documents them: one story a test.

use super::*;
use bson::{DateTime, rawdoc};

fn context() -> Context {
    Context::new(DateTime::from_millis(0), 0)
}

fn parse(spec: &RawDocument, mode: Mode) -> Result<Projection> {
    Projection::parse(spec, None, &context(), mode)
}

#[track_caller]
fn check(mode: Mode, doc: RawDocumentBuf, spec: RawDocumentBuf, expected: RawDocumentBuf) {
    assert_eq!(parse(&spec, mode).unwrap().apply(&doc, None).unwrap(), expected);
}

#[track_caller]
fn find(doc: RawDocumentBuf, spec: RawDocumentBuf, expected: RawDocumentBuf) {
    check(Mode::Find, doc, spec, expected);
}

#[track_caller]
fn both(doc: RawDocumentBuf, spec: RawDocumentBuf, expected: RawDocumentBuf) {
    check(Mode::Find, doc.clone(), spec.clone(), expected.clone());
    check(Mode::Aggregate, doc, spec, expected);
}

#[track_caller]
fn add(doc: RawDocumentBuf, spec: RawDocumentBuf, expected: RawDocumentBuf) {
    assert_eq!(Projection::parse_add_fields(&spec, &context()).unwrap().apply(&doc, None).unwrap(), expected);
}

#[track_caller]
fn refuse(mode: Mode, spec: RawDocumentBuf, code: i32, message: &str) {
    let error = parse(&spec, mode).unwrap_err();
    assert_eq!((error.code.0, error.message.as_str()), (code, message));
}

#[test]
fn inclusion_keeps_the_order_of_the_document() {
    let doc = || rawdoc! { "_id": 1, "a": 1, "b": "x", "c": [1, 2] };
    both(doc(), rawdoc! { "c": 1, "a": true }, rawdoc! { "_id": 1, "a": 1, "c": [1, 2] });
    both(doc(), rawdoc! { "_id": 0, "b": 1.0 }, rawdoc! { "b": "x" });
    both(doc(), rawdoc! { "b": 1, "_id": 0 }, rawdoc! { "b": "x" });
    both(doc(), rawdoc! { "_id": 1 }, rawdoc! { "_id": 1 });
    both(doc(), rawdoc! { "none": 1 }, rawdoc! { "_id": 1 });
}

#[test]
fn exclusion_keeps_the_rest() {
    let doc = || rawdoc! { "_id": 1, "a": 1, "b": "x", "c": [1, 2] };
    both(doc(), rawdoc! { "a": 0, "none": false }, rawdoc! { "_id": 1, "b": "x", "c": [1, 2] });
    both(doc(), rawdoc! { "_id": 0 }, rawdoc! { "a": 1, "b": "x", "c": [1, 2] });
    both(doc(), rawdoc! { "_id": 1, "a": 0 }, rawdoc! { "_id": 1, "b": "x", "c": [1, 2] });
    find(doc(), rawdoc! {}, doc());
}

#[test]
fn paths_reach_into_documents_and_every_element_of_arrays() {
    let doc = || rawdoc! { "_id": 1, "a": { "b": 1, "c": 2 }, "l": [{ "x": 1, "y": 2 }, 5, [{ "x": 3, "y": 4 }], {}], "s": 7 };
    let included = rawdoc! { "_id": 1, "a": { "b": 1 }, "l": [{ "x": 1 }, [{ "x": 3 }], {}] };
    both(doc(), rawdoc! { "a.b": 1, "l.x": 1, "s.t": 1 }, included.clone());
    both(doc(), rawdoc! { "a": { "b": 1 }, "l": { "x": 1 }, "s": { "t": 1 } }, included);
    both(
        doc(),
        rawdoc! { "a.b": 0, "l.x": 0, "s.t": 0 },
        rawdoc! { "_id": 1, "a": { "c": 2 }, "l": [{ "y": 2 }, 5, [{ "y": 4 }], {}], "s": 7 },
    );
    both(
        rawdoc! { "_id": { "a": 1, "b": 2 }, "c": 1 },
        rawdoc! { "_id.a": 1, "c": 1 },
        rawdoc! { "_id": { "a": 1 }, "c": 1 },
    );
}

#[test]
fn inclusion_and_exclusion_do_not_mix() {
    for mode in [Mode::Find, Mode::Aggregate] {
        refuse(mode, rawdoc! { "a": 0, "b": 1 }, 31253, "Cannot do inclusion on field b in exclusion projection");
        refuse(mode, rawdoc! { "a": 1, "b": 0 }, 31254, "Cannot do exclusion on field b in inclusion projection");
        refuse(
            mode,
            rawdoc! { "a": 0, "b": "x" },
            31310,
            "Cannot use an expression b: \"x\" in an exclusion projection",
        );
        refuse(
            mode,
            rawdoc! { "a": 0, "b": { "$add": [1, 2] } },
            31252,
            "Cannot use expression other than $meta in exclusion projection",
        );
    }
}

#[test]
fn paths_that_collide_are_refused() {
    refuse(Mode::Find, rawdoc! { "a": 1, "a.b": 1 }, 31249, "Path collision at a.b remaining portion b");
    refuse(Mode::Find, rawdoc! { "a.b": 1, "a.b.c": 1 }, 31249, "Path collision at a.b.c remaining portion b.c");
    refuse(Mode::Find, rawdoc! { "a.b": 1, "a": 1 }, 31250, "Path collision at a");
    refuse(
        Mode::Find,
        rawdoc! { "a": {} },
        51270,
        "An empty sub-projection is not a valid value. Found empty object at path a",
    );
    refuse(Mode::Aggregate, rawdoc! {}, 51272, "projection specification must have at least one field");
}

#[test]
fn computed_fields_follow_in_the_order_of_the_specification() {
    let doc = || rawdoc! { "_id": 1, "a": 2, "b": { "c": 3 } };
    both(
        doc(),
        rawdoc! { "z": { "$add": ["$a", 1] }, "y": "$b.c", "b": 1, "text": "literal", "missing": "$nothing" },
        rawdoc! { "_id": 1, "b": { "c": 3 }, "z": 3, "y": 3, "text": "literal" },
    );
    both(doc(), rawdoc! { "b": { "c": "$a", "d": "$b.c" } }, rawdoc! { "_id": 1, "b": { "c": 2, "d": 3 } });
    both(
        rawdoc! { "_id": 1, "l": [1, { "x": 1 }, [2]] },
        rawdoc! { "l.n": "$_id" },
        rawdoc! { "_id": 1, "l": [{ "n": 1 }, { "n": 1 }, [{ "n": 1 }]] },
    );
    both(rawdoc! { "_id": 1, "s": 5 }, rawdoc! { "s.n": "$_id" }, rawdoc! { "_id": 1, "s": { "n": 1 } });
}

#[test]
fn an_unknown_operator_is_named() {
    refuse(Mode::Find, rawdoc! { "a": { "$foo": 1 } }, 31325, "Unknown expression $foo");
}

#[test]
fn slice_cuts_arrays_and_keeps_the_rest() {
    let doc = || rawdoc! { "_id": 1, "a": [1, 2, 3, 4], "b": 5, "c": { "d": [1, 2], "e": 1 } };
    let with = |a: bson::RawArrayBuf| rawdoc! { "_id": 1, "a": a, "b": 5, "c": { "d": [1, 2], "e": 1 } };
    find(doc(), rawdoc! { "a": { "$slice": 2 } }, with(bson::rawbson!([1, 2]).as_array().unwrap().to_owned()));
    find(doc(), rawdoc! { "a": { "$slice": -1 } }, with(bson::rawbson!([4]).as_array().unwrap().to_owned()));
    find(doc(), rawdoc! { "a": { "$slice": [1, 2] } }, with(bson::rawbson!([2, 3]).as_array().unwrap().to_owned()));
    find(doc(), rawdoc! { "a": { "$slice": [-3, 1] } }, with(bson::rawbson!([2]).as_array().unwrap().to_owned()));
    find(doc(), rawdoc! { "a": { "$slice": [9, 1] } }, with(bson::rawbson!([]).as_array().unwrap().to_owned()));
    find(doc(), rawdoc! { "b": { "$slice": 1 } }, doc());
    find(
        doc(),
        rawdoc! { "c.d": { "$slice": 1 } },
        rawdoc! { "_id": 1, "a": [1, 2, 3, 4], "b": 5, "c": { "d": [1], "e": 1 } },
    );
    find(doc(), rawdoc! { "b": 1, "a": { "$slice": 1 } }, rawdoc! { "_id": 1, "a": [1], "b": 5 });
    // The expression of the same name takes an array first.
    find(doc(), rawdoc! { "b": 1, "s": { "$slice": ["$a", 2] } }, rawdoc! { "_id": 1, "b": 5, "s": [1, 2] });
}

#[test]
fn slice_that_is_neither_form_says_so() {
    let error = parse(&rawdoc! { "a": { "$slice": "x" } }, Mode::Find).unwrap_err();
    assert!(
        error.message.starts_with(
            "Invalid $slice syntax. The given syntax { $slice: \"x\" } did not match the find() syntax because :: Location31273: $slice only supports numbers and [skip, limit] arrays :: The given syntax did not match the expression $slice syntax. :: caused by :: "
        ),
        "{error}"
    );
}

#[test]
fn elem_match_keeps_the_first_element_that_matches() {
    let doc = || rawdoc! { "_id": 1, "zip": "63109", "students": [{ "name": "john", "school": 102 }, { "name": "jess", "school": 102 }], "n": [1, 5, 9] };
    find(
        doc(),
        rawdoc! { "students": { "$elemMatch": { "school": 102, "name": "jess" } } },
        rawdoc! { "_id": 1, "students": [{ "name": "jess", "school": 102 }] },
    );
    find(
        doc(),
        rawdoc! { "n": { "$elemMatch": { "$gt": 3 } }, "zip": 1 },
        rawdoc! { "_id": 1, "zip": "63109", "n": [5] },
    );
    find(doc(), rawdoc! { "n": { "$elemMatch": { "$gt": 30 } } }, rawdoc! { "_id": 1 });
    find(doc(), rawdoc! { "zip": { "$elemMatch": { "$gt": 3 } } }, rawdoc! { "_id": 1 });
    find(
        doc(),
        rawdoc! { "n": { "$elemMatch": { "$gt": 3 } }, "students": 0 },
        rawdoc! { "_id": 1, "zip": "63109", "n": [5] },
    );
    refuse(
        Mode::Find,
        rawdoc! { "a": { "$elemMatch": 1 } },
        31274,
        "elemMatch: Invalid argument, object required, but got int",
    );
    refuse(
        Mode::Find,
        rawdoc! { "a.b": { "$elemMatch": {} } },
        31275,
        "Cannot use $elemMatch projection on a nested field.",
    );
}

fn positional(doc: RawDocumentBuf, filter: RawDocumentBuf, spec: RawDocumentBuf) -> Result<RawDocumentBuf> {
    let matcher = Matcher::parse(&filter, &context())?;
    let projection = Projection::parse(&spec, Some(&matcher), &context(), Mode::Find)?;
    assert!(projection.needs_match_details());
    let details = matcher.matches_with_position(&doc)?;
    projection.apply(&doc, details.as_ref())
}

#[test]
fn positional_keeps_the_element_the_filter_matched() {
    let doc = || rawdoc! { "_id": 1, "grades": [70, 87, 90], "in": { "l": [{ "x": 1 }, { "x": 2 }] }, "other": 1 };
    assert_eq!(
        positional(doc(), rawdoc! { "grades": { "$gte": 85 } }, rawdoc! { "grades.$": 1 }).unwrap(),
        rawdoc! { "_id": 1, "grades": [87] }
    );
    assert_eq!(
        positional(doc(), rawdoc! { "in.l.x": 2 }, rawdoc! { "in.l.$": 1, "other": 1 }).unwrap(),
        rawdoc! { "_id": 1, "in": { "l": [{ "x": 2 }] }, "other": 1 }
    );
    let error = positional(doc(), rawdoc! { "other": 1 }, rawdoc! { "grades.$": 1 }).unwrap_err();
    assert_eq!(
        (error.code.0, error.message.as_str()),
        (51246, "positional operator '.$' couldn't find a matching element in the array")
    );
}

#[test]
fn positional_is_refused_where_it_makes_no_sense() {
    refuse(Mode::Aggregate, rawdoc! { "a.$": 1 }, 31324, "Cannot use positional projection in aggregation projection");
    refuse(Mode::Find, rawdoc! { "a.$": 1 }, 51050, "Projections with a positional operator require a matcher");
    refuse(
        Mode::Find,
        rawdoc! { "a.$": { "b": 1 } },
        31271,
        "positional projection cannot be used with an expression or sub object",
    );
    refuse(Mode::Find, rawdoc! { "a.$": "x" }, 31308, "positional projection cannot be used with a literal");
    let error = parse(&rawdoc! { "a.$.b": 1 }, Mode::Find).unwrap_err();
    assert_eq!(error.code.0, 31394);
    let matcher = Matcher::parse(&rawdoc! { "a": 1 }, &context()).unwrap();
    let error = Projection::parse(&rawdoc! { "a.$": 1, "b.$": 1 }, Some(&matcher), &context(), Mode::Find).unwrap_err();
    assert_eq!(error.code.0, 31276);
    let spec = rawdoc! { "b": { "$elemMatch": { "x": 1 } }, "a.$": 1 };
    let error = Projection::parse(&spec, Some(&matcher), &context(), Mode::Find).unwrap_err();
    assert_eq!(error.code.0, 31256);
}

#[test]
fn add_fields_sets_in_place_and_appends() {
    let doc = || rawdoc! { "_id": 1, "a": 1, "b": { "c": 2 }, "l": [1, { "x": 1 }] };
    add(
        doc(),
        rawdoc! { "n": { "$add": ["$a", 1] }, "a": 5, "b.d": "$a", "l.y": true, "s.t": 1 },
        rawdoc! { "_id": 1, "a": 5, "b": { "c": 2, "d": 1 }, "l": [{ "y": true }, { "x": 1, "y": true }], "n": 2, "s": { "t": 1 } },
    );
    add(
        doc(),
        rawdoc! { "b": { "c": { "d": 1 } } },
        rawdoc! { "_id": 1, "a": 1, "b": { "c": { "d": 1 } }, "l": [1, { "x": 1 }] },
    );
    add(doc(), rawdoc! { "a": "$$REMOVE", "b": "$nothing" }, rawdoc! { "_id": 1, "l": [1, { "x": 1 }] });
}

#[test]
fn add_fields_refuses_what_cannot_be_meant() {
    for (spec, code, message) in [
        (rawdoc! {}, 40177, "specification must have at least one field"),
        (rawdoc! { "a": {} }, 40180, "an empty object is not a valid value. Found empty object at path a"),
        (
            rawdoc! { "a": 1, "a.b": 2 },
            40176,
            "specification contains two conflicting paths. Cannot specify both 'a.b' and 'a'",
        ),
        (
            rawdoc! { "a.b": 1, "a": 2 },
            40176,
            "specification contains two conflicting paths. Cannot specify both 'a' and 'a.b'",
        ),
    ] {
        let error = Projection::parse_add_fields(&spec, &context()).unwrap_err();
        assert_eq!((error.code.0, error.message.as_str()), (code, message));
    }
}

#[test]
fn unset_drops_paths() {
    let unset = |value: bson::RawBson| Projection::parse_unset(value.as_raw_bson_ref(), &context());
    let doc = rawdoc! { "_id": 1, "a": 1, "b": { "c": 2, "d": 3 } };
    assert_eq!(unset("a".into()).unwrap().apply(&doc, None).unwrap(), rawdoc! { "_id": 1, "b": { "c": 2, "d": 3 } });
    assert_eq!(
        unset(bson::rawbson!(["a", "b.c"])).unwrap().apply(&doc, None).unwrap(),
        rawdoc! { "_id": 1, "b": { "d": 3 } }
    );
    assert_eq!(unset(bson::rawbson!([])).unwrap_err().code.0, 31119);
    assert_eq!(unset(bson::rawbson!([1])).unwrap_err().code.0, 31120);
    assert_eq!(unset(1.into()).unwrap_err().code.0, 31002);
}

#[test]
fn a_projection_says_what_it_reads() {
    let needed = |spec: RawDocumentBuf| parse(&spec, Mode::Find).unwrap().required_fields();
    let fields = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    assert_eq!(needed(rawdoc! { "a": 1, "b.c": 1, "_id": 0 }).fields, fields(&["a", "b.c"]));
    assert_eq!(needed(rawdoc! { "a": { "$add": ["$x.y", 1] } }).fields, fields(&["_id", "x.y"]));
    assert!(!needed(rawdoc! { "a": 1 }).whole_document);
    assert!(needed(rawdoc! { "a": 0 }).whole_document);
    assert!(parse(&rawdoc! { "a": 1, "_id": 0 }, Mode::Find).unwrap().is_simple_top_level());
    assert!(!parse(&rawdoc! { "a.b": 1 }, Mode::Find).unwrap().is_simple_top_level());
}

#[test]
fn repeated_fields_do_not_hide_others() {
    let mut doc = rawdoc! { "_id": 1, "a": 1 };
    doc.append(bson::raw::cstr!("a"), 2);
    doc.append(bson::raw::cstr!("b"), 3);
    let projected = parse(&rawdoc! { "a": 1, "b": 1 }, Mode::Find).unwrap().apply(&doc, None).unwrap();
    assert_eq!(projected.get_i32("b").unwrap(), 3);
}
