//! Deletes, one document, all that match, or a batch of them.

use super::{Attempt, Image, Retry, Written, find, refuse_view, with_document, with_image};
use crate::Interrupt;
use crate::query::{Hint, QuerySpec};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::sort::SortPattern;
use baton_storage::{Collection, Durability, Storage};
use baton_types::{Namespace, Result};
use bson::rawdoc;
use std::sync::Arc;

/// A delete, parsed.
pub struct DeleteStatement {
    /// Which documents.
    pub filter: Arc<Matcher>,
    /// All of them, or one.
    pub multi: bool,
    /// By which path.
    pub hint: Option<Hint>,
    /// Which one, if several match.
    pub sort: Option<Arc<SortPattern>>,
    /// Whether to give the document back, if it is one: [`Image::Before`].
    pub image: Image,
}

/// Deletes.
pub fn delete(
    storage: &Arc<Storage>,
    namespace: &Namespace,
    statement: &DeleteStatement,
    context: &Arc<Context>,
    mut retry: Option<&mut Retry<'_>>,
    interrupt: Interrupt<'_>,
    durability: Durability,
) -> Result<Written> {
    loop {
        interrupt()?;
        let found = storage.with_collection(namespace, |collection| match collection {
            Some(collection) => {
                let limit = if statement.multi { None } else { Some(1) };
                delete_found(storage, collection, statement, limit, context, &mut retry, interrupt, durability)
            }
            None => Ok(Some(Written::default())),
        })?;
        if let Some(done) = found {
            return Ok(done);
        }
    }
}

/// Deletes at most `documents_max` of the documents that match, so that a long job holds nothing for long. Returns how
/// many went; fewer than asked for means that there are no more.
pub fn delete_batch(
    storage: &Arc<Storage>,
    namespace: &Namespace,
    statement: &DeleteStatement,
    documents_max: u64,
    context: &Arc<Context>,
    interrupt: Interrupt<'_>,
) -> Result<u64> {
    let (limit, durability) = (Some(documents_max), Durability::Applied);
    storage.with_collection(namespace, |collection| {
        let Some(collection) = collection else { return Ok(0) };
        let deleted = delete_found(storage, collection, statement, limit, context, &mut None, interrupt, durability)?;
        Ok(deleted.map_or(0, |written| written.modified))
    })
}

#[allow(clippy::too_many_arguments)]
fn delete_found(
    storage: &Arc<Storage>,
    collection: &Arc<Collection>,
    statement: &DeleteStatement,
    limit: Option<u64>,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
    interrupt: Interrupt<'_>,
    durability: Durability,
) -> Result<Option<Written>> {
    refuse_view(collection)?;
    let spec = QuerySpec {
        sort: statement.sort.clone(),
        hint: statement.hint.clone(),
        limit,
        ..QuerySpec::matching(Arc::clone(&statement.filter))
    };
    let found = find(storage, collection, spec, context, interrupt)?;
    let single = !statement.multi;
    let mut written = Written::default();
    let mut image = None;
    for record in &found.records {
        interrupt()?;
        let durability = if single { durability } else { Durability::Applied };
        let (attempt, optime) =
            with_document(storage, collection, record, &statement.filter, durability, |transaction, before, _| {
                storage.delete(transaction, collection, record, before, retry.as_ref().map(|r| r.statement()))?;
                image = (statement.image == Image::Before).then(|| before.to_owned());
                if let Some(retry) = retry {
                    retry.done(transaction, with_image(rawdoc! { "n": 1 }, image.as_deref()));
                }
                Ok(())
            })?;
        match attempt {
            Attempt::Done(()) => {
                written.matched += 1;
                written.modified += 1;
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
