//! `$mul`: multiplies a number, or starts at a zero of the factor's type.

use super::number::Arithmetic;
use super::{Outcome, Value};
use crate::raw::Element;
use crate::update::apply::{Scope, Trail};
use baton_types::Result;
use bson::{Bson, RawBsonRef};
use std::borrow::Cow;

#[derive(Debug)]
pub(in crate::update) struct Mul {
    factor: Value,
}

impl Mul {
    pub fn parse(path: &str, argument: RawBsonRef<'_>) -> Result<Self> {
        Ok(Self { factor: Arithmetic::Multiply.parse(path, argument)? })
    }

    pub fn apply<'v>(
        &'v self,
        existing: Option<&Element<'_>>,
        trail: &Trail<'_>,
        scope: &Scope<'_>,
    ) -> Result<Outcome<'v>> {
        match existing {
            None => Ok(Outcome::Put(Cow::Owned(self.zero()?))),
            Some(element) => Arithmetic::Multiply.apply(element, &self.factor, trail, scope),
        }
    }

    fn zero(&self) -> Result<Value> {
        Value::from_bson(match self.factor.as_ref() {
            RawBsonRef::Int32(_) => Bson::Int32(0),
            RawBsonRef::Int64(_) => Bson::Int64(0),
            RawBsonRef::Double(_) => Bson::Double(0.0),
            // Zero with exponent 0: coefficient 0, biased exponent 6176.
            _ => Bson::Decimal128(bson::Decimal128::from_bytes((6176_u128 << 113).to_le_bytes())),
        })
    }
}
