//! `$getField`, `$setField`, `$unsetField`: fields by names that may contain dots and dollars. (`$mergeObjects` is an
//! accumulator, `$objectToArray` is with the arrays.)

use super::named::{Named, Signature, field};
use super::node::{Call, Node, Source};
use super::parse::Parser;
use super::table::Operator;
use super::value::{self, Value};
use baton_types::{Error, Result};
use bson::{Bson, RawBsonRef};

static GET_FIELD: Signature = Signature {
    fields: &[field("field", 3_041_702), field("input", 3_041_703)],
    not_an_object: (3_041_701, "{op} requires an object as an argument, found: {x}"),
    unknown: (3_041_701, "{op} found an unknown argument: {x}"),
    missing: "{op} requires '{x}' to be specified",
};

static SET_FIELD: Signature = Signature {
    fields: &[field("field", 4_161_102), field("input", 4_161_109), field("value", 4_161_103)],
    not_an_object: (4_161_100, "{op} requires an object as an argument, found: {x}"),
    unknown: (4_161_101, "{op} found an unknown argument: {x}"),
    missing: "{op} requires '{x}' to be specified",
};

static UNSET_FIELD: Signature = Signature {
    fields: &[field("field", 4_161_102), field("input", 4_161_109)],
    not_an_object: (4_161_100, "{op} requires an object as an argument, found: {x}"),
    unknown: (4_161_101, "{op} found an unknown argument: {x}"),
    missing: "{op} requires '{x}' to be specified",
};

/// `{$getField: {field: "name", input: …}}` or `{$getField: "name"}`.
pub(crate) fn parse_get(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let call = match raw {
        RawBsonRef::Document(document) if !is_expression(document) => GET_FIELD.parse(parser, operator, raw)?,
        name => {
            let name = parser.operand(name)?;
            let current = parser.operand(RawBsonRef::String("$$CURRENT"))?;
            Call { operator, arguments: vec![name, current], given: 3 }
        }
    };
    check_field_name(operator.name, &call.arguments[0], [5_654_600, 5_654_601, 5_654_602])?;
    parser.fold(call)
}

fn is_expression(document: &bson::RawDocument) -> bool {
    matches!(document.iter().next(), Some(Ok((name, _))) if name.as_str().starts_with('$'))
}

/// `{$setField: {field: "name", input: …, value: …}}`.
pub(crate) fn parse_set(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let call = SET_FIELD.parse(parser, operator, raw)?;
    check_field_name(operator.name, &call.arguments[0], [4_161_106, 4_161_107, 4_161_108])?;
    parser.fold(call)
}

/// `{$unsetField: {field: "name", input: …}}`.
pub(crate) fn parse_unset(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let call = UNSET_FIELD.parse(parser, operator, raw)?;
    check_field_name(operator.name, &call.arguments[0], [4_161_106, 4_161_107, 4_161_108])?;
    parser.fold(call)
}

/// The name must be a constant string; codes for a path, for another expression, for another type.
fn check_field_name(name: &str, node: &Node, codes: [i32; 3]) -> Result<()> {
    match node {
        Node::Constant(Some(Bson::String(_))) => Ok(()),
        Node::Constant(other) => Err(Error::location(
            codes[2],
            format!("{name} requires 'field' to evaluate to type String, but got {}", value::type_name(other)),
        )),
        Node::Path(Source::Root, path) => Err(Error::location(
            codes[0],
            format!(
                "'${0}' is a field path reference which is not allowed in this context. Did you mean {{$literal: '${0}'}}?",
                path.join(".")
            ),
        )),
        _ => Err(Error::location(
            codes[1],
            format!("{name} requires 'field' to evaluate to a constant, but got a non-constant argument"),
        )),
    }
}

fn field_name(call: &Named<'_>) -> Result<String> {
    match call.value(0)? {
        Some(Bson::String(name)) => Ok(name),
        other => Err(Error::location(
            5_654_602,
            format!(
                "{} requires 'field' to evaluate to type String, but got {}",
                call.name(),
                value::type_name(&other)
            ),
        )),
    }
}

/// The named field; missing where the input is no object, null where it is null.
pub(crate) fn get(call: &Named<'_>) -> Result<Value> {
    let name = field_name(call)?;
    match call.value(1)? {
        Some(Bson::Document(mut document)) => Ok(document.remove(&name)),
        Some(Bson::Null | Bson::Undefined) => Ok(Some(Bson::Null)),
        _ => Ok(None),
    }
}

/// The input with the field set; a missing value removes it.
pub(crate) fn set(call: &Named<'_>) -> Result<Value> {
    let name = field_name(call)?;
    let input = call.value(1)?;
    let value = call.value(2)?;
    match input {
        Some(Bson::Document(mut document)) => {
            match value {
                Some(value) => document.insert(name, value),
                None => document.remove(&name),
            };
            Ok(Some(Bson::Document(document)))
        }
        nullish if value::is_nullish(&nullish) => Ok(Some(Bson::Null)),
        other => Err(must_be_object(call.name(), &other)),
    }
}

/// The input without the field.
pub(crate) fn unset(call: &Named<'_>) -> Result<Value> {
    let name = field_name(call)?;
    match call.value(1)? {
        Some(Bson::Document(mut document)) => {
            document.remove(&name);
            Ok(Some(Bson::Document(document)))
        }
        nullish if value::is_nullish(&nullish) => Ok(Some(Bson::Null)),
        other => Err(must_be_object(call.name(), &other)),
    }
}

fn must_be_object(name: &str, found: &Value) -> Error {
    Error::location(
        4_161_105,
        format!("{name} requires 'input' to evaluate to type Object, but got {}", value::type_name(found)),
    )
}
