//! What every stored document must keep, whatever an update does to it: the rules for `_id`, for names that start
//! with `$`, for depth and for size.

use crate::raw::{self, Element};
use crate::show;
use baton_types::{Error, ErrorCode, Result};
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};

/// The largest document a client may store.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How deep the documents of clients may be nested.
pub(super) const DEPTH_MAX: usize = 180;

/// Checks the name of a new top-level field.
pub(super) fn check_name(name: &str) -> Result<()> {
    if !name.starts_with('$') {
        return Ok(());
    }
    let message = format!(
        "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith."
    );
    Err(Error::new(ErrorCode::DollarPrefixedFieldName, message))
}

/// Checks a new `_id`.
pub(super) fn check_id(id: &Element<'_>) -> Result<()> {
    match id.element_type() {
        ElementType::Array | ElementType::RegularExpression | ElementType::Undefined => {
            let kind = show::type_name(id.element_type());
            Err(Error::new(ErrorCode::InvalidIdField, format!("The '_id' value cannot be of type {kind}")))
        }
        ElementType::EmbeddedDocument => {
            let RawBsonRef::Document(fields) = id.value()? else { return Ok(()) };
            match raw::elements(fields).find_map(|e| e.ok().filter(|e| e.key().starts_with('$'))) {
                None => Ok(()),
                Some(bad) => {
                    let name = bad.key();
                    let message =
                        format!("The dollar ($) prefixed field '{name}' in '_id.{name}' is not valid for storage.");
                    Err(Error::new(ErrorCode::DollarPrefixedFieldName, message))
                }
            }
        }
        _ => Ok(()),
    }
}

/// Checks the size of a document about to be stored.
pub(super) fn check_size(doc: &RawDocument, inserting: bool) -> Result<()> {
    if doc.as_bytes().len() <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    Err(match inserting {
        false => Error::location(17419, format!("Resulting document after update is larger than {DOCUMENT_BYTES_MAX}")),
        true => Error::location(17420, format!("Document to upsert is larger than {DOCUMENT_BYTES_MAX}")),
    })
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
