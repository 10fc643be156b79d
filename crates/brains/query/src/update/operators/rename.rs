//! `$rename`: moves a value from one path to another.
//!
//! It becomes two operators in the tree: one that takes the value at the destination, and an `$unset` of the source.
//! Neither path may lead through an array.

use super::{Operator, Outcome, Value};
use crate::show;
use crate::update::apply::{Scope, value_at};
use crate::update::tree::{check_path, is_dynamic};
use baton_types::{Error, ErrorCode, Result};
use bson::RawBsonRef;
use std::borrow::Cow;

#[derive(Debug)]
pub(in crate::update) struct Rename {
    source: Box<str>,
    destination: Box<str>,
}

/// The destination's path and the operator to put there.
pub(in crate::update) fn parse(source: &str, argument: RawBsonRef<'_>) -> Result<(String, Operator)> {
    let element = || show::element(source, argument);
    let RawBsonRef::String(destination) = argument else {
        return Err(Error::bad_value(format!("The 'to' field for $rename must be a string: {}", element())));
    };
    if destination.contains('\0') {
        return Err(Error::bad_value(format!(
            "The 'to' field for $rename cannot contain an embedded null byte: {}",
            element()
        )));
    }
    check_path(source)?;
    check_path(destination)?;
    if source == destination {
        return Err(Error::bad_value(format!("The source and target field for $rename must differ: {}", element())));
    }
    let below = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('.'));
    if below(source, destination) || below(destination, source) {
        return Err(Error::bad_value(format!(
            "The source and target field for $rename must not be on the same path: {}",
            element()
        )));
    }
    if is_dynamic(source) {
        return Err(Error::bad_value(format!("The source field for $rename may not be dynamic: {source}")));
    }
    if is_dynamic(destination) {
        return Err(Error::bad_value(format!("The destination field for $rename may not be dynamic: {destination}")));
    }
    let rename = Rename { source: source.into(), destination: destination.into() };
    Ok((destination.to_owned(), Operator::Rename(rename)))
}

impl Rename {
    pub fn apply<'v>(&'v self, scope: &Scope<'_>) -> Result<Outcome<'v>> {
        let through_array = |what: &'static str, path: &str, array: &str| {
            let id = scope.id();
            Error::bad_value(format!(
                "The {what} field cannot be an array element, '{path}' in doc with {id} has an array field called '{array}'"
            ))
        };
        let source = value_at(scope.root, &self.source, |array| through_array("source", &self.source, array))?;
        let Some(source) = source else { return Ok(Outcome::Keep) };
        let destination =
            value_at(scope.root, &self.destination, |array| through_array("destination", &self.destination, array));
        // A blocked destination is reported where the field would have to be created.
        if let Err(error) = destination
            && error.code != ErrorCode::PathNotViable
        {
            return Err(error);
        }
        Ok(Outcome::Put(Cow::Owned(Value::from_element(&source))))
    }
}
