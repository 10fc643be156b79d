//! Values and type names as MongoDB's messages print them.
//!
//! What it deliberately is not: extended JSON. The text is for people who read an error.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::ElementType;
use std::fmt::Write;

/// Longest text of one value inside a message, in bytes; what is longer is cut.
const TEXT_BYTES_MAX: usize = 512;

/// MongoDB's name of a value's type (`int`, `object`, `binData`, …).
pub fn type_of(value: RawBsonRef<'_>) -> &'static str {
    match value.element_type() {
        ElementType::Double => "double",
        ElementType::String => "string",
        ElementType::EmbeddedDocument => "object",
        ElementType::Array => "array",
        ElementType::Binary => "binData",
        ElementType::Undefined => "undefined",
        ElementType::ObjectId => "objectId",
        ElementType::Boolean => "bool",
        ElementType::DateTime => "date",
        ElementType::Null => "null",
        ElementType::RegularExpression => "regex",
        ElementType::DbPointer => "dbPointer",
        ElementType::JavaScriptCode => "javascript",
        ElementType::Symbol => "symbol",
        ElementType::JavaScriptCodeWithScope => "javascriptWithScope",
        ElementType::Int32 => "int",
        ElementType::Timestamp => "timestamp",
        ElementType::Int64 => "long",
        ElementType::Decimal128 => "decimal",
        ElementType::MinKey => "minKey",
        ElementType::MaxKey => "maxKey",
    }
}

/// The value as a message shows it: `{ a: 1, b: "x" }`.
pub fn text_of(value: RawBsonRef<'_>) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

fn write_value(text: &mut String, value: RawBsonRef<'_>) {
    // A value nested deeper or longer than the text may be is not worth walking.
    if text.len() > TEXT_BYTES_MAX {
        return;
    }
    // Writing to a String does not fail.
    let _ = match value {
        RawBsonRef::Double(n) => write!(text, "{n:?}"),
        RawBsonRef::String(s) => write!(text, "\"{s}\""),
        RawBsonRef::Document(doc) => return write_document(text, doc),
        RawBsonRef::Array(array) => return write_array(text, array),
        RawBsonRef::Binary(b) => write!(text, "BinData({}, {} bytes)", u8::from(b.subtype), b.bytes.len()),
        RawBsonRef::Undefined => write!(text, "undefined"),
        RawBsonRef::ObjectId(id) => write!(text, "ObjectId('{id}')"),
        RawBsonRef::Boolean(b) => write!(text, "{b}"),
        RawBsonRef::DateTime(at) => write!(text, "new Date({})", at.timestamp_millis()),
        RawBsonRef::Null => write!(text, "null"),
        RawBsonRef::RegularExpression(r) => write!(text, "/{}/{}", r.pattern, r.options),
        RawBsonRef::JavaScriptCode(code) => write!(text, "{code}"),
        RawBsonRef::JavaScriptCodeWithScope(code) => write!(text, "CodeWScope({})", code.code),
        RawBsonRef::Symbol(s) => write!(text, "\"{s}\""),
        RawBsonRef::Int32(n) => write!(text, "{n}"),
        RawBsonRef::Int64(n) => write!(text, "{n}"),
        RawBsonRef::Timestamp(t) => write!(text, "Timestamp({}, {})", t.time, t.increment),
        RawBsonRef::Decimal128(n) => write!(text, "{n}"),
        RawBsonRef::DbPointer(_) => write!(text, "DBRef"),
        RawBsonRef::MinKey => write!(text, "MinKey"),
        RawBsonRef::MaxKey => write!(text, "MaxKey"),
    };
}

fn write_document(text: &mut String, doc: &RawDocument) {
    let mut separator = "{ ";
    for (name, value) in doc.iter().flatten() {
        text.push_str(separator);
        text.push_str(name.as_str());
        text.push_str(": ");
        write_value(text, value);
        separator = ", ";
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
    }
    text.push_str(if separator == "{ " { "{}" } else { " }" });
}

fn write_array(text: &mut String, array: &RawArray) {
    let mut separator = "[ ";
    for value in array.into_iter().flatten() {
        text.push_str(separator);
        write_value(text, value);
        separator = ", ";
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
    }
    text.push_str(if separator == "[ " { "[]" } else { " ]" });
}
