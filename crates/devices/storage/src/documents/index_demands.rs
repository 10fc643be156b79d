//! What indexes that cannot be searched yet demand of documents all the same: they are refused what MongoDB refuses, so that
//! nothing is in the way of the index once it holds entries.
//!
//! Invariant: only a member's own writes and builds are asked ([`crate::documents::write`], [`crate::ddl`]). What another member logged is a
//! fact.

use crate::catalog::Index;
use baton_document::geometry::{check_on_plane, check_on_sphere};
use baton_document::number::Number;
use baton_document::path::Path;
use baton_types::{Error, ErrorCode, Interruption, Result};
use bson::{RawBsonRef, RawDocument};

/// Words that text indexes of version 3 take for a language, with their codes.
const LANGUAGES: [(&str, &str); 16] = [
    ("danish", "da"),
    ("dutch", "nl"),
    ("english", "en"),
    ("finnish", "fi"),
    ("french", "fr"),
    ("german", "de"),
    ("hungarian", "hu"),
    ("italian", "it"),
    ("none", "none"),
    ("norwegian", "nb"),
    ("portuguese", "pt"),
    ("romanian", "ro"),
    ("russian", "ru"),
    ("spanish", "es"),
    ("swedish", "sv"),
    ("turkish", "tr"),
];

/// Whether a text index knows this language.
pub fn is_text_language(name: &str) -> bool {
    LANGUAGES.iter().any(|(long, short)| name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(short))
}

/// One demand of an index.
#[derive(Clone)]
pub(crate) enum Demand {
    /// What lies at the path lies on the earth.
    Sphere(Path),
    /// What lies at the path are pairs within these bounds.
    Plane { path: Path, min: f64, max: f64 },
    /// This field names a language, if it is there.
    Language(Box<str>),
}

/// The demands of an index with this specification.
pub(crate) fn demands(specification: &RawDocument) -> Result<Vec<Demand>> {
    let number = |name: &str, default: f64| -> Result<f64> {
        Ok(specification.get(name)?.and_then(Number::from_raw).map_or(default, Number::to_f64))
    };
    let mut demands = Vec::new();
    let Some(RawBsonRef::Document(key)) = specification.get("key")? else { return Ok(demands) };
    for element in key {
        let (name, kind) = element?;
        let path = || Path::parse(name.as_str());
        match kind {
            RawBsonRef::String("2dsphere") => demands.push(Demand::Sphere(path())),
            RawBsonRef::String("2d") => {
                let (min, max) = (number("min", -180.0)?, number("max", 180.0)?);
                demands.push(Demand::Plane { path: path(), min, max });
            }
            RawBsonRef::String("text") => {
                let field = specification.get("language_override")?.and_then(|field| field.as_str());
                demands.push(Demand::Language(field.unwrap_or("language").into()));
            }
            _ => {}
        }
    }
    Ok(demands)
}

/// Refuses a document that an index could not take: 16755 (2dsphere), 13026 and its like (2d), 17261 and 17262 (text).
pub(crate) fn check(index: &Index, document: &RawDocument, asked: &Interruption) -> Result<()> {
    let definition = &index.definition;
    if definition.demands.is_empty() {
        return Ok(());
    }
    if let Some(partial) = &definition.partial
        && !partial.matches_asking(document, asked)?
    {
        return Ok(());
    }
    definition.demands.iter().try_for_each(|demand| match demand {
        Demand::Sphere(path) => check_on_sphere(document, path),
        Demand::Plane { path, min, max } => check_on_plane(document, path, *min, *max),
        Demand::Language(field) => match document.get(field)? {
            None => Ok(()),
            Some(RawBsonRef::String(language)) if is_text_language(language) => Ok(()),
            Some(RawBsonRef::String(language)) => {
                Err(Error::new(ErrorCode(17262), format!("language override unsupported: {language}")))
            }
            Some(_) => {
                Err(Error::new(ErrorCode(17261), "found language override field in document with non-string type"))
            }
        },
    })
}
