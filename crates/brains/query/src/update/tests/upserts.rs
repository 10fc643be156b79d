//! What an upsert inserts.

use super::*;

fn upsert(filter: RawDocumentBuf, update: RawDocumentBuf) -> Result<RawDocumentBuf> {
    let matcher = Matcher::parse(&filter, &context())?;
    parse_with(&update, &[])?.upsert_document(&matcher, ObjectId::from_bytes([7; 12]))
}

#[test]
fn the_document_is_the_filters_equalities_then_the_update() {
    assert_eq!(
        upsert(
            rawdoc! { "z": 1, "a.b": 2, "n": { "$gt": 5 }, "e": { "$eq": "x" }, "_id": 9, "$and": [{ "a.c": 3 }] },
            rawdoc! { "$set": { "s": 1, "a.b": 5 }, "$setOnInsert": { "i": 1 }, "$inc": { "z": 1 } },
        )
        .unwrap(),
        rawdoc! { "_id": 9, "z": 2, "a": { "b": 5, "c": 3 }, "e": "x", "i": 1, "s": 1 }
    );
}

#[test]
fn the_id_comes_from_filter_or_update_or_is_generated() {
    let generated = ObjectId::from_bytes([7; 12]);
    assert_eq!(
        upsert(rawdoc! { "a": 1 }, rawdoc! { "$set": { "b": 1 } }).unwrap(),
        rawdoc! { "_id": generated, "a": 1, "b": 1 }
    );
    assert_eq!(upsert(rawdoc! { "a": 1 }, rawdoc! { "$set": { "_id": 5 } }).unwrap(), rawdoc! { "_id": 5, "a": 1 });
    assert_eq!(upsert(rawdoc! { "_id": 1 }, rawdoc! { "b": 1 }).unwrap(), rawdoc! { "_id": 1, "b": 1 });
    assert_eq!(upsert(rawdoc! { "a": 1 }, rawdoc! { "b": 1, "_id": 3 }).unwrap(), rawdoc! { "_id": 3, "b": 1 });
    assert_eq!(upsert(rawdoc! { "a": 1 }, rawdoc! {}).unwrap(), rawdoc! { "_id": generated });
}

#[test]
fn filter_and_update_may_not_disagree_on_the_id() {
    let error = upsert(rawdoc! { "_id": 1 }, rawdoc! { "$set": { "_id": 2 } }).unwrap_err();
    assert_eq!(error.message, "Performing an update on the path '_id' would modify the immutable field '_id'");
    let error = upsert(rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }).unwrap_err();
    assert_eq!(
        (error.code.0, error.message.as_str()),
        (66, "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2")
    );
}

#[test]
fn a_filter_that_names_a_path_twice_is_refused() {
    let update = || rawdoc! { "$set": { "x": 1 } };
    let error = upsert(rawdoc! { "$and": [{ "a": 1 }, { "a": 2 }] }, update()).unwrap_err();
    assert_eq!(
        (error.code.0, error.message.as_str()),
        (54, "cannot infer query fields to set, path 'a' is matched twice")
    );
    let error = upsert(rawdoc! { "a": 1, "a.b": 2 }, update()).unwrap_err();
    assert_eq!(error.message, "cannot infer query fields to set, both paths 'a.b' and 'a' are matched");
}

#[test]
fn positional_paths_find_nothing_to_match() {
    let error = upsert(rawdoc! { "a": 1 }, rawdoc! { "$set": { "b.$": 1 } }).unwrap_err();
    assert_eq!(error.message, "The positional operator did not find the match needed from the query.");
    let error = upsert(rawdoc! { "a": 1 }, rawdoc! { "$set": { "b.$[]": 1 } }).unwrap_err();
    assert_eq!(error.message, "The path 'b' must exist in the document in order to apply array updates.");
}

#[test]
fn an_id_that_cannot_be_stored_is_refused() {
    let error = upsert(rawdoc! { "a": 1 }, rawdoc! { "$set": { "_id": [1] } }).unwrap_err();
    assert_eq!((error.code.0, error.message.as_str()), (53, "The '_id' value cannot be of type array"));
}

#[test]
fn what_an_upsert_inserts_may_have_any_name_but_within_its_id() {
    let generated = ObjectId::from_bytes([7; 12]);
    for (update, inserted) in [
        (rawdoc! { "$set": { "$a": 1 } }, rawdoc! { "_id": generated, "$a": 1 }),
        (rawdoc! { "$setOnInsert": { "$a.$b": 1 } }, rawdoc! { "_id": generated, "$a": { "$b": 1 } }),
        (rawdoc! { "x": 1, "$a": 1 }, rawdoc! { "_id": generated, "x": 1, "$a": 1 }),
    ] {
        assert_eq!(upsert(rawdoc! { "n": { "$gt": 1 } }, update).unwrap(), inserted);
    }
    for update in [
        rawdoc! { "_id": { "$b": 1 } },
        rawdoc! { "$set": { "_id": { "$b": 1 } } },
        rawdoc! { "$setOnInsert": { "_id": { "a": [{ "$b": 1 }] } } },
    ] {
        let error = upsert(rawdoc! { "n": 1 }, update).unwrap_err();
        let message = "_id fields may not contain '$'-prefixed fields: $b is not valid for storage.";
        assert_eq!((error.code.0, error.message.as_str()), (52, message));
    }
    let reference = rawdoc! { "_id": { "$ref": "c", "$id": 1 } };
    assert_eq!(upsert(rawdoc! { "n": 1 }, reference.clone()).unwrap(), reference);
}
