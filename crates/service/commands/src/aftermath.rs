//! What happens once a command is over: it is counted, and if it was slow, logged and profiled.
//!
//! Invariants: nothing here fails a command that succeeded; a profile that cannot be written is logged and forgotten. What
//! counts is work: an awaited hello or a tailable cursor's `getMore` is not slow because nothing happened.
//! What it deliberately does not do: count documents; commands do, since they alone know.

use crate::call::Call;
use crate::commands::profile;
use crate::excerpt::excerpt;
use crate::server::{Client, Operation, Server};
use crate::table::{CommandSpec, Flags};
use baton_request::Kind;
use baton_types::{Error, Namespace};
use bson::spec::ElementType;
use bson::{DateTime, RawDocument, RawDocumentBuf, cstr};
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The most of a command that a line of the log holds, in bytes.
const LOGGED_COMMAND_BYTES_MAX: usize = 10_000;
/// What took less, wrote nothing and looked at few documents is small.
const SMALL_READ: Duration = Duration::from_millis(100);

/// Counts a command that is over, and logs and profiles it if it was slow. `result` is what it was answered with.
pub fn record<T, L>(call: &Call<'_>, collection: &str, result: &Result<T, (Error, L)>, reply_bytes: usize) {
    let time = call.operation.worked();
    let db = call.envelope.db;
    let mut buffer = SmallVec::<[u8; 128]>::new();
    if !collection.is_empty() {
        for part in [db, ".", collection] {
            buffer.extend_from_slice(part.as_bytes());
        }
    }
    let namespace = std::str::from_utf8(&buffer).unwrap_or_default();
    call.server.counters.finish(call.spec.kind, namespace, time);
    if is_small_work_of_client(call, time) {
        note_company(call.server, &call.operation);
    }
    let verdict = call.server.profiler.judge(db, time);
    if !verdict.log && !verdict.profile {
        return;
    }
    let namespace = if namespace.is_empty() { format!("{db}.$cmd") } else { namespace.to_owned() };
    let error = result.as_ref().err().map(|(error, _)| error);
    if verdict.log {
        log(call, &namespace, time, error, reply_bytes);
    }
    // Of updates and deletes each statement has an entry of its own, and the profiler does not watch itself.
    let has_own_entries = matches!(call.spec.kind, Kind::Update | Kind::Delete) && error.is_none();
    if verdict.profile && !has_own_entries && call.spec.name != profile::SPEC.name {
        let mut entry = profile_entry(call, &namespace, call.spec.kind.name(), time);
        if !call.spec.flags.has(Flags::SECRET) {
            entry.append(cstr!("command"), without_deep_documents(call.request.body));
        }
        if let Some(plan) = call.operation.plan_summary() {
            entry.append(cstr!("planSummary"), plan);
        }
        if used_disk(call) {
            entry.append(cstr!("usedDisk"), true);
        }
        if let Some(error) = error {
            append_error(&mut entry, error);
        }
        if let Some(returned) = call.returned.get() {
            entry.append(cstr!("nreturned"), i64::try_from(returned).unwrap_or(i64::MAX));
        }
        entry.append(cstr!("responseLength"), i32::try_from(reply_bytes).unwrap_or(i32::MAX));
        keep(call, &entry);
    }
}

/// [`record`] of a write that was not waited for, by whoever finishes it: counted, and logged if it was slow. While anything is profiled
/// none leaves.
pub fn record_left(server: &Server, client: &Client, operation: &Operation, spec: &CommandSpec, reply_bytes: usize) {
    let time = operation.worked();
    let verdict = operation.with_names(|db, collection| {
        let mut namespace = SmallVec::<[u8; 128]>::new();
        for part in [db, ".", collection] {
            namespace.extend_from_slice(part.as_bytes());
        }
        server.counters.finish(spec.kind, std::str::from_utf8(&namespace).unwrap_or_default(), time);
        if db != "local" && !client.is_background() {
            note_company(server, operation);
        }
        server.profiler.judge(db, time)
    });
    if verdict.log
        && let Some(state) = operation.slot().state()
    {
        let command = state.command.as_deref().map(|command| excerpt(command, LOGGED_COMMAND_BYTES_MAX));
        tracing::info!(
            target: "COMMAND",
            id = 51803,
            r#type = spec.kind.name(),
            ns = state.namespace(),
            appName = client.app_name(),
            command,
            planSummary = state.plan_summary,
            reslen = reply_bytes,
            remote = client.connection.peer,
            durationMillis = time.as_millis() as u64,
            "Slow query"
        );
    }
}

/// Whoever runs for long is to leave the processors to such as this was.
fn note_company(server: &Server, operation: &Operation) {
    server.storage.company().note(server.priority.served_as(operation.class), Instant::now());
}

/// Whether somebody was served whom long work may have kept waiting. A cursor that is read on may be such work itself, and for what is
/// mirrored nobody waits.
fn is_small_work_of_client(call: &Call<'_>, time: Duration) -> bool {
    let is_small = match call.spec.kind {
        Kind::Insert | Kind::Update | Kind::Delete => true,
        Kind::GetMore => false,
        Kind::Query | Kind::Command => {
            let is_long = || call.effort.get().is_some_and(|effort| effort.is_long.load(Relaxed));
            time < SMALL_READ && call.spec.flags.has(Flags::ON_COLLECTION) && !is_long()
        }
    };
    is_small && call.envelope.db != "local" && !call.client.is_background() && !call.envelope.is_mirrored
}

/// What a statement of an update or a delete did.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatementFigures {
    /// Documents that matched, changed, were inserted, were deleted.
    pub matched: u64,
    /// See there.
    pub modified: u64,
    /// See there.
    pub upserted: u64,
    /// See there.
    pub deleted: u64,
}

/// Carries out a statement of an update or a delete, and profiles it as MongoDB does: by itself, with its `q` and `u`.
pub fn profiled<T>(
    call: &Call<'_>,
    namespace: &Namespace,
    statement: &RawDocument,
    figures: impl Fn(&T) -> StatementFigures,
    carry_out: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    if !call.server.profiler.is_active() {
        return carry_out();
    }
    let began = Instant::now();
    let outcome = carry_out();
    let time = began.elapsed();
    if call.server.profiler.judge(namespace.db(), time).profile {
        let mut entry = profile_entry(call, namespace.as_str(), call.spec.kind.name(), time);
        entry.append(cstr!("command"), without_deep_documents(statement));
        match &outcome {
            Ok(done) => append_figures(&mut entry, call.spec.kind, figures(done)),
            Err(error) => append_error(&mut entry, error),
        }
        keep(call, &entry);
    }
    outcome
}

fn append_figures(entry: &mut RawDocumentBuf, kind: Kind, figures: StatementFigures) {
    let number = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
    if kind == Kind::Delete {
        entry.append(cstr!("ndeleted"), number(figures.deleted));
        return;
    }
    entry.append(cstr!("nMatched"), number(figures.matched));
    entry.append(cstr!("nModified"), number(figures.modified));
    if figures.upserted > 0 {
        entry.append(cstr!("nUpserted"), number(figures.upserted));
    }
}

fn append_error(entry: &mut RawDocumentBuf, error: &Error) {
    entry.append(cstr!("ok"), 0.0);
    entry.append(cstr!("errMsg"), error.message.as_str());
    entry.append(cstr!("errName"), &*error.code.name());
    entry.append(cstr!("errCode"), error.code.0);
}

fn used_disk(call: &Call<'_>) -> bool {
    call.effort.get().is_some_and(|effort| effort.used_disk.load(Relaxed))
}

/// Keeps an entry in the profile, unless `fsync` holds the lock: a profile may miss what happens then.
fn keep(call: &Call<'_>, entry: &RawDocument) {
    let Some(_writing) = call.server.write_lock.try_enter() else { return };
    let db = call.envelope.db;
    if let Err(error) = profile::keep(&call.server.storage, db, entry) {
        tracing::warn!(target: "COMMAND", id = 20703, error = %error, db, "Caught error while trying to profile");
    }
}

fn shown_command(call: &Call<'_>) -> String {
    if call.spec.flags.has(Flags::SECRET) {
        return format!("{{ \"{}\": \"###\" }}", call.spec.name);
    }
    excerpt(call.request.body, LOGGED_COMMAND_BYTES_MAX)
}

fn log(call: &Call<'_>, namespace: &str, time: Duration, error: Option<&Error>, reply_bytes: usize) {
    tracing::info!(
        target: "COMMAND",
        id = 51803,
        r#type = call.spec.kind.name(),
        ns = namespace,
        appName = call.client.app_name(),
        command = shown_command(call),
        planSummary = call.operation.plan_summary(),
        usedDisk = used_disk(call).then_some(true),
        errCode = error.map(|e| e.code.0),
        errMsg = error.map(|e| e.message.as_str()),
        reslen = reply_bytes,
        remote = call.client.connection.peer,
        durationMillis = time.as_millis() as u64,
        "Slow query"
    );
}

/// The beginning of a document as `system.profile` has them: who did what, when, and for how long.
fn profile_entry(call: &Call<'_>, namespace: &str, operation: &str, time: Duration) -> RawDocumentBuf {
    let mut entry = RawDocumentBuf::new();
    entry.append(cstr!("op"), operation);
    entry.append(cstr!("ns"), namespace);
    entry.append(cstr!("protocol"), if call.request.legacy() { "op_query" } else { "op_msg" });
    entry.append(cstr!("millis"), time.as_millis() as i64);
    entry.append(cstr!("ts"), DateTime::now());
    entry.append(cstr!("client"), call.client.connection.peer.as_str());
    entry.append(cstr!("appName"), call.client.app_name());
    entry.append(cstr!("user"), "");
    entry
}

/// The command without what would make the profile's document too large to store.
fn without_deep_documents(body: &RawDocument) -> RawDocumentBuf {
    const BYTES_MAX: usize = 50 * 1024;
    if body.as_bytes().len() <= BYTES_MAX {
        return body.to_owned();
    }
    let mut kept = RawDocumentBuf::new();
    for element in body.iter_elements().flatten() {
        let deep = matches!(element.element_type(), ElementType::Array | ElementType::EmbeddedDocument);
        if let Ok(value) = element.value()
            && (!deep || element.size() < 1024)
        {
            kept.append(element.key(), value);
        }
    }
    kept.append(cstr!("$truncated"), true);
    kept
}
