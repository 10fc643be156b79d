//! Deletes, one document, all that match, or a batch of them.

use super::attempts::Attempts;
use super::{Changed, Image, Locked, Retry, Target, Work, Written, change_each};
use crate::query::Hint;
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::sort::SortPattern;
use baton_storage::{Collection, Statement};
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
    work: &Work<'_>,
    namespace: &Namespace,
    statement: &DeleteStatement,
    context: &Arc<Context>,
    mut retry: Option<&mut Retry<'_>>,
) -> Result<Written> {
    let mut attempts = Attempts::default();
    loop {
        attempts.begin(work.interrupt)?;
        let found = work.storage.with_collection(namespace, |collection| match collection {
            Some(collection) => {
                let limit = if statement.multi { None } else { Some(1) };
                delete_found(work, collection, statement, limit, context, &mut retry)
            }
            None => Ok(Some(Written::default())),
        })?;
        if let Some(done) = found {
            return Ok(done);
        }
    }
}

/// Deletes at most `documents_max` of the documents that match, so that a long job holds nothing for long. What is to match is
/// decided about the collection as it is then, and stays while the batch lasts. Returns how many went; fewer than asked for means
/// that there are no more.
pub fn delete_batch(
    work: &Work<'_>,
    namespace: &Namespace,
    decide: impl FnOnce(&Collection) -> Result<Option<DeleteStatement>>,
    documents_max: u64,
    context: &Arc<Context>,
) -> Result<u64> {
    work.storage.with_collection(namespace, |collection| {
        let Some(collection) = collection else { return Ok(0) };
        let Some(statement) = decide(collection)? else { return Ok(0) };
        let deleted = delete_found(work, collection, &statement, Some(documents_max), context, &mut None)?;
        Ok(deleted.map_or(0, |written| written.modified))
    })
}

/// Deletes what is there; `None` as [`change_each`] says.
fn delete_found(
    work: &Work<'_>,
    collection: &Arc<Collection>,
    statement: &DeleteStatement,
    limit: Option<u64>,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
) -> Result<Option<Written>> {
    let target = Target {
        filter: &statement.filter,
        sort: statement.sort.as_ref(),
        hint: statement.hint.as_ref(),
        limit,
        single: !statement.multi,
    };
    let reply = || rawdoc! { "n": 1 };
    change_each(work, collection, &target, context, retry, reply, |locked| {
        let Locked { transaction, record, before, statement: numbered, .. } = locked;
        let numbered = numbered.map(|numbered| Statement { image: statement.image.for_retry(), ..numbered });
        work.storage.delete(transaction, collection, record, before, numbered)?;
        let image = (statement.image == Image::Before).then(|| before.to_owned());
        Ok(Changed { modified: true, image })
    })
}
