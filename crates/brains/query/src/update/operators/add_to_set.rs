//! `$addToSet`: appends the values that an array does not hold yet.
//!
//! Values are the same if they compare equal: numbers by value whatever their type, documents field by field in order.

use super::{Ordered, Outcome, VALUES_FEW, Value, array_elements, each_clause, type_of, type_of_value};
use crate::raw::{ArrayBuilder, Element};
use crate::update::apply::{Scope, Trail};
use baton_document::order;
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(in crate::update) struct AddToSet {
    /// No two of them equal.
    values: Vec<Value>,
}

impl AddToSet {
    pub fn parse(argument: RawBsonRef<'_>) -> Result<Self> {
        let Some(clauses) = each_clause(argument)?.filter(|d| {
            // `$each` counts only as the first field; otherwise it is part of a value.
            d.iter_elements().next().is_some_and(|e| e.is_ok_and(|e| e.key().as_str() == "$each"))
        }) else {
            return Ok(Self { values: vec![Value::from(argument)] });
        };
        let mut values: Vec<Value> = Vec::new();
        for clause in clauses {
            let (name, value) = clause?;
            match (name.as_str(), value) {
                ("$each", RawBsonRef::Array(list)) => {
                    let mut known = BTreeSet::new();
                    for item in list {
                        let item = item?;
                        if known.insert(Ordered(item)) {
                            values.push(Value::from(item));
                        }
                    }
                }
                ("$each", other) => {
                    return Err(Error::type_mismatch(format!(
                        "The argument to $each in $addToSet must be an array but it was of type {}",
                        type_of_value(other)
                    )));
                }
                _ => {
                    let clauses = crate::show::document(clauses);
                    return Err(Error::bad_value(format!(
                        "Found unexpected fields after $each in $addToSet: {clauses}"
                    )));
                }
            }
        }
        Ok(Self { values })
    }

    pub fn apply<'v>(
        &'v self,
        existing: Option<&Element<'_>>,
        trail: &Trail<'_>,
        scope: &Scope<'_>,
    ) -> Result<Outcome<'v>> {
        let Some(element) = existing else {
            let mut array = ArrayBuilder::new();
            self.values.iter().for_each(|v| array.push(v.element_type(), v.bytes()));
            return Ok(Outcome::Put(Cow::Owned(array.finish())));
        };
        if !element.is_array() {
            return Err(Error::bad_value(format!(
                "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {}",
                trail.name,
                type_of(element)
            )));
        }
        let present = array_elements(element)?.iter().map(Element::value).collect::<Result<Vec<_>>>()?;
        // To look through the array for each of many values would take its length times theirs.
        let known: Option<BTreeSet<Ordered<'_>>> =
            (self.values.len() > VALUES_FEW).then(|| present.iter().copied().map(Ordered).collect());
        let mut array: Option<ArrayBuilder> = None;
        for value in &self.values {
            scope.interruption.step()?;
            let is_present = match &known {
                Some(known) => known.contains(&Ordered(value.as_ref())),
                None => present.iter().any(|p| same(*p, value.as_ref())),
            };
            if is_present {
                continue;
            }
            let array = match &mut array {
                Some(array) => array,
                none => none.insert(ArrayBuilder::extending(element)?),
            };
            array.push(value.element_type(), value.bytes());
        }
        match array {
            None => Ok(Outcome::Keep),
            Some(array) => Ok(Outcome::Put(Cow::Owned(array.finish()))),
        }
    }
}

fn same(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> bool {
    order::compare(a, b) == Ordering::Equal
}
