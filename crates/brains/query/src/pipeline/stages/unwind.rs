//! `$unwind`: one document for each element of an array.
//!
//! Source: MongoDB manual, "$unwind (aggregation)". A value that is no array counts as an array of itself; a missing
//! field, null and an empty array yield nothing, unless they are to be preserved.

use crate::pipeline::field::{self, components};
use crate::pipeline::stage::{Flow, Stage};
use crate::raw;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use std::collections::VecDeque;
use std::sync::Arc;

/// A large array is given in parts of about so many bytes of documents.
const BYTES_AT_ONCE: usize = 64 * 1024;

/// The arguments of `$unwind`.
#[derive(Clone, Debug)]
pub struct UnwindSpec {
    /// The path of the array, without its `$`.
    pub path: String,
    /// Whether a document without elements passes, once.
    pub preserve_null_and_empty: bool,
    /// Where the element's position goes.
    pub index_field: Option<String>,
    names: Box<[Box<str>]>,
    index_names: Option<Box<[Box<str>]>>,
}

impl UnwindSpec {
    /// Parses either form, `"$path"` or a document: 15981, 28808 to 28812, 28818, 28822.
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let mut path = None;
        let mut preserve = false;
        let mut index_field = None;
        match value {
            RawBsonRef::String(text) => path = Some(text.to_owned()),
            RawBsonRef::Document(spec) => {
                for element in spec.iter() {
                    let (name, value) = element?;
                    match name.as_str() {
                        "path" => path = Some(path_argument(value)?),
                        "preserveNullAndEmptyArrays" => preserve = preserve_argument(value)?,
                        "includeArrayIndex" => index_field = Some(index_argument(value)?),
                        other => {
                            let message = format!("unrecognized option to $unwind stage: {other}");
                            return Err(Error::location(28811, message));
                        }
                    }
                }
            }
            other => {
                let message = format!(
                    "expected either a string or an object as specification for $unwind stage, got {}",
                    type_name(other.element_type())
                );
                return Err(Error::location(15981, message));
            }
        }
        let path = path.ok_or_else(|| Error::location(28812, "no path specified to $unwind stage"))?;
        let Some(path) = field::without_dollar(&path) else {
            let message = format!("path option to $unwind stage should be prefixed with a '$': {path}");
            return Err(Error::location(28818, message));
        };
        field::check_path(path)?;
        let index_names = index_field.as_deref().map(components);
        let names = components(path);
        Ok(Self { path: path.to_owned(), preserve_null_and_empty: preserve, index_field, names, index_names })
    }

    pub(crate) fn start(self: &Arc<Self>) -> UnwindStage {
        UnwindStage { spec: Arc::clone(self), under_way: None }
    }

    /// `doc` with the position of its element, where one is asked for.
    fn with_index(&self, doc: RawDocumentBuf, index: Option<i64>) -> Result<RawDocumentBuf> {
        let Some(names) = &self.index_names else { return Ok(doc) };
        field::set(&doc, names, Some(index.map_or(RawBsonRef::Null, RawBsonRef::Int64)))
    }

    fn without_elements(&self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<()> {
        if self.preserve_null_and_empty {
            out.push_back(self.with_index(doc, None)?);
        }
        Ok(())
    }

    /// What comes of a document: at once, or for an array with elements, in parts.
    fn unwind(&self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Option<UnderWay>> {
        match field::get(&doc, &self.names)? {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => self.without_elements(doc, out)?,
            Some(RawBsonRef::Array(array)) if array.is_empty() => {
                let doc = if self.preserve_null_and_empty { field::set(&doc, &self.names, None)? } else { doc };
                self.without_elements(doc, out)?;
            }
            Some(RawBsonRef::Array(array)) => {
                let places = raw::elements(raw::array_fields(array)?)
                    .map(|element| {
                        element.map(|e| (e.element_type(), (e.end - e.value_bytes().len()) as u32, e.end as u32))
                    })
                    .collect::<Result<Vec<_>>>()?;
                return Ok(Some(UnderWay { places, next: 0, doc }));
            }
            Some(_) => out.push_back(self.with_index(doc, None)?),
        }
        Ok(None)
    }

    /// Gives the next elements, and tells whether there are more.
    fn go_on(&self, way: &mut UnderWay, out: &mut VecDeque<RawDocumentBuf>) -> Result<bool> {
        let Some(RawBsonRef::Array(array)) = field::get(&way.doc, &self.names)? else { return Ok(false) };
        let mut bytes = 0;
        while let Some((kind, start, end)) = way.places.get(way.next).copied() {
            let value = array.as_bytes().get(start as usize..end as usize).unwrap_or_default();
            let unwound = replace(&way.doc, &self.names, array.as_bytes().len(), kind, value)?;
            bytes += unwound.as_bytes().len();
            out.push_back(self.with_index(unwound, Some(way.next as i64))?);
            way.next += 1;
            if bytes >= BYTES_AT_ONCE {
                break;
            }
        }
        Ok(way.next < way.places.len())
    }
}

/// `doc` with the array at `names`, which exists and has so many bytes, replaced by a value of it, byte for byte.
fn replace(
    doc: &RawDocument,
    names: &[Box<str>],
    array_bytes: usize,
    kind: ElementType,
    value: &[u8],
) -> Result<RawDocumentBuf> {
    let Some((first, rest)) = names.split_first() else { return Ok(doc.to_owned()) };
    // No more than it takes: a large array has many elements, and as many documents wait for the next stage.
    let room = doc.as_bytes().len().saturating_sub(array_bytes) + first.len() + 2 + value.len();
    let mut out = Vec::with_capacity(room);
    let start = raw::begin(&mut out);
    let mut found = false;
    for old in raw::elements(doc) {
        let old = old?;
        if found || old.key() != &**first {
            out.extend_from_slice(old.bytes());
            continue;
        }
        found = true;
        match old.value()? {
            RawBsonRef::Document(inner) if !rest.is_empty() => {
                let inner = replace(inner, rest, array_bytes, kind, value)?;
                raw::put_bytes(&mut out, old.element_type(), first, inner.as_bytes());
            }
            _ => raw::put_bytes(&mut out, kind, first, value),
        }
    }
    raw::end(&mut out, start);
    raw::finish(out)
}

fn path_argument(value: RawBsonRef<'_>) -> Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| {
        let message =
            format!("expected a string as the path for $unwind stage, got {}", type_name(value.element_type()));
        Error::location(28808, message)
    })
}

fn preserve_argument(value: RawBsonRef<'_>) -> Result<bool> {
    value.as_bool().ok_or_else(|| {
        let message = format!(
            "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got {}",
            type_name(value.element_type())
        );
        Error::location(28809, message)
    })
}

fn index_argument(value: RawBsonRef<'_>) -> Result<String> {
    let name = value.as_str().filter(|name| !name.is_empty()).ok_or_else(|| {
        let message = format!(
            "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got {}",
            type_name(value.element_type())
        );
        Error::location(28810, message)
    })?;
    if name.starts_with('$') {
        let message = format!("includeArrayIndex option to $unwind stage should not be prefixed with a '$': {name}");
        return Err(Error::location(28822, message));
    }
    field::check_path(name)?;
    Ok(name.to_owned())
}

/// A document of whose array some elements have been given.
struct UnderWay {
    doc: RawDocumentBuf,
    /// Of every element its type, and where in the array its value begins and ends.
    places: Vec<(ElementType, u32, u32)>,
    next: usize,
}

/// `$unwind` at work.
pub(crate) struct UnwindStage {
    spec: Arc<UnwindSpec>,
    under_way: Option<UnderWay>,
}

impl Stage for UnwindStage {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        self.under_way = self.spec.unwind(doc, out)?;
        self.resume(out)
    }

    fn resume(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let Some(way) = &mut self.under_way else { return Ok(Flow::More) };
        if self.spec.go_on(way, out)? {
            return Ok(Flow::Again);
        }
        self.under_way = None;
        Ok(Flow::More)
    }

    fn memory_bytes(&self) -> usize {
        let bytes = |way: &UnderWay| way.doc.as_bytes().len() + size_of_val(&way.places[..]);
        self.under_way.as_ref().map_or(0, bytes)
    }
}
