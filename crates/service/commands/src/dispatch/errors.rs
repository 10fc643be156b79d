//! What an error looks like in a reply: its labels, what stands beside it, and what drivers learn from its code.

use crate::crud::errors::DETAILS_BYTES_MAX;
use crate::server::Server;
use crate::tail;
use baton_types::{Error, ErrorCode};
use baton_wire::{DocumentWriter, ReplyBuilder};
use bson::cstr;

/// An error, and what stands beside it in the reply.
pub(super) type Failure = (Error, Option<Box<Beside>>);

/// See [`Failure`].
#[derive(Default)]
pub(super) struct Beside {
    /// Labels that a fault on demand gives the error in place of its own.
    pub labels: Option<Vec<String>>,
    /// What the write concern asks for and cannot be had. Drivers tell of it first, even where the write failed.
    pub write_concern_error: Option<Error>,
}

pub(super) fn bare(error: Error) -> Failure {
    (error, None)
}

/// What stands beside it is on the heap, since almost no reply has any of it.
pub(super) fn failure(error: Error, beside: Beside) -> Failure {
    (error, Some(Box::new(beside)))
}

/// Whether the command was never begun: its words were not understood.
pub(super) fn is_misunderstood(code: ErrorCode) -> bool {
    const MISSING_FIELD: ErrorCode = ErrorCode(40414);
    const UNKNOWN_FIELD: ErrorCode = ErrorCode(40415);
    matches!(
        code,
        ErrorCode::FailedToParse | ErrorCode::TypeMismatch | ErrorCode::BadValue | MISSING_FIELD | UNKNOWN_FIELD
    )
}

pub(super) fn append_labels<S: AsRef<str>>(writer: &mut DocumentWriter<'_>, labels: &[S]) {
    if labels.is_empty() {
        return;
    }
    writer.begin_array(cstr!("errorLabels"));
    for label in labels {
        writer.push(label.as_ref());
    }
    writer.end();
}

pub(super) fn append_write_concern_error(reply: &mut DocumentWriter<'_>, error: &Error, retryable: bool) {
    reply.begin_document(cstr!("writeConcernError"));
    reply.append(cstr!("code"), error.code.0);
    reply.append(cstr!("codeName"), &*error.code.name());
    reply.append(cstr!("errmsg"), error.message.as_str());
    if let Some(info) = &error.info {
        reply.extend(info);
    }
    reply.end();
    if retryable && is_retryable(error.code) {
        append_labels(reply, &["RetryableWriteError"]);
    }
}

/// Writes the error reply: the error, its labels, and what every reply ends with.
pub(super) fn write_error(
    server: &Server,
    builder: &mut ReplyBuilder<'_>,
    mut error: Error,
    retryable: bool,
    beside: Option<Box<Beside>>,
) {
    let beside = beside.map(|beside| *beside).unwrap_or_default();
    if beside.labels.is_some() {
        error.labels.clear();
    } else if retryable && is_retryable(error.code) && !error.labels.contains(&"RetryableWriteError") {
        error.labels.push("RetryableWriteError");
    }
    // The message tells the beginning of it.
    error.info = error.info.filter(|info| info.as_bytes().len() <= DETAILS_BYTES_MAX);
    builder.error(&error);
    let mut body = builder.resume_body();
    append_labels(&mut body, beside.labels.as_deref().unwrap_or_default());
    if let Some(error) = &beside.write_concern_error {
        append_write_concern_error(&mut body, error, false);
    }
    if changes_topology(error.code) || (tells_of_stop(error.code) && server.topology.is_stopping()) {
        tail::append_topology_version(server.topology.version(), &mut body);
    }
    tail::append(server, &mut body);
}

/// Whether a driver may send the same write again after this error.
pub(super) fn is_retryable(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::HostUnreachable
            | ErrorCode::HostNotFound
            | ErrorCode::NetworkTimeout
            | ErrorCode::SocketException
            | ErrorCode::ShutdownInProgress
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::NotWritablePrimary
            | ErrorCode::NotPrimaryNoSecondaryOk
            | ErrorCode::NotPrimaryOrSecondary
            | ErrorCode::PrimarySteppedDown
            | ErrorCode::ReadConcernMajorityNotAvailableYet
            | ErrorCode::ExceededTimeLimit
    )
}

/// Whether a driver looks for another primary after this error, and so wants to know which topology it speaks of.
fn changes_topology(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::NotWritablePrimary
            | ErrorCode::NotPrimaryNoSecondaryOk
            | ErrorCode::NotPrimaryOrSecondary
            | ErrorCode::PrimarySteppedDown
            | ErrorCode::LegacyNotPrimary
    )
}

/// Whether the error says that the member stops. Told on demand by one that does not stop, it must name no topology
/// version: a driver that knows the version already would take it for old news and keep its connections.
fn tells_of_stop(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::ShutdownInProgress | ErrorCode::InterruptedAtShutdown)
}
