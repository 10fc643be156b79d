//! `$bit`: bitwise `and`, `or` and `xor` of integers, in the order they are written.
//!
//! A missing value counts as a 32-bit zero; the result has 64 bits once one operand has.

use super::{Outcome, Value, type_of, type_of_value};
use crate::raw::Element;
use crate::show;
use crate::update::apply::{Scope, Trail};
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug)]
enum Operation {
    And,
    Or,
    Xor,
}

/// An integer that remembers its width. A 32-bit one is kept sign-extended, which bitwise operations preserve.
#[derive(Clone, Copy, Debug)]
struct Bits {
    value: i64,
    long: bool,
}

impl Bits {
    fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Int32(n) => Some(Self { value: n.into(), long: false }),
            RawBsonRef::Int64(n) => Some(Self { value: n, long: true }),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(in crate::update) struct Bit {
    operations: Vec<(Operation, Bits)>,
}

impl Bit {
    pub fn parse(argument: RawBsonRef<'_>) -> Result<Self> {
        let RawBsonRef::Document(fields) = argument else {
            return Err(Error::bad_value(format!(
                "The $bit modifier is not compatible with a {}. You must pass in an embedded document: {{$bit: {{field: {{and/or/xor: #}}}}",
                type_of_value(argument)
            )));
        };
        let mut operations = Vec::new();
        for field in fields {
            let (name, value) = field?;
            let operation = match name.as_str() {
                "and" => Operation::And,
                "or" => Operation::Or,
                "xor" => Operation::Xor,
                other => {
                    return Err(Error::bad_value(format!(
                        "The $bit modifier only supports 'and', 'or', and 'xor', not '{other}' which is an unknown operator: {{{}}}",
                        show::element(other, value)
                    )));
                }
            };
            let bits = Bits::of(value).ok_or_else(|| {
                Error::bad_value(format!(
                    "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: {{{}}}",
                    type_of_value(value),
                    show::element(name.as_str(), value)
                ))
            })?;
            operations.push((operation, bits));
        }
        if operations.is_empty() {
            return Err(Error::bad_value(
                "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}",
            ));
        }
        Ok(Self { operations })
    }

    pub fn apply<'v>(
        &'v self,
        existing: Option<&Element<'_>>,
        trail: &Trail<'_>,
        scope: &Scope<'_>,
    ) -> Result<Outcome<'v>> {
        let mut result = match existing {
            None => Bits { value: 0, long: false },
            Some(element) => Bits::of(element.value()?).ok_or_else(|| {
                Error::bad_value(format!(
                    "Cannot apply $bit to a value of non-integral type.{} has the field {} of non-integer type {}",
                    scope.id(),
                    trail.name,
                    type_of(element)
                ))
            })?,
        };
        for (operation, operand) in &self.operations {
            result.long |= operand.long;
            result.value = match operation {
                Operation::And => result.value & operand.value,
                Operation::Or => result.value | operand.value,
                Operation::Xor => result.value ^ operand.value,
            };
        }
        let value = if result.long { RawBsonRef::Int64(result.value) } else { RawBsonRef::Int32(result.value as i32) };
        Ok(Outcome::Put(Cow::Owned(Value::from(value))))
    }
}
