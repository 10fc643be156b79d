//! `currentOp`: what runs now. The same list is the source of the stage `$currentOp`.
//!
//! Invariant: the list is of one moment for each operation, not for all of them together.
//! What it deliberately does not do: show the documents of a bulk write; they are not kept.

use crate::call::{Call, Reply};
use crate::server::operations::OperationState;
use crate::server::{Client, Server};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_admission::Source;
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_storage::tasks::Progress;
use baton_types::{Class, Result};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, RawDocumentBuf, cstr, rawdoc};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "currentOp",
    flags: Flags::ADMIN_ONLY,
    help: "Lists the operations that run; further fields filter the list.",
    run,
    ..DEFAULT
};

/// What to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Connections that do nothing, too.
    pub idle_connections: bool,
    /// Cursors that wait for their next `getMore`, too.
    pub idle_cursors: bool,
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let idle_connections = call.fields.truth("$all")?;
    // Without users, all operations are everybody's own.
    call.fields.truth("$ownOps")?;
    call.fields.truth("$truncateOps")?;
    let mut filter = RawDocumentBuf::new();
    for (name, value) in call.fields.rest() {
        filter.append(bson::raw::CString::try_from(name)?, value);
    }
    let matcher = Matcher::parse(&filter, &Context::new(DateTime::now(), rand::random()))?;
    reply.begin_array(cstr!("inprog"));
    for operation in list(call.server, Wanted { idle_connections, idle_cursors: false }) {
        if matcher.matches(&operation)? {
            reply.push(&*operation);
        }
    }
    reply.end();
    if call.server.write_lock.is_held() {
        reply.append(cstr!("fsyncLock"), true);
        reply.append(cstr!("info"), "use db.fsyncUnlock() to terminate the fsync write/snapshot lock");
    }
    Ok(())
}

/// The operations that run now, background tasks included.
pub fn list(server: &Server, wanted: Wanted) -> Vec<RawDocumentBuf> {
    let clients: BTreeMap<String, Arc<Client>> =
        server.clients.all().into_iter().map(|c| (c.slot().description.clone(), c)).collect();
    let mut listed = Vec::new();
    for slot in server.operations.all() {
        let client = clients.get(&slot.description);
        match slot.state() {
            Some(state) => listed.push(active(server, &slot.description, client, &state)),
            None if wanted.idle_connections => {
                let mut idle = head(server, "op", &slot.description, client, false);
                idle.append(cstr!("op"), "none");
                idle.append(cstr!("ns"), "");
                listed.push(idle);
            }
            None => {}
        }
    }
    listed.extend(tasks(server));
    if wanted.idle_cursors {
        listed.extend(idle_cursors(server));
    }
    listed
}

fn head(server: &Server, kind: &str, description: &str, client: Option<&Arc<Client>>, active: bool) -> RawDocumentBuf {
    let mut document = rawdoc! { "type": kind, "host": server.identity.host.as_str(), "desc": description };
    if let Some(client) = client {
        document.append(cstr!("connectionId"), client.connection.id as i64);
        document.append(cstr!("client"), client.connection.peer.as_str());
        if !client.app_name().is_empty() {
            document.append(cstr!("appName"), client.app_name());
        }
        if let Some(metadata) = client.metadata() {
            document.append(cstr!("clientMetadata"), metadata);
        }
    }
    document.append(cstr!("active"), active);
    document.append(cstr!("currentOpTime"), DateTime::now().try_to_rfc3339_string().unwrap_or_default());
    document
}

fn active(server: &Server, description: &str, client: Option<&Arc<Client>>, state: &OperationState) -> RawDocumentBuf {
    let mut document = head(server, "op", description, client, true);
    let elapsed = state.started.elapsed();
    document.append(cstr!("threaded"), true);
    document.append(cstr!("opid"), state.id as i32);
    if let Some(session) = state.session {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: session.0.to_vec() };
        document.append(cstr!("lsid"), rawdoc! { "id": id });
    }
    document.append(cstr!("secs_running"), elapsed.as_secs() as i64);
    document.append(cstr!("microsecs_running"), elapsed.as_micros() as i64);
    document.append(cstr!("op"), state.kind);
    document.append(cstr!("ns"), state.namespace());
    document.append(cstr!("class"), state.class.name());
    append_priority(server, &mut document, state);
    match &state.command {
        Some(command) if !command.is_empty() => document.append(cstr!("command"), command.clone()),
        _ => document.append(cstr!("command"), rawdoc! { "$truncated": state.name }),
    }
    if let Some(plan) = &state.plan_summary {
        document.append(cstr!("planSummary"), plan.as_str());
    }
    if let Some(cursor) = state.cursor {
        document.append(cstr!("cursor"), rawdoc! { "cursorId": cursor });
    }
    if let Some(message) = &state.message {
        document.append(cstr!("msg"), &**message);
    }
    if let Some(progress) = &state.progress {
        append_progress(&mut document, progress);
    }
    document.append(cstr!("numYields"), 0);
    document
}

/// By whose word it is of its class, how long it waited for its turn, and for whom it waits.
fn append_priority(server: &Server, document: &mut RawDocumentBuf, state: &OperationState) {
    let mut priority = rawdoc! { "source": state.source.name() };
    if let Source::Rule(index) = state.source {
        priority.append(cstr!("rule"), i64::try_from(index).unwrap_or(i64::MAX));
    }
    priority.append(cstr!("waitedMicros"), i64::try_from(state.waited.as_micros()).unwrap_or(i64::MAX));
    if state.is_at_door {
        let mut waits_for = RawDocumentBuf::new();
        let before = server.priority.door.before(state.class);
        for (name, class) in
            [(cstr!("high"), Class::High), (cstr!("normal"), Class::Normal), (cstr!("low"), Class::Low)]
        {
            if before[class.rank()] > 0 {
                waits_for.append(name, before[class.rank()] as i64);
            }
        }
        priority.append(cstr!("waitsFor"), waits_for);
    }
    document.append(cstr!("priority"), priority);
}

/// How far it is, and the seconds until the end of its phase, while that can be told.
fn append_progress(document: &mut RawDocumentBuf, progress: &Progress) {
    let (done, total) = progress.counts();
    document.append(cstr!("progress"), rawdoc! { "done": done as i64, "total": total as i64 });
    if let Some(eta) = progress.eta_secs() {
        document.append(cstr!("etaSecs"), eta.ceil());
    }
}

/// Background tasks of the storage, those that wait for the gate included, in the form of operations.
fn tasks(server: &Server) -> impl Iterator<Item = RawDocumentBuf> + '_ {
    let tasks = server.storage.tasks();
    tasks.running().into_iter().chain(tasks.waiting()).map(|task| {
        let mut document = head(server, "op", task.kind.name(), None, true);
        let elapsed = task.started.elapsed();
        let progress = task.progress();
        let (done, total) = progress.counts();
        document.append(cstr!("secs_running"), elapsed.as_secs() as i64);
        document.append(cstr!("microsecs_running"), elapsed.as_micros() as i64);
        document.append(cstr!("op"), "none");
        document.append(cstr!("ns"), task.name.as_str());
        document.append(cstr!("class"), Class::Background.name());
        document.append(cstr!("command"), rawdoc! { "task": task.kind.name(), "taskId": task.id as i64 });
        match task.waits_for {
            Some(why) => {
                document.append(cstr!("msg"), format!("{}: waiting: {why}", task.kind.name()));
                document.append(cstr!("waitingFor"), why);
            }
            None => document.append(cstr!("msg"), format!("{}: {done}/{total}", task.kind.name())),
        }
        append_progress(&mut document, &progress);
        document
    })
}

fn idle_cursors(server: &Server) -> impl Iterator<Item = RawDocumentBuf> + '_ {
    server.cursors.idle().into_iter().map(|(id, info)| {
        let mut document = head(server, "idleCursor", "", None, false);
        document.append(cstr!("ns"), info.namespace.as_str());
        if let Some(session) = info.session {
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: session.0.to_vec() };
            document.append(cstr!("lsid"), rawdoc! { "id": id });
        }
        let cursor = rawdoc! {
            "cursorId": id,
            "createdDate": DateTime::from_system_time(info.created),
            "noCursorTimeout": info.no_timeout,
            "originatingCommand": info.command,
        };
        document.append(cstr!("cursor"), cursor);
        document
    })
}
