//! `collMod`: changes a collection's validator or size, an index's visibility or expiry, a view's definition. Source:
//! MongoDB manual, "collMod".

use crate::call::{Call, Reply};
use crate::ddl::options::{self, same};
use crate::ddl::{append_number, specification, views};
use crate::fields::Fields;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::{Collection, CollectionKind, CollectionOptions, ID_INDEX, Storage};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::cstr;
use bson::{RawArray, RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "collMod",
    flags: Flags::WRITE_CONCERN.and(Flags::API_V1).and(Flags::WRITES).and(Flags::ON_COLLECTION),
    help: "Changes a collection: validator, validationLevel, validationAction, index { name | keyPattern, hidden, \
           expireAfterSeconds }, cappedSize, cappedMax; or a view: viewOn, pipeline.",
    run,
    ..DEFAULT
};

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, why)
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let changed = modify(&call.server.storage, &namespace, &mut call.fields)?;
    reply.extend(&changed);
    Ok(())
}

/// Carries the command's fields out; gives what the reply says of the index.
pub fn modify(storage: &Storage, namespace: &Namespace, fields: &mut Fields<'_>) -> Result<RawDocumentBuf> {
    let Some(collection) = storage.collection(namespace) else {
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {namespace}")));
    };
    refuse_missing_features(fields)?;
    let index = fields.optional::<&RawDocument>("index")?;
    let mut changes = RawDocumentBuf::new();
    let validator = read_validator(fields, &mut changes, &collection)?;
    let size = fields.optional::<i64>("cappedSize")?;
    let max = fields.optional::<i64>("cappedMax")?;
    let view_on = fields.optional::<&str>("viewOn")?;
    let pipeline = fields.optional::<&RawArray>("pipeline")?;
    let dry_run = fields.truth("dryRun")?;
    fields.finish()?;
    if dry_run {
        return Err(Error::not_implemented("collMod with dryRun"));
    }
    if collection.kind == CollectionKind::View {
        if index.is_some() || validator || size.is_some() || max.is_some() {
            return Err(invalid("option not supported on a view"));
        }
        modify_view(storage, &collection, view_on, pipeline)?;
        return Ok(RawDocumentBuf::new());
    }
    if view_on.is_some() || pipeline.is_some() {
        return Err(invalid(format!("'viewOn' and 'pipeline' are options of a view, and {namespace} is a collection")));
    }
    if (size.is_some() || max.is_some()) && collection.kind != CollectionKind::Capped {
        return Err(invalid("cappedSize and cappedMax are options of a capped collection"));
    }
    if let Some(size) = size {
        if size <= 0 {
            return Err(invalid("cappedSize must be greater than 0"));
        }
        append_number(&mut changes, "size", size)?;
    }
    if let Some(max) = max {
        append_number(&mut changes, "max", max)?;
    }
    if !changes.is_empty() {
        let document = options::replaced(&collection.options.document, &changes, &[])?;
        let mut o = rawdoc! { "collMod": namespace.coll() };
        for element in &changes {
            let (name, value) = element?;
            let name = match name.as_str() {
                "size" => cstr!("cappedSize"),
                "max" => cstr!("cappedMax"),
                _ => name,
            };
            o.append(name, value);
        }
        storage.alter_collection(namespace, CollectionOptions::parse(&document)?, &o)?;
    }
    match index {
        Some(index) => modify_index(storage, &collection, index),
        None => Ok(RawDocumentBuf::new()),
    }
}

fn refuse_missing_features(fields: &mut Fields<'_>) -> Result<()> {
    for name in ["timeseries", "expireAfterSeconds", "recordPreImages"] {
        if fields.take(name).is_some() {
            return Err(Error::not_implemented(format!("collMod with '{name}'")));
        }
    }
    match fields.optional::<&RawDocument>("changeStreamPreAndPostImages")? {
        Some(images) if images.get_bool("enabled").unwrap_or(true) => {
            Err(Error::not_implemented("changeStreamPreAndPostImages"))
        }
        _ => Ok(()),
    }
}

/// Reads the validator's parts into `changes`: those that are not named stay as they are.
fn read_validator(fields: &mut Fields<'_>, changes: &mut RawDocumentBuf, collection: &Collection) -> Result<bool> {
    let mut read = RawDocumentBuf::new();
    let named = ["validator", "validationLevel", "validationAction"].map(|name| fields.peek(name).is_some());
    let any = options::read_validator(fields, &mut read, &collection.namespace)?;
    for (name, named) in
        [cstr!("validator"), cstr!("validationLevel"), cstr!("validationAction")].into_iter().zip(named)
    {
        let kept = collection.options.document.get(name.as_str())?.is_some();
        // A default takes effect only where nothing was set before.
        if let Some(value) = read.get(name.as_str())?.filter(|_| named || !kept) {
            changes.append(name, value);
        }
    }
    Ok(any)
}

fn modify_view(storage: &Storage, view: &Collection, on: Option<&str>, pipeline: Option<&RawArray>) -> Result<()> {
    let (Some(on), Some(pipeline)) = (on, pipeline) else {
        return match (on, pipeline) {
            (None, None) => Ok(()),
            _ => Err(invalid("Must specify both 'viewOn' and 'pipeline' when modifying a view")),
        };
    };
    if on.is_empty() {
        return Err(invalid("'viewOn' cannot be empty"));
    }
    let mut changes = rawdoc! { "viewOn": on };
    changes.append(cstr!("pipeline"), pipeline.to_owned());
    let document = options::replaced(&view.options.document, &changes, &[])?;
    let options = CollectionOptions::parse(&document)?;
    if let Some((on, stages)) = &options.view {
        views::check(storage, &view.namespace, on, stages)?;
    }
    let mut o = rawdoc! { "collMod": view.namespace.coll() };
    for element in &changes {
        let (name, value) = element?;
        o.append(name, value);
    }
    storage.alter_collection(&view.namespace, options, &o)
}

/// What is to change of an index.
struct IndexChange {
    name: String,
    hidden: Option<bool>,
    expire_after_secs: Option<i32>,
}

fn read_index(collection: &Collection, index: &RawDocument) -> Result<IndexChange> {
    let mut fields = Fields::of("collMod.index", index)?;
    let name = fields.optional::<&str>("name")?;
    let pattern = fields.optional::<&RawDocument>("keyPattern")?;
    let hidden = fields.optional::<crate::fields::Truth>("hidden")?.map(|truth| truth.0);
    let expire_after_secs = match fields.take("expireAfterSeconds") {
        None => None,
        Some(value) => Some(specification::expire_after_seconds(value).map_err(|error| invalid(error.message))?),
    };
    for name in ["unique", "prepareUnique"] {
        if fields.truth(name)? {
            return Err(Error::not_implemented(format!("collMod with index.{name}")));
        }
    }
    fields.finish()?;
    let indexes = collection.indexes();
    let shown = |pattern: &RawDocument| bson::Document::try_from(pattern).unwrap_or_default();
    let missing = |what: String| {
        Err(Error::new(ErrorCode::IndexNotFound, format!("cannot find index {what} for ns {}", collection.namespace)))
    };
    let name = match (name, pattern) {
        (Some(_), Some(_)) => return Err(invalid("Cannot specify both key pattern and name.")),
        (None, None) => return Err(invalid("Must specify either index name or key pattern.")),
        (Some(name), None) if name == ID_INDEX || collection.index(name).is_some() => name.to_owned(),
        (Some(name), None) => return missing(name.to_owned()),
        (None, Some(pattern)) if specification::is_id_pattern(pattern) => ID_INDEX.to_owned(),
        (None, Some(pattern)) => {
            let found: Vec<_> = indexes.iter().filter(|i| same(i.definition.key_pattern(), pattern)).collect();
            match found.as_slice() {
                [] => return missing(shown(pattern).to_string()),
                [one] => one.definition.name.clone(),
                _ => {
                    return Err(Error::new(
                        ErrorCode::AmbiguousIndexKeyPattern,
                        format!("index keyPattern {} matches several indexes, use the name instead", shown(pattern)),
                    ));
                }
            }
        }
    };
    if hidden.is_none() && expire_after_secs.is_none() {
        return Err(invalid("no expireAfterSeconds, hidden, unique, or prepareUnique field"));
    }
    Ok(IndexChange { name, hidden, expire_after_secs })
}

fn modify_index(storage: &Storage, collection: &Arc<Collection>, index: &RawDocument) -> Result<RawDocumentBuf> {
    let change = read_index(collection, index)?;
    // The collection may have been replaced by a change of its options in the same command.
    let current = storage.collection(&collection.namespace);
    let collection = current.as_ref().unwrap_or(collection);
    let mut answer = RawDocumentBuf::new();
    if change.name == ID_INDEX {
        return Err(match change.hidden {
            Some(_) => Error::bad_value("can't hide _id index"),
            None => invalid("the _id field does not support TTL indexes"),
        });
    }
    let Some(index) = collection.index(&change.name) else {
        return Err(Error::new(ErrorCode::IndexNotFound, format!("cannot find index {}", change.name)));
    };
    let definition = &index.definition;
    let mut wanted = RawDocumentBuf::new();
    let mut removed = Vec::new();
    if let Some(secs) = change.expire_after_secs {
        if definition.fields.len() != 1 {
            return Err(invalid("TTL indexes are single-field indexes, compound indexes do not support TTL"));
        }
        if collection.kind == CollectionKind::Capped {
            return Err(invalid("TTL indexes are not supported for capped collections."));
        }
        if let Some(old) = definition.expire_after_secs {
            append_number(&mut answer, "expireAfterSeconds_old", old)?;
        }
        append_number(&mut answer, "expireAfterSeconds_new", i64::from(secs))?;
        wanted.append(cstr!("expireAfterSeconds"), secs);
    }
    if let Some(hidden) = change.hidden.filter(|hidden| *hidden != definition.hidden) {
        answer.append(cstr!("hidden_old"), definition.hidden);
        answer.append(cstr!("hidden_new"), hidden);
        if hidden {
            wanted.append(cstr!("hidden"), true);
        } else {
            removed.push("hidden");
        }
    }
    if wanted.is_empty() && removed.is_empty() {
        return Ok(answer);
    }
    let document = options::replaced(&definition.document, &wanted, &removed)?;
    let mut o_index = rawdoc! { "name": change.name.as_str() };
    if let Some(hidden) = change.hidden {
        o_index.append(cstr!("hidden"), hidden);
    }
    if let Some(secs) = change.expire_after_secs {
        o_index.append(cstr!("expireAfterSeconds"), secs);
    }
    let o = rawdoc! { "collMod": collection.namespace.coll(), "index": o_index };
    storage.alter_index(collection, &change.name, &document, &o)?;
    Ok(answer)
}
