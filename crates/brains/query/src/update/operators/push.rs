//! `$push`: adds values to an array, optionally somewhere inside (`$position`), then sorts it and cuts it.
//!
//! The clauses work in this order whatever order they are written in: insert, `$sort`, `$slice`.

use super::{Outcome, Value, array_elements, each_clause, type_of, type_of_value};
use crate::raw::{self, ArrayBuilder, Element};
use crate::update::apply::{Scope, Trail};
use baton_document::order;
use baton_types::{Error, Result};
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};
use std::borrow::Cow;
use std::cmp::Ordering;

#[derive(Debug)]
pub(in crate::update) struct Push {
    values: Vec<Value>,
    position: Option<i64>,
    slice: Option<i64>,
    sort: Option<Sort>,
}

#[derive(Debug)]
enum Sort {
    /// By the elements themselves.
    Whole { descending: bool },
    /// By fields of elements that are documents.
    Fields(Vec<(Box<str>, bool)>),
}

impl Push {
    pub fn parse(argument: RawBsonRef<'_>) -> Result<Self> {
        let mut push = Self { values: Vec::new(), position: None, slice: None, sort: None };
        let Some(clauses) = each_clause(argument)? else {
            push.values.push(Value::from(argument));
            return Ok(push);
        };
        for clause in clauses {
            let (name, value) = clause?;
            match name.as_str() {
                "$each" => match value {
                    RawBsonRef::Array(list) => {
                        push.values = list.into_iter().map(|v| Ok(Value::from(v?))).collect::<Result<_>>()?;
                    }
                    other => {
                        return Err(Error::bad_value(format!(
                            "The argument to $each in $push must be an array but it was of type: {}",
                            type_of_value(other)
                        )));
                    }
                },
                "$slice" => {
                    push.slice = Some(raw::integral(value).ok_or_else(|| {
                        let kind = type_of_value(value);
                        Error::bad_value(format!(
                            "The value for $slice must be an integer value but was given type: {kind}"
                        ))
                    })?);
                }
                "$position" => {
                    push.position = Some(raw::integral(value).ok_or_else(|| {
                        let kind = type_of_value(value);
                        Error::bad_value(format!(
                            "The value for $position must be an integer value, not of type: {kind}"
                        ))
                    })?);
                }
                "$sort" => push.sort = Some(Sort::parse(value)?),
                other => return Err(Error::bad_value(format!("Unrecognized clause in $push: {other}"))),
            }
        }
        Ok(push)
    }

    pub fn apply<'v>(
        &'v self,
        existing: Option<&Element<'_>>,
        trail: &Trail<'_>,
        scope: &Scope<'_>,
    ) -> Result<Outcome<'v>> {
        if let Some(element) = existing.filter(|e| !e.is_array()) {
            return Err(Error::bad_value(format!(
                "The field '{}' must be an array but is of type {} in document {{{}}}",
                trail.dotted(),
                type_of(element),
                scope.id()
            )));
        }
        let array = if self.position.is_none() && self.slice.is_none() && self.sort.is_none() {
            let mut array = match existing {
                Some(element) => ArrayBuilder::extending(element)?,
                None => ArrayBuilder::new(),
            };
            self.values.iter().for_each(|v| array.push(v.element_type(), v.bytes()));
            array
        } else {
            self.rebuild(existing)?
        };
        Ok(Outcome::Put(Cow::Owned(array.finish())))
    }

    /// The array with all clauses applied.
    fn rebuild(&self, existing: Option<&Element<'_>>) -> Result<ArrayBuilder> {
        let old = existing.map_or(Ok(Vec::new()), array_elements)?;
        let mut items: Vec<Item<'_>> =
            old.iter().map(|e| Item { kind: e.element_type(), bytes: e.value_bytes() }).collect();
        let length = items.len() as i64;
        let at = match self.position {
            None => length,
            Some(n) if n < 0 => length.saturating_add(n).max(0),
            Some(n) => n.min(length),
        } as usize;
        items.splice(at..at, self.values.iter().map(|v| Item { kind: v.element_type(), bytes: v.bytes() }));
        if let Some(sort) = &self.sort {
            sort.sort(&mut items)?;
        }
        let length = items.len() as i64;
        let kept = match self.slice {
            None => 0..length,
            Some(n) if n < 0 => length.saturating_add(n).max(0)..length,
            Some(n) => 0..n.min(length),
        };
        let mut array = ArrayBuilder::new();
        for item in &items[kept.start as usize..kept.end as usize] {
            array.push(item.kind, item.bytes);
        }
        Ok(array)
    }
}

/// An element of the array being built, wherever its bytes lie.
#[derive(Clone, Copy)]
struct Item<'a> {
    kind: ElementType,
    bytes: &'a [u8],
}

impl Sort {
    fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let direction = |value| match raw::integral(value) {
            Some(1) => Ok(false),
            Some(-1) => Ok(true),
            _ => Err(Error::bad_value("The $sort element value must be either 1 or -1")),
        };
        let pattern = match value {
            RawBsonRef::Document(pattern) => pattern,
            number if raw::is_number(number) => return Ok(Self::Whole { descending: direction(number)? }),
            _ => {
                return Err(Error::bad_value(
                    "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields",
                ));
            }
        };
        let mut fields = Vec::new();
        for field in pattern {
            let (name, value) = field?;
            let (name, descending) = (name.as_str(), direction(value)?);
            if name.is_empty() {
                return Err(Error::bad_value("The $sort field cannot be empty"));
            }
            if name.split('.').any(str::is_empty) {
                return Err(Error::bad_value(format!(
                    "The $sort field is a dotted field but has an empty part: {name}"
                )));
            }
            fields.push((name.into(), descending));
        }
        if fields.is_empty() {
            return Err(Error::bad_value("The $sort pattern is empty when it should be a set of fields."));
        }
        Ok(Self::Fields(fields))
    }

    /// Sorts stably. Keys are decoded once, before the comparisons.
    fn sort(&self, items: &mut [Item<'_>]) -> Result<()> {
        let values = items.iter().map(|i| Value::from_container(i.kind, i.bytes)).collect::<Vec<_>>();
        let directions: Vec<bool> = match self {
            Self::Whole { descending } => vec![*descending],
            Self::Fields(fields) => fields.iter().map(|(_, d)| *d).collect(),
        };
        let mut keyed = Vec::with_capacity(items.len());
        for (item, value) in items.iter().zip(&values) {
            let key = match self {
                Self::Whole { .. } => vec![value.as_ref()],
                Self::Fields(fields) => {
                    fields.iter().map(|(path, _)| field_of(value.as_ref(), path)).collect::<Result<Vec<_>>>()?
                }
            };
            keyed.push((key, *item));
        }
        keyed.sort_by(|(a, _), (b, _)| {
            for ((a, b), descending) in a.iter().zip(b).zip(&directions) {
                match order::compare(*a, *b) {
                    Ordering::Equal => (),
                    unequal => return if *descending { unequal.reverse() } else { unequal },
                }
            }
            Ordering::Equal
        });
        for (place, (_, item)) in items.iter_mut().zip(keyed) {
            *place = item;
        }
        Ok(())
    }
}

/// The value at a dotted path of a document; null where there is none, as in MongoDB's sort of array elements.
fn field_of<'a>(value: RawBsonRef<'a>, path: &str) -> Result<RawBsonRef<'a>> {
    let mut value = value;
    for name in path.split('.') {
        let fields: &RawDocument = match value {
            RawBsonRef::Document(d) => d,
            RawBsonRef::Array(a) => raw::array_fields(a)?,
            _ => return Ok(RawBsonRef::Null),
        };
        match raw::find(fields, name)? {
            Some(element) => value = element.value()?,
            None => return Ok(RawBsonRef::Null),
        }
    }
    Ok(value)
}
