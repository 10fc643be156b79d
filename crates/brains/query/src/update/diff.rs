//! Deltas: what an update changed, as MongoDB's second version of oplog update entries describes it.
//!
//! ```text
//! document: { d: {<removed>: false, …}, u: {<name>: <new value>, …}, i: {<name>: <value>, …}, s<name>: <delta>, … }
//! array:    { a: true, l: <new length>, u<index>: <new value>, s<index>: <delta>, … }
//! ```
//!
//! `u` replaces a field where it is, `i` removes it where it is, if it is, and appends it; `s` descends.
//!
//! Laws, kept by the property tests below: `apply(before, compute(before, after)) == after`, byte for byte; applying a
//! delta twice is applying it once. Applying is tolerant: what a delta addresses and the document lacks is skipped or
//! created, never an error, because an entry may be applied to a document that later entries have already changed.
//!
//! A document that repeats a changed field's name has no delta: names would be ambiguous.

use crate::raw::{self, Element};
use baton_types::Result;
use bson::spec::ElementType;
use bson::{RawDocument, RawDocumentBuf};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// The delta from one document to another; `None` if there is none that is smaller than `after`.
pub fn compute(before: &RawDocument, after: &RawDocument) -> Result<Option<RawDocumentBuf>> {
    match between_documents(before, after)? {
        Some(delta) if delta.len() < after.as_bytes().len() => Ok(Some(raw::finish(delta)?)),
        _ => Ok(None),
    }
}

/// The sections of a document's delta while they are collected, as they lie in the two documents; but for the deltas of fields, which
/// are already encoded.
#[derive(Default)]
pub(super) struct Delta<'d> {
    /// Names.
    removed: SmallVec<[&'d str; 2]>,
    /// Names and values.
    updated: SmallVec<[(&'d str, ElementType, &'d [u8]); 2]>,
    /// Whole elements.
    inserted: SmallVec<[&'d [u8]; 2]>,
    below: Vec<u8>,
}

impl<'d> Delta<'d> {
    pub fn remove(&mut self, name: &'d str) {
        self.removed.push(name);
    }

    /// Takes a whole encoded element.
    pub fn insert(&mut self, element: &'d [u8]) {
        self.inserted.push(element);
    }

    /// Notes that a field has a new value, as a delta of its own if that is smaller.
    pub fn update(&mut self, name: &'d str, before: &Element<'_>, kind: ElementType, after: &'d [u8]) -> Result<()> {
        if let Some(delta) = between_values(before, kind, after)? {
            raw::put_bytes(&mut self.below, ElementType::EmbeddedDocument, &format!("s{name}"), &delta);
        } else {
            self.updated.push((name, kind, after));
        }
        Ok(())
    }

    /// At most so many bytes when it is encoded.
    pub fn len_max(&self) -> usize {
        let removed: usize = self.removed.iter().map(|name| 1 + name.len() + 1 + 1).sum();
        let updated: usize = self.updated.iter().map(|(name, _, value)| 1 + name.len() + 1 + value.len()).sum();
        let inserted: usize = self.inserted.iter().map(|element| element.len()).sum();
        removed + updated + inserted + self.below.len() + 32
    }

    fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len_max());
        self.encode(&mut out);
        out
    }

    /// Encodes the delta at the end of `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = raw::begin(out);
        section(out, "d", &self.removed, |out, name| raw::put_bytes(out, ElementType::Boolean, name, &[0]));
        section(out, "u", &self.updated, |out, (name, kind, value)| raw::put_bytes(out, *kind, name, value));
        section(out, "i", &self.inserted, |out, element| out.extend_from_slice(element));
        out.extend_from_slice(&self.below);
        raw::end(out, start);
    }
}

/// Encodes a section of a delta, if there is anything in it.
fn section<T>(out: &mut Vec<u8>, name: &str, fields: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    if fields.is_empty() {
        return;
    }
    raw::put_header(out, ElementType::EmbeddedDocument, name);
    let start = raw::begin(out);
    fields.iter().for_each(|field| put(out, field));
    raw::end(out, start);
}

/// The delta of two values that are both documents or both arrays, if it is smaller than the new value.
fn between_values(before: &Element<'_>, kind: ElementType, after: &[u8]) -> Result<Option<Vec<u8>>> {
    if before.element_type() != kind {
        return Ok(None);
    }
    let Some(old) = before.container()? else { return Ok(None) };
    let new = RawDocument::from_bytes(after)?;
    let delta = if kind == ElementType::Array { Some(between_arrays(old, new)?) } else { between_documents(old, new)? };
    Ok(delta.filter(|d| d.len() < after.len()))
}

/// The delta of two documents; `None` if a changed name is ambiguous.
fn between_documents(before: &RawDocument, after: &RawDocument) -> Result<Option<Vec<u8>>> {
    let mut new = raw::elements(after).peekable();
    let mut delta = Delta::default();
    let mut changed: Vec<&str> = Vec::new();
    let mut gone: Vec<&str> = Vec::new();
    for was in raw::elements(before) {
        let was = was?;
        match new.next_if(|is| is.as_ref().is_ok_and(|is| is.key() == was.key())) {
            Some(is) => {
                let is = is?;
                if !is.same_value(&was) {
                    delta.update(is.key(), &was, is.element_type(), is.value_bytes())?;
                    changed.push(is.key());
                }
            }
            // Removed, or moved behind others: then it comes again below.
            None => gone.push(was.key()),
        }
    }
    let mut added: HashSet<&str> = HashSet::new();
    for is in new {
        let is = is?;
        delta.insert(is.bytes());
        added.insert(is.key());
        changed.push(is.key());
    }
    for name in gone {
        changed.push(name);
        if !added.contains(name) {
            delta.remove(name);
        }
    }
    Ok((!is_ambiguous(before, &changed)? && !is_ambiguous(after, &changed)?).then(|| delta.finish()))
}

/// Whether the document repeats one of the names.
pub(super) fn is_ambiguous(doc: &RawDocument, names: &[&str]) -> Result<bool> {
    if names.is_empty() {
        return Ok(false);
    }
    if names.len() <= 4 {
        for name in names {
            let mut count = 0;
            for element in raw::elements(doc) {
                count += usize::from(element?.key() == *name);
            }
            if count > 1 {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    let names: HashSet<&str> = names.iter().copied().collect();
    let mut met = HashSet::with_capacity(names.len());
    for element in raw::elements(doc) {
        let key = element?.key();
        if names.contains(key) && !met.insert(key) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn between_arrays(before: &RawDocument, after: &RawDocument) -> Result<Vec<u8>> {
    let old = raw::elements(before).collect::<Result<Vec<_>>>()?;
    let new = raw::elements(after).collect::<Result<Vec<_>>>()?;
    let mut out = Vec::new();
    let start = raw::begin(&mut out);
    raw::put_bytes(&mut out, ElementType::Boolean, "a", &[1]);
    if new.len() < old.len() {
        raw::put_bytes(&mut out, ElementType::Int32, "l", &(new.len() as i32).to_le_bytes());
    }
    for (i, is) in new.iter().enumerate() {
        let was = old.get(i);
        if was.is_some_and(|was| was.same_value(is)) {
            continue;
        }
        let below = match was {
            Some(was) => between_values(was, is.element_type(), is.value_bytes())?,
            None => None,
        };
        match below {
            Some(delta) => raw::put_bytes(&mut out, ElementType::EmbeddedDocument, &format!("s{i}"), &delta),
            None => raw::put_bytes(&mut out, is.element_type(), &format!("u{i}"), is.value_bytes()),
        }
    }
    raw::end(&mut out, start);
    Ok(out)
}

/// What a delta does with one field.
#[derive(Clone, Copy)]
enum Action<'d> {
    Remove,
    Update { kind: ElementType, value: &'d [u8] },
    Insert { kind: ElementType, value: &'d [u8] },
    Below(&'d RawDocument),
}

/// Applies a delta (the `diff` of an oplog entry) to a document.
///
/// Fails only if document or delta is not well-formed BSON.
pub fn apply(doc: &RawDocument, delta: &RawDocument) -> Result<RawDocumentBuf> {
    let mut out = Vec::with_capacity(doc.as_bytes().len() + delta.as_bytes().len());
    apply_to_document(doc, delta, &mut out)?;
    raw::finish(out)
}

fn apply_to_document(doc: &RawDocument, delta: &RawDocument, out: &mut Vec<u8>) -> Result<()> {
    let mut actions: HashMap<&str, Action<'_>> = HashMap::new();
    // Names in the order in which fields that are not there are appended.
    let mut order: Vec<&str> = Vec::new();
    for section in raw::elements(delta) {
        let section = section?;
        let Some(fields) = section.container()? else { continue };
        if let Some(name) = section.key().strip_prefix('s') {
            actions.insert(name, Action::Below(fields));
            continue;
        }
        for field in raw::elements(fields) {
            let field = field?;
            let (kind, value) = (field.element_type(), field.value_bytes());
            let action = match section.key() {
                "d" => Action::Remove,
                "u" => Action::Update { kind, value },
                "i" => Action::Insert { kind, value },
                _ => continue,
            };
            actions.insert(field.key(), action);
            order.push(field.key());
        }
    }
    let mut present: HashSet<&str> = HashSet::new();
    let start = raw::begin(out);
    for element in raw::elements(doc) {
        let element = element?;
        let key = element.key();
        match actions.get(key) {
            None => out.extend_from_slice(element.bytes()),
            Some(Action::Remove | Action::Insert { .. }) => (),
            Some(Action::Update { kind, value }) => {
                present.insert(key);
                raw::put_bytes(out, *kind, key, value);
            }
            Some(Action::Below(below)) => apply_below(&element, key, below, out)?,
        }
    }
    for name in order {
        match actions.get(name) {
            Some(Action::Insert { kind, value }) => raw::put_bytes(out, *kind, name, value),
            Some(Action::Update { kind, value }) if !present.contains(name) => raw::put_bytes(out, *kind, name, value),
            _ => (),
        }
    }
    raw::end(out, start);
    Ok(())
}

/// Applies a delta to a field's value, if the value is of the delta's kind.
fn apply_below(element: &Element<'_>, key: &str, delta: &RawDocument, out: &mut Vec<u8>) -> Result<()> {
    let for_array = matches!(delta.iter_elements().next(), Some(Ok(first)) if first.key().as_str() == "a");
    match element.container()? {
        Some(inner) if element.is_array() && for_array => {
            raw::put_header(out, ElementType::Array, key);
            apply_to_array(inner, delta, out)
        }
        Some(inner) if !element.is_array() && !for_array => {
            raw::put_header(out, ElementType::EmbeddedDocument, key);
            apply_to_document(inner, delta, out)
        }
        _ => {
            out.extend_from_slice(element.bytes());
            Ok(())
        }
    }
}

/// Longest array a delta may make: far beyond what fits in a document, and a bound on padding.
const ARRAY_LENGTH_MAX: usize = 16 * 1024 * 1024;

fn apply_to_array(array: &RawDocument, delta: &RawDocument, out: &mut Vec<u8>) -> Result<()> {
    let mut length: Option<usize> = None;
    let mut actions: HashMap<usize, Action<'_>> = HashMap::new();
    let mut end = 0;
    for field in raw::elements(delta) {
        let field = field?;
        let index = |digits: &str| digits.parse::<usize>().ok().filter(|i| *i < ARRAY_LENGTH_MAX);
        if field.key() == "l" {
            length = raw::integral(field.value()?).and_then(|n| usize::try_from(n).ok());
        } else if let Some(i) = field.key().strip_prefix('u').and_then(index) {
            actions.insert(i, Action::Update { kind: field.element_type(), value: field.value_bytes() });
            end = end.max(i + 1);
        } else if let (Some(i), Some(below)) = (field.key().strip_prefix('s').and_then(index), field.container()?) {
            actions.insert(i, Action::Below(below));
        }
    }
    let start = raw::begin(out);
    let mut count = 0;
    for element in raw::elements(array) {
        let element = element?;
        if length.is_some_and(|l| count >= l) {
            break;
        }
        match actions.get(&count) {
            Some(Action::Update { kind, value }) => raw::put_bytes(out, *kind, element.key(), value),
            Some(Action::Below(below)) => apply_below(&element, element.key(), below, out)?,
            _ => out.extend_from_slice(element.bytes()),
        }
        count += 1;
    }
    for i in count..end {
        match actions.get(&i) {
            Some(Action::Update { kind, value }) => raw::put_bytes(out, *kind, &i.to_string(), value),
            _ => raw::put_header(out, ElementType::Null, &i.to_string()),
        }
    }
    raw::end(out, start);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, Document, rawdoc};
    use proptest::prelude::*;

    fn delta(before: &RawDocument, after: &RawDocument) -> RawDocumentBuf {
        raw::finish(between_documents(before, after).unwrap().unwrap()).unwrap()
    }

    #[test]
    fn a_delta_has_the_shape_of_mongodb() {
        let before = rawdoc! { "_id": 1, "a": 1, "b": 2, "c": { "x": 1, "y": "a long string that stays" }, "d": [1, 2, 3, "and a tail"] };
        let after =
            rawdoc! { "_id": 1, "a": 9, "c": { "x": 2, "y": "a long string that stays" }, "d": [1, 5, 3], "e": true };
        assert_eq!(
            delta(&before, &after),
            rawdoc! { "d": { "b": false }, "u": { "a": 9 }, "i": { "e": true }, "sc": { "u": { "x": 2 } }, "sd": { "a": true, "l": 3, "u1": 5 } }
        );
    }

    #[test]
    fn a_field_that_moves_is_inserted_not_removed() {
        let (before, after) = (rawdoc! { "a": 1, "b": 2 }, rawdoc! { "b": 2, "a": 1 });
        assert_eq!(delta(&before, &after), rawdoc! { "i": { "a": 1 } });
        assert_eq!(apply(&before, &delta(&before, &after)).unwrap(), after);
    }

    #[test]
    fn applying_is_tolerant() {
        let delta = rawdoc! { "d": { "gone": false }, "u": { "n": 1 }, "sobject": { "u": { "x": 1 } }, "sarray": { "a": true, "u3": 9 } };
        let doc = rawdoc! { "_id": 1, "object": 5, "array": [0] };
        assert_eq!(
            apply(&doc, &delta).unwrap(),
            rawdoc! { "_id": 1, "object": 5, "array": [0, null, null, 9], "n": 1 }
        );
    }

    #[test]
    fn repeated_names_have_no_delta() {
        let mut before = rawdoc! { "a": 1, "b": "some text to make a delta worth while" };
        before.append(bson::raw::cstr!("a"), 2);
        let mut after = rawdoc! { "a": 3, "b": "some text to make a delta worth while" };
        after.append(bson::raw::cstr!("a"), 2);
        assert_eq!(compute(&before, &after).unwrap(), None);
    }

    fn arbitrary_value() -> impl Strategy<Value = Bson> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(Bson::Int32),
            (0..3_i32).prop_map(Bson::Int32),
            any::<bool>().prop_map(Bson::Boolean),
            "[a-z]{0,12}".prop_map(Bson::String),
            Just(Bson::Null),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Bson::Array),
                proptest::collection::vec(("[a-e]", inner), 0..5).prop_map(|f| Bson::Document(f.into_iter().collect())),
            ]
        })
    }

    fn arbitrary_document() -> impl Strategy<Value = RawDocumentBuf> {
        proptest::collection::vec(("[a-f]", arbitrary_value()), 0..6).prop_map(|fields| {
            let doc: Document = fields.into_iter().collect();
            RawDocumentBuf::try_from(doc).unwrap()
        })
    }

    proptest! {
        #[test]
        fn applying_a_delta_makes_the_new_document(before in arbitrary_document(), after in arbitrary_document()) {
            let delta = delta(&before, &after);
            let once = apply(&before, &delta).unwrap();
            prop_assert_eq!(&once, &after);
            prop_assert_eq!(apply(&once, &delta).unwrap(), once);
        }

        #[test]
        fn any_document_survives_any_delta(doc in arbitrary_document(), before in arbitrary_document(), after in arbitrary_document()) {
            let delta = delta(&before, &after);
            let once = apply(&doc, &delta).unwrap();
            prop_assert_eq!(apply(&once, &delta).unwrap(), once);
        }
    }
}
