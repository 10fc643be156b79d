//! Deletes: one document, or all that match.

use super::attempts::Attempts;
use super::many::{Guide, Matching, change_all};
use super::{Changed, Image, Locked, Retry, Target, Work, Written, change_one};
use crate::query::Hint;
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::sort::SortPattern;
use baton_storage::{Collection, Statement};
use baton_types::{Namespace, Result};
use bson::{RawDocumentBuf, rawdoc};
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
    if statement.multi {
        return delete_all(work, namespace, statement, Guide::to_the_end(), context, &mut retry);
    }
    let target = Target { filter: &statement.filter, sort: statement.sort.as_ref(), hint: statement.hint.as_ref() };
    let mut attempts = Attempts::default();
    loop {
        attempts.begin(&|| work.interruption.look())?;
        work.keep_pace()?;
        let found = work.storage.with_collection(namespace, |collection| match collection {
            Some(collection) => change_one(work, collection, &target, context, &mut retry, &reply, &mut |locked| {
                delete_locked(work, statement, locked)
            }),
            None => Ok(Some(Written::default())),
        })?;
        if let Some(done) = found {
            return Ok(done);
        }
    }
}

/// Deletes the documents that match as long as `goes_on` says so: it is asked every few documents, about the collection as it is then
/// and stays for these. `deleted` is told, every few documents, how many more went.
pub fn delete_while(
    work: &Work<'_>,
    namespace: &Namespace,
    statement: &DeleteStatement,
    goes_on: &dyn Fn(&Collection) -> Result<bool>,
    deleted: &mut dyn FnMut(u64),
    context: &Arc<Context>,
) -> Result<()> {
    delete_all(work, namespace, statement, Guide { goes_on, changed: Some(deleted) }, context, &mut None).map(|_| ())
}

fn delete_all(
    work: &Work<'_>,
    namespace: &Namespace,
    statement: &DeleteStatement,
    guide: Guide<'_>,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
) -> Result<Written> {
    let of = Matching { namespace, filter: &statement.filter, hint: statement.hint.as_ref(), moves: false };
    change_all(work, &of, context, retry, &reply, guide, &mut |locked| delete_locked(work, statement, locked))
}

fn reply() -> RawDocumentBuf {
    rawdoc! { "n": 1 }
}

fn delete_locked(work: &Work<'_>, of: &DeleteStatement, locked: Locked<'_>) -> Result<Changed> {
    let Locked { collection, transaction, record, before, statement: numbered, .. } = locked;
    let numbered = numbered.map(|numbered| Statement { image: of.image.for_retry(), ..numbered });
    work.storage.delete(transaction, collection, record, before, numbered)?;
    let image = (of.image == Image::Before).then(|| before.to_owned());
    Ok(Changed { modified: true, image })
}
