//! Changing documents: what insert, update, delete and findAndModify share.
//!
//! The way of a change: find a document with a query; lock it; read it again and ask the filter again, because it may
//! have changed; make the new document; hand the transaction to the commit queue. If the document no longer matches,
//! look for another. Conflicting writers therefore wait for each other's document and no one else does.

use crate::Interrupt;
use crate::access::Given;
use crate::host::Draw;
use crate::query::{Hint, Query, QuerySpec};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::sort::SortPattern;
use baton_query::update::{OplogUpdate, Update};
use baton_storage::{
    Collection, Durability, Inserted, RecordKey, SessionHandle, SessionRecord, Statement, Storage,
    Transaction,
};
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result};
use bson::raw::cstr;
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;

/// Largest document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

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
}

/// A document before and after, for findAndModify.
#[derive(Clone, Debug, Default)]
pub struct Images {
    /// As it was; absent for an upsert.
    pub before: Option<RawDocumentBuf>,
    /// As it is; absent for a delete.
    pub after: Option<RawDocumentBuf>,
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
        Statement { lsid: self.lsid, txn_number: self.record.txn_number, stmt_id: self.stmt_id, prev: self.record.last }
    }

    fn done(&mut self, transaction: &mut Transaction, reply: RawDocumentBuf) {
        self.record.add(transaction, self.handle, self.stmt_id, reply);
    }
}

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
}

impl UpdateStatement {
    /// An update of one document.
    pub fn one(filter: Arc<Matcher>, update: Update) -> Self {
        Self { filter, update, multi: false, upsert: false, hint: None, sort: None, bypass_validation: false }
    }
}

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
}

/// The document with its `_id` first, one drawn if it has none. Borrowed documents that are fine stay as they are.
pub fn prepare<'d>(document: &'d RawDocument, draw: &dyn Draw) -> Result<std::borrow::Cow<'d, RawDocument>> {
    check_size(document)?;
    let first = document.iter().next().transpose()?;
    let prepared = match first {
        Some((name, _)) if name.as_str() == "_id" => std::borrow::Cow::Borrowed(document),
        _ => std::borrow::Cow::Owned(with_id(document, draw)?),
    };
    if let Some(id) = prepared.get("_id")? {
        check_id(id)?;
    }
    Ok(prepared)
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

fn check_id(id: RawBsonRef<'_>) -> Result<()> {
    let kind = match id {
        RawBsonRef::Array(_) => "array",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::Document(document) => {
            for element in document {
                let (name, _) = element?;
                if name.as_str().starts_with('$') {
                    return Err(Error::new(
                        ErrorCode::DollarPrefixedFieldName,
                        format!(
                            "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                            name.as_str()
                        ),
                    ));
                }
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorCode::InvalidIdField, format!("The '_id' value cannot be of type {kind}")))
}

/// `DocumentValidationFailure` (121) unless the document satisfies the collection's validator.
fn validate(collection: &Collection, document: &RawDocument, before: Option<&RawDocument>) -> Result<()> {
    let (Some(validator), Some((_, strict))) = (&collection.validator, &collection.options.validator) else {
        return Ok(());
    };
    if validator.matches(document)? {
        return Ok(());
    }
    if collection.options.validation_moderate
        && let Some(before) = before
        && !validator.matches(before)?
    {
        return Ok(());
    }
    if !strict {
        tracing::warn!(component = "STORAGE", namespace = %collection.namespace, "Document would fail validation");
        return Ok(());
    }
    let mut details = RawDocumentBuf::new();
    if let Some(id) = document.get("_id")? {
        details.append(cstr!("failingDocumentId"), id);
    }
    details.append(cstr!("details"), rawdoc! { "operatorName": "$validator" });
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
    if collection.kind == baton_storage::CollectionKind::Oplog {
        return Err(Error::new(ErrorCode::InvalidNamespace, format!("cannot write to {}", collection.namespace)));
    }
    Ok(())
}

/// Documents inserted together reach the commit queue together, up to this many.
const INSERT_BATCH_DOCUMENTS: usize = 128;
const INSERT_BATCH_BYTES: usize = 1024 * 1024;

/// Inserts documents in order. Each failure is reported with its place; the first ends it if `ordered`.
///
/// `first_stmt` gives the number of each document's statement, for a retryable write. Returns how many were inserted and
/// the last OpTime.
#[allow(clippy::too_many_arguments)]
pub fn insert_many(
    storage: &Storage,
    namespace: &Namespace,
    documents: &mut dyn Iterator<Item = (usize, &RawDocument, i32)>,
    ordered: bool,
    bypass_validation: bool,
    mut retry: Option<Retry<'_>>,
    draw: &dyn Draw,
    durability: Durability,
    interrupt: Interrupt<'_>,
    failed: &mut dyn FnMut(usize, Error),
) -> Result<(u64, OpTime)> {
    let collection = storage.collection_or_create(namespace, || draw.uuid())?;
    refuse_view(&collection)?;
    let mut inserted = 0;
    let mut last = OpTime::ZERO;
    let mut documents = documents.peekable();
    while documents.peek().is_some() {
        interrupt()?;
        // The collection may be dropped between two batches; then it is made anew.
        storage.collection_or_create(namespace, || draw.uuid())?;
        let outcome = storage.with_collection(namespace, |collection| -> Result<bool> {
            let Some(collection) = collection else { return Ok(true) };
            let mut transaction = Transaction::default();
            let mut count = 0;
            let mut stop = false;
            while let Some((at, document, stmt_id)) = documents.peek().copied() {
                if count == INSERT_BATCH_DOCUMENTS || transaction.bytes() > INSERT_BATCH_BYTES {
                    break;
                }
                if let Some(retry) = &mut retry {
                    retry.stmt_id = stmt_id;
                }
                let added = prepare(document, draw).and_then(|prepared| {
                    if !bypass_validation {
                        validate(collection, &prepared, None)?;
                    }
                    storage.insert(&mut transaction, collection, &prepared, retry.as_ref().map(Retry::statement))
                });
                match added {
                    Ok(Inserted::Added) => {
                        count += 1;
                        documents.next();
                        if let Some(retry) = &mut retry {
                            retry.done(&mut transaction, rawdoc! { "n": 1 });
                        }
                    }
                    Ok(Inserted::CommitFirst) => break,
                    Err(error) => {
                        documents.next();
                        failed(at, error);
                        stop = ordered;
                        if stop {
                            break;
                        }
                    }
                }
            }
            if transaction.is_empty() {
                storage.abandon(transaction);
            } else {
                // With more to come only the last batch waits for the disk; a sync covers all before it.
                let durability = if documents.peek().is_some() && !stop { Durability::Applied } else { durability };
                last = storage.commit(transaction, durability);
                if let Some(retry) = &mut retry {
                    retry.record.last = last;
                }
            }
            inserted += count as u64;
            Ok(!stop)
        })?;
        if !outcome {
            break;
        }
    }
    Ok((inserted, last))
}

/// Inserts one document.
pub fn insert_one(
    storage: &Storage,
    namespace: &Namespace,
    document: &RawDocument,
    draw: &dyn Draw,
    durability: Durability,
) -> Result<OpTime> {
    let mut failure = None;
    let mut documents = std::iter::once((0, document, 0));
    let (_, optime) = insert_many(
        storage,
        namespace,
        &mut documents,
        true,
        false,
        None,
        draw,
        durability,
        &|| Ok(()),
        &mut |_, error| failure = Some(error),
    )?;
    failure.map_or(Ok(optime), Err)
}

/// The record keys of all documents a statement concerns: all at once, so that a document which moves in the index it is
/// found by is not found twice.
fn find_records(
    storage: &Arc<Storage>,
    collection: &Arc<Collection>,
    spec: QuerySpec,
    context: &Arc<Context>,
    interrupt: Interrupt<'_>,
) -> Result<Vec<RecordKey>> {
    let mut records = Vec::new();
    let mut query = Query::new(storage, Some(Arc::clone(collection)), spec, Arc::clone(context))?;
    while query.run(interrupt, &mut |record, _| {
        records.push(RecordKey::from_slice(record));
        Ok(Given::Taken)
    })? {}
    Ok(records)
}

/// What became of one document under its lock.
enum Attempt<T> {
    Done(T),
    /// It is gone, or no longer matches.
    Gone,
}

/// Locks a document, reads it, asks the filter, and lets `change` fill the transaction; commits what it filled in.
fn with_document<T>(
    storage: &Storage,
    collection: &Arc<Collection>,
    record: &[u8],
    filter: &Matcher,
    durability: Durability,
    change: impl FnOnce(&mut Transaction, &RawDocument, Option<&baton_query::matcher::MatchDetails>) -> Result<T>,
) -> Result<(Attempt<T>, OpTime)> {
    let mut transaction = Transaction::default();
    storage.lock_document(&mut transaction, collection, record);
    let attempt = (|| {
        let Some(bytes) = storage.get(collection, record)? else { return Ok(Attempt::Gone) };
        let before = baton_storage::stored_document(&bytes)?;
        let Some(details) = filter.matches_with_position(before)? else { return Ok(Attempt::Gone) };
        change(&mut transaction, before, Some(&details)).map(Attempt::Done)
    })();
    match attempt {
        Ok(attempt) if !transaction.is_empty() => Ok((attempt, storage.commit(transaction, durability))),
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

/// Updates. With images only for a single document.
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
) -> Result<(Written, Images)> {
    loop {
        interrupt()?;
        let found = storage.with_collection(namespace, |collection| match collection {
            Some(collection) => {
                update_found(storage, collection, statement, context, &mut retry, interrupt, durability)
            }
            None => Ok(Some((Written::default(), Images::default()))),
        })?;
        let Some((written, images)) = found else { continue };
        if written.matched > 0 || !statement.upsert {
            return Ok((written, images));
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
#[allow(clippy::type_complexity)]
fn update_found(
    storage: &Arc<Storage>,
    collection: &Arc<Collection>,
    statement: &UpdateStatement,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
    interrupt: Interrupt<'_>,
    durability: Durability,
) -> Result<Option<(Written, Images)>> {
    refuse_view(collection)?;
    let spec = QuerySpec {
        sort: statement.sort.clone(),
        hint: statement.hint.clone(),
        limit: if statement.multi { None } else { Some(1) },
        ..QuerySpec::matching(Arc::clone(&statement.filter))
    };
    let records = find_records(storage, collection, spec, context, interrupt)?;
    let mut written = Written::default();
    let mut images = Images::default();
    let single = !statement.multi;
    for record in &records {
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
                    if single {
                        images = Images { before: Some(before.to_owned()), after: Some(before.to_owned()) };
                    }
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
                if let Some(retry) = retry {
                    let reply = rawdoc! { "n": 1, "nModified": 1 };
                    let reply = with_images(reply, single.then_some((Some(before), Some(&*after))));
                    retry.done(transaction, reply);
                }
                if single {
                    images = Images { before: Some(before.to_owned()), after: Some(after) };
                }
                Ok(true)
            },
        )?;
        match attempt {
            Attempt::Done(changed) => {
                written.matched += 1;
                written.modified += u64::from(changed);
            }
            Attempt::Gone if single => return Ok(None),
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
    Ok(Some((written, images)))
}

/// The images a retried findAndModify needs to answer again.
fn with_images(
    mut reply: RawDocumentBuf,
    images: Option<(Option<&RawDocument>, Option<&RawDocument>)>,
) -> RawDocumentBuf {
    if let Some((before, after)) = images {
        if let Some(before) = before {
            reply.append(cstr!("before"), before.to_owned());
        }
        if let Some(after) = after {
            reply.append(cstr!("after"), after.to_owned());
        }
    }
    reply
}

fn upsert(
    storage: &Arc<Storage>,
    namespace: &Namespace,
    statement: &UpdateStatement,
    draw: &dyn Draw,
    retry: &mut Option<&mut Retry<'_>>,
    durability: Durability,
) -> Result<(Written, Images)> {
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
            retry.done(&mut transaction, with_images(reply, Some((None, Some(&document)))));
        }
        let optime = storage.commit(transaction, durability);
        if let Some(retry) = retry {
            retry.record.last = optime;
        }
        let written = Written { matched: 0, modified: 0, upserted: Some(id), optime };
        Ok((written, Images { before: None, after: Some(document) }))
    })
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
) -> Result<(Written, Images)> {
    loop {
        interrupt()?;
        let found = storage.with_collection(namespace, |collection| match collection {
            Some(collection) => {
                let limit = if statement.multi { None } else { Some(1) };
                delete_found(storage, collection, statement, limit, context, &mut retry, interrupt, durability)
            }
            None => Ok(Some((Written::default(), Images::default()))),
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
        Ok(deleted.map_or(0, |(written, _)| written.modified))
    })
}

#[allow(clippy::type_complexity, clippy::too_many_arguments)]
fn delete_found(
    storage: &Arc<Storage>,
    collection: &Arc<Collection>,
    statement: &DeleteStatement,
    limit: Option<u64>,
    context: &Arc<Context>,
    retry: &mut Option<&mut Retry<'_>>,
    interrupt: Interrupt<'_>,
    durability: Durability,
) -> Result<Option<(Written, Images)>> {
    refuse_view(collection)?;
    let spec = QuerySpec {
        sort: statement.sort.clone(),
        hint: statement.hint.clone(),
        limit,
        ..QuerySpec::matching(Arc::clone(&statement.filter))
    };
    let records = find_records(storage, collection, spec, context, interrupt)?;
    let single = !statement.multi;
    let mut written = Written::default();
    let mut images = Images::default();
    for record in &records {
        interrupt()?;
        let durability = if single { durability } else { Durability::Applied };
        let (attempt, optime) =
            with_document(storage, collection, record, &statement.filter, durability, |transaction, before, _| {
                storage.delete(transaction, collection, record, before, retry.as_ref().map(|r| r.statement()))?;
                if let Some(retry) = retry {
                    retry.done(transaction,
                        with_images(rawdoc! { "n": 1 }, single.then_some((Some(before), None))),
                    );
                }
                if single {
                    images.before = Some(before.to_owned());
                }
                Ok(())
            })?;
        match attempt {
            Attempt::Done(()) => {
                written.matched += 1;
                written.modified += 1;
            }
            Attempt::Gone if single => return Ok(None),
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
    Ok(Some((written, images)))
}
