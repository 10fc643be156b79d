//! Specifications of text, 2d and 2dsphere indexes: what they may say, and how a text index's is completed. Source: MongoDB
//! manual, "Text Indexes", "2d Indexes", "2dsphere Indexes".
//!
//! Invariant: a completed specification completes to itself.
//! Not here: what such an index demands of documents (`storage::index_demands`).

use super::specification::{has_kind, shown};
use baton_request::fields::{number_as_f64, number_as_i64};
use baton_storage::is_text_language;
use baton_types::{Error, ErrorCode, Result};
use bson::raw::{CString, cstr};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::collections::BTreeMap;

/// A word's weight is below this.
const WEIGHT_MAX: i64 = 100_000;
/// All fields of a document, in a text index.
const WILDCARD: &str = "$**";

/// Checks and completes a specification's key and its options.
pub fn complete(key: &RawDocument, options: &RawDocument, is_unique: bool) -> Result<(RawDocumentBuf, RawDocumentBuf)> {
    let special = ["text", "2d", "2dsphere"].into_iter().find(|kind| has_kind(key, kind).unwrap_or(false));
    if let Some(kind) = special.filter(|_| is_unique) {
        return Err(Error::not_implemented(format!("A unique index of type '{kind}'")));
    }
    match special {
        Some("text") => complete_text(key, options),
        Some("2d") => check_plane(key, options).map(|()| (key.to_owned(), options.to_owned())),
        Some(_) => {
            let mut options = options.to_owned();
            check_sphere(&options)?;
            if options.get("2dsphereIndexVersion")?.is_none() {
                options.append(cstr!("2dsphereIndexVersion"), 3);
            }
            Ok((key.to_owned(), options))
        }
        None => Ok((key.to_owned(), options.to_owned())),
    }
}

/// How many fields a key was given with: those of a completed text index are in its weights.
pub fn fields_given(key: &RawDocument, options: &RawDocument) -> Result<usize> {
    let fields = key.iter().count();
    match (key.get("_fts")?, options.get("weights")?) {
        (Some(_), Some(RawBsonRef::Document(weights))) => Ok((fields - 2.min(fields)) + weights.iter().count()),
        _ => Ok(fields),
    }
}

fn cannot_create(why: impl Into<String>) -> Error {
    Error::new(ErrorCode::CannotCreateIndex, why)
}

fn check_sphere(options: &RawDocument) -> Result<()> {
    const SUPPORTED: &str = "only versions: [1,2,3] are supported";
    if let Some(version) = options.get("2dsphereIndexVersion")? {
        let name = format!("{{ 2dsphereIndexVersion : {} }}", value_shown(version));
        match number_as_f64(version) {
            None => return Err(cannot_create(format!("Invalid type for geo index version {name}, {SUPPORTED}"))),
            Some(1.0 | 2.0 | 3.0) => {}
            Some(_) => return Err(cannot_create(format!("unsupported geo index version {name}, {SUPPORTED}"))),
        }
    }
    let level = |name: &str, default: i64| -> Result<i64> {
        match options.get(name)? {
            None => Ok(default),
            Some(level) => number_as_i64(level)
                .ok_or_else(|| Error::type_mismatch(format!("\"{name}\" had the wrong type. Expected number"))),
        }
    };
    let (coarsest, finest) = (level("coarsestIndexedLevel", 0)?, level("finestIndexedLevel", 23)?);
    if coarsest < 0 {
        return Err(Error::location(16747, "coarsestIndexedLevel must be >= 0"));
    }
    if finest > 30 {
        return Err(Error::location(16748, "finestIndexedLevel must be <= 30"));
    }
    if finest < coarsest {
        return Err(Error::location(16749, "finestIndexedLevel must be >= coarsestIndexedLevel"));
    }
    Ok(())
}

fn check_plane(key: &RawDocument, options: &RawDocument) -> Result<()> {
    let mut others = 0;
    let mut planes = 0;
    for element in key {
        if element?.1.as_str() != Some("2d") {
            others += 1;
        } else if planes > 0 {
            return Err(Error::location(16800, "can't have 2 geo fields"));
        } else if others > 0 {
            return Err(Error::location(16801, "2d has to be first in index"));
        } else {
            planes += 1;
        }
    }
    let invalid = |why: String| Err(Error::new(ErrorCode::InvalidOptions, why));
    let number = |name: &str, default: f64| -> Result<f64> {
        let Some(value) = options.get(name)? else { return Ok(default) };
        number_as_f64(value).ok_or_else(|| {
            let why = format!("wrong type for '{name}' field, expected number, found {name}: {}", value_shown(value));
            Error::new(ErrorCode::InvalidOptions, why)
        })
    };
    let bits = number("bits", 26.0)?.trunc();
    if !(1.0..=32.0).contains(&bits) {
        return invalid(format!("bits for hash must be > 0 and <= 32, but {bits} bits were specified"));
    }
    let (min, max) = (number("min", -180.0)?, number("max", 180.0)?);
    if min >= max || !min.is_finite() || !max.is_finite() {
        return invalid(format!(
            "region for hash must be valid and have positive area, but [{min}, {max}] was specified"
        ));
    }
    Ok(())
}

fn value_shown(value: RawBsonRef<'_>) -> String {
    bson::Bson::try_from(value).map_or_else(|_| String::new(), |value| value.to_string())
}

fn complete_text(key: &RawDocument, options: &RawDocument) -> Result<(RawDocumentBuf, RawDocumentBuf)> {
    let (kept, mut fields) = text_key(key)?;
    read_weights(options, &mut fields)?;
    let mut weights = RawDocumentBuf::new();
    for (field, weight) in &fields {
        check_weight(field, *weight)?;
        weights.append(CString::try_from(field.as_str())?, *weight as i32);
    }
    if weights.is_empty() {
        return Err(Error::location(16739, "found invalid spec for text index"));
    }
    check_text_options(options)?;
    let defaults = [
        (cstr!("default_language"), RawBsonRef::String("english")),
        (cstr!("language_override"), RawBsonRef::String("language")),
        (cstr!("textIndexVersion"), RawBsonRef::Int32(3)),
    ];
    let mut completed = RawDocumentBuf::new();
    for element in options {
        let (name, value) = element?;
        match name.as_str() {
            "weights" => completed.append(name, weights.clone()),
            _ => completed.append(name, value),
        }
    }
    if completed.get("weights")?.is_none() {
        completed.append(cstr!("weights"), weights);
    }
    for (name, value) in defaults {
        if completed.get(name.as_str())?.is_none() {
            completed.append(name, value);
        }
    }
    Ok((kept, completed))
}

/// A text index's key as it is kept, where one pair stands for all words, and the fields whose words they are.
fn text_key(key: &RawDocument) -> Result<(RawDocumentBuf, BTreeMap<String, i64>)> {
    let (mut kept, mut fields) = (RawDocumentBuf::new(), BTreeMap::new());
    // Whether the words' fields have begun, and whether they have ended.
    let (mut has_begun, mut has_ended) = (false, false);
    let mut rest = key.iter();
    while let Some((name, value)) = rest.next().transpose()? {
        match (name.as_str(), value) {
            ("_fts", RawBsonRef::String("text")) if !has_begun => {
                let follows = rest.next().transpose()?;
                match follows.filter(|(name, _)| name.as_str() == "_ftsx") {
                    Some((_, one)) if number_as_i64(one) == Some(1) => {}
                    Some(_) => return Err(Error::location(17272, "expecting _ftsx:1")),
                    None => return Err(Error::location(17274, "expected _ftsx after _fts")),
                }
                kept.append(cstr!("_fts"), "text");
                kept.append(cstr!("_ftsx"), 1);
                (has_begun, has_ended) = (true, true);
            }
            ("_fts", value) if value.as_str() != Some("text") => {
                return Err(Error::location(17271, "expecting _fts:\"text\""));
            }
            ("_fts" | "_ftsx", _) => {
                return Err(Error::location(17289, "text index with reserved fields _fts/_ftsx not allowed"));
            }
            (_, RawBsonRef::String("text")) if has_ended => {
                return Err(Error::location(17389, "'text' fields in index must all be adjacent"));
            }
            (field, RawBsonRef::String("text")) => {
                if !has_begun {
                    kept.append(cstr!("_fts"), "text");
                    kept.append(cstr!("_ftsx"), 1);
                    has_begun = true;
                }
                fields.insert(field.to_owned(), 1);
            }
            (_, value) if matches!(number_as_i64(value), Some(1 | -1)) => {
                has_ended |= has_begun;
                kept.append(name, value);
            }
            _ => {
                return Err(Error::location(17273, "expected value 1 or -1 for non-text key in compound index"));
            }
        }
    }
    Ok((kept, fields))
}

fn read_weights(options: &RawDocument, fields: &mut BTreeMap<String, i64>) -> Result<()> {
    match options.get("weights")? {
        None => {}
        Some(RawBsonRef::String(WILDCARD)) => {
            fields.insert(WILDCARD.to_owned(), 1);
        }
        Some(RawBsonRef::Document(weights)) => {
            for element in weights {
                let (field, weight) = element?;
                let Some(weight) = number_as_f64(weight) else {
                    return Err(Error::location(17283, "weight for text index needs numeric type"));
                };
                fields.insert(field.as_str().to_owned(), weight as i64);
            }
        }
        Some(_) => return Err(Error::location(17284, "text index option 'weights' must be an object")),
    }
    Ok(())
}

fn check_weight(field: &str, weight: i64) -> Result<()> {
    if !(1..WEIGHT_MAX).contains(&weight) {
        return Err(Error::location(16674, "score for word too high"));
    }
    if field == WILDCARD {
        return Ok(());
    }
    if field.is_empty() {
        return Err(Error::location(17294, "weight cannot be on an empty field"));
    }
    for part in field.split('.') {
        if part.is_empty() {
            return Err(Error::location(17291, "weight cannot have empty path component"));
        }
        if part.starts_with('$') {
            return Err(Error::location(17292, "weight cannot have path component with $ prefix"));
        }
    }
    Ok(())
}

fn check_text_options(options: &RawDocument) -> Result<()> {
    match options.get("default_language")? {
        None => {}
        Some(RawBsonRef::String(language)) if is_text_language(language) => {}
        Some(RawBsonRef::String(_)) => return Err(Error::location(17264, "default_language is not valid")),
        Some(_) => return Err(Error::location(17263, "default_language needs a string type")),
    }
    match options.get("language_override")? {
        None => {}
        Some(RawBsonRef::String(field)) if !field.is_empty() && !field.starts_with('$') && !field.contains('.') => {}
        Some(_) => return Err(Error::location(17136, "language_override is not valid")),
    }
    match options.get("textIndexVersion")? {
        None => Ok(()),
        Some(version) => match number_as_f64(version) {
            Some(1.0 | 2.0 | 3.0) => Ok(()),
            Some(version) => Err(Error::location(16730, format!("bad textIndexVersion: {version}"))),
            None => Err(Error::location(17293, "text index option 'textIndexVersion' must be a number")),
        },
    }
}

/// Refuses a key of several special kinds.
pub fn check_one_kind(key: &RawDocument) -> Result<()> {
    let mut first = None;
    for element in key {
        let Some(kind) = element?.1.as_str() else { continue };
        if *first.get_or_insert(kind) != kind {
            return Err(cannot_create(format!(
                "Can't use more than one index plugin for a single index. Key pattern: {}",
                shown(key)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::specification::normalise;
    use bson::{Document, doc};

    fn code(spec: &Document) -> Option<i32> {
        let spec = RawDocumentBuf::try_from(spec).unwrap();
        match normalise(&spec, false) {
            Ok(normal) => {
                assert_eq!(normalise(&normal, false).unwrap(), normal, "completed, it completes to itself");
                None
            }
            Err(error) => Some(error.code.0),
        }
    }

    fn check_all(base: &Document, rows: &[(Document, Option<i32>)]) {
        for (options, wanted) in rows {
            let mut spec = base.clone();
            spec.extend(options.clone());
            assert_eq!(code(&spec), *wanted, "{spec}");
        }
    }

    #[test]
    fn text_indexes_take_what_mongodb_takes() {
        check_all(
            &doc! { "key": { "t": "text" } },
            &[
                (doc! {}, None),
                (doc! { "expireAfterSeconds": 60 }, None),
                (doc! { "key": { "t": "text", "u": "text" }, "expireAfterSeconds": 60 }, Some(67)),
                (doc! { "weights": { "t": 5, "u": 2.0 } }, None),
                (doc! { "weights": "$**" }, None),
                (doc! { "weights": 3 }, Some(17284)),
                (doc! { "weights": { "t": "x" } }, Some(17283)),
                (doc! { "weights": { "t": 0 } }, Some(16674)),
                (doc! { "weights": { "t": 100_000 } }, Some(16674)),
                (doc! { "weights": { "a..b": 1 } }, Some(17291)),
                (doc! { "weights": { "$a": 1 } }, Some(17292)),
                (doc! { "default_language": "German" }, None),
                (doc! { "default_language": "klingon" }, Some(17264)),
                (doc! { "default_language": 1 }, Some(17263)),
                (doc! { "language_override": "lang" }, None),
                (doc! { "language_override": "a.b" }, Some(17136)),
                (doc! { "language_override": 1 }, Some(17136)),
                (doc! { "textIndexVersion": 2 }, None),
                (doc! { "textIndexVersion": 4 }, Some(16730)),
                (doc! { "textIndexVersion": "3" }, Some(17293)),
                (doc! { "unique": true }, Some(238)),
                (doc! { "key": { "$**": "text" } }, None),
                (doc! { "key": { "a": 1, "t": "text", "u": "text", "b": -1 } }, None),
                (doc! { "key": { "t": "text", "b": 1, "u": "text" } }, Some(17389)),
                (doc! { "key": { "a": 2, "t": "text" } }, Some(17273)),
                (doc! { "key": { "_fts": "text" } }, Some(17274)),
                (doc! { "key": { "_fts": "text", "_ftsx": 1 } }, Some(16739)),
                (doc! { "key": { "_fts": "text", "_ftsx": 1 }, "weights": { "t": 1 } }, None),
                (doc! { "key": { "t": "text", "h": "hashed" } }, Some(67)),
            ],
        );
    }

    #[test]
    fn indexes_on_a_sphere_take_what_mongodb_takes() {
        check_all(
            &doc! { "key": { "loc": "2dsphere" } },
            &[
                (doc! {}, None),
                (doc! { "2dsphereIndexVersion": 2 }, None),
                (doc! { "2dsphereIndexVersion": 4 }, Some(67)),
                (doc! { "2dsphereIndexVersion": "3" }, Some(67)),
                (doc! { "2dsphereIndexVersion": f64::NAN }, Some(67)),
                (doc! { "coarsestIndexedLevel": -1 }, Some(16747)),
                (doc! { "finestIndexedLevel": 31 }, Some(16748)),
                (doc! { "coarsestIndexedLevel": 9, "finestIndexedLevel": 8 }, Some(16749)),
                (doc! { "unique": true }, Some(238)),
                (doc! { "key": { "a": 1, "loc": "2dsphere", "other": "2dsphere" } }, None),
                (doc! { "key": { "loc": "2dsphere", "p": "2d" } }, Some(67)),
            ],
        );
    }

    #[test]
    fn indexes_on_a_plane_take_what_mongodb_takes() {
        check_all(
            &doc! { "key": { "loc": "2d" } },
            &[
                (doc! {}, None),
                (doc! { "bits": 32, "min": 0, "max": 10.5 }, None),
                (doc! { "bits": 0 }, Some(72)),
                (doc! { "bits": 33 }, Some(72)),
                (doc! { "bits": "x" }, Some(72)),
                (doc! { "min": 10, "max": 10 }, Some(72)),
                (doc! { "max": f64::INFINITY }, Some(72)),
                (doc! { "min": "x" }, Some(72)),
                (doc! { "key": { "loc": "2d", "p": "2d" } }, Some(16800)),
                (doc! { "key": { "a": 1, "loc": "2d" } }, Some(16801)),
                (doc! { "key": { "loc": "2d", "a": 1 } }, None),
            ],
        );
    }
}
