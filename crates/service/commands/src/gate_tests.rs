//! What waits for the gate shows, and goes on when it may.

use crate::testing::Member;
use crate::ttl;
use baton_storage::tasks::{Admission, AlwaysOpen, Gate, Proposal, TaskKind};
use bson::{DateTime, Document, doc};
use std::sync::Arc;

struct Closed;

impl Gate for Closed {
    fn may_begin(&self, _: &Proposal<'_>) -> Admission {
        Admission::Wait { why: "others go first" }
    }
}

fn waiting(member: &Member) -> Vec<Document> {
    let status = member.ok("admin", doc! { "serverStatus": 1 });
    let waiting = status.get_document("tasks").unwrap().get_array("waiting").unwrap();
    waiting.iter().map(|task| task.as_document().unwrap().clone()).collect()
}

fn text<'d>(document: &'d Document, name: &str) -> &'d str {
    document.get_str(name).unwrap_or_default()
}

fn with_something_expired() -> Member {
    let member = Member::new();
    let spec = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 1 };
    member.ok("db", doc! { "createIndexes": "c", "indexes": [spec] });
    member.ok("db", doc! { "insert": "c", "documents": [ { "at": DateTime::from_millis(0) } ] });
    member.server.storage.tasks().bind(Arc::new(Closed));
    assert_eq!(ttl::run_once(&member.server), 0);
    member
}

#[test]
fn a_deletion_that_waits_shows_why_and_goes_on_when_it_may() {
    let member = with_something_expired();
    let shown = waiting(&member);
    assert_eq!(shown.len(), 1);
    assert_eq!(text(&shown[0], "kind"), "ttlDeletion");
    assert_eq!(text(&shown[0], "why"), "others go first");
    let operations = member.ok("admin", doc! { "currentOp": 1 });
    let mut operations = operations.get_array("inprog").unwrap().iter().filter_map(|operation| operation.as_document());
    assert!(operations.any(|operation| text(operation, "waitingFor") == "others go first"));
    let status = member.ok("admin", doc! { "replSetGetStatus": 1 });
    let own = status.get_array("members").unwrap()[0].as_document().unwrap();
    let task = own.get_array("tasks").unwrap()[0].as_document().unwrap();
    assert_eq!((text(task, "state"), text(task, "why")), ("waiting", "others go first"));
    assert_eq!(ttl::run_once(&member.server), 0);
    assert_eq!(waiting(&member).len(), 1, "it is one that waits, not one for each pass");
    member.server.storage.tasks().bind(Arc::new(AlwaysOpen));
    assert_eq!(ttl::run_once(&member.server), 1);
    assert_eq!(waiting(&member), []);
}

#[test]
fn a_deletion_of_what_is_gone_waits_no_more() {
    let member = with_something_expired();
    member.ok("db", doc! { "drop": "c" });
    assert_eq!(ttl::run_once(&member.server), 0);
    assert_eq!(waiting(&member).iter().filter(|task| text(task, "kind") == "ttlDeletion").count(), 0);
}

#[test]
fn a_connection_that_says_it_copies_is_a_task_until_it_ends() {
    let member = Member::new();
    let tasks = Arc::clone(member.server.storage.tasks());
    let copies = || tasks.running().iter().filter(|task| task.kind == TaskKind::InitialSyncSource).count();
    assert_eq!(member.code("admin", doc! { "batonYieldToClients": 1, "task": "backup" }), 2);
    std::thread::scope(|scope| {
        // A thread that yields does so until it ends.
        scope.spawn(|| member.ok("admin", doc! { "batonYieldToClients": 1, "task": "initialSyncSource", "of": "all" }));
    });
    assert_eq!(copies(), 1);
    let _server = member.disconnect();
    assert_eq!(copies(), 0);
}

#[test]
fn a_clients_task_waits_for_the_gate_no_longer_than_the_client_wants() {
    let member = Member::new();
    let tasks = Arc::clone(member.server.storage.tasks());
    tasks.bind(Arc::new(Closed));
    let begin = |wait_secs: f64| {
        doc! { "replSetBeginTask": 1, "kind": "backup", "name": "nightly", "maxWaitSecs": wait_secs }
    };
    for wait_secs in [0.0, 0.2] {
        let refused = member.send("admin", begin(wait_secs));
        assert_eq!(refused.get_i32("code").unwrap(), 262, "{refused}");
        let words = format!("the task could not begin within maxWaitSecs, {wait_secs}: others go first");
        assert_eq!(text(&refused, "errmsg"), words);
    }
    assert_eq!(
        member.code("admin", {
            let mut body = begin(60.0);
            body.insert("maxTimeMS", 50);
            body
        }),
        50
    );
    assert!(tasks.waiting().is_empty() && tasks.running().is_empty(), "nothing is left of what did not begin");
    tasks.bind(Arc::new(AlwaysOpen));
    let begun = member.ok("admin", begin(0.0));
    assert_eq!(tasks.running().iter().filter(|task| task.name == "nightly").count(), 1);
    assert_eq!(begun.get_i64("taskId").unwrap(), tasks.running()[0].id as i64);
    let _server = member.disconnect();
    assert!(tasks.running().iter().all(|task| task.name != "nightly"));
}
