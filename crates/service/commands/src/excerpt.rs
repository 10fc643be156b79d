//! A document as text, cut at a limit: for lines of the log.
//!
//! Invariants: what is shown is the beginning of the whole text (of `bson`'s `Display`), with `...` if that goes on; nothing is
//! rendered beyond the limit, and no string, array or document is copied. So a large document costs no more than the limit and a
//! look through the one value that goes beyond it.
//! What it deliberately does not do: escape, which the log does; hide what is secret.

use bson::{Binary, Bson, RawBsonRef, RawDocument};
use std::fmt::{self, Write};

/// The beginning of a document's text, `bytes_max` of it at most.
pub(crate) fn excerpt(document: &RawDocument, bytes_max: usize) -> String {
    let mut out = Excerpt { text: String::new(), bytes_max };
    if out.document(document).is_err() {
        out.text.push_str("...");
    }
    out.text
}

struct Excerpt {
    text: String,
    bytes_max: usize,
}

/// Fails once there is no room left.
impl Write for Excerpt {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let left_bytes = self.bytes_max - self.text.len();
        if part.len() <= left_bytes {
            self.text.push_str(part);
            return Ok(());
        }
        self.text.push_str(&part[..part.floor_char_boundary(left_bytes)]);
        Err(fmt::Error)
    }
}

impl Excerpt {
    fn document(&mut self, document: &RawDocument) -> fmt::Result {
        self.write_str("{")?;
        let mut separator = " ";
        for element in document.iter_elements() {
            let element = element.map_err(damaged)?;
            write!(self, "{separator}\"{}\": ", element.key())?;
            self.value(element.value().map_err(damaged)?)?;
            separator = ", ";
        }
        self.write_str(if separator == " " { "}" } else { " }" })
    }

    fn value(&mut self, value: RawBsonRef<'_>) -> fmt::Result {
        match value {
            RawBsonRef::Document(document) => self.document(document),
            RawBsonRef::Array(array) => {
                self.write_str("[")?;
                let mut separator = "";
                for value in array {
                    self.write_str(separator)?;
                    self.value(value.map_err(damaged)?)?;
                    separator = ", ";
                }
                self.write_str("]")
            }
            RawBsonRef::String(text) => write!(self, "\"{text}\""),
            RawBsonRef::Symbol(text) => write!(self, "Symbol(\"{text}\")"),
            RawBsonRef::JavaScriptCode(code) => self.write_str(code),
            RawBsonRef::JavaScriptCodeWithScope(with_scope) => self.write_str(with_scope.code),
            RawBsonRef::Binary(binary) => {
                // As text it is longer than it is, so that what is left out here would not be shown.
                let shown = &binary.bytes[..binary.bytes.len().min(self.bytes_max)];
                write!(self, "{}", Binary { subtype: binary.subtype, bytes: shown.to_vec() })
            }
            RawBsonRef::Double(_)
            | RawBsonRef::Boolean(_)
            | RawBsonRef::Null
            | RawBsonRef::RegularExpression(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Timestamp(_)
            | RawBsonRef::ObjectId(_)
            | RawBsonRef::DateTime(_)
            | RawBsonRef::Decimal128(_)
            | RawBsonRef::Undefined
            | RawBsonRef::MaxKey
            | RawBsonRef::MinKey
            | RawBsonRef::DbPointer(_) => write!(self, "{}", Bson::try_from(value).map_err(damaged)?),
        }
    }
}

/// A command is validated before it is carried out; of what is not, the part that can be read is shown.
fn damaged(_: bson::error::Error) -> fmt::Error {
    fmt::Error
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::raw::RawDocumentBuf;
    use bson::spec::BinarySubtype;
    use bson::{DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp, doc, oid::ObjectId};

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn of_every_type() -> Document {
        let binary = |length| Binary { subtype: BinarySubtype::Generic, bytes: (0..length).collect() };
        doc! {
            "find": "größe €", "": "", "empty": {}, "none": [], "nested": { "a": [1, { "b": [[2_i64], "ß"] }, {}] },
            "double": 1.5, "whole": 2.0, "true": true, "null": null,
            "regex": Regex { pattern: "^ä".try_into().unwrap(), options: "i".try_into().unwrap() },
            "code": Bson::JavaScriptCode("f()".into()), "symbol": Bson::Symbol("s".into()),
            "scoped": JavaScriptCodeWithScope { code: "g(x)".into(), scope: doc! { "x": 1 } },
            "ts": Timestamp { time: 7, increment: 1 }, "id": ObjectId::from_bytes([3; 12]), "date": DateTime::from_millis(5),
            "bytes": [binary(0), binary(1), binary(2), binary(3), binary(100)],
            "decimal": "1.20".parse::<bson::Decimal128>().unwrap(),
            "others": [Bson::Undefined, Bson::MinKey, Bson::MaxKey],
        }
    }

    #[test]
    fn what_is_shown_is_the_beginning_of_the_whole_wherever_it_is_cut() {
        let document = of_every_type();
        let (whole, raw) = (document.to_string(), raw(&document));
        assert_eq!(excerpt(&raw, whole.len()), whole);
        for limit in 0..whole.len() {
            let shown = format!("{}...", &whole[..whole.floor_char_boundary(limit)]);
            assert_eq!(excerpt(&raw, limit), shown, "limit {limit}");
        }
    }

    #[test]
    fn a_command_of_16_mb_is_rendered_no_further_than_it_is_shown() {
        const LIMIT: usize = 1000;
        const SIZE: usize = 16 * 1024 * 1024;
        let bytes = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; SIZE] };
        let small = doc! { "_id": 1, "text": "x".repeat(200) };
        let large = [
            doc! { "insert": "c", "text": "ö".repeat(SIZE / 2) },
            doc! { "insert": "c", "bytes": bytes },
            doc! { "insert": "c", "documents": vec![small; SIZE / 200] },
            doc! { "insert": "c", "code": Bson::JavaScriptCode("x".repeat(SIZE)) },
        ];
        for command in large {
            let shown = excerpt(&raw(&command), LIMIT);
            assert!((LIMIT..=LIMIT + 3).contains(&shown.len()), "{} bytes", shown.len());
            // What was rendered and thrown away would have left its room behind.
            assert!(shown.capacity() < 4 * LIMIT, "room for {} bytes", shown.capacity());
        }
    }

    #[test]
    fn of_a_damaged_document_the_readable_part_is_shown() {
        let mut bytes = raw(&doc! { "a": 1, "b": true }).into_bytes();
        let boolean = bytes.len() - 2;
        bytes[boolean] = 9;
        assert_eq!(excerpt(RawDocument::from_bytes(&bytes).unwrap(), 100), "{ \"a\": 1, \"b\": ...");
    }
}
