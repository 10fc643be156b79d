//! Documents that nobody here looks into, for `#[serde(with)]`: their bytes, in hexadecimal digits.

use bson::{RawDocument, RawDocumentBuf};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use std::fmt::Write;

fn digits(document: &RawDocument) -> String {
    let mut text = String::with_capacity(document.as_bytes().len() * 2);
    for byte in document.as_bytes() {
        // A string takes what it is given.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn document(text: &str) -> Option<RawDocumentBuf> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    RawDocumentBuf::from_bytes(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

/// As digits.
pub fn serialize<S: Serializer>(document: &RawDocument, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&digits(document))
}

/// What [`serialize`] made.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RawDocumentBuf, D::Error> {
    let text = String::deserialize(deserializer)?;
    document(&text).ok_or_else(|| D::Error::custom("no document in hexadecimal digits"))
}

/// One that may be absent.
pub mod optional {
    use super::*;

    /// As digits, or null.
    pub fn serialize<S: Serializer>(document: &Option<RawDocumentBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        match document {
            Some(document) => super::serialize(document, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// What [`serialize`] made.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawDocumentBuf>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let read =
            text.map(|text| document(&text).ok_or_else(|| D::Error::custom("no document in hexadecimal digits")));
        read.transpose()
    }
}
