//! The MongoDB wire protocol as a pure codec: bytes in, requests out; replies in, bytes out.
//!
//! The way of a message: [`frame::inspect`] says how many bytes it has (or that the peer is to be hung up on),
//! [`decode::decode`] undoes OP_COMPRESSED and turns OP_MSG, or the legacy handshake's OP_QUERY, into a [`Request`] that
//! borrows from the receive buffer, and a [`ReplyBuilder`] writes the answer straight into the send buffer.
//!
//! Invariants:
//! - no input panics, and none makes the codec allocate more than the message limit or than the bytes that really came;
//! - every document that leaves the decoder has been validated, once;
//! - a document from storage is copied once on its way out, into the send buffer.
//!
//! What it deliberately does not do: sockets, clocks, threads (the net device), and deciding what a command means (the
//! service). Of the legacy opcodes it knows OP_QUERY for the handshake, and nothing else.

pub mod client;
pub mod compression;
pub mod decode;
pub mod frame;
pub mod legacy;
mod op_msg;
pub mod reply;
pub mod request;
pub mod writer;

pub use compression::Compressor;
pub use decode::{Failure, Rejection, decode};
pub use frame::{Frame, Header, MESSAGE_SIZE_MAX_BYTES, OpCode};
pub use reply::{ReplyBuilder, ReplyHead, append_error};
pub use request::{Flags, Request, Sequence};
pub use writer::DocumentWriter;

/// The largest document a client may store (`maxBsonObjectSize`).
pub const DOCUMENT_SIZE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// The largest document a message may carry: a stored document and what a command wraps around it.
pub const DOCUMENT_SIZE_INTERNAL_MAX_BYTES: usize = DOCUMENT_SIZE_MAX_BYTES + 16 * 1024;
