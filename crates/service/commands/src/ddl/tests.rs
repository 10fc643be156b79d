//! Commands on collections and indexes, sent to a member as a client sends them.

use crate::duties::{DUTIES, Stop};
use crate::testing::Member;
use crate::ttl;
use baton_execution::SystemDraw;
use baton_execution::write::{self, InsertRules, Work};
use baton_storage::{Author, Durability, IndexDefinition, Throttle};
use baton_types::{Check, Error, ErrorCode, Interruption, Namespace};
use bson::{Bson, DateTime, Document, doc, rawdoc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn names(entries: &[Document]) -> Vec<&str> {
    entries.iter().map(|entry| entry.get_str("name").unwrap()).collect()
}

fn insert(member: &Member, collection: &str, documents: impl IntoIterator<Item = Document>) {
    let documents: Vec<Document> = documents.into_iter().collect();
    member.ok("db", doc! { "insert": collection, "documents": documents });
}

fn find(member: &Member, collection: &str, filter: Document) -> Vec<Document> {
    member.batch("db", doc! { "find": collection, "filter": filter })
}

#[test]
fn a_collection_is_created_once_and_again_only_with_the_same_options() {
    let member = Member::new();
    member.ok("db", doc! { "create": "c", "capped": true, "size": 4096, "max": 10 });
    member.ok("db", doc! { "create": "c", "capped": true, "size": 4096.0, "max": 10_i64 });
    assert_eq!(member.code("db", doc! { "create": "c" }), 48);
    let listed = member.batch("db", doc! { "listCollections": 1, "cursor": {} });
    assert_eq!(names(&listed), ["c"]);
    assert_eq!(listed[0].get_document("options").unwrap(), &doc! { "capped": true, "size": 4096, "max": 10 });
    assert_eq!(listed[0].get_str("type").unwrap(), "collection");
    assert!(!listed[0].get_document("info").unwrap().get_bool("readOnly").unwrap());
}

#[test]
fn options_that_contradict_each_other_or_are_not_there_are_refused() {
    let member = Member::new();
    for (command, code) in [
        (doc! { "create": "c", "capped": true }, 72),
        (doc! { "create": "c", "size": 1 }, 72),
        (doc! { "create": "c", "pipeline": [] }, 72),
        (doc! { "create": "c", "viewOn": "" }, 2),
        (doc! { "create": "c", "frob": 1 }, 40415),
        (doc! { "create": "c", "validationLevel": "high" }, 2),
        (doc! { "create": "c", "validator": { "$frob": 1 } }, 2),
        (doc! { "create": "c", "timeseries": { "timeField": "t" } }, 238),
        (doc! { "create": "c", "clusteredIndex": { "key": { "a": 1 }, "unique": true } }, 197),
        (doc! { "create": "c", "clusteredIndex": { "key": { "_id": 1 } } }, 5_979_700),
        (doc! { "create": "c", "clusteredIndex": { "key": { "_id": 1 }, "unique": true, "frob": 1 } }, 40415),
        (
            doc! { "create": "c", "clusteredIndex": { "key": { "_id": 1 }, "unique": true }, "capped": true, "size": 9 },
            72,
        ),
        (doc! { "create": "c", "collation": { "locale": "fr" } }, 238),
        (doc! { "create": "system.mine" }, 73),
        (doc! { "create": "a$b" }, 73),
        (doc! { "create": 1 }, 73),
    ] {
        assert_eq!(member.code("db", command.clone()), code, "{command}");
    }
    member.ok("db", doc! { "create": "c", "collation": { "locale": "simple" } });
}

#[test]
fn a_clustered_index_goes_by_the_name_it_was_given() {
    let member = Member::new();
    let given = doc! { "key": { "_id": 1 }, "unique": true, "name": "mine" };
    member.ok("db", doc! { "create": "c", "clusteredIndex": given.clone() });
    member.ok("db", doc! { "create": "c", "clusteredIndex": given });
    let listed = member.batch("db", doc! { "listCollections": 1, "cursor": {} });
    let kept = doc! { "v": 2, "key": { "_id": 1 }, "name": "mine", "unique": true };
    assert_eq!(listed[0].get_document("options").unwrap(), &doc! { "clusteredIndex": kept });
    assert!(!listed[0].contains_key("idIndex"));
    let indexes = member.batch("db", doc! { "listIndexes": "c" });
    assert_eq!(indexes.len(), 1);
    assert_eq!(indexes[0], doc! { "v": 2, "key": { "_id": 1 }, "name": "mine", "unique": true, "clustered": true });
    insert(&member, "c", [doc! { "_id": 2 }, doc! { "_id": 1 }]);
    let found = member.batch("db", doc! { "find": "c", "filter": { "_id": { "$gt": 1 } }, "hint": "mine" });
    assert_eq!(found, [doc! { "_id": 2 }]);
    // It is the index on `_id`: no other is made, which a member that follows would not have.
    let made = member.ok("db", doc! { "createIndexes": "c", "indexes": [{ "key": { "_id": 1 }, "name": "other" }] });
    assert_eq!([made.get_i32("numIndexesBefore").unwrap(), made.get_i32("numIndexesAfter").unwrap()], [1, 1]);
    let used = doc! { "aggregate": "c", "pipeline": [{ "$indexStats": {} }], "cursor": {} };
    assert_eq!(names(&member.batch("db", used)), ["mine"]);
    assert_eq!(member.code("db", doc! { "dropIndexes": "c", "index": "mine" }), 72);
    member.ok("db", doc! { "convertToCapped": "c", "size": 4096 });
    assert_eq!(names(&member.batch("db", doc! { "listIndexes": "c" })), ["_id_"]);
}

#[test]
fn a_validator_holds_until_coll_mod_turns_it_off() {
    let member = Member::new();
    member.ok("db", doc! { "create": "c", "validator": { "n": { "$gt": 0 } } });
    let reply = member.ok("db", doc! { "insert": "c", "documents": [ { "_id": 1, "n": 0 } ] });
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(errors[0].as_document().unwrap().get_i32("code").unwrap(), 121);
    member.ok("db", doc! { "collMod": "c", "validationLevel": "off" });
    insert(&member, "c", [doc! { "_id": 1, "n": 0 }]);
    let listed = member.batch("db", doc! { "listCollections": 1, "filter": { "name": "c" } });
    let options = listed[0].get_document("options").unwrap();
    let wanted = doc! { "validator": { "n": { "$gt": 0 } }, "validationLevel": "off", "validationAction": "error" };
    assert_eq!(options, &wanted);
}

#[test]
fn views_are_listed_read_changed_and_never_stand_on_themselves() {
    let member = Member::new();
    insert(&member, "c", [doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 2 }]);
    member.ok("db", doc! { "create": "v", "viewOn": "c", "pipeline": [ { "$match": { "a": 1 } } ] });
    assert_eq!(find(&member, "v", doc! {}).len(), 1);
    let listed = member.batch("db", doc! { "listCollections": 1, "nameOnly": true });
    assert_eq!(names(&listed), ["c", "system.views", "v"]);
    assert_eq!(listed[2], doc! { "name": "v", "type": "view" });
    member.ok("db", doc! { "collMod": "v", "viewOn": "c", "pipeline": [] });
    assert_eq!(find(&member, "v", doc! {}).len(), 2);

    member.ok("db", doc! { "create": "w", "viewOn": "v" });
    assert_eq!(member.code("db", doc! { "create": "self", "viewOn": "self" }), 5);
    let lookup = doc! { "$lookup": { "from": "w", "localField": "a", "foreignField": "a", "as": "x" } };
    assert_eq!(member.code("db", doc! { "collMod": "v", "viewOn": "c", "pipeline": [lookup] }), 5);
    assert_eq!(member.code("db", doc! { "create": "x", "viewOn": "c", "pipeline": [ { "$out": "o" } ] }), 167);
    assert_eq!(member.code("db", doc! { "listIndexes": "v" }), 166);
    assert_eq!(member.code("db", doc! { "collStats": "v" }), 166);
    let reply = member.ok("db", doc! { "drop": "v" });
    assert!(!reply.contains_key("nIndexesWas") && reply.contains_key("ns"));
}

#[test]
fn dropping_says_what_was_there_and_nothing_of_what_was_not() {
    let member = Member::new();
    insert(&member, "c", [doc! { "_id": 1 }]);
    let reply = member.ok("db", doc! { "drop": "c" });
    assert_eq!((reply.get_i32("nIndexesWas").unwrap(), reply.get_str("ns").unwrap()), (1, "db.c"));
    assert!(!member.ok("db", doc! { "drop": "c" }).contains_key("ns"));
    insert(&member, "d", [doc! { "_id": 1 }]);
    assert_eq!(member.ok("db", doc! { "dropDatabase": 1 }).get_str("dropped").unwrap(), "db");
    assert!(!member.ok("db", doc! { "dropDatabase": 1 }).contains_key("dropped"));
    assert_eq!(member.code("local", doc! { "dropDatabase": 1 }), 20);
}

#[test]
fn a_rename_keeps_documents_and_indexes_also_into_another_database() {
    let member = Member::new();
    insert(&member, "a", (0..300).map(|i| doc! { "_id": i, "n": i }));
    member.ok("db", doc! { "createIndexes": "a", "indexes": [ { "key": { "n": 1 }, "name": "n_1", "unique": true } ] });
    insert(&member, "b", [doc! { "_id": 1 }]);
    let rename = |to: &str, drop: bool| doc! { "renameCollection": "db.a", "to": to, "dropTarget": drop };
    assert_eq!(member.code("db", rename("db.b", false)), 13);
    assert_eq!(member.code("admin", rename("db.b", false)), 48);
    assert_eq!(member.code("admin", rename("db.a", false)), 20);
    assert_eq!(member.code("admin", rename("local.a", false)), 20);
    assert_eq!(member.code("admin", doc! { "renameCollection": "db.no", "to": "db.x" }), 26);
    member.ok("admin", rename("db.b", true));
    assert_eq!(member.ok("db", doc! { "count": "b" }).get_i32("n").unwrap(), 300);

    member.ok("other", doc! { "insert": "b", "documents": [ { "_id": "old" } ] });
    let across = doc! { "renameCollection": "db.b", "to": "other.b" };
    assert_eq!(member.code("admin", across.clone()), 48);
    let mut across = across;
    across.insert("dropTarget", true);
    member.ok("admin", across);
    assert_eq!(member.ok("other", doc! { "count": "b" }).get_i32("n").unwrap(), 300);
    assert_eq!(member.ok("db", doc! { "count": "b" }).get_i32("n").unwrap(), 0);
    assert_eq!(names(&member.batch("other", doc! { "listIndexes": "b" })), ["_id_", "n_1"]);
    assert_eq!(names(&member.batch("other", doc! { "listCollections": 1 })), ["b"]);
    assert!(member.ok("other", doc! { "validate": "b" }).get_bool("valid").unwrap());
}

#[test]
fn indexes_are_built_once_and_conflicts_are_told_apart() {
    let member = Member::new();
    let create = |spec: Document| doc! { "createIndexes": "c", "indexes": [spec] };
    let reply = member.ok("db", create(doc! { "key": { "a": 1 }, "name": "a_1" }));
    assert_eq!(reply.get_i32("numIndexesBefore").unwrap(), 1);
    assert_eq!(reply.get_i32("numIndexesAfter").unwrap(), 2);
    assert!(reply.get_bool("createdCollectionAutomatically").unwrap());
    let again = member.ok("db", create(doc! { "key": { "a": 1.0 }, "name": "a_1" }));
    assert_eq!(again.get_str("note").unwrap(), "all indexes already exist");
    for (spec, code) in [
        (doc! { "key": { "a": 1 }, "name": "other" }, 85),
        (doc! { "key": { "a": 1 }, "name": "a_1", "expireAfterSeconds": 5 }, 85),
        (doc! { "key": { "a": 1 }, "name": "a_1", "unique": true }, 86),
        (doc! { "key": { "b": 1 }, "name": "a_1" }, 86),
        (doc! { "key": {} , "name": "x" }, 67),
        (doc! { "key": { "a": 1, "b": "frob" }, "name": "x" }, 67),
    ] {
        assert_eq!(member.code("db", create(spec.clone())), code, "{spec}");
    }
    member.ok("db", create(doc! { "key": { "a": 1 }, "name": "unique", "unique": true }));
    assert_eq!(member.code("db", doc! { "createIndexes": "c", "indexes": [] }), 2);
    let both = [doc! { "key": { "z": 1 }, "name": "z" }, doc! { "key": { "z": 1 }, "name": "z" }];
    assert_eq!(member.code("db", doc! { "createIndexes": "c", "indexes": both.to_vec() }), 68);
}

#[test]
fn a_command_that_cannot_build_all_its_indexes_builds_none() {
    let member = Member::new();
    insert(&member, "c", [doc! { "_id": 1, "a": 1, "u": 1 }, doc! { "_id": 2, "a": 2, "u": 1 }]);
    let specs =
        vec![doc! { "key": { "a": 1 }, "name": "a_1" }, doc! { "key": { "u": 1 }, "name": "u_1", "unique": true }];
    assert_eq!(member.code("db", doc! { "createIndexes": "c", "indexes": specs }), 11000);
    assert_eq!(names(&member.batch("db", doc! { "listIndexes": "c" })), ["_id_"]);
}

#[test]
fn indexes_are_dropped_by_name_key_list_or_all_but_never_that_on_id() {
    let member = Member::new();
    let spec = |field: &str| doc! { "key": { field: 1 }, "name": format!("{field}_1") };
    let specs: Vec<Document> = ["a", "b", "c", "d", "e"].map(spec).to_vec();
    member.ok("db", doc! { "createIndexes": "c", "indexes": specs });
    assert_eq!(member.ok("db", doc! { "dropIndexes": "c", "index": "a_1" }).get_i32("nIndexesWas").unwrap(), 6);
    member.ok("db", doc! { "deleteIndexes": "c", "index": { "b": 1 } });
    member.ok("db", doc! { "dropIndexes": "c", "index": ["c_1", "d_1"] });
    for (index, code) in [
        (Bson::from("nope"), 27),
        (Bson::from(doc! { "nope": 1 }), 27),
        (Bson::from("_id_"), 72),
        (Bson::from(doc! { "_id": 1 }), 72),
        (Bson::from(5), 14),
    ] {
        assert_eq!(member.code("db", doc! { "dropIndexes": "c", "index": index.clone() }), code, "{index}");
    }
    let all = member.ok("db", doc! { "dropIndexes": "c", "index": "*" });
    assert_eq!(all.get_i32("nIndexesWas").unwrap(), 2);
    assert_eq!(names(&member.batch("db", doc! { "listIndexes": "c" })), ["_id_"]);
    assert_eq!(member.code("db", doc! { "dropIndexes": "none", "index": "*" }), 26);
    assert_eq!(member.code("db", doc! { "listIndexes": "none" }), 26);
}

#[test]
fn coll_mod_hides_an_index_and_changes_when_documents_expire() {
    let member = Member::new();
    let spec = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 10 };
    member.ok("db", doc! { "createIndexes": "c", "indexes": [spec] });
    let hide = |index: Document| doc! { "collMod": "c", "index": index };
    let reply = member.ok("db", hide(doc! { "name": "at_1", "hidden": true, "expireAfterSeconds": 20 }));
    assert_eq!(reply.get_i32("expireAfterSeconds_old").unwrap(), 10);
    assert_eq!(reply.get_i32("expireAfterSeconds_new").unwrap(), 20);
    assert!(reply.get_bool("hidden_new").unwrap() && !reply.get_bool("hidden_old").unwrap());
    let listed = member.batch("db", doc! { "listIndexes": "c" });
    assert_eq!(listed[1].get_i32("expireAfterSeconds").unwrap(), 20);
    assert!(listed[1].get_bool("hidden").unwrap());
    member.ok("db", hide(doc! { "keyPattern": { "at": 1 }, "hidden": false }));
    assert!(!member.batch("db", doc! { "listIndexes": "c" })[1].contains_key("hidden"));
    assert_eq!(member.code("db", hide(doc! { "name": "none", "hidden": true })), 27);
    assert_eq!(member.code("db", hide(doc! { "name": "_id_", "hidden": true })), 2);
    assert_eq!(member.code("db", hide(doc! { "hidden": true })), 72);
    assert_eq!(member.code("db", doc! { "collMod": "none" }), 26);
}

#[test]
fn lists_come_in_batches_through_get_more() {
    let member = Member::new();
    for name in ["a", "b", "c"] {
        member.ok("db", doc! { "create": name });
    }
    let reply = member.ok("db", doc! { "listCollections": 1, "nameOnly": true, "cursor": { "batchSize": 2 } });
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_str("ns").unwrap(), "db.$cmd.listCollections");
    assert_eq!(cursor.get_array("firstBatch").unwrap().len(), 2);
    let id = cursor.get_i64("id").unwrap();
    let more = member.ok("db", doc! { "getMore": id, "collection": "$cmd.listCollections" });
    let cursor = more.get_document("cursor").unwrap();
    assert_eq!(cursor.get_array("nextBatch").unwrap().len(), 1);
    assert_eq!(cursor.get_i64("id").unwrap(), 0);
}

#[test]
fn databases_are_listed_with_sizes_by_filter_or_by_name_alone() {
    let member = Member::new();
    insert(&member, "c", [doc! { "_id": 1 }]);
    let reply = member.ok("admin", doc! { "listDatabases": 1 });
    let all: Vec<Document> =
        reply.get_array("databases").unwrap().iter().filter_map(Bson::as_document).cloned().collect();
    assert_eq!(names(&all), ["admin", "config", "db", "local"]);
    assert!(reply.contains_key("totalSize"));
    let filtered = member.ok("admin", doc! { "listDatabases": 1, "filter": { "name": "db" }, "nameOnly": true });
    assert_eq!(filtered.get_array("databases").unwrap(), &vec![Bson::from(doc! { "name": "db" })]);
    assert_eq!(member.code("db", doc! { "listDatabases": 1 }), 13);
}

#[test]
fn figures_add_up_and_are_scaled() {
    let member = Member::new();
    insert(&member, "c", (0..10).map(|i| doc! { "_id": i, "pad": "x".repeat(1000) }));
    let stats = member.ok("db", doc! { "collStats": "c" });
    assert_eq!(stats.get_i32("count").unwrap(), 10);
    let size = stats.get_i32("size").unwrap();
    assert_eq!(stats.get_i32("avgObjSize").unwrap(), size / 10);
    assert_eq!(stats.get_i32("nindexes").unwrap(), 1);
    let scaled = member.ok("db", doc! { "collStats": "c", "scale": 1024 });
    assert_eq!(scaled.get_i32("size").unwrap(), size / 1024);
    assert_eq!(member.ok("db", doc! { "collStats": "none" }).get_i32("count").unwrap(), 0);
    let all = member.ok("db", doc! { "dbStats": 1 });
    assert_eq!((all.get_i64("collections").unwrap(), all.get_i64("objects").unwrap()), (1, 10));
    assert_eq!(all.get_f64("dataSize").unwrap(), f64::from(size));
    let part = doc! { "dataSize": "db.c", "keyPattern": { "_id": 1 }, "min": { "_id": 2 }, "max": { "_id": 5 } };
    assert_eq!(member.ok("db", part).get_i64("numObjects").unwrap(), 3);
    let valid = member.ok("db", doc! { "validate": "c", "full": true });
    assert!(valid.get_bool("valid").unwrap());
    assert_eq!(valid.get_i32("nrecords").unwrap(), 10);
    assert_eq!(valid.get_document("keysPerIndex").unwrap(), &doc! { "_id_": 10 });
    assert_eq!(member.code("db", doc! { "validate": "none" }), 26);
    member.ok("db", doc! { "compact": "c" });
    assert_eq!(find(&member, "c", doc! {}).len(), 10);
}

#[test]
fn a_collection_made_capped_keeps_its_newest_documents() {
    let member = Member::new();
    insert(&member, "c", (0..100).map(|i| doc! { "_id": i, "pad": "x".repeat(200) }));
    member.ok("db", doc! { "cloneCollectionAsCapped": "c", "toCollection": "copy", "size": 8192 });
    member.ok("db", doc! { "convertToCapped": "c", "size": 8192 });
    for name in ["c", "copy"] {
        let left = find(&member, name, doc! {});
        assert!(left.len() < 50, "{}", left.len());
        assert_eq!(left.last().unwrap().get_i32("_id").unwrap(), 99);
        assert!(member.ok("db", doc! { "collStats": name }).get_bool("capped").unwrap());
    }
    let listed = member.batch("db", doc! { "listCollections": 1, "nameOnly": true });
    assert_eq!(names(&listed), ["c", "copy"]);
    assert_eq!(member.code("db", doc! { "convertToCapped": "none", "size": 1000 }), 26);
}

#[test]
fn an_insertion_that_is_refused_pushes_nothing_out_of_a_capped_collection() {
    let member = Member::new();
    member.ok("db", doc! { "create": "log", "capped": true, "size": 65536, "max": 10 });
    insert(&member, "log", (0..10).map(|i| doc! { "_id": i }));
    let again: Vec<_> = (0..10).map(|i| doc! { "_id": i }).collect();
    let reply = member.ok("db", doc! { "insert": "log", "documents": again, "ordered": false });
    assert_eq!((reply.get_i32("n").unwrap(), reply.get_array("writeErrors").unwrap().len()), (0, 10));
    assert_eq!(find(&member, "log", doc! {}).len(), 10);
    let mixed: Vec<_> = [3, 20, 4].map(|i| doc! { "_id": i }).into();
    member.ok("db", doc! { "insert": "log", "documents": mixed, "ordered": false });
    let ids: Vec<_> = find(&member, "log", doc! {}).iter().map(|d| d.get_i32("_id").unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8, 9, 20]);
}

#[test]
fn entries_of_an_oplog_are_applied_and_may_be_applied_again() {
    let member = Member::new();
    let ns = "db.c";
    let entries = vec![
        doc! { "op": "c", "ns": "db.$cmd", "o": { "create": "c", "idIndex": { "v": 2, "key": { "_id": 1 }, "name": "_id_" } } },
        doc! { "op": "i", "ns": ns, "o": { "_id": 1, "a": 1 } },
        doc! { "op": "i", "ns": ns, "o": { "_id": 2, "a": 1 } },
        doc! { "op": "u", "ns": ns, "o2": { "_id": 1 }, "o": { "$v": 2, "diff": { "u": { "a": 7 }, "i": { "b": 8 } } } },
        doc! { "op": "u", "ns": ns, "o2": { "_id": 2 }, "o": { "_id": 2, "whole": true } },
        doc! { "op": "u", "ns": ns, "o2": { "_id": 3 }, "o": { "$set": { "new": 1 } } },
        doc! { "op": "d", "ns": ns, "o": { "_id": 2 } },
        doc! { "op": "n", "ns": "", "o": { "msg": "nothing" } },
        doc! { "op": "c", "ns": "db.$cmd", "o": { "createIndexes": "c", "v": 2, "key": { "a": 1 }, "name": "a_1" } },
    ];
    for _ in 0..2 {
        let reply = member.ok("admin", doc! { "applyOps": entries.clone() });
        assert_eq!(reply.get_i32("applied").unwrap(), 9);
        let found = find(&member, "c", doc! {});
        assert_eq!(found, [doc! { "_id": 1, "a": 7, "b": 8 }, doc! { "_id": 3, "new": 1 }]);
        assert_eq!(names(&member.batch("db", doc! { "listIndexes": "c" })), ["_id_", "a_1"]);
    }
    let before_a_deletion = doc! { "op": "u", "ns": ns, "o2": { "_id": 9 }, "o": { "$v": 2, "diff": { "u": { "a": 1 }, "sb": { "u": { "c": 1 } } } } };
    let deletion = doc! { "op": "d", "ns": ns, "o": { "_id": 9 } };
    member.ok("admin", doc! { "applyOps": [before_a_deletion.clone()] });
    assert_eq!(find(&member, "c", doc! { "_id": 9 }), [doc! { "_id": 9, "a": 1 }]);
    member.ok("admin", doc! { "applyOps": [before_a_deletion.clone(), deletion] });
    assert_eq!(find(&member, "c", doc! { "_id": 9 }), []);
    let refused = doc! { "applyOps": [before_a_deletion], "alwaysUpsert": false };
    assert_eq!(member.send("admin", refused).get_i32("code").unwrap(), 96);
    let broken = vec![entries[1].clone(), doc! { "op": "i", "ns": ns, "o": { "no": "id" } }, entries[2].clone()];
    let reply = member.send("admin", doc! { "applyOps": broken });
    assert_eq!(reply.get_i32("code").unwrap(), 4);
    assert_eq!(reply.get_i32("applied").unwrap(), 2);
    assert_eq!(reply.get_array("results").unwrap(), &vec![Bson::from(true), Bson::from(false)]);
}

#[test]
fn expired_documents_go_and_no_others() {
    let member = Member::new();
    let spec = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 60 };
    member.ok("db", doc! { "createIndexes": "c", "indexes": [spec] });
    let ago = |secs: i64| DateTime::from_millis(DateTime::now().timestamp_millis() - secs * 1000);
    insert(&member, "c", (0..2500).map(|i| doc! { "_id": i, "at": ago(100) }));
    insert(
        &member,
        "c",
        [
            doc! { "_id": "fresh", "at": ago(10) },
            doc! { "_id": "none" },
            doc! { "_id": "number", "at": 5 },
            doc! { "_id": "one of several", "at": [ago(10), ago(100)] },
        ],
    );
    assert_eq!(ttl::run_once(&member.server), 2501);
    assert_eq!(names_of_ids(&find(&member, "c", doc! {})), ["fresh", "none", "number"]);
    assert_eq!(ttl::run_once(&member.server), 0);
    assert!(member.ok("db", doc! { "validate": "c" }).get_bool("valid").unwrap());
    let totals = member.server.storage.tasks().totals();
    assert!(totals.iter().any(|(kind, totals)| kind.name() == "ttlDeletion" && totals.count == 2));
}

#[test]
fn a_hidden_index_expires_documents_and_one_that_cannot_be_searched_is_passed_over() {
    let member = Member::new();
    let spec = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 60, "hidden": true };
    let text = doc! { "key": { "s": "text" }, "name": "n", "expireAfterSeconds": 60 };
    let sphere = doc! { "key": { "loc": "2dsphere" }, "name": "loc", "expireAfterSeconds": 60 };
    member.ok("db", doc! { "createIndexes": "c", "indexes": [spec, text, sphere] });
    let old = DateTime::from_millis(DateTime::now().timestamp_millis() - 100_000);
    insert(&member, "c", (0..20).map(|i| doc! { "_id": i, "at": old }));
    insert(&member, "c", [doc! { "_id": "none" }]);
    assert_eq!(ttl::run_once(&member.server), 20);
    // Clients are not served by it all the same.
    assert_eq!(member.code("db", doc! { "find": "c", "filter": { "at": 1 }, "hint": "at_1" }), 2);
}

#[test]
fn what_an_index_cannot_take_is_refused_by_inserts_updates_and_builds() {
    let member = Member::new();
    let code_of_write = |command: Document| {
        let reply = member.ok("db", command);
        reply.get_array("writeErrors").ok().map(|errors| errors[0].as_document().unwrap().get_i32("code").unwrap())
    };
    let insert_one =
        |collection: &str, document: Document| code_of_write(doc! { "insert": collection, "documents": [document] });
    for (key, bad, good, code) in [
        (doc! { "loc": "2dsphere" }, doc! { "loc": "abc" }, doc! { "loc": [1, 2] }, 16755),
        (doc! { "loc": "2d" }, doc! { "loc": [1] }, doc! { "loc": "abc" }, 13068),
        (doc! { "loc": "2d" }, doc! { "loc": [1, 200] }, doc! { "loc": [1, 2] }, 13027),
        (doc! { "s": "text" }, doc! { "language": 5 }, doc! { "language": "spanish" }, 17261),
        (doc! { "s": "text" }, doc! { "language": "klingon" }, doc! {}, 17262),
    ] {
        let spec = doc! { "key": key.clone(), "name": "i" };
        member.ok("db", doc! { "createIndexes": "c", "indexes": [spec.clone()] });
        let with_id = |id: i32, document: &Document| {
            let mut with_id = doc! { "_id": id };
            with_id.extend(document.clone());
            with_id
        };
        assert_eq!(insert_one("c", with_id(1, &bad)), Some(code), "{key}");
        assert_eq!(insert_one("c", with_id(1, &good)), None, "{key}");
        let update = doc! { "q": { "_id": 1 }, "u": { "$set": bad.clone() } };
        assert_eq!(code_of_write(doc! { "update": "c", "updates": [update] }), Some(code), "{key}");
        // What is there already ends the build, and can be deleted.
        member.ok("db", doc! { "dropIndexes": "c", "index": "i" });
        assert_eq!(insert_one("c", with_id(2, &bad)), None);
        assert_eq!(member.code("db", doc! { "createIndexes": "c", "indexes": [spec] }), code);
        assert_eq!(names(&member.batch("db", doc! { "listIndexes": "c" })), ["_id_"]);
        member.ok("db", doc! { "drop": "c" });
    }
}

#[test]
fn coll_mod_waits_for_no_index_build_and_touches_none() {
    let member = Member::new();
    let storage = &member.server.storage;
    let namespace = Namespace::new("db", "c").unwrap();
    insert(&member, "c", (0..10).map(|i| doc! { "_id": i, "a": i }));
    let definition = IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).unwrap();
    let hide = doc! { "collMod": "c", "index": { "name": "a_1", "hidden": true } };
    storage
        .by_member()
        .create_index(&namespace, definition, &mut |_, _| {
            assert_eq!(member.code("db", hide.clone()), 12587);
            assert_eq!(member.code("db", doc! { "collMod": "c", "validator": { "a": 1 } }), 12587);
            Ok(())
        })
        .unwrap();
    let reply = member.ok("db", hide);
    assert!(reply.get_bool("hidden_new").unwrap());
}

#[test]
fn coll_mod_of_options_and_an_index_is_one_entry() {
    let member = Member::new();
    let index = doc! { "key": { "at": 1 }, "name": "at_1" };
    member.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    let change = doc! { "name": "at_1", "expireAfterSeconds": 5, "hidden": true };
    member.ok("db", doc! { "collMod": "c", "validator": { "a": 1 }, "index": change.clone() });
    let entries = member.batch("local", doc! { "find": "oplog.rs", "filter": { "o.collMod": "c" } });
    assert_eq!(entries.len(), 1);
    let o = entries[0].get_document("o").unwrap();
    assert_eq!(o.get_document("validator").unwrap(), &doc! { "a": 1 });
    assert_eq!(o.get_document("index").unwrap(), &doc! { "name": "at_1", "hidden": true, "expireAfterSeconds": 5 });
    // Neither is changed if one of them cannot be.
    let missing = doc! { "name": "b_1", "hidden": true };
    assert_eq!(member.code("db", doc! { "collMod": "c", "validator": {}, "index": missing }), 27);
    let listed = member.batch("db", doc! { "listCollections": 1 });
    let options = listed[0].get_document("options").unwrap();
    assert_eq!(options.get_document("validator").unwrap(), &doc! { "a": 1 });
}

#[test]
fn a_rename_that_finds_its_target_changed_leaves_both_as_they_are() {
    let member = Member::new();
    let storage = &member.server.storage;
    insert(&member, "target", (0..3).map(|i| doc! { "_id": i }));
    let (scratch, target) = (Namespace::new("db", "scratch").unwrap(), Namespace::new("db", "target").unwrap());
    insert(&member, "scratch", [doc! { "_id": 9 }]);
    let refused = storage.by_member().rename_collection_if(&scratch, &target, true, |source, target| {
        assert_eq!(
            (source.namespace.coll(), target.map(|target| target.namespace.coll())),
            ("scratch", Some("target"))
        );
        Err(Error::new(ErrorCode::CommandFailed, "changed"))
    });
    assert_eq!(refused.unwrap_err().code, ErrorCode::CommandFailed);
    assert_eq!(find(&member, "target", doc! {}).len(), 3);
    assert_eq!(find(&member, "scratch", doc! {}).len(), 1);
}

#[test]
fn db_hash_is_of_documents_in_their_order_and_of_nothing_that_is_a_members_own() {
    let (one, other) = (Member::new(), Member::new());
    for (member, ids) in [(&one, [1, 2, 3]), (&other, [3, 1, 2])] {
        member.ok("db", doc! { "create": "capped", "capped": true, "size": 4096 });
        member.ok("db", doc! { "create": "v", "viewOn": "c", "pipeline": [] });
        insert(member, "c", ids.map(|id| doc! { "_id": id }));
        insert(member, "capped", [1, 2].map(|id| doc! { "_id": id }));
        insert(member, "empty", [doc! { "_id": 1 }]);
        member.ok("db", doc! { "delete": "empty", "deletes": [ { "q": {}, "limit": 0 } ] });
    }
    let hash = |member: &Member, command: Document| member.ok("db", command);
    let (a, b) = (hash(&one, doc! { "dbHash": 1 }), hash(&other, doc! { "dbhash": 1 }));
    let keys: Vec<&String> = a.keys().collect();
    assert_eq!(keys[..6], ["host", "collections", "capped", "uuids", "md5", "timeMillis"]);
    let collections = a.get_document("collections").unwrap();
    assert_eq!(collections.keys().collect::<Vec<_>>(), ["c", "capped", "empty", "system.views"]);
    // The digest of nothing, which is MongoDB's too.
    assert_eq!(collections.get_str("empty").unwrap(), "d41d8cd98f00b204e9800998ecf8427e");
    assert_eq!(a.get_array("capped").unwrap(), &[Bson::from("capped")]);
    assert_eq!(collections, b.get_document("collections").unwrap());
    assert_eq!(a.get_str("md5").unwrap(), b.get_str("md5").unwrap());
    insert(&one, "c", [doc! { "_id": 4 }]);
    let changed = hash(&one, doc! { "dbHash": 1, "collections": ["c"] });
    let only = changed.get_document("collections").unwrap();
    assert_eq!(only.keys().collect::<Vec<_>>(), ["c"]);
    assert_ne!(only.get_str("c").unwrap(), collections.get_str("c").unwrap());
    assert_eq!(one.code("db", doc! { "dbHash": 1, "collections": [1] }), 14);
    assert!(one.ok("local", doc! { "dbHash": 1 }).get_document("collections").unwrap().is_empty());
}

fn names_of_ids(documents: &[Document]) -> Vec<&str> {
    documents.iter().map(|document| document.get_str("_id").unwrap()).collect()
}

#[test]
fn what_is_applied_is_soon_durable_without_being_asked() {
    let member = Member::new();
    let (server, stop) = (&member.server, Stop::default());
    std::thread::scope(|scope| {
        DUTIES.iter().for_each(|duty| drop(scope.spawn(|| duty.carry_out(server, &stop))));
        member.ok("db", doc! { "insert": "c", "documents": [ { "_id": 1 } ], "writeConcern": { "w": 1 } });
        let queue = server.storage.queue();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut is_durable = false;
        while !is_durable && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_durable = queue.durable() >= queue.applied();
        }
        // Or nobody ends who was started here.
        stop.ask(server);
        assert!(is_durable, "nothing was synced");
    });
}

#[test]
fn the_oplogs_size_changes_within_mongodbs_limits() {
    let member = Member::new();
    member.ok("admin", doc! { "replSetResizeOplog": 1, "size": 2000.0 });
    assert_eq!(member.server.storage.statistics().oplog_bytes_max, 2000 * 1024 * 1024);
    assert_eq!(member.code("admin", doc! { "replSetResizeOplog": 1, "size": 10.0 }), 51024);
    assert_eq!(member.code("admin", doc! { "replSetResizeOplog": 1 }), 72);
}

#[test]
fn a_build_that_is_killed_or_loses_its_collection_leaves_nothing() {
    let member = Member::new();
    let storage = &member.server.storage;
    let namespace = Namespace::new("db", "c").unwrap();
    let definition = IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).unwrap();
    insert(&member, "c", (0..1000).map(|i| doc! { "_id": i, "a": i }));
    let killed = storage.by_member().create_index(&namespace, definition.clone(), &mut |done, _| {
        if done < 500 { Ok(()) } else { Err(Error::new(ErrorCode::Interrupted, "killed")) }
    });
    assert_eq!(killed.unwrap_err().code, ErrorCode::Interrupted);
    assert_eq!(names(&member.batch("db", doc! { "listIndexes": "c" })), ["_id_"]);

    let dropped = storage
        .by_member()
        .create_index(&namespace, definition, &mut |_, _| storage.by_member().drop_collection(&namespace).map(|_| ()));
    assert_eq!(dropped.unwrap_err().code, ErrorCode::IndexBuildAborted);
    assert!(member.batch("db", doc! { "listCollections": 1 }).is_empty());
    // Nor does it come back as another collection of that name is made and changed.
    insert(&member, "c", [doc! { "_id": 1 }]);
    assert_eq!(names(&member.batch("db", doc! { "listIndexes": "c" })), ["_id_"]);
}

#[test]
fn a_build_goes_on_under_the_name_its_collection_gets_meanwhile() {
    let member = Member::new();
    let storage = &member.server.storage;
    let (from, to) = (Namespace::new("db", "c").unwrap(), Namespace::new("db", "d").unwrap());
    let definition = IndexDefinition::parse(&rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" }).unwrap();
    insert(&member, "c", (0..10).map(|i| doc! { "_id": i, "a": i }));
    storage
        .by_member()
        .create_index(&from, definition, &mut |_, _| match storage.collection(&from) {
            Some(_) => storage.by_member().rename_collection(&from, &to, false),
            None => Ok(()),
        })
        .unwrap();
    assert_eq!(names(&member.batch("db", doc! { "listCollections": 1 })), ["d"]);
    assert_eq!(names(&member.batch("db", doc! { "listIndexes": "d" })), ["_id_", "a_1"]);
    assert!(member.ok("db", doc! { "validate": "d" }).get_bool("valid").unwrap());
}

/// The document was logged for the view, and no member that follows could apply it. Found by the fuzzer of commands.
#[test]
fn what_becomes_a_view_between_two_batches_of_an_insert_takes_no_document() {
    let member = Arc::new(Member::new());
    let namespace = Namespace::new("db", "c").unwrap();
    // The second waits until the first, which has its `_id`, is committed. Before that the collection is looked for again.
    let documents = [rawdoc! { "_id": 2.0 }, rawdoc! { "_id": 2 }];
    let batches = Arc::new(AtomicU32::new(0));
    let check: Check = {
        let (member, batches) = (Arc::clone(&member), Arc::clone(&batches));
        Arc::new(move || {
            if batches.fetch_add(1, Ordering::Relaxed) + 1 == 2 {
                member.ok("db", doc! { "drop": "c" });
                member.ok("db", doc! { "create": "c", "viewOn": "other", "pipeline": [] });
            }
            Ok(())
        })
    };
    let work = Work {
        storage: &member.server.storage,
        draw: &SystemDraw,
        interruption: &Interruption::asking(&check),
        durability: Durability::Applied,
        throttle: &Throttle::default(),
        author: &Author::default(),
        left: None,
    };
    let mut failures = Vec::new();
    let mut each = documents.iter().enumerate().map(|(at, document)| (at, &**document, at as i32));
    let rules = InsertRules { ordered: true, ..InsertRules::default() };
    let failed = &mut |at, error: Error| failures.push((at, error.code));
    let (inserted, _) = write::insert_many(&work, &namespace, &mut each, rules, None, failed).unwrap();
    assert_eq!((batches.load(Ordering::Relaxed), inserted), (2, 1));
    assert_eq!(failures, [(1, ErrorCode::CommandNotSupportedOnView)]);
}
