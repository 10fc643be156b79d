//! `$pull`: removes the elements that equal a value or match a condition.
//!
//! Three kinds of argument: a document without operators is a filter for elements that are documents; operators
//! (`{$gte: 5}`) and regular expressions are a condition on the element itself; anything else is compared by value.

use super::{Outcome, Value, cull};
use crate::Context;
use crate::matcher::Matcher;
use crate::raw::{self, Element};
use crate::update::apply::Scope;
use baton_document::order;
use baton_types::Result;
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};
use std::cmp::Ordering;

#[derive(Debug)]
pub(in crate::update) enum Pull {
    /// Elements that are documents and match.
    Documents(Matcher),
    /// Elements that match, looked at under [`ELEMENT`].
    Elements(Matcher),
    /// Elements that are equal.
    Equal(Value),
}

/// The name under which a condition on the element itself sees it.
const ELEMENT: &str = "element";

impl Pull {
    pub fn parse(argument: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let on_element = || -> Result<Self> {
            let mut out = Vec::new();
            let start = raw::begin(&mut out);
            raw::put_value(&mut out, ELEMENT, argument);
            raw::end(&mut out, start);
            Ok(Self::Elements(Matcher::parse(RawDocument::from_bytes(&out)?, ctx)?))
        };
        match argument {
            RawBsonRef::Document(condition) if starts_with_operator(condition)? => on_element(),
            RawBsonRef::Document(filter) => Ok(Self::Documents(Matcher::parse(filter, ctx)?)),
            RawBsonRef::RegularExpression(_) => on_element(),
            other => Ok(Self::Equal(Value::from(other))),
        }
    }

    pub fn apply<'v>(&'v self, existing: Option<&Element<'_>>, scope: &Scope<'_>) -> Result<Outcome<'v>> {
        cull(existing, scope, |item| match self {
            Self::Documents(matcher) => match item.container()? {
                Some(document) if item.element_type() == ElementType::EmbeddedDocument => matcher.matches(document),
                _ => Ok(false),
            },
            Self::Elements(matcher) => {
                let mut out = Vec::new();
                let start = raw::begin(&mut out);
                raw::put_renamed(&mut out, ELEMENT, item);
                raw::end(&mut out, start);
                matcher.matches(RawDocument::from_bytes(&out)?)
            }
            Self::Equal(value) => Ok(order::compare(value.as_ref(), item.value()?) == Ordering::Equal),
        })
    }
}

/// `{$gte: 5}`, but not `{$and: […]}`, which is a filter on documents, nor a DBRef.
fn starts_with_operator(condition: &RawDocument) -> Result<bool> {
    let Some(first) = condition.iter_elements().next() else { return Ok(false) };
    let first = first?;
    let name = first.key().as_str();
    Ok(name.starts_with('$')
        && !matches!(name, "$and" | "$or" | "$nor" | "$ref" | "$id" | "$db" | "$expr" | "$where" | "$comment"))
}
