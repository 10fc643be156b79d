//! Values as MongoDB's messages print them: `{ a: 1, b: [ "x", 2.5 ] }`.
//!
//! For error messages only; it is neither JSON nor meant to be read back. Long values are cut.

use bson::spec::{BinarySubtype, ElementType};
use bson::{RawBsonRef, RawDocument};
use std::fmt::Write;

/// MongoDB's name of a type, as `$type` and messages use it.
pub(crate) fn type_name(kind: ElementType) -> &'static str {
    match kind {
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

/// Where the text of a value is cut, in bytes: a message must not carry a document of 16 MB.
const TEXT_BYTES_MAX: usize = 4096;

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("...");
    }
    text
}

/// `{ a: 1 }`.
pub(crate) fn document(doc: &RawDocument) -> String {
    let mut out = String::new();
    write_fields(&mut out, doc, true);
    cut(out)
}

/// The value alone: `1`, `"x"`, `{ a: 1 }`.
pub(crate) fn value(v: RawBsonRef<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, v);
    cut(out)
}

/// `name: value`, as MongoDB prints an element.
pub(crate) fn element(name: &str, v: RawBsonRef<'_>) -> String {
    let mut out = format!("{name}: ");
    write_value(&mut out, v);
    cut(out)
}

fn write_fields(out: &mut String, doc: &RawDocument, named: bool) {
    let (open, close) = if named { ("{", "}") } else { ("[", "]") };
    out.push_str(open);
    let mut first = true;
    for (key, v) in doc.iter().flatten() {
        if out.len() > TEXT_BYTES_MAX {
            break;
        }
        out.push_str(if first { " " } else { ", " });
        first = false;
        if named {
            out.push_str(key.as_str());
            out.push_str(": ");
        }
        write_value(out, v);
    }
    out.push_str(if first { "" } else { " " });
    out.push_str(close);
}

fn write_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "{byte:02X}");
    }
}

fn write_value(out: &mut String, v: RawBsonRef<'_>) {
    // Writing to a string cannot fail.
    let _ = match v {
        RawBsonRef::Double(n) if n.is_finite() && n.fract() == 0.0 && n.abs() < 1e16 => write!(out, "{n:.1}"),
        RawBsonRef::Double(n) if n.is_nan() => write!(out, "nan.0"),
        RawBsonRef::Double(n) => write!(out, "{n}"),
        RawBsonRef::String(s) => write!(out, "\"{s}\""),
        RawBsonRef::Array(a) => {
            match RawDocument::from_bytes(a.as_bytes()) {
                Ok(fields) => write_fields(out, fields, false),
                Err(_) => out.push_str("[]"),
            }
            Ok(())
        }
        RawBsonRef::Document(d) => {
            write_fields(out, d, true);
            Ok(())
        }
        RawBsonRef::Boolean(b) => write!(out, "{b}"),
        RawBsonRef::Null => write!(out, "null"),
        RawBsonRef::Undefined => write!(out, "undefined"),
        RawBsonRef::RegularExpression(r) => write!(out, "/{}/{}", r.pattern.as_str(), r.options.as_str()),
        RawBsonRef::JavaScriptCode(code) => write!(out, "{code}"),
        RawBsonRef::JavaScriptCodeWithScope(c) => write!(out, "CodeWScope( {}, {})", c.code, document(c.scope)),
        RawBsonRef::Int32(n) => write!(out, "{n}"),
        RawBsonRef::Int64(n) => write!(out, "{n}"),
        RawBsonRef::Timestamp(t) => write!(out, "Timestamp({}, {})", t.time, t.increment),
        RawBsonRef::Binary(b) if b.subtype == BinarySubtype::Uuid && b.bytes.len() == 16 => {
            let mut hex = String::new();
            write_hex(&mut hex, b.bytes);
            let hex = hex.to_lowercase();
            write!(out, "UUID(\"{}-{}-{}-{}-{}\")", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
        }
        RawBsonRef::Binary(b) => {
            let _ = write!(out, "BinData({}, ", u8::from(b.subtype));
            write_hex(out, b.bytes);
            write!(out, ")")
        }
        RawBsonRef::ObjectId(id) => write!(out, "ObjectId('{}')", id.to_hex()),
        RawBsonRef::DateTime(d) => write!(out, "new Date({})", d.timestamp_millis()),
        RawBsonRef::Symbol(s) => write!(out, "\"{s}\""),
        RawBsonRef::Decimal128(d) => write!(out, "{d}"),
        RawBsonRef::MinKey => write!(out, "MinKey"),
        RawBsonRef::MaxKey => write!(out, "MaxKey"),
        RawBsonRef::DbPointer(_) => write!(out, "DBRef(...)"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn values_print_as_in_mongodb_messages() {
        let doc =
            rawdoc! { "a": 1, "b": 2.0, "c": 1.5, "d": "x", "e": [1, { "f": null }], "g": {}, "h": [], "i": true };
        assert_eq!(document(&doc), r#"{ a: 1, b: 2.0, c: 1.5, d: "x", e: [ 1, { f: null } ], g: {}, h: [], i: true }"#);
        assert_eq!(element("_id", RawBsonRef::Int64(7)), "_id: 7");
    }
}
