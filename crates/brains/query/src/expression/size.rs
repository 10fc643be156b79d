//! `$binarySize` and `$bsonSize`: sizes in bytes.

use super::node::Arguments;
use super::value::{self, Value};
use baton_types::{Error, Result};
use bson::{Bson, RawDocumentBuf};

/// `{$binarySize: a}`: of a string or binary.
pub(crate) fn binary_size(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match arguments[0].as_ref() {
        Some(Bson::String(text)) => Ok(Some(value::count(text.len()))),
        Some(Bson::Binary(binary)) => Ok(Some(value::count(binary.bytes.len()))),
        nullish if value::is_nullish(nullish) => Ok(Some(Bson::Null)),
        other => Err(Error::location(
            51276,
            format!("{name} requires a string or BinData argument, found: {}", value::type_name(other)),
        )),
    }
}

/// `{$bsonSize: a}`: of an object.
pub(crate) fn bson_size(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    match arguments[0].as_ref() {
        Some(Bson::Document(document)) => Ok(Some(value::count(RawDocumentBuf::try_from(document)?.as_bytes().len()))),
        nullish if value::is_nullish(nullish) => Ok(Some(Bson::Null)),
        other => {
            Err(Error::location(31393, format!("{name} requires a document input, found: {}", value::type_name(other))))
        }
    }
}
