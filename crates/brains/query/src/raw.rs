//! Raw documents taken apart and put together by byte range.
//!
//! What updates and projections share: an iterator whose elements know the bytes they occupy, a handful of functions
//! that write elements into a growing buffer, and a single owned value that remembers its encoding. Nothing here
//! interprets a value.
//!
//! Invariant: between [`begin`] and [`end`] only whole elements are written, so that what comes out is well formed if
//! what came in was.

use baton_document::Number;
use baton_types::{Error, ErrorCode, Result};
use bson::raw::{RawElement, RawIter, cstr};
use bson::spec::ElementType;
use bson::{Bson, Document, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use smallvec::SmallVec;

/// One element of a document, with the bytes it occupies.
#[derive(Clone)]
pub(crate) struct Element<'a> {
    inner: RawElement<'a>,
    document: &'a RawDocument,
    /// Offset of the type byte.
    pub start: usize,
    /// Offset behind the value.
    pub end: usize,
}

impl<'a> Element<'a> {
    pub fn key(&self) -> &'a str {
        self.inner.key().as_str()
    }

    pub fn element_type(&self) -> ElementType {
        self.inner.element_type()
    }

    /// Type byte, key, terminator and value.
    pub fn bytes(&self) -> &'a [u8] {
        self.document.as_bytes().get(self.start..self.end).unwrap_or_default()
    }

    /// The value alone.
    pub fn value_bytes(&self) -> &'a [u8] {
        self.document.as_bytes().get(self.end - self.inner.size()..self.end).unwrap_or_default()
    }

    pub fn value(&self) -> Result<RawBsonRef<'a>> {
        Ok(self.inner.value()?)
    }

    /// The value's fields if it is a document or an array.
    pub fn container(&self) -> Result<Option<&'a RawDocument>> {
        match self.element_type() {
            ElementType::EmbeddedDocument | ElementType::Array => {
                Ok(Some(RawDocument::from_bytes(self.value_bytes())?))
            }
            _ => Ok(None),
        }
    }

    pub fn is_array(&self) -> bool {
        self.element_type() == ElementType::Array
    }

    /// Whether type and value are the same, byte for byte.
    pub fn same_value(&self, other: &Element<'_>) -> bool {
        self.element_type() == other.element_type() && self.value_bytes() == other.value_bytes()
    }
}

/// The elements of a document in order.
pub(crate) struct Elements<'a> {
    iter: RawIter<'a>,
    document: &'a RawDocument,
    offset: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let inner = match self.iter.next()? {
            Ok(inner) => inner,
            Err(e) => return Some(Err(e.into())),
        };
        let start = self.offset;
        let end = start + 1 + inner.key().len() + 1 + inner.size();
        self.offset = end;
        Some(Ok(Element { inner, document: self.document, start, end }))
    }
}

/// The elements of `document`.
pub(crate) fn elements(document: &RawDocument) -> Elements<'_> {
    Elements { iter: document.iter_elements(), document, offset: 4 }
}

/// The first element of that name.
pub(crate) fn find<'a>(document: &'a RawDocument, key: &str) -> Result<Option<Element<'a>>> {
    for element in elements(document) {
        let element = element?;
        if element.key() == key {
            return Ok(Some(element));
        }
    }
    Ok(None)
}

/// Opens a document in `out`; [`end`] closes it.
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Closes the document opened at `start`: terminator and length.
pub(crate) fn end(out: &mut Vec<u8>, start: usize) {
    out.push(0);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Type byte, key and terminator; the caller writes the value.
pub(crate) fn put_header(out: &mut Vec<u8>, kind: ElementType, key: &str) {
    out.push(kind as u8);
    out.extend_from_slice(key.as_bytes());
    out.push(0);
}

/// An element from a value already encoded.
pub(crate) fn put_bytes(out: &mut Vec<u8>, kind: ElementType, key: &str, value: &[u8]) {
    put_header(out, kind, key);
    out.extend_from_slice(value);
}

/// A copy of `element` under another name.
pub(crate) fn put_renamed(out: &mut Vec<u8>, key: &str, element: &Element<'_>) {
    put_bytes(out, element.element_type(), key, element.value_bytes());
}

/// An element from a value.
pub(crate) fn put_value(out: &mut Vec<u8>, key: &str, value: RawBsonRef<'_>) {
    match value {
        RawBsonRef::Document(d) => put_bytes(out, ElementType::EmbeddedDocument, key, d.as_bytes()),
        RawBsonRef::Array(a) => put_bytes(out, ElementType::Array, key, a.as_bytes()),
        RawBsonRef::Int32(n) => put_bytes(out, ElementType::Int32, key, &n.to_le_bytes()),
        RawBsonRef::Int64(n) => put_bytes(out, ElementType::Int64, key, &n.to_le_bytes()),
        RawBsonRef::Double(n) => put_bytes(out, ElementType::Double, key, &n.to_le_bytes()),
        RawBsonRef::Null => put_header(out, ElementType::Null, key),
        other => {
            let value = Value::from(other);
            put_bytes(out, value.element_type(), key, value.bytes());
        }
    }
}

/// An element from a value that is not encoded yet. `BSONObjectTooLarge` (10334) as soon as `out` is longer than
/// `bytes_max`. Recurses as deep as the value is nested.
pub(crate) fn put_bson(out: &mut Vec<u8>, key: &str, value: &Bson, bytes_max: usize) -> Result<()> {
    match value {
        Bson::Array(elements) => {
            put_header(out, ElementType::Array, key);
            let start = begin(out);
            let mut digits = Digits::default();
            for (i, element) in elements.iter().enumerate() {
                put_bson(out, digits.of(i), element, bytes_max)?;
            }
            end(out, start);
        }
        Bson::Document(document) => {
            put_header(out, ElementType::EmbeddedDocument, key);
            put_fields(out, document, bytes_max)?;
        }
        Bson::Int32(number) => put_value(out, key, RawBsonRef::Int32(*number)),
        Bson::Int64(number) => put_value(out, key, RawBsonRef::Int64(*number)),
        Bson::Double(number) => put_value(out, key, RawBsonRef::Double(*number)),
        Bson::Null => put_value(out, key, RawBsonRef::Null),
        Bson::Boolean(truth) => put_bytes(out, ElementType::Boolean, key, &[u8::from(*truth)]),
        Bson::String(text) => {
            put_header(out, ElementType::String, key);
            out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        }
        other => put_value(out, key, RawBson::try_from(other.clone())?.as_raw_bson_ref()),
    }
    check_growth(out.len(), bytes_max)
}

fn put_fields(out: &mut Vec<u8>, document: &Document, bytes_max: usize) -> Result<()> {
    let start = begin(out);
    for (name, value) in document {
        if name.contains('\0') {
            return Err(Error::bad_value("a field name may not contain a null byte"));
        }
        put_bson(out, name, value, bytes_max)?;
    }
    end(out, start);
    Ok(())
}

/// A document that is not encoded yet, as [`put_bson`] writes it.
pub(crate) fn encode(document: &Document, bytes_max: usize) -> Result<RawDocumentBuf> {
    let mut out = Vec::new();
    put_fields(&mut out, document, bytes_max)?;
    finish(out)
}

/// How much longer a document may be than the one it is made from: as much as the largest that is stored, and a little
/// for what the server adds.
pub(crate) const GROWTH_BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// `BSONObjectTooLarge` (10334) for what has grown too long.
pub(crate) fn check_growth(bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::BSONObjectTooLarge,
        format!("BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and {bytes_max}"),
    ))
}

/// Unused room that a finished document may keep beside its own length.
const SLACK_BYTES_MAX: usize = 256;

/// Turns a finished buffer into a document.
pub(crate) fn finish(mut out: Vec<u8>) -> Result<RawDocumentBuf> {
    // Room is made for the document that this one came from, which may be a thousand times larger (an unwound array);
    // a stage that keeps many of these would hold that much more than it counts.
    if out.capacity() > 2 * out.len() + SLACK_BYTES_MAX {
        out.shrink_to_fit();
    }
    RawDocumentBuf::from_bytes(out).map_err(|_| Error::new(ErrorCode::BSONObjectTooLarge, "BSONObj size is invalid"))
}

/// An array's elements as a document (`{"0": …}`), for code that treats both alike.
pub(crate) fn array_fields(array: &bson::RawArray) -> Result<&RawDocument> {
    Ok(RawDocument::from_bytes(array.as_bytes())?)
}

/// The index a field name of an array stands for: digits without a leading zero.
pub(crate) fn array_index(name: &str) -> Option<usize> {
    let bytes = name.as_bytes();
    if bytes.is_empty()
        || bytes.len() > 10
        || !bytes.iter().all(u8::is_ascii_digit)
        || (bytes.len() > 1 && bytes[0] == b'0')
    {
        return None;
    }
    name.parse().ok()
}

/// Builds an array from already encoded elements.
pub(crate) struct ArrayBuilder {
    bytes: Vec<u8>,
    length: usize,
}

impl ArrayBuilder {
    pub fn new() -> Self {
        let mut bytes = Vec::new();
        begin(&mut bytes);
        Self { bytes, length: 0 }
    }

    /// Starts with the elements of an existing array.
    pub fn extending(element: &Element<'_>) -> Result<Self> {
        let value = element.value_bytes();
        let length = element.container()?.map_or(0, |inner| inner.iter_elements().count());
        Ok(Self { bytes: value.get(..value.len().saturating_sub(1)).unwrap_or_default().to_vec(), length })
    }

    pub fn push(&mut self, kind: ElementType, value: &[u8]) {
        let mut digits = Digits::default();
        put_bytes(&mut self.bytes, kind, digits.of(self.length), value);
        self.length += 1;
    }

    pub fn finish(mut self) -> Value {
        end(&mut self.bytes, 0);
        Value::from_container(ElementType::Array, &self.bytes)
    }
}

/// Room for the decimal digits of an array index, which are its name.
#[derive(Default)]
pub(crate) struct Digits([u8; 20]);

impl Digits {
    pub fn of(&mut self, mut n: usize) -> &str {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        std::str::from_utf8(&self.0[at..]).unwrap_or_default()
    }
}

/// One owned value together with its encoding. Kept as the only element, of an empty name, of a document; a small one takes no memory of
/// its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value(SmallVec<[u8; 32]>);

impl Value {
    /// Type byte and terminator of the empty name come before the value.
    const VALUE_OFFSET: usize = 4 + 1 + 1;

    /// What these parts are one after the other.
    fn of(kind: ElementType, parts: &[&[u8]]) -> Self {
        let length = Self::VALUE_OFFSET + parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        let mut bytes = SmallVec::with_capacity(length);
        bytes.extend_from_slice(&(length as i32).to_le_bytes());
        bytes.extend_from_slice(&[kind as u8, 0]);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.push(0);
        Self(bytes)
    }

    /// A value from its bytes.
    pub fn from_container(kind: ElementType, bytes: &[u8]) -> Self {
        Self::of(kind, &[bytes])
    }

    pub fn from_element(element: &Element<'_>) -> Self {
        Self::from_container(element.element_type(), element.value_bytes())
    }

    pub fn from_bson(value: Bson) -> Result<Self> {
        let raw = RawBson::try_from(value)?;
        Ok(Self::from(raw.as_raw_bson_ref()))
    }

    pub fn as_ref(&self) -> RawBsonRef<'_> {
        // The document was made from one value, so the fallback is never taken.
        let document = RawDocument::from_bytes(&self.0).ok();
        let element = document.and_then(|document| document.iter().next()).and_then(std::result::Result::ok);
        element.map_or(RawBsonRef::Null, |(_, value)| value)
    }

    pub fn element_type(&self) -> ElementType {
        self.0.get(4).and_then(|b| ElementType::from(*b)).unwrap_or(ElementType::Null)
    }

    /// The value's encoding.
    pub fn bytes(&self) -> &[u8] {
        self.0.get(Self::VALUE_OFFSET..self.0.len() - 1).unwrap_or_default()
    }

    pub fn same_as(&self, element: &Element<'_>) -> bool {
        self.element_type() == element.element_type() && self.bytes() == element.value_bytes()
    }
}

impl From<RawBsonRef<'_>> for Value {
    fn from(value: RawBsonRef<'_>) -> Self {
        let kind = value.element_type();
        match value {
            RawBsonRef::Int32(n) => Self::of(kind, &[&n.to_le_bytes()]),
            RawBsonRef::Int64(n) => Self::of(kind, &[&n.to_le_bytes()]),
            RawBsonRef::Double(n) => Self::of(kind, &[&n.to_le_bytes()]),
            RawBsonRef::Boolean(is_so) => Self::of(kind, &[&[u8::from(is_so)]]),
            RawBsonRef::DateTime(at) => Self::of(kind, &[&at.timestamp_millis().to_le_bytes()]),
            RawBsonRef::ObjectId(id) => Self::of(kind, &[&id.bytes()]),
            RawBsonRef::String(text) => {
                Self::of(kind, &[&(text.len() as i32 + 1).to_le_bytes(), text.as_bytes(), &[0]])
            }
            RawBsonRef::Document(document) => Self::of(kind, &[document.as_bytes()]),
            RawBsonRef::Array(array) => Self::of(kind, &[array.as_bytes()]),
            other => {
                let mut document = RawDocumentBuf::new();
                document.append(cstr!(""), other);
                Self(SmallVec::from_vec(document.into_bytes()))
            }
        }
    }
}

/// Whether a number or boolean is what MongoDB calls true: not zero, not false. `None` for other types.
pub(crate) fn is_true_number(value: RawBsonRef<'_>) -> Option<bool> {
    match value {
        RawBsonRef::Boolean(b) => Some(b),
        number => Number::from_raw(number).map(|n| !n.is_zero()),
    }
}

/// A number that is an integer by value, as MongoDB's option parsers accept it (`2.0` is 2, `2.5` is none).
pub(crate) fn integral(value: RawBsonRef<'_>) -> Option<i64> {
    Number::from_raw(value)?.to_i64_exact()
}

/// Whether the value is of a numeric type.
pub(crate) fn is_number(value: RawBsonRef<'_>) -> bool {
    matches!(
        value.element_type(),
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128
    )
}

/// How many containers are nested in a value; 0 for a scalar.
pub(crate) fn depth(value: RawBsonRef<'_>) -> Result<usize> {
    match value {
        RawBsonRef::Document(d) => document_depth(d),
        RawBsonRef::Array(a) => document_depth(array_fields(a)?),
        _ => Ok(0),
    }
}

/// How many containers are nested in a document, itself included. Iterative: what it measures may be a depth bomb.
pub(crate) fn document_depth(document: &RawDocument) -> Result<usize> {
    let mut open = vec![elements(document)];
    let mut deepest = 1;
    while let Some(top) = open.last_mut() {
        match top.next() {
            None => {
                open.pop();
            }
            Some(element) => {
                if let Some(inner) = element?.container()? {
                    open.push(elements(inner));
                    deepest = deepest.max(open.len());
                }
            }
        }
    }
    Ok(deepest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn elements_tile_the_document() {
        let doc = rawdoc! { "a": 1, "b": { "c": "x" }, "d": [1, 2.5], "e": bson::oid::ObjectId::from_bytes([7; 12]), "f": null };
        let mut offset = 4;
        for element in elements(&doc) {
            let element = element.unwrap();
            assert_eq!(element.start, offset);
            offset = element.end;
        }
        assert_eq!(offset, doc.as_bytes().len() - 1);
    }

    #[test]
    fn written_elements_equal_the_read() {
        let doc = rawdoc! { "a": 1, "b": { "c": "x" }, "d": [1, 2.5], "s": "text", "l": 5_i64, "t": true };
        let mut out = Vec::new();
        let start = begin(&mut out);
        for element in elements(&doc) {
            let element = element.unwrap();
            put_value(&mut out, element.key(), element.value().unwrap());
        }
        end(&mut out, start);
        assert_eq!(finish(out).unwrap(), doc);
    }

    #[test]
    fn a_value_is_encoded_as_bson_encodes_it_whatever_its_size() {
        let id = bson::oid::ObjectId::from_bytes([7; 12]);
        let long = "x".repeat(100);
        let doc = rawdoc! {
            "i": 1, "l": 5_i64, "f": 2.5, "t": true, "at": bson::DateTime::from_millis(-5), "id": id, "s": "text", "long": long,
            "d": { "c": "x" }, "a": [1, { "b": 2 }], "n": null, "r": bson::Regex { pattern: cstr!("a+").into(), options: cstr!("i").into() },
        };
        for element in elements(&doc) {
            let element = element.unwrap();
            let value = Value::from(element.value().unwrap());
            assert_eq!((value.element_type(), value.bytes()), (element.element_type(), element.value_bytes()));
            assert_eq!(value.as_ref(), element.value().unwrap());
            assert!(value.same_as(&element) && value == Value::from_element(&element));
        }
    }

    #[test]
    fn array_indexes_are_plain_decimal_numbers() {
        assert_eq!(array_index("0"), Some(0));
        assert_eq!(array_index("12"), Some(12));
        for name in ["", "01", "-1", "1a", "99999999999"] {
            assert_eq!(array_index(name), None, "{name}");
        }
    }

    #[test]
    fn decimal_zero_is_false() {
        for (text, truth) in [
            ("0", false),
            ("-0.00", false),
            ("0E+3", false),
            ("1", true),
            ("0.1", true),
            ("NaN", true),
            ("Infinity", true),
        ] {
            let decimal: bson::Decimal128 = text.parse().unwrap();
            assert_eq!(is_true_number(RawBsonRef::Decimal128(decimal)), Some(truth), "{text}");
        }
    }

    #[test]
    fn depth_counts_containers() {
        assert_eq!(document_depth(&rawdoc! {}).unwrap(), 1);
        assert_eq!(document_depth(&rawdoc! { "a": { "b": [ {} ] }, "c": 1 }).unwrap(), 4);
    }

    #[test]
    fn a_finished_document_does_not_keep_the_room_of_the_larger_one_it_came_from() {
        let mut out = Vec::with_capacity(1 << 20);
        let start = begin(&mut out);
        put_bytes(&mut out, ElementType::Int32, "a", &7i32.to_le_bytes());
        end(&mut out, start);
        let document = finish(out).unwrap();
        assert!(document.into_bytes().capacity() < 1024);
    }
}
