//! OP_COMPRESSED: snappy, zlib and zstd in both directions.
//!
//! Invariants:
//! - `uncompressedSize` is checked against the message limit, and against what the compressed bytes themselves say or can
//!   at most become, before anything is allocated for it;
//! - what comes out has exactly that size, or the message is refused: a reader never sees a byte that the compressor did
//!   not write (the class of bug of CVE-2025-14847);
//! - a compressed message within a compressed message is refused (by [`crate::decode`]).
//!
//! What it does not do: negotiation, which is the handshake's business, and compressing the handshake itself.

use crate::frame::{HEADER_SIZE_BYTES, Header, MESSAGE_SIZE_MAX_BYTES, OpCode, read_i32};
use flate2::{Compression, Decompress, FlushDecompress, Status};

/// Opcode, size and compressor id, between the header and the compressed bytes.
const PREFIX_SIZE_BYTES: usize = 9;

/// DEFLATE cannot do better than 1032:1; a little more for the stream's frame.
const ZLIB_RATIO_MAX: usize = 1032;
/// zlib's own default, and MongoDB's.
const ZLIB_LEVEL: u32 = 6;
/// zstd's own default, and MongoDB's.
const ZSTD_LEVEL: i32 = 3;

/// A compression of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// 0: the bytes as they are. Understood because the protocol defines it; never announced.
    Noop,
    /// 1
    Snappy,
    /// 2
    Zlib,
    /// 3
    Zstd,
}

impl Compressor {
    /// Those announced in the handshake, in the order of the server's preference.
    pub const ANNOUNCED: [Self; 3] = [Self::Snappy, Self::Zstd, Self::Zlib];

    /// The compressor of a number on the wire.
    pub fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::Noop),
            1 => Some(Self::Snappy),
            2 => Some(Self::Zlib),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The number on the wire.
    pub fn id(self) -> u8 {
        match self {
            Self::Noop => 0,
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// The name in the handshake's `compression` list.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// Whether `size` bytes can come out of `compressed` at all. Cheap, and asked before allocating.
    fn may_yield(self, compressed: &[u8], size: usize) -> bool {
        match self {
            Self::Noop => compressed.len() == size,
            Self::Snappy => snap::raw::decompress_len(compressed) == Ok(size),
            Self::Zlib => size <= compressed.len().saturating_mul(ZLIB_RATIO_MAX),
            Self::Zstd => match zstd::zstd_safe::get_frame_content_size(compressed) {
                Ok(Some(content_size)) => content_size == size as u64,
                // A streaming compressor leaves the size out.
                Ok(None) => true,
                Err(_) => false,
            },
        }
    }

    /// Fills all of `out` from `compressed`; false if it gives more, less, or nothing sensible.
    fn inflate_exactly(self, compressed: &[u8], out: &mut [u8]) -> bool {
        match self {
            Self::Noop => {
                out.copy_from_slice(compressed);
                true
            }
            Self::Snappy => snap::raw::Decoder::new().decompress(compressed, out) == Ok(out.len()),
            Self::Zlib => {
                let mut inflater = Decompress::new(true);
                let status = inflater.decompress(compressed, out, FlushDecompress::Finish);
                matches!(status, Ok(Status::StreamEnd)) && inflater.total_out() == out.len() as u64
            }
            Self::Zstd => zstd::bulk::decompress_to_buffer(compressed, out).is_ok_and(|n| n == out.len()),
        }
    }

    /// The compressed form of `plain`; `None` if it is no smaller, or if the compressor fails.
    pub fn deflate(self, plain: &[u8]) -> Option<Vec<u8>> {
        let compressed = match self {
            Self::Noop => return None,
            Self::Snappy => snap::raw::Encoder::new().compress_vec(plain).ok()?,
            Self::Zlib => {
                let mut encoder =
                    flate2::write::ZlibEncoder::new(Vec::with_capacity(plain.len() / 2), Compression::new(ZLIB_LEVEL));
                std::io::Write::write_all(&mut encoder, plain).ok()?;
                encoder.finish().ok()?
            }
            Self::Zstd => zstd::bulk::compress(plain, ZSTD_LEVEL).ok()?,
        };
        (compressed.len() + PREFIX_SIZE_BYTES < plain.len()).then_some(compressed)
    }
}

/// Undoes the compression: `scratch` becomes the whole inner message, with a header of its own.
pub(crate) fn inflate(
    message: &[u8],
    header: Header,
    scratch: &mut Vec<u8>,
) -> Result<(Compressor, Header), &'static str> {
    let (Some(op_code), Some(claimed), Some(&id), Some(compressed)) = (
        read_i32(message, HEADER_SIZE_BYTES),
        read_i32(message, HEADER_SIZE_BYTES + 4),
        message.get(HEADER_SIZE_BYTES + 8),
        message.get(HEADER_SIZE_BYTES + PREFIX_SIZE_BYTES..),
    ) else {
        return Err("OP_COMPRESSED without its fields");
    };
    let compressor = Compressor::from_id(id).ok_or("OP_COMPRESSED with an unknown compressor")?;
    let size = usize::try_from(claimed)
        .ok()
        .filter(|size| *size <= MESSAGE_SIZE_MAX_BYTES - HEADER_SIZE_BYTES)
        .ok_or("OP_COMPRESSED with an impossible uncompressed size")?;
    if !compressor.may_yield(compressed, size) {
        return Err("OP_COMPRESSED whose content cannot have the size it claims");
    }
    scratch.clear();
    let inner = Header { message_length: (HEADER_SIZE_BYTES + size) as i32, op_code, ..header };
    inner.write(scratch);
    scratch.resize(HEADER_SIZE_BYTES + size, 0);
    if !compressor.inflate_exactly(compressed, &mut scratch[HEADER_SIZE_BYTES..]) {
        scratch.clear();
        return Err("OP_COMPRESSED whose content is not what it claims");
    }
    Ok((compressor, inner))
}

/// Turns the whole message at `out[start..]` into its OP_COMPRESSED form, unless that is no smaller.
pub(crate) fn deflate_message(out: &mut Vec<u8>, start: usize, compressor: Compressor) {
    let Some(header) = Header::read(&out[start..]) else { return };
    let plain = &out[start + HEADER_SIZE_BYTES..];
    let Some(compressed) = compressor.deflate(plain) else { return };
    let plain_size = plain.len() as i32;
    out.truncate(start);
    let message_length = (HEADER_SIZE_BYTES + PREFIX_SIZE_BYTES + compressed.len()) as i32;
    Header { message_length, op_code: OpCode::Compressed.number(), ..header }.write(out);
    out.extend_from_slice(&header.op_code.to_le_bytes());
    out.extend_from_slice(&plain_size.to_le_bytes());
    out.push(compressor.id());
    out.extend_from_slice(&compressed);
}
