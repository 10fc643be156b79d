//! The commands that need no data, over a real socket.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use baton_wire::Flags;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawDocumentBuf, doc};
use std::time::{Duration, Instant};

#[test]
fn hello_tells_a_driver_that_this_is_the_primary_of_its_set() {
    let member = common::start();
    let mut client = member.client();
    let hello = client.run("admin", doc! { "hello": 1, "helloOk": true, "compression": ["zlib", "frob", "snappy"] });
    assert!(hello.get_bool("isWritablePrimary").unwrap());
    assert!(!hello.get_bool("secondary").unwrap());
    assert!(hello.get_bool("helloOk").unwrap());
    assert_eq!(hello.get_str("setName").unwrap(), "rs0");
    let me = member.address().to_string();
    assert_eq!(hello.get_str("me").unwrap(), me.as_str());
    assert_eq!(hello.get_str("primary").unwrap(), me.as_str());
    assert_eq!(hello.get_array("hosts").unwrap(), &[Bson::String(me.clone())]);
    assert_eq!(hello.get_i32("maxWireVersion").unwrap(), 21);
    assert_eq!(hello.get_i32("logicalSessionTimeoutMinutes").unwrap(), 30);
    let compression = [Bson::String("zlib".into()), Bson::String("snappy".into())];
    assert_eq!(hello.get_array("compression").unwrap(), &compression);
    assert!(hello.get_object_id("electionId").unwrap().to_hex().starts_with("7fffffff"));
    assert!(
        hello.get_document("lastWrite").unwrap().get_document("opTime").unwrap().get_timestamp("ts").unwrap().time > 0
    );
    assert!(hello.get_timestamp("operationTime").unwrap().time > 0);
    let legacy = client.run("admin", doc! { "isMaster": 1 });
    assert!(legacy.get_bool("ismaster").unwrap());
    assert!(!legacy.contains_key("isWritablePrimary"));
}

#[test]
fn an_awaited_hello_waits_and_an_exhaust_one_streams() {
    let member = common::start();
    let mut client = member.client();
    let version = client.run("admin", doc! { "hello": 1 }).get_document("topologyVersion").unwrap().clone();
    let awaited = doc! { "hello": 1, "$db": "admin", "topologyVersion": version, "maxAwaitTimeMS": 100 };
    let began = Instant::now();
    let body = RawDocumentBuf::try_from(&awaited).unwrap();
    client.raw(&body);
    assert!(began.elapsed() >= Duration::from_millis(100));
    client.send(&body, Flags(Flags::EXHAUST_ALLOWED));
    for _ in 0..3 {
        let (flags, reply) = client.receive();
        assert!(flags.more_to_come());
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    }
}

#[test]
fn build_info_says_which_mongodb_it_is_like_and_which_baton_it_is() {
    let member = common::start();
    let info = member.client().run("test", doc! { "buildinfo": 1 });
    assert!(info.get_str("version").unwrap().starts_with("7.0."));
    assert_eq!(info.get_array("versionArray").unwrap().len(), 4);
    assert!(info.get_str("baton").is_ok());
}

#[test]
fn every_command_that_lists_something_answers() {
    let member = common::start();
    let mut client = member.client();
    for command in [
        doc! { "ping": 1 },
        doc! { "buildInfo": 1 },
        doc! { "hostInfo": 1 },
        doc! { "getCmdLineOpts": 1 },
        doc! { "getLog": "*" },
        doc! { "getLog": "global" },
        doc! { "getLog": "startupWarnings" },
        doc! { "getParameter": "*" },
        doc! { "getParameter": { "allParameters": true, "showDetails": true } },
        doc! { "connectionStatus": 1, "showPrivileges": true },
        doc! { "whatsmyuri": 1 },
        doc! { "serverStatus": 1 },
        doc! { "top": 1 },
        doc! { "currentOp": 1, "$all": true },
        doc! { "killOp": 1, "op": 999_999 },
        doc! { "killSessions": [] },
        doc! { "killAllSessions": [] },
        doc! { "killAllSessionsByPattern": [] },
        doc! { "endSessions": [] },
        doc! { "refreshSessions": [] },
        doc! { "startSession": 1 },
        doc! { "listCommands": 1 },
        doc! { "profile": -1 },
        doc! { "features": 1 },
        doc! { "fsync": 1 },
        doc! { "logRotate": 1 },
        doc! { "replSetGetStatus": 1 },
        doc! { "replSetGetConfig": 1 },
        doc! { "usersInfo": 1 },
        doc! { "rolesInfo": 1 },
        doc! { "getDefaultRWConcern": 1 },
        doc! { "logout": 1 },
    ] {
        let reply = client.run("admin", command.clone());
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{command}: {reply}");
    }
}

#[test]
fn server_status_has_what_tools_read_in_the_types_they_read_it_in() {
    let member = common::start();
    let mut client = member.client();
    let status = client.run("admin", doc! { "serverStatus": 1, "tasks": 0 });
    assert_eq!(status.get_f64("uptime").unwrap().fract(), 0.0);
    assert!(status.get_document("connections").unwrap().get_i32("current").unwrap() >= 1);
    assert!(status.get_document("network").unwrap().get_i64("bytesIn").unwrap() > 0);
    assert!(status.get_document("opcounters").unwrap().get_i64("command").unwrap() >= 1);
    assert!(status.get_document("mem").unwrap().get_i32("resident").unwrap() > 0);
    assert_eq!(status.get_document("storageEngine").unwrap().get_str("name").unwrap(), "rocksdb");
    let metrics = status.get_document("metrics").unwrap();
    assert_eq!(metrics.get_document("cursor").unwrap().get_document("open").unwrap().get_i64("total").unwrap(), 0);
    let own = metrics.get_document("commands").unwrap().get_document("serverStatus").unwrap();
    assert_eq!(own.get_i64("total").unwrap(), 1);
    assert!(!status.contains_key("tasks"));
}

#[test]
fn parameters_are_read_and_changed() {
    let member = common::start();
    let mut client = member.client();
    let reply = client.run("admin", doc! { "setParameter": 1, "notablescan": true });
    assert!(!reply.get_bool("was").unwrap());
    let reply = client.run("admin", doc! { "getParameter": 1, "notablescan": 1, "featureCompatibilityVersion": 1 });
    assert!(reply.get_bool("notablescan").unwrap());
    assert_eq!(reply.get_document("featureCompatibilityVersion").unwrap(), &doc! { "version": "7.0" });
    let all = client.run("admin", doc! { "getParameter": "*" });
    assert!(all.get_bool("enableTestCommands").unwrap());
}

#[test]
fn the_status_of_the_set_is_that_of_its_one_member() {
    let member = common::start();
    let mut client = member.client();
    let status = client.run("admin", doc! { "replSetGetStatus": 1 });
    assert_eq!(status.get_i32("myState").unwrap(), 1);
    let own = status.get_array("members").unwrap()[0].as_document().unwrap();
    assert_eq!(own.get_str("stateStr").unwrap(), "PRIMARY");
    assert!(own.get_array("tasks").is_ok());
    let config = client.run("admin", doc! { "replSetGetConfig": 1 });
    let config = config.get_document("config").unwrap();
    let host = config.get_array("members").unwrap()[0].as_document().unwrap().get_str("host").unwrap();
    assert_eq!(host, member.address().to_string());
    assert!(config.get_document("settings").unwrap().get_object_id("replicaSetId").is_ok());
    assert_eq!(client.code("admin", doc! { "replSetInitiate": {} }), 23);
}

#[test]
fn a_request_with_more_to_come_gets_no_reply() {
    let member = common::start();
    let mut client = member.client();
    for body in [doc! { "endSessions": [], "$db": "admin" }, doc! { "frob": 1, "$db": "admin" }] {
        client.send(&RawDocumentBuf::try_from(&body).unwrap(), Flags(Flags::MORE_TO_COME));
    }
    // Had there been a reply to those, it would be read here.
    let reply = client.run("admin", doc! { "whatsmyuri": 1 });
    assert!(reply.get_str("you").is_ok());
}

#[test]
fn what_runs_is_listed_and_can_be_killed() {
    let member = common::start();
    let mut slow = member.client();
    let mut client = member.client();
    let block = doc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 20_000 };
    client.run("admin", doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": block });
    let body = RawDocumentBuf::try_from(&doc! { "ping": 1, "$db": "admin", "comment": "slow one" }).unwrap();
    slow.send(&body, Flags::default());
    let id = loop {
        let reply = client.run("admin", doc! { "currentOp": 1, "command.comment": "slow one" });
        if let Some(operation) = reply.get_array("inprog").unwrap().first() {
            break operation.as_document().unwrap().get_i32("opid").unwrap();
        }
    };
    let began = Instant::now();
    client.run("admin", doc! { "killOp": 1, "op": id });
    assert_eq!(slow.receive().1.get_i32("code").unwrap(), 11601);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn max_time_ends_what_takes_too_long() {
    let member = common::start();
    let mut client = member.client();
    let block = doc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 20_000 };
    client.run("admin", doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": block });
    assert_eq!(client.code("admin", doc! { "ping": 1, "maxTimeMS": 50 }), 50);
}

#[test]
fn fail_command_does_to_a_command_what_it_was_told() {
    let member = common::start();
    let mut client = member.client();
    let set = |client: &mut common::Client, data: Document| {
        let reply =
            client.run("admin", doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data });
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    };
    set(&mut client, doc! { "failCommands": ["ping"], "errorCode": 91, "errorLabels": ["A", "B"] });
    let reply = client.run("admin", doc! { "ping": 1 });
    assert_eq!(reply.get_i32("code").unwrap(), 91);
    assert_eq!(reply.get_array("errorLabels").unwrap().len(), 2);
    assert!(!reply.contains_key("topologyVersion"), "the member does not stop; a driver would take this for old news");
    set(&mut client, doc! { "failCommands": ["ping"], "errorCode": 10107 });
    assert!(client.run("admin", doc! { "ping": 1 }).contains_key("topologyVersion"));

    let error = doc! { "code": 64, "errmsg": "x" };
    set(&mut client, doc! { "failCommands": ["appendOplogNote"], "writeConcernError": error.clone() });
    let reply = client.run("admin", doc! { "appendOplogNote": 1, "data": {} });
    assert_eq!(reply.get_document("writeConcernError").unwrap(), &error);

    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] };
    set(&mut client, doc! { "failCommands": ["delete"], "errorCode": 10107 });
    let delete = doc! {
        "delete": "c", "deletes": [{ "q": {}, "limit": 1 }], "lsid": { "id": id }, "txnNumber": 1_i64,
    };
    let reply = client.run("test", delete);
    assert_eq!(reply.get_array("errorLabels").unwrap(), &[Bson::String("RetryableWriteError".into())]);

    let stopping = doc! { "code": 91, "errmsg": "x" };
    set(&mut client, doc! { "failCommands": ["insert"], "writeConcernError": stopping });
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] };
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }], "lsid": { "id": id }, "txnNumber": 2_i64 };
    let reply = client.run("test", insert);
    assert_eq!(reply.get_array("errorLabels").unwrap(), &[Bson::String("RetryableWriteError".into())]);

    set(&mut client, doc! { "failCommands": ["ping"], "closeConnection": true });
    client.send(&RawDocumentBuf::try_from(&doc! { "ping": 1, "$db": "admin" }).unwrap(), Flags::default());
    assert!(client.is_closed());
}

#[test]
fn a_retryable_statement_is_cut_off_behind_its_commit_or_before_it() {
    let member = common::start();
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] };
    let insert = |number: i64| {
        doc! {
            "insert": "c", "documents": [{ "_id": number }], "lsid": { "id": id.clone() }, "txnNumber": number,
            "$db": "test",
        }
    };
    let mut control = member.client();
    let mut set = |mode: Bson, data: Document| {
        control.run("admin", doc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": mode, "data": data })
    };
    set("alwaysOn".into(), doc! {});
    let mut cut = member.client();
    cut.send(&RawDocumentBuf::try_from(&insert(1)).unwrap(), Flags::default());
    assert!(cut.is_closed(), "carried out, and not answered");
    let again = member.client().raw(&RawDocumentBuf::try_from(&insert(1)).unwrap());
    assert_eq!(again.get_i32("n").unwrap(), 1, "known to be carried out: {again}");
    set("alwaysOn".into(), doc! { "failBeforeCommitExceptionCode": 91, "closeConnection": false });
    let refused = member.client().raw(&RawDocumentBuf::try_from(&insert(2)).unwrap());
    let errors = refused.get_array("writeErrors").unwrap();
    assert_eq!(errors[0].as_document().unwrap().get_i32("code").unwrap(), 91, "{refused}");
    set("off".into(), doc! {});
    assert_eq!(control.run("test", doc! { "count": "c" }).get_i32("n").unwrap(), 1);
}

#[test]
fn fail_command_for_an_application_reaches_the_hello_that_introduces_it() {
    let member = common::start();
    let mut client = member.client();
    let data = doc! { "failCommands": ["hello"], "errorCode": 91, "appName": "the app" };
    client.run("admin", doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data });
    let hello = |name: &str| {
        let driver = doc! { "name": "d", "version": "1" };
        doc! { "hello": 1, "client": { "application": { "name": name }, "driver": driver, "os": { "type": "Linux" } } }
    };
    assert_eq!(member.client().code("admin", hello("the app")), 91);
    assert_eq!(member.client().code("admin", hello("another")), 0);
}

#[test]
fn a_stopping_member_tells_whoever_awaits_a_hello() {
    let mut member = common::start();
    let mut client = member.client();
    let version = client.run("admin", doc! { "hello": 1 }).get_document("topologyVersion").unwrap().clone();
    let counter = version.get_i64("counter").unwrap();
    let awaited = doc! { "hello": 1, "$db": "admin", "topologyVersion": version, "maxAwaitTimeMS": 60_000 };
    client.send(&RawDocumentBuf::try_from(&awaited).unwrap(), Flags::default());
    // A request that the member has not read when it stops is not answered; this one is to be under way.
    let mut other = member.client();
    let waiting = doc! { "currentOp": 1, "command.hello": 1 };
    while other.run("admin", waiting.clone()).get_array("inprog").unwrap().is_empty() {}
    let stopping = member.member.take().unwrap();
    let stopper = std::thread::spawn(move || stopping.stop());
    let (_, reply) = client.receive();
    assert_eq!(reply.get_document("topologyVersion").unwrap().get_i64("counter").unwrap(), counter + 1);
    assert_eq!(reply.get_i32("code").unwrap(), 91);
    assert_eq!(reply.get_i64("remainingQuiesceTimeMillis").unwrap(), 0);
    stopper.join().unwrap();
}

#[test]
fn shutdown_asks_the_member_to_stop() {
    let member = common::start();
    let mut client = member.client();
    assert_eq!(client.code("admin", doc! { "shutdown": 1 }), 0);
    assert!(client.is_closed());
    assert!(member.member().server().wait_for_shutdown_request(Duration::ZERO));
}

#[test]
fn the_profile_keeps_what_the_profiler_is_told_to_keep() {
    let member = common::start();
    let mut client = member.client();
    let reply = client.run("test", doc! { "profile": 2, "slowms": 50 });
    assert_eq!((reply.get_i32("was").unwrap(), reply.get_i32("slowms").unwrap()), (0, 100));
    client.run("test", doc! { "ping": 1, "comment": "profiled" });
    let reply = client.run("test", doc! { "find": "system.profile", "filter": { "command.comment": "profiled" } });
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.len(), 1, "{reply}");
    assert_eq!(batch[0].as_document().unwrap().get_str("op").unwrap(), "command");
    let oplog = client.run("local", doc! { "find": "oplog.rs", "filter": { "ns": "test.system.profile", "op": "i" } });
    assert!(oplog.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty());
}

/// A backup of a secondary rested for the primary's mirrored reads as for clients of its own.
#[test]
fn long_requests_rest_for_clients_and_not_for_what_is_mirrored() {
    let member = common::start();
    let mut client = member.client();
    let mut beside = || {
        let status = client.run("admin", doc! { "serverStatus": 1 });
        status.get_document("restingOperations").unwrap().get("beside").unwrap().clone()
    };
    let mut reader = member.client();
    let mut find = |is_mirrored: bool| {
        let mut find = doc! { "find": "carts", "filter": { "_id": 1 }, "limit": 1, "singleBatch": true };
        if is_mirrored {
            find.insert("mirrored", true);
        }
        reader.run("shop", find);
    };
    std::thread::sleep(Duration::from_millis(1100));
    find(true);
    assert_eq!(beside(), Bson::Null, "nobody waits for what is mirrored");
    find(false);
    assert_eq!(beside(), Bson::String("clients".into()));
    std::thread::sleep(Duration::from_millis(1100));
    find(true);
    assert_eq!(beside(), Bson::Null, "the client is gone");
}
