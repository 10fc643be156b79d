//! Arithmetic: `$add`, `$subtract`, `$multiply`, `$divide`, `$mod`, `$abs`, `$ceil`, `$floor`, `$exp`, `$ln`, `$log`,
//! `$log10`, `$pow`, `$sqrt`. (Rounding to a place, bits and trigonometry have files of their own.)
//!
//! Any nullish operand makes the result null. Promotion between the numeric types is [`Number`]'s.

use super::node::{Argument, Arguments};
use super::value::{self, Value};
use baton_document::decimal::{Decimal, Rounding};
use baton_document::number::Number;
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, DateTime};

const NULL: Result<Value> = Ok(Some(Bson::Null));

fn some(number: Number) -> Result<Value> {
    Ok(Some(number.to_bson()))
}

fn double(number: f64) -> Result<Value> {
    Ok(Some(Bson::Double(number)))
}

/// `{$add: [a, …]}`: a sum of numbers, at most one of them a date, which makes the sum one.
pub(crate) fn add(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let mut total = Number::Int32(0);
    let mut date_ms = None;
    for argument in arguments.iter() {
        match argument.as_ref() {
            Some(Bson::DateTime(_)) if date_ms.is_some() => {
                return Err(Error::location(16612, "only one date allowed in an $add expression"));
            }
            Some(Bson::DateTime(date)) => date_ms = Some(date.timestamp_millis()),
            nullish if value::is_nullish(nullish) => return NULL,
            other => match value::number(other) {
                Some(number) => total = total.add(number),
                None => {
                    return Err(Error::type_mismatch(format!(
                        "{name} only supports numeric or date types, not {}",
                        value::type_name(other)
                    )));
                }
            },
        }
    }
    match date_ms {
        None => some(total),
        Some(ms) => shifted(name, ms, total, i64::checked_add),
    }
}

/// The date `milliseconds` from `ms`, fractions rounded.
fn shifted(name: &str, ms: i64, milliseconds: Number, step: fn(i64, i64) -> Option<i64>) -> Result<Value> {
    let whole = match milliseconds {
        Number::Double(number) => Number::Double(number.round()).to_i64_exact(),
        Number::Decimal(number) => number.to_i64_rounded(Rounding::HalfEven),
        integer => integer.to_i64_exact(),
    };
    whole
        .and_then(|whole| step(ms, whole))
        .map(|ms| Some(Bson::DateTime(DateTime::from_millis(ms))))
        .ok_or_else(|| Error::new(ErrorCode::Overflow, format!("date overflow in {name}")))
}

/// `{$subtract: [a, b]}`: numbers, a date less milliseconds, or the milliseconds between two dates.
pub(crate) fn subtract(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let (a, b) = (arguments[0].as_ref(), arguments[1].as_ref());
    if let (Some(x), Some(y)) = (value::number(a), value::number(b)) {
        return some(x.subtract(y));
    }
    if value::is_nullish(a) || value::is_nullish(b) {
        return NULL;
    }
    if let Some(Bson::DateTime(from)) = a {
        if let Some(Bson::DateTime(to)) = b {
            return match from.timestamp_millis().checked_sub(to.timestamp_millis()) {
                Some(ms) => Ok(Some(Bson::Int64(ms))),
                None => Err(Error::new(ErrorCode::Overflow, format!("date overflow in {name}"))),
            };
        }
        if let Some(milliseconds) = value::number(b) {
            return shifted(name, from.timestamp_millis(), milliseconds, i64::checked_sub);
        }
    }
    Err(Error::type_mismatch(format!("can't {name} {} from {}", value::type_name(b), value::type_name(a))))
}

/// `{$multiply: [a, …]}`.
pub(crate) fn multiply(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let mut product = Number::Int32(1);
    for argument in arguments.iter() {
        match value::number(argument) {
            Some(number) => product = product.multiply(number),
            None if value::is_nullish(argument) => return NULL,
            None => {
                return Err(Error::type_mismatch(format!(
                    "{name} only supports numeric types, not {}",
                    value::type_name(argument)
                )));
            }
        }
    }
    some(product)
}

/// `{$divide: [a, b]}`: a double, or a decimal.
pub(crate) fn divide(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match two_numbers(name, arguments, ErrorCode::TypeMismatch)? {
        Some((a, b)) => some(a.divide(b)?),
        None => NULL,
    }
}

/// `{$mod: [a, b]}`: the remainder, with the sign of `a`.
pub(crate) fn modulo(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match two_numbers(name, arguments, ErrorCode(16611))? {
        Some((a, b)) => some(a.modulo(b)?),
        None => NULL,
    }
}

/// Both numbers; `None` when one is nullish.
pub(crate) fn two_numbers(name: &str, arguments: &[Argument<'_>], code: ErrorCode) -> Result<Option<(Number, Number)>> {
    let (a, b) = (arguments[0].as_ref(), arguments[1].as_ref());
    match (value::number(a), value::number(b)) {
        (Some(a), Some(b)) => Ok(Some((a, b))),
        _ if value::is_nullish(a) || value::is_nullish(b) => Ok(None),
        _ => Err(Error::new(
            code,
            format!("{name} only supports numeric types, not {} and {}", value::type_name(a), value::type_name(b)),
        )),
    }
}

/// The one numeric argument; `None` when it is nullish.
pub(crate) fn one_number(name: &str, arguments: &[Argument<'_>]) -> Result<Option<Number>> {
    match value::number(&arguments[0]) {
        Some(number) => Ok(Some(number)),
        None if value::is_nullish(&arguments[0]) => Ok(None),
        None => Err(Error::location(
            28765,
            format!("{name} only supports numeric types, not {}", value::type_name(&arguments[0])),
        )),
    }
}

/// `{$abs: a}`.
pub(crate) fn abs(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match one_number(name, arguments)? {
        None => NULL,
        Some(Number::Int32(number)) => Ok(Some(value::narrow(i64::from(number).abs()))),
        Some(Number::Int64(number)) => match number.checked_abs() {
            Some(number) => Ok(Some(Bson::Int64(number))),
            None => Err(Error::location(28680, "can't take $abs of long long min")),
        },
        Some(Number::Double(number)) => double(number.abs()),
        Some(Number::Decimal(number)) => some(Number::Decimal(number.abs())),
    }
}

/// `{$ceil: a}`.
pub(crate) fn ceil(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    to_whole(one_number(name, arguments)?, f64::ceil, Rounding::Ceiling)
}

/// `{$floor: a}`.
pub(crate) fn floor(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    to_whole(one_number(name, arguments)?, f64::floor, Rounding::Floor)
}

fn to_whole(number: Option<Number>, of_double: fn(f64) -> f64, of_decimal: Rounding) -> Result<Value> {
    match number {
        None => NULL,
        Some(Number::Double(number)) => double(of_double(number)),
        Some(Number::Decimal(number)) => some(Number::Decimal(number.quantize(0, of_decimal))),
        Some(integer) => some(integer),
    }
}

/// `{$exp: a}`: e to the power of `a`.
pub(crate) fn exp(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match one_number(name, arguments)? {
        None => NULL,
        Some(Number::Decimal(number)) => some(Number::Decimal(wide(number, |ctx, n| ctx.exp(n)))),
        Some(number) => double(number.to_f64().exp()),
    }
}

/// `{$ln: a}`.
pub(crate) fn ln(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match one_number(name, arguments)? {
        None => NULL,
        Some(number) => {
            check_positive(number, 28766, name, &arguments[0])?;
            match number {
                Number::Decimal(number) => some(Number::Decimal(wide(number, |ctx, n| ctx.ln(n)))),
                number => double(number.to_f64().ln()),
            }
        }
    }
}

/// `{$log10: a}`.
pub(crate) fn log10(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match one_number(name, arguments)? {
        None => NULL,
        Some(number) => {
            check_positive(number, 28761, name, &arguments[0])?;
            match number {
                Number::Decimal(number) => some(Number::Decimal(wide(number, |ctx, n| ctx.log10(n)))),
                number => double(number.to_f64().log10()),
            }
        }
    }
}

fn check_positive(number: Number, code: i32, name: &str, shown: &Value) -> Result<()> {
    if number.is_nan() || !(number.is_zero() || number.is_negative()) {
        return Ok(());
    }
    Err(Error::location(code, format!("{name}'s argument must be a positive number, but is {}", value::display(shown))))
}

/// `{$log: [a, base]}`.
pub(crate) fn log(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let numeric = |value: &Value, code, what| match value::number(value) {
        Some(number) => Ok(Some(number)),
        None if value::is_nullish(value) => Ok(None),
        None => Err(Error::location(code, format!("{name}'s {what} must be numeric, not {}", value::type_name(value)))),
    };
    if value::is_nullish(&arguments[0]) || value::is_nullish(&arguments[1]) {
        return NULL;
    }
    let argument = numeric(&arguments[0], 28756, "argument")?;
    let base = numeric(&arguments[1], 28757, "base")?;
    let (Some(argument), Some(base)) = (argument, base) else { return NULL };
    check_positive(argument, 28758, name, &arguments[0])?;
    let is_one = base.compare(Number::Int32(1)).is_eq();
    if !base.is_nan() && (base.is_zero() || base.is_negative() || is_one) {
        return Err(Error::location(
            28759,
            format!("{name}'s base must be a positive number not equal to 1, but is {}", value::display(&arguments[1])),
        ));
    }
    match (argument, base) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            let logarithm = |number: Number| wide(number.to_decimal(), |ctx, n| ctx.ln(n));
            some(Number::Decimal(logarithm(argument).divide(logarithm(base))))
        }
        (argument, base) => double(argument.to_f64().ln() / base.to_f64().ln()),
    }
}

/// `{$sqrt: a}`.
pub(crate) fn sqrt(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match one_number(name, arguments)? {
        None => NULL,
        Some(number) if number.is_negative() => {
            Err(Error::location(28714, format!("{name}'s argument must be greater than or equal to 0")))
        }
        Some(Number::Decimal(number)) => some(Number::Decimal(wide(number, |ctx, n| ctx.sqrt(n)))),
        Some(number) => double(number.to_f64().sqrt()),
    }
}

/// `{$pow: [base, exponent]}`: whole where both are and it fits.
pub(crate) fn pow(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let (base, exponent) = (arguments[0].as_ref(), arguments[1].as_ref());
    if value::is_nullish(base) || value::is_nullish(exponent) {
        return NULL;
    }
    let numeric = |value: &Value, code, what| {
        value::number(value).ok_or_else(|| {
            Error::location(code, format!("{name}'s {what} must be numeric, not {}", value::type_name(value)))
        })
    };
    let base = numeric(base, 28762, "base")?;
    let exponent = numeric(exponent, 28763, "exponent")?;
    if base.is_zero() && exponent.is_negative() {
        return Err(Error::location(28764, format!("{name} cannot take a base of 0 and a negative exponent")));
    }
    match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            some(Number::Decimal(decimal_power(base.to_decimal(), exponent.to_decimal())))
        }
        (Number::Double(_), _) | (_, Number::Double(_)) => double(base.to_f64().powf(exponent.to_f64())),
        (base, exponent) => Ok(Some(whole_power(base, exponent))),
    }
}

fn whole_power(base: Number, exponent: Number) -> Bson {
    let approximate = || Bson::Double(base.to_f64().powf(exponent.to_f64()));
    let (Some(b), Some(e)) = (base.to_i64_exact(), exponent.to_i64_exact()) else { return approximate() };
    let power = match (b, e) {
        (1, _) => Some(1),
        (-1, _) => Some(if e % 2 == 0 { 1 } else { -1 }),
        (0, 1..) => Some(0),
        (_, 0..=63) => u32::try_from(e).ok().and_then(|e| b.checked_pow(e)),
        _ => None,
    };
    match power {
        Some(power) if matches!((base, exponent), (Number::Int32(_), Number::Int32(_))) => value::narrow(power),
        Some(power) => Bson::Int64(power),
        None => approximate(),
    }
}

type WideContext = dec::Context<dec::Decimal<12>>;

fn wide_context() -> WideContext {
    let mut context = dec::Context::<dec::Decimal<12>>::default();
    // Those of decimal128: always within the type's, and logarithms and powers refuse the type's own exponents.
    let _ = context.set_precision(34);
    let _ = context.set_max_exponent(6144);
    let _ = context.set_min_exponent(-6143);
    context
}

fn to_wide(context: &mut WideContext, number: Decimal) -> dec::Decimal<12> {
    // The text of a decimal128 always parses.
    context.parse(bson::Decimal128::from(number).to_string()).unwrap_or_else(|_| dec::Decimal::nan())
}

fn from_wide(number: &dec::Decimal<12>) -> Decimal {
    Decimal::parse(&number.to_string()).unwrap_or(Decimal::NAN)
}

/// A function that decimal128 itself lacks, computed with as many digits.
fn wide(number: Decimal, function: fn(&mut WideContext, &mut dec::Decimal<12>)) -> Decimal {
    let mut context = wide_context();
    let mut number = to_wide(&mut context, number);
    function(&mut context, &mut number);
    from_wide(&number)
}

fn decimal_power(base: Decimal, exponent: Decimal) -> Decimal {
    let mut context = wide_context();
    let mut base = to_wide(&mut context, base);
    let exponent = to_wide(&mut context, exponent);
    context.pow(&mut base, &exponent);
    // MongoDB gives a power with all digits, also an exact one.
    from_wide(&base).normalized()
}
