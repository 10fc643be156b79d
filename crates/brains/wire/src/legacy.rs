//! OP_QUERY and OP_REPLY, as far as old handshakes need them.
//!
//! A driver that does not know the server yet opens with `isMaster` in an OP_QUERY on `admin.$cmd`. That is all there is
//! left of the legacy protocol: another command, or a find, is answered with 352 in an OP_REPLY.
//! What it does not do: carry out the handshake; the service does, with `Request::legacy_database` set.

use crate::decode::{Failure, Rejection};
use crate::frame::{HEADER_SIZE_BYTES, Header, OpCode, read_i32};
use crate::op_msg::split_document;
use crate::request::{Flags, Request};
use crate::writer::DocumentWriter;
use baton_types::{Error, ErrorCode};
use bson::{RawBsonRef, RawDocument, cstr};
use smallvec::SmallVec;
use std::time::Duration;

/// Commands that MongoDB 7.0 still answers in OP_QUERY.
const COMMANDS: [&str; 8] =
    ["hello", "isMaster", "ismaster", "buildInfo", "buildinfo", "saslStart", "saslContinue", "_isSelf"];

const REMOVED: &str = "The client driver may require an upgrade. For more details see \
                       https://dochub.mongodb.org/core/legacy-opcode-removal";

/// OP_REPLY's flag for a reply that holds an error.
const QUERY_FAILURE: i32 = 1 << 1;
/// OP_REPLY's flag that every server since 1.6 sets.
const AWAIT_CAPABLE: i32 = 1 << 3;

/// Decodes a whole OP_QUERY, header included.
pub(crate) fn decode(message: &[u8], header: Header) -> Result<Request<'_>, Failure> {
    const CLOSE: Failure = Failure::Close("a malformed OP_QUERY");
    // The flags are of no consequence to a command.
    let named = message.get(HEADER_SIZE_BYTES + 4..).ok_or(CLOSE)?;
    let name_length = named.iter().position(|b| *b == 0).ok_or(CLOSE)?;
    let namespace = std::str::from_utf8(&named[..name_length]).map_err(|_| CLOSE)?;
    // Skip and return counts, four bytes each.
    let documents = named.get(name_length + 1 + 8..).ok_or(CLOSE)?;
    let reject = |error: Error| {
        Failure::Reject(Rejection { request_id: header.request_id, error, close: false, silent: false, legacy: true })
    };
    let (query, _projection) = split_document(documents).map_err(reject)?;
    let Some(database) = namespace.strip_suffix(".$cmd") else {
        return Err(reject(Error::new(
            ErrorCode::UnsupportedOpQueryCommand,
            format!("OP_QUERY is no longer supported. {REMOVED}"),
        )));
    };
    let request = Request {
        request_id: header.request_id,
        reply_id: 0,
        flags: Flags::default(),
        body: unwrap_query(query),
        sequences: SmallVec::new(),
        legacy_database: Some(database),
        compressor: None,
        waited: Duration::ZERO,
    };
    let command = request.command_name();
    if !COMMANDS.contains(&command) {
        return Err(reject(Error::new(
            ErrorCode::UnsupportedOpQueryCommand,
            format!("Unsupported OP_QUERY command: {command}. {REMOVED}"),
        )));
    }
    Ok(request)
}

/// The command itself, when it came as `{$query: command, $readPreference: …}`.
fn unwrap_query(query: &RawDocument) -> &RawDocument {
    match query.iter().next() {
        Some(Ok((key, RawBsonRef::Document(inner)))) if matches!(key.as_str(), "$query" | "query") => inner,
        _ => query,
    }
}

/// Writes an OP_REPLY's head: header without its length, flags, cursor 0, from 0, one document to follow.
pub(crate) fn write_head(out: &mut Vec<u8>, reply_id: i32, response_to: i32) {
    Header { message_length: 0, request_id: reply_id, response_to, op_code: OpCode::Reply.number() }.write(out);
    out.extend_from_slice(&AWAIT_CAPABLE.to_le_bytes());
    out.extend_from_slice(&0i64.to_le_bytes());
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(&1i32.to_le_bytes());
}

/// Marks the OP_REPLY at `out[start..]` as one that holds an error.
pub(crate) fn mark_failure(out: &mut [u8], start: usize) {
    let at = start + HEADER_SIZE_BYTES;
    let flags = read_i32(out, at).unwrap_or_default() | QUERY_FAILURE;
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&flags.to_le_bytes());
    }
}

/// Appends an OP_REPLY that refuses a request, in the form that old drivers look for: `$err` with the flag set.
pub(crate) fn write_failure(out: &mut Vec<u8>, reply_id: i32, response_to: i32, error: &Error) {
    let start = out.len();
    write_head(out, reply_id, response_to);
    mark_failure(out, start);
    let mut body = DocumentWriter::new(out);
    body.append(cstr!("$err"), error.message.as_str());
    crate::reply::append_error(&mut body, error);
    drop(body);
    crate::reply::patch_length(out, start);
}
