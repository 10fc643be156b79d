//! Keys of one document: whoever makes very many of them is asked whether to go on, and there are not more than memory has room
//! for. What was refused has left nothing.

use baton_storage::{
    Bounds, Collection, CollectionOptions, CreateOutcome, Durability, IndexDefinition, Inserted, Order, Storage,
    StorageOptions, record_key,
};
use baton_types::interruption::STEPS_PER_LOOK;
use baton_types::{Check, Error, ErrorCode, Interruption, Namespace, Result};
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// More than pass between two looks.
const MANY: i32 = 4 * STEPS_PER_LOOK as i32;

struct Ground {
    storage: Arc<Storage>,
    collection: Arc<Collection>,
    _directory: TempDir,
}

impl Ground {
    fn new(index: Option<&RawDocument>) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
        let storage = Storage::open(directory.path(), options).expect("the directory opens");
        let namespace = Namespace::new("test", "c").expect("a valid name");
        let outcome =
            storage.by_member().create_collection(&namespace, CollectionOptions::default(), [7; 16]).expect("created");
        let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) = outcome;
        let ground = Self { storage, collection, _directory: directory };
        if let Some(index) = index {
            ground.build(index, &Arc::default()).expect("built");
        }
        ground
    }

    fn build(&self, index: &RawDocument, asked: &Arc<Interruption>) -> Result<()> {
        let definition = IndexDefinition::parse(index)?;
        let namespace = &self.collection.namespace;
        self.storage
            .by_member()
            .create_index_if(
                |catalog| Ok(Some((catalog.collection(namespace).expect("there"), definition))),
                asked,
                &mut |_, _| Ok(()),
            )
            .map(drop)
    }

    fn insert(&self, document: &RawDocument, asked: &Arc<Interruption>) -> Result<()> {
        let mut transaction = self.storage.by_member().interruptible_transaction(asked);
        match self.storage.insert(&mut transaction, &self.collection, document, None)? {
            Inserted::Added => self.storage.by_member().commit(transaction, Durability::Applied).map(drop),
            Inserted::CommitFirst => unreachable!("nobody holds a lock"),
        }
    }

    fn replace(&self, before: &RawDocument, after: &RawDocument, asked: &Arc<Interruption>) -> Result<()> {
        let record = record_key(RawBsonRef::Int32(1)).expect("a key");
        let mut transaction = self.storage.by_member().interruptible_transaction(asked);
        assert!(self.storage.lock_document(&mut transaction, &self.collection, &record));
        self.storage.update(&mut transaction, &self.collection, &record, (before, after), after, None)?;
        self.storage.by_member().commit(transaction, Durability::Applied).map(drop)
    }

    fn documents(&self) -> usize {
        let mut cursor = self.storage.view().documents(&self.collection, &Bounds::default(), Order::Forward);
        let mut count = 0;
        while cursor.next_document().expect("readable").is_some() {
            count += 1;
        }
        count
    }

    fn assert_valid(&self) {
        let report = self.storage.validate(&self.collection, &mut |_, _| Ok(())).expect("validated");
        assert!(report.is_valid() && !report.counters_mended, "{:?}", report.errors);
    }
}

/// One that is interrupted at a look, counted from 1, and how often it was looked at.
fn interrupted_at(at: usize) -> (Arc<Interruption>, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&looks);
    let check: Check = Arc::new(move || match seen.fetch_add(1, Ordering::Relaxed) + 1 >= at {
        true => Err(Error::new(ErrorCode::Interrupted, "operation was interrupted")),
        false => Ok(()),
    });
    (Interruption::asking(&check), looks)
}

fn long() -> RawDocumentBuf {
    let elements: Vec<Bson> = (0..MANY).map(|i| doc! { "x": i, "y": [i] }.into()).collect();
    RawDocumentBuf::try_from(&doc! { "_id": 1, "s": "text", "b": elements }).expect("well formed")
}

fn indexes() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "v": 2, "name": "i", "key": { "b": 1 } },
        rawdoc! { "v": 2, "name": "i", "key": { "b.x": -1 } },
        rawdoc! { "v": 2, "name": "i", "key": { "b.y": 1 } },
        rawdoc! { "v": 2, "name": "i", "key": { "s": 1, "b.x": 1, "b.z": 1, "b": -1 } },
        rawdoc! { "v": 2, "name": "i", "key": { "b.x": 1 }, "unique": true },
        rawdoc! { "v": 2, "name": "i", "key": { "s": 1 }, "partialFilterExpression": { "b.x": { "$gt": MANY } } },
        rawdoc! { "v": 2, "name": "i", "key": { "s": 1 }, "partialFilterExpression": { "b.none": { "$exists": true } } },
    ]
}

#[track_caller]
fn is_interrupted(outcome: Result<()>, what: &RawDocument) {
    assert_eq!(outcome.map_err(|error| error.code), Err(ErrorCode::Interrupted), "{what:?}");
}

#[test]
fn who_makes_many_keys_of_one_document_can_be_stopped() {
    let short = rawdoc! { "_id": 1, "s": "short" };
    for index in indexes() {
        let ground = Ground::new(Some(&index));
        let (asked, _) = interrupted_at(2);
        is_interrupted(ground.insert(&long(), &asked), &index);
        assert_eq!(ground.documents(), 0, "{index:?}");
        ground.insert(&short, &Arc::default()).expect("inserted");
        let (asked, _) = interrupted_at(2);
        is_interrupted(ground.replace(&short, &long(), &asked), &index);
        ground.assert_valid();
        let (asked, looks) = interrupted_at(usize::MAX);
        ground.replace(&short, &long(), &asked).expect("updated");
        assert!(looks.load(Ordering::Relaxed) >= 3, "{index:?}");
        ground.assert_valid();
        // What is there goes, whoever asks.
        let (asked, _) = interrupted_at(1);
        ground.replace(&long(), &short, &asked).expect("updated");
        ground.assert_valid();
    }
}

#[test]
fn a_build_can_be_stopped_within_one_document() {
    for index in indexes() {
        let ground = Ground::new(None);
        ground.insert(&long(), &Arc::default()).expect("inserted");
        let (asked, _) = interrupted_at(2);
        is_interrupted(ground.build(&index, &asked), &index);
        assert!(ground.collection.index("i").is_none(), "{index:?}");
        ground.assert_valid();
        ground.build(&index, &Arc::default()).expect("built");
        ground.assert_valid();
    }
}

/// A value that all of an array's keys have beside the element's: the keys are as many times longer than the document.
#[test]
fn the_keys_of_one_document_are_bounded_in_bytes() {
    let ground = Ground::new(Some(&rawdoc! { "v": 2, "name": "i", "key": { "s": 1, "b": 1 } }));
    let document = |elements: i32| {
        let all: Vec<i32> = (0..elements).collect();
        RawDocumentBuf::try_from(&doc! { "_id": 1, "s": "x".repeat(60_000), "b": all }).expect("well formed")
    };
    let refused = ground.insert(&document(10_000), &Arc::default()).expect_err("600 MB of keys");
    assert_eq!(refused.code, ErrorCode::CannotBuildIndexKeys);
    assert_eq!(ground.documents(), 0);
    ground.insert(&document(100), &Arc::default()).expect("inserted");
    let refused = ground.replace(&document(100), &document(10_000), &Arc::default()).expect_err("600 MB of keys");
    assert_eq!(refused.code, ErrorCode::CannotBuildIndexKeys);
    ground.assert_valid();
}

/// Of values that are one key the first of the array is kept with it, as it ever was: entries on disk are compared with it.
#[test]
fn of_equal_elements_the_first_is_kept_with_the_key() {
    for (array, kept) in [
        (vec![Bson::Int32(1), Bson::Double(1.0)], 1.into()),
        (vec![Bson::Double(1.0), Bson::Int32(1)], Bson::Double(1.0)),
    ] {
        let ground = Ground::new(Some(&rawdoc! { "v": 2, "name": "i", "key": { "b": 1 } }));
        let document = RawDocumentBuf::try_from(&doc! { "_id": 1, "b": array }).expect("well formed");
        ground.insert(&document, &Arc::default()).expect("inserted");
        let index = ground.collection.index("i").expect("there");
        let view = ground.storage.view();
        let mut entries = view.entries(&index, &Bounds::default(), Order::Forward);
        let entry = entries.next_entry().expect("readable").expect("one");
        let original = entry.originals.map(|values| Bson::try_from(values.iter().next().unwrap().unwrap().1).unwrap());
        assert_eq!(original.unwrap_or(1.into()), kept);
        assert!(entries.next_entry().expect("readable").is_none());
    }
}
