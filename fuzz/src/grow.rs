//! Turning arbitrary bytes into documents of a language: random bytes are hardly ever valid BSON, and random BSON is
//! hardly ever a query.
//!
//! Each byte chooses: an operator from the language's words, a field name, the type of a value, the value. So a mutation
//! of the bytes is a mutation of the document's structure, which is what a fuzzer guided by coverage needs.
//! What it does not do: know where a word belongs. Wrong places are part of the test.

use baton_document::validate;
use bson::raw::CString;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, RawDocumentBuf, Regex, Timestamp, oid::ObjectId};

const DEPTH_MAX: usize = 7;
const WIDTH_MAX: usize = 5;

const FIELDS: &[&str] = &[
    "_id", "a", "b", "a.b", "a.0", "a.0.b", "a.$", "a.$[]", "a.$[e]", "a.$[e].b", "e", "e.b", "", ".", "a.", "$a",
    "x y", "é",
];
const STRINGS: &[&str] = &[
    "",
    "a",
    "$a",
    "$$ROOT",
    "$$NOW",
    "$$this",
    "$$value",
    "$$CURRENT.a",
    "$a.b",
    "$$REMOVE",
    "x",
    "abc",
    "^a.*(b|c)+$",
    "(a+)+$",
    "[",
    "%Y-%m-%d",
    "2024-02-29T12:00:00Z",
    "America/New_York",
    "+05:30",
    "day",
    "month",
    "int",
    "string",
    "double",
    "text",
    "\u{0}",
    "\u{1f600}é",
    "10",
    "-1.5e3",
    "0x1F",
    "approximate",
];
const NUMBERS: &[f64] = &[0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 10.0, 1e10, -1e18, 9.3e18, 1e308, 5e-324];
const INTEGERS: &[i64] = &[
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    16,
    100,
    1000,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
    1 << 53,
    1_700_000_000_000,
];
const DECIMALS: &[&str] =
    &["0", "1.5", "-0", "NaN", "Infinity", "-Infinity", "1E+6144", "1E-6176", "9.999999999999999999999999999999999"];

/// Chooses by the input's bytes, one after another; all zeros once they are used up.
pub struct Choices<'a> {
    bytes: &'a [u8],
    words: &'a [&'a str],
}

impl<'a> Choices<'a> {
    /// Over the input, with the words of a language.
    pub fn new(bytes: &'a [u8], words: &'a [&'a str]) -> Self {
        Self { bytes, words }
    }

    fn byte(&mut self) -> usize {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                usize::from(*first)
            }
            None => 0,
        }
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.byte() % from.len()]
    }

    fn key(&mut self) -> &'a str {
        let words = self.words;
        if self.byte() % 4 == 0 || words.is_empty() { self.one_of(FIELDS) } else { self.one_of(words) }
    }

    /// The next document.
    pub fn document(&mut self) -> Document {
        self.document_at(0)
    }

    fn document_at(&mut self, depth: usize) -> Document {
        let width = if depth == 0 { 1 + self.byte() % WIDTH_MAX } else { self.byte() % WIDTH_MAX };
        (0..width).map(|_| (self.key().to_owned(), self.value(depth + 1))).collect()
    }

    fn value(&mut self, depth: usize) -> Bson {
        // The containers come first and most often; too deep they give way to scalars.
        let kind = self.byte() % 28;
        match kind {
            0..=6 if depth < DEPTH_MAX => Bson::Document(self.document_at(depth)),
            7..=11 if depth < DEPTH_MAX => {
                let width = self.byte() % WIDTH_MAX;
                Bson::Array((0..width).map(|_| self.value(depth + 1)).collect())
            }
            0..=4 | 12 => Bson::Int32(self.one_of(INTEGERS) as i32),
            5..=8 | 13..=15 => Bson::String(self.one_of(STRINGS).to_owned()),
            9 | 16 => Bson::Int64(self.one_of(INTEGERS)),
            10 | 17 => Bson::Double(self.one_of(NUMBERS)),
            11 | 18 => Bson::Boolean(self.byte() % 2 == 0),
            19 => Bson::Null,
            20 => self.one_of(DECIMALS).parse::<Decimal128>().map_or(Bson::Null, Bson::Decimal128),
            21 => Bson::DateTime(DateTime::from_millis(self.one_of(INTEGERS))),
            22 => self.regex(),
            23 => Bson::ObjectId(ObjectId::from_bytes([self.byte() as u8; 12])),
            24 => Bson::Timestamp(Timestamp { time: self.byte() as u32, increment: self.byte() as u32 }),
            25 => Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![7; self.byte() % 40] }),
            26 => Bson::Double(f64::NAN),
            _ => self.one_of(&[&Bson::MinKey, &Bson::MaxKey, &Bson::Undefined]).clone(),
        }
    }

    fn regex(&mut self) -> Bson {
        let (pattern, options) = (self.one_of(STRINGS), self.one_of(&["", "i", "mx", "s", "z"]));
        match (CString::try_from(pattern.to_owned()), CString::try_from(options.to_owned())) {
            (Ok(pattern), Ok(options)) => Bson::RegularExpression(Regex { pattern, options }),
            _ => Bson::Null,
        }
    }
}

/// The input as a document: as BSON if it is that, else grown with the language's words.
pub fn document(data: &[u8], words: &[&str]) -> Option<RawDocumentBuf> {
    if let Ok(document) = validate::document(data) {
        return Some(document.to_owned());
    }
    RawDocumentBuf::try_from(&Choices::new(data, words).document()).ok()
}

/// Documents for a query to be tried on: of every type, nested, with arrays, and one that the input chooses.
pub fn samples(data: &[u8]) -> Vec<RawDocumentBuf> {
    let chosen: Vec<u8> = data.iter().rev().copied().collect();
    let mut documents = vec![
        bson::doc! {},
        bson::doc! { "_id": 1, "a": 1, "b": "abc", "e": [1, 2, 3] },
        bson::doc! { "_id": 2, "a": { "b": [1, { "b": 2.5 }, null], "c": "$a" }, "b": [[1, 2], []], "e": true },
        bson::doc! { "_id": 3, "a": [{ "b": 1 }, { "b": [1, 2] }, 5], "b": DateTime::from_millis(1_700_000_000_000), "e": { "b": 1 } },
        bson::doc! { "_id": 4, "a": [i64::MAX, f64::NAN, Bson::MinKey], "b": i32::MIN, "x": ObjectId::from_bytes([1; 12]) },
    ];
    documents.push(Choices::new(&chosen, &[]).document());
    documents.iter().filter_map(|document| RawDocumentBuf::try_from(document).ok()).collect()
}
