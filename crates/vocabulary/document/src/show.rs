//! Values as MongoDB's messages print them: `{ a: 1, b: [ "x", 2.5 ] }`. Clients parse some of these messages (E11000).
//!
//! Source: `BSONElement::toString`, for the forms and for where long strings and binary values are cut.
//! What it deliberately does not do: print what can be read back; that is extended JSON.

use bson::spec::BinarySubtype;
use bson::{RawBsonRef, RawDocument};
use std::fmt::Write;

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
pub fn document(doc: &RawDocument) -> String {
    let mut out = String::new();
    write_fields(&mut out, doc, true);
    cut(out)
}

/// The value alone: `1`, `"x"`, `{ a: 1 }`.
pub fn value(v: RawBsonRef<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, v);
    cut(out)
}

/// `name: value`, as MongoDB prints an element.
pub fn element(name: &str, v: RawBsonRef<'_>) -> String {
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

/// A string in quotes, the beginning of it if it is long.
fn write_text(out: &mut String, text: &str) {
    const BYTES_MAX: usize = 159;
    const BYTES_SHOWN: usize = 150;
    let is_long = text.len() > BYTES_MAX;
    out.push('"');
    out.push_str(if is_long { &text[..text.floor_char_boundary(BYTES_SHOWN)] } else { text });
    out.push_str(if is_long { "...\"" } else { "\"" });
}

/// Sixteen digits at the most, as C's `%.16g` gives them, and `.0` where nothing shows that it is a double.
fn double(n: f64) -> String {
    let mut text = match n {
        n if n.is_nan() => "nan".to_owned(),
        n if n.is_infinite() => if n > 0.0 { "inf" } else { "-inf" }.to_owned(),
        n => {
            let scientific = format!("{n:.15e}");
            let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            if (-4..16).contains(&exponent) {
                without_zeros(&format!("{n:.*}", (15 - exponent).unsigned_abs() as usize)).to_owned()
            } else {
                let sign = if exponent < 0 { '-' } else { '+' };
                format!("{}e{sign}{:02}", without_zeros(digits), exponent.unsigned_abs())
            }
        }
    };
    if !text.contains('.') {
        text.push_str(".0");
    }
    text
}

/// A number's text without the zeros that its fraction ends with.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn write_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "{byte:02X}");
    }
}

fn write_value(out: &mut String, v: RawBsonRef<'_>) {
    // Writing to a string cannot fail.
    let _ = match v {
        RawBsonRef::Double(n) => {
            out.push_str(&double(n));
            Ok(())
        }
        RawBsonRef::String(s) | RawBsonRef::Symbol(s) => {
            write_text(out, s);
            Ok(())
        }
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
            let is_long = b.bytes.len() > 80;
            write_hex(out, if is_long { &b.bytes[..70] } else { b.bytes });
            write!(out, "{}", if is_long { "...)" } else { ")" })
        }
        RawBsonRef::ObjectId(id) => write!(out, "ObjectId('{}')", id.to_hex()),
        RawBsonRef::DateTime(d) => write!(out, "new Date({})", d.timestamp_millis()),
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

    #[test]
    fn what_clients_parse_is_in_mongodbs_forms() {
        let binary = |subtype, bytes: &[u8]| bson::Binary { subtype, bytes: bytes.to_vec() };
        let doc = rawdoc! {
            "u": binary(BinarySubtype::Uuid, &[0x11; 16]), "b": binary(BinarySubtype::Generic, &[0, 0xab]),
            "o": bson::oid::ObjectId::from_bytes([0xcd; 12]), "d": bson::DateTime::from_millis(-5),
            "t": bson::Timestamp { time: 7, increment: 2 },
        };
        assert_eq!(
            document(&doc),
            "{ u: UUID(\"11111111-1111-1111-1111-111111111111\"), b: BinData(0, 00AB), \
             o: ObjectId('cdcdcdcdcdcdcdcdcdcdcdcd'), d: new Date(-5), t: Timestamp(7, 2) }"
        );
        let long = value(RawBsonRef::String(&"x".repeat(200)));
        assert_eq!(long, format!("\"{}...\"", "x".repeat(150)));
    }

    #[test]
    fn doubles_have_sixteen_digits_and_show_what_they_are() {
        for (number, shown) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (2.0 / 3.0, "0.6666666666666666"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16.0"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (f64::NAN, "nan.0"),
            (f64::NEG_INFINITY, "-inf.0"),
        ] {
            assert_eq!(value(RawBsonRef::Double(number)), shown);
        }
    }
}
