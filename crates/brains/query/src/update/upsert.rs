//! What every upsert ends with, whatever form its update has: `_id` in its place, and the checks of storage.

use super::storage_rules;
use crate::raw;
use baton_types::Result;
use bson::oid::ObjectId;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

/// Puts `_id` first, a generated one if there is none, and checks the document for storage.
pub(super) fn finish(document: &RawDocument, generated: ObjectId) -> Result<RawDocumentBuf> {
    let mut out = Vec::with_capacity(document.as_bytes().len() + 24);
    let start = raw::begin(&mut out);
    match raw::find(document, "_id")? {
        Some(id) => out.extend_from_slice(id.bytes()),
        None => raw::put_value(&mut out, "_id", RawBsonRef::ObjectId(generated)),
    }
    for element in raw::elements(document) {
        let element = element?;
        if element.key() != "_id" {
            out.extend_from_slice(element.bytes());
        }
    }
    raw::end(&mut out, start);
    let document = raw::finish(out)?;
    storage_rules::check_document(&document)?;
    storage_rules::check_size(&document, true)?;
    Ok(document)
}
