//! The one full check of a document's structure, at the edge, so that everything behind it can trust what it reads.
//!
//! Checks in one pass, without allocation and without recursion: every length lies inside its parent, every terminator
//! is there, types are known, booleans are 0 or 1, all text is UTF-8, nesting stays within [`DEPTH_MAX`]. Lies answer
//! 22 (InvalidBSON), depth 15 (Overflow). Safe on any bytes; the stack it uses is fixed.
//!
//! What it deliberately does not check: array indexes' names, duplicate field names, the order of regular expressions'
//! options; MongoDB accepts those. Stricter than MongoDB in UTF-8, which values must be here to be read at all.

use baton_types::{Error, ErrorCode, Result};
use bson::RawDocument;

/// How many levels a document may nest below its root.
pub const DEPTH_MAX: usize = 200;
/// The smallest document: its length and its terminator.
const SIZE_MIN: usize = 5;

/// Checks that the bytes are exactly one document, valid throughout.
pub fn document(bytes: &[u8]) -> Result<&RawDocument> {
    check(bytes).map_err(|fault| fault.into_error(bytes))?;
    Ok(RawDocument::from_bytes(bytes)?)
}

/// Checks the document that the bytes begin with, and gives back what follows it.
pub fn prefix(bytes: &[u8]) -> Result<(&RawDocument, &[u8])> {
    let declared = read_i32(bytes, 0).and_then(|length| usize::try_from(length).ok());
    match declared.and_then(|length| bytes.split_at_checked(length)) {
        Some((first, rest)) => Ok((document(first)?, rest)),
        None => Err(Fault { reason: "BSON length doesn't match what we found", at: 0 }.into_error(bytes)),
    }
}

/// What is wrong, and the offset of the element it is wrong in.
struct Fault {
    reason: &'static str,
    at: usize,
}

const TOO_DEEP: &str = "BSONObj exceeds maximum nested object depth";

impl Fault {
    #[cold]
    fn into_error(self, bytes: &[u8]) -> Error {
        if self.reason == TOO_DEEP {
            return Error::new(ErrorCode::Overflow, format!("{TOO_DEEP}: {DEPTH_MAX}"));
        }
        let name = bytes.get(self.at + 1..).and_then(|tail| tail.split(|byte| *byte == 0).next()).unwrap_or_default();
        let name = String::from_utf8_lossy(&name[..name.len().min(100)]);
        let place = if self.at == 0 { String::new() } else { format!(" in element with field name '{name}'") };
        Error::new(ErrorCode::InvalidBSON, format!("{}{place} in object with unknown _id", self.reason))
    }
}

fn check(bytes: &[u8]) -> std::result::Result<(), Fault> {
    let fault = |reason| Err(Fault { reason, at: 0 });
    if bytes.len() < SIZE_MIN {
        return fault("BSON data has to be at least 5 bytes");
    }
    if read_i32(bytes, 0).and_then(|length| usize::try_from(length).ok()) != Some(bytes.len()) {
        return fault("BSON length doesn't match what we found");
    }
    // The offset of each open document's terminator.
    let mut ends = [0usize; DEPTH_MAX + 1];
    let mut depth = 0;
    ends[0] = bytes.len() - 1;
    let mut at = 4;
    loop {
        let end = ends[depth];
        if at >= end {
            if at > end || bytes.get(at) != Some(&0) {
                return Err(Fault { reason: "BSON object not terminated with EOO", at });
            }
            if depth == 0 {
                return Ok(());
            }
            depth -= 1;
            at += 1;
            continue;
        }
        // Everything of this element must lie before the parent's terminator.
        let element = Element { bytes: bytes.get(..end).unwrap_or_default(), at };
        match element.check().map_err(|reason| Fault { reason, at })? {
            Next::After(next) => at = next,
            Next::Inside { start, end } => {
                depth += 1;
                let Some(slot) = ends.get_mut(depth) else { return Err(Fault { reason: TOO_DEEP, at }) };
                *slot = end - 1;
                at = start + 4;
            }
        }
    }
}

/// Where the check goes on.
enum Next {
    After(usize),
    /// In a document from `start` up to and without `end`.
    Inside {
        start: usize,
        end: usize,
    },
}

struct Element<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Checked<T> = std::result::Result<T, &'static str>;

impl Element<'_> {
    fn check(&self) -> Checked<Next> {
        let kind = self.bytes[self.at];
        let value = self.cstring(self.at + 1)?;
        let after = match kind {
            0x01 | 0x09 | 0x11 | 0x12 => value + 8,
            0x02 | 0x0d | 0x0e => self.string(value)?,
            0x03 | 0x04 => return self.document(value, None),
            0x05 => self.binary(value)?,
            0x06 | 0x0a | 0x7f | 0xff => value,
            0x07 => value + 12,
            0x08 => match self.bytes.get(value) {
                Some(0 | 1) => value + 1,
                _ => return Err("BSON bool is neither false nor true"),
            },
            0x0b => self.cstring(self.cstring(value)?)?,
            0x0c => self.string(value)? + 12,
            0x0f => return self.code_with_scope(value),
            0x10 => value + 4,
            0x13 => value + 16,
            _ => return Err("Unrecognized BSON type"),
        };
        if after > self.bytes.len() {
            return Err("incorrect BSON length");
        }
        Ok(Next::After(after))
    }

    /// The offset after a text that ends with its first NUL.
    fn cstring(&self, start: usize) -> Checked<usize> {
        let tail = self.bytes.get(start..).ok_or("incorrect BSON length")?;
        let length = tail.iter().position(|byte| *byte == 0).ok_or("Not null terminated string")?;
        std::str::from_utf8(&tail[..length]).map_err(|_| "Not valid UTF-8")?;
        Ok(start + length + 1)
    }

    /// The offset after a text that begins with its length (which counts the NUL at its end).
    fn string(&self, start: usize) -> Checked<usize> {
        let length = self.length(start)?;
        let text = self.bytes.get(start + 4..).and_then(|tail| tail.get(..length)).ok_or("incorrect BSON length")?;
        match text.split_last() {
            Some((0, text)) => std::str::from_utf8(text).map_err(|_| "Not valid UTF-8")?,
            _ => return Err("Not null terminated string"),
        };
        Ok(start + 4 + length)
    }

    fn binary(&self, start: usize) -> Checked<usize> {
        let length = self.length(start)?;
        let subtype = self.bytes.get(start + 4).ok_or("incorrect BSON length")?;
        let end = start + 5 + length;
        if *subtype == 2 {
            // The old subtype repeats the length inside.
            let inner = self.length(start + 5)?;
            if end > self.bytes.len() || inner + 4 != length {
                return Err("incorrect BSON length");
            }
        }
        Ok(end)
    }

    /// A document that begins here, and must end at `end` if that is given.
    fn document(&self, start: usize, end: Option<usize>) -> Checked<Next> {
        let length = self.length(start)?;
        let found = start + length;
        if length < SIZE_MIN || found > self.bytes.len() || end.is_some_and(|end| end != found) {
            return Err("incorrect BSON length");
        }
        Ok(Next::Inside { start, end: found })
    }

    fn code_with_scope(&self, start: usize) -> Checked<Next> {
        let end = start + self.length(start)?;
        if end > self.bytes.len() {
            return Err("incorrect BSON length");
        }
        self.document(self.string(start + 4)?, Some(end))
    }

    fn length(&self, at: usize) -> Checked<usize> {
        let length = read_i32(self.bytes, at).ok_or("incorrect BSON length")?;
        usize::try_from(length).map_err(|_| "incorrect BSON length")
    }
}

fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(i32::from_le_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, RawDocumentBuf, doc};

    fn nested(levels: usize) -> Vec<u8> {
        let mut document = doc! {};
        for _ in 0..levels {
            document = doc! { "a": document };
        }
        RawDocumentBuf::try_from(&document).unwrap().into_bytes()
    }

    #[test]
    fn what_the_bson_crate_writes_is_valid() {
        let document = doc! {
            "double": 1.5, "string": "é\0x", "document": { "a": [1, [2]] }, "bool": true, "null": Bson::Null,
            "regex": bson::Regex { pattern: "a".try_into().unwrap(), options: "i".try_into().unwrap() },
            "code": Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: "x".into(), scope: doc! { "y": 1 } }),
            "binary": bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![1, 2] },
            "id": bson::oid::ObjectId::new(), "max": Bson::MaxKey, "decimal": Bson::Decimal128("1.5".parse().unwrap()),
        };
        let bytes = RawDocumentBuf::try_from(&document).unwrap().into_bytes();
        assert_eq!(super::document(&bytes).unwrap().as_bytes(), bytes);
        let mut two = bytes.clone();
        two.extend_from_slice(&bytes);
        assert_eq!(prefix(&two).unwrap().1, bytes);
        assert_eq!(super::document(&two).unwrap_err().code, ErrorCode::InvalidBSON);
        // Cut anywhere, it is refused.
        for length in 0..bytes.len() {
            assert_eq!(super::document(&bytes[..length]).unwrap_err().code, ErrorCode::InvalidBSON);
        }
    }

    #[test]
    fn two_hundred_levels_are_allowed_and_no_more() {
        assert!(document(&nested(200)).is_ok());
        assert_eq!(document(&nested(201)).unwrap_err().code, ErrorCode::Overflow);
    }

    #[test]
    fn lies_are_refused() {
        let lies: [(&str, Vec<u8>); 10] = [
            ("unknown type", b"\x08\0\0\0\x14a\0\0".to_vec()),
            ("boolean 2", b"\x09\0\0\0\x08a\0\x02\0".to_vec()),
            ("string without terminator", b"\x0e\0\0\0\x02a\0\x02\0\0\0xy\0".to_vec()),
            ("string of negative length", b"\x0e\0\0\0\x02a\0\xff\xff\xff\xffx\0\0".to_vec()),
            ("string reaching past its document", b"\x0e\0\0\0\x02a\0\x03\0\0\0x\0\0".to_vec()),
            ("string not UTF-8", b"\x0e\0\0\0\x02a\0\x02\0\0\0\xff\0\0".to_vec()),
            ("name not UTF-8", b"\x08\0\0\0\x0a\xff\0\0".to_vec()),
            ("old binary whose two lengths differ", b"\x13\0\0\0\x05a\0\x06\0\0\0\x02\x01\0\0\0xx\0".to_vec()),
            ("inner document too long", b"\x0d\0\0\0\x03a\0\x06\0\0\0\0\0".to_vec()),
            ("inner document too short", b"\x0d\0\0\0\x03a\0\x04\0\0\0\0\0".to_vec()),
        ];
        for (what, bytes) in lies {
            assert_eq!(document(&bytes).unwrap_err().code, ErrorCode::InvalidBSON, "{what}");
        }
    }

    #[test]
    fn the_message_names_the_field() {
        let error = document(b"\x0e\0\0\0\x02a\0\x02\0\0\0\xff\0\0").unwrap_err();
        assert_eq!(error.message, "Not valid UTF-8 in element with field name 'a' in object with unknown _id");
    }
}
