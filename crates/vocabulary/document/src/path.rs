//! Dotted paths into documents, with MongoDB's implicit traversal of arrays.
//!
//! A path reaches through an array in two ways: into every element that is a document (one level per array: an array
//! directly inside an array is not entered), and, where a component is numeric, into the element at that index. Both
//! apply at once, so `a.0` finds the field `0` of the documents in `a` and the first element of `a`. A dot at the end
//! (`a.`) names the empty field of a document, but of an array the array itself, as MongoDB has it.
//!
//! What it deliberately does not do: aggregation's field paths (which collect values and do not read numbers as
//! indexes), and updates' paths (which create what is missing).

pub use crate::index_keys::{IndexKey, IndexKeys, index_keys, visit_index_keys};
use baton_types::Result;
use bson::raw::RawIter;
use bson::{RawArray, RawBsonRef, RawDocument};
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::fmt;
use std::ops::ControlFlow;

/// A dotted path, taken apart. One of a short name, which most are, needs no memory beside itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Path {
    text: SmolStr,
    parts: SmallVec<[Part; 1]>,
}

/// One component of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The component as a field's name.
    pub name: SmolStr,
    /// The component as an array index: digits only, without leading zeros.
    pub index: Option<usize>,
}

impl Path {
    /// Takes a dotted path apart. Any text is a path; empty components name fields with empty names.
    pub fn parse(text: &str) -> Self {
        let parts = text.split('.').map(|name| Part { name: name.into(), index: parse_index(name) }).collect();
        Self { text: text.into(), parts }
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its components, at least one.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The first component.
    pub fn first(&self) -> &str {
        self.parts.first().map_or("", |part| &part.name)
    }

    /// Whether it has more than one component.
    pub fn is_dotted(&self) -> bool {
        self.parts.len() > 1
    }

    /// Whether this path is `other` or leads to it (`a` and `a.b` lead to `a.b`).
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        self.parts.len() <= other.parts.len() && self.parts.iter().zip(&other.parts).all(|(a, b)| a.name == b.name)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({})", self.text)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for Path {
    fn from(text: &str) -> Self {
        Self::parse(text)
    }
}

/// A component as an array index: digits only, without leading zeros.
pub(crate) fn parse_index(name: &str) -> Option<usize> {
    let canonical = name == "0" || !name.starts_with('0');
    if canonical && name.bytes().all(|byte| byte.is_ascii_digit()) { name.parse().ok() } else { None }
}

/// Something with named members: a document, or an array whose members are named by their indexes.
#[derive(Clone, Copy)]
pub enum Container<'a> {
    /// A document.
    Document(&'a RawDocument),
    /// An array.
    Array(&'a RawArray),
}

impl<'a> Container<'a> {
    /// The container in a value, if it is one.
    pub fn from_raw(value: RawBsonRef<'a>) -> Option<Self> {
        match value {
            RawBsonRef::Document(document) => Some(Self::Document(document)),
            RawBsonRef::Array(array) => Some(Self::Array(array)),
            _ => None,
        }
    }

    /// Its encoding.
    pub fn as_bytes(self) -> &'a [u8] {
        match self {
            Self::Document(document) => document.as_bytes(),
            Self::Array(array) => array.as_bytes(),
        }
    }

    /// Its members.
    pub fn iter_elements(self) -> RawIter<'a> {
        match self {
            Self::Document(document) => document.iter_elements(),
            Self::Array(array) => array.iter_elements(),
        }
    }

    /// The first member of that name.
    pub fn get(self, name: &str) -> Result<Option<RawBsonRef<'a>>> {
        for element in self.iter_elements() {
            let element = element?;
            if element.key().as_str() == name {
                return Ok(Some(element.value()?));
            }
        }
        Ok(None)
    }
}

impl<'a> From<&'a RawDocument> for Container<'a> {
    fn from(document: &'a RawDocument) -> Self {
        Self::Document(document)
    }
}

impl<'a> From<&'a RawArray> for Container<'a> {
    fn from(array: &'a RawArray) -> Self {
        Self::Array(array)
    }
}

/// The value at the path through documents alone: an array on the way hides what is in it.
pub fn get<'a>(document: &'a RawDocument, path: &Path) -> Option<RawBsonRef<'a>> {
    let mut document = document;
    let (last, leading) = path.parts.split_last()?;
    for part in leading {
        match Container::Document(document).get(&part.name).ok()?? {
            RawBsonRef::Document(inner) => document = inner,
            _ => return None,
        }
    }
    Container::Document(document).get(&last.name).ok()?
}

/// The value at the path where arrays count as documents whose fields are the indexes: no implicit traversal.
pub fn get_by_index<'a>(document: &'a RawDocument, path: &Path) -> Option<RawBsonRef<'a>> {
    let mut container = Container::Document(document);
    let (last, leading) = path.parts.split_last()?;
    for part in leading {
        container = Container::from_raw(container.get(&part.name).ok()??)?;
    }
    container.get(&last.name).ok()?
}

/// What becomes of an array at the end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafArrays {
    /// Each element is visited, then the array itself (comparisons).
    Traverse,
    /// Only the array itself (`$size`, `$elemMatch`, `$type: "array"`).
    Keep,
    /// Only the elements.
    ElementsOnly,
}

/// One value that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found<'a> {
    /// The value; `None` where the path ends early.
    pub value: Option<RawBsonRef<'a>>,
    /// The index in the outermost array that was traversed implicitly: what the positional `$` stands for.
    pub array_index: Option<usize>,
    /// Whether the value is an element of an array at the path's end.
    pub is_leaf_element: bool,
}

/// Visits every value the path leads to, as a query's comparison sees them: missing ones as `None`, a leaf array's
/// elements and then the array itself. Stops when the callback breaks.
pub fn visit<'a>(
    document: &'a RawDocument,
    path: &Path,
    f: &mut dyn FnMut(Option<RawBsonRef<'a>>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    visit_with(document.into(), path, LeafArrays::Traverse, &mut |found| f(found.value))
}

/// As [`visit`], with a choice for leaf arrays, and with where each value was found. An array may stand in for the
/// document (`$elemMatch` on an array of arrays); its members are then named by their indexes.
pub fn visit_with<'a>(
    container: Container<'a>,
    path: &Path,
    leaf: LeafArrays,
    f: &mut dyn FnMut(Found<'a>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    Visitor { leaf, f }.document(container, &path.parts, None)
}

/// Passes a `Break` on to the caller.
macro_rules! pass {
    ($flow:expr) => {
        if $flow.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    };
}

struct Visitor<'f, 'a> {
    leaf: LeafArrays,
    f: &'f mut dyn FnMut(Found<'a>) -> ControlFlow<()>,
}

impl<'a> Visitor<'_, 'a> {
    fn found(&mut self, value: Option<RawBsonRef<'a>>, array_index: Option<usize>) -> ControlFlow<()> {
        (self.f)(Found { value, array_index, is_leaf_element: false })
    }

    /// Follows named fields until the path's end or the first array.
    fn document(
        &mut self,
        mut container: Container<'a>,
        mut parts: &[Part],
        outer: Option<usize>,
    ) -> Result<ControlFlow<()>> {
        while let Some((part, rest)) = parts.split_first() {
            match container.get(&part.name)? {
                Some(RawBsonRef::Array(array)) if rest.is_empty() => return self.leaf_array(array, outer),
                Some(RawBsonRef::Array(array)) => return self.array(array, rest, outer),
                Some(RawBsonRef::Document(inner)) if !rest.is_empty() => container = inner.into(),
                Some(value) if rest.is_empty() => return Ok(self.found(Some(value), outer)),
                _ => break,
            }
            parts = rest;
        }
        Ok(self.found(None, outer))
    }

    /// The path ends at an array.
    fn leaf_array(&mut self, array: &'a RawArray, outer: Option<usize>) -> Result<ControlFlow<()>> {
        if self.leaf != LeafArrays::Keep {
            for (index, value) in array.into_iter().enumerate() {
                let array_index = outer.or(Some(index));
                pass!((self.f)(Found { value: Some(value?), array_index, is_leaf_element: true }));
            }
        }
        if self.leaf != LeafArrays::ElementsOnly {
            pass!(self.found(Some(RawBsonRef::Array(array)), outer));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The path goes on inside an array. Elements that are neither documents nor named by index yield nothing, not
    /// even "missing".
    fn array(&mut self, array: &'a RawArray, parts: &[Part], outer: Option<usize>) -> Result<ControlFlow<()>> {
        let Some((part, rest)) = parts.split_first() else { return Ok(ControlFlow::Continue(())) };
        if rest.is_empty() && part.name.is_empty() {
            return self.leaf_array(array, outer);
        }
        for (index, value) in array.into_iter().enumerate() {
            let value = value?;
            if let RawBsonRef::Document(inner) = value {
                pass!(self.document(inner.into(), parts, outer.or(Some(index)))?);
            }
            if part.index != Some(index) {
                continue;
            }
            match value {
                value if rest.is_empty() => pass!(self.found(Some(value), outer)),
                RawBsonRef::Document(inner) => pass!(self.document(inner.into(), rest, outer)?),
                RawBsonRef::Array(inner) => pass!(self.array(inner, rest, outer)?),
                _ => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, RawDocumentBuf, doc};

    fn found(document: bson::Document, path: &str, leaf: LeafArrays) -> Vec<(String, Option<usize>)> {
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let mut all = Vec::new();
        let flow = visit_with(Container::Document(&raw), &Path::parse(path), leaf, &mut |found| {
            let text = found.value.map_or("missing".into(), |value| Bson::try_from(value).unwrap().to_string());
            all.push((text, found.array_index));
            ControlFlow::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        all
    }

    fn values(document: bson::Document, path: &str) -> Vec<String> {
        found(document, path, LeafArrays::Traverse).into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn a_leaf_array_yields_its_elements_and_then_itself() {
        assert_eq!(
            found(doc! { "a": [5, 6] }, "a", LeafArrays::Traverse),
            [("5".into(), Some(0)), ("6".into(), Some(1)), ("[5, 6]".into(), None)]
        );
        assert_eq!(found(doc! { "a": [5, 6] }, "a", LeafArrays::Keep), [("[5, 6]".into(), None)]);
        assert_eq!(values(doc! { "a": [] }, "a"), ["[]"]);
        assert_eq!(values(doc! { "a": [[1]] }, "a"), ["[1]", "[[1]]"]);
    }

    #[test]
    fn documents_in_an_array_are_entered_and_scalars_yield_nothing() {
        assert_eq!(values(doc! { "a": [{ "b": 1 }, 7, {}] }, "a.b"), ["1", "missing"]);
        assert_eq!(values(doc! { "a": [7] }, "a.b"), [] as [&str; 0]);
        assert_eq!(values(doc! { "a": [] }, "a.b"), [] as [&str; 0]);
        assert_eq!(values(doc! { "a": 7 }, "a.b"), ["missing"]);
        assert_eq!(values(doc! {}, "a.b"), ["missing"]);
    }

    #[test]
    fn an_array_inside_an_array_is_not_entered() {
        assert_eq!(values(doc! { "a": [[{ "b": 1 }]] }, "a.b"), [] as [&str; 0]);
        assert_eq!(values(doc! { "a": [[{ "b": 1 }]] }, "a.0.b"), ["1"]);
    }

    #[test]
    fn a_number_is_both_a_field_name_and_an_index() {
        assert_eq!(values(doc! { "a": [5, { "1": 4 }] }, "a.1"), ["4", "{ \"1\": 4 }"]);
        assert_eq!(values(doc! { "a": [5, { "b": 4 }] }, "a.1.b"), ["missing", "4"]);
        assert_eq!(values(doc! { "a": { "0": 3 } }, "a.0"), ["3"]);
        assert_eq!(values(doc! { "a": [5] }, "a.00"), [] as [&str; 0]);
        // The element at an index is not traversed in turn.
        assert_eq!(values(doc! { "a": [[1, 2]] }, "a.0"), ["[1, 2]"]);
    }

    #[test]
    fn a_dot_at_the_end_names_an_empty_field_or_the_array() {
        assert_eq!(values(doc! { "a": { "": 1 } }, "a."), ["1"]);
        assert_eq!(values(doc! { "a": { "b": 1 } }, "a."), ["missing"]);
        assert_eq!(values(doc! { "a": 1 }, "a."), ["missing"]);
        assert_eq!(values(doc! { "a": [1, { "": 2 }] }, "a."), ["1", "{ \"\": 2 }", "[1, { \"\": 2 }]"]);
        assert_eq!(values(doc! { "a": [] }, "a."), ["[]"]);
        assert_eq!(values(doc! { "a": [[1], [2]] }, "a.1."), ["2", "[2]"]);
        assert_eq!(values(doc! { "a": ["x", "y"] }, "a.1."), [] as [&str; 0]);
        assert_eq!(values(doc! { "a": ["x"] }, "a.."), [] as [&str; 0]);
        assert_eq!(values(doc! { "a": ["x"] }, ".a"), ["missing"]);
    }

    #[test]
    fn the_outermost_implicit_index_is_the_one_reported() {
        let document = doc! { "a": [{ "b": [1, 2] }, { "b": [3] }] };
        let expected = [("1", 0), ("2", 0), ("[1, 2]", 0), ("3", 1), ("[3]", 1)];
        let actual = found(document, "a.b", LeafArrays::Traverse);
        assert_eq!(actual, expected.map(|(text, index)| (text.to_string(), Some(index))));
        // An explicit index is not a traversal.
        assert_eq!(found(doc! { "a": [9, 5] }, "a.1", LeafArrays::Traverse), [("5".into(), None)]);
        assert_eq!(found(doc! { "a": [{ "b": [4, 5] }] }, "a.0.b", LeafArrays::ElementsOnly)[1], ("4".into(), Some(0)));
    }

    #[test]
    fn get_stops_at_arrays() {
        let raw = RawDocumentBuf::try_from(&doc! { "a": { "b": [1, { "c": 2 }] } }).unwrap();
        assert!(matches!(get(&raw, &Path::parse("a.b")), Some(RawBsonRef::Array(_))));
        assert!(get(&raw, &Path::parse("a.b.1.c")).is_none());
        assert_eq!(get_by_index(&raw, &Path::parse("a.b.1.c")), Some(RawBsonRef::Int32(2)));
    }
}
