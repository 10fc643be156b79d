//! Changing documents: what insert, update, delete and findAndModify share.
//!
//! The way of a change: find a document with a query; lock it; read it again and ask the filter again, because it may
//! have changed; make the new document; hand the transaction to the commit queue. If the document no longer matches,
//! look for another. Conflicting writers therefore wait for each other's document and no one else does. What concerns many documents
//! goes in slices ([`many`]).

mod attempts;
mod delete;
mod insert;
mod many;
mod update;

pub use delete::{DeleteStatement, delete, delete_while};
pub use insert::{InsertRules, insert_many, insert_one};
pub use update::{UpdateStatement, update};

use crate::Interruption;
use crate::access::Given;
use crate::draw::Draw;
use crate::query::{Hint, Query, QuerySpec};
use baton_query::Context;
use baton_query::matcher::{MatchDetails, Matcher, violation};
use baton_query::planner;
use baton_query::sort::SortPattern;
use baton_query::update::check_id;
use baton_storage::{
    Author, Begun, Collection, CollectionKind, Durability, Placed, RecordKey, RetryImage, SessionHandle, SessionRecord,
    Statement, Storage, Throttle, Transaction, Writer, record_key,
};
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::raw::cstr;
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// Largest document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What every write is carried out with.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// Where.
    pub storage: &'a Arc<Storage>,
    /// What draws identifiers and times.
    pub draw: &'a dyn Draw,
    /// What ends it early.
    pub interruption: &'a Arc<Interruption>,
    /// How safe it is when it returns.
    pub durability: Durability,
    /// How far what it writes runs ahead of the set.
    pub throttle: &'a Throttle,
    /// On whose behalf.
    pub author: &'a Author,
    /// Where the last transaction goes instead of being waited for, by who writes one document, or one batch, and then only answers.
    pub left: Option<&'a Cell<Option<Placed>>>,
}

impl<'a> Work<'a> {
    fn writer(&self) -> Writer<'a> {
        self.storage.by(self.author)
    }

    fn transaction(&self) -> Transaction {
        self.writer().interruptible_transaction(self.interruption)
    }

    fn commit(&self, transaction: Transaction, durability: Durability) -> Result<OpTime> {
        self.throttle.commit(self.writer(), transaction, durability)
    }

    /// [`Self::commit`] of the last transaction. Zero, if it is not waited for here.
    fn commit_last(&self, transaction: Transaction, durability: Durability) -> Result<OpTime> {
        let Some(left) = self.left else { return self.commit(transaction, durability) };
        match self.throttle.place(self.writer(), transaction, durability)? {
            Begun::Committed(optime) => Ok(optime),
            Begun::Placed(placed) => {
                left.set(Some(placed));
                Ok(OpTime::ZERO)
            }
        }
    }

    /// Waits until it may go on writing; for who holds nothing that others wait for.
    fn keep_pace(&self) -> Result<()> {
        self.throttle.wait(self.writer(), &|| self.interruption.look())
    }
}

/// What an update or delete did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// Documents that matched.
    pub matched: u64,
    /// Documents that changed (deleted, for a delete).
    pub modified: u64,
    /// The `_id` of the document an upsert inserted.
    pub upserted: Option<Bson>,
    /// OpTime of the last change; zero if there was none.
    pub optime: OpTime,
    /// The one document it concerned, as it was or is, if the statement asks for it.
    pub image: Option<RawDocumentBuf>,
}

impl Written {
    /// Adds what became of a document, or that it was none.
    fn add(&mut self, changed: Option<Changed>, optime: OpTime, retry: &mut Option<&mut Retry<'_>>) {
        if let Some(Changed { modified, image }) = changed {
            self.matched += 1;
            self.modified += u64::from(modified);
            self.image = image;
        }
        if optime > self.optime {
            self.optime = optime;
            if let Some(retry) = retry {
                retry.record.last = optime;
            }
        }
    }
}

/// Which state of the one document a statement concerns it gives back, for findAndModify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Image {
    /// Neither.
    #[default]
    None,
    /// As it was; there is none for an upsert.
    Before,
    /// As it is; there is none for a delete.
    After,
}

impl Image {
    /// As a statement's oplog entry says it.
    fn for_retry(self) -> Option<RetryImage> {
        match self {
            Self::None => None,
            Self::Before => Some(RetryImage::Before),
            Self::After => Some(RetryImage::After),
        }
    }
}

/// Makes writes retryable: the session's record, held while the command runs.
pub struct Retry<'a> {
    /// The session.
    pub handle: &'a SessionHandle,
    /// Its record.
    pub record: &'a mut SessionRecord,
    /// The session as it goes into the oplog.
    pub lsid: &'a RawDocument,
    /// The statement being carried out.
    pub stmt_id: i32,
}

impl Retry<'_> {
    fn statement(&self) -> Statement<'_> {
        Statement {
            lsid: self.lsid,
            txn_number: self.record.txn_number,
            stmt_id: self.stmt_id,
            prev: self.record.last,
            image: None,
        }
    }

    fn done(&mut self, transaction: &mut Transaction, reply: RawDocumentBuf) {
        self.record.add(transaction, self.handle, self.stmt_id, reply);
    }

    /// Forgets what [`Self::done`] noted for a transaction that was refused.
    fn undo(&mut self, storage: &Storage) -> Result<()> {
        self.record.undo(storage, self.handle)
    }

    /// Takes in how the transaction went that [`Self::done`] noted statements in.
    fn committed(&mut self, storage: &Storage, outcome: Result<OpTime>) -> Result<OpTime> {
        match &outcome {
            // What is not waited for is noted when it is committed.
            Ok(optime) => self.record.last = self.record.last.max(*optime),
            Err(_) => self.undo(storage)?,
        }
        outcome
    }
}

/// The document with its `_id` first, one drawn if it has none. Borrowed documents that are fine stay as they are.
pub fn prepare<'d>(document: &'d RawDocument, draw: &dyn Draw) -> Result<Cow<'d, RawDocument>> {
    check_size(document)?;
    let first = document.iter().next().transpose()?;
    let prepared = match first {
        Some((name, _)) if name.as_str() == "_id" => Cow::Borrowed(document),
        _ => Cow::Owned(with_id(document, draw)?),
    };
    if let Some(id) = prepared.get("_id")? {
        check_id(id)?;
    }
    Ok(prepared)
}

/// The document with the time of now in place of each empty timestamp at its top, except in `_id`; as it is, if it has
/// none.
pub fn fill_timestamps<'d>(document: Cow<'d, RawDocument>, draw: &dyn Draw) -> Result<Cow<'d, RawDocument>> {
    const EMPTY: RawBsonRef<'_> = RawBsonRef::Timestamp(bson::Timestamp { time: 0, increment: 0 });
    let is_empty = |name: &str, value: RawBsonRef<'_>| value == EMPTY && name != "_id";
    let mut found = false;
    for element in &*document {
        let (name, value) = element?;
        found |= is_empty(name.as_str(), value);
    }
    if !found {
        return Ok(document);
    }
    let mut filled = RawDocumentBuf::new();
    for element in &*document {
        let (name, value) = element?;
        if is_empty(name.as_str(), value) {
            filled.append(name, draw.timestamp());
        } else {
            filled.append(name, value);
        }
    }
    Ok(Cow::Owned(filled))
}

/// The document with its `_id` in front, drawn if there is none.
pub fn with_id(document: &RawDocument, draw: &dyn Draw) -> Result<RawDocumentBuf> {
    let mut out = RawDocumentBuf::new();
    match document.get("_id")? {
        Some(id) => out.append(cstr!("_id"), id),
        None => out.append(cstr!("_id"), draw.object_id()),
    }
    for element in document {
        let (name, value) = element?;
        if name.as_str() != "_id" {
            out.append(name, value);
        }
    }
    Ok(out)
}

fn check_size(document: &RawDocument) -> Result<()> {
    let size = document.as_bytes().len();
    if size > DOCUMENT_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::BSONObjectTooLarge,
            format!("object to insert too large. size in bytes: {size}, max size: {DOCUMENT_BYTES_MAX}"),
        ));
    }
    Ok(())
}

/// `DocumentValidationFailure` (121) unless the document satisfies the collection's validator.
fn validate(
    collection: &Collection,
    document: &RawDocument,
    before: Option<&RawDocument>,
    asked: &Arc<Interruption>,
) -> Result<()> {
    let (Some(validator), Some((source, strict))) = (&collection.validator, &collection.options.validator) else {
        return Ok(());
    };
    let conforms = |document| match validator.matches_asking(document, asked) {
        Ok(conforms) => Ok(conforms),
        // What cannot be evaluated does not conform, unless there is no time for it.
        Err(_) => asked.look().map(|()| false),
    };
    if conforms(document)? {
        return Ok(());
    }
    if collection.options.validation_moderate
        && let Some(before) = before
        && !conforms(before)?
    {
        return Ok(());
    }
    let mut context = Context::new(bson::DateTime::now(), 0);
    context.interruption = Arc::clone(asked);
    let details = violation(source, document, &context)?;
    if !strict {
        let details = bson::Document::try_from(&*details)?;
        tracing::warn!(
            component = "STORAGE",
            namespace = %collection.namespace,
            errInfo = %details,
            "Document would fail validation"
        );
        return Ok(());
    }
    let mut info = RawDocumentBuf::new();
    info.append(cstr!("errInfo"), details);
    Err(Error::new(ErrorCode::DocumentValidationFailure, "Document failed validation").with_info(info))
}

fn refuse_view(collection: &Collection) -> Result<()> {
    if collection.options.view.is_some() {
        return Err(Error::new(
            ErrorCode::CommandNotSupportedOnView,
            format!("Namespace {} is a view, not a collection", collection.namespace),
        ));
    }
    // The configuration as it is: changed by replSetReconfig alone.
    if collection.kind == CollectionKind::Oplog || collection.namespace.as_str() == "local.system.replset" {
        return Err(Error::new(ErrorCode::InvalidNamespace, format!("cannot write to {}", collection.namespace)));
    }
    Ok(())
}

/// Which document a statement concerns: one that matches.
struct Target<'a> {
    filter: &'a Arc<Matcher>,
    sort: Option<&'a Arc<SortPattern>>,
    hint: Option<&'a Hint>,
}

/// The document that a statement concerns.
struct Found {
    record: Option<RecordKey>,
    /// Whether this is all there can be, unseen: the filter is an `_id`. Then a document that is not there, or no
    /// longer matches under its lock, means that there is none; else another may match in its place.
    is_final: bool,
}

fn find(work: &Work<'_>, collection: &Arc<Collection>, target: &Target<'_>, context: &Arc<Context>) -> Result<Found> {
    let by_id = planner::sole_id(target.filter).filter(|_| target.hint.is_none());
    if let Some(id) = by_id.filter(|_| collection.kind == CollectionKind::Clustered) {
        return Ok(Found { record: Some(record_key(id)?), is_final: true });
    }
    let spec = QuerySpec {
        sort: target.sort.cloned(),
        hint: target.hint.cloned(),
        limit: Some(1),
        ..QuerySpec::matching(Arc::clone(target.filter))
    };
    let mut record = None;
    // The collection is held meanwhile.
    let mut query = Query::new(work.storage, Some(Arc::clone(collection)), spec, Arc::clone(context))?.restless();
    query.run(&|| work.interruption.look(), &mut |key, _| {
        record = Some(RecordKey::from_slice(key));
        Ok(Given::TakenLast)
    })?;
    Ok(Found { record, is_final: false })
}

/// One document under its lock, and the transaction that is to change it.
struct Locked<'a> {
    collection: &'a Arc<Collection>,
    transaction: &'a mut Transaction,
    record: &'a RecordKey,
    before: &'a RawDocument,
    details: &'a MatchDetails,
    statement: Option<Statement<'a>>,
}

/// What became of a document that matched.
struct Changed {
    /// Whether it differs from what it was.
    modified: bool,
    /// What the statement gives back of it.
    image: Option<RawDocumentBuf>,
}

/// Finds a document of `target` and lets `change` fill a transaction for it; `None` if the one found was changed by another writer
/// meanwhile, so that it is to be looked for again. `reply` is what a retry answers.
fn change_one(
    work: &Work<'_>,
    collection: &Arc<Collection>,
    target: &Target<'_>,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
    reply: &dyn Fn() -> RawDocumentBuf,
    change: &mut dyn FnMut(Locked<'_>) -> Result<Changed>,
) -> Result<Option<Written>> {
    refuse_view(collection)?;
    let found = find(work, collection, target, context)?;
    let mut written = Written::default();
    let Some(record) = &found.record else { return Ok(Some(written)) };
    let (changed, optime) = change_record(work, collection, record, target.filter, retry, reply, change)?;
    if changed.is_none() && !found.is_final {
        return Ok(None);
    }
    written.add(changed, optime, retry);
    Ok(Some(written))
}

/// Lets `change` fill a transaction for one document, which is locked, and notes what a retry answers; commits it. `None` if the
/// document is gone, or no longer matches.
fn change_record(
    work: &Work<'_>,
    collection: &Arc<Collection>,
    record: &RecordKey,
    filter: &Matcher,
    retry: &mut Option<&mut Retry<'_>>,
    reply: &dyn Fn() -> RawDocumentBuf,
    change: &mut dyn FnMut(Locked<'_>) -> Result<Changed>,
) -> Result<(Option<Changed>, OpTime)> {
    let mut is_noted = false;
    let outcome = loop {
        work.interruption.look()?;
        let outcome = with_document(work, collection, record, filter, |transaction, before, details| {
            let statement = retry.as_ref().map(|retry| retry.statement());
            let changed = change(Locked { collection, transaction, record, before, details, statement })?;
            if let Some(retry) = retry.as_mut().filter(|_| changed.modified) {
                retry.done(transaction, with_image(reply(), changed.image.as_deref()));
                is_noted = true;
            }
            Ok(changed)
        });
        // A key that another writer holds for long: begin again, unless this is not wanted any more.
        if !matches!(&outcome, Err(error) if error.code == ErrorCode::WriteConflict) {
            break outcome;
        }
    };
    if outcome.is_err()
        && let Some(retry) = retry.as_mut().filter(|_| is_noted)
    {
        retry.undo(work.storage)?;
    }
    outcome
}

/// Locks a document, reads it, asks the filter, and lets `change` fill the transaction; commits what it filled in.
/// `None` if the document is gone, or no longer matches.
fn with_document<T>(
    work: &Work<'_>,
    collection: &Arc<Collection>,
    record: &[u8],
    filter: &Matcher,
    change: impl FnOnce(&mut Transaction, &RawDocument, &MatchDetails) -> Result<T>,
) -> Result<(Option<T>, OpTime)> {
    let storage = work.storage;
    let mut transaction = work.transaction();
    while !storage.lock_document(&mut transaction, collection, record) {
        work.interruption.look()?;
    }
    let attempt = (|| {
        let Some(bytes) = storage.get_locked(collection, record)? else { return Ok(None) };
        let before = baton_storage::stored_document(&bytes)?;
        let Some(details) = filter.matches_with_position(before)? else { return Ok(None) };
        baton_storage::crash_point!("write-under-lock");
        change(&mut transaction, before, &details).map(Some)
    })();
    match attempt {
        Ok(attempt) if !transaction.is_empty() => Ok((attempt, work.commit_last(transaction, work.durability)?)),
        Ok(attempt) => {
            storage.abandon(transaction);
            Ok((attempt, OpTime::ZERO))
        }
        Err(error) => {
            storage.abandon(transaction);
            Err(error)
        }
    }
}

/// What a retried findAndModify needs to answer again.
fn with_image(mut reply: RawDocumentBuf, image: Option<&RawDocument>) -> RawDocumentBuf {
    if let Some(image) = image {
        reply.append(cstr!("image"), image);
    }
    reply
}
