//! Updates and upserts.

use super::{
    Attempt, Image, Retry, Written, check_size, find, prepare, refuse_view, validate, with_document, with_image,
};
use crate::Interrupt;
use crate::host::Draw;
use crate::query::{Hint, QuerySpec};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::sort::SortPattern;
use baton_query::update::{OplogUpdate, Update};
use baton_storage::{Collection, Durability, Storage, Transaction};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::cstr;
use bson::{Bson, RawDocument, rawdoc};
use std::sync::Arc;

/// An update, parsed.
pub struct UpdateStatement {
    /// Which documents.
    pub filter: Arc<Matcher>,
    /// Into what.
    pub update: Update,
    /// All of them, or one.
    pub multi: bool,
    /// Whether to insert if there is none.
    pub upsert: bool,
    /// By which path.
    pub hint: Option<Hint>,
    /// Which one, if several match.
    pub sort: Option<Arc<SortPattern>>,
    /// Whether the validator is not asked.
    pub bypass_validation: bool,
    /// Which state of the document to give back, if it is one.
    pub image: Image,
}

impl UpdateStatement {
    /// An update of one document.
    pub fn one(filter: Arc<Matcher>, update: Update) -> Self {
        Self {
            filter,
            update,
            multi: false,
            upsert: false,
            hint: None,
            sort: None,
            bypass_validation: false,
            image: Image::None,
        }
    }
}

/// Updates.
#[allow(clippy::too_many_arguments)]
pub fn update(
    storage: &Arc<Storage>,
    namespace: &Namespace,
    statement: &UpdateStatement,
    context: &Arc<Context>,
    draw: &dyn Draw,
    mut retry: Option<&mut Retry<'_>>,
    interrupt: Interrupt<'_>,
    durability: Durability,
) -> Result<Written> {
    loop {
        interrupt()?;
        let found = storage.with_collection(namespace, |collection| match collection {
            Some(collection) => {
                update_found(storage, collection, statement, context, &mut retry, interrupt, durability)
            }
            None => Ok(Some(Written::default())),
        })?;
        let Some(written) = found else { continue };
        if written.matched > 0 || !statement.upsert {
            return Ok(written);
        }
        match upsert(storage, namespace, statement, draw, &mut retry, durability) {
            // Somebody inserted what would have matched: then it is an update after all.
            Err(error) if error.code == ErrorCode::DuplicateKey && upsert_may_retry(statement, &error)? => {}
            upserted => return upserted,
        }
    }
}

/// A duplicate key on what the filter itself demands means that a matching document has appeared.
fn upsert_may_retry(statement: &UpdateStatement, error: &Error) -> Result<bool> {
    let Some(info) = &error.info else { return Ok(false) };
    let Ok(values) = info.get_document("keyValue") else { return Ok(false) };
    let equalities = statement.filter.equalities().unwrap_or_default();
    for element in values {
        let (name, value) = element?;
        if !equalities.iter().any(|(path, wanted)| {
            path == name.as_str() && baton_document::order::compare_raw_bson(value, wanted).is_eq()
        }) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Updates what is there; `None` if the one document found was changed by another writer meanwhile.
fn update_found(
    storage: &Arc<Storage>,
    collection: &Arc<Collection>,
    statement: &UpdateStatement,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
    interrupt: Interrupt<'_>,
    durability: Durability,
) -> Result<Option<Written>> {
    refuse_view(collection)?;
    let spec = QuerySpec {
        sort: statement.sort.clone(),
        hint: statement.hint.clone(),
        limit: if statement.multi { None } else { Some(1) },
        ..QuerySpec::matching(Arc::clone(&statement.filter))
    };
    let found = find(storage, collection, spec, context, interrupt)?;
    let mut written = Written::default();
    let mut image = None;
    let single = !statement.multi;
    for record in &found.records {
        interrupt()?;
        let durability = if single { durability } else { Durability::Applied };
        let (attempt, optime) = with_document(
            storage,
            collection,
            record,
            &statement.filter,
            durability,
            |transaction, before, details| {
                let applied = statement.update.apply(before, details)?;
                let Some(after) = applied.document else {
                    image = (statement.image != Image::None).then(|| before.to_owned());
                    return Ok(false);
                };
                check_size(&after)?;
                if !statement.bypass_validation {
                    validate(collection, &after, Some(before))?;
                }
                let change: &RawDocument = match &applied.oplog {
                    OplogUpdate::Delta(delta) => delta,
                    OplogUpdate::Replacement | OplogUpdate::Unchanged => &after,
                };
                storage.update(
                    transaction,
                    collection,
                    record,
                    (before, &after),
                    change,
                    retry.as_ref().map(|r| r.statement()),
                )?;
                image = match statement.image {
                    Image::None => None,
                    Image::Before => Some(before.to_owned()),
                    Image::After => Some(after),
                };
                if let Some(retry) = retry {
                    retry.done(transaction, with_image(rawdoc! { "n": 1, "nModified": 1 }, image.as_deref()));
                }
                Ok(true)
            },
        )?;
        match attempt {
            Attempt::Done(changed) => {
                written.matched += 1;
                written.modified += u64::from(changed);
            }
            Attempt::Gone if single && !found.is_final => return Ok(None),
            Attempt::Gone => {}
        }
        if optime > written.optime {
            written.optime = optime;
            if let Some(retry) = retry {
                retry.record.last = optime;
            }
        }
    }
    if !single && durability == Durability::Synced && written.modified > 0 {
        storage.sync();
    }
    written.image = image;
    Ok(Some(written))
}

fn upsert(
    storage: &Arc<Storage>,
    namespace: &Namespace,
    statement: &UpdateStatement,
    draw: &dyn Draw,
    retry: &mut Option<&mut Retry<'_>>,
    durability: Durability,
) -> Result<Written> {
    storage.collection_or_create(namespace, || draw.uuid())?;
    let document = statement.update.upsert_document(&statement.filter, draw.object_id())?;
    let document = prepare(&document, draw)?.into_owned();
    let id: Bson = baton_storage::id_of(&document)?.try_into()?;
    storage.with_collection(namespace, |collection| {
        let Some(collection) = collection else {
            return Err(Error::new(
                ErrorCode::NamespaceNotFound,
                format!("collection {namespace} was dropped during the upsert"),
            ));
        };
        refuse_view(collection)?;
        if !statement.bypass_validation {
            validate(collection, &document, None)?;
        }
        let image = (statement.image == Image::After).then(|| document.clone());
        let mut transaction = Transaction::default();
        if let Err(error) =
            storage.insert(&mut transaction, collection, &document, retry.as_ref().map(|r| r.statement()))
        {
            storage.abandon(transaction);
            return Err(error);
        }
        if let Some(retry) = retry {
            let mut reply = rawdoc! { "n": 1, "nModified": 0 };
            reply.append(cstr!("upserted"), baton_storage::id_of(&document)?);
            retry.done(&mut transaction, with_image(reply, image.as_deref()));
        }
        let optime = storage.commit(transaction, durability);
        if let Some(retry) = retry {
            retry.record.last = optime;
        }
        Ok(Written { matched: 0, modified: 0, upserted: Some(id), optime, image })
    })
}
