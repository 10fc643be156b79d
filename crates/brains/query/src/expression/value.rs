//! What every operator needs to know about values: their names, truth, order, coercions, and how messages show them.

use super::meter::Meter;
use crate::interruption::BYTES_PER_STEP;
use baton_document::number::Number;
use baton_document::order;
use baton_types::{Error, Result};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawBsonRef, RawDocument};
use std::borrow::Borrow;
use std::cmp::Ordering;

/// The value of an expression; `None` is "missing".
pub(crate) type Value = Option<Bson>;

/// Whether the value is missing, `null` or `undefined`.
pub(crate) fn is_nullish(value: &Value) -> bool {
    matches!(value, None | Some(Bson::Null | Bson::Undefined))
}

/// MongoDB's truth of a value.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        None | Some(Bson::Null | Bson::Undefined) => false,
        Some(Bson::Boolean(truth)) => *truth,
        Some(Bson::Int32(number)) => *number != 0,
        Some(Bson::Int64(number)) => *number != 0,
        Some(Bson::Double(number)) => *number != 0.0,
        Some(decimal @ Bson::Decimal128(_)) => order::compare_bson(decimal, &Bson::Int32(0)).is_ne(),
        Some(_) => true,
    }
}

/// MongoDB's order of values; a missing value is less than every value but `MinKey`.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => order::compare_bson(a, b),
        (None, None) => Ordering::Equal,
        (None, Some(b)) => missing_against(b),
        (Some(a), None) => missing_against(a).reverse(),
    }
}

fn missing_against(value: &Bson) -> Ordering {
    match value {
        Bson::MinKey => Ordering::Greater,
        Bson::Undefined => Ordering::Equal,
        _ => Ordering::Less,
    }
}

/// Counts the steps of a comparison about to be made: many only where both values have many parts.
pub(crate) fn count_comparison(a: &Bson, b: &Bson, meter: &Meter<'_>) -> Result<()> {
    match (a, b) {
        (Bson::Array(_), Bson::Array(_)) | (Bson::Document(_), Bson::Document(_)) => {
            let parts = |value| size_bytes(value) / size_of::<Bson>();
            meter.steps(1 + parts(a).min(parts(b)))
        }
        (Bson::String(a), Bson::String(b)) => meter.steps(1 + a.len().min(b.len()) / BYTES_PER_STEP),
        _ => meter.step(),
    }
}

/// The name of the value's type, as `$type` and messages give it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    value.as_ref().map_or("missing", bson_type_name)
}

/// The name of a type.
pub(crate) fn bson_type_name(value: &Bson) -> &'static str {
    baton_document::type_name(value.element_type())
}

/// The name of a raw value's type.
pub(crate) fn raw_type_name(value: RawBsonRef<'_>) -> &'static str {
    baton_document::type_name(value.element_type())
}

/// Whether the value is a number.
pub(crate) fn is_number(value: &Value) -> bool {
    matches!(value, Some(Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_)))
}

/// The number, where the value is one.
pub(crate) fn number(value: &Value) -> Option<Number> {
    value.as_ref().and_then(Number::from_bson)
}

/// The number as a whole 64-bit one, where it is exactly that.
pub(crate) fn long_exact(value: &Value) -> Option<i64> {
    match value {
        Some(Bson::Int32(number)) => Some(i64::from(*number)),
        Some(Bson::Int64(number)) => Some(*number),
        other => number(other).and_then(|number| number.to_i64_exact()),
    }
}

/// The number as a whole 32-bit one, where it is exactly that.
pub(crate) fn int_exact(value: &Value) -> Option<i32> {
    long_exact(value).and_then(|number| i32::try_from(number).ok())
}

/// A whole number in the narrowest type that holds it.
pub(crate) fn narrow(number: i64) -> Bson {
    i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32)
}

/// A size or position as an `int`; a `long` beyond.
pub(crate) fn count(number: usize) -> Bson {
    narrow(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The moment the value denotes: dates, timestamps and object identifiers have one.
pub(crate) fn coerce_to_date(value: &Value) -> Result<DateTime> {
    match value {
        Some(Bson::DateTime(date)) => Ok(*date),
        Some(Bson::Timestamp(timestamp)) => Ok(DateTime::from_millis(i64::from(timestamp.time) * 1000)),
        Some(Bson::ObjectId(id)) => Ok(object_id_time(id)),
        other => Err(Error::location(16006, format!("can't convert from BSON type {} to Date", type_name(other)))),
    }
}

/// When an ObjectId was made, by its own word: seconds with a sign, as MongoDB reads them, so that they end in 2038.
pub(crate) fn object_id_time(id: &ObjectId) -> DateTime {
    let [a, b, c, d, ..] = id.bytes();
    DateTime::from_millis(i64::from(i32::from_be_bytes([a, b, c, d])) * 1000)
}

/// Whether [`coerce_to_date`] has an answer.
pub(crate) fn is_date_like(value: &Value) -> bool {
    matches!(value, Some(Bson::DateTime(_) | Bson::Timestamp(_) | Bson::ObjectId(_)))
}

/// The text the older string operators see in a value: numbers and dates are written out, nullish is empty.
pub(crate) fn coerce_to_string(value: &Value) -> Result<String> {
    match value {
        None | Some(Bson::Null | Bson::Undefined) => Ok(String::new()),
        Some(Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text)) => Ok(text.clone()),
        Some(Bson::Int32(number)) => Ok(number.to_string()),
        Some(Bson::Int64(number)) => Ok(number.to_string()),
        Some(Bson::Double(number)) => Ok(double_text_short(*number)),
        Some(Bson::Decimal128(number)) => Ok(number.to_string()),
        Some(Bson::DateTime(date)) => Ok(super::date::iso_text(date.timestamp_millis())),
        Some(Bson::Timestamp(timestamp)) => Ok(timestamp_text_short(timestamp)),
        other => Err(Error::location(16007, format!("can't convert from BSON type {} to String", type_name(other)))),
    }
}

fn timestamp_text(timestamp: &bson::Timestamp) -> String {
    format!("Timestamp({}, {})", timestamp.time, timestamp.increment)
}

/// A timestamp as the older string operators write it: the time without its year, and the increment.
fn timestamp_text_short(timestamp: &bson::Timestamp) -> String {
    let time = chrono::DateTime::from_timestamp(i64::from(timestamp.time), 0).unwrap_or_default();
    format!("{}:{}", time.format("%b %e %H:%M:%S"), timestamp.increment)
}

/// A double as the older string operators write it: six digits, as C's `%g`.
fn double_text_short(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let text = format!("{number:.5e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let places = usize::try_from(5 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{number:.places$}")).to_owned();
    }
    with_exponent(without_trailing_zeros(digits), exponent)
}

fn without_trailing_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// As C writes an exponent: with a sign and at least two digits.
fn with_exponent(digits: &str, exponent: i32) -> String {
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

/// A double as `$toString` and messages write it: shortest digits that read back the same, with an exponent outside
/// 1e-4..1e16.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return with_exponent(digits, exponent.parse().unwrap_or(0));
    }
    format!("{number}")
}

/// A value as error messages show it.
pub(crate) fn display(value: &Value) -> String {
    match value {
        None => "MISSING".to_owned(),
        Some(value) => display_bson(value),
    }
}

fn display_bson(value: &Bson) -> String {
    match value {
        Bson::Double(number) => double_text(*number),
        Bson::String(text) => format!("\"{text}\""),
        Bson::Array(elements) => format!("[{}]", elements.iter().map(display_bson).collect::<Vec<_>>().join(", ")),
        Bson::Document(document) => {
            let fields = document.iter().map(|(name, value)| format!("{name}: {}", display_bson(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Bson::Boolean(truth) => truth.to_string(),
        Bson::Null => "null".to_owned(),
        Bson::RegularExpression(regex) => format!("/{}/{}", regex.pattern, regex.options),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Decimal128(number) => number.to_string(),
        Bson::Timestamp(timestamp) => timestamp_text(timestamp),
        Bson::ObjectId(id) => id.to_hex(),
        Bson::DateTime(date) => super::date::iso_text(date.timestamp_millis()),
        Bson::Undefined => "undefined".to_owned(),
        Bson::MinKey => "MinKey".to_owned(),
        Bson::MaxKey => "MaxKey".to_owned(),
        Bson::Binary(_) => "BinData".to_owned(),
        Bson::JavaScriptCode(code) | Bson::Symbol(code) => code.clone(),
        Bson::JavaScriptCodeWithScope(code) => code.code.clone(),
        Bson::DbPointer(_) => "DBPointer".to_owned(),
    }
}

/// A part of a query as error messages show it.
pub(crate) fn display_document(document: &RawDocument) -> String {
    crate::show::document(document)
}

/// Roughly what a value takes in memory, in bytes.
pub(crate) fn size_bytes(value: &Bson) -> usize {
    size_of::<Bson>()
        + match value {
            Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => text.len(),
            Bson::Array(elements) => elements.iter().map(size_bytes).sum(),
            Bson::Document(document) => document_size_bytes(document),
            Bson::Binary(binary) => binary.bytes.len(),
            Bson::RegularExpression(regex) => regex.pattern.as_str().len() + regex.options.as_str().len(),
            Bson::JavaScriptCodeWithScope(code) => code.code.len() + document_size_bytes(&code.scope),
            _ => 0,
        }
}

fn document_size_bytes(document: &Document) -> usize {
    document.iter().map(|(name, value)| field_bytes(name, value)).sum()
}

/// Roughly what a field takes in memory: its name, an entry of the map and its hash, its value.
pub(crate) fn field_bytes(name: &str, value: &Bson) -> usize {
    name.len() + 40 + size_bytes(value)
}

/// A value, owned or not, that sorts by MongoDB's order, for ordered sets.
#[derive(Clone, Debug)]
pub(crate) struct Ordered<V>(pub V);

impl<V: Borrow<Bson>> Ord for Ordered<V> {
    fn cmp(&self, other: &Self) -> Ordering {
        order::compare_bson(self.0.borrow(), other.0.borrow())
    }
}

impl<V: Borrow<Bson>> PartialOrd for Ordered<V> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<V: Borrow<Bson>> PartialEq for Ordered<V> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<V: Borrow<Bson>> Eq for Ordered<V> {}
