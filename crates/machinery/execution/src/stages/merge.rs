//! `$merge`: each document into another collection, by what it finds there.
//!
//! Source: MongoDB manual, "$merge (aggregation)"; `DocumentSourceMerge` for the codes and the order of failures.
//!
//! Invariants: a document is looked for by its `on` fields alone, and gets an `_id` only where `_id` is one of them; of a
//! batch every document is written that can be, and the first failure ends the aggregation when the batch is done.
//! What it deliberately does not do: write a batch in one transaction, as MongoDB does not either.

use crate::host::StorageHost;
use crate::write::{self, InsertRules, UpdateStatement};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::pipeline::{Flow, MergeSpec, Stage, WhenMatched, WhenNotMatched};
use baton_query::update::Update;
use baton_storage::{IndexState, Throttle};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::{CStr, CString, cstr};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;

/// Documents and bytes in a batch, at the most, as in MongoDB.
const BATCH_DOCUMENTS: usize = 100_000;
const BATCH_BYTES: usize = write::DOCUMENT_BYTES_MAX;

/// See the file's header.
pub(crate) struct Merge {
    host: StorageHost,
    spec: Arc<MergeSpec>,
    context: Arc<Context>,
    target: Namespace,
    on: Vec<String>,
    batch: Batch,
    throttle: Throttle,
}

/// What became of the batch so far.
#[derive(Default)]
struct Batch {
    documents: usize,
    bytes: usize,
    failure: Option<Error>,
}

impl Merge {
    pub fn new(host: StorageHost, spec: Arc<MergeSpec>, context: Arc<Context>) -> Result<Self> {
        let target = host.namespace(&spec.target)?;
        let on = spec.on.clone().unwrap_or_else(|| vec!["_id".to_owned()]);
        if on != ["_id"] && !is_unique(&host, &target, &on) {
            return Err(Error::location(51183, "Cannot find index to verify that join fields will be unique"));
        }
        Ok(Self { host, spec, context, target, on, batch: Batch::default(), throttle: Throttle::default() })
    }

    /// What the document's partner must equal.
    fn filter(&self, document: &RawDocument) -> Result<Arc<Matcher>> {
        let mut filter = RawDocumentBuf::new();
        for field in &self.on {
            let mut equals = RawDocumentBuf::new();
            equals.append(cstr!("$eq"), on_value(document, field)?);
            filter.append(CString::try_from(field.as_str())?, equals);
        }
        Ok(Arc::new(Matcher::parse(&filter, &self.context)?))
    }

    fn write(&self, document: &RawDocument, filter: Arc<Matcher>) -> Result<()> {
        let Some(update) = self.update(document)? else { return self.insert(document) };
        let statement = UpdateStatement {
            upsert: self.spec.when_not_matched == WhenNotMatched::Insert,
            // What a pipeline makes of a document that is there says nothing about one that is not.
            supplied: matches!(self.spec.when_matched, WhenMatched::Pipeline(_)).then(|| document.to_owned()),
            bypass_validation: self.host.bypass_validation,
            ..UpdateStatement::one(filter, update)
        };
        let written = write::update(&self.host.work(&self.throttle), &self.target, &statement, &self.context, None)?;
        if written.matched == 0 && self.spec.when_not_matched == WhenNotMatched::Fail {
            return Err(Error::new(
                ErrorCode::MergeStageNoMatchingDocument,
                "$merge could not find a matching document in the target collection for at least one document in the \
                 source collection",
            ));
        }
        Ok(())
    }

    /// The unique index that is to find a partner refuses the insert, and says which key it was.
    fn insert(&self, document: &RawDocument) -> Result<()> {
        let rules =
            InsertRules { ordered: true, bypass_validation: self.host.bypass_validation, keeps_empty_timestamps: true };
        let mut failure = None;
        let mut documents = std::iter::once((0, document, 0));
        let work = self.host.work(&self.throttle);
        write::insert_many(&work, &self.target, &mut documents, rules, None, &mut |_, error| failure = Some(error))?;
        failure.map_or(Ok(()), Err)
    }

    /// What becomes of the partner; `None` if there may be none.
    fn update(&self, document: &RawDocument) -> Result<Option<Update>> {
        let none: [RawDocumentBuf; 0] = [];
        let operator = |name: &CStr| {
            let mut update = RawDocumentBuf::new();
            update.append(name, document);
            Update::parse(RawBsonRef::Document(&update), &none, &self.context).map(Some)
        };
        match &self.spec.when_matched {
            WhenMatched::Fail => Ok(None),
            WhenMatched::KeepExisting => operator(cstr!("$setOnInsert")),
            // The `_id` too: it may not be another than the partner's.
            WhenMatched::Merge => operator(cstr!("$set")),
            WhenMatched::Replace => Update::parse(RawBsonRef::Document(document), &none, &self.context).map(Some),
            WhenMatched::Pipeline(stages) => {
                let mut context = Context::clone(&self.context);
                for (name, expression) in &self.spec.let_variables {
                    let value = expression.evaluate(document, &self.context)?.unwrap_or(bson::Bson::Undefined);
                    context.set_variable(name, value)?;
                }
                let mut array = RawArrayBuf::new();
                for stage in stages {
                    array.push(stage.clone());
                }
                Update::parse(RawBsonRef::Array(&array), &none, &context).map(Some)
            }
        }
    }

    /// A failed write in the words of the stage.
    fn explained(&self, error: Error) -> Error {
        let what = match error.code {
            ErrorCode::ImmutableField => {
                "$merge failed to update the matching document, did you attempt to modify the _id or the shard key?"
            }
            ErrorCode::DuplicateKey
                if matches!(self.spec.when_matched, WhenMatched::Fail) && is_on_fields(&error, &self.on) =>
            {
                "$merge with whenMatched: fail found an existing document with the same values for the 'on' fields"
            }
            ErrorCode::DuplicateKey => "$merge failed due to a DuplicateKey error",
            _ => return error,
        };
        error.in_context(what)
    }
}

impl Stage for Merge {
    fn push(&mut self, document: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let by_id = self.on.iter().any(|field| field == "_id");
        let document = if by_id && document.get("_id")?.is_none() {
            write::with_id(&document, &*self.host.draw)?
        } else {
            document
        };
        let filter = self.filter(&document)?;
        if let Err(error) = self.write(&document, filter) {
            // Interrupted, it ends here.
            (self.host.check())()?;
            let error = self.explained(error);
            self.batch.failure.get_or_insert(error);
        }
        self.batch.documents += 1;
        self.batch.bytes += document.as_bytes().len();
        if self.batch.documents >= BATCH_DOCUMENTS || self.batch.bytes >= BATCH_BYTES {
            self.batch.end()?;
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        self.batch.end()?;
        Ok(Flow::Done)
    }
}

impl Batch {
    /// Ends it: its first failure, if there was one.
    fn end(&mut self) -> Result<()> {
        std::mem::take(self).failure.map_or(Ok(()), Err)
    }
}

/// Whether a unique index sees to it that no two documents agree in these fields.
fn is_unique(host: &StorageHost, target: &Namespace, on: &[String]) -> bool {
    let Some(collection) = host.storage.collection(target) else { return false };
    collection.indexes().iter().any(|index| {
        let definition = &index.definition;
        definition.unique
            && definition.partial.is_none()
            && index.state() == IndexState::Ready
            && definition.paths.len() == on.len()
            && on.iter().all(|field| definition.paths.iter().any(|path| path.as_str() == field))
    })
}

/// The value of an `on` field, which no array leads to.
fn on_value<'d>(document: &'d RawDocument, field: &str) -> Result<RawBsonRef<'d>> {
    let mut value = Some(RawBsonRef::Document(document));
    for name in field.split('.') {
        value = match value {
            Some(RawBsonRef::Document(inner)) => inner.get(name)?,
            _ => None,
        };
        if matches!(value, Some(RawBsonRef::Array(_))) {
            return Err(Error::location(51185, format!("$merge write error: 'on' field '{field}' is an array")));
        }
    }
    match value {
        Some(value) if !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) => Ok(value),
        Some(_) if field == "_id" => Ok(RawBsonRef::Null),
        _ => {
            Err(Error::location(51132, "$merge write error: 'on' field cannot be missing, null, undefined or an array"))
        }
    }
}

/// Whether a duplicate key is one of the fields that find a partner.
fn is_on_fields(error: &Error, on: &[String]) -> bool {
    let pattern = error.info.as_ref().and_then(|info| info.get_document("keyPattern").ok());
    pattern.is_some_and(|pattern| {
        let names: Vec<&str> = pattern.iter().flatten().map(|(name, _)| name.as_str()).collect();
        names.len() == on.len() && names.iter().all(|name| on.iter().any(|field| field == name))
    })
}
