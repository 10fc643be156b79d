//! Updates and upserts.

use super::attempts::Attempts;
use super::many::{Guide, Matching, change_all};
use super::{
    Changed, Image, Locked, Retry, Target, Work, Written, change_one, check_size, prepare, refuse_view, validate,
    with_image,
};
use crate::query::Hint;
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::sort::SortPattern;
use baton_query::update::{OplogUpdate, Update};
use baton_storage::{Inserted, RetryImage, Statement};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::cstr;
use bson::{Bson, RawDocument, RawDocumentBuf, rawdoc};
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
    /// What an upsert inserts, in place of what the update makes of the filter.
    pub supplied: Option<RawDocumentBuf>,
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
            supplied: None,
            bypass_validation: false,
            image: Image::None,
        }
    }
}

/// Updates.
pub fn update(
    work: &Work<'_>,
    namespace: &Namespace,
    statement: &UpdateStatement,
    context: &Arc<Context>,
    mut retry: Option<&mut Retry<'_>>,
) -> Result<Written> {
    let mut attempts = Attempts::default();
    loop {
        attempts.begin(&|| work.interruption.look())?;
        work.keep_pace()?;
        let Some(written) = update_found(work, namespace, statement, context, &mut retry)? else { continue };
        if written.matched > 0 || !statement.upsert {
            return Ok(written);
        }
        match upsert(work, namespace, statement, &mut retry) {
            // Somebody inserted what would have matched: then it is an update after all.
            Err(error) if attempts.may_repeat_upsert(statement, &error) => {}
            upserted => return upserted,
        }
    }
}

/// Updates what is there; `None` as [`change_one`] says.
fn update_found(
    work: &Work<'_>,
    namespace: &Namespace,
    statement: &UpdateStatement,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
) -> Result<Option<Written>> {
    let reply = || rawdoc! { "n": 1, "nModified": 1 };
    let mut change = |locked: Locked<'_>| update_locked(work, statement, locked);
    if statement.multi {
        let of = Matching { namespace, filter: &statement.filter, hint: statement.hint.as_ref(), moves: true };
        let guide = Guide::to_the_end();
        return change_all(work, &of, context, retry, &reply, guide, &mut change).map(Some);
    }
    let target = Target { filter: &statement.filter, sort: statement.sort.as_ref(), hint: statement.hint.as_ref() };
    work.storage.with_collection(namespace, |collection| match collection {
        Some(collection) => change_one(work, collection, &target, context, retry, &reply, &mut change),
        None => Ok(Some(Written::default())),
    })
}

fn update_locked(work: &Work<'_>, of: &UpdateStatement, locked: Locked<'_>) -> Result<Changed> {
    let Locked { collection, transaction, record, before, details, statement: numbered } = locked;
    let applied = of.update.apply(before, Some(details))?;
    let Some(after) = applied.document else {
        let image = (of.image != Image::None).then(|| before.to_owned());
        return Ok(Changed { modified: false, image });
    };
    check_size(&after)?;
    if !of.bypass_validation {
        validate(collection, &after, Some(before), work.interruption)?;
    }
    let change: &RawDocument = match &applied.oplog {
        OplogUpdate::Delta(delta) => delta,
        OplogUpdate::Replacement | OplogUpdate::Unchanged => &after,
    };
    let numbered = numbered.map(|numbered| Statement { image: of.image.for_retry(), ..numbered });
    work.storage.update(transaction, collection, record, (before, &after), change, numbered)?;
    let image = match of.image {
        Image::None => None,
        Image::Before => Some(before.to_owned()),
        Image::After => Some(after),
    };
    Ok(Changed { modified: true, image })
}

fn upsert(
    work: &Work<'_>,
    namespace: &Namespace,
    statement: &UpdateStatement,
    retry: &mut Option<&mut Retry<'_>>,
) -> Result<Written> {
    let Work { storage, draw, .. } = *work;
    work.writer().collection_or_create(namespace, || draw.uuid())?;
    let document = match &statement.supplied {
        Some(document) => document.clone(),
        None => statement.update.upsert_document(&statement.filter, draw.object_id())?,
    };
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
            validate(collection, &document, None, work.interruption)?;
        }
        let image = (statement.image == Image::After).then(|| document.clone());
        let mut transaction = work.transaction();
        let of_insert = image.as_ref().map(|_| RetryImage::After);
        let numbered = retry.as_ref().map(|retry| Statement { image: of_insert, ..retry.statement() });
        while storage.insert(&mut transaction, collection, &document, numbered)? == Inserted::CommitFirst {
            transaction = work.transaction();
            work.interruption.look()?;
        }
        if let Some(retry) = retry {
            let mut reply = rawdoc! { "n": 1, "nModified": 0 };
            reply.append(cstr!("upserted"), baton_storage::id_of(&document)?);
            retry.done(&mut transaction, with_image(reply, image.as_deref()));
        }
        let outcome = work.commit_last(transaction, work.durability);
        let optime = match retry {
            Some(retry) => retry.committed(storage, outcome),
            None => outcome,
        }?;
        Ok(Written { matched: 0, modified: 0, upserted: Some(id), optime, image })
    })
}
