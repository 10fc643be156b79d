//! What happens once a command is over: it is counted, and if it was slow, logged and profiled.
//!
//! Invariants: nothing here fails a command that succeeded; a profile that cannot be written is logged and forgotten. What
//! counts is work: an awaited hello or a tailable cursor's `getMore` is not slow because nothing happened.
//! What it deliberately does not do: count documents; commands do, since they alone know.

use crate::call::Call;
use crate::commands::profile;
use crate::excerpt::excerpt;
use crate::table::Flags;
use baton_types::Error;
use bson::spec::ElementType;
use bson::{DateTime, RawDocument, RawDocumentBuf, cstr};
use smallvec::SmallVec;
use std::time::Duration;

/// The most of a command that a line of the log holds, in bytes.
const LOGGED_COMMAND_BYTES_MAX: usize = 10_000;

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
    let verdict = call.server.profiler.judge(db, time);
    if !verdict.log && !verdict.profile {
        return;
    }
    let namespace = if namespace.is_empty() { format!("{db}.$cmd") } else { namespace.to_owned() };
    let error = result.as_ref().err().map(|(error, _)| error);
    if verdict.log {
        log(call, &namespace, time, error, reply_bytes);
    }
    if verdict.profile && collection != profile::COLLECTION {
        let entry = profile_entry(call, &namespace, time, error, reply_bytes);
        if let Err(error) = profile::keep(&call.server.storage, db, &entry) {
            tracing::warn!(target: "COMMAND", id = 20703, error = %error, db, "Caught error while trying to profile");
        }
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
        errCode = error.map(|e| e.code.0),
        errMsg = error.map(|e| e.message.as_str()),
        reslen = reply_bytes,
        remote = call.client.connection.peer,
        durationMillis = time.as_millis() as u64,
        "Slow query"
    );
}

/// A document as `system.profile` has them.
fn profile_entry(
    call: &Call<'_>,
    namespace: &str,
    time: Duration,
    error: Option<&Error>,
    reply_bytes: usize,
) -> RawDocumentBuf {
    let mut entry = RawDocumentBuf::new();
    entry.append(cstr!("op"), call.spec.kind.name());
    entry.append(cstr!("ns"), namespace);
    if !call.spec.flags.has(Flags::SECRET) {
        entry.append(cstr!("command"), without_deep_documents(call.request.body));
    }
    if let Some(plan) = call.operation.plan_summary() {
        entry.append(cstr!("planSummary"), plan);
    }
    if let Some(error) = error {
        entry.append(cstr!("ok"), 0.0);
        entry.append(cstr!("errMsg"), error.message.as_str());
        entry.append(cstr!("errName"), &*error.code.name());
        entry.append(cstr!("errCode"), error.code.0);
    }
    entry.append(cstr!("responseLength"), i32::try_from(reply_bytes).unwrap_or(i32::MAX));
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
