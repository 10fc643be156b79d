//! The hash of a value, as hashed indexes store it and hashed shard keys divide by it: MongoDB's, bit for bit.
//!
//! It is the first eight bytes of an MD5 over a seed and the value; drawn in `docs/keys.md`, whose vectors the tests hold
//! this file to. Source: MongoDB's `BSONElementHasher`.
//!
//! Invariants: the same value has the same hash in every version and on every machine, because hashes are on disk; a symbol
//! hashes as the string it is; every number hashes as an integer, so that equal integers of different types have one hash.
//! Doubles are cut off towards zero and decimals are rounded half to even, so equal *fractions* of the two types may have
//! two: [`forms`] tells which.
//!
//! What it deliberately does not do: cryptography. MD5 is here for agreement, not for safety.

use crate::decimal::Rounding;
use crate::number::Number;
use crate::order;
use baton_types::Result;
use bson::spec::BinarySubtype;
use bson::{RawBsonRef, RawDocument};
use md5::{Digest, Md5};

/// The seed of hashed indexes.
pub const INDEX_SEED: i32 = 0;

/// 2^63, the first double beyond every 64-bit integer.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

/// The hash of a value.
///
/// # Errors
/// If a document in it is malformed.
pub fn hash(value: RawBsonRef<'_>, seed: i32) -> Result<i64> {
    let mut state = Md5::new_with_prefix(seed.to_le_bytes());
    add(&mut state, value, None)?;
    let digest = state.finalize();
    Ok(digest.iter().take(8).rev().fold(0_i64, |hash, byte| (hash << 8) | i64::from(*byte)))
}

/// The hash that a hashed index stores for a value, and that a query on it looks for. What is missing counts as null.
///
/// # Errors
/// If a document in it is malformed.
pub fn index_hash(value: Option<RawBsonRef<'_>>) -> Result<i64> {
    hash(value.unwrap_or(RawBsonRef::Null), INDEX_SEED)
}

/// What the values that equal a value hash as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// All of them as the value itself.
    One,
    /// Each as one of these two integers.
    Integers(i64, i64),
    /// In more ways than are worth telling: a fraction is inside a document.
    Many,
}

/// How the values hash that are equal to this one.
pub fn forms(value: RawBsonRef<'_>) -> Forms {
    if let Some(number) = Number::from_raw(value) {
        return match (as_double_hashes(number), as_decimal_hashes(number)) {
            (double, decimal) if double == decimal => Forms::One,
            (double, decimal) => Forms::Integers(double, decimal),
        };
    }
    let inner = match value {
        RawBsonRef::Document(document) => document,
        RawBsonRef::Array(array) => match RawDocument::from_bytes(array.as_bytes()) {
            Ok(document) => document,
            Err(_) => return Forms::Many,
        },
        RawBsonRef::JavaScriptCodeWithScope(code) => code.scope,
        _ => return Forms::One,
    };
    let is_one = |element: bson::error::Result<(_, RawBsonRef<'_>)>| element.is_ok_and(|(_, v)| forms(v) == Forms::One);
    if inner.iter().all(is_one) { Forms::One } else { Forms::Many }
}

/// What a double of this value hashes as.
fn as_double_hashes(number: Number) -> i64 {
    match number {
        Number::Int32(n) => n.into(),
        Number::Int64(n) => n,
        Number::Double(n) => of_double(n),
        // A decimal that is a double has that one's value.
        Number::Decimal(n) => match n.to_i64_rounded(Rounding::Truncate) {
            Some(whole) => whole,
            None => of_double(n.to_f64()),
        },
    }
}

/// What a decimal of this value hashes as.
fn as_decimal_hashes(number: Number) -> i64 {
    match number {
        Number::Int32(n) => n.into(),
        Number::Int64(n) => n,
        // The conversion saturates, and NaN becomes 0.
        Number::Double(n) => n.round_ties_even() as i64,
        Number::Decimal(n) => match n.to_i64_rounded(Rounding::HalfEven) {
            Some(whole) => whole,
            None => n.to_f64() as i64,
        },
    }
}

/// Cut off; NaN is 0 and what is too large the largest, but 2^63 itself, by an overflow that is on disks, the smallest.
fn of_double(n: f64) -> i64 {
    if n == BEYOND { i64::MIN } else { n as i64 }
}

fn integer_of(number: Number) -> i64 {
    match number {
        Number::Decimal(_) => as_decimal_hashes(number),
        Number::Int32(_) | Number::Int64(_) | Number::Double(_) => as_double_hashes(number),
    }
}

/// The type's place in the order of types, as MongoDB numbers it.
fn canonical_type(value: RawBsonRef<'_>) -> i32 {
    match value {
        RawBsonRef::MinKey => -1,
        RawBsonRef::Undefined => 0,
        RawBsonRef::Null => 5,
        RawBsonRef::Double(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Decimal128(_) => 10,
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => 15,
        RawBsonRef::Document(_) => 20,
        RawBsonRef::Array(_) => 25,
        RawBsonRef::Binary(_) => 30,
        RawBsonRef::ObjectId(_) => 35,
        RawBsonRef::Boolean(_) => 40,
        RawBsonRef::DateTime(_) => 45,
        RawBsonRef::Timestamp(_) => 47,
        RawBsonRef::RegularExpression(_) => 50,
        RawBsonRef::DbPointer(_) => 55,
        RawBsonRef::JavaScriptCode(_) => 60,
        RawBsonRef::JavaScriptCodeWithScope(_) => 65,
        RawBsonRef::MaxKey => 127,
    }
}

fn add(state: &mut Md5, value: RawBsonRef<'_>, name: Option<&str>) -> Result<()> {
    state.update(canonical_type(value).to_le_bytes());
    if let Some(name) = name {
        add_text(state, name);
    }
    if let Some(number) = Number::from_raw(value) {
        state.update(integer_of(number).to_le_bytes());
        return Ok(());
    }
    match value {
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => {
            state.update((text.len() as i32 + 1).to_le_bytes());
            add_text(state, text);
        }
        RawBsonRef::Document(document) => add_fields(state, document)?,
        RawBsonRef::Array(array) => add_fields(state, RawDocument::from_bytes(array.as_bytes())?)?,
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            add_text(state, code.code);
            add_fields(state, code.scope)?;
        }
        RawBsonRef::Binary(binary) => {
            let length = binary.bytes.len() as i32;
            let is_old = binary.subtype == BinarySubtype::BinaryOld;
            state.update((if is_old { length + 4 } else { length }).to_le_bytes());
            state.update([u8::from(binary.subtype)]);
            if is_old {
                state.update(length.to_le_bytes());
            }
            state.update(binary.bytes);
        }
        RawBsonRef::ObjectId(id) => state.update(id.bytes()),
        RawBsonRef::Boolean(truth) => state.update([u8::from(truth)]),
        RawBsonRef::DateTime(date) => state.update(date.timestamp_millis().to_le_bytes()),
        RawBsonRef::Timestamp(timestamp) => {
            state.update(timestamp.increment.to_le_bytes());
            state.update(timestamp.time.to_le_bytes());
        }
        RawBsonRef::RegularExpression(regex) => {
            add_text(state, regex.pattern.as_str());
            add_text(state, regex.options.as_str());
        }
        RawBsonRef::DbPointer(pointer) => state.update(order::db_pointer_bytes(pointer)),
        // Numbers were added above; these have nothing beyond their type.
        RawBsonRef::Double(_)
        | RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Decimal128(_)
        | RawBsonRef::MinKey
        | RawBsonRef::Undefined
        | RawBsonRef::Null
        | RawBsonRef::MaxKey => {}
    }
    Ok(())
}

fn add_text(state: &mut Md5, text: &str) {
    state.update(text.as_bytes());
    state.update([0]);
}

/// Every field with its name, and at the end a type of 0.
fn add_fields(state: &mut Md5, document: &RawDocument) -> Result<()> {
    for element in document {
        let (name, value) = element?;
        add(state, value, Some(name.as_str()))?;
    }
    state.update(0_i32.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;
