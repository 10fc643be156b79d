//! Building a BSON document in place, at the end of an output buffer.
//!
//! Invariant: whatever is open when the writer goes out of scope is closed, so the buffer always holds a well-formed
//! document. Lengths are patched when a level closes; nothing is built apart and copied in.
//! What it does not do: check sizes (the reply's builder does, once, at the end) or refuse duplicate keys.

use bson::raw::CStr;
use bson::spec::ElementType;
use bson::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use smallvec::SmallVec;

/// A level that is open: where it starts, and the next index if it is an array.
#[derive(Debug)]
struct Level {
    start: usize,
    next_index: u32,
}

/// Writes one document into a buffer, field by field, nested to any depth.
#[derive(Debug)]
pub struct DocumentWriter<'o> {
    out: &'o mut Vec<u8>,
    open: SmallVec<[Level; 4]>,
}

impl<'o> DocumentWriter<'o> {
    /// Starts a document at the end of `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        let mut writer = Self { out, open: SmallVec::new() };
        writer.open_level();
        writer
    }

    /// Goes on with the whole document that starts at `start` and ends the buffer.
    pub fn resume(out: &'o mut Vec<u8>, start: usize) -> Self {
        out.pop();
        let mut open = SmallVec::new();
        open.push(Level { start, next_index: 0 });
        Self { out, open }
    }

    /// Appends a field to the innermost open document.
    pub fn append<'v>(&mut self, key: impl AsRef<CStr>, value: impl Into<RawBsonRef<'v>>) {
        let value = value.into();
        self.key(value.element_type(), key.as_ref());
        append_value(self.out, value);
    }

    /// Appends a 64-bit field whose value is known later; returns where, for [`Self::fill_int64`].
    pub fn reserve_int64(&mut self, key: impl AsRef<CStr>) -> usize {
        self.append(key, 0_i64);
        self.out.len() - 8
    }

    /// Gives a reserved field its value.
    pub fn fill_int64(&mut self, at: usize, value: i64) {
        if let Some(field) = self.out.get_mut(at..at + 8) {
            field.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Appends an element to the innermost open array.
    pub fn push<'v>(&mut self, value: impl Into<RawBsonRef<'v>>) {
        let value = value.into();
        self.index(value.element_type());
        append_value(self.out, value);
    }

    /// Appends every field of `document` to the innermost open document.
    pub fn extend(&mut self, document: &RawDocument) {
        let bytes = document.as_bytes();
        if let Some(fields) = bytes.get(4..bytes.len().saturating_sub(1)) {
            self.out.extend_from_slice(fields);
        }
    }

    /// Opens an embedded document; [`Self::end`] closes it.
    pub fn begin_document(&mut self, key: impl AsRef<CStr>) {
        self.key(ElementType::EmbeddedDocument, key.as_ref());
        self.open_level();
    }

    /// Opens an embedded array; fill it with [`Self::push`], close it with [`Self::end`].
    pub fn begin_array(&mut self, key: impl AsRef<CStr>) {
        self.key(ElementType::Array, key.as_ref());
        self.open_level();
    }

    /// Opens a document as the next element of the innermost open array.
    pub fn push_document(&mut self) {
        self.index(ElementType::EmbeddedDocument);
        self.open_level();
    }

    /// Opens an array as the next element of the innermost open array.
    pub fn push_array(&mut self) {
        self.index(ElementType::Array);
        self.open_level();
    }

    /// Closes the innermost embedded document or array. The outermost closes when the writer is dropped.
    pub fn end(&mut self) {
        if self.open.len() > 1 {
            self.close_level();
        }
    }

    /// How many bytes the document has so far, the open levels' ends not counted.
    pub fn size_bytes(&self) -> usize {
        self.open.first().map_or(0, |root| self.out.len() - root.start)
    }

    fn key(&mut self, element_type: ElementType, key: &CStr) {
        self.out.push(element_type as u8);
        self.out.extend_from_slice(key.as_str().as_bytes());
        self.out.push(0);
    }

    fn index(&mut self, element_type: ElementType) {
        let Some(level) = self.open.last_mut() else { return };
        let index = level.next_index;
        level.next_index += 1;
        self.out.push(element_type as u8);
        append_decimal(self.out, index);
        self.out.push(0);
    }

    fn open_level(&mut self) {
        self.open.push(Level { start: self.out.len(), next_index: 0 });
        self.out.extend_from_slice(&[0; 4]);
    }

    fn close_level(&mut self) {
        let Some(level) = self.open.pop() else { return };
        self.out.push(0);
        let length = (self.out.len() - level.start) as i32;
        if let Some(field) = self.out.get_mut(level.start..level.start + 4) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }
}

impl Drop for DocumentWriter<'_> {
    fn drop(&mut self) {
        while !self.open.is_empty() {
            self.close_level();
        }
    }
}

fn append_decimal(out: &mut Vec<u8>, number: u32) {
    let mut digits = [0u8; 10];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn append_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Appends a value's bytes, without its type and key.
fn append_value(out: &mut Vec<u8>, value: RawBsonRef<'_>) {
    match value {
        RawBsonRef::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
        RawBsonRef::String(v) | RawBsonRef::JavaScriptCode(v) | RawBsonRef::Symbol(v) => append_string(out, v),
        RawBsonRef::Array(v) => out.extend_from_slice(array_bytes(v)),
        RawBsonRef::Document(v) => out.extend_from_slice(v.as_bytes()),
        RawBsonRef::Boolean(v) => out.push(u8::from(v)),
        RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::MaxKey | RawBsonRef::MinKey => {}
        RawBsonRef::Int32(v) => out.extend_from_slice(&v.to_le_bytes()),
        RawBsonRef::Int64(v) => out.extend_from_slice(&v.to_le_bytes()),
        RawBsonRef::DateTime(v) => out.extend_from_slice(&v.timestamp_millis().to_le_bytes()),
        RawBsonRef::Timestamp(v) => {
            out.extend_from_slice(&v.increment.to_le_bytes());
            out.extend_from_slice(&v.time.to_le_bytes());
        }
        RawBsonRef::ObjectId(v) => out.extend_from_slice(&v.bytes()),
        RawBsonRef::Decimal128(v) => out.extend_from_slice(&v.bytes()),
        // Rare ones, some of whose parts bson keeps to itself: let it write them, and take what lies behind the key.
        RawBsonRef::RegularExpression(_)
        | RawBsonRef::JavaScriptCodeWithScope(_)
        | RawBsonRef::Binary(_)
        | RawBsonRef::DbPointer(_) => {
            let mut apart = RawDocumentBuf::new();
            apart.append(cstr!(""), value);
            let bytes = apart.as_bytes();
            // Four bytes of length, the type, the empty key's terminator; at the end the document's own terminator.
            out.extend_from_slice(bytes.get(6..bytes.len() - 1).unwrap_or_default());
        }
    }
}

fn array_bytes(array: &RawArray) -> &[u8] {
    array.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, Document, doc};

    fn read(bytes: &[u8]) -> Document {
        Document::try_from(RawDocument::from_bytes(bytes).unwrap()).unwrap()
    }

    #[test]
    fn nested_levels_are_written_in_place_and_closed_by_drop() {
        let mut out = vec![7, 7];
        let stored = bson::rawdoc! { "_id": 1, "v": "x" };
        {
            let mut w = DocumentWriter::new(&mut out);
            w.begin_document(cstr!("cursor"));
            w.begin_array(cstr!("firstBatch"));
            for _ in 0..12 {
                w.push(&*stored);
            }
            w.push_document();
            w.append(cstr!("built"), true);
            w.end();
            w.end();
            w.append(cstr!("id"), 0i64);
            w.end();
            w.append(cstr!("ok"), 1.0);
        }
        let read = read(&out[2..]);
        assert_eq!(read.get_f64("ok").unwrap(), 1.0);
        let batch = read.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(batch.len(), 13);
        assert_eq!(batch[11], Bson::Document(doc! { "_id": 1, "v": "x" }));
        assert_eq!(batch[12], Bson::Document(doc! { "built": true }));
    }

    #[test]
    fn every_type_is_written_as_bson_writes_it() {
        let values: Vec<Bson> = vec![
            1.5.into(),
            "text".into(),
            vec![Bson::Int32(1), Bson::Null].into(),
            doc! { "a": 1 }.into(),
            true.into(),
            Bson::Null,
            Bson::RegularExpression(bson::Regex { pattern: cstr!("a.b").into(), options: cstr!("i").into() }),
            Bson::JavaScriptCode("f()".into()),
            Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: "g".into(), scope: doc! { "x": 1 } }),
            7i32.into(),
            8i64.into(),
            Bson::Timestamp(bson::Timestamp { time: 3, increment: 4 }),
            Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2, 3] }),
            Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![1, 2] }),
            bson::oid::ObjectId::from_bytes([5; 12]).into(),
            bson::DateTime::from_millis(-99).into(),
            Bson::Symbol("s".into()),
            Bson::Decimal128("1.25".parse().unwrap()),
            Bson::Undefined,
            Bson::MaxKey,
            Bson::MinKey,
        ];
        for value in values {
            let expected = RawDocumentBuf::try_from(&doc! { "k": value.clone() }).unwrap();
            let mut out = Vec::new();
            DocumentWriter::new(&mut out).append(cstr!("k"), expected.get("k").unwrap().unwrap());
            assert_eq!(out, expected.as_bytes(), "{value:?}");
        }
    }

    #[test]
    fn resume_and_extend_continue_a_finished_document() {
        let mut out = bson::rawdoc! { "a": 1 }.into_bytes();
        DocumentWriter::resume(&mut out, 0).extend(&bson::rawdoc! { "b": 2, "c": 3 });
        assert_eq!(read(&out), doc! { "a": 1, "b": 2, "c": 3 });
    }
}
