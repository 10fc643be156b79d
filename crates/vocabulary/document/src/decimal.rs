//! IEEE 754 decimal128 as BSON stores it: the binary integer (BID) encoding, exact comparison, and arithmetic.
//!
//! The encoding is taken apart and put together here; sums, products and quotients go through the `dec` crate, which
//! speaks the other encoding (densely packed). Invariants: comparison and conversion to integers are exact; everything
//! else rounds half to even to 34 digits, as MongoDB does. A coefficient of more than 34 digits (possible in the bits,
//! forbidden by the standard) reads as zero. NaN payloads are not kept by arithmetic.

use num_bigint::BigUint;
use std::cmp::Ordering;
use std::fmt;

/// The most digits a coefficient has.
pub const DIGITS_MAX: u32 = 34;
/// The smallest exponent of the coefficient's last digit.
pub const EXPONENT_MIN: i32 = -6176;
/// The largest exponent of the coefficient's last digit.
pub const EXPONENT_MAX: i32 = 6111;
const COEFFICIENT_MAX: u128 = 10u128.pow(DIGITS_MAX) - 1;
const SIGN_BIT: u128 = 1 << 127;

/// A decimal128, with arithmetic. Holds BSON's bits unchanged, so that it round-trips.
///
/// Equality by `==` is equality of bits (`1.0` and `1.00` differ); use [`Decimal::compare`] for values.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal(u128);

/// A decimal taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// `coefficient · 10^exponent`, negated if `negative`; zero has a sign and an exponent too.
    Finite {
        /// The sign.
        negative: bool,
        /// At most 34 digits.
        coefficient: u128,
        /// Between [`EXPONENT_MIN`] and [`EXPONENT_MAX`].
        exponent: i32,
    },
    /// An infinity.
    Infinity {
        /// The sign.
        negative: bool,
    },
    /// Not a number.
    NaN,
}

/// How a decimal is brought to fewer digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to the even neighbour.
    HalfEven,
    /// Towards zero.
    Truncate,
    /// Towards negative infinity.
    Floor,
    /// Towards positive infinity.
    Ceiling,
}

impl Decimal {
    /// Zero, with exponent 0.
    pub const ZERO: Self = Self::finite(false, 0, 0);
    /// One.
    pub const ONE: Self = Self::finite(false, 1, 0);
    /// Not a number.
    pub const NAN: Self = Self(0x1f << 122);
    /// Positive infinity.
    pub const INFINITY: Self = Self(0x1e << 122);
    /// Negative infinity.
    pub const NEG_INFINITY: Self = Self(SIGN_BIT | 0x1e << 122);
    /// The largest finite value.
    pub const MAX: Self = Self::finite(false, COEFFICIENT_MAX, EXPONENT_MAX);
    /// The smallest (most negative) finite value.
    pub const MIN: Self = Self::finite(true, COEFFICIENT_MAX, EXPONENT_MAX);

    /// From the sixteen bytes of a BSON value.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The sixteen bytes of a BSON value.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// The caller keeps the ranges: the coefficient below 10^34, the exponent between the two limits.
    const fn finite(negative: bool, coefficient: u128, exponent: i32) -> Self {
        let sign = if negative { SIGN_BIT } else { 0 };
        Self(sign | ((exponent - EXPONENT_MIN) as u128) << 113 | coefficient)
    }

    /// The nearest decimal to `coefficient · 10^exponent`: rounded if it has too many digits, infinite if too large.
    pub fn from_scaled(negative: bool, coefficient: u128, exponent: i32) -> Self {
        if coefficient <= COEFFICIENT_MAX && (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent) {
            return Self::finite(negative, coefficient, exponent);
        }
        let sign = if negative { "-" } else { "" };
        Self::parse(&format!("{sign}{coefficient}E{exponent}")).unwrap_or(Self::NAN)
    }

    /// Takes the value apart.
    pub const fn parts(self) -> Parts {
        let negative = self.0 & SIGN_BIT != 0;
        let combination = (self.0 >> 122) & 0x1f;
        if combination == 0x1f {
            return Parts::NaN;
        }
        if combination == 0x1e {
            return Parts::Infinity { negative };
        }
        if combination >> 3 == 3 {
            // The long form, whose coefficient always exceeds 34 digits.
            let exponent = ((self.0 >> 111) & 0x3fff) as i32 + EXPONENT_MIN;
            return Parts::Finite { negative, coefficient: 0, exponent };
        }
        let exponent = ((self.0 >> 113) & 0x3fff) as i32 + EXPONENT_MIN;
        let coefficient = self.0 & ((1 << 113) - 1);
        let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
        Parts::Finite { negative, coefficient, exponent }
    }

    /// Parses what MongoDB parses: digits with a point and an exponent, `NaN`, `Infinity`, `-inf` and so on; rounds to
    /// 34 digits. `None` if it is none of these.
    pub fn parse(text: &str) -> Option<Self> {
        let mut context = dec::Context::<dec::Decimal128>::default();
        context.parse(text).ok().map(from_dec)
    }

    /// The double rounded to 15 significant digits: how MongoDB turns a double into a decimal when they meet.
    pub fn from_f64(value: f64) -> Self {
        Self::from_f64_digits(value, 15)
    }

    /// The double itself where 34 digits can hold it, with no more of them than it takes; else rounded to 34.
    pub fn from_f64_full(value: f64) -> Self {
        if !value.is_finite() || value == 0.0 {
            return Self::from_f64(value);
        }
        let (mantissa, power) = decompose(value);
        let shift = mantissa.trailing_zeros();
        let (mantissa, power) = (u128::from(mantissa >> shift), power + shift as i32);
        // An integer, or as many digits after the point as there are binary ones.
        let exact = match u32::try_from(power) {
            Ok(power) => {
                2u128.checked_pow(power).and_then(|factor| factor.checked_mul(mantissa)).map(|whole| (whole, 0))
            }
            Err(_) => 5u128
                .checked_pow(power.unsigned_abs())
                .and_then(|factor| factor.checked_mul(mantissa))
                .map(|coefficient| (coefficient, power)),
        };
        match exact {
            Some((coefficient, exponent)) if coefficient <= COEFFICIENT_MAX => {
                Self::finite(value < 0.0, coefficient, exponent)
            }
            _ => Self::from_f64_digits(value, DIGITS_MAX as usize),
        }
    }

    fn from_f64_digits(value: f64, digits: usize) -> Self {
        if value.is_nan() {
            return Self::NAN;
        }
        if value.is_infinite() {
            return if value < 0.0 { Self::NEG_INFINITY } else { Self::INFINITY };
        }
        if value == 0.0 {
            return Self::finite(value.is_sign_negative(), 0, 0);
        }
        // The standard library prints the exact value, correctly rounded to any number of digits.
        let text = format!("{:.*e}", digits - 1, value.abs());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let coefficient =
            mantissa.bytes().filter(u8::is_ascii_digit).fold(0u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
        let exponent = exponent.parse::<i32>().unwrap_or(0) - (digits as i32 - 1);
        Self::from_scaled(value < 0.0, coefficient, exponent)
    }

    /// The nearest double, ties to even; infinite if too large.
    pub fn to_f64(self) -> f64 {
        match self.parts() {
            Parts::NaN => f64::NAN,
            Parts::Infinity { negative: true } => f64::NEG_INFINITY,
            Parts::Infinity { negative: false } => f64::INFINITY,
            Parts::Finite { negative, coefficient, exponent } => {
                let magnitude = if exponent == 0 && coefficient < 1 << 53 {
                    coefficient as f64
                } else {
                    format!("{coefficient}e{exponent}").parse().unwrap_or(f64::NAN)
                };
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    /// The value as an integer, if it is one and fits.
    pub fn to_i64_exact(self) -> Option<i64> {
        let Parts::Finite { negative, coefficient, exponent } = self.parts() else { return None };
        let (whole, exact) = split(coefficient, exponent)?;
        let signed = if negative { -i128::try_from(whole).ok()? } else { i128::try_from(whole).ok()? };
        if exact { i64::try_from(signed).ok() } else { None }
    }

    /// The value rounded to an integer, if it fits.
    pub fn to_i64_rounded(self, rounding: Rounding) -> Option<i64> {
        self.round_to(0, rounding).to_i64_exact()
    }

    /// Rounds to `places` digits after the point (before it, if negative). What has fewer digits stays as it is.
    pub fn round_to(self, places: i32, rounding: Rounding) -> Self {
        let Parts::Finite { negative, coefficient, exponent } = self.parts() else { return self };
        let target = places.saturating_neg().clamp(EXPONENT_MIN, EXPONENT_MAX);
        if exponent >= target {
            return self;
        }
        let dropped_digits = (target - exponent) as u32;
        let (kept, rest, half) = match 10u128.checked_pow(dropped_digits) {
            Some(unit) if dropped_digits <= DIGITS_MAX => (coefficient / unit, coefficient % unit, unit / 2),
            _ => (0, coefficient, u128::MAX),
        };
        let up = match rounding {
            Rounding::Truncate => false,
            Rounding::Floor => negative && rest > 0,
            Rounding::Ceiling => !negative && rest > 0,
            Rounding::HalfEven => rest > half || (rest == half && !kept.is_multiple_of(2)),
        };
        Self::from_scaled(negative, kept + u128::from(up), target)
    }

    /// The same value with as many digits as there can be: 34, unless the exponent is as low as it can be.
    pub fn normalized(self) -> Self {
        let Parts::Finite { negative, coefficient, exponent } = self.parts() else { return self };
        let digits = coefficient.checked_ilog10().map_or(0, |digits| digits + 1);
        let room = if coefficient == 0 { u32::MAX } else { DIGITS_MAX - digits };
        let shift = room.min((exponent - EXPONENT_MIN).unsigned_abs());
        Self::finite(
            negative,
            if coefficient == 0 { 0 } else { coefficient * 10u128.pow(shift) },
            exponent - shift as i32,
        )
    }

    /// Rounds to `places` digits after the point (before it, if negative), and has just as many: zeros are appended. With
    /// 34 digits where there would be more. This is how MongoDB rounds in expressions.
    pub fn quantize(self, places: i32, rounding: Rounding) -> Self {
        let target = places.saturating_neg().clamp(EXPONENT_MIN, EXPONENT_MAX);
        let normalized = self.normalized();
        let Parts::Finite { negative, coefficient, exponent } = self.round_to(places, rounding).parts() else {
            return self;
        };
        match normalized.parts() {
            // Every digit stands before the place.
            Parts::Finite { exponent, .. } if exponent > target => normalized,
            _ => {
                let zeros = 10u128.checked_pow((exponent - target).max(0).unsigned_abs());
                let padded = zeros.and_then(|zeros| coefficient.checked_mul(zeros));
                match padded.filter(|padded| *padded <= COEFFICIENT_MAX) {
                    Some(padded) => Self::finite(negative, padded, exponent.min(target)),
                    None if coefficient == 0 => Self::finite(negative, 0, target),
                    None => normalized,
                }
            }
        }
    }

    /// Whether it is NaN.
    pub fn is_nan(self) -> bool {
        matches!(self.parts(), Parts::NaN)
    }

    /// Whether it is neither NaN nor an infinity.
    pub fn is_finite(self) -> bool {
        matches!(self.parts(), Parts::Finite { .. })
    }

    /// Whether it is a zero of either sign.
    pub fn is_zero(self) -> bool {
        matches!(self.parts(), Parts::Finite { coefficient: 0, .. })
    }

    /// Whether the sign bit is set (also on `-0`).
    pub fn is_negative(self) -> bool {
        self.0 & SIGN_BIT != 0
    }

    /// The value with the other sign.
    pub fn negate(self) -> Self {
        Self(self.0 ^ SIGN_BIT)
    }

    /// The value without its sign.
    pub fn abs(self) -> Self {
        Self(self.0 & !SIGN_BIT)
    }

    /// The sum.
    #[expect(clippy::should_implement_trait)] // named as its siblings, none of which is an operator
    pub fn add(self, other: Self) -> Self {
        from_dec(to_dec(self) + to_dec(other))
    }

    /// The difference.
    pub fn subtract(self, other: Self) -> Self {
        from_dec(to_dec(self) - to_dec(other))
    }

    /// The product.
    pub fn multiply(self, other: Self) -> Self {
        from_dec(to_dec(self) * to_dec(other))
    }

    /// The quotient; infinite or NaN on division by zero.
    pub fn divide(self, other: Self) -> Self {
        from_dec(to_dec(self) / to_dec(other))
    }

    /// The remainder of the division truncated towards zero, with the dividend's sign, exact however far the two lie
    /// apart (the `dec` crate gives up when the quotient has more than 34 digits).
    pub fn remainder(self, other: Self) -> Self {
        let (Parts::Finite { negative, coefficient, exponent }, divisor) = (self.parts(), other.parts()) else {
            return Self::NAN;
        };
        let (divisor, divisor_exponent) = match divisor {
            Parts::NaN | Parts::Finite { coefficient: 0, .. } => return Self::NAN,
            Parts::Infinity { .. } => return self,
            Parts::Finite { coefficient, exponent, .. } => (coefficient, exponent),
        };
        let low = exponent.min(divisor_exponent);
        let rest = if exponent >= divisor_exponent {
            let divisor = BigUint::from(divisor);
            let scale = BigUint::from(10u8).modpow(&BigUint::from((exponent - low) as u32), &divisor);
            BigUint::from(coefficient) * scale % divisor
        } else if divisor_exponent - exponent > DIGITS_MAX as i32 {
            return self;
        } else {
            BigUint::from(coefficient) % (BigUint::from(divisor) * pow10(divisor_exponent - low))
        };
        // The rest is below one of the two coefficients, so it fits.
        Self::from_scaled(negative, u128::try_from(&rest).unwrap_or(0), low)
    }

    /// Compares by value: NaN lowest and equal to itself, `-0` equal to `0`, trailing zeros without meaning.
    pub fn compare(self, other: Self) -> Ordering {
        let (a, b) = (self.parts(), other.parts());
        let (class_a, class_b) = (class(a), class(b));
        if class_a != class_b {
            return class_a.cmp(&class_b);
        }
        let (Parts::Finite { negative, .. }, Some(a), Some(b)) = (a, normalise(a), normalise(b)) else {
            return Ordering::Equal;
        };
        if negative { b.cmp(&a) } else { a.cmp(&b) }
    }

    /// Compares with a double by exact value; NaN of either kind is lowest.
    pub fn compare_f64(self, other: f64) -> Ordering {
        if self.is_nan() || other.is_nan() {
            return other.is_nan().cmp(&self.is_nan());
        }
        // Rounding to a double keeps the order, so only a tie needs exact figures.
        let rounded = self.to_f64();
        if rounded != other {
            return rounded.total_cmp(&other);
        }
        let Parts::Finite { negative, coefficient, exponent } = self.parts() else {
            return Ordering::Equal;
        };
        if other.is_infinite() {
            return if negative { Ordering::Greater } else { Ordering::Less };
        }
        let (mantissa, power) = decompose(other);
        let magnitude = compare_scaled(coefficient, exponent, mantissa, power);
        if negative { magnitude.reverse() } else { magnitude }
    }

    /// Compares with an integer by exact value.
    pub fn compare_i64(self, other: i64) -> Ordering {
        self.compare(Self::from(other))
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Self::finite(value < 0, u128::from(value.unsigned_abs()), 0)
    }
}

impl From<i32> for Decimal {
    fn from(value: i32) -> Self {
        Self::from(i64::from(value))
    }
}

impl From<bson::Decimal128> for Decimal {
    fn from(value: bson::Decimal128) -> Self {
        Self::from_bytes(value.bytes())
    }
}

impl From<Decimal> for bson::Decimal128 {
    fn from(value: Decimal) -> Self {
        Self::from_bytes(value.to_bytes())
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bson::Decimal128::from(*self).fmt(f)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal({self})")
    }
}

fn to_dec(value: Decimal) -> dec::Decimal128 {
    let mut result = match value.parts() {
        Parts::NaN => return dec::Decimal128::NAN,
        Parts::Infinity { .. } => {
            let mut context = dec::Context::<dec::Decimal128>::default();
            context.div(dec::Decimal128::ONE, dec::Decimal128::ZERO)
        }
        Parts::Finite { coefficient, exponent, .. } => {
            let mut context = dec::Context::<dec::Decimal128>::default();
            let mut result = context.from_u128(coefficient);
            context.set_exponent(&mut result, exponent);
            result
        }
    };
    if value.is_negative() {
        // Set the bit itself: arithmetic negation would lose the sign of zero.
        let mut bytes = result.to_be_bytes();
        bytes[0] |= 0x80;
        result = dec::Decimal128::from_be_bytes(bytes);
    }
    result
}

fn from_dec(value: dec::Decimal128) -> Decimal {
    if value.is_nan() {
        return Decimal::NAN;
    }
    if value.is_infinite() {
        return if value.is_signed() { Decimal::NEG_INFINITY } else { Decimal::INFINITY };
    }
    Decimal::finite(value.is_signed(), value.coefficient().unsigned_abs(), value.exponent())
}

/// The digits before the point, and whether there are none but zeros after it; `None` if over 38 digits.
fn split(coefficient: u128, exponent: i32) -> Option<(u128, bool)> {
    if coefficient == 0 {
        return Some((0, true));
    }
    if exponent >= 0 {
        return 10u128.checked_pow(exponent as u32)?.checked_mul(coefficient).map(|whole| (whole, true));
    }
    match 10u128.checked_pow(exponent.unsigned_abs()) {
        Some(unit) => Some((coefficient / unit, coefficient.is_multiple_of(unit))),
        None => Some((0, false)),
    }
}

/// NaN, negative infinity, negative, zero, positive, infinity.
fn class(parts: Parts) -> u8 {
    match parts {
        Parts::NaN => 0,
        Parts::Infinity { negative: true } => 1,
        Parts::Finite { coefficient: 0, .. } => 3,
        Parts::Finite { negative: true, .. } => 2,
        Parts::Finite { negative: false, .. } => 4,
        Parts::Infinity { negative: false } => 5,
    }
}

/// The exponent of the first digit and the coefficient stretched to 34 digits: two of these order as the magnitudes do.
fn normalise(parts: Parts) -> Option<(i32, u128)> {
    let Parts::Finite { coefficient, exponent, .. } = parts else { return None };
    if coefficient == 0 {
        return Some((i32::MIN, 0));
    }
    let missing_digits = DIGITS_MAX - 1 - coefficient.ilog10();
    Some((exponent - missing_digits as i32, coefficient * 10u128.pow(missing_digits)))
}

pub(crate) fn pow10(exponent: i32) -> BigUint {
    BigUint::from(10u8).pow(exponent.unsigned_abs())
}

/// A finite double's magnitude as `mantissa · 2^power`.
pub(crate) fn decompose(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let biased = ((bits >> 52) & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) }
}

/// Compares `coefficient · 10^exponent` with `mantissa · 2^power`.
fn compare_scaled(coefficient: u128, exponent: i32, mantissa: u64, power: i32) -> Ordering {
    let mut left = BigUint::from(coefficient);
    let mut right = BigUint::from(mantissa);
    if coefficient == 0 || mantissa == 0 {
        return left.cmp(&right);
    }
    if exponent >= 0 {
        left *= pow10(exponent);
    } else {
        right *= pow10(exponent);
    }
    if power >= 0 {
        right <<= power as usize;
    } else {
        left <<= power.unsigned_abs() as usize;
    }
    left.cmp(&right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn a_double_in_full_has_just_the_digits_that_it_has() {
        for (double, text) in [
            (5.0, "5"),
            (-0.5, "-0.5"),
            (2.25, "2.25"),
            (1e22, "10000000000000000000000"),
            (0.1, "0.1000000000000000055511151231257827"),
            (1e300, "1.000000000000000052504760255204420E+300"),
            (0.0, "0"),
        ] {
            assert_eq!(bson::Decimal128::from(Decimal::from_f64_full(double)).to_string(), text);
        }
    }

    #[test]
    fn quantizing_gives_as_many_places_as_are_asked_for() {
        for (text, places, rounding, expected) in [
            ("1.5", 3, Rounding::Truncate, "1.500"),
            ("1.29", 1, Rounding::Truncate, "1.2"),
            ("-1.25", 1, Rounding::HalfEven, "-1.2"),
            ("1E+3", 0, Rounding::Ceiling, "1000"),
            ("1234", -2, Rounding::Truncate, "1.2E+3"),
            ("0E+5", 2, Rounding::Truncate, "0.00"),
            ("1E+40", 0, Rounding::Floor, "1.000000000000000000000000000000000E+40"),
            ("Infinity", 0, Rounding::Floor, "Infinity"),
        ] {
            let quantized = Decimal::parse(text).unwrap().quantize(places, rounding);
            assert_eq!(bson::Decimal128::from(quantized).to_string(), expected, "{text} to {places}");
        }
    }

    #[test]
    fn normalizing_fills_up_with_zeros() {
        for (text, expected) in [
            ("9", "9.000000000000000000000000000000000"),
            ("0", "0E-6176"),
            ("1E-6170", "1.000000E-6170"),
            ("NaN", "NaN"),
        ] {
            assert_eq!(bson::Decimal128::from(Decimal::parse(text).unwrap().normalized()).to_string(), expected);
        }
    }

    #[test]
    fn the_encoding_agrees_with_the_bson_crate() {
        for text in ["0", "-0", "1", "-1", "1.50", "1E+6111", "9999999999999999999999999999999999E+6111", "1E-6176"] {
            let theirs: bson::Decimal128 = text.parse().unwrap();
            assert_eq!(Decimal::from(theirs).to_string(), theirs.to_string());
            assert_eq!(decimal(text), Decimal::from(theirs), "{text}");
        }
    }

    #[test]
    fn a_double_turns_into_fifteen_digits() {
        assert_eq!(Decimal::from_f64(2.5).to_string(), "2.50000000000000");
        assert_eq!(Decimal::from_f64(0.1).to_string(), "0.100000000000000");
        assert_eq!(Decimal::from_f64(-1e300).to_string(), "-1.00000000000000E+300");
        assert_eq!(Decimal::from_f64(5e-324).to_f64(), 5e-324);
        assert_eq!(Decimal::from_f64(-0.0).to_string(), "-0");
    }

    #[test]
    fn comparison_with_a_double_is_exact() {
        // The double nearest to 0.1 lies above it.
        assert_eq!(decimal("0.1").compare_f64(0.1), Ordering::Less);
        assert_eq!(decimal("0.5").compare_f64(0.5), Ordering::Equal);
        assert_eq!(decimal("-0.1").compare_f64(-0.1), Ordering::Greater);
        assert_eq!(decimal("1E+400").compare_f64(f64::INFINITY), Ordering::Less);
        assert_eq!(decimal("-Infinity").compare_f64(f64::NEG_INFINITY), Ordering::Equal);
        assert_eq!(decimal("1E-6176").compare_f64(0.0), Ordering::Greater);
        assert_eq!(decimal("-0").compare_f64(0.0), Ordering::Equal);
        assert_eq!(decimal("NaN").compare_f64(f64::NEG_INFINITY), Ordering::Less);
        assert_eq!(decimal("NaN").compare_f64(f64::NAN), Ordering::Equal);
    }

    #[test]
    fn arithmetic_rounds_to_34_digits_and_keeps_exponents() {
        assert_eq!(decimal("1.10").add(decimal("2.2")).to_string(), "3.30");
        assert_eq!(decimal("1").divide(decimal("3")).to_string(), "0.3333333333333333333333333333333333");
        assert_eq!(decimal("1").divide(decimal("0")).to_string(), "Infinity");
        assert_eq!(decimal("0").divide(decimal("0")).to_string(), "NaN");
        assert_eq!(Decimal::MAX.multiply(decimal("10")).to_string(), "Infinity");
        assert_eq!(decimal("-7.5").remainder(decimal("2")).to_string(), "-1.5");
        assert_eq!(decimal("1E+6000").remainder(decimal("7")).to_string(), "1");
    }

    #[test]
    fn rounding_follows_its_rule() {
        for (text, places, rounding, expected) in [
            ("2.5", 0, Rounding::HalfEven, "2"),
            ("3.5", 0, Rounding::HalfEven, "4"),
            ("-2.7", 0, Rounding::Truncate, "-2"),
            ("-2.1", 0, Rounding::Floor, "-3"),
            ("2.1", 0, Rounding::Ceiling, "3"),
            ("1234", -2, Rounding::HalfEven, "1.2E+3"),
            ("1E-6000", 0, Rounding::Ceiling, "1"),
        ] {
            assert_eq!(decimal(text).round_to(places, rounding).to_string(), expected, "{text}");
        }
    }
}
