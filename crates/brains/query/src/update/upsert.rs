//! What every upsert ends with, whatever form its update has: `_id` in its place, and the checks of storage.

use super::{replacement, storage_rules};
use crate::raw;
use baton_types::Result;
use bson::oid::ObjectId;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

/// Puts `_id` first, a generated one if there is none, and checks the document for storage.
pub(super) fn finish(document: &RawDocument, generated: ObjectId) -> Result<RawDocumentBuf> {
    let mut generated_id = Vec::new();
    let start = raw::begin(&mut generated_id);
    raw::put_value(&mut generated_id, "_id", RawBsonRef::ObjectId(generated));
    raw::end(&mut generated_id, start);
    let generated_id = RawDocument::from_bytes(&generated_id)?;
    let id = match raw::find(document, "_id")? {
        Some(id) => Some(id),
        None => raw::find(generated_id, "_id")?,
    };
    if let Some(id) = &id {
        storage_rules::check_id(id.value()?)?;
    }
    let document = replacement::with_id(document, id.as_ref())?;
    storage_rules::check_size(&document, true)?;
    Ok(document)
}
