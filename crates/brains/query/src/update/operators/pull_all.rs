//! `$pullAll`: removes the elements that equal one of the listed values.

use super::{Outcome, Value, cull, type_of_value};
use crate::raw::Element;
use baton_document::order;
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::cmp::Ordering;

#[derive(Debug)]
pub(in crate::update) struct PullAll {
    values: Vec<Value>,
}

impl PullAll {
    pub fn parse(argument: RawBsonRef<'_>) -> Result<Self> {
        let RawBsonRef::Array(list) = argument else {
            let kind = type_of_value(argument);
            return Err(Error::bad_value(format!("$pullAll requires an array argument but was given a {kind}")));
        };
        let values = list.into_iter().map(|v| Ok(Value::from(v?))).collect::<Result<_>>()?;
        Ok(Self { values })
    }

    pub fn apply<'v>(&'v self, existing: Option<&Element<'_>>) -> Result<Outcome<'v>> {
        cull(existing, |item| {
            let item = item.value()?;
            Ok(self.values.iter().any(|v| order::compare(v.as_ref(), item) == Ordering::Equal))
        })
    }
}
