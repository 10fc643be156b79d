//! OP_MSG: flags, sections and the optional checksum.
//!
//! Invariants: exactly one body, no name twice, every document validated once here and never again.
//! What it does not do: decompress, or look into the command.

use crate::decode::{Failure, Rejection};
use crate::frame::{HEADER_SIZE_BYTES, Header, read_i32};
use crate::request::{Flags, Request, Sequence};
use crate::{Compressor, DOCUMENT_SIZE_INTERNAL_MAX_BYTES};
use baton_types::{Error, ErrorCode};
use bson::RawDocument;
use smallvec::SmallVec;
use std::time::Duration;

/// More document sequences than any command has; without a bound, the search for duplicates would be quadratic.
const SEQUENCE_COUNT_MAX: usize = 16;

const CHECKSUM_SIZE_BYTES: usize = 4;
const SECTION_BODY: u8 = 0;
const SECTION_SEQUENCE: u8 = 1;

/// Decodes a whole OP_MSG, header included.
pub(crate) fn decode<'a>(
    message: &'a [u8],
    header: Header,
    compressor: Option<Compressor>,
) -> Result<Request<'a>, Failure> {
    let Some(flag_bits) = read_i32(message, HEADER_SIZE_BYTES) else {
        return Err(Failure::Close("OP_MSG without flag bits"));
    };
    let flags = Flags(flag_bits as u32);
    let reject = |error: Error, close: bool| {
        Failure::Reject(Rejection {
            request_id: header.request_id,
            error,
            close,
            silent: flags.more_to_come(),
            legacy: false,
        })
    };
    let sections = sections_of(message, flags).map_err(|error| reject(error, true))?;
    let parsed = parse_sections(sections).map_err(|error| {
        let close = error.code == ErrorCode::ProtocolError;
        reject(error, close)
    })?;
    Ok(Request {
        request_id: header.request_id,
        reply_id: 0,
        flags,
        body: parsed.0,
        sequences: parsed.1,
        legacy_database: None,
        compressor,
        waited: Duration::ZERO,
    })
}

/// The bytes between the flags and the checksum, once both are found good. A failure here means that the two sides do
/// not agree on the protocol, so the connection does not outlive it.
fn sections_of(message: &[u8], flags: Flags) -> Result<&[u8], Error> {
    if flags.unknown_required() != 0 {
        return Err(Error::new(
            ErrorCode::IllegalOpMsgFlag,
            format!("Message contains illegal flags value: Ob{:b}", flags.0),
        ));
    }
    let sections = &message[HEADER_SIZE_BYTES + 4..];
    if !flags.checksum_present() {
        return Ok(sections);
    }
    let Some(end) = message.len().checked_sub(CHECKSUM_SIZE_BYTES).filter(|end| *end >= HEADER_SIZE_BYTES + 4) else {
        return Err(Error::new(ErrorCode::ChecksumMismatch, "OP_MSG is too short for the checksum it announces"));
    };
    let claimed = read_i32(message, end).unwrap_or_default() as u32;
    if crc32c::crc32c(&message[..end]) != claimed {
        return Err(Error::new(ErrorCode::ChecksumMismatch, "OP_MSG checksum does not match contents"));
    }
    Ok(&sections[..sections.len() - CHECKSUM_SIZE_BYTES])
}

type Sections<'a> = (&'a RawDocument, SmallVec<[(&'a str, Sequence<'a>); 2]>);

fn parse_sections(mut rest: &[u8]) -> Result<Sections<'_>, Error> {
    let mut body: Option<&RawDocument> = None;
    let mut sequences: SmallVec<[(&str, Sequence<'_>); 2]> = SmallVec::new();
    while let Some((&kind, after_kind)) = rest.split_first() {
        rest = match kind {
            SECTION_BODY => {
                if body.is_some() {
                    return Err(Error::location(40430, "Multiple body sections in message"));
                }
                let (document, after) = split_document(after_kind)?;
                body = Some(document);
                after
            }
            SECTION_SEQUENCE => {
                let (name, sequence, after) = split_sequence(after_kind)?;
                if sequences.iter().any(|(n, _)| *n == name) {
                    return Err(Error::location(40431, format!("Duplicate document sequence: {name}")));
                }
                if sequences.len() == SEQUENCE_COUNT_MAX {
                    return Err(Error::new(ErrorCode::ProtocolError, "Too many document sequences in OP_MSG"));
                }
                sequences.push((name, sequence));
                after
            }
            other => return Err(Error::location(40432, format!("Unknown section kind {other}"))),
        };
    }
    let Some(body) = body else {
        return Err(Error::location(40587, "OP_MSG messages must have a body section"));
    };
    for (name, _) in &sequences {
        if body.get(name)?.is_some() {
            return Err(Error::location(40433, format!("Duplicate field between body and document sequence {name}")));
        }
    }
    Ok((body, sequences))
}

/// A kind 1 section: its size (itself included), its name, its documents.
fn split_sequence(bytes: &[u8]) -> Result<(&str, Sequence<'_>, &[u8]), Error> {
    let lie = || Error::new(ErrorCode::ProtocolError, "The size of a document sequence does not fit its message");
    let size = read_i32(bytes, 0).and_then(|size| usize::try_from(size).ok()).ok_or_else(lie)?;
    let (section, after) = bytes.split_at_checked(size).ok_or_else(lie)?;
    let named = section.get(4..).ok_or_else(lie)?;
    let name_length = named.iter().position(|b| *b == 0).ok_or_else(lie)?;
    let name = std::str::from_utf8(&named[..name_length])
        .map_err(|_| Error::new(ErrorCode::ProtocolError, "The name of a document sequence is not UTF-8"))?;
    let documents = &named[name_length + 1..];
    let (mut rest, mut count) = (documents, 0);
    while !rest.is_empty() {
        rest = split_document(rest)?.1;
        count += 1;
    }
    Ok((name, Sequence::new(documents, count), after))
}

/// The validated document at the start of `bytes`, and what follows it.
pub(crate) fn split_document(bytes: &[u8]) -> Result<(&RawDocument, &[u8]), Error> {
    let invalid = |message: String| Error::new(ErrorCode::InvalidBSON, message);
    let Some(claimed) = read_i32(bytes, 0) else {
        return Err(invalid("incomplete BSON document: no room for its length".into()));
    };
    let length = usize::try_from(claimed).unwrap_or(0);
    if length > DOCUMENT_SIZE_INTERNAL_MAX_BYTES {
        return Err(Error::new(
            ErrorCode::BSONObjectTooLarge,
            format!(
                "BSONObj size: {claimed} (0x{claimed:X}) is invalid. Size must be between 0 and \
                 {DOCUMENT_SIZE_INTERNAL_MAX_BYTES}(16MB)"
            ),
        ));
    }
    let Some((document, rest)) = bytes.split_at_checked(length) else {
        return Err(invalid(format!("BSON size: {claimed} is larger than buffer size: {}", bytes.len())));
    };
    Ok((baton_document::validate::document(document)?, rest))
}
