//! What every stored document must keep, whatever an update does to it: the rules for `_id`, for names that start
//! with `$`, for depth and for size.

use crate::raw;
use crate::show;
use baton_document::type_name;
use baton_types::{Error, ErrorCode, Result};
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};

/// The largest document a client may store.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How deep the documents of clients may be nested.
pub(super) const DEPTH_MAX: usize = 180;

/// Checks the name of a top-level field that an update by operators or by replacement writes, in the document it makes: it
/// may start with `$` only in a database reference (`$ref`, `$id`, `$db`, in this order). What an upsert inserts, and what
/// a pipeline makes, may have any name.
pub(super) fn check_name(document: &RawDocument, name: &str) -> Result<()> {
    if !name.starts_with('$') {
        return Ok(());
    }
    let invalid = |message: &str| Err(Error::new(ErrorCode::InvalidDBRef, message));
    let mut fields = Vec::new();
    for element in raw::elements(document) {
        fields.push(element?);
    }
    let mut at = fields.iter().position(|field| field.key() == name);
    let named = |at: Option<usize>, name: &str| at.and_then(|at| fields.get(at)).is_some_and(|f| f.key() == name);
    let text = |at: Option<usize>| {
        at.and_then(|at| fields.get(at)).map(|f| (f.element_type(), f.element_type() == ElementType::String))
    };
    let before = |at: Option<usize>| at.and_then(|at| at.checked_sub(1));
    if named(at, "$db") {
        if let Some((kind, false)) = text(at) {
            let kind = type_name(kind);
            return invalid(&format!("The DBRef $db field must be a String, not a {kind}"));
        }
        at = before(at);
        if !named(at, "$id") {
            return invalid("Found $db field without a $id before it, which is invalid.");
        }
    }
    if named(at, "$id") {
        at = before(at);
        if !named(at, "$ref") {
            return invalid("Found $id field without a $ref before it, which is invalid.");
        }
    }
    if !named(at, "$ref") {
        let message = format!(
            "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith."
        );
        return Err(Error::new(ErrorCode::DollarPrefixedFieldName, message));
    }
    if let Some((kind, false)) = text(at) {
        return invalid(&format!("The DBRef $ref field must be a String, not a {}", type_name(kind)));
    }
    if !named(at.map(|at| at + 1), "$id") {
        return invalid("The DBRef $ref field must be followed by a $id field");
    }
    Ok(())
}

/// Checks a new `_id`: no array, regular expression or undefined, and in a document no name that starts with `$`, however
/// deep, but for a database reference's.
pub fn check_id(id: RawBsonRef<'_>) -> Result<()> {
    match id {
        RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined => {
            let kind = type_name(id.element_type());
            Err(Error::new(ErrorCode::InvalidIdField, format!("The '_id' value cannot be of type {kind}")))
        }
        RawBsonRef::Document(fields) => check_embedded(fields, 1),
        _ => Ok(()),
    }
}

fn check_embedded(document: &RawDocument, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return check_depth(document);
    }
    let mut last = None;
    for element in raw::elements(document) {
        let element = element?;
        let name = element.key();
        let is_reference = match name {
            "$ref" => element.element_type() == ElementType::String,
            "$id" => last == Some("$ref"),
            "$db" => last == Some("$id") && element.element_type() == ElementType::String,
            _ => false,
        };
        if name.starts_with('$') && !is_reference {
            let message = format!("_id fields may not contain '$'-prefixed fields: {name} is not valid for storage.");
            return Err(Error::new(ErrorCode::DollarPrefixedFieldName, message));
        }
        if let Some(inner) = element.container()? {
            check_embedded(inner, depth + 1)?;
        }
        last = Some(name);
    }
    Ok(())
}

/// Checks the size of a document about to be stored.
pub(super) fn check_size(doc: &RawDocument, inserting: bool) -> Result<()> {
    if doc.as_bytes().len() <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    Err(too_large(inserting))
}

/// The error of an update that makes too large a document.
pub(super) fn too_large(inserting: bool) -> Error {
    match inserting {
        false => Error::location(17419, format!("Resulting document after update is larger than {DOCUMENT_BYTES_MAX}")),
        true => Error::location(17420, format!("Document to upsert is larger than {DOCUMENT_BYTES_MAX}")),
    }
}

/// Checks how deep a document about to be stored is nested.
pub(super) fn check_depth(doc: &RawDocument) -> Result<()> {
    if raw::document_depth(doc)? <= DEPTH_MAX {
        return Ok(());
    }
    Err(Error::new(ErrorCode::Overflow, format!("Document exceeds maximum nesting depth of {DEPTH_MAX}")))
}

/// The error of an update that, taken as a whole, changes `_id`.
pub(super) fn id_altered(new: Option<RawBsonRef<'_>>) -> Error {
    let message = match new {
        Some(id) => {
            let id = show::element("_id", id);
            format!("After applying the update, the (immutable) field '_id' was found to have been altered to {id}")
        }
        None => "After applying the update, the (immutable) field '_id' was found to have been removed".to_owned(),
    };
    Error::new(ErrorCode::ImmutableField, message)
}
