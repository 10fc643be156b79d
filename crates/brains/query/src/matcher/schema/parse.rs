//! From a `$jsonSchema` document to its schema; the table of keywords is here.

use super::{Additional, Bound, Dependency, Items, Schema, comparable, json_types};
use crate::interruption::{BYTES_PER_STEP, Interruption};
use crate::matcher::{DEPTH_MAX, RegexPredicate, TypeSet, integer};
use baton_document::number::Number;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::{RawArray, RawBsonRef, RawDocument};
use std::collections::{BTreeSet, HashSet};

/// Keywords of draft 4 that MongoDB knows and refuses.
const REFUSED: [&str; 6] = ["$ref", "$schema", "default", "definitions", "format", "id"];

/// Parses one schema.
pub(super) fn schema(doc: &RawDocument, depth: usize, asked: &Interruption) -> Result<Schema> {
    if depth > DEPTH_MAX {
        return Err(Error::bad_value(format!("exceeded maximum $jsonSchema depth of {DEPTH_MAX}")));
    }
    let mut schema = Schema::default();
    for element in doc.iter_elements() {
        let element = element?;
        // Some keywords look for others.
        asked.steps(1 + doc.as_bytes().len() / BYTES_PER_STEP)?;
        let (name, value) = (element.key().as_str(), element.value()?);
        let known = general_keyword(&mut schema, doc, name, value, depth, asked)?
            || number_keyword(&mut schema, doc, name, value)?
            || string_keyword(&mut schema, name, value)?
            || array_keyword(&mut schema, name, value, depth, asked)?
            || object_keyword(&mut schema, name, value, depth, asked)?;
        if known {
            continue;
        }
        return Err(match name {
            "encrypt" | "encryptMetadata" => Error::not_implemented(format!("$jsonSchema keyword '{name}'")),
            _ if REFUSED.contains(&name) => {
                Error::failed_to_parse(format!("$jsonSchema keyword '{name}' is not currently supported"))
            }
            _ => Error::failed_to_parse(format!("Unknown $jsonSchema keyword: {name}")),
        });
    }
    Ok(schema)
}

fn general_keyword(
    schema: &mut Schema,
    doc: &RawDocument,
    name: &str,
    value: RawBsonRef<'_>,
    depth: usize,
    asked: &Interruption,
) -> Result<bool> {
    match name {
        "title" | "description" => {
            text(name, value)?;
        }
        "type" | "bsonType" => {
            if name == "type" && doc.get("bsonType")?.is_some() {
                return Err(Error::failed_to_parse("Cannot specify both $jsonSchema keywords 'type' and 'bsonType'"));
            }
            schema.types = Some(types(name, value)?);
        }
        "enum" => {
            let mut members = BTreeSet::new();
            for member in nonempty(name, value)? {
                if !members.insert(comparable(member?, asked)?) {
                    return Err(Error::failed_to_parse(format!(
                        "$jsonSchema keyword '{name}' array cannot contain duplicate values."
                    )));
                }
            }
            schema.enumeration = Some(members);
        }
        "allOf" => schema.all_of = schemas(name, value, depth, asked)?,
        "anyOf" => schema.any_of = schemas(name, value, depth, asked)?,
        "oneOf" => schema.one_of = schemas(name, value, depth, asked)?,
        "not" => schema.not = Some(Box::new(super::parse::schema(object(name, value)?, depth + 1, asked)?)),
        _ => return Ok(false),
    }
    Ok(true)
}

fn number_keyword(schema: &mut Schema, doc: &RawDocument, name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    let numbers = &mut schema.numbers;
    match name {
        "minimum" => numbers.minimum = Some((number(name, value)?, bound(doc, "exclusiveMinimum")?)),
        "maximum" => numbers.maximum = Some((number(name, value)?, bound(doc, "exclusiveMaximum")?)),
        "exclusiveMinimum" | "exclusiveMaximum" => {
            boolean(name, value)?;
            let limit = if name == "exclusiveMinimum" { "minimum" } else { "maximum" };
            if doc.get(limit)?.is_none() {
                return Err(Error::failed_to_parse(format!(
                    "$jsonSchema keyword '{limit}' must be a present if '{name}' is present"
                )));
            }
        }
        "multipleOf" => {
            let divisor = number(name, value)?;
            if divisor.is_zero() || divisor.is_negative() {
                return Err(Error::failed_to_parse(format!("$jsonSchema keyword '{name}' must have a positive value")));
            }
            numbers.multiple_of = Some(divisor.to_decimal());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn string_keyword(schema: &mut Schema, name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    let strings = &mut schema.strings;
    match name {
        "minLength" => strings.length_min = Some(size(name, value)?),
        "maxLength" => strings.length_max = Some(size(name, value)?),
        "pattern" => strings.pattern = Some(Box::new(RegexPredicate::new(text(name, value)?, "")?)),
        _ => return Ok(false),
    }
    Ok(true)
}

fn array_keyword(
    schema: &mut Schema,
    name: &str,
    value: RawBsonRef<'_>,
    depth: usize,
    asked: &Interruption,
) -> Result<bool> {
    let arrays = &mut schema.arrays;
    match name {
        "items" => {
            arrays.items = Some(match value {
                RawBsonRef::Document(doc) => Items::Every(Box::new(super::parse::schema(doc, depth + 1, asked)?)),
                RawBsonRef::Array(array) => {
                    let mut each = Vec::new();
                    for member in array {
                        each.push(super::parse::schema(object(name, member?)?, depth + 1, asked)?);
                    }
                    Items::Each(each)
                }
                other => return Err(wrong_type(name, "an array or an object", other)),
            });
        }
        "additionalItems" => arrays.additional_items = Some(additional(name, value, depth, asked)?),
        "minItems" => arrays.count_min = Some(size(name, value)?),
        "maxItems" => arrays.count_max = Some(size(name, value)?),
        "uniqueItems" => arrays.is_unique = boolean(name, value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn object_keyword(
    schema: &mut Schema,
    name: &str,
    value: RawBsonRef<'_>,
    depth: usize,
    asked: &Interruption,
) -> Result<bool> {
    let objects = &mut schema.objects;
    match name {
        "required" => objects.required = names(name, value)?,
        "properties" => {
            for element in object(name, value)?.iter_elements() {
                let element = element?;
                let inner = object(name, element.value()?)?;
                let inner = super::parse::schema(inner, depth + 1, asked)?;
                objects.properties.entry(element.key().as_str().into()).or_insert(inner);
            }
        }
        "patternProperties" => {
            for element in object(name, value)?.iter_elements() {
                let element = element?;
                let pattern = RegexPredicate::new(element.key().as_str(), "")?;
                let inner = object(name, element.value()?)?;
                objects.pattern_properties.push((pattern, super::parse::schema(inner, depth + 1, asked)?));
            }
        }
        "additionalProperties" => objects.additional = Some(additional(name, value, depth, asked)?),
        "minProperties" => objects.count_min = Some(size(name, value)?),
        "maxProperties" => objects.count_max = Some(size(name, value)?),
        "dependencies" => {
            for element in object(name, value)?.iter_elements() {
                let element = element?;
                let dependency = match element.value()? {
                    RawBsonRef::String(_) if matches!(element.key().as_str(), "title" | "description") => continue,
                    RawBsonRef::Document(doc) => {
                        Dependency::Schema(Box::new(super::parse::schema(doc, depth + 1, asked)?))
                    }
                    other => Dependency::Properties(names(name, other)?),
                };
                objects.dependencies.push((element.key().as_str().into(), dependency));
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn wrong_type(name: &str, wanted: &str, value: RawBsonRef<'_>) -> Error {
    let found = type_name(value.element_type());
    Error::type_mismatch(format!("$jsonSchema keyword '{name}' must be {wanted}, but found an element of type {found}"))
}

fn text<'a>(name: &str, value: RawBsonRef<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong_type(name, "a string", value))
}

fn boolean(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    value.as_bool().ok_or_else(|| wrong_type(name, "a boolean", value))
}

fn number(name: &str, value: RawBsonRef<'_>) -> Result<Number> {
    Number::from_raw(value).ok_or_else(|| wrong_type(name, "a number", value))
}

fn object<'a>(name: &str, value: RawBsonRef<'a>) -> Result<&'a RawDocument> {
    value.as_document().ok_or_else(|| wrong_type(name, "an object", value))
}

fn array<'a>(name: &str, value: RawBsonRef<'a>) -> Result<&'a RawArray> {
    value.as_array().ok_or_else(|| wrong_type(name, "an array", value))
}

fn nonempty<'a>(name: &str, value: RawBsonRef<'a>) -> Result<&'a RawArray> {
    let array = array(name, value)?;
    if array.is_empty() {
        return Err(Error::failed_to_parse(format!("$jsonSchema keyword '{name}' cannot be an empty array")));
    }
    Ok(array)
}

/// A count or a length.
fn size(name: &str, value: RawBsonRef<'_>) -> Result<i64> {
    integer::parse_non_negative(name, value)
}

fn bound(doc: &RawDocument, name: &str) -> Result<Bound> {
    Ok(match doc.get(name)? {
        Some(value) if boolean(name, value)? => Bound::Exclusive,
        _ => Bound::Inclusive,
    })
}

/// A nonempty array of distinct names.
fn names(name: &str, value: RawBsonRef<'_>) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    for member in nonempty(name, value)? {
        let member = text(name, member?)?;
        if !known.insert(member) {
            return Err(Error::failed_to_parse(format!(
                "$jsonSchema keyword '{name}' array cannot contain duplicate values"
            )));
        }
        names.push(member.into());
    }
    Ok(names)
}

fn schemas(name: &str, value: RawBsonRef<'_>, depth: usize, asked: &Interruption) -> Result<Vec<Schema>> {
    let mut schemas = Vec::new();
    for member in array(name, value)? {
        schemas.push(schema(object(name, member?)?, depth + 1, asked)?);
    }
    if schemas.is_empty() {
        return Err(Error::bad_value(format!("$jsonSchema keyword '{name}' must be a non-empty array")));
    }
    Ok(schemas)
}

fn additional(name: &str, value: RawBsonRef<'_>, depth: usize, asked: &Interruption) -> Result<Additional> {
    match value {
        RawBsonRef::Boolean(true) => Ok(Additional::Allowed),
        RawBsonRef::Boolean(false) => Ok(Additional::Forbidden),
        RawBsonRef::Document(doc) => Ok(Additional::Restricted(Box::new(schema(doc, depth + 1, asked)?))),
        other => Err(wrong_type(name, "an object or a boolean", other)),
    }
}

/// `type` takes JSON Schema's names, `bsonType` MongoDB's; both also arrays of them.
fn types(name: &str, value: RawBsonRef<'_>) -> Result<TypeSet> {
    let mut set = TypeSet::default();
    let mut add = |member: RawBsonRef<'_>| -> Result<()> {
        let member = text(name, member)?;
        if name == "bsonType" {
            return set.add_name(member);
        }
        if member == "integer" {
            return Err(Error::failed_to_parse("$jsonSchema type 'integer' is not currently supported."));
        }
        let types = json_types(member).ok_or_else(|| Error::bad_value(format!("Unknown type name alias: {member}")))?;
        types.iter().for_each(|t| set.insert(*t));
        Ok(())
    };
    match value {
        RawBsonRef::Array(array) => {
            let mut seen = BTreeSet::new();
            for member in array {
                let member = member?;
                if !seen.insert(text(name, member)?) {
                    let twice = text(name, member)?;
                    return Err(Error::failed_to_parse(format!(
                        "$jsonSchema keyword '{name}' has duplicate value: {twice}"
                    )));
                }
                add(member)?;
            }
            if seen.is_empty() {
                return Err(Error::failed_to_parse(format!(
                    "$jsonSchema keyword '{name}' must name at least one type"
                )));
            }
        }
        RawBsonRef::String(_) => add(value)?,
        other => return Err(wrong_type(name, "either a string or an array of strings", other)),
    }
    Ok(set)
}
