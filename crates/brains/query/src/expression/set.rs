//! Set operators over arrays: `$setDifference`, `$setEquals`, `$setIntersection`, `$setIsSubset`, `$setUnion`,
//! `$allElementsTrue`, `$anyElementTrue`.
//!
//! Arrays count as sets: duplicates do not matter, and nested arrays are single elements. Unions and intersections come
//! out sorted, so that equal inputs give equal outputs.

use super::node::Argument;
use super::value::{self, Ordered, Value};
use baton_types::{Error, Result};
use bson::Bson;
use std::collections::BTreeSet;

fn set_of(elements: &[Bson]) -> BTreeSet<Ordered> {
    elements.iter().cloned().map(Ordered).collect()
}

fn array_of(set: BTreeSet<Ordered>) -> Result<Value> {
    Ok(Some(Bson::Array(set.into_iter().map(|Ordered(value)| value).collect())))
}

/// `{$setUnion: [a, …]}`; null when any is nullish.
pub(crate) fn union(name: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    let mut united = BTreeSet::new();
    for argument in arguments.iter() {
        match argument.as_ref() {
            Some(Bson::Array(elements)) => united.extend(elements.iter().cloned().map(Ordered)),
            nullish if value::is_nullish(nullish) => return Ok(Some(Bson::Null)),
            other => return Err(all_must_be_arrays(name, 17043, other)),
        }
    }
    array_of(united)
}

/// `{$setIntersection: [a, …]}`; null when any is nullish.
pub(crate) fn intersection(name: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    let mut common: Option<BTreeSet<Ordered>> = None;
    for argument in arguments.iter() {
        let elements = match argument.as_ref() {
            Some(Bson::Array(elements)) => set_of(elements),
            nullish if value::is_nullish(nullish) => return Ok(Some(Bson::Null)),
            other => return Err(all_must_be_arrays(name, 17047, other)),
        };
        common = Some(match common {
            None => elements,
            Some(common) => common.into_iter().filter(|element| elements.contains(element)).collect(),
        });
    }
    array_of(common.unwrap_or_default())
}

fn all_must_be_arrays(name: &str, code: i32, found: &Value) -> Error {
    Error::location(
        code,
        format!("All operands of {name} must be arrays. One argument is of type: {}", value::type_name(found)),
    )
}

/// `{$setEquals: [a, b, …]}`.
pub(crate) fn equals(_: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    if arguments.len() < 2 {
        return Err(Error::location(
            17045,
            format!("$setEquals needs at least two arguments had: {}", arguments.len()),
        ));
    }
    let mut first: Option<BTreeSet<Ordered>> = None;
    let mut equal = true;
    for argument in arguments.iter() {
        let Some(Bson::Array(elements)) = argument.as_ref() else {
            return Err(all_must_be_arrays("$setEquals", 17044, argument));
        };
        let elements = set_of(elements);
        match &first {
            None => first = Some(elements),
            Some(first) => equal &= *first == elements,
        }
    }
    Ok(Some(Bson::Boolean(equal)))
}

/// `{$setDifference: [a, b]}`: what of `a` is not in `b`, in the order of `a`.
pub(crate) fn difference(name: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    let (a, b) = (arguments[0].as_ref(), arguments[1].as_ref());
    if value::is_nullish(a) || value::is_nullish(b) {
        return Ok(Some(Bson::Null));
    }
    let (a, b) = both_arrays(name, (a, 17048), (b, 17049))?;
    let mut seen = set_of(b);
    let kept = a.iter().filter(|element| seen.insert(Ordered((*element).clone()))).cloned().collect();
    Ok(Some(Bson::Array(kept)))
}

/// `{$setIsSubset: [a, b]}`.
pub(crate) fn is_subset(name: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    let (a, b) = both_arrays(name, (&arguments[0], 17046), (&arguments[1], 17042))?;
    let whole = set_of(b);
    Ok(Some(Bson::Boolean(a.iter().all(|element| whole.contains(&Ordered(element.clone()))))))
}

fn both_arrays<'v>(name: &str, a: (&'v Value, i32), b: (&'v Value, i32)) -> Result<(&'v [Bson], &'v [Bson])> {
    let expects = |code, place, found: &Value| {
        Error::location(
            code,
            format!("both operands of {name} must be arrays. {place} argument is of type: {}", value::type_name(found)),
        )
    };
    let Some(Bson::Array(first)) = a.0 else { return Err(expects(a.1, "First", a.0)) };
    let Some(Bson::Array(second)) = b.0 else { return Err(expects(b.1, "Second", b.0)) };
    Ok((first, second))
}

/// `{$allElementsTrue: [array]}`.
pub(crate) fn all_elements_true(name: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    let elements = only_array(name, 17040, &arguments[0])?;
    Ok(Some(Bson::Boolean(elements.iter().all(is_true))))
}

/// `{$anyElementTrue: [array]}`.
pub(crate) fn any_element_true(name: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    let elements = only_array(name, 17041, &arguments[0])?;
    Ok(Some(Bson::Boolean(elements.iter().any(is_true))))
}

fn is_true(value: &Bson) -> bool {
    match value {
        Bson::Array(_) | Bson::Document(_) => true,
        scalar => value::is_true(&Some(scalar.clone())),
    }
}

fn only_array<'v>(name: &str, code: i32, value: &'v Value) -> Result<&'v [Bson]> {
    match value {
        Some(Bson::Array(elements)) => Ok(elements),
        other => Err(Error::location(
            code,
            format!("{name}'s argument must be an array, but is {}", value::type_name(other)),
        )),
    }
}
