//! `$mod`: the remainder of a whole-number division.
//!
//! Invariants: the divisor is never zero; operands and values are cut to whole numbers towards zero; what is no number,
//! or does not fit 64 bits, never matches.

use super::integer;
use baton_document::number::Number;
use baton_types::{Error, Result};
use bson::RawBsonRef;

/// The operand of `$mod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modulo {
    /// What is divided by.
    pub divisor: i64,
    /// What must be left.
    pub remainder: i64,
}

impl Modulo {
    /// Parses `[divisor, remainder]`.
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let RawBsonRef::Array(array) = value else {
            return Err(Error::bad_value("malformed mod, needs to be an array"));
        };
        let mut operands = array.into_iter();
        let (Some(divisor), Some(remainder)) = (operands.next(), operands.next()) else {
            return Err(Error::bad_value("malformed mod, not enough elements"));
        };
        if operands.next().is_some() {
            return Err(Error::bad_value("malformed mod, too many elements"));
        }
        let divisor = operand("divisor", divisor?)?;
        let remainder = operand("remainder", remainder?)?;
        if divisor == 0 {
            return Err(Error::bad_value("divisor cannot be 0"));
        }
        Ok(Self { divisor, remainder })
    }

    /// Whether a value leaves the remainder.
    pub fn test(&self, value: Option<RawBsonRef<'_>>) -> bool {
        // i64::MIN % -1 overflows; its remainder is zero.
        value
            .and_then(integer::truncated)
            .is_some_and(|dividend| dividend.checked_rem(self.divisor).unwrap_or(0) == self.remainder)
    }
}

fn operand(role: &str, value: RawBsonRef<'_>) -> Result<i64> {
    let Some(number) = Number::from_raw(value) else {
        return Err(Error::bad_value(format!("malformed mod, {role} not a number")));
    };
    integer::truncated(value).ok_or_else(|| {
        let d = number.to_f64();
        let cause = if d.is_nan() {
            "NaN is an invalid argument"
        } else if d.is_infinite() {
            "Infinity is an invalid argument"
        } else {
            "Out of bounds coercing to integral value"
        };
        Error::bad_value(format!("malformed mod, {role} value is invalid :: caused by :: {cause}"))
    })
}
