//! What members say to each other, as MongoDB's internal commands: between [`Request`], [`Response`] and BSON.
//!
//! | request | command |
//! |---|---|
//! | [`Request::Heartbeat`] | `replSetHeartbeat` |
//! | [`Request::RequestVotes`] | `replSetRequestVotes` |
//! | [`Request::UpdatePosition`] | `replSetUpdatePosition` |
//! | [`Request::StepUp`] | `replSetStepUp` with `skipDryRun` and a `term` |
//!
//! Names, types and errors are those of MongoDB 7.0 (`repl_set_heartbeat_args_v1`, `repl_set_heartbeat_response`,
//! `repl_set_request_votes_args`, `update_position_args`), `writtenOpTime` and `lastWrittenOpTime` those of 8.0. What is left
//! out is what members of Baton do not ask each other: wall-clock times, host names of sync sources, indexes into a
//! configuration that the other side may not have. What is added each file names.
//!
//! Invariants: what one side encodes the other decodes as the same; no document, whatever is in it, gives a panic, and one that
//! is not understood gives an error and nothing else; every term is small enough to be counted up from.
//! What it does not do: put `ok` into a response (whoever sends replies to commands does, for all of them), or check that
//! what is said is true.

mod fields;
mod heartbeat;
pub(crate) mod leadership;
mod positions;
mod step_up;
mod votes;

use baton_consensus::{Request, RequestKind, Response};
use baton_document::Number;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawDocument, RawDocumentBuf, cstr};

/// The command that asks it, ready to be sent.
pub fn encode_request(request: &Request) -> RawDocumentBuf {
    let mut command = match request {
        Request::Heartbeat(request) => heartbeat::encode_request(request),
        Request::RequestVotes(request) => votes::encode_request(request),
        Request::UpdatePosition(update) => positions::encode_request(update),
        Request::StepUp { term, last_written } => step_up::encode_request(*term, *last_written),
    };
    command.append(cstr!("$db"), "admin");
    command
}

/// Reads a command; fields that are not its own (`$db`, `lsid`, …) are the envelope's, and passed over.
///
/// # Errors
/// `CommandNotFound` (59) for any other command; `NoSuchKey` (4), `TypeMismatch` (14), `BadValue` (2), `FailedToParse` (9)
/// and 40666 as MongoDB gives them, 51024 for a number that is out of range.
pub fn decode_request(command: &RawDocument) -> Result<Request> {
    let name = command.iter().next().transpose()?.map(|(name, _)| name.as_str()).unwrap_or_default();
    match name {
        "replSetHeartbeat" => heartbeat::decode_request(command).map(Request::Heartbeat),
        "replSetRequestVotes" => votes::decode_request(command).map(Request::RequestVotes),
        "replSetUpdatePosition" => positions::decode_request(command).map(Request::UpdatePosition),
        "replSetStepUp" => {
            step_up::decode_request(command).map(|(term, last_written)| Request::StepUp { term, last_written })
        }
        _ => Err(Error::new(ErrorCode::CommandNotFound, format!("no such command: '{name}'"))),
    }
}

/// The fields of the reply, without `ok`.
pub fn encode_response(response: &Response) -> RawDocumentBuf {
    match response {
        Response::Heartbeat(response) => heartbeat::encode_response(response),
        Response::RequestVotes(vote) => votes::encode_response(vote),
        Response::UpdatePosition { term } | Response::StepUp { term } => fields::term_alone(*term),
    }
}

/// Reads the reply to a request of that kind.
///
/// # Errors
/// What the other member answered with `ok: 0`; otherwise as [`decode_request`], and what `Configuration::parse` and
/// `Configuration::validate` find in a configuration.
pub fn decode_response(kind: RequestKind, reply: &RawDocument) -> Result<Response> {
    check_ok(reply)?;
    match kind {
        RequestKind::Heartbeat => heartbeat::decode_response(reply).map(Response::Heartbeat),
        RequestKind::RequestVotes => votes::decode_response(reply).map(Response::RequestVotes),
        RequestKind::UpdatePosition => Ok(Response::UpdatePosition { term: fields::term(reply, "term")? }),
        RequestKind::StepUp => Ok(Response::StepUp { term: fields::term(reply, "term")? }),
    }
}

/// The failure that a reply reports, if it does.
fn check_ok(reply: &RawDocument) -> Result<()> {
    let Some(ok) = reply.get("ok")? else { return Ok(()) };
    let is_ok = ok.as_bool().or_else(|| Number::from_raw(ok).map(|number| !number.is_zero()));
    if is_ok == Some(true) {
        return Ok(());
    }
    let code = reply.get("code")?.and_then(|code| code.as_i32()).map_or(ErrorCode::UnknownError, ErrorCode);
    let message = reply.get("errmsg")?.and_then(|message| message.as_str()).unwrap_or_default();
    Err(Error::new(code, message))
}

#[cfg(test)]
mod tests;
