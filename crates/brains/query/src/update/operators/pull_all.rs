//! `$pullAll`: removes the elements that equal one of the listed values.

use super::{Ordered, Outcome, VALUES_FEW, Value, cull, type_of_value};
use crate::raw::Element;
use crate::update::apply::Scope;
use baton_document::order;
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::cmp::Ordering;
use std::collections::BTreeSet;

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

    pub fn apply<'v>(&'v self, existing: Option<&Element<'_>>, scope: &Scope<'_>) -> Result<Outcome<'v>> {
        let known: Option<BTreeSet<Ordered<'_>>> =
            (self.values.len() > VALUES_FEW).then(|| self.values.iter().map(|v| Ordered(v.as_ref())).collect());
        cull(existing, scope, |item| {
            let item = item.value()?;
            Ok(match &known {
                Some(known) => known.contains(&Ordered(item)),
                None => self.values.iter().any(|v| order::compare(v.as_ref(), item) == Ordering::Equal),
            })
        })
    }
}
