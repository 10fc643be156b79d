//! What every reply ends with: `ok`, what became of the write concern, and the set's times.

use super::Next;
use super::errors::append_write_concern_error;
use super::faults::append_concern_error;
use super::waits::unsatisfied_write_concern;
use crate::call::{Call, Reply};
use crate::server::Server;
use crate::server::failpoints::CommandFault;
use crate::tail;
use baton_types::Error;
use baton_wire::DocumentWriter;
use bson::cstr;

/// Ends the reply of a command that has succeeded, but for what only its own thread adds.
pub(super) fn append(
    server: &Server,
    body: &mut DocumentWriter<'_>,
    write_concern_error: Option<&Error>,
    retryable: bool,
) {
    body.append(cstr!("ok"), 1.0);
    if let Some(error) = write_concern_error {
        append_write_concern_error(body, error, retryable);
    }
    tail::append(server, body);
}

/// Ends the reply of a command that has succeeded. `unreplicated` is why the members do not have it that its write concern asks for.
pub(super) fn end(call: &Call<'_>, mut reply: Reply<'_>, fault: &CommandFault, unreplicated: Option<Error>) -> Next {
    let write_concern_error = reply
        .write_concern_error
        .take()
        .or_else(|| unsatisfied_write_concern(call).filter(|_| !reply.is_settled))
        .or(unreplicated);
    let retryable = call.is_retryable();
    let is_faulted = append_concern_error(fault, retryable, &mut reply);
    let write_concern_error = write_concern_error.filter(|_| !is_faulted);
    if call.envelope.oplog_query_data {
        tail::append_oplog_query_data(call.server, &mut reply);
    }
    append(call.server, &mut reply, write_concern_error.as_ref(), retryable);
    match reply.stream.take() {
        _ if reply.close => Next::Close,
        Some(next) => Next::Stream(next),
        None => Next::Read,
    }
}
