//! The keys under which a document appears in an index.
//!
//! One key per combination of the indexed fields' values. An array on a path multiplies the keys, one per element; the
//! paths of a compound index may all go through the same array, never through two (code 171), so the number of keys is
//! that of one array's elements at each level, not a product. A missing field counts as null, an empty array at a
//! path's end as undefined, both as in MongoDB. A numeric component selects one element and multiplies nothing. Each key
//! counts steps, so that a long array can be interrupted.
//!
//! What it deliberately does not do: encode (see `keys`), hash, or apply partial filters.

use crate::order;
use crate::path::{Container, Part, Path};
use baton_types::interruption::BYTES_PER_STEP;
use baton_types::{Error, ErrorCode, Interruption, Result};
use bson::{RawArray, RawBsonRef, RawDocument};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// One key: a value for each indexed path, in the index's order.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexKey<'a> {
    /// The values; null where missing.
    pub values: Vec<RawBsonRef<'a>>,
    /// How many of them are missing (an index alone cannot tell missing from null).
    pub missing_count: usize,
}

/// All keys of one document in one index, each once, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexKeys<'a> {
    /// The keys. None if the index is sparse and the document has none of its fields.
    pub keys: Vec<IndexKey<'a>>,
    /// For each path, which of its components (from 0) lead to an array that was expanded.
    pub multikey_components: Vec<BTreeSet<usize>>,
}

impl IndexKeys<'_> {
    /// Whether any path was expanded. True also for an array of one element or none.
    pub fn is_multikey(&self) -> bool {
        self.multikey_components.iter().any(|components| !components.is_empty())
    }
}

/// The keys of a document in an index on these paths. Errors: 171 if two paths go through different arrays, 16746 if a
/// numeric component is both an index into an array and a field of one of its documents; what `asked` says.
pub fn index_keys<'a>(
    document: &'a RawDocument,
    paths: &[Path],
    sparse: bool,
    asked: &Interruption,
) -> Result<IndexKeys<'a>> {
    let mut keys = Vec::new();
    let multikey_components = visit_index_keys(document, paths, sparse, asked, &mut |key| {
        keys.push(key);
        Ok(())
    })?;
    if keys.len() > 1 {
        keys.sort_by(compare_keys);
        keys.dedup_by(|later, first| {
            let same = compare_keys(later, first) == Ordering::Equal;
            first.missing_count = first.missing_count.max(if same { later.missing_count } else { 0 });
            same
        });
    }
    Ok(IndexKeys { keys, multikey_components })
}

/// As [`index_keys`], but gives each key as it comes, in no order and some of them several times, and keeps none: an array
/// and many paths make much more of them than the document is long. Returns which components were expanded.
pub fn visit_index_keys<'a>(
    document: &'a RawDocument,
    paths: &[Path],
    sparse: bool,
    asked: &Interruption,
    visit: &mut dyn FnMut(IndexKey<'a>) -> Result<()>,
) -> Result<Vec<BTreeSet<usize>>> {
    let fields: Vec<Field<'a, '_>> =
        paths.iter().map(|path| Field { path, rest: path.parts(), value: RawBsonRef::Null }).collect();
    let no_positions = vec![None; paths.len()];
    let mut generator = Generator { sparse, asked, visit, multikey: vec![BTreeSet::new(); paths.len()] };
    generator.expand(Some(document), fields, 0, &no_positions)?;
    Ok(generator.multikey)
}

/// By value alone: a missing field and null are one key.
fn compare_keys(a: &IndexKey<'_>, b: &IndexKey<'_>) -> Ordering {
    let by_value = a.values.iter().zip(&b.values).map(|(a, b)| order::compare(*a, *b));
    by_value.fold(Ordering::Equal, Ordering::then)
}

/// An indexed path on its way through the document.
#[derive(Clone, Copy)]
struct Field<'a, 'p> {
    path: &'p Path,
    /// The components not yet followed; empty once the value is known (or is the array being expanded).
    rest: &'p [Part],
    value: RawBsonRef<'a>,
}

impl Field<'_, '_> {
    /// The component followed last.
    fn component(&self) -> usize {
        self.path.parts().len().saturating_sub(self.rest.len() + 1)
    }

    fn component_name(&self) -> &str {
        self.path.parts().get(self.component()).map_or("", |part| &part.name)
    }
}

/// What a numeric component selects in the array being expanded, looked up once for all of its elements.
#[derive(Clone, Copy)]
struct Position<'a, 'p> {
    element_is_array: bool,
    /// The value further along the path, up to its end or the next array.
    value: Option<RawBsonRef<'a>>,
    rest: &'p [Part],
}

struct Generator<'f, 'a> {
    sparse: bool,
    asked: &'f Interruption,
    visit: &'f mut dyn FnMut(IndexKey<'a>) -> Result<()>,
    multikey: Vec<BTreeSet<usize>>,
}

impl<'a> Generator<'_, 'a> {
    /// Follows every field to its end or to an array; then emits a key, or goes on with each of the array's elements.
    /// `document` is `None` for an array element that has no fields.
    fn expand<'p>(
        &mut self,
        document: Option<&'a RawDocument>,
        mut fields: Vec<Field<'a, 'p>>,
        mut missing_count: usize,
        positions: &[Option<Position<'a, 'p>>],
    ) -> Result<()> {
        // Each path is looked for among the fields, from the first on.
        let bytes = document.map_or(0, |document| document.as_bytes().len());
        self.asked.steps(fields.len() * (1 + bytes / BYTES_PER_STEP))?;
        let mut array: Option<(&'a RawArray, usize)> = None;
        let mut through_array = vec![false; fields.len()];
        let mut may_expand = true;
        for i in 0..fields.len() {
            if fields[i].rest.is_empty() {
                continue;
            }
            let (value, element_is_array) = extract(document, &mut fields[i], positions.get(i).copied().flatten())?;
            match value {
                None => {
                    fields[i].value = RawBsonRef::Null;
                    fields[i].rest = &[];
                    missing_count += 1;
                }
                Some(RawBsonRef::Array(found)) => {
                    through_array[i] = true;
                    may_expand &= !element_is_array;
                    match array {
                        None => array = Some((found, i)),
                        Some((first, _)) if std::ptr::eq(first.as_bytes(), found.as_bytes()) => {}
                        Some((_, first)) => return Err(parallel_arrays(&fields[i], &fields[first])),
                    }
                }
                Some(value) => fields[i].value = value,
            }
        }
        match array {
            None => {
                if !(self.sparse && missing_count == fields.len()) {
                    let values = fields.iter().map(|field| field.value).collect();
                    (self.visit)(IndexKey { values, missing_count })?;
                }
                Ok(())
            }
            Some((array, _)) if array.is_empty() => {
                self.expand_empty(fields, missing_count, &through_array, may_expand)
            }
            Some((array, _)) => self.expand_array(array, fields, missing_count, &through_array, may_expand),
        }
    }

    /// An empty array: undefined where the path ends in it, missing where the path goes on.
    fn expand_empty<'p>(
        &mut self,
        mut fields: Vec<Field<'a, 'p>>,
        missing_count: usize,
        through_array: &[bool],
        may_expand: bool,
    ) -> Result<()> {
        for (i, field) in fields.iter_mut().enumerate().filter(|(i, _)| through_array[*i]) {
            if may_expand {
                self.multikey[i].insert(field.component());
            }
            if field.rest.is_empty() {
                field.value = RawBsonRef::Undefined;
            }
        }
        self.expand(None, fields, missing_count, &[])
    }

    fn expand_array<'p>(
        &mut self,
        array: &'a RawArray,
        fields: Vec<Field<'a, 'p>>,
        missing_count: usize,
        through_array: &[bool],
        may_expand: bool,
    ) -> Result<()> {
        let mut positions = vec![None; fields.len()];
        self.asked.steps(fields.len() * (1 + array.as_bytes().len() / BYTES_PER_STEP))?;
        for (i, field) in fields.iter().enumerate().filter(|(i, _)| through_array[*i]) {
            let Some(part) = field.rest.first() else {
                if may_expand {
                    self.multikey[i].insert(field.component());
                }
                continue;
            };
            match Container::Array(array).get(&part.name)? {
                None => {
                    self.multikey[i].insert(field.component());
                }
                Some(element) => {
                    let (value, rest) = follow(array.into(), field.rest)?;
                    let element_is_array = matches!(element, RawBsonRef::Array(_));
                    positions[i] = Some(Position { element_is_array, value, rest });
                }
            }
        }
        for element in array {
            let element = element?;
            let mut fields = fields.clone();
            for (i, field) in fields.iter_mut().enumerate() {
                if through_array[i] && field.rest.is_empty() {
                    field.value = if may_expand { element } else { RawBsonRef::Array(array) };
                }
            }
            self.expand(element.as_document(), fields, missing_count, &positions)?;
        }
        Ok(())
    }
}

/// The field's value at its end or at the first array on its way, and whether a position selected an array directly
/// inside an array. Advances the field.
fn extract<'a, 'p>(
    document: Option<&'a RawDocument>,
    field: &mut Field<'a, 'p>,
    position: Option<Position<'a, 'p>>,
) -> Result<(Option<RawBsonRef<'a>>, bool)> {
    let Some(part) = field.rest.first() else { return Ok((None, false)) };
    let inner = match document {
        Some(document) if Container::Document(document).get(&part.name)?.is_some() => Some(document),
        _ => None,
    };
    match (inner, position) {
        (Some(_), Some(_)) => Err(Error::location(
            16746,
            format!(
                "Ambiguous field name found in array (do not use numeric field names in embedded elements in an \
                 array), field: '{}' for array at '{}'",
                part.name, field.path
            ),
        )),
        (Some(document), None) => {
            let (value, rest) = follow(document.into(), field.rest)?;
            field.rest = rest;
            Ok((value, false))
        }
        (None, Some(position)) => {
            field.rest = position.rest;
            Ok((position.value, position.element_is_array))
        }
        (None, None) => Ok((None, false)),
    }
}

/// Follows components through documents to the path's end or the first array; what is left of the path comes with it.
fn follow<'a, 'p>(container: Container<'a>, parts: &'p [Part]) -> Result<(Option<RawBsonRef<'a>>, &'p [Part])> {
    let (mut container, mut parts) = (container, parts);
    while let Some((part, rest)) = parts.split_first() {
        parts = rest;
        match container.get(&part.name)? {
            Some(value) if rest.is_empty() => return Ok((Some(value), rest)),
            Some(value @ RawBsonRef::Array(_)) => return Ok((Some(value), rest)),
            Some(RawBsonRef::Document(inner)) => container = inner.into(),
            _ => break,
        }
    }
    Ok((None, parts))
}

fn parallel_arrays(second: &Field<'_, '_>, first: &Field<'_, '_>) -> Error {
    Error::new(
        ErrorCode::CannotIndexParallelArrays,
        format!("cannot index parallel arrays [{}] [{}]", second.component_name(), first.component_name()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, RawDocumentBuf, doc};

    fn keys(document: bson::Document, paths: &[&str], sparse: bool) -> (Vec<String>, Vec<Vec<usize>>) {
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let paths: Vec<Path> = paths.iter().map(|path| Path::parse(path)).collect();
        let keys = index_keys(&raw, &paths, sparse, &Interruption::default()).unwrap();
        let text = |key: &IndexKey<'_>| {
            let values: Vec<String> = key.values.iter().map(|v| Bson::try_from(*v).unwrap().to_string()).collect();
            values.join(",")
        };
        let multikey = keys.multikey_components.iter().map(|set| set.iter().copied().collect()).collect();
        (keys.keys.iter().map(text).collect(), multikey)
    }

    #[test]
    fn a_missing_field_is_null_unless_the_index_is_sparse() {
        assert_eq!(keys(doc! { "a": 1 }, &["a", "b"], true).0, ["1,null"]);
        assert_eq!(keys(doc! {}, &["a", "b"], false).0, ["null,null"]);
        assert_eq!(keys(doc! {}, &["a", "b"], true).0, [] as [&str; 0]);
        assert_eq!(keys(doc! { "a": Bson::Null }, &["a"], true).0, ["null"]);
    }

    #[test]
    fn an_array_gives_one_key_per_distinct_element() {
        assert_eq!(
            keys(doc! { "a": [3, 1, 1.0], "b": 2 }, &["a", "b"], false),
            (vec!["1,2".into(), "3,2".into()], vec![vec![0], vec![]])
        );
        assert_eq!(
            keys(doc! { "a": [{ "b": 1 }, { "b": [2, 3] }] }, &["a.b"], false),
            (vec!["1".into(), "2".into(), "3".into()], vec![vec![0, 1]])
        );
        assert_eq!(keys(doc! { "a": [[1, 2]] }, &["a"], false).0, ["[1, 2]"]);
    }

    #[test]
    fn an_empty_array_is_undefined_at_the_end_and_missing_on_the_way() {
        assert_eq!(keys(doc! { "a": [] }, &["a"], false), (vec!["undefined".into()], vec![vec![0]]));
        assert_eq!(keys(doc! { "a": [] }, &["a.b"], false), (vec!["null".into()], vec![vec![0]]));
    }

    #[test]
    fn fields_of_one_array_move_together() {
        let document = doc! { "a": [{ "b": 1, "c": "x" }, { "b": 2, "c": "y" }, 7] };
        assert_eq!(keys(document, &["a.b", "a.c"], false).0, ["null,null", "1,\"x\"", "2,\"y\""]);
    }

    #[test]
    fn a_position_selects_and_does_not_multiply() {
        assert_eq!(keys(doc! { "a": [1, 2] }, &["a.0"], false), (vec!["1".into()], vec![vec![]]));
        assert_eq!(keys(doc! { "a": [{ "b": 4 }, { "b": 5 }] }, &["a.1.b"], false), (vec!["5".into()], vec![vec![]]));
        assert_eq!(keys(doc! { "a": [[1, 2]] }, &["a.0"], false), (vec!["[1, 2]".into()], vec![vec![]]));
        assert_eq!(keys(doc! { "a": [1, 2] }, &["a", "a.0"], false).0, ["1,1", "2,1"]);
    }

    #[test]
    fn parallel_arrays_are_refused() {
        let raw = RawDocumentBuf::try_from(&doc! { "a": [1], "b": { "c": [2] } }).unwrap();
        let error =
            index_keys(&raw, &[Path::parse("a"), Path::parse("b.c")], false, &Interruption::default()).unwrap_err();
        assert_eq!(error.code.0, 171);
        assert_eq!(error.message, "cannot index parallel arrays [c] [a]");
        let raw = RawDocumentBuf::try_from(&doc! { "a": [{ "0": 1 }] }).unwrap();
        assert_eq!(index_keys(&raw, &[Path::parse("a.0")], false, &Interruption::default()).unwrap_err().code.0, 16746);
    }
}
