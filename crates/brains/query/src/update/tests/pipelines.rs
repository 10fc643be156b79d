//! Updates by pipeline.

use super::*;
use bson::{RawBson, rawbson};

fn parse(stages: &RawBson) -> Result<Update> {
    Update::parse::<RawDocumentBuf>(stages.as_raw_bson_ref(), &[], &context())
}

#[track_caller]
fn pipeline(doc: RawDocumentBuf, stages: RawBson, after: RawDocumentBuf) {
    let applied = parse(&stages).unwrap().apply(&doc, None).unwrap();
    if let (Some(after), OplogUpdate::Delta(entry)) = (&applied.document, &applied.oplog) {
        assert_eq!(&diff::apply(&doc, entry.get_document("diff").unwrap()).unwrap(), after);
    }
    assert_eq!(applied.document.unwrap_or(doc), after);
}

#[test]
fn stages_reshape_the_document() {
    pipeline(
        rawdoc! { "_id": 3, "test1": 95, "test2": 92, "test3": 90, "modified": 1 },
        rawbson!([{ "$set": { "average": { "$avg": ["$test1", "$test2", "$test3"] }, "modified": "$$NOW" } }, { "$unset": ["test1", "test2"] }]),
        rawdoc! { "_id": 3, "test3": 90, "modified": DateTime::from_millis(NOW_MS), "average": (95.0 + 92.0 + 90.0) / 3.0 },
    );
    pipeline(rawdoc! { "_id": 1, "a": { "b": 2 } }, rawbson!([{ "$replaceWith": "$a" }]), rawdoc! { "_id": 1, "b": 2 });
    pipeline(
        rawdoc! { "_id": 1, "a": 1, "b": 2 },
        rawbson!([{ "$project": { "_id": 0, "b": 1 } }]),
        rawdoc! { "_id": 1, "b": 2 },
    );
    pipeline(rawdoc! { "_id": 1, "a": 1 }, rawbson!([]), rawdoc! { "_id": 1, "a": 1 });
}

#[test]
fn a_small_change_is_told_as_a_delta() {
    let doc = rawdoc! { "_id": 1, "a": 1, "padding": "text that makes a delta smaller than the document is" };
    let applied = parse(&rawbson!([{ "$set": { "a": { "$add": ["$a", 1] } } }])).unwrap().apply(&doc, None).unwrap();
    assert_eq!(applied.oplog, OplogUpdate::Delta(rawdoc! { "$v": 2, "diff": { "u": { "a": 2 } } }));
}

#[test]
fn other_stages_and_changes_of_the_id_are_refused() {
    let error = parse(&rawbson!([{ "$match": { "a": 1 } }])).unwrap_err();
    assert_eq!((error.code.0, error.message.as_str()), (72, "$match is not allowed to be used within an update"));
    let error = parse(&rawbson!([{ "$set": { "_id": 2 } }])).unwrap().apply(&rawdoc! { "_id": 1 }, None).unwrap_err();
    assert_eq!(
        (error.code.0, error.message.as_str()),
        (66, "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2")
    );
}

#[test]
fn an_upsert_runs_the_stages_on_the_filters_equalities() {
    let matcher = Matcher::parse(&rawdoc! { "a": 5, "b": { "$gt": 1 } }, &context()).unwrap();
    let generated = ObjectId::from_bytes([7; 12]);
    let update = parse(&rawbson!([{ "$set": { "c": { "$add": ["$a", 1] } } }])).unwrap();
    assert_eq!(update.upsert_document(&matcher, generated).unwrap(), rawdoc! { "_id": generated, "a": 5, "c": 6 });
}
