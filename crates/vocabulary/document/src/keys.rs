//! The order-preserving encoding of values as bytes: what a key is made of.
//!
//! Invariants: `memcmp` over encodings is [`crate::order::compare`] over values, also where encodings are concatenated
//! and in either direction; equal values (`1`, `1.0`, `1.00`) have equal encodings; an encoding ends where it says, so
//! that compound keys can be taken apart. The first byte is between 0x0f and 0xf0 in either direction, which leaves
//! 0x00 and 0xff to bounds. Drawn byte by byte in `docs/keys.md`.
//!
//! What it deliberately does not do: keep the numeric type, a symbol's type or trailing zeros of decimals (they do not
//! take part in the order; see [`is_lossless`]), collation, or knowledge of which index a key belongs to.

mod number;
mod reader;

use crate::order;
use baton_types::Result;
use bson::raw::RawBson;
use bson::spec::ElementType;
use bson::{Bson, RawBsonRef, RawDocument};
use smallvec::SmallVec;
use std::ops::DerefMut;

pub use reader::{decode, skip};

/// Which way a component of a key sorts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smaller values first.
    #[default]
    Ascending,
    /// Larger values first: all bytes inverted.
    Descending,
}

impl Direction {
    /// The direction that reads this one backwards.
    pub fn reverse(self) -> Self {
        match self {
            Self::Ascending => Self::Descending,
            Self::Descending => Self::Ascending,
        }
    }

    /// What each byte is combined with by exclusive or.
    fn mask(self) -> u8 {
        match self {
            Self::Ascending => 0,
            Self::Descending => 0xff,
        }
    }
}

/// What keys are appended to: a vector, or one that holds a short key without memory of its own.
pub trait Buffer: DerefMut<Target = [u8]> {
    /// Appends a byte.
    fn push(&mut self, byte: u8);

    /// Appends bytes.
    fn extend_from_slice(&mut self, bytes: &[u8]);
}

impl Buffer for Vec<u8> {
    fn push(&mut self, byte: u8) {
        self.push(byte);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<A: smallvec::Array<Item = u8>> Buffer for SmallVec<A> {
    fn push(&mut self, byte: u8) {
        self.push(byte);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The first byte of each type bracket. Eight apart: a bracket may use the bytes up to the next.
pub(crate) mod tag {
    pub const MIN_KEY: u8 = 0x10;
    pub const UNDEFINED: u8 = 0x18;
    pub const NULL: u8 = 0x20;
    /// Also NaN; the other classes of numbers follow.
    pub const NUMBER: u8 = 0x28;
    pub const NEGATIVE_INFINITY: u8 = 0x29;
    pub const NEGATIVE: u8 = 0x2a;
    pub const ZERO: u8 = 0x2b;
    pub const POSITIVE: u8 = 0x2c;
    pub const POSITIVE_INFINITY: u8 = 0x2d;
    pub const STRING: u8 = 0x38;
    pub const DOCUMENT: u8 = 0x40;
    pub const ARRAY: u8 = 0x48;
    pub const BINARY: u8 = 0x50;
    pub const OBJECT_ID: u8 = 0x58;
    pub const FALSE: u8 = 0x60;
    pub const TRUE: u8 = 0x61;
    pub const DATE_TIME: u8 = 0x68;
    pub const TIMESTAMP: u8 = 0x70;
    pub const REGULAR_EXPRESSION: u8 = 0x78;
    pub const DB_POINTER: u8 = 0x80;
    pub const CODE: u8 = 0x88;
    pub const CODE_WITH_SCOPE: u8 = 0x90;
    pub const MAX_KEY: u8 = 0xf0;
}

/// Ends a text, a document, an array: below every byte that could come in its place.
const END: u8 = 0x00;
/// In texts, 0x00 becomes 0x01 0x01 and 0x01 becomes 0x01 0x02.
const ESCAPE: u8 = 0x01;
/// A binary value's length from which it takes five bytes instead of one.
const LONG_LENGTH: usize = 0xff;

/// Appends the encoding of a value.
#[inline]
pub fn encode(out: &mut impl Buffer, value: RawBsonRef<'_>, direction: Direction) {
    let start = out.len();
    encode_ascending(out, value);
    invert(out, start, direction);
}

/// Appends the encoding of a value held in memory. Fails where a field's name has a NUL in it.
pub fn encode_bson(out: &mut Vec<u8>, value: &Bson, direction: Direction) -> Result<()> {
    match order::scalar(value) {
        Some(scalar) => encode(out, scalar, direction),
        None => encode(out, RawBson::try_from(value.clone())?.as_raw_bson_ref(), direction),
    }
    Ok(())
}

/// Appends the encoding of an ObjectId, ascending.
#[inline]
pub fn encode_object_id(out: &mut impl Buffer, id: &[u8; 12]) {
    out.push(tag::OBJECT_ID);
    out.extend_from_slice(id);
}

/// Appends the encoding of an integer, ascending. The same bytes as for any other number of that value.
#[inline]
pub fn encode_i64(out: &mut impl Buffer, value: i64) {
    number::encode_i64(out, value);
}

/// Appends the encoding of a string, ascending.
#[inline]
pub fn encode_str(out: &mut impl Buffer, value: &str) {
    out.push(tag::STRING);
    text(out, value.as_bytes());
}

/// Appends what makes of a prefix (whole components) a key above all keys with that prefix, and below all others.
#[inline]
pub fn append_prefix_end(out: &mut Vec<u8>) {
    out.push(0xff);
}

/// Below every key.
pub const LOWEST: &[u8] = &[0x00];
/// Above every key.
pub const HIGHEST: &[u8] = &[0xff];

/// The bounds of a type bracket within one component: the encoding of every value of the bracket, and of no other,
/// is at least the first byte and below the second. Numbers include NaN.
pub fn bracket_bounds(t: ElementType, direction: Direction) -> (u8, u8) {
    let first = first_tag(t);
    match direction {
        Direction::Ascending => (first, first + 8),
        Direction::Descending => (!(first + 7), !(first - 1)),
    }
}

/// Whether `decode(encode(value))` is the value exactly, type and all; where it is not, an index entry must carry the
/// value itself to answer without the document. May say no of an exotic value that would have come back.
pub fn is_lossless(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(n) => number::is_lossless_f64(n),
        RawBsonRef::Int64(n) => i32::try_from(n).is_err(),
        RawBsonRef::Decimal128(n) => number::is_lossless_decimal(n.into()),
        RawBsonRef::Symbol(_) => false,
        RawBsonRef::Document(document) => is_lossless_document(document),
        RawBsonRef::JavaScriptCodeWithScope(code) => is_lossless_document(code.scope),
        RawBsonRef::Array(array) => array.iter_elements().enumerate().all(|(index, element)| {
            element.is_ok_and(|element| {
                crate::path::parse_index(element.key().as_str()) == Some(index)
                    && element.value().is_ok_and(is_lossless)
            })
        }),
        RawBsonRef::String(_)
        | RawBsonRef::Boolean(_)
        | RawBsonRef::Null
        | RawBsonRef::RegularExpression(_)
        | RawBsonRef::JavaScriptCode(_)
        | RawBsonRef::Int32(_)
        | RawBsonRef::Timestamp(_)
        | RawBsonRef::Binary(_)
        | RawBsonRef::ObjectId(_)
        | RawBsonRef::DateTime(_)
        | RawBsonRef::Undefined
        | RawBsonRef::MaxKey
        | RawBsonRef::MinKey
        | RawBsonRef::DbPointer(_) => true,
    }
}

/// A name that occurs twice is lost in decoding; so that finding one stays cheap, large documents count as lossy.
fn is_lossless_document(document: &RawDocument) -> bool {
    const FIELDS_MAX: usize = 32;
    let fields = || document.iter_elements().map_while(std::result::Result::ok);
    fields().enumerate().all(|(i, element)| {
        i < FIELDS_MAX
            && element.value().is_ok_and(is_lossless)
            && fields().take(i).all(|earlier| earlier.key() != element.key())
    })
}

fn invert(out: &mut [u8], start: usize, direction: Direction) {
    if direction == Direction::Descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn first_tag(t: ElementType) -> u8 {
    match t {
        ElementType::MinKey => tag::MIN_KEY,
        ElementType::Undefined => tag::UNDEFINED,
        ElementType::Null => tag::NULL,
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128 => tag::NUMBER,
        ElementType::String | ElementType::Symbol => tag::STRING,
        ElementType::EmbeddedDocument => tag::DOCUMENT,
        ElementType::Array => tag::ARRAY,
        ElementType::Binary => tag::BINARY,
        ElementType::ObjectId => tag::OBJECT_ID,
        ElementType::Boolean => tag::FALSE,
        ElementType::DateTime => tag::DATE_TIME,
        ElementType::Timestamp => tag::TIMESTAMP,
        ElementType::RegularExpression => tag::REGULAR_EXPRESSION,
        ElementType::DbPointer => tag::DB_POINTER,
        ElementType::JavaScriptCode => tag::CODE,
        ElementType::JavaScriptCodeWithScope => tag::CODE_WITH_SCOPE,
        ElementType::MaxKey => tag::MAX_KEY,
    }
}

fn encode_ascending(out: &mut impl Buffer, value: RawBsonRef<'_>) {
    match value {
        RawBsonRef::ObjectId(id) => return encode_object_id(out, &id.bytes()),
        RawBsonRef::String(s) | RawBsonRef::Symbol(s) => return encode_str(out, s),
        RawBsonRef::Int32(n) => return number::encode_i64(out, i64::from(n)),
        RawBsonRef::Int64(n) => return number::encode_i64(out, n),
        RawBsonRef::Double(n) => return number::encode_f64(out, n),
        RawBsonRef::Decimal128(n) => return number::encode_decimal(out, n.into()),
        RawBsonRef::Boolean(b) => return out.push(if b { tag::TRUE } else { tag::FALSE }),
        _ => out.push(first_tag(value.element_type())),
    }
    match value {
        RawBsonRef::Document(document) => fields(out, document),
        RawBsonRef::Array(array) => {
            for element in array.into_iter().map_while(std::result::Result::ok) {
                encode_ascending(out, element);
            }
            out.push(END);
        }
        RawBsonRef::Binary(binary) => {
            length(out, order::binary_length(binary.subtype, binary.bytes));
            out.push(binary.subtype.into());
            out.extend_from_slice(binary.bytes);
        }
        RawBsonRef::DateTime(t) => {
            // With the sign bit flipped, negative times come first.
            out.extend_from_slice(&((t.timestamp_millis() as u64) ^ (1 << 63)).to_be_bytes());
        }
        RawBsonRef::Timestamp(t) => {
            out.extend_from_slice(&t.time.to_be_bytes());
            out.extend_from_slice(&t.increment.to_be_bytes());
        }
        RawBsonRef::RegularExpression(regex) => {
            text(out, regex.pattern.as_str().as_bytes());
            text(out, regex.options.as_str().as_bytes());
        }
        RawBsonRef::DbPointer(pointer) => {
            // Length and NUL are dropped; they follow from the namespace, which comes before the 12 bytes of the id.
            let bytes = order::db_pointer_bytes(pointer);
            let namespace = bytes.get(4..bytes.len().saturating_sub(13)).unwrap_or_default();
            length(out, namespace.len());
            out.extend_from_slice(namespace);
            out.extend_from_slice(&bytes[bytes.len().saturating_sub(12)..]);
        }
        RawBsonRef::JavaScriptCode(code) => text(out, code.as_bytes()),
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            text(out, code.code.as_bytes());
            fields(out, code.scope);
        }
        // Nothing beyond the first byte, or done above.
        _ => {}
    }
}

/// Documents order by each field's bracket, then name, then value.
fn fields(out: &mut impl Buffer, document: &RawDocument) {
    for element in document.iter_elements().map_while(std::result::Result::ok) {
        let Ok(value) = element.value() else { break };
        out.push(first_tag(element.element_type()));
        text(out, element.key().as_str().as_bytes());
        encode_ascending(out, value);
    }
    out.push(END);
}

fn text(out: &mut impl Buffer, bytes: &[u8]) {
    if bytes.iter().all(|byte| *byte > ESCAPE) {
        out.extend_from_slice(bytes);
    } else {
        for byte in bytes {
            if *byte <= ESCAPE {
                out.extend_from_slice(&[ESCAPE, byte + 1]);
            } else {
                out.push(*byte);
            }
        }
    }
    out.push(END);
}

fn length(out: &mut impl Buffer, length: usize) {
    if length < LONG_LENGTH {
        out.push(length as u8);
    } else {
        out.push(LONG_LENGTH as u8);
        out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: RawBsonRef<'_>, direction: Direction) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, value, direction);
        out
    }

    #[test]
    fn the_common_keys_are_short() {
        assert_eq!(encoded(RawBsonRef::Int32(1), Direction::Ascending).len(), 3);
        assert_eq!(encoded(RawBsonRef::Int32(1000), Direction::Ascending).len(), 3);
        assert!(encoded(RawBsonRef::Int32(i32::MAX), Direction::Ascending).len() <= 7);
        assert_eq!(encoded(RawBsonRef::String("abc"), Direction::Ascending), b"\x38abc\0");
        assert_eq!(encoded(RawBsonRef::String("\0a\x01"), Direction::Ascending), b"\x38\x01\x01a\x01\x02\0");
    }

    /// The table in docs/keys.md.
    #[test]
    fn the_bytes_are_as_drawn() {
        let document = bson::rawdoc! { "a": 1 };
        let array = bson::rawdoc! { "v": [true] };
        let table: [(RawBsonRef<'_>, &[u8]); 9] = [
            (RawBsonRef::Int32(1), &[0x2c, 0x68, 0x00]),
            (RawBsonRef::Double(2.0), &[0x2c, 0x69, 0x00]),
            (RawBsonRef::Int64(3), &[0x2c, 0x69, 0x80]),
            (RawBsonRef::Int32(-1), &[0x2a, 0x97, 0xff]),
            (RawBsonRef::Int32(1000), &[0x2c, 0x71, 0xf4]),
            (RawBsonRef::Double(0.5), &[0x2c, 0x67, 0x00]),
            (RawBsonRef::String("a"), &[0x38, 0x61, 0x00]),
            (RawBsonRef::Document(&document), &[0x40, 0x28, 0x61, 0x00, 0x2c, 0x68, 0x00, 0x00]),
            (array.get("v").unwrap().unwrap(), &[0x48, 0x61, 0x00]),
        ];
        for (value, expected) in table {
            assert_eq!(encoded(value, Direction::Ascending), expected, "{value:?}");
        }
    }

    #[test]
    fn a_prefix_end_is_above_its_prefix_and_below_the_next_value() {
        for direction in [Direction::Ascending, Direction::Descending] {
            let mut keys = [encoded(RawBsonRef::String("a"), direction), encoded(RawBsonRef::String("a\0"), direction)];
            keys.sort();
            let mut end = keys[0].clone();
            append_prefix_end(&mut end);
            let mut longer = keys[0].clone();
            encode(&mut longer, RawBsonRef::MaxKey, Direction::Ascending);
            assert!(longer < end && end < keys[1], "{direction:?}");
        }
    }

    #[test]
    fn bracket_bounds_hold_their_bracket_and_nothing_else() {
        let values = [
            RawBsonRef::MinKey,
            RawBsonRef::Null,
            RawBsonRef::Double(f64::NAN),
            RawBsonRef::Double(f64::INFINITY),
            RawBsonRef::String(""),
            RawBsonRef::Boolean(false),
            RawBsonRef::Boolean(true),
            RawBsonRef::MaxKey,
        ];
        for direction in [Direction::Ascending, Direction::Descending] {
            for bracket in values {
                let (low, high) = bracket_bounds(bracket.element_type(), direction);
                for value in values {
                    let first = encoded(value, direction)[0];
                    let same =
                        order::canonical_type(value.element_type()) == order::canonical_type(bracket.element_type());
                    assert_eq!((low..high).contains(&first), same, "{value:?} in {bracket:?} {direction:?}");
                }
            }
        }
    }
}
