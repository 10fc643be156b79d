//! Writing a reply straight into the send buffer.
//!
//! Invariants: after [`ReplyBuilder::finish`] the buffer ends with one whole message, its length patched, of the kind the
//! request asked for (OP_MSG or OP_REPLY, compressed, checksummed); a reply too large for the protocol becomes an error
//! reply, never a broken stream.
//! What it does not do: choose the reply's number (that is in the request) or send it.

use crate::compression::{self, Compressor};
use crate::frame::{HEADER_SIZE_BYTES, Header, OpCode, read_i32};
use crate::legacy;
use crate::request::{Flags, Request};
use crate::writer::DocumentWriter;
use crate::{DOCUMENT_SIZE_INTERNAL_MAX_BYTES, MESSAGE_SIZE_MAX_BYTES};
use baton_types::{Error, ErrorCode};
use bson::{RawDocument, cstr};

/// Commands whose messages stay uncompressed: they negotiate compression or carry secrets (CRIME).
const NEVER_COMPRESSED: [&str; 10] = [
    "hello",
    "isMaster",
    "ismaster",
    "saslStart",
    "saslContinue",
    "getnonce",
    "authenticate",
    "createUser",
    "updateUser",
    "copydbSaslStart",
];

/// One reply being written to the end of a buffer.
#[must_use = "a reply is whole only after finish()"]
#[derive(Debug)]
pub struct ReplyBuilder<'o> {
    out: &'o mut Vec<u8>,
    head: ReplyHead,
}

/// Where in its buffer a reply is, and of what kind: with both it can be gone on with, on another thread too.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHead {
    start: usize,
    body_start: usize,
    legacy: bool,
    checksum: bool,
    compressor: Option<Compressor>,
}

impl<'o> ReplyBuilder<'o> {
    /// Starts the reply to `request`, numbered `request.reply_id`, at the end of `out`.
    pub fn new(out: &'o mut Vec<u8>, request: &Request<'_>) -> Self {
        let compressor = request.compressor.filter(|_| !NEVER_COMPRESSED.contains(&request.command_name()));
        if request.legacy() {
            let start = out.len();
            legacy::write_head(out, request.reply_id, request.request_id);
            let body_start = out.len();
            return Self {
                out,
                head: ReplyHead { start, body_start, legacy: true, checksum: false, compressor: None },
            };
        }
        let mut builder = Self::answering(out, request.request_id, request.reply_id);
        builder.head.compressor = compressor;
        builder.head.checksum = compressor.is_none() && request.flags.checksum_present();
        builder
    }

    /// Starts a plain OP_MSG that answers message `response_to`.
    pub fn answering(out: &'o mut Vec<u8>, response_to: i32, reply_id: i32) -> Self {
        let start = out.len();
        Header { message_length: 0, request_id: reply_id, response_to, op_code: OpCode::Msg.number() }.write(out);
        // No flags yet, then the kind of the one section.
        out.extend_from_slice(&[0, 0, 0, 0, 0]);
        let body_start = out.len();
        Self { out, head: ReplyHead { start, body_start, legacy: false, checksum: false, compressor: None } }
    }

    /// Leaves the reply as it is so far, to be gone on with by [`Self::resume`].
    pub fn leave(self) -> ReplyHead {
        self.head
    }

    /// Goes on with the reply that was left in this buffer.
    pub fn resume(out: &'o mut Vec<u8>, head: ReplyHead) -> Self {
        Self { out, head }
    }

    /// Says that another reply follows unasked (exhaust).
    pub fn more_to_come(&mut self) {
        if !self.head.legacy {
            self.set_flag(Flags::MORE_TO_COME);
        }
    }

    /// The body as one document that is ready.
    pub fn document(&mut self, body: &RawDocument) {
        self.out.truncate(self.head.body_start);
        self.out.extend_from_slice(body.as_bytes());
    }

    /// The body, to be written field by field in place. A body begun before is thrown away.
    pub fn body(&mut self) -> DocumentWriter<'_> {
        self.out.truncate(self.head.body_start);
        DocumentWriter::new(self.out)
    }

    /// The body written so far, to add fields at its end (`$clusterTime`, `operationTime`).
    pub fn resume_body(&mut self) -> DocumentWriter<'_> {
        if self.out.len() == self.head.body_start {
            return DocumentWriter::new(self.out);
        }
        DocumentWriter::resume(self.out, self.head.body_start)
    }

    /// Throws away the body begun so far and writes the error instead.
    pub fn error(&mut self, error: &Error) {
        append_error(&mut self.body(), error);
    }

    /// How many bytes the body has.
    pub fn body_size_bytes(&self) -> usize {
        self.out.len() - self.head.body_start
    }

    /// Makes the message whole; returns its size on the wire.
    pub fn finish(mut self) -> usize {
        if self.out.len() == self.head.body_start {
            drop(DocumentWriter::new(self.out));
        }
        let body_size = self.body_size_bytes();
        if body_size > DOCUMENT_SIZE_INTERNAL_MAX_BYTES {
            self.error(&Error::new(
                ErrorCode::BSONObjectTooLarge,
                format!(
                    "BSONObj size: {body_size} (0x{body_size:X}) is invalid. Size must be between 0 and \
                     {DOCUMENT_SIZE_INTERNAL_MAX_BYTES}(16MB)"
                ),
            ));
        }
        if self.head.checksum {
            self.set_flag(Flags::CHECKSUM_PRESENT);
            // The checksum covers the header, so the length in it must already count the checksum.
            self.out.extend_from_slice(&[0; 4]);
        }
        patch_length(self.out, self.head.start);
        if self.head.checksum {
            let end = self.out.len() - 4;
            let sum = crc32c::crc32c(&self.out[self.head.start..end]);
            self.out[end..].copy_from_slice(&sum.to_le_bytes());
        }
        if let Some(compressor) = self.head.compressor {
            compression::deflate_message(self.out, self.head.start, compressor);
        }
        assert!(self.out.len() - self.head.start <= MESSAGE_SIZE_MAX_BYTES, "a reply fits into a message");
        self.out.len() - self.head.start
    }

    fn set_flag(&mut self, flag: u32) {
        let at = self.head.start + HEADER_SIZE_BYTES;
        let flags = read_i32(self.out, at).unwrap_or_default() as u32 | flag;
        if let Some(field) = self.out.get_mut(at..at + 4) {
            field.copy_from_slice(&flags.to_le_bytes());
        }
    }
}

/// Appends MongoDB's fields of a failed command: `ok`, `errmsg`, `code`, `codeName`, what else the error has, its labels.
pub fn append_error(body: &mut DocumentWriter<'_>, error: &Error) {
    body.append(cstr!("ok"), 0.0);
    body.append(cstr!("errmsg"), error.message.as_str());
    body.append(cstr!("code"), error.code.0);
    body.append(cstr!("codeName"), &*error.code.name());
    if let Some(info) = &error.info {
        body.extend(info);
    }
    if !error.labels.is_empty() {
        body.begin_array(cstr!("errorLabels"));
        for label in &error.labels {
            body.push(*label);
        }
        body.end();
    }
}

/// Writes the length of the message at `out[start..]` into its header.
pub(crate) fn patch_length(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as i32;
    if let Some(field) = out.get_mut(start..start + 4) {
        field.copy_from_slice(&length.to_le_bytes());
    }
}
