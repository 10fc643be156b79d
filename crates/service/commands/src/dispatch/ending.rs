//! What every reply ends with: `ok`, what became of the write concern, and the set's times.

use super::Next;
use super::errors::append_write_concern_error;
use super::faults::append_concern_error;
use super::waits::unsatisfied_write_concern;
use crate::call::{Call, Reply};
use crate::server::failpoints::CommandFault;
use crate::tail;
use baton_types::Error;
use bson::cstr;

/// Ends the reply of a command that has succeeded. `unreplicated` is why the members do not have it that its write concern asks for.
pub(super) fn end(call: &Call<'_>, mut reply: Reply<'_>, fault: &CommandFault, unreplicated: Option<Error>) -> Next {
    reply.append(cstr!("ok"), 1.0);
    let write_concern_error = reply
        .write_concern_error
        .take()
        .or_else(|| unsatisfied_write_concern(call).filter(|_| !reply.is_settled))
        .or(unreplicated);
    let retryable = call.is_retryable();
    if !append_concern_error(fault, retryable, &mut reply)
        && let Some(error) = write_concern_error
    {
        append_write_concern_error(&mut reply, &error, retryable);
    }
    if call.envelope.oplog_query_data {
        tail::append_oplog_query_data(call.server, &mut reply);
    }
    tail::append(call.server, &mut reply);
    match reply.stream.take() {
        _ if reply.close => Next::Close,
        Some(next) => Next::Stream(next),
        None => Next::Read,
    }
}
