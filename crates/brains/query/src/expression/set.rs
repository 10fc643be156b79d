//! Set operators over arrays: `$setDifference`, `$setEquals`, `$setIntersection`, `$setIsSubset`, `$setUnion`,
//! `$allElementsTrue`, `$anyElementTrue`.
//!
//! Arrays count as sets: duplicates do not matter, and nested arrays are single elements. Unions and intersections come
//! out sorted, so that equal inputs give equal outputs.

use super::meter::{Elements, Meter};
use super::node::Arguments;
use super::value::{self, Ordered, Value};
use baton_types::{Error, Result};
use bson::Bson;
use std::collections::BTreeSet;

/// Elements in MongoDB's order, each once. They stay where they are.
type Set<'v> = BTreeSet<Ordered<&'v Bson>>;

/// Adds the elements of an array to a set. A comparison or some are made for each.
fn extend<'v>(set: &mut Set<'v>, elements: &'v [Bson], meter: &Meter<'_>) -> Result<()> {
    for element in elements {
        count_look(element, set.len(), meter)?;
        set.insert(Ordered(element));
    }
    Ok(())
}

fn set_of<'v>(elements: &'v [Bson], meter: &Meter<'_>) -> Result<Set<'v>> {
    let mut set = Set::new();
    extend(&mut set, elements, meter)?;
    Ok(set)
}

/// Counts a look for an element in a set of so many.
fn count_look(element: &Bson, size: usize, meter: &Meter<'_>) -> Result<()> {
    let parts = value::size_bytes(element) / size_of::<Bson>();
    meter.steps(1 + parts.saturating_mul(size.max(1).ilog2() as usize))
}

/// A copy of some elements as an array.
fn array_of<'v>(name: &'static str, elements: impl Iterator<Item = &'v Bson>, meter: &Meter<'_>) -> Result<Value> {
    let mut array = Elements::new(meter, name, 0);
    for element in elements {
        array.push(element.clone())?;
    }
    Ok(array.into_value())
}

/// `{$setUnion: [a, …]}`; null when any is nullish.
pub(crate) fn union(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let meter = arguments.meter;
    let mut united = Set::new();
    for argument in arguments.iter() {
        match argument.as_ref() {
            Some(Bson::Array(elements)) => extend(&mut united, elements, meter)?,
            nullish if value::is_nullish(nullish) => return Ok(Some(Bson::Null)),
            other => return Err(all_must_be_arrays(name, 17043, other)),
        }
    }
    array_of(name, united.into_iter().map(|Ordered(element)| element), meter)
}

/// `{$setIntersection: [a, …]}`; null when any is nullish.
pub(crate) fn intersection(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let meter = arguments.meter;
    let mut common: Option<Set<'_>> = None;
    for argument in arguments.iter() {
        let elements = match argument.as_ref() {
            Some(Bson::Array(elements)) => set_of(elements, meter)?,
            nullish if value::is_nullish(nullish) => return Ok(Some(Bson::Null)),
            other => return Err(all_must_be_arrays(name, 17047, other)),
        };
        common = Some(match common {
            None => elements,
            Some(common) => common.into_iter().filter(|element| elements.contains(element)).collect(),
        });
    }
    array_of(name, common.unwrap_or_default().into_iter().map(|Ordered(element)| element), meter)
}

fn all_must_be_arrays(name: &str, code: i32, found: &Value) -> Error {
    Error::location(
        code,
        format!("All operands of {name} must be arrays. One argument is of type: {}", value::type_name(found)),
    )
}

/// `{$setEquals: [a, b, …]}`.
pub(crate) fn equals(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    if arguments.len() < 2 {
        return Err(Error::location(
            17045,
            format!("$setEquals needs at least two arguments had: {}", arguments.len()),
        ));
    }
    let mut first: Option<Set<'_>> = None;
    let mut equal = true;
    for argument in arguments.iter() {
        let Some(Bson::Array(elements)) = argument.as_ref() else {
            return Err(all_must_be_arrays("$setEquals", 17044, argument));
        };
        let elements = set_of(elements, arguments.meter)?;
        match &first {
            None => first = Some(elements),
            Some(first) => equal &= *first == elements,
        }
    }
    Ok(Some(Bson::Boolean(equal)))
}

/// `{$setDifference: [a, b]}`: what of `a` is not in `b`, in the order of `a`.
pub(crate) fn difference(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let (a, b) = (arguments[0].as_ref(), arguments[1].as_ref());
    if value::is_nullish(a) || value::is_nullish(b) {
        return Ok(Some(Bson::Null));
    }
    let (a, b) = both_arrays(name, (a, 17048), (b, 17049))?;
    let meter = arguments.meter;
    let mut seen = set_of(b, meter)?;
    let mut kept = Elements::new(meter, name, 0);
    for element in a {
        count_look(element, seen.len(), meter)?;
        if seen.insert(Ordered(element)) {
            kept.push(element.clone())?;
        }
    }
    Ok(kept.into_value())
}

/// `{$setIsSubset: [a, b]}`.
pub(crate) fn is_subset(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let (a, b) = both_arrays(name, (&arguments[0], 17046), (&arguments[1], 17042))?;
    let whole = set_of(b, arguments.meter)?;
    for element in a {
        count_look(element, whole.len(), arguments.meter)?;
        if !whole.contains(&Ordered(element)) {
            return Ok(Some(Bson::Boolean(false)));
        }
    }
    Ok(Some(Bson::Boolean(true)))
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
pub(crate) fn all_elements_true(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let elements = only_array(name, 17040, &arguments[0])?;
    arguments.meter.steps(elements.len())?;
    Ok(Some(Bson::Boolean(elements.iter().all(is_true))))
}

/// `{$anyElementTrue: [array]}`.
pub(crate) fn any_element_true(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let elements = only_array(name, 17041, &arguments[0])?;
    arguments.meter.steps(elements.len())?;
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
