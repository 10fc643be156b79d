//! Field paths as stages use them, and reading and setting one field of a raw document.
//!
//! Invariants: a checked path is what MongoDB calls a FieldPath, as expressions have it. Reading and setting look through
//! documents only, never into arrays; what is not touched is copied byte for byte, in its place.

pub use crate::expression::{check_component as check_name, check_path};
use crate::raw;
use baton_types::{Error, Result};
use bson::raw::{CString, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use std::borrow::Cow;

/// The first component of a dotted path: the top-level field it depends on.
pub fn root(path: &str) -> &str {
    path.split_once('.').map_or(path, |(first, _)| first)
}

/// The value at `path`, looking through documents only.
pub fn get<'d, S: AsRef<str>>(doc: &'d RawDocument, path: &[S]) -> Result<Option<RawBsonRef<'d>>> {
    let Some((first, rest)) = path.split_first() else { return Ok(Some(doc.into())) };
    match doc.get(first.as_ref())? {
        Some(value) if rest.is_empty() => Ok(Some(value)),
        Some(RawBsonRef::Document(inner)) => get(inner, rest),
        Some(_) | None => Ok(None),
    }
}

/// `doc` with the field at `path` set to `value`, or without it. A new field comes last; what stands on the way and is
/// no document becomes one.
pub fn set<S: AsRef<str>>(doc: &RawDocument, path: &[S], value: Option<RawBsonRef<'_>>) -> Result<RawDocumentBuf> {
    let Some((first, rest)) = path.split_first() else { return Ok(doc.to_owned()) };
    let mut out = Vec::with_capacity(doc.as_bytes().len() + 32);
    let start = raw::begin(&mut out);
    let mut found = false;
    for element in raw::elements(doc) {
        let element = element?;
        if found || element.key() != first.as_ref() {
            out.extend_from_slice(element.bytes());
            continue;
        }
        found = true;
        put(&mut out, first.as_ref(), rest, Some(element.value()?), value)?;
    }
    if !found {
        put(&mut out, first.as_ref(), rest, None, value)?;
    }
    raw::end(&mut out, start);
    raw::finish(out)
}

/// Writes the field `name`, whose old value is `old`, with `value` set at `rest` below it.
fn put<S: AsRef<str>>(
    out: &mut Vec<u8>,
    name: &str,
    rest: &[S],
    old: Option<RawBsonRef<'_>>,
    value: Option<RawBsonRef<'_>>,
) -> Result<()> {
    match (rest.is_empty(), value, old) {
        (true, Some(value), _) => raw::put_value(out, name, value),
        (false, _, Some(RawBsonRef::Document(inner))) => {
            raw::put_value(out, name, (&*set(inner, rest, value)?).into());
        }
        (false, Some(_), _) => raw::put_value(out, name, (&*set(&RawDocumentBuf::new(), rest, value)?).into()),
        (false, None, Some(other)) => raw::put_value(out, name, other),
        (true, None, _) | (false, None, None) => {}
    }
    Ok(())
}

/// A field name for bson's builders; a name with a null byte is `BadValue` (2).
pub fn cstring(name: &str) -> Result<CString> {
    CString::try_from(name).map_err(|_| Error::bad_value("a field name may not contain a null byte"))
}

/// A value in raw form.
pub fn raw_value(value: bson::Bson) -> Result<RawBson> {
    Ok(RawBson::try_from(value)?)
}

/// `name` without its leading `$`, if it has one.
pub fn without_dollar(path: &str) -> Option<&str> {
    path.strip_prefix('$')
}

/// A document with one field.
pub fn single(name: &str, value: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    let mut doc = RawDocumentBuf::new();
    doc.append(cstring(name)?, value);
    Ok(doc)
}

/// The components of a dotted path.
pub fn components(path: &str) -> Box<[Box<str>]> {
    path.split('.').map(Box::from).collect()
}

/// The first name of a document, if it has any.
pub fn first_name(doc: &RawDocument) -> Result<Option<Cow<'_, str>>> {
    Ok(doc.iter().next().transpose()?.map(|(name, _)| Cow::Borrowed(name.as_str())))
}
