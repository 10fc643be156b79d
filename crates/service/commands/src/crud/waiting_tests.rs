//! Writers that wait for a lock that somebody else holds for long: what is asked of them meanwhile, and what they leave.

use crate::testing::Member;
use baton_storage::{Transaction, record_key};
use baton_types::Namespace;
use bson::{RawBsonRef, doc};
use std::time::{Duration, Instant};

const MAX_TIME_MS_EXPIRED: i32 = 50;

/// Fails if a writer that waits cannot be ended, or if one that was ended stands in the next one's way.
#[test]
fn a_writer_that_waits_for_a_document_ends_when_its_time_is_over() {
    let member = Member::new();
    member.ok("db", doc! { "insert": "c", "documents": [ { "_id": 1, "n": 0 } ] });
    let storage = &member.server.storage;
    let collection = storage.collection(&Namespace::new("db", "c").unwrap()).unwrap();
    let mut holder = Transaction::default();
    assert!(storage.lock_document(&mut holder, &collection, &record_key(RawBsonRef::Int32(1)).unwrap()));
    let began = Instant::now();
    for command in [
        doc! { "update": "c", "updates": [ { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } } ], "maxTimeMS": 200 },
        doc! { "delete": "c", "deletes": [ { "q": { "_id": 1 }, "limit": 1 } ], "maxTimeMS": 200 },
        doc! { "insert": "c", "documents": [ { "_id": 1 } ], "maxTimeMS": 200 },
        doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$inc": { "n": 1 } }, "maxTimeMS": 200 },
    ] {
        assert_eq!(member.code("db", command), MAX_TIME_MS_EXPIRED);
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    // As an early return does.
    drop(holder);
    member.ok("db", doc! { "update": "c", "updates": [ { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } } ] });
    assert_eq!(member.batch("db", doc! { "find": "c" }), [doc! { "_id": 1, "n": 1 }]);
}

#[test]
fn a_writer_that_waits_for_a_unique_key_ends_when_its_time_is_over() {
    let member = Member::new();
    member.ok("db", doc! { "createIndexes": "c", "indexes": [ { "key": { "k": 1 }, "name": "k_1", "unique": true } ] });
    member.ok("db", doc! { "insert": "c", "documents": [ { "_id": 1, "k": 1 } ] });
    let storage = &member.server.storage;
    let collection = storage.collection(&Namespace::new("db", "c").unwrap()).unwrap();
    let mut holder = Transaction::default();
    // Holds the key 2 and the document that is to have it.
    let document = bson::rawdoc! { "_id": 2, "k": 2 };
    storage.insert(&mut holder, &collection, &document, None).unwrap();
    for command in [
        doc! { "update": "c", "updates": [ { "q": { "_id": 1 }, "u": { "$set": { "k": 2 } } } ], "maxTimeMS": 200 },
        doc! { "insert": "c", "documents": [ { "_id": 3, "k": 2 } ], "maxTimeMS": 200 },
        doc! { "update": "c", "updates": [ { "q": { "_id": 4 }, "u": { "$set": { "k": 2 } }, "upsert": true } ], "maxTimeMS": 200 },
    ] {
        assert_eq!(member.code("db", command), MAX_TIME_MS_EXPIRED);
    }
    drop(holder);
    member.ok("db", doc! { "update": "c", "updates": [ { "q": { "_id": 1 }, "u": { "$set": { "k": 2 } } } ] });
    assert_eq!(member.batch("db", doc! { "find": "c" }), [doc! { "_id": 1, "k": 2 }]);
}
