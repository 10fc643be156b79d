//! The options of `create`: which there are, which exclude each other, and how they are kept.
//!
//! Invariant: what is kept is what `listCollections` shows and what a `create` with the same options compares equal to.

use super::stored_context;
use crate::crud::check_collation;
use baton_document::order;
use baton_query::matcher::Matcher;
use baton_request::Fields;
use baton_request::fields::wrong_type;
pub use baton_storage::replaced;
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

/// The largest capped collection, in bytes: a pebibyte.
const CAPPED_BYTES_MAX: i64 = 1 << 50;

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, why)
}

/// Reads the options of a new collection or view from `fields`, and refuses what does not go together.
pub fn read(fields: &mut Fields<'_>, namespace: &Namespace) -> Result<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    let capped = fields.truth("capped")?;
    let size = fields.optional::<i64>("size")?;
    let max = fields.optional::<i64>("max")?;
    read_capped(&mut document, capped, size, max)?;
    match fields.take("autoIndexId") {
        Some(RawBsonRef::Boolean(false)) if namespace.db() != "local" => {
            return Err(invalid(
                "autoIndexId:false is not allowed for collections in databases other than the local database",
            ));
        }
        Some(RawBsonRef::Boolean(false)) => return Err(Error::not_implemented("autoIndexId: false")),
        _ => {}
    }
    if fields.truth("temp")? {
        document.append(cstr!("temp"), true);
    }
    read_unsupported(fields)?;
    let clustered = read_clustered(fields, &mut document)?;
    if clustered && (capped || size.is_some() || max.is_some()) {
        return Err(invalid("the 'clusteredIndex' option cannot be used with the options of a capped collection"));
    }
    let validated = read_validator(fields, &mut document, namespace)?;
    let view_on = fields.optional::<&str>("viewOn")?;
    let pipeline = fields.optional::<&bson::RawArray>("pipeline")?;
    match (view_on, pipeline) {
        (None, Some(_)) => return Err(invalid("'pipeline' requires 'viewOn' to also be specified")),
        (None, None) => {}
        (Some(""), _) => return Err(Error::bad_value("'viewOn' cannot be empty")),
        (Some(on), pipeline) => {
            if capped || size.is_some() || max.is_some() || validated || clustered {
                return Err(invalid("the 'viewOn' option cannot be used with options of a collection"));
            }
            document.append(cstr!("viewOn"), on);
            match pipeline {
                Some(pipeline) => document.append(cstr!("pipeline"), pipeline.to_owned()),
                None => document.append(cstr!("pipeline"), bson::RawArrayBuf::new()),
            }
        }
    }
    check_id_index(fields)?;
    Ok(document)
}

fn read_capped(document: &mut RawDocumentBuf, capped: bool, size: Option<i64>, max: Option<i64>) -> Result<()> {
    if !capped {
        return match (size, max) {
            (None, None) => Ok(()),
            _ => Err(invalid("the 'capped' field needs to be true when either the 'size' or 'max' fields are present")),
        };
    }
    let Some(size) = size else {
        return Err(invalid("the 'size' field is required when 'capped' is true"));
    };
    if !(1..=CAPPED_BYTES_MAX).contains(&size) {
        return Err(Error::location(
            51024,
            format!("BSON field 'create.size' value must be >= 1 and <= {CAPPED_BYTES_MAX}, actual value '{size}'"),
        ));
    }
    document.append(cstr!("capped"), true);
    append_size(document, size, max)
}

/// Appends `size` and `max` as they are kept.
pub fn append_size(document: &mut RawDocumentBuf, size: i64, max: Option<i64>) -> Result<()> {
    super::append_number(document, "size", size)?;
    match max {
        Some(max) if max >= 1 << 31 => Err(Error::bad_value("max in a capped collection has to be < 2^31 or not set")),
        Some(max) if max > 0 => super::append_number(document, "max", max),
        _ => Ok(()),
    }
}

/// Reads `clusteredIndex`, which every collection is served by anyway: it gives that index a name. Says whether it was
/// given.
fn read_clustered(fields: &mut Fields<'_>, document: &mut RawDocumentBuf) -> Result<bool> {
    let spec = match fields.take("clusteredIndex") {
        None | Some(RawBsonRef::Null | RawBsonRef::Boolean(false)) => return Ok(false),
        Some(RawBsonRef::Document(spec)) => spec,
        Some(RawBsonRef::Boolean(true)) => {
            return Err(invalid("The 'clusteredIndex' option must be a document with 'key' and 'unique'"));
        }
        Some(other) => return Err(wrong_type("create", "clusteredIndex", other, &["bool", "object"])),
    };
    let mut spec = Fields::of("create.clusteredIndex", spec)?;
    let key: &RawDocument = spec.required("key")?;
    let unique = spec.truth("unique")?;
    let name = spec.optional::<&str>("name")?.unwrap_or(baton_storage::ID_INDEX);
    let version = spec.optional::<i64>("v")?.unwrap_or(2);
    spec.finish()?;
    let refused = |why: &str| Err(Error::new(ErrorCode::InvalidIndexSpecificationOption, why));
    if !same(key, &bson::rawdoc! { "_id": 1 }) {
        return refused("The clusteredIndex option is only supported for key: {_id: 1}");
    }
    if !unique {
        return Err(Error::location(5979700, "The clusteredIndex option requires unique: true to be specified"));
    }
    if name.is_empty() || version != 2 {
        return refused("The clusteredIndex option needs a name that is not empty, and version 2");
    }
    let clustered = bson::rawdoc! { "v": 2, "key": { "_id": 1 }, "name": name, "unique": true };
    document.append(cstr!("clusteredIndex"), clustered);
    Ok(true)
}

/// What MongoDB has and Baton has not.
fn read_unsupported(fields: &mut Fields<'_>) -> Result<()> {
    check_collation(fields.optional("collation")?)?;
    for name in ["timeseries", "encryptedFields", "expireAfterSeconds"] {
        match fields.take(name) {
            None | Some(RawBsonRef::Null | RawBsonRef::Boolean(false)) => {}
            Some(_) => return Err(Error::not_implemented(format!("create with '{name}'"))),
        }
    }
    if let Some(images) = fields.optional::<&RawDocument>("changeStreamPreAndPostImages")?
        && images.get_bool("enabled").unwrap_or(true)
    {
        return Err(Error::not_implemented("changeStreamPreAndPostImages"));
    }
    if fields.truth("recordPreImages")? {
        return Err(Error::not_implemented("recordPreImages"));
    }
    if let Some(engine) = fields.optional::<&RawDocument>("storageEngine")? {
        check_storage_engine(engine)?;
    }
    if let Some(defaults) = fields.optional::<&RawDocument>("indexOptionDefaults")?
        && let Some(engine) = defaults.get("storageEngine")?.and_then(|engine| engine.as_document())
    {
        check_storage_engine(engine)?;
    }
    Ok(())
}

/// Options for the storage engines of MongoDB mean nothing here, and are refused as mongod refuses another engine's.
pub fn check_storage_engine(engine: &RawDocument) -> Result<()> {
    match engine.iter().next().transpose()? {
        None => Ok(()),
        Some((name, _)) => {
            Err(invalid(format!("{} is not a registered storage engine for this server", name.as_str())))
        }
    }
}

/// Reads the validator with its level and action, checks and keeps them; says whether there was any of them.
pub fn read_validator(fields: &mut Fields<'_>, document: &mut RawDocumentBuf, namespace: &Namespace) -> Result<bool> {
    let path = "create";
    let validator = fields.optional::<&RawDocument>("validator")?;
    let level = choice(fields, path, "validationLevel", &["off", "strict", "moderate"])?;
    let action = choice(fields, path, "validationAction", &["error", "warn"])?;
    if let Some(validator) = validator {
        if !validator.is_empty() && matches!(namespace.db(), "admin" | "local" | "config") {
            return Err(invalid(format!(
                "Document validators are not allowed on collection {namespace} in the {} internal database",
                namespace.db()
            )));
        }
        if namespace.is_system() && !validator.is_empty() {
            return Err(invalid(format!("Document validators not allowed on system collection {namespace}")));
        }
        Matcher::parse(validator, &stored_context())?;
        document.append(cstr!("validator"), validator.to_owned());
    }
    if validator.is_some() || level.is_some() {
        document.append(cstr!("validationLevel"), level.unwrap_or("strict"));
    }
    if validator.is_some() || action.is_some() {
        document.append(cstr!("validationAction"), action.unwrap_or("error"));
    }
    Ok(validator.is_some() || level.is_some() || action.is_some())
}

/// A field that takes one of a few words.
pub fn choice<'a>(fields: &mut Fields<'a>, path: &str, name: &str, words: &[&str]) -> Result<Option<&'a str>> {
    match fields.take(name) {
        None | Some(RawBsonRef::Null) => Ok(None),
        Some(RawBsonRef::String(word)) if words.contains(&word) => Ok(Some(word)),
        Some(RawBsonRef::String(word)) => {
            Err(Error::bad_value(format!("Enumeration value '{word}' for field '{path}.{name}' is not a valid value.")))
        }
        Some(other) => Err(wrong_type(path, name, other, &["string"])),
    }
}

/// `idIndex`, which tools send as they found it: it can only be the one there is.
fn check_id_index(fields: &mut Fields<'_>) -> Result<()> {
    let Some(spec) = fields.optional::<&RawDocument>("idIndex")? else { return Ok(()) };
    let wanted = bson::rawdoc! { "_id": 1 };
    let key = spec.get("key")?.and_then(|key| key.as_document());
    if !key.is_some_and(|key| same(key, &wanted)) {
        return Err(Error::bad_value(format!("The field 'key' for an _id index must be {{_id: 1}}, but got {key:?}")));
    }
    check_collation(spec.get("collation")?.and_then(|collation| collation.as_document()))
}

/// Whether two documents say the same: numbers by value, fields in order.
pub fn same(a: &RawDocument, b: &RawDocument) -> bool {
    order::compare(RawBsonRef::Document(a), RawBsonRef::Document(b)).is_eq()
}
