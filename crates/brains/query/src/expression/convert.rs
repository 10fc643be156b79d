//! `$convert`, its shorthands `$to…`, `$type` and `$isNumber`.
//!
//! Conversions follow MongoDB's table: numbers are cut towards zero and must fit, strings are read strictly, dates
//! are milliseconds.

use super::date::reading;
use super::named::{Named, Signature, field};
use super::node::Arguments;
use super::value::{self, Value};
use baton_document::decimal::{Decimal, Rounding};
use baton_document::number::Number;
use baton_document::type_names::TYPES;
use baton_types::{Error, ErrorCode, Result};
use bson::oid::ObjectId;
use bson::{Bson, DateTime};

/// What a value can be converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Double,
    String,
    ObjectId,
    Bool,
    Date,
    Int,
    Long,
    Decimal,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::String => "string",
            Self::ObjectId => "objectId",
            Self::Bool => "bool",
            Self::Date => "date",
            Self::Int => "int",
            Self::Long => "long",
            Self::Decimal => "decimal",
        }
    }
}

/// What `$convert` calls a field that is not there: a type of its own, though nothing converts to it.
const MISSING: (&str, i64) = ("missing", 0);

/// The types that `to` may name, by name and number.
fn types() -> impl Iterator<Item = (&'static str, i64)> {
    TYPES.iter().map(|(_, name, number)| (*name, i64::from(*number))).chain([MISSING])
}

/// The arguments of `$convert`.
pub(crate) static CONVERT: Signature = Signature {
    fields: &[field("input", 9), field("to", 9), field("onError", 0), field("onNull", 0)],
    not_an_object: (9, "{op} expects an object of named arguments but found: {x}"),
    unknown: (9, "{op} found an unknown argument: {x}"),
    missing: "Missing '{x}' parameter to {op}",
};

/// `{$convert: {input: …, to: …, onError: …, onNull: …}}`.
pub(crate) fn convert(call: &Named<'_>) -> Result<Value> {
    let to = call.value(1)?;
    let input = call.value(0)?;
    if value::is_nullish(&input) {
        return if call.given(3) { call.value(3) } else { Ok(Some(Bson::Null)) };
    }
    if value::is_nullish(&to) {
        return Ok(Some(Bson::Null));
    }
    let (target, name) = parse_target(&to)?;
    let converted = match target {
        Some(target) => to_target(&input, target),
        None => Err(unsupported(&input, name)),
    };
    match converted {
        Err(error) if error.code == ErrorCode::ConversionFailure && call.given(2) => call.value(2),
        other => other,
    }
}

/// The type that `to` names, and its name; no target for a type that nothing converts to.
fn parse_target(to: &Value) -> Result<(Option<Target>, &'static str)> {
    let row = match to {
        Some(Bson::String(name)) => types()
            .find(|(known, _)| known == name)
            .ok_or_else(|| Error::bad_value(format!("Unknown type name: {name}")))?,
        number if value::is_number(number) => {
            let Some(code) = value::long_exact(number) else {
                return Err(Error::failed_to_parse("In $convert, numeric 'to' argument is not an integer"));
            };
            types().find(|(_, known)| *known == code).ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "In $convert, numeric value for 'to' does not correspond to a BSON type: {code}"
                ))
            })?
        }
        other => {
            return Err(Error::failed_to_parse(format!(
                "$convert's 'to' argument must be a string or number, but is {}",
                value::type_name(other)
            )));
        }
    };
    let target = match row.0 {
        "double" => Some(Target::Double),
        "string" => Some(Target::String),
        "objectId" => Some(Target::ObjectId),
        "bool" => Some(Target::Bool),
        "date" => Some(Target::Date),
        "int" => Some(Target::Int),
        "long" => Some(Target::Long),
        "decimal" => Some(Target::Decimal),
        _ => None,
    };
    Ok((target, row.0))
}

fn failure(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::ConversionFailure, message)
}

fn unsupported(input: &Value, to: &str) -> Error {
    failure(format!(
        "Unsupported conversion from {} to {to} in $convert with no onError value",
        value::type_name(input)
    ))
}

/// Converts what is not nullish.
fn to_target(input: &Value, target: Target) -> Result<Value> {
    let Some(input_value) = input else { return Ok(Some(Bson::Null)) };
    let converted = match (input_value, target) {
        (Bson::ObjectId(id), Target::ObjectId) => Bson::ObjectId(*id),
        (Bson::String(text), Target::String) => Bson::String(text.clone()),
        (Bson::DateTime(date), Target::Date) => Bson::DateTime(*date),
        (_, Target::Bool) => Bson::Boolean(value::is_true(input)),
        (Bson::Boolean(truth), Target::String) => Bson::String(truth.to_string()),
        (Bson::ObjectId(id), Target::String) => Bson::String(id.to_hex()),
        (Bson::DateTime(_), Target::String) => Bson::String(value::coerce_to_string(input)?),
        (Bson::ObjectId(id), Target::Date) => Bson::DateTime(value::object_id_time(id)),
        (Bson::Timestamp(timestamp), Target::Date) => {
            Bson::DateTime(DateTime::from_millis(i64::from(timestamp.time) * 1000))
        }
        (Bson::DateTime(date), Target::Long) => Bson::Int64(date.timestamp_millis()),
        (Bson::DateTime(date), Target::Double) => Bson::Double(date.timestamp_millis() as f64),
        (Bson::DateTime(date), Target::Decimal) => Number::Decimal(Decimal::from(date.timestamp_millis())).to_bson(),
        (Bson::Boolean(truth), Target::Int | Target::Long | Target::Double | Target::Decimal) => {
            number_to(Number::Int32(i32::from(*truth)), target)?
        }
        (Bson::String(text), _) => return from_text(text, target).map(Some),
        _ => match value::number(input) {
            Some(number) if target == Target::String => Bson::String(number_text(number, input)?),
            Some(number) if target != Target::ObjectId => number_to(number, target)?,
            _ => return Err(unsupported(input, target.name())),
        },
    };
    Ok(Some(converted))
}

fn number_text(number: Number, input: &Value) -> Result<String> {
    match number {
        Number::Decimal(_) => Ok(number.to_bson().to_string()),
        Number::Double(double) => Ok(value::double_text(double)),
        Number::Int32(_) | Number::Int64(_) => value::coerce_to_string(input),
    }
}

fn number_to(number: Number, target: Target) -> Result<Bson> {
    Ok(match target {
        Target::Double => match number {
            Number::Decimal(decimal) => {
                let double = decimal.to_f64();
                if decimal.is_finite() && !double.is_finite() {
                    return Err(overflow(number));
                }
                Bson::Double(double)
            }
            other => Bson::Double(other.to_f64()),
        },
        Target::Decimal => Number::Decimal(number.to_decimal()).to_bson(),
        Target::Int => {
            let whole = whole(number)?;
            Bson::Int32(i32::try_from(whole).map_err(|_| overflow(number))?)
        }
        Target::Long => Bson::Int64(whole(number)?),
        Target::Date => match number {
            Number::Int32(_) => {
                return Err(failure("Unsupported conversion from int to date in $convert with no onError value"));
            }
            other => Bson::DateTime(DateTime::from_millis(whole(other)?)),
        },
        Target::String | Target::ObjectId | Target::Bool => {
            return Err(failure(format!("Unsupported conversion from a number to {} in $convert", target.name())));
        }
    })
}

fn overflow(number: Number) -> Error {
    failure(format!(
        "Conversion would overflow target type in $convert with no onError value: {}",
        value::display(&Some(number.to_bson()))
    ))
}

/// Cut towards zero; must fit into 64 bits.
fn whole(number: Number) -> Result<i64> {
    if number.is_nan() {
        return Err(failure("Attempt to convert NaN value to integer type in $convert with no onError value"));
    }
    if !number.is_finite() {
        return Err(failure("Attempt to convert infinity value to integer type in $convert with no onError value"));
    }
    match number {
        Number::Int32(integer) => Ok(i64::from(integer)),
        Number::Int64(integer) => Ok(integer),
        Number::Double(double) => Number::Double(double.trunc()).to_i64_exact().ok_or_else(|| overflow(number)),
        Number::Decimal(decimal) => decimal.to_i64_rounded(Rounding::Truncate).ok_or_else(|| overflow(number)),
    }
}

fn from_text(text: &str, target: Target) -> Result<Bson> {
    let unreadable =
        |reason: &str| failure(format!("Failed to parse number '{text}' in $convert with no onError value: {reason}"));
    match target {
        Target::Int | Target::Long => {
            let plain = text.strip_prefix('+').unwrap_or(text);
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(unreadable("Did not consume whole string."));
            }
            let number: i64 = plain.parse().map_err(|_| unreadable("Overflow"))?;
            match target {
                Target::Int => i32::try_from(number).map(Bson::Int32).map_err(|_| unreadable("Overflow")),
                _ => Ok(Bson::Int64(number)),
            }
        }
        Target::Double => {
            read_double(text).map(Bson::Double).ok_or_else(|| unreadable("Did not consume whole string."))
        }
        Target::Decimal => match Decimal::parse(text) {
            Some(decimal) => Ok(Number::Decimal(decimal).to_bson()),
            None => Err(unreadable("Failed to parse string to decimal")),
        },
        Target::Date => match reading::read(text, None) {
            Ok(ms) => Ok(Bson::DateTime(DateTime::from_millis(ms))),
            Err(reason) => Err(failure(format!("Error parsing date string '{text}'; {reason}"))),
        },
        Target::ObjectId => match ObjectId::parse_str(text) {
            Ok(id) => Ok(Bson::ObjectId(id)),
            Err(_) => Err(failure(format!(
                "Failed to parse objectId '{text}' in $convert with no onError value: Invalid string length for parsing to OID, expected 24 hexadecimal digits"
            ))),
        },
        Target::Bool => Ok(Bson::Boolean(true)),
        Target::String => Ok(Bson::String(text.to_owned())),
    }
}

fn read_double(text: &str) -> Option<f64> {
    // Rust reads no hexadecimal doubles and no empty text, and neither may be a number here.
    if text.is_empty() || text.trim() != text {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    let names_infinity = text.bytes().any(|byte| byte.eq_ignore_ascii_case(&b'i'));
    (number.is_finite() || number.is_nan() || names_infinity).then_some(number)
}

macro_rules! shorthands {
    ($($(#[$doc:meta])* $name:ident $target:expr;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
            if value::is_nullish(&arguments[0]) {
                return Ok(Some(Bson::Null));
            }
            to_target(&arguments[0], $target)
        })*
    };
}

shorthands! {
    /// `{$toBool: a}`.
    to_bool Target::Bool;
    /// `{$toDate: a}`.
    to_date Target::Date;
    /// `{$toDecimal: a}`.
    to_decimal Target::Decimal;
    /// `{$toDouble: a}`.
    to_double Target::Double;
    /// `{$toInt: a}`.
    to_int Target::Int;
    /// `{$toLong: a}`.
    to_long Target::Long;
    /// `{$toObjectId: a}`.
    to_object_id Target::ObjectId;
    /// `{$toString: a}`.
    to_string Target::String;
}

/// `{$type: a}`: the type's name, `"missing"` for a missing value.
pub(crate) fn type_of(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    Ok(Some(Bson::String(value::type_name(&arguments[0]).to_owned())))
}

/// `{$isNumber: a}`.
pub(crate) fn is_number(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    Ok(Some(Bson::Boolean(value::is_number(&arguments[0]))))
}
