//! Field paths, with the meaning expressions give them.
//!
//! A path through an array yields an array of what it finds in the array's documents; a number is a field name like any
//! other; an array directly within an array is not entered. (Filters differ: see `baton_document::path`.)
//!
//! Invariant: no component is empty, has a dot or a null byte, or starts with `$`, but for the names in
//! [`DOLLAR_NAMES`]. Sorts, projections and stages take the same paths.

use super::meter::{Elements, Meter};
use super::node::own;
use super::value::Value;
use baton_types::{Error, Result};
use bson::{Bson, RawArray, RawBsonRef, RawDocument};

/// How many bytes of a document a look for a field passes in the time of a step.
const BYTES_PER_STEP_SCANNED: usize = 4096;

/// Raw values up to this are not held while they are decoded.
const DECODED_BYTES_FREE: usize = 64 * 1024;

/// A guess at how much more room a value takes than its bytes: an array of small numbers some ten times as much.
const DECODED_BYTES_PER_RAW: usize = 8;

/// The components of a dotted path.
pub(crate) type FieldPath = Vec<String>;

/// The names with a leading `$` that a path may have: a database reference's fields, and metadata that MongoDB passes on
/// under these names.
const DOLLAR_NAMES: [&str; 7] = ["$id", "$ref", "$db", "$sortKey", "$recordId", "$searchSortValues", "$searchScore"];

/// Splits and checks a dotted path: 40352, 40353, or [`check_component`]'s codes.
pub(crate) fn parse(dotted: &str) -> Result<FieldPath> {
    if dotted.is_empty() {
        return Err(Error::location(40352, "FieldPath cannot be constructed with empty string"));
    }
    if dotted.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    let mut path = Vec::new();
    for component in dotted.split('.') {
        check_component(component)?;
        path.push(component.to_owned());
    }
    if path.len() > super::parse::DEPTH_MAX {
        return Err(Error::new(baton_types::ErrorCode::Overflow, "FieldPath is too long"));
    }
    Ok(path)
}

/// Refuses what cannot be one component of a path: 15998, 16410, 16411 or 16412.
pub(crate) fn check_component(component: &str) -> Result<()> {
    if component.is_empty() {
        return Err(Error::location(15998, "FieldPath field names may not be empty strings."));
    }
    if component.starts_with('$') && !DOLLAR_NAMES.contains(&component) {
        return Err(Error::location(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    if component.contains('\0') {
        return Err(Error::location(16411, "FieldPath field names may not contain '\0'."));
    }
    if component.contains('.') {
        return Err(Error::location(
            16412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField.",
        ));
    }
    Ok(())
}

/// The value at `path` in `document`; the whole document for an empty path.
pub(crate) fn in_document(document: &RawDocument, path: &[String], meter: &Meter<'_>) -> Result<Value> {
    let Some((first, rest)) = path.split_first() else {
        return decode(RawBsonRef::Document(document), meter).map(Some);
    };
    meter.steps(1 + document.as_bytes().len() / BYTES_PER_STEP_SCANNED)?;
    let Some(value) = document.get(first)? else { return Ok(None) };
    if rest.is_empty() {
        return decode(value, meter).map(Some);
    }
    match value {
        RawBsonRef::Document(inner) => in_document(inner, rest, meter),
        RawBsonRef::Array(array) => in_array(array, rest, meter).map(Some),
        _ => Ok(None),
    }
}

/// A raw value as an owned one. While it is made, a large one is held by a guess from its bytes.
pub(crate) fn decode(value: RawBsonRef<'_>, meter: &Meter<'_>) -> Result<Bson> {
    let (bytes, per_raw) = match value {
        RawBsonRef::Document(document) => (document.as_bytes().len(), DECODED_BYTES_PER_RAW),
        RawBsonRef::Array(array) => (array.as_bytes().len(), DECODED_BYTES_PER_RAW),
        RawBsonRef::String(text) => (text.len(), 1),
        _ => (0, 1),
    };
    meter.move_bytes(bytes)?;
    let mut held = meter.hold("a path");
    if bytes > DECODED_BYTES_FREE {
        held.add(bytes.saturating_mul(per_raw))?;
    }
    own(value)
}

fn in_array(array: &RawArray, path: &[String], meter: &Meter<'_>) -> Result<Bson> {
    let mut found = Elements::new(meter, "a path", 0);
    for element in array {
        meter.step()?;
        if let RawBsonRef::Document(inner) = element?
            && let Some(value) = in_document(inner, path, meter)?
        {
            found.push(value)?;
        }
    }
    Ok(found.into_value().unwrap_or(Bson::Null))
}

/// The value at `path` in an owned value; the value itself for an empty path.
pub(crate) fn in_value(value: Option<&Bson>, path: &[String], meter: &Meter<'_>) -> Result<Value> {
    match (value, path.split_first()) {
        (value, None) => {
            // A copy: counted before it is made, and held by whoever collects it.
            meter.hold("a path").add_contents(value)?;
            Ok(value.cloned())
        }
        (Some(Bson::Document(document)), Some((first, rest))) => in_value(document.get(first), rest, meter),
        (Some(Bson::Array(array)), Some(_)) => {
            let mut found = Elements::new(meter, "a path", 0);
            for element in array {
                meter.step()?;
                if let Bson::Document(_) = element
                    && let Some(value) = in_value(Some(element), path, meter)?
                {
                    found.push(value)?;
                }
            }
            Ok(found.into_value())
        }
        _ => Ok(None),
    }
}
