//! The client's side of the protocol: commands out, replies in. For the load generator and the tests.
//!
//! What it does not do: compression and the legacy opcodes; a client need not use them.

use crate::decode::Failure;
use crate::frame::{Header, OpCode};
use crate::op_msg;
use crate::request::Flags;
use bson::RawDocument;

/// Appends an OP_MSG with a body and one optional document sequence.
pub fn encode_command(
    out: &mut Vec<u8>,
    request_id: i32,
    flags: Flags,
    body: &RawDocument,
    sequence: Option<(&str, &mut dyn Iterator<Item = &'_ RawDocument>)>,
) {
    let start = out.len();
    Header { message_length: 0, request_id, response_to: 0, op_code: OpCode::Msg.number() }.write(out);
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.push(0);
    out.extend_from_slice(body.as_bytes());
    if let Some((name, documents)) = sequence {
        out.push(1);
        let section = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        for document in documents {
            out.extend_from_slice(document.as_bytes());
        }
        crate::reply::patch_length(out, section);
    }
    if flags.checksum_present() {
        out.extend_from_slice(&[0; 4]);
    }
    crate::reply::patch_length(out, start);
    if flags.checksum_present() {
        let end = out.len() - 4;
        let sum = crc32c::crc32c(&out[start..end]);
        out[end..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A reply as the client sees it.
#[derive(Clone, Debug)]
pub struct Reply<'a> {
    /// The reply's own number.
    pub reply_id: i32,
    /// The message it answers.
    pub response_to: i32,
    /// Its flags.
    pub flags: Flags,
    /// Its body.
    pub body: &'a RawDocument,
}

/// Decodes a whole, uncompressed reply.
pub fn decode_reply(message: &[u8]) -> Result<Reply<'_>, Failure> {
    let Some(header) = Header::read(message) else {
        return Err(Failure::Close("a reply shorter than its header"));
    };
    if usize::try_from(header.message_length) != Ok(message.len()) {
        return Err(Failure::Close("a reply of another length than its header says"));
    }
    match OpCode::from_number(header.op_code) {
        Some(OpCode::Msg) => {
            let request = op_msg::decode(message, header, None)?;
            Ok(Reply {
                reply_id: header.request_id,
                response_to: header.response_to,
                flags: request.flags,
                body: request.body,
            })
        }
        Some(OpCode::Reply) => {
            // Flags, cursor id, starting from, number returned: 20 bytes.
            let documents = message.get(36..).ok_or(Failure::Close("an OP_REPLY without its fields"))?;
            let (body, _) =
                op_msg::split_document(documents).map_err(|_| Failure::Close("an OP_REPLY without a document"))?;
            Ok(Reply { reply_id: header.request_id, response_to: header.response_to, flags: Flags::default(), body })
        }
        Some(OpCode::Query | OpCode::Compressed) | None => Err(Failure::Close("a reply of an unexpected opcode")),
    }
}
