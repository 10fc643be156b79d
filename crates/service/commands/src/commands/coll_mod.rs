//! `collMod`: changes a collection's validator or size, an index's visibility or expiry, a view's definition. Source:
//! MongoDB manual, "collMod".
//!
//! Invariant: all that is read of the collection and all that is changed is one decision under the catalog's guard, and one
//! entry of the oplog.

use crate::call::{Call, Reply};
use crate::ddl::options::{self, same};
use crate::ddl::{append_number, specification, views};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::Fields;
use baton_storage::{
    CatalogGuard, Collection, CollectionKind, CollectionOptions, ID_INDEX, IndexModification, IndexState, Modification,
    Writer,
};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::cstr;
use bson::{RawArray, RawDocument, RawDocumentBuf};
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
    let author = Arc::clone(&call.author);
    let changed = modify(call.server.storage.by(&author), &namespace, &mut call.fields)?;
    reply.extend(&changed);
    Ok(())
}

/// Carries the command's fields out; gives what the reply says of the index.
pub fn modify(writer: Writer<'_>, namespace: &Namespace, fields: &mut Fields<'_>) -> Result<RawDocumentBuf> {
    let catalog = writer.lock_catalog();
    let Some(collection) = catalog.collection(namespace) else {
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {namespace}")));
    };
    if collection.indexes().iter().any(|index| index.state() == IndexState::Building) {
        return Err(Error::new(
            ErrorCode::BackgroundOperationInProgressForNamespace,
            format!(
                "cannot perform operation: an index build is currently running for collection with UUID: {}",
                bson::Uuid::from_bytes(collection.uuid)
            ),
        ));
    }
    refuse_missing_features(fields)?;
    let index = fields.optional::<&RawDocument>("index")?;
    let mut options = RawDocumentBuf::new();
    let validator = read_validator(fields, &mut options, &collection)?;
    let size = fields.optional::<i64>("cappedSize")?;
    let max = fields.optional::<i64>("cappedMax")?;
    let view_on = fields.optional::<&str>("viewOn")?;
    let pipeline = fields.optional::<&RawArray>("pipeline")?;
    let dry_run = fields.truth("dryRun")?;
    fields.finish()?;
    if dry_run {
        return Err(Error::not_implemented("collMod with dryRun"));
    }
    let mut answer = RawDocumentBuf::new();
    let mut altered = None;
    if collection.kind == CollectionKind::View {
        if index.is_some() || validator || size.is_some() || max.is_some() {
            return Err(invalid("option not supported on a view"));
        }
        read_view(&catalog, &collection, (view_on, pipeline), &mut options)?;
    } else {
        if view_on.is_some() || pipeline.is_some() {
            let why = format!("'viewOn' and 'pipeline' are options of a view, and {namespace} is a collection");
            return Err(invalid(why));
        }
        read_capped(&collection, (size, max), &mut options)?;
        if let Some(index) = index {
            altered = read_index(&collection, index, &mut answer)?;
        }
    }
    if !options.is_empty() || altered.is_some() {
        collection.modify(&Modification { options, index: altered })?;
    }
    Ok(answer)
}

fn read_capped(
    collection: &Collection,
    (size, max): (Option<i64>, Option<i64>),
    changes: &mut RawDocumentBuf,
) -> Result<()> {
    if (size.is_some() || max.is_some()) && collection.kind != CollectionKind::Capped {
        return Err(invalid("cappedSize and cappedMax are options of a capped collection"));
    }
    if let Some(size) = size {
        if size <= 0 {
            return Err(invalid("cappedSize must be greater than 0"));
        }
        append_number(changes, "size", size)?;
    }
    match max {
        Some(max) => append_number(changes, "max", max),
        None => Ok(()),
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

fn read_view(
    catalog: &CatalogGuard<'_>,
    view: &Collection,
    definition: (Option<&str>, Option<&RawArray>),
    changes: &mut RawDocumentBuf,
) -> Result<()> {
    let (on, pipeline) = match definition {
        (Some(on), Some(pipeline)) => (on, pipeline),
        (None, None) => return Ok(()),
        _ => return Err(invalid("Must specify both 'viewOn' and 'pipeline' when modifying a view")),
    };
    if on.is_empty() {
        return Err(invalid("'viewOn' cannot be empty"));
    }
    changes.append(cstr!("viewOn"), on);
    changes.append(cstr!("pipeline"), pipeline.to_owned());
    let options = CollectionOptions::parse(&options::replaced(&view.options.document, changes, &[])?)?;
    match &options.view {
        Some((on, stages)) => views::check(catalog, &view.namespace, on, stages),
        None => Ok(()),
    }
}

/// What is to change of an index, if anything; adds to the answer what it says of that.
fn read_index(
    collection: &Collection,
    index: &RawDocument,
    answer: &mut RawDocumentBuf,
) -> Result<Option<IndexModification>> {
    let mut fields = Fields::of("collMod.index", index)?;
    let name = fields.optional::<&str>("name")?;
    let pattern = fields.optional::<&RawDocument>("keyPattern")?;
    let hidden = fields.optional::<baton_request::fields::Truth>("hidden")?.map(|truth| truth.0);
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
    if name == ID_INDEX {
        return Err(match hidden {
            Some(_) => Error::bad_value("can't hide _id index"),
            None => invalid("the _id field does not support TTL indexes"),
        });
    }
    let Some(index) = collection.index(&name) else { return missing(name) };
    let definition = &index.definition;
    if let Some(secs) = expire_after_secs {
        if definition.fields.len() != 1 {
            return Err(invalid("TTL indexes are single-field indexes, compound indexes do not support TTL"));
        }
        if collection.kind == CollectionKind::Capped {
            return Err(invalid("TTL indexes are not supported for capped collections."));
        }
        if let Some(old) = definition.expire_after_secs {
            append_number(answer, "expireAfterSeconds_old", old)?;
        }
        append_number(answer, "expireAfterSeconds_new", i64::from(secs))?;
    }
    let hidden = hidden.filter(|hidden| *hidden != definition.hidden);
    if let Some(hidden) = hidden {
        answer.append(cstr!("hidden_old"), definition.hidden);
        answer.append(cstr!("hidden_new"), hidden);
    }
    let changes = hidden.is_some() || expire_after_secs.is_some();
    Ok(changes.then_some(IndexModification { name, hidden, expire_after_secs }))
}
