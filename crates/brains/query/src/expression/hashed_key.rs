//! `$toHashedIndexKey`: the hash that a hashed index has of a value.

use super::node::Arguments;
use super::value::Value;
use baton_document::hash::index_hash;
use baton_types::Result;
use bson::raw::{RawDocumentBuf, cstr};
use bson::{Bson, RawBson};

/// `{$toHashedIndexKey: a}`. What is missing counts as null.
pub(crate) fn to_hashed_index_key(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let Some(value) = arguments[0].as_ref() else { return Ok(Some(Bson::Int64(index_hash(None)?))) };
    let mut document = RawDocumentBuf::new();
    document.append(cstr!(""), RawBson::try_from(value.clone())?);
    Ok(Some(Bson::Int64(index_hash(document.get("")?)?)))
}
