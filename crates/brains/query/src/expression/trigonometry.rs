//! Trigonometry, in doubles. A decimal argument is refused: rounding it to a double would lose digits silently.

use super::arithmetic::{one_number, two_numbers};
use super::node::{Argument, Arguments};
use super::value::{self, Value};
use baton_document::number::Number;
use baton_types::{Error, ErrorCode, Result};
use bson::Bson;
use std::ops::RangeInclusive;

const ANY: RangeInclusive<f64> = f64::NEG_INFINITY..=f64::INFINITY;
/// The infinities have no sine.
const FINITE: RangeInclusive<f64> = f64::MIN..=f64::MAX;
const UNIT: RangeInclusive<f64> = -1.0..=1.0;

fn apply(
    name: &str,
    arguments: &[Argument<'_>],
    domain: RangeInclusive<f64>,
    function: fn(f64) -> f64,
) -> Result<Value> {
    let Some(number) = one_number(name, arguments)? else { return Ok(Some(Bson::Null)) };
    let argument = as_double(name, number)?;
    if argument.is_nan() || domain.contains(&argument) {
        return Ok(Some(Bson::Double(function(argument))));
    }
    let (low, high) = if domain == FINITE { (ANY, "(") } else { (domain, "[") };
    let close = if high == "(" { ")" } else { "]" };
    Err(Error::location(
        50989,
        format!(
            "cannot apply {name} to {}, value must be in {high}{},{}{close}",
            value::double_text(argument),
            bound(*low.start()),
            bound(*low.end())
        ),
    ))
}

fn bound(limit: f64) -> String {
    if limit.is_infinite() { if limit > 0.0 { "inf" } else { "-inf" }.to_owned() } else { value::double_text(limit) }
}

fn as_double(name: &str, number: Number) -> Result<f64> {
    match number {
        Number::Decimal(_) => Err(Error::not_implemented(format!("{name} of a decimal"))),
        other => Ok(other.to_f64()),
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $domain:expr, $function:expr;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
            apply(name, arguments, $domain, $function)
        })*
    };
}

functions! {
    /// `{$acos: a}`.
    acos UNIT, f64::acos;
    /// `{$acosh: a}`.
    acosh 1.0..=f64::INFINITY, f64::acosh;
    /// `{$asin: a}`.
    asin UNIT, f64::asin;
    /// `{$asinh: a}`.
    asinh ANY, f64::asinh;
    /// `{$atan: a}`.
    atan ANY, f64::atan;
    /// `{$atanh: a}`.
    atanh UNIT, f64::atanh;
    /// `{$cos: a}`.
    cos FINITE, f64::cos;
    /// `{$cosh: a}`.
    cosh ANY, f64::cosh;
    /// `{$degreesToRadians: a}`.
    degrees_to_radians ANY, f64::to_radians;
    /// `{$radiansToDegrees: a}`.
    radians_to_degrees ANY, f64::to_degrees;
    /// `{$sin: a}`.
    sin FINITE, f64::sin;
    /// `{$sinh: a}`.
    sinh ANY, f64::sinh;
    /// `{$tan: a}`.
    tan FINITE, f64::tan;
    /// `{$tanh: a}`.
    tanh ANY, f64::tanh;
}

/// `{$atan2: [y, x]}`.
pub(crate) fn atan2(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match two_numbers(name, arguments, ErrorCode(51044))? {
        Some((y, x)) => Ok(Some(Bson::Double(as_double(name, y)?.atan2(as_double(name, x)?)))),
        None => Ok(Some(Bson::Null)),
    }
}
