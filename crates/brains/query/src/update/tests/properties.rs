//! Laws that hold for any update of any document.

use super::*;
use bson::{Bson, Document};
use proptest::prelude::*;

fn value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        (-2..3_i32).prop_map(Bson::Int32),
        Just(Bson::Int64(7)),
        Just(Bson::Double(1.5)),
        "[xy]{0,9}".prop_map(Bson::String),
        Just(Bson::Null),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            fields(inner).prop_map(Bson::Document),
        ]
    })
}

fn fields(value: impl Strategy<Value = Bson>) -> impl Strategy<Value = Document> {
    proptest::collection::vec(("[a-c]", value), 0..4).prop_map(|f| f.into_iter().collect())
}

fn document() -> impl Strategy<Value = RawDocumentBuf> {
    fields(value()).prop_map(|doc| {
        let mut with_id = bson::doc! { "_id": 1 };
        with_id.extend(doc);
        RawDocumentBuf::try_from(with_id).unwrap()
    })
}

fn path() -> impl Strategy<Value = String> {
    let component = prop_oneof![4 => "[a-c]", 2 => "[0-4]", 1 => Just("$[]".to_owned()), 1 => Just("$".to_owned())];
    ("[a-c]", proptest::collection::vec(component, 0..3)).prop_map(|(first, mut rest)| {
        rest.insert(0, first);
        rest.join(".")
    })
}

fn modifier() -> impl Strategy<Value = (String, String, Bson)> {
    prop_oneof![
        (Just("$set"), path(), value()),
        (Just("$unset"), path(), Just(Bson::Null)),
        (Just("$inc"), path(), Just(Bson::Int32(1))),
        (Just("$max"), path(), value()),
        (Just("$push"), path(), value()),
        (Just("$push"), path(), Just(Bson::Document(bson::doc! { "$each": [1, 0], "$sort": 1, "$slice": -2 }))),
        (Just("$addToSet"), path(), value()),
        (Just("$pop"), path(), Just(Bson::Int32(1))),
        (Just("$pull"), path(), value()),
        (Just("$rename"), path(), path().prop_map(Bson::String)),
    ]
    .prop_map(|(operator, path, argument)| (operator.to_owned(), path, argument))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// [`apply_with`] holds every delta to the new document; here every new document is held to be well formed, and an
    /// error is MongoDB's, never ours.
    #[test]
    fn any_update_makes_a_sound_document_or_a_named_error(
        doc in document(),
        modifiers in proptest::collection::vec(modifier(), 1..4),
        index in proptest::option::of(0..4_usize),
    ) {
        let mut update = Document::new();
        for (operator, path, argument) in modifiers {
            let operator = update.entry(operator).or_insert_with(|| Bson::Document(Document::new()));
            operator.as_document_mut().unwrap().insert(path, argument);
        }
        let update = RawDocumentBuf::try_from(update).unwrap();
        match apply_with(&doc, &update, &[], index) {
            Ok(applied) => {
                let after = applied.document.unwrap_or_else(|| doc.clone());
                baton_document::validate::document(after.as_bytes()).unwrap();
                prop_assert_eq!(after.get_i32("_id").unwrap(), 1);
            }
            Err(error) => prop_assert!([2, 9, 14, 28, 34, 40].contains(&error.code.0), "{}", error),
        }
    }

    /// What an update leaves unchanged it leaves byte for byte: fields it does not name, in their order.
    #[test]
    fn fields_that_are_not_named_keep_bytes_and_order(doc in document(), new in value()) {
        let mut update = RawDocumentBuf::new();
        let mut set = RawDocumentBuf::new();
        set.append(bson::raw::cstr!("b"), RawDocumentBuf::try_from(bson::doc! { "v": new }).unwrap());
        update.append(bson::raw::cstr!("$set"), set);
        let after = apply_with(&doc, &update, &[], None).unwrap().document.unwrap_or_else(|| doc.clone());
        let others = |doc: &RawDocumentBuf| -> Vec<Vec<u8>> {
            raw::elements(doc).map(|e| e.unwrap()).filter(|e| e.key() != "b").map(|e| e.bytes().to_vec()).collect()
        };
        prop_assert_eq!(others(&doc), others(&after));
    }
}
