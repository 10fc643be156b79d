//! Array operators: `$arrayElemAt`, `$arrayToObject`, `$concatArrays`, `$first`, `$in`, `$indexOfArray`, `$isArray`,
//! `$last`, `$objectToArray`, `$range`, `$reverseArray`, `$size`, `$slice`, `$zip`.
//!
//! Those that bind variables are in `variables`, those that pick the N first or best in `selection`.

use super::meter::{Elements, Meter};
use super::node::{Arguments, Node, Scope};
use super::parse::Parser;
use super::string::index_range;
use super::table::Operator;
use super::value::{self, Value};
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, Document, RawBsonRef};
use std::borrow::Cow;
use std::mem::take;

/// What an array made by `$range` may take: MongoDB's bound on memory of one expression.
const RANGE_BYTES_MAX: usize = 100 * 1024 * 1024;

const NULL: Result<Value> = Ok(Some(Bson::Null));

/// `{$arrayElemAt: [array, index]}`: missing beyond the ends; a negative index counts from the end.
pub(crate) fn array_elem_at(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let (array, index) = (arguments[0].as_ref(), arguments[1].as_ref());
    if value::is_nullish(array) || value::is_nullish(index) {
        return NULL;
    }
    let Some(Bson::Array(elements)) = array else {
        return Err(Error::location(
            28689,
            format!("{name}'s first argument must be an array, but is {}", value::type_name(array)),
        ));
    };
    if !value::is_number(index) {
        return Err(Error::location(
            28690,
            format!("{name}'s second argument must be a numeric value, but is {}", value::type_name(index)),
        ));
    }
    let Some(position) = value::int_exact(index) else {
        return Err(Error::location(
            28691,
            format!("{name}'s second argument must be representable as a 32-bit integer: {}", value::display(index)),
        ));
    };
    Ok(at(elements, i64::from(position)))
}

fn at(elements: &[Bson], position: i64) -> Value {
    let position = if position < 0 { position + i64::try_from(elements.len()).ok()? } else { position };
    elements.get(usize::try_from(position).ok()?).cloned()
}

/// `{$first: array}`.
pub(crate) fn first(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    end(name, &arguments[0], 0)
}

/// `{$last: array}`.
pub(crate) fn last(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    end(name, &arguments[0], -1)
}

fn end(name: &str, array: &Value, position: i64) -> Result<Value> {
    match array {
        Some(Bson::Array(elements)) => Ok(at(elements, position)),
        nullish if value::is_nullish(nullish) => NULL,
        other => Err(Error::location(
            28689,
            format!("{name}'s argument must be an array, but is {}", value::type_name(other)),
        )),
    }
}

/// `{$concatArrays: [a, …]}`.
pub(crate) fn concat_arrays(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let meter = arguments.meter;
    let mut held = meter.hold(name);
    let mut joined = Vec::new();
    for argument in arguments.iter_mut() {
        if let Cow::Borrowed(value) = argument {
            held.add_contents(value.as_ref())?;
        }
        match take(argument).into_owned() {
            Some(Bson::Array(mut elements)) => joined.append(&mut elements),
            nullish if value::is_nullish(&nullish) => return NULL,
            other => {
                return Err(Error::location(
                    28664,
                    format!("{name} only supports arrays, not {}", value::type_name(&other)),
                ));
            }
        }
    }
    Ok(Some(Bson::Array(joined)))
}

/// `{$in: [a, array]}`.
pub(crate) fn is_in(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let Some(Bson::Array(elements)) = arguments[1].as_ref() else {
        return Err(Error::location(
            40081,
            format!("{name} requires an array as a second argument, found: {}", value::type_name(&arguments[1])),
        ));
    };
    let Some(wanted) = arguments[0].as_ref() else { return Ok(Some(Bson::Boolean(false))) };
    Ok(Some(Bson::Boolean(position(elements, wanted, arguments.meter)?.is_some())))
}

/// Where the first element is that equals a value.
fn position(elements: &[Bson], wanted: &Bson, meter: &Meter<'_>) -> Result<Option<usize>> {
    for (position, element) in elements.iter().enumerate() {
        value::count_comparison(element, wanted, meter)?;
        if equal(element, wanted) {
            return Ok(Some(position));
        }
    }
    Ok(None)
}

fn equal(a: &Bson, b: &Bson) -> bool {
    baton_document::order::compare_bson(a, b).is_eq()
}

/// `{$indexOfArray: [array, wanted, start, end]}`: -1 when absent.
pub(crate) fn index_of_array(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let elements = match arguments[0].as_ref() {
        Some(Bson::Array(elements)) => elements,
        nullish if value::is_nullish(nullish) => return NULL,
        other => {
            return Err(Error::location(
                40090,
                format!("{name} requires an array as a first argument, found: {}", value::type_name(other)),
            ));
        }
    };
    let (start, end) = index_range(name, arguments, elements.len())?;
    let found = match (elements.get(start..end), arguments[1].as_ref()) {
        (Some(window), Some(wanted)) => position(window, wanted, arguments.meter)?,
        _ => None,
    };
    Ok(Some(found.map_or(Bson::Int32(-1), |position| value::count(start + position))))
}

/// `{$isArray: a}`.
pub(crate) fn is_array(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    Ok(Some(Bson::Boolean(matches!(arguments[0].as_ref(), Some(Bson::Array(_))))))
}

/// `{$size: array}`.
pub(crate) fn size(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match arguments[0].as_ref() {
        Some(Bson::Array(elements)) => Ok(Some(value::count(elements.len()))),
        other => Err(Error::location(
            17124,
            format!("The argument to {name} must be an array, but was of type: {}", value::type_name(other)),
        )),
    }
}

/// Counts the copy of the first argument that a function is about to make of what it does not own.
fn count_copy(name: &'static str, arguments: &Arguments<'_, '_>) -> Result<()> {
    match arguments.first() {
        Some(Cow::Borrowed(value)) => arguments.meter.hold(name).add_contents(value.as_ref()),
        _ => Ok(()),
    }
}

/// `{$reverseArray: array}`.
pub(crate) fn reverse_array(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    count_copy(name, arguments)?;
    match take(&mut arguments[0]).into_owned() {
        Some(Bson::Array(mut elements)) => {
            elements.reverse();
            Ok(Some(Bson::Array(elements)))
        }
        nullish if value::is_nullish(&nullish) => NULL,
        other => Err(Error::location(
            34435,
            format!("The argument to {name} must be an array, but was of type: {}", value::type_name(&other)),
        )),
    }
}

/// `{$slice: [array, n]}` or `{$slice: [array, position, n]}`.
pub(crate) fn slice(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    if arguments.iter().any(|argument| value::is_nullish(argument)) {
        return NULL;
    }
    let Some(Bson::Array(elements)) = arguments[0].as_ref() else {
        return Err(Error::location(
            28724,
            format!("First argument to {name} must be an array, but is of type: {}", value::type_name(&arguments[0])),
        ));
    };
    let second = slice_number(name, "Second", &arguments[1], 28725, 28726)?;
    let from_end =
        |back: i64| elements.len().saturating_sub(usize::try_from(back.unsigned_abs()).unwrap_or(usize::MAX));
    let forward = |ahead: i64| usize::try_from(ahead).unwrap_or(usize::MAX).min(elements.len());
    let (start, end) = match arguments.get(2) {
        None if second < 0 => (from_end(second), elements.len()),
        None => (0, forward(second)),
        Some(third) => {
            let count = slice_number(name, "Third", third, 28727, 28728)?;
            if count <= 0 {
                return Err(Error::location(28729, format!("Third argument to {name} must be positive: {count}")));
            }
            let start = if second < 0 { from_end(second) } else { forward(second) };
            (start, start.saturating_add(forward(count)).min(elements.len()))
        }
    };
    let mut taken = Elements::new(arguments.meter, name, end - start);
    for element in &elements[start..end] {
        taken.push(element.clone())?;
    }
    Ok(taken.into_value())
}

fn slice_number(name: &str, place: &str, value: &Value, numeric: i32, integral: i32) -> Result<i64> {
    if !value::is_number(value) {
        return Err(Error::location(
            numeric,
            format!("{place} argument to {name} must be numeric, but is of type: {}", value::type_name(value)),
        ));
    }
    value::int_exact(value).map(i64::from).ok_or_else(|| {
        Error::location(
            integral,
            format!("{place} argument to {name} can't be represented as a 32-bit integer: {}", value::display(value)),
        )
    })
}

/// `{$range: [start, end, step]}`: the end is not part of it.
pub(crate) fn range(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let integer = |position: usize, article: &str, what: &str, numeric: i32| -> Result<i64> {
        let argument = &arguments[position];
        if !value::is_number(argument) {
            return Err(Error::location(
                numeric,
                format!(
                    "{name} requires {article} numeric {what} value, found value of type: {}",
                    value::type_name(argument)
                ),
            ));
        }
        value::int_exact(argument).map(i64::from).ok_or_else(|| {
            Error::location(
                numeric + 1,
                format!(
                    "{name} requires {article} {what} value that can be represented as a 32-bit integer, found value: {}",
                    value::display(argument)
                ),
            )
        })
    };
    let start = integer(0, "a", "starting", 34443)?;
    let end = integer(1, "an", "ending", 34445)?;
    let step = if arguments.len() > 2 { integer(2, "a", "step", 34447)? } else { 1 };
    if step == 0 {
        return Err(Error::location(34449, format!("{name} requires a non-zero step value")));
    }
    let span = if step > 0 { end - start } else { start - end };
    let count = if span <= 0 { 0 } else { usize::try_from((span - 1) / step.abs() + 1).unwrap_or(usize::MAX) };
    // As MongoDB counts: a number is 16 bytes there.
    let bytes = count.saturating_mul(16);
    if bytes > RANGE_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "{name} would use too much memory ({bytes} bytes) and cannot spill to disk. Memory limit: {RANGE_BYTES_MAX} bytes"
            ),
        ));
    }
    let mut numbers = Elements::new(arguments.meter, name, count);
    let mut next = start;
    for _ in 0..count {
        numbers.push(value::narrow(next))?;
        next += step;
    }
    Ok(numbers.into_value())
}

/// `{$objectToArray: object}`: an array of `{k: …, v: …}`.
pub(crate) fn object_to_array(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    count_copy(name, arguments)?;
    match take(&mut arguments[0]).into_owned() {
        Some(Bson::Document(document)) => {
            let mut pairs = Elements::new(arguments.meter, name, document.len());
            for (key, value) in document {
                let mut pair = Document::new();
                pair.insert("k", key);
                pair.insert("v", value);
                pairs.push(Bson::Document(pair))?;
            }
            Ok(pairs.into_value())
        }
        nullish if value::is_nullish(&nullish) => NULL,
        other => Err(Error::location(
            40390,
            format!("{name} requires a document input, found: {}", value::type_name(&other)),
        )),
    }
}

/// `{$arrayToObject: array}`: of `{k: …, v: …}` or of `[k, v]`, not mixed; the last of equal keys wins.
pub(crate) fn array_to_object(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    count_copy(name, arguments)?;
    let elements = match take(&mut arguments[0]).into_owned() {
        Some(Bson::Array(elements)) => elements,
        nullish if value::is_nullish(&nullish) => return NULL,
        other => {
            return Err(Error::location(
                40386,
                format!("{name} requires an array input, found: {}", value::type_name(&other)),
            ));
        }
    };
    let mut object = Document::new();
    let of_arrays = matches!(elements.first(), Some(Bson::Array(_)));
    let of_objects = matches!(elements.first(), Some(Bson::Document(_)));
    for element in elements {
        let (key, value) = match element {
            Bson::Array(pair) if of_arrays => from_array(name, pair)?,
            Bson::Document(pair) if of_objects => from_object(name, pair)?,
            other if of_arrays || of_objects => return Err(inconsistent(name, of_arrays, &other)),
            other => {
                return Err(Error::location(
                    40398,
                    format!("Unrecognised input type format for {name}: {}", value::bson_type_name(&other)),
                ));
            }
        };
        if key.contains('\0') {
            return Err(Error::location(4_940_400, "Key field cannot contain an embedded null byte"));
        }
        object.insert(key, value);
    }
    Ok(Some(Bson::Document(object)))
}

fn inconsistent(name: &str, of_arrays: bool, found: &Bson) -> Error {
    let (code, detected) = if of_arrays { (40396, "Array") } else { (40391, "Object") };
    Error::location(
        code,
        format!(
            "{name} requires a consistent input format. Elements must all be arrays or all be objects. {detected} was detected, now found: {}",
            value::bson_type_name(found)
        ),
    )
}

fn from_array(name: &str, pair: Vec<Bson>) -> Result<(String, Bson)> {
    let size = pair.len();
    let Ok([key, value]) = <[Bson; 2]>::try_from(pair) else {
        return Err(Error::location(
            40397,
            format!("{name} requires an array of size 2 arrays,found array of size: {size}"),
        ));
    };
    match key {
        Bson::String(key) => Ok((key, value)),
        other => Err(Error::location(
            40395,
            format!(
                "{name} requires an array of key-value pairs, where the key must be of type string. Found key type: {}",
                value::bson_type_name(&other)
            ),
        )),
    }
}

fn from_object(name: &str, mut pair: Document) -> Result<(String, Bson)> {
    if pair.len() != 2 {
        return Err(Error::location(
            40392,
            format!("{name} requires an object keys of 'k' and 'v'. Found incorrect number of keys:{}", pair.len()),
        ));
    }
    if !pair.contains_key("k") || !pair.contains_key("v") {
        let found = value::display(&Some(Bson::Document(pair)));
        let message =
            format!("{name} requires an object with keys 'k' and 'v'. Missing either or both keys from: {found}");
        return Err(Error::location(40393, message));
    }
    match (pair.remove("k"), pair.remove("v")) {
        (Some(Bson::String(key)), Some(value)) => Ok((key, value)),
        (key, _) => {
            let kind = key.as_ref().map_or("missing", value::bson_type_name);
            let message = format!(
                "{name} requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. Found type: {kind}"
            );
            Err(Error::location(40394, message))
        }
    }
}

/// Parses `{$zip: {inputs: […], useLongestLength: …, defaults: […]}}`.
pub(crate) fn parse_zip(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let RawBsonRef::Document(document) = raw else {
        return Err(Error::location(
            34460,
            format!("$zip only supports an object as an argument, found {}", value::raw_type_name(raw)),
        ));
    };
    let (mut inputs, mut defaults, mut longest) = (Vec::new(), Vec::new(), false);
    for element in document {
        let (key, inner) = element?;
        match (key.as_str(), inner) {
            ("inputs", RawBsonRef::Array(_)) => inputs = parser.operands(inner)?,
            ("defaults", RawBsonRef::Array(_)) => defaults = parser.operands(inner)?,
            ("useLongestLength", RawBsonRef::Boolean(given)) => longest = given,
            ("inputs", other) => {
                return Err(zip_type(34461, "inputs must be an array of expressions", other));
            }
            ("defaults", other) => {
                return Err(zip_type(34462, "defaults must be an array of expressions", other));
            }
            ("useLongestLength", other) => return Err(zip_type(34463, "useLongestLength must be a bool", other)),
            (other, _) => return Err(Error::location(34464, format!("$zip found an unknown argument: {other}"))),
        }
    }
    if inputs.is_empty() {
        return Err(Error::location(34465, "$zip requires at least one input array"));
    }
    if !defaults.is_empty() && !longest {
        return Err(Error::location(34466, "cannot specify defaults unless useLongestLength is true"));
    }
    if !defaults.is_empty() && defaults.len() != inputs.len() {
        return Err(Error::location(34467, "defaults and inputs must have the same length"));
    }
    Ok(Node::Zip(inputs, defaults, longest))
}

fn zip_type(code: i32, what: &str, found: RawBsonRef<'_>) -> Error {
    Error::location(code, format!("{what}, found {}", value::raw_type_name(found)))
}

/// Evaluates `$zip`; null when any input is nullish.
pub(crate) fn evaluate_zip(inputs: &[Node], defaults: &[Node], longest: bool, scope: &Scope<'_>) -> Result<Value> {
    let mut held = scope.meter.hold("$zip");
    let mut columns = Vec::with_capacity(inputs.len());
    for input in inputs {
        let column = input.evaluate(scope)?;
        held.add_contents(column.as_ref())?;
        match column {
            Some(Bson::Array(elements)) => columns.push(elements),
            nullish if value::is_nullish(&nullish) => return NULL,
            other => {
                return Err(Error::location(
                    34468,
                    format!("$zip found a non-array expression in input: {}", value::display(&other)),
                ));
            }
        }
    }
    let mut fallbacks = Vec::with_capacity(columns.len());
    for default in defaults {
        let fallback = default.evaluate(scope)?.unwrap_or(Bson::Null);
        held.add_value(&fallback)?;
        fallbacks.push(fallback);
    }
    fallbacks.resize(columns.len(), Bson::Null);
    let lengths = columns.iter().map(Vec::len);
    let rows = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    let mut zipped = Elements::new(scope.meter, "$zip", rows);
    for _ in 0..rows {
        let mut row = Elements::new(scope.meter, "$zip", columns.len());
        for (column, fallback) in columns.iter_mut().zip(&fallbacks) {
            row.push(column.next().unwrap_or_else(|| fallback.clone()))?;
        }
        zipped.push(row.into_value().unwrap_or(Bson::Null))?;
    }
    Ok(zipped.into_value())
}
