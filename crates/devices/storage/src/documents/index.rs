//! Index entries: what a document puts into an index, and how an entry lies on disk.
//!
//! An entry's key is the index's prefix, the encoded fields, the record key; its value is the length of the encoded
//! fields (two little-endian bytes), followed by the fields' values as a BSON array where decoding the key would not
//! give them back exactly (`1.0` encodes as `1` does). The record key in the key makes every entry unique, so that a
//! unique index is an ordinary one whose writers look before they write, under a lock on the fields.
//!
//! Invariant: for every document of a collection and every index of it, exactly the entries that [`entries_of`] gives
//! are stored, unless the index is being built. A request that adds entries is asked whether to go on while
//! they are made, and they are bounded in bytes; what is a fact already is not.

use crate::catalog::{Index, IndexFieldKind};
use crate::documents::format::prefix;
use baton_document::hash::index_hash;
use baton_document::index_keys::visit_index_keys;
use baton_document::keys::{self, Direction};
use baton_document::path::Path;
use baton_types::interruption::BYTES_PER_STEP;
use baton_types::{Error, ErrorCode, Interruption, Result};
use bson::{RawArrayBuf, RawBsonRef, RawDocument};
use smallvec::SmallVec;

use crate::documents::view::IndexEntry;

/// The largest encoded key of an entry: what two bytes can count.
const FIELDS_BYTES_MAX: usize = u16::MAX as usize;

/// One entry of one document, before the record key is added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) fields: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// All entries of one document in one index, sorted and without repetitions.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<Entry>,
    /// Bit i: the path of field i goes through an array in this document.
    pub(crate) multikey: u64,
}

/// Reads a key pattern: `{path: 1 | -1 | "hashed" | "text" | …}`.
pub(crate) fn field_kinds(key: &RawDocument) -> Result<Vec<(Path, IndexFieldKind)>> {
    let mut fields = Vec::new();
    for element in key {
        let (name, value) = element?;
        let kind = match value {
            RawBsonRef::String("hashed") => IndexFieldKind::Hashed,
            RawBsonRef::String(_) => IndexFieldKind::Unsearchable,
            RawBsonRef::Int32(n) if n < 0 => IndexFieldKind::Descending,
            RawBsonRef::Int64(n) if n < 0 => IndexFieldKind::Descending,
            RawBsonRef::Double(n) if n < 0.0 => IndexFieldKind::Descending,
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) => IndexFieldKind::Ascending,
            _ => {
                return Err(Error::new(
                    ErrorCode::CannotCreateIndex,
                    format!("Values in v:2 index key pattern cannot be of this type: field '{}'", name.as_str()),
                ));
            }
        };
        fields.push((Path::parse(name.as_str()), kind));
    }
    Ok(fields)
}

/// What all index entries of one document may take, in bytes of memory.
pub(crate) const ENTRIES_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What an entry takes beside its bytes.
const ENTRY_BYTES: usize = size_of::<Entry>() + 32;

/// What making entries asks: whether to go on, and whether there is room.
pub(crate) struct Making<'a> {
    asked: &'a Interruption,
    bytes_left: usize,
}

impl<'a> Making<'a> {
    /// For a document that is there: it has the entries it has.
    pub(crate) fn of_a_fact(nobody: &'a Interruption) -> Self {
        Self { asked: nobody, bytes_left: usize::MAX }
    }

    /// On behalf of a request.
    pub(crate) fn new(asked: &'a Interruption) -> Self {
        Self { asked, bytes_left: ENTRIES_BYTES_MAX }
    }

    /// `CannotBuildIndexKeys` (201) if the document's entries grow beyond measure; what the request's interruption says.
    fn count(&mut self, entry: &Entry) -> Result<()> {
        let bytes = ENTRY_BYTES + entry.fields.len() + entry.value.len();
        self.asked.steps(1 + bytes / BYTES_PER_STEP)?;
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => self.bytes_left = left,
            None => {
                let message = format!(
                    "Maximum number of generated keys exceeded: the index entries of one document would take more than \
                     {ENTRIES_BYTES_MAX} bytes"
                );
                return Err(Error::new(ErrorCode::CannotBuildIndexKeys, message));
            }
        }
        Ok(())
    }
}

/// What a document puts into an index.
pub(crate) fn entries_of(index: &Index, document: &RawDocument, making: &mut Making<'_>) -> Result<Entries> {
    let definition = &index.definition;
    if definition.fields.iter().any(|(_, kind)| *kind == IndexFieldKind::Unsearchable) {
        return Ok(Entries::default());
    }
    if let Some(partial) = &definition.partial
        && !partial.matches_asking(document, making.asked)?
    {
        return Ok(Entries::default());
    }
    let mut entries = Vec::new();
    let mut failure = None;
    let asked = making.asked;
    let expanded = visit_index_keys(document, &definition.paths, definition.sparse, asked, &mut |key| {
        // An array where none may be is told of first.
        match encode_entry(&definition.fields, &key.values) {
            Ok(entry) => {
                making.count(&entry)?;
                entries.push(entry);
            }
            Err(error) => failure = failure.take().or(Some(error)),
        }
        Ok(())
    })?;
    let hashed = definition.fields.iter().zip(&expanded);
    if let Some(((path, _), _)) =
        hashed.into_iter().find(|((_, kind), expanded)| *kind == IndexFieldKind::Hashed && !expanded.is_empty())
    {
        let message =
            format!("Error: hashed indexes do not currently support array values. Found array at path: {path}");
        return Err(Error::new(ErrorCode(16766), message));
    }
    if let Some(error) = failure {
        return Err(error);
    }
    // Of values that are one key (`1` and `1.0`) the document's first is kept.
    entries.sort_by(|a: &Entry, b| a.fields.cmp(&b.fields));
    entries.dedup_by(|a, b| a.fields == b.fields);
    let expanded = expanded.iter().enumerate().filter(|(_, components)| !components.is_empty());
    let multikey = expanded.fold(0, |bits, (field, _)| bits | 1_u64.checked_shl(field as u32).unwrap_or(0));
    Ok(Entries { entries, multikey })
}

/// [`entries_of`], of a document that another member has taken: one that no index entry can be made of has none, as it passes
/// through states that never were.
pub(crate) fn entries_of_fact(index: &Index, document: &RawDocument) -> Entries {
    let nobody = Interruption::nobody();
    entries_of(index, document, &mut Making::of_a_fact(nobody)).unwrap_or_default()
}

fn encode_entry(fields: &[(Path, IndexFieldKind)], values: &[RawBsonRef<'_>]) -> Result<Entry> {
    let mut encoded = Vec::with_capacity(16 * values.len());
    let mut lossless = true;
    for ((_, kind), value) in fields.iter().zip(values) {
        match kind {
            IndexFieldKind::Hashed => {
                keys::encode(&mut encoded, RawBsonRef::Int64(index_hash(Some(*value))?), Direction::Ascending);
                lossless = false;
            }
            IndexFieldKind::Ascending | IndexFieldKind::Unsearchable => {
                keys::encode(&mut encoded, *value, Direction::Ascending)
            }
            IndexFieldKind::Descending => keys::encode(&mut encoded, *value, Direction::Descending),
        }
        lossless &= keys::is_lossless(*value);
    }
    if encoded.len() > FIELDS_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::KeyTooLong,
            format!("An index key of {} bytes is too large: at most {FIELDS_BYTES_MAX} fit", encoded.len()),
        ));
    }
    let mut value = (encoded.len() as u16).to_le_bytes().to_vec();
    if !lossless {
        let mut originals = RawArrayBuf::new();
        for original in values {
            originals.push(*original);
        }
        value.extend_from_slice(originals.as_bytes());
    }
    Ok(Entry { fields: encoded, value })
}

/// The absolute key of an entry.
pub(crate) fn entry_key(index: &Index, fields: &[u8], record: &[u8]) -> SmallVec<[u8; 96]> {
    let mut key = SmallVec::with_capacity(4 + fields.len() + record.len());
    key.extend_from_slice(&prefix(index.id));
    key.extend_from_slice(fields);
    key.extend_from_slice(record);
    key
}

/// Takes a stored entry apart; `position` is its key without the prefix.
pub(crate) fn split_entry<'a>(position: &'a [u8], value: &'a [u8]) -> Result<IndexEntry<'a>> {
    let broken = || {
        Error::new(
            ErrorCode(310),
            "Data corruption detected: an index entry has no valid length. Run validate, then drop and rebuild the index",
        )
    };
    let (length, originals) = value.split_at_checked(2).ok_or_else(broken)?;
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    let (fields, record) = position.split_at_checked(length).ok_or_else(broken)?;
    let originals = match originals {
        [] => None,
        bytes => Some(RawDocument::from_bytes(bytes).map_err(|_| broken())?),
    };
    Ok(IndexEntry { position, fields, record, originals })
}

/// Whether these values are the ones behind an entry of these fields.
pub(crate) fn encodes_to(index: &Index, values: &[RawBsonRef<'_>], fields: &[u8]) -> bool {
    encode_entry(&index.definition.fields, values).is_ok_and(|encoded| encoded.fields == fields)
}
