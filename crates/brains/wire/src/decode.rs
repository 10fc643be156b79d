//! The entry point of decoding: from a whole message to a [`Request`], or to what to do instead.
//!
//! Invariants: any byte string gives a request or a [`Failure`], never a panic; a failure that leaves the stream in step
//! leaves the connection open; a request that wants no reply gets none, not even an error.
//! What it does not do: reading (see [`crate::frame`]), and sending what it asks for.

use crate::frame::{Header, OpCode};
use crate::reply::{self, ReplyBuilder};
use crate::request::Request;
use crate::{compression, legacy, op_msg};
use baton_types::Error;

/// Why there is no request.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The peer does not speak the protocol: hang up without an answer.
    Close(&'static str),
    /// The message was understood far enough to answer it.
    Reject(Rejection),
}

/// An error to answer a message with.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The message to answer.
    pub request_id: i32,
    /// What is wrong with it.
    pub error: Error,
    /// Whether to hang up after the answer.
    pub close: bool,
    /// Whether the sender expects no answer (`moreToCome`), so that one would put the stream out of step.
    pub silent: bool,
    /// Whether the answer is an OP_REPLY.
    pub legacy: bool,
}

impl Rejection {
    /// Appends the answer to `out`, with `reply_id` as its number; nothing if none is wanted.
    pub fn write(&self, reply_id: i32, out: &mut Vec<u8>) {
        if self.silent {
            return;
        }
        if self.legacy {
            legacy::write_failure(out, reply_id, self.request_id, &self.error);
            return;
        }
        let mut builder = ReplyBuilder::answering(out, self.request_id, reply_id);
        reply::append_error(&mut builder.body(), &self.error);
        builder.finish();
    }
}

/// Decodes one whole message. A compressed one is inflated into `scratch`, whose content before does not matter.
pub fn decode<'a>(message: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Request<'a>, Failure> {
    let Some(header) = Header::read(message) else {
        return Err(Failure::Close("a message shorter than its header"));
    };
    if usize::try_from(header.message_length) != Ok(message.len()) {
        return Err(Failure::Close("a message of another length than its header says"));
    }
    match OpCode::from_number(header.op_code) {
        Some(OpCode::Msg) => op_msg::decode(message, header, None),
        Some(OpCode::Query) => legacy::decode(message, header),
        Some(OpCode::Compressed) => {
            let (compressor, inner) = compression::inflate(message, header, scratch).map_err(Failure::Close)?;
            match OpCode::from_number(inner.op_code) {
                Some(OpCode::Msg) => op_msg::decode(scratch, inner, Some(compressor)),
                Some(OpCode::Query) => legacy::decode(scratch, inner),
                Some(OpCode::Compressed) => Err(Failure::Close("OP_COMPRESSED within OP_COMPRESSED")),
                Some(OpCode::Reply) | None => Err(Failure::Close("an unknown opcode within OP_COMPRESSED")),
            }
        }
        Some(OpCode::Reply) | None => Err(Failure::Close("an unknown or removed opcode")),
    }
}
