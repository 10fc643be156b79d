//! What the planner knows of an index.

use crate::matcher::Matcher;
use baton_document::keys::Direction;
use baton_document::path::{Part, Path};
use baton_types::{Error, Result};
use bson::raw::{CStr, RawDocumentBuf};
use bson::{Document, RawBsonRef};

/// The name of the index that every collection has: its documents lie in the order of `_id`.
pub const ID_INDEX_NAME: &str = "_id_";

/// How an index hashes a value (missing is `None`).
pub type HashFunction = fn(Option<RawBsonRef<'_>>) -> Result<i64>;

/// How a field of an index is ordered.
#[derive(Clone, Copy, Debug)]
pub enum KeyOrder {
    /// By value.
    Ordered(Direction),
    /// By the hash of the value, ascending.
    Hashed(HashFunction),
    /// Not at all: the index exists and serves no query (`text`, `2dsphere`).
    Unsearchable(&'static str),
}

impl KeyOrder {
    /// The direction that the field's encoding has.
    pub fn direction(self) -> Direction {
        match self {
            Self::Ordered(direction) => direction,
            Self::Hashed(_) | Self::Unsearchable(_) => Direction::Ascending,
        }
    }
}

/// One field of an index.
#[derive(Clone, Debug)]
pub struct IndexField {
    /// Its path.
    pub path: Path,
    /// Its order.
    pub order: KeyOrder,
}

/// An index, as far as planning needs it.
#[derive(Clone, Debug)]
pub struct IndexSpec {
    /// Its name.
    pub name: String,
    /// Its fields, in order.
    pub key: Vec<IndexField>,
    /// Whether no two documents have the same key.
    pub unique: bool,
    /// Whether documents without any of its fields are left out.
    pub sparse: bool,
    /// Whether the planner must leave it alone.
    pub hidden: bool,
    /// Which documents are in it; all if none.
    pub partial: Option<Matcher>,
    /// Bit i: some document has an array on the path of field i.
    pub multikey: u64,
    /// Whether it is the order of the documents themselves.
    pub clustered: bool,
}

impl IndexSpec {
    /// An ordinary index on fields in order of their values.
    pub fn ordered<'a>(name: &str, fields: impl IntoIterator<Item = (&'a str, Direction)>) -> Self {
        let key = fields.into_iter();
        let key = key.map(|(path, direction)| IndexField { path: path.into(), order: KeyOrder::Ordered(direction) });
        Self {
            name: name.into(),
            key: key.collect(),
            unique: false,
            sparse: false,
            hidden: false,
            partial: None,
            multikey: 0,
            clustered: false,
        }
    }

    /// The index that the documents' own order is.
    pub fn id() -> Self {
        let id = Self::ordered(ID_INDEX_NAME, [("_id", Direction::Ascending)]);
        Self { unique: true, clustered: true, ..id }
    }

    /// Whether the path of field `i` goes through an array in some document.
    pub fn is_multikey_at(&self, i: usize) -> bool {
        self.multikey.checked_shr(i as u32).unwrap_or(0) & 1 == 1
    }

    /// Whether any path does, so that a document may have several keys.
    pub fn is_multikey(&self) -> bool {
        self.multikey != 0
    }

    /// The position of a path among the fields.
    pub fn position(&self, path: &str) -> Option<usize> {
        self.key.iter().position(|field| field.path.as_str() == path)
    }

    /// The key pattern as a document.
    pub fn key_pattern(&self) -> Document {
        let mut pattern = Document::new();
        for field in &self.key {
            match field.order {
                KeyOrder::Ordered(Direction::Ascending) => pattern.insert(field.path.as_str(), 1),
                KeyOrder::Ordered(Direction::Descending) => pattern.insert(field.path.as_str(), -1),
                KeyOrder::Hashed(_) => pattern.insert(field.path.as_str(), "hashed"),
                KeyOrder::Unsearchable(kind) => pattern.insert(field.path.as_str(), kind),
            };
        }
        pattern
    }

    /// The document that a key stands for where the index answers alone: each field's value at its path. No field's
    /// path may lead to another's.
    pub fn key_document(&self, values: &[RawBsonRef<'_>]) -> Result<RawDocumentBuf> {
        let fields: Vec<(&[Part], RawBsonRef<'_>)> =
            self.key.iter().map(|field| field.path.parts()).zip(values.iter().copied()).collect();
        nested(&fields)
    }

    /// Whether queries can use it at all.
    pub(super) fn is_searchable(&self) -> bool {
        !self.hidden && !self.key.iter().any(|field| matches!(field.order, KeyOrder::Unsearchable(_)))
    }
}

/// A document of values at paths; those that begin alike share a document inside.
fn nested(fields: &[(&[Part], RawBsonRef<'_>)]) -> Result<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    for (i, (path, value)) in fields.iter().enumerate() {
        let Some((first, rest)) = path.split_first() else { continue };
        let begins_alike = |(other, _): &&(&[Part], RawBsonRef<'_>)| other.first().is_some_and(|part| part == first);
        if fields.iter().take(i).any(|field| begins_alike(&field)) {
            continue;
        }
        let name = <&CStr>::try_from(&*first.name)
            .map_err(|_| Error::bad_value(format!("an index field's name has a NUL in it: '{}'", first.name)))?;
        if rest.is_empty() {
            document.append(name, *value);
        } else {
            let inner: Vec<(&[Part], RawBsonRef<'_>)> = fields
                .iter()
                .filter(begins_alike)
                .map(|(path, value)| (path.get(1..).unwrap_or_default(), *value))
                .collect();
            document.append(name, RawBsonRef::Document(&nested(&inner)?));
        }
    }
    Ok(document)
}
