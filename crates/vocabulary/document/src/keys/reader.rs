//! Reading keys back: decoding a component, or stepping over it.
//!
//! Safe on any bytes: what is no key answers an error, and nesting is bounded. A value comes back in canonical form:
//! whole numbers as the narrowest integer, others as double if exact, else as decimal; symbols as strings.

use super::{Direction, END, ESCAPE, LONG_LENGTH, number, tag};
use crate::validate::DEPTH_MAX;
use baton_types::{Error, ErrorCode, Result};
use bson::oid::ObjectId;
use bson::raw::{CString, RawBson, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, JavaScriptCodeWithScope, RawDocument, Regex, Timestamp};

/// Takes one value off the front of a key.
pub fn decode(bytes: &mut &[u8], direction: Direction) -> Result<Bson> {
    let mut reader = Reader { bytes, mask: direction.mask() };
    let value = reader.value(0)?;
    *bytes = reader.bytes;
    Ok(value)
}

/// Takes one value off the front of a key without decoding it, and answers its bytes.
pub fn skip<'a>(bytes: &mut &'a [u8], direction: Direction) -> Result<&'a [u8]> {
    let all = *bytes;
    let mut reader = Reader { bytes, mask: direction.mask() };
    reader.skip_value(0)?;
    *bytes = reader.bytes;
    Ok(&all[..all.len() - bytes.len()])
}

#[cold]
pub(super) fn malformed(what: &str) -> Error {
    Error::new(ErrorCode::InternalError, format!("malformed key: {what}"))
}

/// The rest of a key, and what its bytes are combined with.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    mask: u8,
}

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.bytes.split_first().ok_or_else(|| malformed("it ends early"))?;
        self.bytes = rest;
        Ok(first ^ self.mask)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk::<N>().ok_or_else(|| malformed("it ends early"))?;
        self.bytes = rest;
        Ok(first.map(|byte| byte ^ self.mask))
    }

    /// Reads a part that was inverted once more within the whole.
    pub(super) fn inverted<T>(&mut self, inverted: bool, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mask = self.mask;
        if inverted {
            self.mask = !mask;
        }
        let result = read(self);
        self.mask = mask;
        result
    }

    fn raw(&mut self, length: usize) -> Result<&'a [u8]> {
        let (first, rest) = self.bytes.split_at_checked(length).ok_or_else(|| malformed("it ends early"))?;
        self.bytes = rest;
        Ok(first)
    }

    fn unmasked(&mut self, length: usize) -> Result<Vec<u8>> {
        let mask = self.mask;
        Ok(self.raw(length)?.iter().map(|byte| byte ^ mask).collect())
    }

    /// The bytes before the next terminator, which is taken off too.
    fn until_end(&mut self) -> Result<&'a [u8]> {
        let end = END ^ self.mask;
        let length = self.bytes.iter().position(|byte| *byte == end).ok_or_else(|| malformed("a text without end"))?;
        let text = self.raw(length)?;
        self.byte()?;
        Ok(text)
    }

    fn text(&mut self) -> Result<String> {
        let mask = self.mask;
        let mut bytes = self.until_end()?.iter().map(|byte| byte ^ mask);
        let mut text = Vec::with_capacity(bytes.len());
        while let Some(byte) = bytes.next() {
            text.push(match byte {
                ESCAPE => match bytes.next() {
                    Some(escaped @ 1..=2) => escaped - 1,
                    _ => return Err(malformed("a wrong escape")),
                },
                byte => byte,
            });
        }
        String::from_utf8(text).map_err(|_| malformed("a text that is not UTF-8"))
    }

    fn c_text(&mut self) -> Result<CString> {
        CString::try_from(self.text()?).map_err(|_| malformed("a NUL where none may be"))
    }

    fn length(&mut self) -> Result<usize> {
        match usize::from(self.byte()?) {
            LONG_LENGTH => Ok(u32::from_be_bytes(self.array()?) as usize),
            short => Ok(short),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Bson> {
        if depth > DEPTH_MAX + 1 {
            return Err(malformed("it nests too deep"));
        }
        Ok(match self.byte()? {
            tag::MIN_KEY => Bson::MinKey,
            tag::UNDEFINED => Bson::Undefined,
            tag::NULL => Bson::Null,
            tag::NUMBER => Bson::Double(f64::NAN),
            tag::NEGATIVE_INFINITY => Bson::Double(f64::NEG_INFINITY),
            tag::NEGATIVE => number::decode_magnitude(self, true)?,
            tag::ZERO => Bson::Int32(0),
            tag::POSITIVE => number::decode_magnitude(self, false)?,
            tag::POSITIVE_INFINITY => Bson::Double(f64::INFINITY),
            tag::STRING => Bson::String(self.text()?),
            tag::DOCUMENT => Bson::Document(self.fields(depth)?),
            tag::ARRAY => Bson::Array(self.elements(depth)?),
            tag::BINARY => Bson::Binary(self.binary()?),
            tag::OBJECT_ID => Bson::ObjectId(ObjectId::from_bytes(self.array()?)),
            tag::FALSE => Bson::Boolean(false),
            tag::TRUE => Bson::Boolean(true),
            tag::DATE_TIME => {
                let millis = u64::from_be_bytes(self.array()?) ^ (1 << 63);
                Bson::DateTime(bson::DateTime::from_millis(millis as i64))
            }
            tag::TIMESTAMP => Bson::Timestamp(Timestamp {
                time: u32::from_be_bytes(self.array()?),
                increment: u32::from_be_bytes(self.array()?),
            }),
            tag::REGULAR_EXPRESSION => {
                Bson::RegularExpression(Regex { pattern: self.c_text()?, options: self.c_text()? })
            }
            tag::DB_POINTER => self.db_pointer()?,
            tag::CODE => Bson::JavaScriptCode(self.text()?),
            tag::CODE_WITH_SCOPE => Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
                code: self.text()?,
                scope: self.fields(depth)?,
            }),
            tag::MAX_KEY => Bson::MaxKey,
            _ => return Err(malformed("an unknown type")),
        })
    }

    /// Whether the container goes on; its end is taken off.
    fn more(&mut self) -> Result<bool> {
        match self.bytes.first() {
            Some(byte) if byte ^ self.mask == END => {
                self.byte()?;
                Ok(false)
            }
            Some(_) => Ok(true),
            None => Err(malformed("it ends early")),
        }
    }

    fn fields(&mut self, depth: usize) -> Result<Document> {
        let mut document = Document::new();
        while self.more()? {
            // The bracket is for the order alone; the value says it again.
            self.byte()?;
            let name = self.c_text()?.into_string();
            document.insert(name, self.value(depth + 1)?);
        }
        Ok(document)
    }

    fn elements(&mut self, depth: usize) -> Result<Vec<Bson>> {
        let mut array = Vec::new();
        while self.more()? {
            array.push(self.value(depth + 1)?);
        }
        Ok(array)
    }

    fn binary(&mut self) -> Result<Binary> {
        let length = self.length()?;
        let subtype = BinarySubtype::from(self.byte()?);
        let hidden = if subtype == BinarySubtype::BinaryOld { 4 } else { 0 };
        let length = length.checked_sub(hidden).ok_or_else(|| malformed("a wrong length"))?;
        Ok(Binary { subtype, bytes: self.unmasked(length)? })
    }

    /// The type's fields are closed to us, so it is read out of a document made for it.
    fn db_pointer(&mut self) -> Result<Bson> {
        let length = self.length()?;
        let namespace = self.unmasked(length)?;
        let id: [u8; 12] = self.array()?;
        let size = |n: usize| i32::try_from(n).map(i32::to_le_bytes).map_err(|_| malformed("a wrong length"));
        let mut bytes = size(length + 24)?.to_vec();
        bytes.extend_from_slice(&[0x0c, 0]);
        bytes.extend_from_slice(&size(length + 1)?);
        bytes.extend_from_slice(&namespace);
        bytes.push(0);
        bytes.extend_from_slice(&id);
        bytes.push(0);
        let document: &RawDocument = &RawDocumentBuf::from_bytes(bytes)?;
        let value = document.get("")?.ok_or_else(|| malformed("a wrong DBPointer"))?;
        Ok(Bson::try_from(RawBson::from(value))?)
    }

    fn skip_value(&mut self, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX + 1 {
            return Err(malformed("it nests too deep"));
        }
        match self.byte()? {
            negative_or_positive @ (tag::NEGATIVE | tag::POSITIVE) => {
                number::decode_magnitude(self, negative_or_positive == tag::NEGATIVE)?;
            }
            tag::STRING | tag::CODE => {
                self.until_end()?;
            }
            tag::REGULAR_EXPRESSION => {
                self.until_end()?;
                self.until_end()?;
            }
            tag::DOCUMENT => self.skip_fields(depth)?,
            tag::CODE_WITH_SCOPE => {
                self.until_end()?;
                self.skip_fields(depth)?;
            }
            tag::ARRAY => {
                while self.more()? {
                    self.skip_value(depth + 1)?;
                }
            }
            tag::OBJECT_ID => {
                self.raw(12)?;
            }
            tag::DATE_TIME | tag::TIMESTAMP => {
                self.raw(8)?;
            }
            tag::BINARY => {
                self.binary()?;
            }
            tag::DB_POINTER => {
                let length = self.length()?;
                self.raw(length)?;
                self.raw(12)?;
            }
            tag::MIN_KEY
            | tag::UNDEFINED
            | tag::NULL
            | tag::NUMBER
            | tag::NEGATIVE_INFINITY
            | tag::ZERO
            | tag::POSITIVE_INFINITY
            | tag::FALSE
            | tag::TRUE
            | tag::MAX_KEY => {}
            _ => return Err(malformed("an unknown type")),
        }
        Ok(())
    }

    fn skip_fields(&mut self, depth: usize) -> Result<()> {
        while self.more()? {
            self.byte()?;
            self.until_end()?;
            self.skip_value(depth + 1)?;
        }
        Ok(())
    }
}
