//! Field paths as stages use them, and reading and setting one field of a raw document.
//!
//! Invariants: a checked path is what MongoDB calls a FieldPath: no empty component, none that starts with `$`, at most
//! 200 of them. Reading and setting look through documents only, never into arrays; what is not touched is copied byte
//! for byte, in its place.

use baton_types::{Error, ErrorCode, Result};
use bson::raw::{CString, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use std::borrow::Cow;

/// Most components of a path.
const PATH_COMPONENTS_MAX: usize = 200;

/// Checks a dotted path without its `$`: 40352, 40353, 15998, 16410, 16411 or `Overflow` (15).
pub fn check_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(Error::location(40352, "FieldPath cannot be constructed with empty string"));
    }
    if path.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    if path.split('.').count() > PATH_COMPONENTS_MAX {
        return Err(Error::new(ErrorCode::Overflow, "FieldPath is too long"));
    }
    path.split('.').try_for_each(check_name)
}

/// Checks one component of a path: 15998, 16410, 16411 or 16412.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::location(15998, "FieldPath field names may not be empty strings."));
    }
    if name.starts_with('$') {
        let message = format!(
            "FieldPath field names may not start with '$'. Consider using $getField or $setField. Found '{name}'"
        );
        return Err(Error::location(16410, message));
    }
    if name.contains('\0') {
        return Err(Error::location(16411, "FieldPath field names may not contain '\0'."));
    }
    if name.contains('.') {
        let message = "FieldPath field names may not contain '.'. Consider using $getField or $setField.";
        return Err(Error::location(16412, message));
    }
    Ok(())
}

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
    let mut out = Writer::with_capacity(doc.as_bytes().len() + 32);
    let Some((first, rest)) = path.split_first() else { return Ok(doc.to_owned()) };
    let mut found = false;
    for element in Elements::of(doc) {
        let element = element?;
        if found || element.name != first.as_ref() {
            out.copy(&element);
            continue;
        }
        found = true;
        put(&mut out, first.as_ref(), rest, Some(element.value()?), value)?;
    }
    if !found {
        put(&mut out, first.as_ref(), rest, None, value)?;
    }
    out.finish()
}

/// Writes the field `name`, whose old value is `old`, with `value` set at `rest` below it.
fn put<S: AsRef<str>>(
    out: &mut Writer,
    name: &str,
    rest: &[S],
    old: Option<RawBsonRef<'_>>,
    value: Option<RawBsonRef<'_>>,
) -> Result<()> {
    match (rest.is_empty(), value, old) {
        (true, Some(value), _) => out.append(name, value),
        (true, None, _) => Ok(()),
        (false, _, Some(RawBsonRef::Document(inner))) => out.append(name, (&*set(inner, rest, value)?).into()),
        (false, Some(_), _) => out.append(name, (&*set(&RawDocumentBuf::new(), rest, value)?).into()),
        (false, None, Some(other)) => out.append(name, other),
        (false, None, None) => Ok(()),
    }
}

/// One element of a document, with its bytes.
pub struct Element<'d> {
    /// The field's name.
    pub name: &'d str,
    /// The BSON type byte.
    pub kind: u8,
    /// Type byte, name and value.
    pub bytes: &'d [u8],
    /// The value alone.
    pub value_bytes: &'d [u8],
    raw: bson::raw::RawElement<'d>,
}

impl<'d> Element<'d> {
    /// The value, decoded.
    pub fn value(&self) -> Result<RawBsonRef<'d>> {
        Ok(self.raw.value()?)
    }
}

/// The elements of a document in order.
pub struct Elements<'d> {
    bytes: &'d [u8],
    offset: usize,
    inner: bson::raw::RawIter<'d>,
}

impl<'d> Elements<'d> {
    /// All elements of `doc`.
    pub fn of(doc: &'d RawDocument) -> Self {
        Self { bytes: doc.as_bytes(), offset: 4, inner: doc.iter_elements() }
    }

    /// The elements of an array, named by position.
    pub fn of_array(array: &'d bson::raw::RawArray) -> Self {
        Self { bytes: array.as_bytes(), offset: 4, inner: array.iter_elements() }
    }
}

impl<'d> Iterator for Elements<'d> {
    type Item = Result<Element<'d>>;

    fn next(&mut self) -> Option<Self::Item> {
        let raw = match self.inner.next()? {
            Ok(raw) => raw,
            Err(e) => return Some(Err(e.into())),
        };
        let name: &'d str = raw.key().as_str();
        let start = self.offset;
        let value_start = start + 1 + name.len() + 1;
        let end = value_start + raw.size();
        self.offset = end;
        Some(match (self.bytes.get(start..end), self.bytes.get(value_start..end)) {
            (Some(bytes), Some(value_bytes)) => Ok(Element { name, kind: bytes[0], bytes, value_bytes, raw }),
            _ => Err(Error::new(ErrorCode::InvalidBSON, "an element runs past its document's end")),
        })
    }
}

/// Builds a raw document from copied and new elements.
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty document, with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend_from_slice(&[0; 4]);
        Self { bytes }
    }

    /// Appends an element as it is.
    pub fn copy(&mut self, element: &Element<'_>) {
        self.bytes.extend_from_slice(element.bytes);
    }

    /// Appends elements that are whole already.
    pub fn copy_bytes(&mut self, elements: &[u8]) {
        self.bytes.extend_from_slice(elements);
    }

    /// Appends a field whose value is given as bytes of type `kind`. `name` holds no null byte: it is a checked path's.
    pub fn append_bytes(&mut self, name: &str, kind: u8, value_bytes: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.bytes.extend_from_slice(value_bytes);
    }

    /// Appends a field.
    pub fn append(&mut self, name: &str, value: RawBsonRef<'_>) -> Result<()> {
        let mut single = RawDocumentBuf::new();
        single.append(cstring(name)?, value);
        let bytes = single.as_bytes();
        self.bytes.extend_from_slice(&bytes[4..bytes.len() - 1]);
        Ok(())
    }

    /// The finished document.
    pub fn finish(mut self) -> Result<RawDocumentBuf> {
        self.bytes.push(0);
        let length = i32::try_from(self.bytes.len())
            .map_err(|_| Error::new(ErrorCode::BSONObjectTooLarge, "BSONObj exceeds maximum size"))?;
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        Ok(RawDocumentBuf::from_bytes(self.bytes)?)
    }
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
