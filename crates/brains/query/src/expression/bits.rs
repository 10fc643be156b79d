//! `$bitAnd`, `$bitOr`, `$bitXor`, `$bitNot`: on `int` and `long` only, `long` if any operand is.

use super::node::{Argument, Arguments};
use super::value::{self, Value};
use baton_types::{Error, Result};
use bson::Bson;

/// `{$bitAnd: [a, …]}`.
pub(crate) fn and(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    combine(name, arguments, -1, |a, b| a & b)
}

/// `{$bitOr: [a, …]}`.
pub(crate) fn or(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    combine(name, arguments, 0, |a, b| a | b)
}

/// `{$bitXor: [a, …]}`.
pub(crate) fn xor(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    combine(name, arguments, 0, |a, b| a ^ b)
}

fn combine(name: &str, arguments: &[Argument<'_>], identity: i32, step: fn(i64, i64) -> i64) -> Result<Value> {
    let mut bits = i64::from(identity);
    let mut long = false;
    for argument in arguments {
        match argument.as_ref() {
            // Extending the sign makes the operation on 64 bits agree with that on 32.
            Some(Bson::Int32(operand)) => bits = step(bits, i64::from(*operand)),
            Some(Bson::Int64(operand)) => {
                long = true;
                bits = step(bits, *operand);
            }
            nullish if value::is_nullish(nullish) => return Ok(Some(Bson::Null)),
            _ => return Err(Error::type_mismatch(format!("{name} only supports int and long operands."))),
        }
    }
    Ok(Some(if long { Bson::Int64(bits) } else { Bson::Int32(bits as i32) }))
}

/// `{$bitNot: a}`.
pub(crate) fn not(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match arguments[0].as_ref() {
        Some(Bson::Int32(operand)) => Ok(Some(Bson::Int32(!operand))),
        Some(Bson::Int64(operand)) => Ok(Some(Bson::Int64(!operand))),
        nullish if value::is_nullish(nullish) => Ok(Some(Bson::Null)),
        other if value::is_number(other) => {
            Err(Error::type_mismatch(format!("{name} only supports int and long, not: {}.", value::type_name(other))))
        }
        other => {
            Err(Error::location(28765, format!("{name} only supports numeric types, not {}", value::type_name(other))))
        }
    }
}
