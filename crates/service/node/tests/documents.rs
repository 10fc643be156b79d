//! What drivers rely on when commands on documents are refused, limited or cut short, over a real socket.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use bson::{Bson, Document, doc};

fn documents(client: &mut common::Client, collection: &str) -> Vec<Document> {
    let reply = client.run("test", doc! { "find": collection, "sort": { "_id": 1 } });
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

#[test]
fn an_element_with_an_unknown_field_fails_the_whole_command_before_it_writes() {
    let member = common::start();
    let mut client = member.client();
    client.run("test", doc! { "insert": "c", "documents": [{ "_id": 1, "x": 1 }] });
    let good = doc! { "q": { "_id": 1 }, "u": { "$set": { "x": 2 } } };
    // MongoDB 8.0 knows `sort` here, 7.0 does not.
    let sorted = doc! { "q": {}, "u": { "$set": { "x": 3 } }, "sort": { "_id": -1 } };
    assert_eq!(client.code("test", doc! { "update": "c", "updates": [good.clone(), sorted] }), 40415);
    let stage = doc! { "q": {}, "u": [{ "$frob": true }] };
    assert_eq!(client.code("test", doc! { "update": "c", "updates": [good.clone(), stage] }), 40324);
    let delete = doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }, { "q": {}, "limit": 0, "frob": 1 }] };
    assert_eq!(client.code("test", delete), 40415);
    assert_eq!(documents(&mut client, "c"), [doc! { "_id": 1, "x": 1 }]);
    // What is wrong inside a filter or an update concerns its statement alone.
    let operator = doc! { "q": {}, "u": { "$frob": { "x": 1 } } };
    let reply = client.run("test", doc! { "update": "c", "updates": [good, operator] });
    assert_eq!(reply.get_array("writeErrors").unwrap().len(), 1, "{reply}");
    assert_eq!(documents(&mut client, "c"), [doc! { "_id": 1, "x": 2 }]);
}

#[test]
fn merge_that_is_to_fail_on_a_match_names_the_key() {
    let member = common::start();
    let mut client = member.client();
    client.run("test", doc! { "insert": "from", "documents": [{ "_id": 1 }] });
    client.run("test", doc! { "insert": "into", "documents": [{ "_id": 1, "kept": true }] });
    let merge = doc! { "$merge": { "into": "into", "whenMatched": "fail" } };
    let reply = client.run("test", doc! { "aggregate": "from", "pipeline": [merge], "cursor": {} });
    assert_eq!(reply.get_i32("code").unwrap(), 11000, "{reply}");
    assert_eq!(reply.get_document("keyPattern").unwrap(), &doc! { "_id": 1 });
    assert_eq!(reply.get_document("keyValue").unwrap(), &doc! { "_id": 1 });
    assert_eq!(documents(&mut client, "into"), [doc! { "_id": 1, "kept": true }]);
}

#[test]
fn a_pipeline_that_writes_is_not_linearizable() {
    let member = common::start();
    let mut client = member.client();
    client.run("test", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let aggregate = |stage: Document| {
        doc! { "aggregate": "c", "pipeline": [stage], "cursor": {}, "readConcern": { "level": "linearizable" } }
    };
    assert_eq!(client.code("test", aggregate(doc! { "$out": "o" })), 72);
    assert_eq!(client.code("test", aggregate(doc! { "$merge": { "into": "o" } })), 72);
    assert_eq!(client.code("test", aggregate(doc! { "$match": {} })), 0);
}

#[test]
fn a_tailable_cursor_skips_and_ends_at_its_limit() {
    let member = common::start();
    let mut client = member.client();
    client.run("test", doc! { "create": "log", "capped": true, "size": 10_000 });
    client.run("test", doc! { "insert": "log", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] });
    let reply = client.run("test", doc! { "find": "log", "tailable": true, "skip": 1, "limit": 2, "batchSize": 1 });
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_array("firstBatch").unwrap(), &[Bson::Document(doc! { "_id": 2 })]);
    let id = cursor.get_i64("id").unwrap();
    let reply = client.run("test", doc! { "getMore": id, "collection": "log" });
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_array("nextBatch").unwrap(), &[Bson::Document(doc! { "_id": 3 })]);
    assert_eq!(cursor.get_i64("id").unwrap(), 0, "the limit is reached");
    assert_eq!(client.code("test", doc! { "find": "log", "tailable": true, "singleBatch": true }), 2);
    assert_eq!(client.code("test", doc! { "find": "log", "tailable": true, "sort": { "_id": 1 } }), 2);
    assert_eq!(client.code("test", doc! { "find": "log", "tailable": true, "sort": { "$natural": 1 } }), 0);
}

#[test]
fn a_get_more_without_a_size_gives_all_that_fits() {
    let member = common::start();
    let mut client = member.client();
    let documents: Vec<Bson> = (0..500).map(|n| Bson::Document(doc! { "_id": n })).collect();
    client.run("test", doc! { "insert": "c", "documents": documents });
    let opened = client.run("test", doc! { "find": "c", "batchSize": 2 });
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let sized = client.run("test", doc! { "getMore": id, "collection": "c", "batchSize": 3 });
    assert_eq!(sized.get_document("cursor").unwrap().get_array("nextBatch").unwrap().len(), 3);
    let rest = client.run("test", doc! { "getMore": id, "collection": "c" });
    let cursor = rest.get_document("cursor").unwrap();
    assert_eq!(cursor.get_array("nextBatch").unwrap().len(), 495);
    assert_eq!(cursor.get_i64("id").unwrap(), 0);
}

#[test]
fn validate_in_the_background_may_scan_but_not_fully() {
    let member = common::start();
    let mut client = member.client();
    client.run("test", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let reply = client.run("test", doc! { "validate": "c", "scandata": true, "background": true });
    assert!(reply.get_bool("valid").unwrap(), "{reply}");
    assert_eq!(client.code("test", doc! { "validate": "c", "full": true, "background": true }), 72);
}

#[test]
fn a_time_limit_ends_at_once_where_the_fail_point_asks_for_it() {
    let member = common::start();
    let mut client = member.client();
    client.run("test", doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] });
    let opened = client.run("test", doc! { "find": "c", "batchSize": 1, "maxTimeMS": 100_000 });
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    client.run("admin", doc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "alwaysOn" });
    assert_eq!(client.code("test", doc! { "count": "c", "maxTimeMS": 100_000 }), 50);
    assert_eq!(client.code("test", doc! { "count": "c" }), 0);
    assert_eq!(client.code("test", doc! { "getMore": id, "collection": "c" }), 50);
    client.run("admin", doc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "off" });
    assert_eq!(client.code("test", doc! { "count": "c", "maxTimeMS": 100_000 }), 0);
}

#[test]
fn what_runs_is_the_source_of_a_pipeline() {
    let member = common::start();
    let mut client = member.client();
    let pipeline = [doc! { "$currentOp": {} }, doc! { "$match": { "command.comment": "me" } }];
    let pipeline: Vec<Bson> = pipeline.into_iter().map(Bson::Document).collect();
    let reply = client.run("admin", doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {}, "comment": "me" });
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.len(), 1, "{reply}");
    assert!(batch[0].as_document().unwrap().get_bool("active").unwrap());
}
