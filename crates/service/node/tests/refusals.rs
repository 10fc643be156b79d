//! What users get wrong, and what they get back: every refusal that needs no data.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc, rawdoc};

fn session(byte: u8) -> Document {
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

#[test]
fn an_unknown_command_is_59_and_leaves_the_connection_usable() {
    let member = common::start();
    let mut client = member.client();
    let reply = client.run("admin", doc! { "frobnicate": 1 });
    assert_eq!(reply.get_i32("code").unwrap(), 59);
    assert_eq!(reply.get_str("codeName").unwrap(), "CommandNotFound");
    assert_eq!(reply.get_str("errmsg").unwrap(), "no such command: 'frobnicate'");
    for name in ["atlasVersion", "isdbgrid", "bulkWrite", ""] {
        assert_eq!(client.code("admin", doc! { name: 1 }), 59, "{name}");
    }
    assert_eq!(client.code("admin", doc! { "ping": 1 }), 0);
}

#[test]
fn a_command_without_a_database_is_40571() {
    let member = common::start();
    let mut client = member.client();
    assert_eq!(client.raw(&rawdoc! { "ping": 1 }).get_i32("code").unwrap(), 40571);
    assert_eq!(client.raw(&rawdoc! { "frobnicate": 1 }).get_i32("code").unwrap(), 40571);
}

#[test]
fn an_unknown_field_is_40415_and_a_missing_one_40414() {
    let member = common::start();
    let mut client = member.client();
    let reply = client.run("admin", doc! { "connectionStatus": 1, "frob": 1 });
    assert_eq!(reply.get_i32("code").unwrap(), 40415);
    assert_eq!(reply.get_str("errmsg").unwrap(), "BSON field 'connectionStatus.frob' is an unknown field.");
    let reply = client.run("admin", doc! { "setClientPriority": 1 });
    assert_eq!(reply.get_i32("code").unwrap(), 40414);
}

#[test]
fn a_field_of_a_wrong_type_is_14_with_both_types_named() {
    let member = common::start();
    let mut client = member.client();
    let reply = client.run("admin", doc! { "connectionStatus": 1, "showPrivileges": "yes" });
    assert_eq!(reply.get_i32("code").unwrap(), 14);
    assert!(reply.get_str("errmsg").unwrap().contains("'connectionStatus.showPrivileges' is the wrong type 'string'"));
    assert_eq!(client.code("admin", doc! { "ping": 1, "lsid": 5 }), 14);
    assert_eq!(client.code("admin", doc! { "endSessions": 5 }), 14);
    assert_eq!(client.code("admin", doc! { "killOp": 1, "op": "x" }), 14);
}

#[test]
fn a_bad_database_name_is_73() {
    let member = common::start();
    let mut client = member.client();
    for db in ["", "a b", "a.b", "a$b", &"x".repeat(64)] {
        let code = client.code(db, doc! { "ping": 1 });
        assert!(code == 73 || (db.is_empty() && code == 40571), "'{db}': {code}");
    }
}

#[test]
fn an_admin_command_elsewhere_is_13() {
    let member = common::start();
    let mut client = member.client();
    let reply = client.run("test", doc! { "getLog": "global" });
    assert_eq!(reply.get_i32("code").unwrap(), 13);
    assert_eq!(reply.get_str("errmsg").unwrap(), "getLog may only be run against the admin database.");
}

#[test]
fn max_time_ms_is_checked() {
    let member = common::start();
    let mut client = member.client();
    assert_eq!(client.code("admin", doc! { "ping": 1, "maxTimeMS": -1 }), 2);
    assert_eq!(client.code("admin", doc! { "ping": 1, "maxTimeMS": "x" }), 2);
    assert_eq!(client.code("admin", doc! { "ping": 1, "maxTimeMS": 1000 }), 0);
}

#[test]
fn concerns_are_checked() {
    let member = common::start();
    let mut client = member.client();
    let concern = |w: Document| doc! { "configureFailPoint": "failCommand", "mode": "off", "writeConcern": w };
    assert_eq!(client.code("admin", concern(doc! { "w": 51 })), 9);
    assert_eq!(client.code("admin", concern(doc! { "frob": 1 })), 40415);
    assert_eq!(client.code("admin", concern(doc! { "j": "yes" })), 14);
    assert_eq!(client.code("admin", doc! { "ping": 1, "writeConcern": { "w": 1 } }), 72);
    assert_eq!(client.code("admin", doc! { "ping": 1, "readConcern": { "level": "eventual" } }), 2);
    assert_eq!(client.code("admin", doc! { "ping": 1, "readConcern": { "level": "majority" } }), 72);
    assert_eq!(client.code("admin", doc! { "ping": 1, "readConcern": { "level": "local" } }), 0);
}

#[test]
fn more_members_than_there_are_is_a_write_concern_error_100() {
    let member = common::start();
    let mut client = member.client();
    let command = doc! { "appendOplogNote": 1, "data": { "a": 1 }, "writeConcern": { "w": 50 } };
    let reply = client.run("admin", command);
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    let error = reply.get_document("writeConcernError").unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 100);
    assert_eq!(error.get_str("codeName").unwrap(), "UnsatisfiableWriteConcern");
    let command = doc! { "appendOplogNote": 1, "data": { "a": 1 }, "writeConcern": { "w": "east" } };
    let error = client.run("admin", command);
    assert_eq!(error.get_document("writeConcernError").unwrap().get_i32("code").unwrap(), 79);
}

#[test]
fn a_command_that_fails_tells_of_the_write_concern_too() {
    let member = common::start();
    let mut client = member.client();
    assert_eq!(client.code("test", doc! { "create": "there" }), 0);
    let create =
        |name: &str| doc! { "create": name, "validator": { "a": 1 }, "writeConcern": { "w": 2, "wtimeout": 1 } };
    let reply = client.run("test", create("there"));
    assert_eq!(reply.get_i32("code").unwrap(), 48, "{reply}");
    assert_eq!(reply.get_document("writeConcernError").unwrap().get_i32("code").unwrap(), 100, "{reply}");
    let mut misspelt = create("new");
    misspelt.insert("frob", 1);
    assert!(!client.run("test", misspelt).contains_key("writeConcernError"), "nothing was begun");
}

#[test]
fn a_cluster_time_far_in_the_future_is_205_and_a_near_one_is_taken_over() {
    let member = common::start();
    let mut client = member.client();
    let time = |seconds: u32| doc! { "clusterTime": bson::Timestamp { time: seconds, increment: 1 } };
    assert_eq!(client.code("admin", doc! { "ping": 1, "$clusterTime": time(u32::MAX) }), 205);
    let now = bson::DateTime::now().timestamp_millis() / 1000;
    let soon = now as u32 + 1000;
    let reply = client.run("admin", doc! { "ping": 1, "$clusterTime": time(soon) });
    let heard = reply.get_document("$clusterTime").unwrap().get_timestamp("clusterTime").unwrap();
    assert_eq!(heard.time, soon);
}

#[test]
fn a_dead_cursor_is_43() {
    let member = common::start();
    let mut client = member.client();
    assert_eq!(client.code("test", doc! { "getMore": 12345_i64, "collection": "c" }), 43);
    let reply = client.run("test", doc! { "killCursors": "c", "cursors": [12345_i64] });
    assert_eq!(reply.get_array("cursorsNotFound").unwrap().len(), 1);
}

#[test]
fn transactions_are_not_implemented_and_say_so() {
    let member = common::start();
    let mut client = member.client();
    let begin = doc! {
        "find": "c", "lsid": session(1), "txnNumber": 1_i64, "autocommit": false, "startTransaction": true,
    };
    assert_eq!(client.code("test", begin), 238);
    let end = doc! { "commitTransaction": 1, "lsid": session(1), "txnNumber": 1_i64, "autocommit": false };
    let reply = client.run("admin", end);
    assert_eq!(reply.get_i32("code").unwrap(), 251);
    assert_eq!(client.code("admin", doc! { "ping": 1, "lsid": session(1), "txnNumber": 1_i64 }), 50768);
    assert_eq!(client.code("admin", doc! { "ping": 1, "txnNumber": 1_i64 }), 72);
}

#[test]
fn a_standalone_takes_no_transaction_numbers_and_is_in_no_set() {
    let member = common::start_with(|_| {});
    let mut client = member.client();
    let write = doc! { "delete": "c", "deletes": [], "lsid": session(1), "txnNumber": 1_i64 };
    assert_eq!(client.code("test", write), 20);
    assert_eq!(client.code("admin", doc! { "replSetGetStatus": 1 }), 76);
    let hello = client.run("admin", doc! { "hello": 1 });
    assert!(!hello.contains_key("setName") && !hello.contains_key("$clusterTime"));
    assert!(hello.get_bool("isWritablePrimary").unwrap());
}

#[test]
fn who_brings_a_user_is_told_that_there_are_none_yet() {
    let member = common::start();
    let mut client = member.client();
    let start = |mechanism: &str, user: &str| {
        let payload = Binary { subtype: BinarySubtype::Generic, bytes: format!("n,,n={user},r=x").into_bytes() };
        doc! { "saslStart": 1, "mechanism": mechanism, "payload": payload }
    };
    assert_eq!(client.code("admin", start("FROB", "a")), 334);
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let reply = client.run("admin", start(mechanism, "a"));
        assert_eq!(reply.get_i32("code").unwrap(), 334);
        assert!(reply.get_str("errmsg").unwrap().contains("users are not implemented yet"), "{reply}");
    }
    let speculative =
        doc! { "hello": 1, "saslSupportedMechs": "admin.a", "speculativeAuthenticate": start("SCRAM-SHA-256", "a") };
    let hello = client.run("admin", speculative);
    assert_eq!(hello.get_f64("ok").unwrap(), 1.0);
    assert!(
        hello.get_array("saslSupportedMechs").unwrap().is_empty() && !hello.contains_key("speculativeAuthenticate")
    );
    assert_eq!(client.code("admin", doc! { "saslContinue": 1, "conversationId": 1, "payload": "" }), 17);
}

#[test]
fn parameters_that_are_unknown_or_fixed_are_refused() {
    let member = common::start();
    let mut client = member.client();
    assert_eq!(client.code("admin", doc! { "setParameter": 1, "frob": 1 }), 72);
    assert_eq!(client.code("admin", doc! { "setParameter": 1 }), 72);
    assert_eq!(client.code("admin", doc! { "setParameter": 1, "enableTestCommands": false }), 20);
    assert_eq!(client.code("admin", doc! { "getParameter": 1, "frob": 1 }), 72);
    assert_eq!(client.code("admin", doc! { "setParameter": 1, "ttlMonitorSleepSecs": 0 }), 2);
}

#[test]
fn fail_points_exist_only_for_tests() {
    let member = common::start_with(|options| options.replica_set = Some("rs0".into()));
    let mut client = member.client();
    assert_eq!(client.code("admin", doc! { "configureFailPoint": "failCommand", "mode": "off" }), 59);
}

#[test]
fn a_second_client_document_is_186() {
    let member = common::start();
    let mut client = member.client();
    let hello = doc! { "hello": 1, "client": { "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" } } };
    assert_eq!(client.code("admin", hello.clone()), 0);
    assert_eq!(client.code("admin", hello), 186);
    let mut fresh = member.client();
    assert_eq!(fresh.code("admin", doc! { "hello": 1, "client": { "os": { "type": "Linux" } } }), 183);
}

#[test]
fn a_topology_version_needs_a_time_to_wait_and_the_other_way_round() {
    let member = common::start();
    let mut client = member.client();
    let version = client.run("admin", doc! { "hello": 1 }).get_document("topologyVersion").unwrap().clone();
    assert_eq!(client.code("admin", doc! { "hello": 1, "topologyVersion": version }), 31368);
    assert_eq!(client.code("admin", doc! { "hello": 1, "maxAwaitTimeMS": 10 }), 31368);
}

#[test]
fn an_unknown_api_version_is_322_and_what_is_not_in_it_323() {
    let member = common::start();
    let mut client = member.client();
    assert_eq!(client.code("admin", doc! { "ping": 1, "apiVersion": "2" }), 322);
    assert_eq!(client.code("admin", doc! { "ping": 1, "apiVersion": "1", "apiStrict": true }), 0);
    assert_eq!(client.code("admin", doc! { "getLog": "*", "apiVersion": "1", "apiStrict": true }), 323);
}

#[test]
fn what_api_version_1_lacks_is_323_under_api_strict() {
    let member = common::start();
    let mut client = member.client();
    client.run("test", doc! { "create": "c" });
    let mut strict = |db: &str, mut command: Document| {
        command.insert("apiVersion", "1");
        command.insert("apiStrict", true);
        client.code(db, command)
    };
    assert_eq!(strict("test", doc! { "distinct": "c", "key": "a" }), 323);
    let sessions = doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": {} }], "cursor": {} };
    assert_eq!(strict("test", sessions), 323);
    let stage = |stats: Document| doc! { "aggregate": "c", "pipeline": [{ "$collStats": stats }], "cursor": {} };
    assert_eq!(strict("test", stage(doc! { "storageStats": {} })), 323);
    assert_eq!(strict("test", stage(doc! { "count": {} })), 0);
}

#[test]
fn a_priority_is_one_of_three_and_is_shown() {
    let member = common::start();
    let mut client = member.client();
    for (database, command) in [("admin", "ping"), ("admin", "setClientPriority"), ("test", "count")] {
        assert_eq!(client.code(database, doc! { command: 1, "priority": "urgent" }), 2);
        assert_eq!(client.code(database, doc! { command: 1, "priority": true }), 14);
    }
    assert_eq!(client.code("admin", doc! { "setClientPriority": 1 }), 40414);
    let mut was = "normal";
    for word in ["high", "low", "normal"] {
        assert_eq!(client.code("admin", doc! { "ping": 1, "priority": word }), 0);
        let reply = client.run("admin", doc! { "setClientPriority": 1, "priority": word });
        assert_eq!((reply.get_str("was").unwrap(), reply.get_str("priority").unwrap()), (was, word));
        let reply = client.run("admin", doc! { "currentOp": 1, "op": "command" });
        let own = reply.get_array("inprog").unwrap()[0].as_document().unwrap();
        assert_eq!(own.get_str("class").unwrap(), word);
        was = word;
    }
}
