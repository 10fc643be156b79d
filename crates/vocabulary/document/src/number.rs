//! The four numeric types as one: exact comparison, and arithmetic with MongoDB's promotions.
//!
//! Invariants: comparison is by exact value across types, NaN lowest and equal to itself, `-0.0` equal to `0`; the
//! result's type is the wider operand's (int32 < int64 < double < decimal), except that int32 widens to int64 and int64
//! to double where the result does not fit. A double meets a decimal rounded to 15 digits.

use crate::decimal::{Decimal, Rounding};
use baton_types::{Error, Result};
use bson::{Bson, RawBsonRef};
use std::cmp::Ordering;

/// A numeric BSON value.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A 32-bit integer.
    Int32(i32),
    /// A 64-bit integer.
    Int64(i64),
    /// A double.
    Double(f64),
    /// A decimal128.
    Decimal(Decimal),
}

use Number::{Double, Int32, Int64};

impl Number {
    /// The number in a value, if it is one.
    pub fn from_raw(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Int32(n) => Some(Int32(n)),
            RawBsonRef::Int64(n) => Some(Int64(n)),
            RawBsonRef::Double(n) => Some(Double(n)),
            RawBsonRef::Decimal128(n) => Some(Self::Decimal(n.into())),
            _ => None,
        }
    }

    /// The number in a value, if it is one.
    pub fn from_bson(value: &Bson) -> Option<Self> {
        match value {
            Bson::Int32(n) => Some(Int32(*n)),
            Bson::Int64(n) => Some(Int64(*n)),
            Bson::Double(n) => Some(Double(*n)),
            Bson::Decimal128(n) => Some(Self::Decimal((*n).into())),
            _ => None,
        }
    }

    /// The value, in the same type.
    pub fn to_bson(self) -> Bson {
        match self {
            Int32(n) => Bson::Int32(n),
            Int64(n) => Bson::Int64(n),
            Double(n) => Bson::Double(n),
            Self::Decimal(n) => Bson::Decimal128(n.into()),
        }
    }

    /// The value, in the same type.
    pub fn to_raw(self) -> RawBsonRef<'static> {
        match self {
            Int32(n) => RawBsonRef::Int32(n),
            Int64(n) => RawBsonRef::Int64(n),
            Double(n) => RawBsonRef::Double(n),
            Self::Decimal(n) => RawBsonRef::Decimal128(n.into()),
        }
    }

    /// Compares by exact value.
    pub fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Int32(a), Int32(b)) => a.cmp(&b),
            (Double(a), Double(b)) => compare_f64(a, b),
            (Self::Decimal(a), Self::Decimal(b)) => a.compare(b),
            (Self::Decimal(a), Double(b)) => a.compare_f64(b),
            (Double(a), Self::Decimal(b)) => b.compare_f64(a).reverse(),
            (Self::Decimal(a), b) => a.compare_i64(b.integer()),
            (a, Self::Decimal(b)) => b.compare_i64(a.integer()).reverse(),
            (Double(a), b) => compare_i64_f64(b.integer(), a).reverse(),
            (a, Double(b)) => compare_i64_f64(a.integer(), b),
            (a, b) => a.integer().cmp(&b.integer()),
        }
    }

    /// The integer in `Int32` and `Int64`; only called for those.
    fn integer(self) -> i64 {
        match self {
            Int32(n) => i64::from(n),
            Int64(n) => n,
            Double(_) | Self::Decimal(_) => 0,
        }
    }

    /// The sum (`$add`, `$sum`).
    #[expect(clippy::should_implement_trait)] // named as its siblings, none of which is an operator
    pub fn add(self, other: Self) -> Self {
        self.arithmetic(other, i64::checked_add, |a, b| a + b, Decimal::add)
    }

    /// The difference (`$subtract`).
    pub fn subtract(self, other: Self) -> Self {
        self.arithmetic(other, i64::checked_sub, |a, b| a - b, Decimal::subtract)
    }

    /// The product (`$multiply`).
    pub fn multiply(self, other: Self) -> Self {
        self.arithmetic(other, i64::checked_mul, |a, b| a * b, Decimal::multiply)
    }

    /// The sum, or `None` where 64-bit integers overflow (`$inc` refuses there rather than turn to a double).
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.refuse_overflow(other, self.add(other))
    }

    /// The product, or `None` where 64-bit integers overflow (`$mul` refuses there).
    pub fn checked_multiply(self, other: Self) -> Option<Self> {
        self.refuse_overflow(other, self.multiply(other))
    }

    fn refuse_overflow(self, other: Self, result: Self) -> Option<Self> {
        let integers = self.is_integer_type() && other.is_integer_type();
        if integers && matches!(result, Double(_)) { None } else { Some(result) }
    }

    fn arithmetic(
        self,
        other: Self,
        integer: fn(i64, i64) -> Option<i64>,
        double: fn(f64, f64) -> f64,
        decimal: fn(Decimal, Decimal) -> Decimal,
    ) -> Self {
        match (self, other) {
            (Self::Decimal(_), _) | (_, Self::Decimal(_)) => {
                Self::Decimal(decimal(self.to_decimal(), other.to_decimal()))
            }
            (Double(_), _) | (_, Double(_)) => Double(double(self.to_f64(), other.to_f64())),
            (a, b) => match integer(a.integer(), b.integer()) {
                Some(n) if matches!((a, b), (Int32(_), Int32(_))) => i32::try_from(n).map_or(Int64(n), Int32),
                Some(n) => Int64(n),
                None => Double(double(a.to_f64(), b.to_f64())),
            },
        }
    }

    /// The quotient (`$divide`): a double, or a decimal if either is one. Code 2 on division by zero.
    pub fn divide(self, other: Self) -> Result<Self> {
        if other.is_zero() {
            return Err(Error::bad_value("can't $divide by zero"));
        }
        Ok(match (self, other) {
            (Self::Decimal(_), _) | (_, Self::Decimal(_)) => {
                Self::Decimal(self.to_decimal().divide(other.to_decimal()))
            }
            (a, b) => Double(a.to_f64() / b.to_f64()),
        })
    }

    /// The remainder with the dividend's sign (`$mod`). Code 16610 on division by zero.
    pub fn modulo(self, other: Self) -> Result<Self> {
        if other.is_zero() {
            return Err(Error::location(16610, "can't $mod by zero"));
        }
        Ok(match (self, other) {
            (Self::Decimal(_), _) | (_, Self::Decimal(_)) => {
                Self::Decimal(self.to_decimal().remainder(other.to_decimal()))
            }
            (Double(_), _) | (_, Double(_)) => Double(self.to_f64() % other.to_f64()),
            // Wrapping, for the one overflow there is: the least integer by -1, whose remainder is 0.
            (Int32(a), Int32(b)) => Int32(a.wrapping_rem(b)),
            (a, b) => Int64(a.integer().wrapping_rem(b.integer())),
        })
    }

    /// The value with the other sign; the least integer of a width moves to the next type.
    pub fn negate(self) -> Self {
        match self {
            Int32(n) => n.checked_neg().map_or(Int64(-i64::from(n)), Int32),
            Int64(n) => n.checked_neg().map_or(Double(-(n as f64)), Int64),
            Double(n) => Double(-n),
            Self::Decimal(n) => Self::Decimal(n.negate()),
        }
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Int32(n) => f64::from(n),
            Int64(n) => n as f64,
            Double(n) => n,
            Self::Decimal(n) => n.to_f64(),
        }
    }

    /// The decimal; a double is rounded to 15 digits.
    pub fn to_decimal(self) -> Decimal {
        match self {
            Int32(n) => n.into(),
            Int64(n) => n.into(),
            Double(n) => Decimal::from_f64(n),
            Self::Decimal(n) => n,
        }
    }

    /// The integer, if the value is one and fits.
    pub fn to_i64_exact(self) -> Option<i64> {
        match self {
            Int32(n) => Some(i64::from(n)),
            Int64(n) => Some(n),
            Double(n) => f64_to_i64_exact(n),
            Self::Decimal(n) => n.to_i64_exact(),
        }
    }

    /// The integer, if the value is one and fits into 32 bits.
    pub fn to_i32_exact(self) -> Option<i32> {
        self.to_i64_exact().and_then(|n| i32::try_from(n).ok())
    }

    /// The integer, clamped to 64 bits; NaN is 0. MongoDB's lenient reading of numeric options: a double is cut towards
    /// zero, a decimal rounded half to even.
    pub fn to_i64_lossy(self) -> i64 {
        match self {
            Int32(n) => i64::from(n),
            Int64(n) => n,
            Double(n) => n as i64,
            Self::Decimal(n) if n.is_nan() => 0,
            Self::Decimal(n) => {
                n.to_i64_rounded(Rounding::HalfEven).unwrap_or(if n.is_negative() { i64::MIN } else { i64::MAX })
            }
        }
    }

    /// Whether the value is a whole number (of any type and size).
    pub fn is_integral(self) -> bool {
        match self {
            Int32(_) | Int64(_) => true,
            Double(n) => n.is_finite() && n.trunc() == n,
            Self::Decimal(n) => n.is_finite() && n.round_to(0, Rounding::Truncate).compare(n) == Ordering::Equal,
        }
    }

    /// Whether the type is one of the integers'.
    pub fn is_integer_type(self) -> bool {
        matches!(self, Int32(_) | Int64(_))
    }

    /// Whether the value is zero, of either sign.
    pub fn is_zero(self) -> bool {
        match self {
            Int32(n) => n == 0,
            Int64(n) => n == 0,
            Double(n) => n == 0.0,
            Self::Decimal(n) => n.is_zero(),
        }
    }

    /// Whether the value is not a number.
    pub fn is_nan(self) -> bool {
        match self {
            Int32(_) | Int64(_) => false,
            Double(n) => n.is_nan(),
            Self::Decimal(n) => n.is_nan(),
        }
    }

    /// Whether the value is neither NaN nor infinite.
    pub fn is_finite(self) -> bool {
        match self {
            Int32(_) | Int64(_) => true,
            Double(n) => n.is_finite(),
            Self::Decimal(n) => n.is_finite(),
        }
    }

    /// Whether the value is below zero (`-0.0` is not, NaN is not).
    pub fn is_negative(self) -> bool {
        match self {
            Int32(n) => n < 0,
            Int64(n) => n < 0,
            Double(n) => n < 0.0,
            Self::Decimal(n) => n.is_negative() && !n.is_zero() && !n.is_nan(),
        }
    }
}

/// By value, NaN lowest.
fn compare_f64(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// By exact value: neither operand is rounded to the other's type.
fn compare_i64_f64(a: i64, b: f64) -> Ordering {
    const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
    if b.is_nan() {
        return Ordering::Greater;
    }
    if b >= TWO_POW_63 {
        return Ordering::Less;
    }
    if b < -TWO_POW_63 {
        return Ordering::Greater;
    }
    let whole = b as i64;
    a.cmp(&whole).then_with(|| {
        let fraction = b - whole as f64;
        0.0f64.partial_cmp(&fraction).unwrap_or(Ordering::Equal)
    })
}

fn f64_to_i64_exact(value: f64) -> Option<i64> {
    let whole = value as i64;
    // The cast saturates, and `i64::MAX as f64` rounds up to 2^63, which is out of range.
    if whole as f64 == value && whole != i64::MAX { Some(whole) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Number {
        Number::Decimal(Decimal::parse(text).unwrap())
    }

    #[test]
    fn integers_and_doubles_compare_without_rounding() {
        let big = (1i64 << 53) + 1;
        assert_eq!(Int64(big).compare(Double((1i64 << 53) as f64)), Ordering::Greater);
        assert_eq!(Int64(i64::MAX).compare(Double(9_223_372_036_854_775_808.0)), Ordering::Less);
        assert_eq!(Int64(i64::MIN).compare(Double(-9_223_372_036_854_775_808.0)), Ordering::Equal);
        assert_eq!(Int32(-1).compare(Double(-1.5)), Ordering::Greater);
        assert_eq!(Double(-0.0).compare(Int32(0)), Ordering::Equal);
        assert_eq!(Double(f64::NAN).compare(Double(f64::NEG_INFINITY)), Ordering::Less);
        assert_eq!(decimal("NaN").compare(Double(f64::NAN)), Ordering::Equal);
        assert_eq!(decimal("9223372036854775807").compare(Int64(i64::MAX)), Ordering::Equal);
        assert_eq!(decimal("9223372036854775807.1").compare(Int64(i64::MAX)), Ordering::Greater);
    }

    #[test]
    fn int32_overflows_into_int64_and_int64_into_double() {
        assert!(matches!(Int32(1).add(Int32(2)), Int32(3)));
        assert!(matches!(Int32(i32::MAX).add(Int32(1)), Int64(2_147_483_648)));
        assert!(matches!(Int64(1).add(Int32(1)), Int64(2)));
        assert!(matches!(Int64(i64::MAX).add(Int32(1)), Double(n) if n == 9_223_372_036_854_775_808.0));
        assert!(matches!(Int32(i32::MIN).multiply(Int32(-1)), Int64(2_147_483_648)));
        assert!(matches!(Int64(i64::MIN).subtract(Int64(1)), Double(_)));
        assert!(Int64(i64::MAX).checked_add(Int64(1)).is_none());
        assert!(Int64(i64::MAX).checked_multiply(Int32(2)).is_none());
        assert!(matches!(Double(0.5).checked_add(Int32(1)), Some(Double(1.5))));
    }

    #[test]
    fn a_double_meets_a_decimal_with_fifteen_digits() {
        assert_eq!(decimal("1").add(Double(0.1)).to_bson().to_string(), "1.100000000000000");
        assert_eq!(decimal("2").multiply(Int32(3)).to_bson().to_string(), "6");
    }

    #[test]
    fn division_and_remainder_follow_mongodb() {
        assert!(matches!(Int32(6).divide(Int32(3)), Ok(Double(2.0))));
        assert_eq!(Int32(1).divide(Double(-0.0)).unwrap_err().code.0, 2);
        assert_eq!(Int32(1).modulo(Int64(0)).unwrap_err().code.0, 16610);
        assert!(matches!(Int32(-7).modulo(Int32(3)), Ok(Int32(-1))));
        assert!(matches!(Int64(i64::MIN).modulo(Int32(-1)), Ok(Int64(0))));
        assert!(matches!(Double(5.5).modulo(Int32(2)), Ok(Double(1.5))));
    }

    #[test]
    fn exact_conversion_refuses_what_does_not_fit() {
        assert_eq!(Double(3.0).to_i64_exact(), Some(3));
        assert_eq!(Double(3.5).to_i64_exact(), None);
        assert_eq!(Double(9_223_372_036_854_775_808.0).to_i64_exact(), None);
        assert_eq!(Double(f64::NAN).to_i64_exact(), None);
        assert_eq!(decimal("1E+3").to_i64_exact(), Some(1000));
        assert_eq!(decimal("-9223372036854775808").to_i64_exact(), Some(i64::MIN));
        assert_eq!(decimal("1E+30").to_i64_exact(), None);
        assert_eq!(decimal("1E+300").to_i64_lossy(), i64::MAX);
        assert_eq!(decimal("-2.9").to_i64_lossy(), -3);
        assert_eq!((decimal("2.5").to_i64_lossy(), decimal("3.5").to_i64_lossy()), (2, 4));
        assert_eq!(Double(2.9).to_i64_lossy(), 2);
    }
}
