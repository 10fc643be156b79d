//! Index specifications: from what clients send to what is kept.
//!
//! Invariant: a normalised specification has `v`, `key` and `name` first, then `unique` and `hidden` where they are true,
//! then the other options as given; it is what `listIndexes` shows, and normalising it again changes nothing.
//! Source: MongoDB manual, "createIndexes"; the rules for keys are those of version 2 indexes.

use super::options::check_storage_engine;
use super::{special_indexes, stored_context};
use crate::crud::check_collation;
pub(super) use baton_document::show::document as shown;
use baton_document::type_name;
use baton_query::matcher::{Matcher, Node, Predicate};
use baton_request::fields::{is_truthy, number_as_f64, number_as_i64};
use baton_types::{Error, ErrorCode, Result};
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

/// Fields in a key, at the most.
const KEY_FIELDS_MAX: usize = 32;
/// Options that are kept as they are once their type is right.
const KEPT: [&str; 12] = [
    "weights",
    "default_language",
    "language_override",
    "textIndexVersion",
    "2dsphereIndexVersion",
    "coarsestIndexedLevel",
    "finestIndexedLevel",
    "bits",
    "min",
    "max",
    "bucketSize",
    "background",
];
/// Fields that a specification for the index on `_id` may have.
const ID_INDEX_FIELDS: [&str; 6] = ["key", "name", "ns", "v", "collation", "background"];

fn cannot_create(why: impl Into<String>) -> Error {
    Error::new(ErrorCode::CannotCreateIndex, why)
}

/// Checks and normalises a specification. `ignore_unknown` leaves out what is no option instead of refusing it.
pub fn normalise(spec: &RawDocument, ignore_unknown: bool) -> Result<RawDocumentBuf> {
    normalise_bare(spec, ignore_unknown).map_err(|mut error| {
        error.message = format!("Error in specification {} :: caused by :: {}", shown(spec), error.message);
        error
    })
}

/// What a specification says, field by field.
#[derive(Default)]
struct Parts<'a> {
    key: Option<&'a RawDocument>,
    name: Option<&'a str>,
    version: i32,
    unique: bool,
    hidden: bool,
    sparse: bool,
    partial: Option<&'a RawDocument>,
    ttl: Option<i32>,
    /// What follows the fields above.
    rest: RawDocumentBuf,
}

fn normalise_bare(spec: &RawDocument, ignore_unknown: bool) -> Result<RawDocumentBuf> {
    let parts = read(spec, ignore_unknown)?;
    let Some(key) = parts.key else {
        return Err(Error::failed_to_parse("The 'key' field is a required property of an index specification"));
    };
    check_key(key)?;
    let id_index = is_id_pattern(key);
    let name = match parts.name {
        _ if id_index => "_id_".to_owned(),
        Some("") => return Err(cannot_create("index name cannot be empty")),
        Some("*") => return Err(Error::bad_value("The index name '*' is not valid.")),
        Some("_id_") => {
            return Err(Error::bad_value(format!(
                "The index name '_id_' is reserved for the _id index, which must have key pattern {{_id: 1}}, found \
                 key: {}",
                shown(key)
            )));
        }
        Some(name) => name.to_owned(),
        None => generated_name(key)?,
    };
    if id_index {
        check_id_specification(spec)?;
        return Ok(rawdoc! { "v": parts.version, "key": { "_id": 1 }, "name": "_id_" });
    }
    check_together(&parts, key, spec)?;
    let (key, options) = special_indexes::complete(key, &parts.rest, parts.unique)?;
    let mut out = rawdoc! { "v": parts.version };
    out.append(cstr!("key"), key);
    out.append(cstr!("name"), name);
    if parts.unique {
        out.append(cstr!("unique"), true);
    }
    if parts.hidden {
        out.append(cstr!("hidden"), true);
    }
    for element in &options {
        let (name, value) = element?;
        out.append(name, value);
    }
    Ok(out)
}

fn read(spec: &RawDocument, ignore_unknown: bool) -> Result<Parts<'_>> {
    let mut parts = Parts { version: 2, ..Parts::default() };
    for element in spec {
        let (name, value) = element?;
        let mismatch = |expected: &str| {
            Error::type_mismatch(format!(
                "The field '{}' must be {expected}, but got {}",
                name.as_str(),
                type_name(value.element_type())
            ))
        };
        let document = || value.as_document().ok_or_else(|| mismatch("an object"));
        match name.as_str() {
            "key" => parts.key = Some(document()?),
            "name" => parts.name = Some(value.as_str().ok_or_else(|| mismatch("a string"))?),
            "v" => parts.version = version(value).ok_or_else(|| mismatch("a number"))??,
            "ns" | "dropDups" => {}
            "unique" => parts.unique = flag("unique", value)?,
            "hidden" => parts.hidden = flag("hidden", value)?,
            "sparse" => {
                parts.sparse = flag("sparse", value)?;
                parts.rest.append(name, parts.sparse);
            }
            "partialFilterExpression" => {
                parts.partial = Some(document()?);
                parts.rest.append(name, value);
            }
            "expireAfterSeconds" => {
                let secs = expire_after_seconds(value)?;
                parts.ttl = Some(secs);
                parts.rest.append(name, secs);
            }
            "collation" => check_collation(Some(document()?))?,
            "storageEngine" => check_storage_engine(document()?)?,
            "wildcardProjection" => return Err(Error::not_implemented("A wildcard index")),
            "clustered" | "prepareUnique" if !flag(name.as_str(), value)? => {}
            "clustered" | "prepareUnique" => {
                return Err(Error::not_implemented(format!("An index with '{}'", name.as_str())));
            }
            kept if KEPT.contains(&kept) => parts.rest.append(name, value),
            _ if ignore_unknown => {}
            unknown => {
                return Err(Error::new(
                    ErrorCode::InvalidIndexSpecificationOption,
                    format!(
                        "The field '{unknown}' is not valid for an index specification. Specification: {}",
                        shown(spec)
                    ),
                ));
            }
        }
    }
    Ok(parts)
}

/// The version: `None` if it is no number.
fn version(value: RawBsonRef<'_>) -> Option<Result<i32>> {
    let number = number_as_f64(value)?;
    Some(match number {
        1.0 => Ok(1),
        2.0 => Ok(2),
        _ => Err(cannot_create(format!(
            "Invalid index specification; cannot create an index with v={number}; supported versions are 1 and 2"
        ))),
    })
}

fn flag(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match value {
        RawBsonRef::Boolean(_)
        | RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Double(_)
        | RawBsonRef::Decimal128(_)
        | RawBsonRef::Null => Ok(is_truthy(value)),
        other => Err(Error::type_mismatch(format!(
            "The field '{name}' has value of type {}, which is not convertible to bool",
            type_name(other.element_type())
        ))),
    }
}

/// Reads `expireAfterSeconds`.
pub fn expire_after_seconds(value: RawBsonRef<'_>) -> Result<i32> {
    let Some(secs) = number_as_f64(value) else {
        return Err(cannot_create(format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'",
            type_name(value.element_type())
        )));
    };
    if secs.is_nan() {
        return Ok(i32::MAX);
    }
    if secs < 0.0 {
        return Err(cannot_create("TTL index 'expireAfterSeconds' option cannot be less than 0"));
    }
    i32::try_from(number_as_i64(value).unwrap_or(i64::MAX)).map_err(|_| {
        cannot_create(format!("TTL index 'expireAfterSeconds' option must be within the range 0 to {}", i32::MAX))
    })
}

/// Whether a key pattern is that of the index every collection has.
pub fn is_id_pattern(key: &RawDocument) -> bool {
    let mut fields = key.iter();
    let (Some(Ok((name, value))), None) = (fields.next(), fields.next()) else { return false };
    name.as_str() == "_id" && matches!(number_as_i64(value), Some(1 | -1))
}

fn check_id_specification(spec: &RawDocument) -> Result<()> {
    for element in spec {
        let (name, _) = element?;
        if !ID_INDEX_FIELDS.contains(&name.as_str()) {
            return Err(Error::new(
                ErrorCode::InvalidIndexSpecificationOption,
                format!(
                    "The field '{}' is not valid for an _id index specification. Specification: {}",
                    name.as_str(),
                    shown(spec)
                ),
            ));
        }
    }
    Ok(())
}

fn check_key(key: &RawDocument) -> Result<()> {
    if key.is_empty() {
        return Err(cannot_create("Index keys cannot be empty."));
    }
    let mut count = 0;
    let mut hashed = 0;
    for element in key {
        let (name, value) = element?;
        count += 1;
        check_key_value(value)?;
        hashed += usize::from(value.as_str() == Some("hashed"));
        check_key_path(name.as_str(), value)?;
    }
    if count > KEY_FIELDS_MAX {
        return Err(Error::location(13103, format!("Index key pattern has too many fields: at most {KEY_FIELDS_MAX}")));
    }
    if hashed > 1 {
        return Err(Error::location(
            31303,
            format!("A maximum of one index field is allowed to be hashed but found {hashed} for 'key' {}", shown(key)),
        ));
    }
    special_indexes::check_one_kind(key)
}

fn check_key_value(value: RawBsonRef<'_>) -> Result<()> {
    match value {
        RawBsonRef::String("") => Err(cannot_create("Values in the index key pattern cannot be an empty string.")),
        RawBsonRef::String("hashed" | "text" | "2d" | "2dsphere") => Ok(()),
        RawBsonRef::String("wildcard" | "columnstore") => {
            Err(Error::not_implemented(format!("An index of type {value:?}")))
        }
        RawBsonRef::String("geoHaystack") => Err(cannot_create(
            "GeoHaystack indexes cannot be created in version 5.0 and above. See \
             https://dochub.mongodb.org/core/4.4-deprecate-geoHaystack",
        )),
        RawBsonRef::String(other) => Err(cannot_create(format!("Unknown index plugin '{other}'"))),
        number if number_as_f64(number).is_some() => match number_as_f64(number) {
            Some(0.0) => Err(cannot_create("Values in the index key pattern cannot be 0.")),
            Some(n) if n.is_nan() => Err(cannot_create("Values in the index key pattern cannot be NaN.")),
            _ => Ok(()),
        },
        other => Err(cannot_create(format!(
            "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, and strings are \
             allowed.",
            type_name(other.element_type())
        ))),
    }
}

fn check_key_path(path: &str, value: RawBsonRef<'_>) -> Result<()> {
    if path == "$**" && value.as_str() == Some("text") {
        return Ok(());
    }
    if path == "$**" || path.ends_with(".$**") {
        return Err(Error::not_implemented("A wildcard index"));
    }
    for (at, part) in path.split('.').enumerate() {
        if part.is_empty() {
            return Err(cannot_create("Index keys cannot contain an empty field."));
        }
        // A part of a database reference may be indexed.
        let reference = at > 0 && matches!(part, "$id" | "$ref" | "$db");
        if part.starts_with('$') && !reference {
            return Err(cannot_create("Index key contains an illegal field name: field name starts with '$'."));
        }
    }
    Ok(())
}

pub(super) fn has_kind(key: &RawDocument, kind: &str) -> Result<bool> {
    for element in key {
        if element?.1.as_str() == Some(kind) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn generated_name(key: &RawDocument) -> Result<String> {
    let mut parts = Vec::new();
    for element in key {
        let (name, value) = element?;
        let value = match value {
            RawBsonRef::String(kind) => kind.to_owned(),
            other => number_as_i64(other).unwrap_or(1).to_string(),
        };
        parts.push(format!("{}_{value}", name.as_str()));
    }
    Ok(parts.join("_"))
}

/// Options that exclude each other, or demand something of the key.
fn check_together(parts: &Parts<'_>, key: &RawDocument, spec: &RawDocument) -> Result<()> {
    if parts.unique && has_kind(key, "hashed")? {
        return Err(cannot_create("Currently hashed indexes cannot guarantee uniqueness. Use a regular index."));
    }
    if let Some(partial) = parts.partial {
        if parts.sparse {
            return Err(cannot_create("cannot mix \"partialFilterExpression\" and \"sparse\" options"));
        }
        check_partial_filter(Matcher::parse(partial, &stored_context())?.root())?;
    }
    if parts.ttl.is_some() && special_indexes::fields_given(key, &parts.rest)? > 1 {
        return Err(cannot_create(format!(
            "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: {}",
            shown(spec)
        )));
    }
    Ok(())
}

/// What the filter of a partial index may consist of.
fn check_partial_filter(node: &Node) -> Result<()> {
    let refused = |what: &str| Err(cannot_create(format!("Expression not supported in partial index: {what}")));
    match node {
        Node::And(children) | Node::Or(children) => children.iter().try_for_each(check_partial_filter),
        Node::True | Node::False => Ok(()),
        Node::Field(field) => match &field.predicate {
            Predicate::Compare(_) | Predicate::In(_) | Predicate::Exists | Predicate::Type(_) => Ok(()),
            Predicate::Mod(_) => refused("$mod"),
            Predicate::Regex(_) => refused("$regex"),
            Predicate::Bits(_) => refused("$bits"),
            Predicate::Size(_) => refused("$size"),
            Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => refused("$elemMatch"),
        },
        Node::Nor(_) => refused("$nor"),
        Node::Not(_) => refused("$not"),
        Node::Expr(_) => refused("$expr"),
        Node::Schema(_) => refused("$jsonSchema"),
        Node::SampleRate(_) => refused("$sampleRate"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(spec: &RawDocument) -> Error {
        normalise(spec, false).unwrap_err()
    }

    #[test]
    fn a_specification_is_completed_and_stays_as_it_is_the_second_time() {
        let given = rawdoc! { "key": { "a": 1, "b.c": -1.0 }, "sparse": 1, "unique": true, "ns": "x.y" };
        let normal = normalise(&given, false).unwrap();
        let wanted = rawdoc! {
            "v": 2, "key": { "a": 1, "b.c": -1.0 }, "name": "a_1_b.c_-1", "unique": true, "sparse": true,
        };
        assert_eq!(normal, wanted);
        assert_eq!(normalise(&normal, false).unwrap(), normal);
    }

    #[test]
    fn a_text_index_keeps_its_fields_as_weights() {
        let normal = normalise(&rawdoc! { "key": { "p": 1, "t": "text" } }, false).unwrap();
        let wanted = rawdoc! {
            "v": 2, "key": { "p": 1, "_fts": "text", "_ftsx": 1 }, "name": "p_1_t_text", "weights": { "t": 1 },
            "default_language": "english", "language_override": "language", "textIndexVersion": 3,
        };
        assert_eq!(normal, wanted);
        assert_eq!(normalise(&normal, false).unwrap(), normal);
    }

    #[test]
    fn the_index_on_id_has_one_name_and_no_options() {
        let normal = normalise(&rawdoc! { "key": { "_id": 1 }, "name": "mine" }, false).unwrap();
        assert_eq!(normal, rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" });
        let unique = error(&rawdoc! { "key": { "_id": 1 }, "unique": true });
        assert_eq!(unique.code, ErrorCode::InvalidIndexSpecificationOption);
        assert_eq!(error(&rawdoc! { "key": { "a": 1 }, "name": "_id_" }).code, ErrorCode::BadValue);
    }

    #[test]
    fn keys_and_options_that_make_no_index_are_refused_as_mongodb_does() {
        let cannot = ErrorCode::CannotCreateIndex;
        for (spec, code) in [
            (rawdoc! { "name": "x" }, ErrorCode::FailedToParse),
            (rawdoc! { "key": 1 }, ErrorCode::TypeMismatch),
            (rawdoc! { "key": {} }, cannot),
            (rawdoc! { "key": { "a": 0 } }, cannot),
            (rawdoc! { "key": { "a": true } }, cannot),
            (rawdoc! { "key": { "a": "frob" } }, cannot),
            (rawdoc! { "key": { "": 1 } }, cannot),
            (rawdoc! { "key": { "a..b": 1 } }, cannot),
            (rawdoc! { "key": { "$a": 1 } }, cannot),
            (rawdoc! { "key": { "$**": 1 } }, ErrorCode::NotImplemented),
            (rawdoc! { "key": { "a": "hashed" }, "unique": true }, cannot),
            (rawdoc! { "key": { "a": "hashed", "b": "hashed" } }, ErrorCode(31303)),
            (rawdoc! { "key": { "a": 1 }, "name": "*" }, ErrorCode::BadValue),
            (rawdoc! { "key": { "a": 1 }, "frob": 1 }, ErrorCode::InvalidIndexSpecificationOption),
            (rawdoc! { "key": { "a": 1 }, "v": 0 }, cannot),
            (rawdoc! { "key": { "a": 1 }, "unique": "yes" }, ErrorCode::TypeMismatch),
            (rawdoc! { "key": { "a": 1 }, "expireAfterSeconds": -1 }, cannot),
            (rawdoc! { "key": { "a": 1, "b": 1 }, "expireAfterSeconds": 1 }, cannot),
            (rawdoc! { "key": { "a": 1 }, "sparse": true, "partialFilterExpression": { "a": 1 } }, cannot),
            (rawdoc! { "key": { "a": 1 }, "partialFilterExpression": { "a": { "$ne": 1 } } }, cannot),
            (rawdoc! { "key": { "a": 1 }, "collation": { "locale": "fr" } }, ErrorCode::NotImplemented),
        ] {
            assert_eq!(error(&spec).code, code, "{spec:?}");
        }
        assert!(normalise(&rawdoc! { "key": { "a": 1 }, "frob": 1 }, true).is_ok());
    }
}
