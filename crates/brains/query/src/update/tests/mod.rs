//! Updates as MongoDB documents them: one story a test, by topic.
//!
//! Every update that changes something is also checked against its oplog entry: applied to the old document, once and
//! twice, the entry must make the new one.

mod arrays;
mod fields;
mod pipelines;
mod positional;
mod properties;
mod refused;
mod upserts;

use super::*;
use bson::{DateTime, rawdoc};

/// The time of every test's request.
const NOW_MS: i64 = 1_700_000_000_123;

fn context() -> Context {
    Context::new(DateTime::from_millis(NOW_MS), 0)
}

fn parse_with(update: &RawDocument, filters: &[RawDocumentBuf]) -> Result<Update> {
    Update::parse(RawBsonRef::Document(update), filters, &context())
}

fn apply_with(
    doc: &RawDocument,
    update: &RawDocument,
    filters: &[RawDocumentBuf],
    index: Option<usize>,
) -> Result<Applied> {
    let details = index.map(|i| MatchDetails { array_index: Some(i) });
    let applied = parse_with(update, filters)?.apply(doc, details.as_ref())?;
    if let (Some(after), OplogUpdate::Delta(entry)) = (&applied.document, &applied.oplog) {
        let delta = entry.get_document("diff").unwrap();
        let once = diff::apply(doc, delta).unwrap();
        assert_eq!(&once, after, "the oplog entry {entry:?} makes another document");
        assert_eq!(diff::apply(&once, delta).unwrap(), once, "the oplog entry {entry:?} is not idempotent");
    }
    assert_eq!(applied.document.is_none(), applied.oplog == OplogUpdate::Unchanged);
    Ok(applied)
}

/// Applies `update` to `doc` and expects `after`.
#[track_caller]
fn check(doc: RawDocumentBuf, update: RawDocumentBuf, after: RawDocumentBuf) {
    check_with(doc, update, &[], None, after);
}

#[track_caller]
fn check_with(
    doc: RawDocumentBuf,
    update: RawDocumentBuf,
    filters: &[RawDocumentBuf],
    index: Option<usize>,
    after: RawDocumentBuf,
) {
    let applied = apply_with(&doc, &update, filters, index).unwrap();
    let changed = applied.document.is_some();
    let result = applied.document.unwrap_or_else(|| doc.clone());
    assert_eq!(result, after);
    assert_eq!(changed, doc != after, "a change is reported if and only if there is one");
}

/// Applies `update` to `doc` and expects an error of exactly this code and message.
#[track_caller]
fn refuse(doc: RawDocumentBuf, update: RawDocumentBuf, code: i32, message: &str) {
    let error = apply_with(&doc, &update, &[], None).unwrap_err();
    assert_eq!((error.code.0, error.message.as_str()), (code, message));
}

#[test]
fn the_oplog_entry_of_a_small_change_is_a_delta() {
    let doc = rawdoc! { "_id": 1, "a": 1, "b": { "c": 1, "d": "some more text, so that a delta is worth it" }, "e": "more text" };
    let update = rawdoc! { "$set": { "a": 2, "b.c": 3, "n": 4 }, "$unset": { "e": "" } };
    let applied = apply_with(&doc, &update, &[], None).unwrap();
    assert_eq!(
        applied.oplog,
        OplogUpdate::Delta(
            rawdoc! { "$v": 2, "diff": { "d": { "e": false }, "u": { "a": 2 }, "i": { "n": 4 }, "sb": { "u": { "c": 3 } } } }
        )
    );
}

#[test]
fn the_oplog_entry_of_a_large_change_is_the_document() {
    let applied = apply_with(&rawdoc! { "_id": 1, "a": 1 }, &rawdoc! { "$inc": { "a": 1 } }, &[], None).unwrap();
    assert_eq!(applied.oplog, OplogUpdate::Replacement);
}

#[test]
fn a_change_to_a_repeated_field_is_told_as_the_whole_document() {
    let mut doc = rawdoc! { "_id": 1, "a": 1, "padding": "text that would make a delta smaller than the document" };
    doc.append(bson::raw::cstr!("a"), 2);
    let applied = apply_with(&doc, &rawdoc! { "$set": { "a": 3 } }, &[], None).unwrap();
    assert_eq!(applied.oplog, OplogUpdate::Replacement);
}

#[test]
fn a_replacement_keeps_the_id_and_nothing_else() {
    check(rawdoc! { "_id": 1, "a": 1, "b": 2 }, rawdoc! { "c": 3 }, rawdoc! { "_id": 1, "c": 3 });
    check(rawdoc! { "_id": 1, "a": 1 }, rawdoc! {}, rawdoc! { "_id": 1 });
    // An equal _id of another type does not change the stored one.
    check(rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 1.0, "b": 1 }, rawdoc! { "_id": 1, "b": 1 });
    refuse(
        rawdoc! { "_id": 1, "a": 1 },
        rawdoc! { "_id": 2 },
        66,
        "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2",
    );
}

#[test]
fn a_replacement_changes_nothing_only_where_it_is_the_document_byte_for_byte() {
    let doc = rawdoc! { "_id": 1, "a": 1 };
    for (replacement, changes) in [
        (rawdoc! { "_id": 1, "a": 1 }, false),
        // As MongoDB counts: `nModified` is 1, though nothing is different.
        (rawdoc! { "a": 1 }, true),
        (rawdoc! { "a": 1, "_id": 1 }, true),
        (rawdoc! { "_id": 1.0, "a": 1 }, true),
        (rawdoc! { "_id": 1, "a": 1.0 }, true),
    ] {
        let applied = apply_with(&doc, &replacement, &[], None).unwrap();
        assert_eq!(applied.document.is_some(), changes, "{replacement:?}");
    }
    let applied = apply_with(&doc, &rawdoc! { "a": 1, "_id": 1 }, &[], None).unwrap();
    assert_eq!((applied.document, applied.oplog), (Some(doc), OplogUpdate::Replacement));
}

#[test]
fn an_empty_timestamp_in_a_replacement_takes_the_time() {
    let empty = bson::Timestamp { time: 0, increment: 0 };
    let update = rawdoc! { "t": empty, "below": { "t": empty } };
    let applied = apply_with(&rawdoc! { "_id": 1 }, &update, &[], None).unwrap();
    let now = bson::Timestamp { time: 1_700_000_000, increment: 1 };
    assert_eq!(applied.document, Some(rawdoc! { "_id": 1, "t": now, "below": { "t": empty } }));
}

#[test]
fn an_update_names_the_fields_it_may_touch() {
    let update = parse_with(&rawdoc! { "$set": { "b.c": 1, "a": 1 }, "$rename": { "x": "y" } }, &[]).unwrap();
    assert_eq!(update.touched_fields(), Some(vec!["a", "b", "x", "y"]));
    assert_eq!(parse_with(&rawdoc! { "a": 1 }, &[]).unwrap().touched_fields(), None);
}
