//! `$min` and `$max`: keeps the smaller or the greater of two values, by the order across all types.

use super::{Outcome, Value};
use crate::raw::Element;
use baton_document::order;
use baton_types::Result;
use bson::RawBsonRef;
use std::borrow::Cow;
use std::cmp::Ordering;

#[derive(Debug)]
pub(in crate::update) struct MinMax {
    pub value: Value,
    /// How the operand must compare with what is there, to take its place.
    replaces: Ordering,
}

impl MinMax {
    pub fn min(argument: RawBsonRef<'_>) -> Self {
        Self { value: Value::from(argument), replaces: Ordering::Less }
    }

    pub fn max(argument: RawBsonRef<'_>) -> Self {
        Self { value: Value::from(argument), replaces: Ordering::Greater }
    }

    pub fn apply(&self, existing: Option<&Element<'_>>) -> Result<Outcome<'_>> {
        if let Some(element) = existing
            && order::compare(self.value.as_ref(), element.value()?) != self.replaces
        {
            return Ok(Outcome::Keep);
        }
        Ok(Outcome::Put(Cow::Borrowed(&self.value)))
    }
}
