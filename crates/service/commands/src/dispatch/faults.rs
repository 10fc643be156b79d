//! Faults on demand: what a test has a command meet in place of its outcome. Source: MongoDB's fail point `failCommand`.

use super::Outcome;
use super::errors::{Beside, Failure, append_labels, bare, failure, is_retryable};
use crate::call::{Call, Reply};
use crate::server::failpoints::CommandFault;
use crate::server::{Client, Server};
use crate::table::CommandSpec;
use baton_request::fields::number_as_i64;
use baton_types::{ErrorCode, Result};
use bson::{RawDocument, cstr};
use std::time::{Duration, Instant};

/// What somebody has asked this command to meet.
pub(super) fn fault_of(
    server: &Server,
    client: &Client,
    spec: &CommandSpec,
    body: &RawDocument,
    db: &str,
    collection: &str,
) -> Option<CommandFault> {
    if !server.fail_points.any() || spec.name == "configureFailPoint" {
        return None;
    }
    let mut names = vec![spec.name];
    names.extend(spec.aliases);
    // The first hello brings the name that later commands are known by.
    let app_name = match client.app_name() {
        "" => introduced_name(body).unwrap_or_default(),
        known => known,
    };
    server.fail_points.command_fault(&names, app_name, &format!("{db}.{collection}"))
}

/// The application's name in a handshake.
fn introduced_name(body: &RawDocument) -> Option<&str> {
    body.get_document("client").ok()?.get_document("application").ok()?.get_str("name").ok()
}

/// What of the fault comes before the command, and perhaps in its place.
pub(super) fn meet(call: &Call<'_>, fault: &mut CommandFault) -> Result<Option<Outcome>, Failure> {
    if let Some(time) = fault.block {
        block(call, time).map_err(bare)?;
    }
    if fault.close_connection {
        return Ok(Some(Outcome::HangUp));
    }
    match fault.error.take() {
        Some(error) => Err(failure(error, Beside { labels: fault.labels.take(), ..Beside::default() })),
        None => Ok(None),
    }
}

/// The `writeConcernError` that the fault gives a command that has succeeded; whether it gives one.
pub(super) fn append_concern_error(fault: &CommandFault, retryable: bool, reply: &mut Reply<'_>) -> bool {
    let Some(document) = &fault.write_concern_error else { return false };
    reply.append(cstr!("writeConcernError"), &**document);
    let code = document.get("code").ok().flatten().and_then(number_as_i64).unwrap_or_default();
    match &fault.labels {
        Some(labels) => append_labels(reply, labels),
        None if retryable && is_retryable(ErrorCode(code as i32)) => append_labels(reply, &["RetryableWriteError"]),
        None => {}
    }
    true
}

/// Sleeps, unless killed.
fn block(call: &Call<'_>, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
        call.operation.check_interrupt()?;
    }
}
