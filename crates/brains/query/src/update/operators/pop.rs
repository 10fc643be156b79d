//! `$pop`: removes the first (-1) or last (1) element of an array.

use super::{Outcome, array_elements, type_of};
use crate::raw::{self, ArrayBuilder, Element};
use crate::show;
use crate::update::apply::Trail;
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::borrow::Cow;

#[derive(Debug)]
pub(in crate::update) struct Pop {
    first: bool,
}

impl Pop {
    pub fn parse(path: &str, argument: RawBsonRef<'_>) -> Result<Self> {
        if !raw::is_number(argument) {
            return Err(Error::failed_to_parse(format!("Expected a number in: {}", show::element(path, argument))));
        }
        match raw::integral(argument) {
            Some(1) => Ok(Self { first: false }),
            Some(-1) => Ok(Self { first: true }),
            Some(other) => Err(Error::failed_to_parse(format!("$pop expects 1 or -1, found: {other}"))),
            None => Err(Error::failed_to_parse(format!("Expected an integer: {}", show::element(path, argument)))),
        }
    }

    pub fn apply<'v>(&'v self, existing: Option<&Element<'_>>, trail: &Trail<'_>) -> Result<Outcome<'v>> {
        let Some(element) = existing else { return Ok(Outcome::Keep) };
        if !element.is_array() {
            return Err(Error::type_mismatch(format!(
                "Path '{}' contains an element of non-array type '{}'",
                trail.dotted(),
                type_of(element)
            )));
        }
        let items = array_elements(element)?;
        let Some(last) = items.len().checked_sub(1) else { return Ok(Outcome::Keep) };
        let mut rest = ArrayBuilder::new();
        for item in if self.first { &items[1..] } else { &items[..last] } {
            rest.push(item.element_type(), item.value_bytes());
        }
        Ok(Outcome::Put(Cow::Owned(rest.finish())))
    }
}
