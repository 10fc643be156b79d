//! `hint`, `min` and `max`: the client chooses the index.

use super::index::{IndexSpec, KeyOrder};
use super::key_ranges::KeyRange;
use crate::sort::natural_direction;
use baton_document::keys::{self, Direction};
use baton_document::order;
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, Document, RawBsonRef, RawDocument};
use std::sync::Arc;

/// Which index the client wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// By name.
    Name(String),
    /// By key pattern.
    Key(Document),
    /// None: the documents' own order.
    Natural(Direction),
}

impl Hint {
    /// Parses a command's `hint`; an empty one is none.
    pub fn parse(value: RawBsonRef<'_>) -> Result<Option<Self>> {
        match value {
            RawBsonRef::String("") => Ok(None),
            RawBsonRef::String(name) => Ok(Some(Self::Name(name.into()))),
            RawBsonRef::Document(doc) if doc.is_empty() => Ok(None),
            RawBsonRef::Document(doc) => match natural_direction(doc)? {
                Some(direction) => Ok(Some(Self::Natural(direction))),
                None => Ok(Some(Self::Key(Document::try_from(doc)?))),
            },
            _ => Err(Error::failed_to_parse("Hint must be a string or an object")),
        }
    }

    /// The index that is meant; none for the natural order.
    ///
    /// `IndexNotFound` (27) for a key pattern that several indexes have, such as a full one and a partial one: they would
    /// give different documents.
    pub(super) fn resolve(&self, indexes: &[Arc<IndexSpec>]) -> Result<Option<Arc<IndexSpec>>> {
        let found = match self {
            Self::Natural(_) => return Ok(None),
            Self::Name(name) => indexes.iter().find(|index| index.name == *name),
            Self::Key(key) => {
                let mut same = indexes.iter().filter(|index| is_key_pattern(index, key));
                let first = same.next();
                if let (Some(first), Some(second)) = (first, same.next()) {
                    let message = format!(
                        "error processing query: planner returned error :: caused by :: Hint matched multiple indexes, \
                         must hint by index name. Matched: {} and {}",
                        first.name, second.name
                    );
                    return Err(Error::new(ErrorCode::IndexNotFound, message));
                }
                first
            }
        };
        found.filter(|index| index.is_searchable()).cloned().map(Some).ok_or_else(|| {
            Error::bad_value(
                "error processing query: planner returned error :: caused by :: hint provided does not correspond to \
                 an existing index",
            )
        })
    }
}

/// Whether a key pattern says the same as an index's, numbers by value.
fn is_key_pattern(index: &IndexSpec, key: &Document) -> bool {
    order::compare_bson(&Bson::Document(index.key_pattern()), &Bson::Document(key.clone())).is_eq()
}

/// MongoDB's code for `min` or `max` without a hint.
const HINT_MISSING: i32 = 51173;
/// MongoDB's code for a `min` or `max` that does not fit the index.
const INDEX_UNFIT: i32 = 51174;
/// MongoDB's code for a `min` that is not below `max`.
const NOT_ASCENDING: i32 = 51175;
/// MongoDB's code for a `min` and a `max` of different fields.
const FIELDS_DIFFER: i32 = 51176;

/// The range of keys from `min` (included) to `max` (excluded) of the hinted index.
pub(super) fn min_max_range(
    index: Option<&IndexSpec>,
    min: Option<&RawDocument>,
    max: Option<&RawDocument>,
) -> Result<KeyRange> {
    let Some(index) = index else {
        return Err(Error::location(
            HINT_MISSING,
            "When using min()/max() a hint of which index to use must be provided",
        ));
    };
    if let (Some(min), Some(max)) = (min, max)
        && field_names(min)? != field_names(max)?
    {
        return Err(Error::location(FIELDS_DIFFER, "min() and max() must have the same field names"));
    }
    let mut range = KeyRange::all();
    if let Some(min) = min {
        range.start = key(index, min)?;
    }
    if let Some(max) = max {
        range.end = key(index, max)?;
    }
    if range.start >= range.end {
        return Err(Error::location(NOT_ASCENDING, "The value for min() must be less than the value for max()"));
    }
    Ok(range)
}

fn field_names(doc: &RawDocument) -> Result<Vec<&str>> {
    let mut names = Vec::new();
    for element in doc.iter_elements() {
        names.push(element?.key().as_str());
    }
    Ok(names)
}

/// The encoded key of a document that names each of the index's fields, in order.
fn key(index: &IndexSpec, doc: &RawDocument) -> Result<Vec<u8>> {
    let unfit = || Error::location(INDEX_UNFIT, "The index chosen is not compatible with min/max");
    let mut bytes = Vec::new();
    let mut fields = index.key.iter();
    for element in doc.iter_elements() {
        let element = element?;
        let field = fields.next().filter(|field| field.path.as_str() == element.key().as_str()).ok_or_else(unfit)?;
        match field.order {
            KeyOrder::Ordered(direction) => keys::encode(&mut bytes, element.value()?, direction),
            KeyOrder::Hashed(hash) => {
                keys::encode(&mut bytes, RawBsonRef::Int64(hash(Some(element.value()?))?), Direction::Ascending);
            }
            KeyOrder::Unsearchable(_) => return Err(unfit()),
        }
    }
    if fields.next().is_some() { Err(unfit()) } else { Ok(bytes) }
}
