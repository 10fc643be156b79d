//! Framing: the 16-byte header, the opcodes, and how much of the receive buffer is the next message.
//!
//! Invariants: a length is checked before anything is allocated for it; bytes that cannot be a message never wait for more.
//! What it does not do: look behind the header.

/// The largest message (`maxMessageSizeBytes`), header included.
pub const MESSAGE_SIZE_MAX_BYTES: usize = 48_000_000;

/// A header's size: length, request id, response-to, opcode, four bytes each.
pub const HEADER_SIZE_BYTES: usize = 16;

/// The opcodes that a message can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpCode {
    /// 1, the answer to OP_QUERY.
    Reply,
    /// 2004, accepted for the legacy handshake only.
    Query,
    /// 2012, a compressed message around another.
    Compressed,
    /// 2013, every request and reply since MongoDB 3.6.
    Msg,
}

impl OpCode {
    /// The opcode of a number; `None` for unknown ones and for the legacy ones that were removed (OP_INSERT, …).
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Reply),
            2004 => Some(Self::Query),
            2012 => Some(Self::Compressed),
            2013 => Some(Self::Msg),
            _ => None,
        }
    }

    /// The number on the wire.
    pub fn number(self) -> i32 {
        match self {
            Self::Reply => 1,
            Self::Query => 2004,
            Self::Compressed => 2012,
            Self::Msg => 2013,
        }
    }
}

/// A message's header as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The whole message's length, this header included.
    pub message_length: i32,
    /// The sender's number for the message.
    pub request_id: i32,
    /// The number of the message that this one answers.
    pub response_to: i32,
    /// What follows; see [`OpCode::from_number`].
    pub op_code: i32,
}

impl Header {
    /// Reads a header; `None` if there are fewer than 16 bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            message_length: read_i32(bytes, 0)?,
            request_id: read_i32(bytes, 4)?,
            response_to: read_i32(bytes, 8)?,
            op_code: read_i32(bytes, 12)?,
        })
    }

    /// Appends the header to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        for field in [self.message_length, self.request_id, self.response_to, self.op_code] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }
}

/// What the start of the receive buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Fewer bytes than a header; read on.
    Incomplete,
    /// A message of so many bytes (16 to 48,000,000), all of which may not be there yet.
    Message {
        /// The whole message's length.
        length_bytes: usize,
    },
    /// A browser or `curl`: send [`HTTP_NOTICE`], then close.
    Http,
    /// Not a message: close without an answer.
    Malformed {
        /// The length it claims.
        claimed_length: i32,
    },
}

/// What an HTTP client on the driver port is told.
pub const HTTP_NOTICE: &[u8] = b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\n\
Content-Length: 83\r\n\r\nIt looks like you are trying to access Baton over HTTP on the native driver port.\r\n";

/// What a whole message says that it is inflated to, if it is compressed; what it says may be a lie.
pub fn inflated_bytes(message: &[u8]) -> Option<usize> {
    let is_compressed = read_i32(message, 12).and_then(OpCode::from_number) == Some(OpCode::Compressed);
    let claimed = read_i32(message, HEADER_SIZE_BYTES + 4).filter(|_| is_compressed)?;
    usize::try_from(claimed).ok().filter(|bytes| *bytes <= MESSAGE_SIZE_MAX_BYTES)
}

/// Looks at the first bytes received and says what they are the start of.
pub fn inspect(received: &[u8]) -> Frame {
    let Some(claimed_length) = read_i32(received, 0) else {
        return Frame::Incomplete;
    };
    if let Some(b"GET " | b"POST" | b"HEAD") = received.get(..4) {
        return Frame::Http;
    }
    match usize::try_from(claimed_length) {
        Ok(length_bytes) if (HEADER_SIZE_BYTES..=MESSAGE_SIZE_MAX_BYTES).contains(&length_bytes) => {
            Frame::Message { length_bytes }
        }
        _ => Frame::Malformed { claimed_length },
    }
}

/// The little-endian 32-bit number at `at`, if the bytes are there.
pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    let field: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(i32::from_le_bytes(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starting_with(length: i32) -> Frame {
        let mut bytes = Vec::new();
        Header { message_length: length, request_id: 1, response_to: 0, op_code: 2013 }.write(&mut bytes);
        inspect(&bytes)
    }

    #[test]
    fn a_length_below_sixteen_negative_or_above_48_million_is_malformed() {
        for length in [15, 0, -1, i32::MIN, 48_000_001, i32::MAX] {
            assert_eq!(starting_with(length), Frame::Malformed { claimed_length: length });
        }
        assert_eq!(starting_with(16), Frame::Message { length_bytes: 16 });
        assert_eq!(starting_with(48_000_000), Frame::Message { length_bytes: 48_000_000 });
    }

    #[test]
    fn a_length_lie_is_known_from_its_first_four_bytes() {
        assert_eq!(inspect(&[15, 0, 0]), Frame::Incomplete);
        assert_eq!(inspect(&[15, 0, 0, 0]), Frame::Malformed { claimed_length: 15 });
    }

    #[test]
    fn http_methods_are_recognised_and_the_notice_has_the_length_it_claims() {
        for start in ["GET / HTTP/1.1\r\n", "POST /x", "HEAD"] {
            assert_eq!(inspect(start.as_bytes()), Frame::Http);
        }
        let notice = std::str::from_utf8(HTTP_NOTICE).unwrap();
        let (head, body) = notice.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "the body has {} bytes", body.len());
        assert!(body.starts_with("It looks like you are trying to access Baton over HTTP on the native driver port."));
    }

    #[test]
    fn opcode_numbers_round_trip_and_removed_ones_are_unknown() {
        for op in [OpCode::Reply, OpCode::Query, OpCode::Compressed, OpCode::Msg] {
            assert_eq!(OpCode::from_number(op.number()), Some(op));
        }
        for removed in [2001, 2002, 2005, 2006, 2007, 0, -1, 2011] {
            assert_eq!(OpCode::from_number(removed), None);
        }
    }
}
