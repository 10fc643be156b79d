//! A parsed sort pattern, and the key a document sorts by.
//!
//! Invariants: a pattern has at least one part and no field twice; [`SortPattern::key`] is computed once a document and
//! compares with `memcmp`, in the order MongoDB gives the pattern. A field that runs through an array sorts by its
//! smallest element when ascending and its largest when descending; an empty array sorts below null, a missing field
//! as null.
//!
//! What it deliberately does not do: `$meta` sorts (text score and the like) are not implemented, and `$natural` is no
//! sort but a hint ([`natural_direction`]).

use crate::interruption::Interruption;
use crate::pipeline::field::check_path;
use crate::show;
use baton_document::keys::{self, Direction};
use baton_document::path::{self, Part, Path};
use baton_types::{Error, ErrorCode, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::cmp::Ordering;
use std::collections::HashSet;

/// The code of an index that cannot hold a document because two paths run through different arrays.
const PARALLEL_ARRAYS: i32 = 171;

/// One field of a sort pattern.
#[derive(Clone, Debug)]
pub struct SortPart {
    /// The dotted path as the client wrote it.
    pub field: String,
    /// Which way it sorts.
    pub direction: Direction,
    path: Path,
}

/// What `sort` and `$sort` order by.
#[derive(Clone, Debug)]
pub struct SortPattern {
    parts: Vec<SortPart>,
    paths: Vec<Path>,
    spec: RawDocumentBuf,
}

/// Bytes whose `memcmp` order is the pattern's order.
pub type SortKey = Vec<u8>;

/// The direction of `{$natural: ±1}`, if that is what the sort (or hint) says.
///
/// `BadValue` (2) when `$natural` stands beside other fields or has another value.
pub fn natural_direction(spec: &RawDocument) -> Result<Option<Direction>> {
    let mut elements = spec.iter();
    let Some(first) = elements.next().transpose()? else { return Ok(None) };
    if first.0.as_str() != "$natural" {
        return Ok(None);
    }
    if elements.next().is_some() {
        return Err(Error::bad_value(format!(
            "Cannot include '$natural' in compound sort: {}",
            show::value(spec.into())
        )));
    }
    match whole_number(first.1) {
        Some(1) => Ok(Some(Direction::Ascending)),
        Some(-1) => Ok(Some(Direction::Descending)),
        _ => Err(Error::bad_value("$natural sort cannot be set to a value other than -1 or 1.")),
    }
}

impl SortPattern {
    /// Parses `{field: ±1, …}`; the codes are those of MongoDB's `$sort`: 15974, 15975, 15976, 17312, 31138, 7472500.
    pub fn parse(spec: &RawDocument) -> Result<Self> {
        let mut parts: Vec<SortPart> = Vec::new();
        let mut fields = HashSet::new();
        for element in spec.iter() {
            let (name, value) = element?;
            let part = parse_part(name.as_str(), value)?;
            if !fields.insert(name.as_str()) {
                let message = format!("$sort key must not contain duplicate keys (field: '{}')", part.field);
                return Err(Error::location(7472500, message));
            }
            parts.push(part);
        }
        if parts.is_empty() {
            return Err(Error::location(15976, "$sort stage must have at least one sort key"));
        }
        let paths = parts.iter().map(|p| p.path.clone()).collect();
        Ok(Self { parts, paths, spec: spec.to_owned() })
    }

    /// The fields, most significant first.
    pub fn parts(&self) -> &[SortPart] {
        &self.parts
    }

    /// The pattern as the client wrote it.
    pub fn spec(&self) -> &RawDocument {
        &self.spec
    }

    /// The key `doc` sorts by. `BadValue` (2) when two fields of the pattern run through different arrays; what `asked` says.
    pub fn key(&self, doc: &RawDocument, asked: &Interruption) -> Result<SortKey> {
        let mut key = Vec::with_capacity(16 * self.parts.len());
        for part in &self.parts {
            match plain_value(doc, part.path.parts())? {
                Plain::Value(value) => keys::encode(&mut key, value, part.direction),
                Plain::Missing => keys::encode(&mut key, RawBsonRef::Null, part.direction),
                Plain::Array => return self.key_through_arrays(doc, asked),
            }
        }
        Ok(key)
    }

    /// Of all the keys an index on the pattern would hold for `doc`, the one that sorts first.
    fn key_through_arrays(&self, doc: &RawDocument, asked: &Interruption) -> Result<SortKey> {
        let mut least: Option<SortKey> = None;
        let mut key = Vec::with_capacity(16 * self.parts.len());
        let mut offer = |tuple: path::IndexKey<'_>| {
            key.clear();
            for (part, value) in self.parts.iter().zip(tuple.values) {
                keys::encode(&mut key, value, part.direction);
            }
            if least.as_ref().is_none_or(|best| key < *best) {
                least = Some(key.clone());
            }
            Ok(())
        };
        path::visit_index_keys(doc, &self.paths, false, asked, &mut offer).map_err(|e| match e.code {
            ErrorCode(PARALLEL_ARRAYS) => Error::bad_value("cannot sort with keys that are parallel arrays"),
            _ => e,
        })?;
        least.ok_or_else(|| Error::bad_value("cannot sort a document without a sort key"))
    }

    /// Which of two documents sorts first. For many documents take their keys once instead.
    pub fn compare(&self, a: &RawDocument, b: &RawDocument) -> Result<Ordering> {
        let asked = Interruption::default();
        Ok(self.key(a, &asked)?.cmp(&self.key(b, &asked)?))
    }
}

fn parse_part(name: &str, value: RawBsonRef<'_>) -> Result<SortPart> {
    if let RawBsonRef::Document(meta) = value {
        return Err(meta_sort(meta)?);
    }
    let shown = || show::element(name, value);
    if !matches!(value, RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_))
    {
        return Err(Error::location(15974, format!("Illegal key in $sort specification: {}", shown())));
    }
    let direction = match whole_number(value) {
        Some(1) => Direction::Ascending,
        Some(-1) => Direction::Descending,
        _ => {
            let message = "$sort key ordering must be 1 (for ascending) or -1 (for descending)";
            return Err(Error::location(15975, message));
        }
    };
    check_path(name)?;
    Ok(SortPart { field: name.to_owned(), direction, path: Path::parse(name) })
}

/// The error that a document in a sort pattern is answered with.
fn meta_sort(meta: &RawDocument) -> Result<Error> {
    let mut elements = meta.iter();
    let Some((name, value)) = elements.next().transpose()? else {
        return Ok(Error::location(17312, "$meta is the only expression supported by $sort right now"));
    };
    if name.as_str() != "$meta" {
        return Ok(Error::location(17312, "$meta is the only expression supported by $sort right now"));
    }
    if elements.next().is_some() {
        return Ok(Error::failed_to_parse("Cannot have additional keys in a $meta sort specification"));
    }
    Ok(match value.as_str() {
        Some(kind @ ("textScore" | "randVal" | "geoNearDistance" | "searchScore")) => {
            Error::not_implemented(format!("sorting by {{$meta: \"{kind}\"}}"))
        }
        _ => Error::location(31138, format!("Illegal $meta sort: $meta: {}", show::value(value))),
    })
}

/// A number as MongoDB truncates it for a direction: `1.5` counts as `1`.
fn whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(n) => Some(n.into()),
        RawBsonRef::Int64(n) => Some(n),
        RawBsonRef::Double(n) => Some(n as i64),
        RawBsonRef::Decimal128(n) => n.to_string().parse::<f64>().ok().map(|n| n as i64),
        _ => None,
    }
}

/// What stands at a path when no array has to be looked through.
enum Plain<'d> {
    Value(RawBsonRef<'d>),
    Missing,
    Array,
}

fn plain_value<'d>(doc: &'d RawDocument, parts: &[Part]) -> Result<Plain<'d>> {
    let Some((first, rest)) = parts.split_first() else { return Ok(Plain::Missing) };
    match doc.get(&*first.name)? {
        None => Ok(Plain::Missing),
        Some(RawBsonRef::Array(_)) => Ok(Plain::Array),
        Some(value) if rest.is_empty() => Ok(Plain::Value(value)),
        Some(RawBsonRef::Document(inner)) => plain_value(inner, rest),
        Some(_) => Ok(Plain::Missing),
    }
}
