//! Updates by replacement: the whole document but its `_id` gives way to another.
//!
//! `_id` comes first in the result and keeps the bytes it had; top-level `Timestamp(0, 0)` values take the time of the
//! request, as in inserted documents. As in MongoDB, nothing changes only where the replacement itself is the document,
//! byte for byte: one without `_id` always counts as a change.

use super::{Applied, OplogUpdate, operators, storage_rules};
use crate::Context;
use crate::raw::{self, Element};
use baton_document::order;
use baton_types::Result;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use std::cmp::Ordering;

/// A parsed replacement.
#[derive(Debug)]
pub(super) struct Replacement {
    document: RawDocumentBuf,
}

impl Replacement {
    pub fn parse(document: &RawDocument, ctx: &Context) -> Result<Self> {
        storage_rules::check_depth(document)?;
        let empty = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });
        let mut out = Vec::with_capacity(document.as_bytes().len());
        let start = raw::begin(&mut out);
        for element in raw::elements(document) {
            let element = element?;
            if element.value()? == empty && element.key() != "_id" {
                raw::put_value(&mut out, element.key(), RawBsonRef::Timestamp(operators::now(ctx)));
            } else {
                out.extend_from_slice(element.bytes());
            }
        }
        raw::end(&mut out, start);
        Ok(Self { document: raw::finish(out)? })
    }

    pub fn apply(&self, doc: &RawDocument) -> Result<Applied> {
        if self.document.as_bytes() == doc.as_bytes() {
            return Ok(Applied { document: None, oplog: OplogUpdate::Unchanged });
        }
        for element in raw::elements(&self.document) {
            storage_rules::check_name(&self.document, element?.key())?;
        }
        let old_id = raw::find(doc, "_id")?;
        if let (Some(old), Some(new)) = (&old_id, raw::find(&self.document, "_id")?) {
            let new = new.value()?;
            if order::compare(old.value()?, new) != Ordering::Equal {
                return Err(storage_rules::id_altered(Some(new)));
            }
        }
        let after = with_id(&self.document, old_id.as_ref())?;
        storage_rules::check_size(&after, false)?;
        Ok(Applied { document: Some(after), oplog: OplogUpdate::Replacement })
    }

    /// The document that an upsert inserts: the replacement, with the filter's `_id` if it has none.
    pub fn insert(&self, base: &RawDocument) -> Result<RawDocumentBuf> {
        let own = raw::find(&self.document, "_id")?;
        let from_filter = raw::find(base, "_id")?;
        if let (Some(own), Some(from_filter)) = (&own, &from_filter) {
            let own = own.value()?;
            if order::compare(own, from_filter.value()?) != Ordering::Equal {
                return Err(storage_rules::id_altered(Some(own)));
            }
        }
        with_id(&self.document, own.or(from_filter).as_ref())
    }
}

/// A document with `id` first, in the place of any of its own.
pub(super) fn with_id(document: &RawDocument, id: Option<&Element<'_>>) -> Result<RawDocumentBuf> {
    let mut out = Vec::with_capacity(document.as_bytes().len() + 32);
    let start = raw::begin(&mut out);
    if let Some(id) = id {
        out.extend_from_slice(id.bytes());
    }
    for element in raw::elements(document) {
        let element = element?;
        if element.key() != "_id" {
            out.extend_from_slice(element.bytes());
        }
    }
    raw::end(&mut out, start);
    raw::finish(out)
}
