//! `$sortArray`: sorts an array by its elements or by fields of them. Stable.

use super::node::{Node, Scope};
use super::parse::Parser;
use super::table::Operator;
use super::value::{self, Value};
use baton_types::{Error, Result};
use bson::{Bson, RawBsonRef};
use std::cmp::Ordering;

/// The operator, parsed.
#[derive(Clone, Debug)]
pub(crate) struct SortArray {
    input: Node,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    /// By the element itself.
    Whole { descending: bool },
    /// By dotted paths, each with whether it descends.
    Fields(Vec<(Vec<String>, bool)>),
}

/// Parses `{$sortArray: {input: …, sortBy: 1 | -1 | {path: 1 | -1, …}}}`.
pub(crate) fn parse(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let name = operator.name;
    let RawBsonRef::Document(document) = raw else {
        return Err(Error::location(
            2_942_500,
            format!("{name} requires an object as an argument, found: {}", value::raw_type_name(raw)),
        ));
    };
    let (mut input, mut order) = (None, None);
    for element in document {
        let (key, inner) = element?;
        match key.as_str() {
            "input" => input = Some(parser.operand(inner)?),
            "sortBy" => order = Some(parse_order(name, inner)?),
            other => return Err(Error::location(2_942_501, format!("{name} found an unknown argument: {other}"))),
        }
    }
    let missing = |code, what| Error::location(code, format!("{name} requires '{what}' to be specified"));
    let input = input.ok_or_else(|| missing(2_942_502, "input"))?;
    let order = order.ok_or_else(|| missing(2_942_503, "sortBy"))?;
    Ok(Node::SortArray(Box::new(SortArray { input, order })))
}

fn parse_order(name: &str, raw: RawBsonRef<'_>) -> Result<Order> {
    let RawBsonRef::Document(document) = raw else {
        return Ok(Order::Whole { descending: descends(name, raw)? });
    };
    let mut fields = Vec::new();
    for element in document {
        let (path, direction) = element?;
        fields.push((super::path::parse(path.as_str())?, descends(name, direction)?));
    }
    if fields.is_empty() {
        return Err(Error::location(2_942_505, format!("{name} requires 'sortBy' to name at least one field")));
    }
    Ok(Order::Fields(fields))
}

fn descends(name: &str, raw: RawBsonRef<'_>) -> Result<bool> {
    match baton_document::number::Number::from_raw(raw).and_then(|number| number.to_i64_exact()) {
        Some(1) => Ok(false),
        Some(-1) => Ok(true),
        _ => Err(Error::location(2_942_507, format!("The {name} element value must be either 1 or -1"))),
    }
}

impl SortArray {
    /// The array's expression.
    pub fn input(&self) -> &Node {
        &self.input
    }

    /// Evaluates the operator.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Value> {
        let mut elements = match self.input.evaluate(scope)? {
            Some(Bson::Array(elements)) => elements,
            nullish if value::is_nullish(&nullish) => return Ok(Some(Bson::Null)),
            other => {
                return Err(Error::location(
                    2_942_504,
                    format!(
                        "The input argument to $sortArray must be an array, but was of type: {}",
                        value::type_name(&other)
                    ),
                ));
            }
        };
        let mut held = scope.meter.hold("$sortArray");
        held.add(elements.iter().map(value::size_bytes).sum())?;
        // A sort cannot be left half-way: it goes on without comparing.
        let mut failure = None;
        elements.sort_by(|a, b| {
            if failure.is_none()
                && let Err(error) = scope.meter.step()
            {
                failure = Some(error);
            }
            if failure.is_some() { Ordering::Equal } else { self.order.compare(a, b) }
        });
        match failure {
            Some(error) => Err(error),
            None => Ok(Some(Bson::Array(elements))),
        }
    }
}

impl Order {
    fn compare(&self, a: &Bson, b: &Bson) -> Ordering {
        let directed = |order: Ordering, descending: bool| if descending { order.reverse() } else { order };
        match self {
            Self::Whole { descending } => directed(baton_document::order::compare_bson(a, b), *descending),
            Self::Fields(fields) => fields
                .iter()
                .map(|(path, descending)| {
                    directed(baton_document::order::compare_bson(key(a, path), key(b, path)), *descending)
                })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal),
        }
    }
}

/// What an element is sorted by: the value at the path, where a number also picks from an array; else null.
fn key<'v>(element: &'v Bson, path: &[String]) -> &'v Bson {
    let mut at = match element {
        Bson::Document(_) => element,
        _ => return &Bson::Null,
    };
    for component in path {
        let next = match at {
            Bson::Document(document) => document.get(component),
            Bson::Array(elements) => component.parse().ok().and_then(|index: usize| elements.get(index)),
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return &Bson::Null,
        }
    }
    at
}
