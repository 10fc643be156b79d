//! Numbers as keys: sign class, binary exponent, mantissa in groups of seven bits, and for decimals that no 64-bit
//! mantissa holds, their decimal digits.
//!
//! A magnitude is `1.f · 2^e`. Two magnitudes order by `e`, then by the first 63 bits of `f`, and if one has more than
//! these, by whether it has: those that do are decimals, and order among themselves by first digit's exponent and
//! digits. So all four types interleave by exact value, and only such decimals need big integers.

use super::reader::{Reader, malformed};
use super::{Buffer, tag};
use crate::decimal::{Decimal, EXPONENT_MIN, Parts, decompose, pow10};
use baton_types::Result;
use bson::Bson;
use num_bigint::BigUint;

/// Exponents that take one byte: those of integers and of common fractions.
const SHORT_EXPONENTS: std::ops::RangeInclusive<i32> = -16..=63;
/// The byte of the smallest short exponent; what is below and above it are first bytes of long ones.
const SHORT_BASE: i32 = 0x58;
const LONG_BASE: i32 = 0xa8;
/// Makes negative long exponents positive; decimals go down to some -20,520.
const LONG_BIAS: i32 = 0x51 << 8;
/// Seven bits each: 63 bits after the leading one.
const GROUPS: usize = 9;
/// A decimal's digits are stretched to this many, so that they compare as numbers.
const DIGITS: u32 = 34;

/// `mantissa · 2^(exponent - 63)` with the mantissa's highest bit set, and the digits if that is not all of it.
struct Magnitude {
    exponent: i32,
    mantissa: u64,
    tail: Option<Tail>,
}

/// A decimal's exponent and 34 digits.
struct Tail {
    exponent: i32,
    coefficient: u128,
}

pub(super) fn encode_i64(out: &mut impl Buffer, value: i64) {
    if value == 0 {
        return out.push(tag::ZERO);
    }
    encode_magnitude(out, value < 0, &normalise(value.unsigned_abs(), 0));
}

pub(super) fn encode_f64(out: &mut impl Buffer, value: f64) {
    if value.is_nan() {
        out.push(tag::NUMBER);
    } else if value == 0.0 {
        out.push(tag::ZERO);
    } else if value.is_infinite() {
        out.push(if value < 0.0 { tag::NEGATIVE_INFINITY } else { tag::POSITIVE_INFINITY });
    } else {
        let (mantissa, power) = decompose(value);
        encode_magnitude(out, value < 0.0, &normalise(mantissa, power));
    }
}

pub(super) fn encode_decimal(out: &mut impl Buffer, value: Decimal) {
    match value.parts() {
        Parts::NaN => out.push(tag::NUMBER),
        Parts::Infinity { negative: true } => out.push(tag::NEGATIVE_INFINITY),
        Parts::Infinity { negative: false } => out.push(tag::POSITIVE_INFINITY),
        Parts::Finite { coefficient: 0, .. } => out.push(tag::ZERO),
        Parts::Finite { negative, coefficient, exponent } => {
            encode_magnitude(out, negative, &decimal_magnitude(coefficient, exponent));
        }
    }
}

pub(super) fn is_lossless_f64(value: f64) -> bool {
    if value.is_nan() {
        return value.to_bits() == f64::NAN.to_bits();
    }
    // A whole number that fits comes back as an integer.
    let whole = value.trunc() == value && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    !whole
}

pub(super) fn is_lossless_decimal(value: Decimal) -> bool {
    let mut key = Vec::new();
    encode_decimal(&mut key, value);
    let decoded = super::decode(&mut key.as_slice(), super::Direction::Ascending);
    matches!(decoded, Ok(Bson::Decimal128(back)) if Decimal::from(back) == value)
}

/// `mantissa · 2^power`; the mantissa is not zero.
#[inline]
fn normalise(mantissa: u64, power: i32) -> Magnitude {
    let shift = mantissa.leading_zeros();
    Magnitude { exponent: power + 63 - shift as i32, mantissa: mantissa << shift, tail: None }
}

fn decimal_magnitude(coefficient: u128, exponent: i32) -> Magnitude {
    let (bits, power, exact) = if exponent >= 0 {
        (BigUint::from(coefficient) * pow10(exponent), 0, true)
    } else {
        // Enough bits that at least 64 are left after the division.
        let divisor = pow10(exponent);
        let shift = (divisor.bits() + 65).saturating_sub(u64::from(128 - coefficient.leading_zeros()));
        let dividend = BigUint::from(coefficient) << shift;
        let quotient = &dividend / &divisor;
        let exact = &quotient * &divisor == dividend;
        (quotient, -(shift as i32), exact)
    };
    let surplus = bits.bits().saturating_sub(64);
    let exact = exact && bits.trailing_zeros().unwrap_or(0) >= surplus;
    let leading = u64::try_from(&(&bits >> surplus)).unwrap_or(u64::MAX);
    let mut magnitude = normalise(leading, power + surplus as i32);
    if !exact {
        let stretch = DIGITS - 1 - coefficient.ilog10();
        let coefficient = coefficient * 10u128.pow(stretch);
        magnitude.tail = Some(Tail { exponent: exponent - stretch as i32, coefficient });
    }
    magnitude
}

#[inline]
fn encode_magnitude(out: &mut impl Buffer, negative: bool, magnitude: &Magnitude) {
    out.push(if negative { tag::NEGATIVE } else { tag::POSITIVE });
    let start = out.len();
    encode_exponent(out, magnitude.exponent);
    let mut rest = magnitude.mantissa << 1;
    for group in 1..=GROUPS {
        let seven = (rest >> 57) as u8;
        rest <<= 7;
        let more = rest != 0 || magnitude.tail.is_some();
        out.push(seven << 1 | u8::from(more));
        assert!(group < GROUPS || rest == 0, "63 bits fill the groups");
        if !more {
            break;
        }
    }
    if let Some(tail) = &magnitude.tail {
        // Stretching to 34 digits lowers the exponent by at most 33 below the smallest.
        let exponent = (tail.exponent - EXPONENT_MIN + DIGITS as i32) as u16;
        out.extend_from_slice(&exponent.to_be_bytes());
        out.extend_from_slice(&tail.coefficient.to_be_bytes());
    }
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn encode_exponent(out: &mut impl Buffer, exponent: i32) {
    if SHORT_EXPONENTS.contains(&exponent) {
        out.push((exponent - SHORT_EXPONENTS.start() + SHORT_BASE) as u8);
    } else if exponent > 0 {
        out.extend_from_slice(&((LONG_BASE << 8) + exponent).to_be_bytes()[2..]);
    } else {
        out.extend_from_slice(&(exponent + LONG_BIAS).to_be_bytes()[2..]);
    }
}

/// Reads what [`encode_magnitude`] wrote after the first byte.
pub(super) fn decode_magnitude(reader: &mut Reader<'_>, negative: bool) -> Result<Bson> {
    let magnitude = reader.inverted(negative, read_magnitude)?;
    if let Some(tail) = magnitude.tail {
        let (coefficient, exponent) = strip_zeros(tail.coefficient, tail.exponent);
        return Ok(Bson::Decimal128(Decimal::from_scaled(negative, coefficient, exponent).into()));
    }
    let Magnitude { exponent, mantissa, .. } = magnitude;
    if let Some(integer) = to_integer(negative, exponent, mantissa) {
        return Ok(i32::try_from(integer).map_or(Bson::Int64(integer), Bson::Int32));
    }
    if let Some(double) = to_f64(exponent, mantissa) {
        return Ok(Bson::Double(if negative { -double } else { double }));
    }
    to_decimal(negative, exponent, mantissa).map(|decimal| Bson::Decimal128(decimal.into()))
}

fn read_magnitude(reader: &mut Reader<'_>) -> Result<Magnitude> {
    let first = i32::from(reader.byte()?);
    let exponent = if (SHORT_BASE..LONG_BASE).contains(&first) {
        first - SHORT_BASE + SHORT_EXPONENTS.start()
    } else {
        let long = first << 8 | i32::from(reader.byte()?);
        if first < SHORT_BASE { long - LONG_BIAS } else { long - (LONG_BASE << 8) }
    };
    let mut mantissa = 1u64;
    let mut more = true;
    let mut groups = 0;
    while more && groups < GROUPS {
        let byte = reader.byte()?;
        mantissa = mantissa << 7 | u64::from(byte >> 1);
        more = byte & 1 == 1;
        groups += 1;
    }
    mantissa <<= 7 * (GROUPS - groups);
    let tail = if more {
        let exponent = i32::from(u16::from_be_bytes(reader.array()?)) + EXPONENT_MIN - DIGITS as i32;
        Some(Tail { exponent, coefficient: u128::from_be_bytes(reader.array()?) })
    } else {
        None
    };
    Ok(Magnitude { exponent, mantissa, tail })
}

fn to_integer(negative: bool, exponent: i32, mantissa: u64) -> Option<i64> {
    let surplus = u32::try_from(63 - exponent).ok().filter(|surplus| *surplus <= 63)?;
    if mantissa.trailing_zeros() < surplus {
        return None;
    }
    let magnitude = i128::from(mantissa >> surplus);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

fn to_f64(exponent: i32, mantissa: u64) -> Option<f64> {
    let is_normal = (-1022..=1023).contains(&exponent);
    let surplus = if is_normal { 11 } else { u32::try_from(-1011 - exponent).ok()? };
    if surplus > 63 || exponent > 1023 || mantissa.trailing_zeros() < surplus {
        return None;
    }
    let fraction = mantissa >> surplus;
    let bits = if is_normal { ((exponent + 1023) as u64) << 52 | fraction & ((1 << 52) - 1) } else { fraction };
    Some(f64::from_bits(bits))
}

fn to_decimal(negative: bool, exponent: i32, mantissa: u64) -> Result<Decimal> {
    let shift = mantissa.trailing_zeros();
    let (odd, power) = (BigUint::from(mantissa >> shift), exponent - 63 + shift as i32);
    // Below the point, 2^-k is 5^k · 10^-k.
    let (mut digits, mut ten) = if power >= 0 {
        (odd << power as usize, 0)
    } else {
        (odd * BigUint::from(5u8).pow(power.unsigned_abs()), power)
    };
    // All digits but the last 34 must be zeros: take them off at once, then one by one.
    let surplus = (digits.bits() as i32 * 3 / 10 - DIGITS as i32).max(0);
    let unit = pow10(surplus);
    if &digits % &unit != BigUint::ZERO {
        return Err(malformed("a number with too many digits"));
    }
    digits /= unit;
    ten += surplus;
    let digits = u128::try_from(&digits).map_err(|_| malformed("a number with too many digits"))?;
    let (coefficient, ten) = strip_zeros(digits, ten);
    Ok(Decimal::from_scaled(negative, coefficient, ten))
}

fn strip_zeros(mut coefficient: u128, mut exponent: i32) -> (u128, i32) {
    while coefficient != 0 && coefficient.is_multiple_of(10) {
        coefficient /= 10;
        exponent += 1;
    }
    (coefficient, exponent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Direction, decode};
    use crate::number::Number;

    fn key(value: Number) -> Vec<u8> {
        let mut out = Vec::new();
        crate::keys::encode(&mut out, value.to_raw(), Direction::Ascending);
        out
    }

    fn decimal(text: &str) -> Number {
        Number::Decimal(Decimal::parse(text).unwrap())
    }

    #[test]
    fn the_four_types_interleave_by_exact_value() {
        let ascending = [
            decimal("-Infinity"),
            Number::Decimal(Decimal::MIN),
            Number::Double(f64::MIN),
            Number::Int64(i64::MIN),
            Number::Int32(-2),
            Number::Double(-1.5),
            decimal("-0.1"),
            decimal("-1E-6176"),
            Number::Double(-0.0),
            decimal("1E-6176"),
            Number::Double(5e-324),
            decimal("0.1"),
            Number::Double(0.1),
            decimal("0.1000000000000000055511151231257828"),
            Number::Double(0.5),
            Number::Int32(1),
            decimal("1.000000000000000000000000000000001"),
            Number::Double(1.0 + f64::EPSILON),
            Number::Int64((1 << 53) + 1),
            decimal("9007199254740993.5"),
            Number::Int64(i64::MAX),
            Number::Double(9_223_372_036_854_775_808.0),
            decimal("1E+30"),
            Number::Double(1.000_000_000_000_000_2e30),
            Number::Double(f64::MAX),
            Number::Decimal(Decimal::MAX),
            Number::Double(f64::INFINITY),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(key(*a).cmp(&key(*b)), i.cmp(&j), "{a:?} against {b:?}");
            }
        }
    }

    #[test]
    fn equal_values_have_one_key_and_come_back_canonical() {
        for (values, canonical) in [
            (vec![Number::Int64(1), Number::Double(1.0), decimal("1.00")], Bson::Int32(1)),
            (vec![Number::Double(-0.0), decimal("-0E+10")], Bson::Int32(0)),
            (vec![decimal("0.50"), Number::Double(0.5)], Bson::Double(0.5)),
            (vec![decimal("1E+10"), Number::Double(1e10)], Bson::Int64(10_000_000_000)),
            (vec![decimal("0.10"), decimal("0.1")], decimal("0.1").to_bson()),
            (vec![decimal("NaN"), Number::Double(f64::NAN)], Bson::Double(f64::NAN)),
            (vec![decimal("9223372036854775809")], decimal("9223372036854775809").to_bson()),
            (vec![decimal("1E+6144")], decimal("1E+6144").to_bson()),
        ] {
            for value in values {
                let bytes = key(value);
                let mut rest = bytes.as_slice();
                let back = decode(&mut rest, Direction::Ascending).unwrap();
                assert!(rest.is_empty());
                assert_eq!(format!("{back:?}"), format!("{canonical:?}"), "{value:?}");
            }
        }
    }
}
