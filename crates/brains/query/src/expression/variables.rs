//! `$let`, `$map`, `$filter`, `$reduce`: the operators that bind variables.

use super::meter::{Elements, Held, Meter};
use super::node::{Node, Scope};
use super::parse::{DEPTH_MAX, Parser, check_bindable_name};
use super::path;
use super::table::Operator;
use super::value::{self, Value};
use baton_types::{Error, ErrorCode, Result};
use bson::raw::RawArrayIter;
use bson::{Bson, RawBsonRef, RawDocument};

/// `$reduce` looks at how deep its value nests once in so many steps: a step adds no more levels than its expression has.
const REDUCE_DEPTH_CHECK_STEPS: usize = 8;

/// `{$let: {vars: {name: …}, in: …}}`.
pub(crate) fn parse_let(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let document = object(raw, 16874, "$let only supports an object as its argument")?;
    let (mut vars, mut body) = (None, None);
    for element in document {
        let (name, inner) = element?;
        match name.as_str() {
            "vars" => vars = Some(inner),
            "in" => body = Some(inner),
            other => return Err(Error::location(16875, format!("Unrecognized parameter to $let: {other}"))),
        }
    }
    let vars = vars.ok_or_else(|| Error::location(16876, "Missing 'vars' parameter to $let"))?;
    let body = body.ok_or_else(|| Error::location(16877, "Missing 'in' parameter to $let"))?;
    let vars = object(vars, 10065, "invalid parameter: expected an object (vars)")?;
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for element in vars {
        let (name, inner) = element?;
        check_bindable_name(name.as_str())?;
        names.push(name.as_str().to_owned());
        values.push(parser.operand(inner)?);
    }
    let slot = parser.next_slot();
    let bindings: Vec<(&str, &Node)> = names.iter().map(String::as_str).zip(&values).collect();
    let body = parser.operand_within(&bindings, body)?;
    Ok(Node::Let(slot, values, Box::new(body)))
}

/// `{$map: {input: …, as: "this", in: …}}`.
pub(crate) fn parse_map(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let document = object(raw, 16878, "$map only supports an object as its argument")?;
    let (mut input, mut name, mut body) = (None, "this".to_owned(), None);
    for element in document {
        let (key, inner) = element?;
        match key.as_str() {
            "input" => input = Some(inner),
            "as" => name = variable_name(inner, "$map")?,
            "in" => body = Some(inner),
            other => return Err(Error::location(16879, format!("Unrecognized parameter to $map: {other}"))),
        }
    }
    let input = input.ok_or_else(|| Error::location(16880, "Missing 'input' parameter to $map"))?;
    let body = body.ok_or_else(|| Error::location(16882, "Missing 'in' parameter to $map"))?;
    let input = parser.operand(input)?;
    let slot = parser.next_slot();
    let body = parser.operand_within(&[(&name, &input)], body)?;
    Ok(Node::Map(slot, Box::new([input, body])))
}

/// `{$filter: {input: …, as: "this", cond: …, limit: …}}`.
pub(crate) fn parse_filter(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let document = object(raw, 28646, "$filter only supports an object as its argument")?;
    let (mut input, mut name, mut condition, mut limit) = (None, "this".to_owned(), None, None);
    for element in document {
        let (key, inner) = element?;
        match key.as_str() {
            "input" => input = Some(inner),
            "as" => name = variable_name(inner, "$filter")?,
            "cond" => condition = Some(inner),
            "limit" => limit = Some(Box::new(parser.operand(inner)?)),
            other => return Err(Error::location(28647, format!("Unrecognized parameter to $filter: {other}"))),
        }
    }
    let input = input.ok_or_else(|| Error::location(28648, "Missing 'input' parameter to $filter"))?;
    let condition = condition.ok_or_else(|| Error::location(28650, "Missing 'cond' parameter to $filter"))?;
    let input = parser.operand(input)?;
    let slot = parser.next_slot();
    let condition = parser.operand_within(&[(&name, &input)], condition)?;
    Ok(Node::Filter(slot, Box::new([input, condition]), limit))
}

/// `{$reduce: {input: …, initialValue: …, in: …}}`.
pub(crate) fn parse_reduce(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let RawBsonRef::Document(document) = raw else {
        return Err(Error::location(
            40075,
            format!("$reduce requires an object as an argument, found: {}", value::raw_type_name(raw)),
        ));
    };
    let (mut input, mut initial, mut body) = (None, None, None);
    let slot = parser.next_slot();
    for element in document {
        let (key, inner) = element?;
        match key.as_str() {
            "input" => input = Some(parser.operand(inner)?),
            "initialValue" => initial = Some(parser.operand(inner)?),
            "in" => body = Some(inner),
            other => return Err(Error::location(40076, format!("$reduce found an unknown argument: {other}"))),
        }
    }
    let missing = |code, name| Error::location(code, format!("$reduce requires '{name}' to be specified"));
    let input = input.ok_or_else(|| missing(40077, "input"))?;
    let initial = initial.ok_or_else(|| missing(40078, "initialValue"))?;
    let body = body.ok_or_else(|| missing(40079, "in"))?;
    let body = parser.operand_within(&[("value", &initial), ("this", &input)], body)?;
    Ok(Node::Reduce(slot, Box::new([input, initial, body])))
}

fn object<'a>(raw: RawBsonRef<'a>, code: i32, message: &str) -> Result<&'a RawDocument> {
    raw.as_document().ok_or_else(|| Error::location(code, message))
}

fn variable_name(raw: RawBsonRef<'_>, operator: &str) -> Result<String> {
    let Some(name) = raw.as_str() else {
        return Err(Error::failed_to_parse(format!(
            "the 'as' parameter of {operator} must be a string, but is of type {}",
            value::raw_type_name(raw)
        )));
    };
    check_bindable_name(name)?;
    Ok(name.to_owned())
}

/// Evaluates `$let`.
pub(crate) fn evaluate_let(slot: usize, nodes: &[Node], body: &Node, scope: &Scope<'_>) -> Result<Value> {
    let mut held = scope.meter.hold("$let");
    let mut values = Vec::with_capacity(nodes.len());
    for node in nodes {
        let value = node.evaluate(scope)?;
        held.add_contents(value.as_ref())?;
        values.push(value);
    }
    let locals = scope.bind(slot, &values);
    body.evaluate(&scope.with(&locals))
}

/// Evaluates `$map`.
pub(crate) fn evaluate_map(slot: usize, parts: &[Node; 2], scope: &Scope<'_>) -> Result<Value> {
    let [input, body] = parts;
    let Some(elements) = input_array("$map", 16883, input, scope)? else { return Ok(Some(Bson::Null)) };
    let mut mapped = Elements::new(scope.meter, "$map", elements.size_hint().0);
    for element in elements {
        let value = [Some(element?)];
        let locals = scope.bind(slot, &value);
        mapped.push(body.evaluate(&scope.with(&locals))?.unwrap_or(Bson::Null))?;
    }
    Ok(mapped.into_value())
}

/// Evaluates `$filter`.
pub(crate) fn evaluate_filter(
    slot: usize,
    parts: &[Node; 2],
    limit: Option<&Node>,
    scope: &Scope<'_>,
) -> Result<Value> {
    let [input, condition] = parts;
    let Some(elements) = input_array("$filter", 28651, input, scope)? else { return Ok(Some(Bson::Null)) };
    let limit = match limit {
        Some(limit) => filter_limit(limit.evaluate(scope)?)?,
        None => usize::MAX,
    };
    let mut held = scope.meter.hold("$filter");
    let mut kept = Vec::new();
    for element in elements {
        scope.meter.step()?;
        let [value] = {
            let value = [Some(element?)];
            let locals = scope.bind(slot, &value);
            if !condition.evaluate_bool(&scope.with(&locals))? {
                continue;
            }
            value
        };
        held.add(value.as_ref().map_or(0, value::size_bytes))?;
        kept.extend(value);
        if kept.len() >= limit {
            break;
        }
    }
    Ok(Some(Bson::Array(kept)))
}

/// A nullish limit is no limit.
fn filter_limit(limit: Value) -> Result<usize> {
    if value::is_nullish(&limit) {
        return Ok(usize::MAX);
    }
    let Some(number) = value::int_exact(&limit) else {
        return Err(Error::location(
            327_391,
            format!("$filter: limit must be represented as a 32-bit integral value: {}", value::display(&limit)),
        ));
    };
    usize::try_from(number)
        .ok()
        .filter(|limit| *limit > 0)
        .ok_or_else(|| Error::location(327_392, format!("$filter: limit must be greater than 0: {number}")))
}

/// The elements a loop runs over.
enum Input<'a> {
    /// Of an array in the document: decoded one by one.
    InPlace(RawArrayIter<'a>, &'a Meter<'a>),
    /// Of a value, held as long as the loop goes on.
    Owned { elements: std::vec::IntoIter<Bson>, _held: Held<'a> },
}

impl<'a> Input<'a> {
    fn owned(name: &'static str, elements: Vec<Bson>, scope: &Scope<'a>) -> Result<Self> {
        let mut held = scope.meter.hold(name);
        held.add(elements.iter().map(value::size_bytes).sum())?;
        Ok(Self::Owned { elements: elements.into_iter(), _held: held })
    }
}

impl Iterator for Input<'_> {
    type Item = Result<Bson>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::InPlace(elements, meter) => match elements.next()? {
                Ok(element) => Some(path::decode(element, meter)),
                Err(error) => Some(Err(error.into())),
            },
            Self::Owned { elements, .. } => elements.next().map(Ok),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::InPlace(..) => (0, None),
            Self::Owned { elements, .. } => elements.size_hint(),
        }
    }
}

fn input_array<'a>(name: &'static str, code: i32, input: &Node, scope: &Scope<'a>) -> Result<Option<Input<'a>>> {
    if let Some(array) = input.array_in_place(scope.root)? {
        return Ok(Some(Input::InPlace(array.into_iter(), scope.meter)));
    }
    match input.evaluate(scope)? {
        Some(Bson::Array(elements)) => Input::owned(name, elements, scope).map(Some),
        other if value::is_nullish(&other) => Ok(None),
        other => {
            Err(Error::location(code, format!("input to {name} must be an array not {}", value::type_name(&other))))
        }
    }
}

/// Evaluates `$reduce`.
pub(crate) fn evaluate_reduce(slot: usize, parts: &[Node; 3], scope: &Scope<'_>) -> Result<Value> {
    let [input, initial, body] = parts;
    let elements = match input.array_in_place(scope.root)? {
        Some(array) => Input::InPlace(array.into_iter(), scope.meter),
        None => match input.evaluate(scope)? {
            Some(Bson::Array(elements)) => Input::owned("$reduce", elements, scope)?,
            other if value::is_nullish(&other) => return Ok(Some(Bson::Null)),
            other => {
                return Err(Error::location(
                    40080,
                    format!("$reduce requires that 'input' be an array, found: {}", value::display(&other)),
                ));
            }
        },
    };
    let mut held = scope.meter.hold("$reduce");
    let mut value = initial.evaluate(scope)?;
    for (step, element) in elements.enumerate() {
        scope.meter.step()?;
        held.set(value.as_ref().map_or(0, value::size_bytes))?;
        let values = [value, Some(element?)];
        let locals = scope.bind(slot, &values);
        value = body.evaluate(&scope.with(&locals))?;
        if step % REDUCE_DEPTH_CHECK_STEPS == 0
            && let Some(inner) = &value
            && is_deeper_than(inner, DEPTH_MAX)
        {
            return Err(Error::new(
                ErrorCode::Overflow,
                format!("$reduce: the value exceeds the maximum nesting depth of {DEPTH_MAX}"),
            ));
        }
    }
    Ok(value)
}

fn is_deeper_than(value: &Bson, levels: usize) -> bool {
    match value {
        Bson::Array(elements) => levels == 0 || elements.iter().any(|inner| is_deeper_than(inner, levels - 1)),
        Bson::Document(document) => levels == 0 || document.values().any(|inner| is_deeper_than(inner, levels - 1)),
        _ => false,
    }
}
