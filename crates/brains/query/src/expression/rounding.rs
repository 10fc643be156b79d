//! `$round` and `$trunc`, to a place.
//!
//! Doubles are rounded in decimal, half to even, so that what looks like a tie counts as one only if it is.

use super::node::{Argument, Arguments};
use super::value::{self, Value};
use baton_document::decimal::{Decimal, Rounding};
use baton_document::number::Number;
use baton_types::{Error, Result};
use bson::Bson;

/// `{$round: [a, place]}`.
pub(crate) fn round(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    to_place(name, arguments, Rounding::HalfEven, f64::round_ties_even)
}

/// `{$trunc: [a, place]}`.
pub(crate) fn trunc(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    to_place(name, arguments, Rounding::Truncate, f64::trunc)
}

fn to_place(name: &str, arguments: &[Argument<'_>], rounding: Rounding, whole: fn(f64) -> f64) -> Result<Value> {
    let subject = arguments[0].as_ref();
    if value::is_nullish(subject) || arguments.get(1).is_some_and(|place| value::is_nullish(place)) {
        return Ok(Some(Bson::Null));
    }
    let Some(number) = value::number(subject) else {
        return Err(Error::location(
            51081,
            format!("{name} only supports numeric types, not {}", value::type_name(subject)),
        ));
    };
    let place = match arguments.get(1) {
        Some(place) => checked_place(name, place)?,
        None => 0,
    };
    Ok(Some(match number {
        Number::Int32(_) | Number::Int64(_) if place >= 0 => number.to_bson(),
        Number::Int32(integer) => value::narrow(rounded(name, i64::from(integer), place, rounding, arguments)?),
        Number::Int64(integer) => Bson::Int64(rounded(name, integer, place, rounding, arguments)?),
        Number::Double(double) if place == 0 || !double.is_finite() => Bson::Double(whole(double)),
        Number::Double(double) => Bson::Double(Decimal::from_f64_full(double).round_to(place, rounding).to_f64()),
        Number::Decimal(decimal) => Number::Decimal(decimal.quantize(place, rounding)).to_bson(),
    }))
}

fn checked_place(name: &str, place: &Value) -> Result<i32> {
    let Some(number) = value::int_exact(place) else {
        return Err(Error::location(51082, format!("precision argument to  {name} must be a integral value")));
    };
    if (-20..=100).contains(&number) {
        return Ok(number);
    }
    Err(Error::location(
        51083,
        format!("cannot apply {name} with precision value {number} value must be in [-20, 100]"),
    ))
}

fn rounded(name: &str, integer: i64, place: i32, rounding: Rounding, arguments: &[Argument<'_>]) -> Result<i64> {
    Decimal::from(integer).round_to(place, rounding).to_i64_exact().ok_or_else(|| {
        let shown: Vec<String> = arguments.iter().map(|argument| value::display(argument)).collect();
        Error::location(
            51080,
            format!(
                "invalid conversion from Decimal128 result in {name} resulting from arguments: [{}]",
                shown.join(",")
            ),
        )
    })
}
