//! The arithmetic of `$inc` and `$mul`: integers widen from 32 to 64 bits and then fail rather than become doubles.

use super::{Outcome, Value};
use crate::raw::{self, Element};
use crate::show;
use crate::update::apply::{Scope, Trail};
use baton_document::number::Number;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::borrow::Cow;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Multiply,
}

impl Arithmetic {
    fn operator(self) -> &'static str {
        match self {
            Self::Add => "$inc",
            Self::Multiply => "$mul",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Add => "increment",
            Self::Multiply => "multiply",
        }
    }

    /// The argument, which must be a number.
    pub fn parse(self, path: &str, argument: RawBsonRef<'_>) -> Result<Value> {
        if !raw::is_number(argument) {
            let element = show::element(path, argument);
            let verb = self.verb();
            return Err(Error::type_mismatch(format!("Cannot {verb} with non-numeric argument: {{{element}}}")));
        }
        Ok(Value::from(argument))
    }

    /// Applies the operation to a value that exists.
    pub fn apply<'v>(
        self,
        element: &Element<'_>,
        argument: &Value,
        trail: &Trail<'_>,
        scope: &Scope<'_>,
    ) -> Result<Outcome<'v>> {
        let current = element.value()?;
        if !raw::is_number(current) {
            return Err(Error::type_mismatch(format!(
                "Cannot apply {} to a value of non-numeric type. {{{}}} has the field '{}' of non-numeric type {}",
                self.operator(),
                scope.id(),
                trail.name,
                type_name(element.element_type()),
            )));
        }
        let result = match (Number::from_raw(current), Number::from_raw(argument.as_ref())) {
            (Some(a), Some(b)) => match self {
                Self::Add => a.checked_add(b),
                Self::Multiply => a.checked_multiply(b),
            },
            _ => None,
        };
        match result {
            Some(result) => Ok(Outcome::Put(Cow::Owned(Value::from(result.to_raw())))),
            None => Err(Error::bad_value(format!(
                "Failed to apply {} operations to current value ({}) for document {{{}}}",
                self.operator(),
                debug(current),
                scope.id(),
            ))),
        }
    }
}

/// A number with its type, as MongoDB prints it in this message.
fn debug(value: RawBsonRef<'_>) -> String {
    let kind = match value {
        RawBsonRef::Int32(_) => "NumberInt",
        RawBsonRef::Int64(_) => "NumberLong",
        RawBsonRef::Double(_) => "NumberDouble",
        _ => "NumberDecimal",
    };
    format!("({kind}){}", show::value(value))
}
