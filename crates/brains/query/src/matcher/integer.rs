//! Integers in operands (`$size`, `$mod`, `$bitsAllSet`, …): any number type, but an exact whole number.
//!
//! What it deliberately does not do: arithmetic, which is `baton_document::number`'s.

use baton_document::number::Number;
use baton_types::{Error, Result};
use bson::{Bson, RawBsonRef};

/// The whole number a value is, if it is one and fits 64 bits.
pub(crate) fn exact(value: RawBsonRef<'_>) -> Option<i64> {
    Number::from_raw(value)?.to_i64_exact()
}

/// A number cut to a whole number towards zero; none for what is no number, not finite, or beyond 64 bits.
pub(crate) fn truncated(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(i) => Some(i64::from(i)),
        RawBsonRef::Int64(i) => Some(i),
        RawBsonRef::Double(d) => truncated_double(d),
        RawBsonRef::Decimal128(_) => {
            let number = Number::from_raw(value)?;
            number.to_i64_exact().or_else(|| truncated_double(number.to_f64()))
        }
        _ => None,
    }
}

fn truncated_double(d: f64) -> Option<i64> {
    // 2^63 is exact as a double; i64::MAX is not.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if d.is_finite() && (-LIMIT..LIMIT).contains(&d) { Some(d.trunc() as i64) } else { None }
}

/// The operand of an operator as a whole number; the error says what else it was.
pub(crate) fn parse(name: &str, value: RawBsonRef<'_>) -> Result<i64> {
    let element = || format!("{name}: {}", display(value));
    match value {
        RawBsonRef::Int32(i) => Ok(i64::from(i)),
        RawBsonRef::Int64(i) => Ok(i),
        RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
            if let Some(i) = exact(value) {
                return Ok(i);
            }
            let d = Number::from_raw(value).map_or(f64::NAN, |n| n.to_f64());
            Err(Error::failed_to_parse(if d.is_nan() {
                format!("Expected an integer, but found NaN in: {}", element())
            } else if truncated_double(d).is_none() {
                format!("Cannot represent as a 64-bit integer: {}", element())
            } else {
                format!("Expected an integer: {}", element())
            }))
        }
        _ => Err(Error::failed_to_parse(format!("Expected a number in: {}", element()))),
    }
}

/// The same, and not below zero.
pub(crate) fn parse_non_negative(name: &str, value: RawBsonRef<'_>) -> Result<i64> {
    match parse(name, value)? {
        i if i < 0 => {
            Err(Error::failed_to_parse(format!("Expected a non-negative number in: {name}: {}", display(value))))
        }
        i => Ok(i),
    }
}

/// A value as it is shown in an error message.
pub(crate) fn display(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::Double(d) if d.is_finite() && d.fract() == 0.0 && d.abs() < 1e15 => format!("{d:.1}"),
        RawBsonRef::Double(d) if d.is_nan() => "nan.0".into(),
        RawBsonRef::Double(d) if d.is_infinite() => if d > 0.0 { "inf.0" } else { "-inf.0" }.into(),
        other => Bson::try_from(other).map_or_else(|_| "?".into(), |value| value.to_string()),
    }
}
