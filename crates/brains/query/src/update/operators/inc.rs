//! `$inc`: adds to a number, or starts at the amount.

use super::number::Arithmetic;
use super::{Outcome, Value};
use crate::raw::Element;
use crate::update::apply::{Scope, Trail};
use baton_types::Result;
use bson::RawBsonRef;
use std::borrow::Cow;

#[derive(Debug)]
pub(in crate::update) struct Inc {
    amount: Value,
}

impl Inc {
    pub fn parse(path: &str, argument: RawBsonRef<'_>) -> Result<Self> {
        Ok(Self { amount: Arithmetic::Add.parse(path, argument)? })
    }

    pub fn apply<'v>(
        &'v self,
        existing: Option<&Element<'_>>,
        trail: &Trail<'_>,
        scope: &Scope<'_>,
    ) -> Result<Outcome<'v>> {
        match existing {
            None => Ok(Outcome::Put(Cow::Borrowed(&self.amount))),
            Some(element) => Arithmetic::Add.apply(element, &self.amount, trail, scope),
        }
    }
}
