//! Updates: what a replacement, an operator document or a pipeline makes of a document.
//!
//! An [`Update`] is parsed once for a request and applied to any number of documents. Applying yields the new
//! document, or that nothing changes, and how the oplog is to tell it: always idempotently, as a delta ([`diff`]) or
//! as the whole document.
//!
//! Where things are: paths and conflicts in `tree`, the walk over the document in `apply`, one file per operator in
//! `operators`, what storage demands of any result in `storage_rules`.
//!
//! Not here: matching, choosing documents, writing them, or the 16 MB limit on messages. Sharding's shard keys are not
//! known here; `_id` is the only immutable field.

mod apply;
mod array_filter;
pub mod diff;
mod operator_update;
mod operators;
mod pipeline_update;
mod replacement;
mod storage_rules;
mod tree;
mod upsert;

#[cfg(test)]
mod tests;

pub use storage_rules::check_id;

use crate::Context;
use crate::matcher::{MatchDetails, Matcher};
use crate::raw;
use array_filter::ArrayFilters;
use baton_types::{Error, Result};
use bson::oid::ObjectId;
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    form: Form,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most updates are by operators, and a request has one at a time")]
enum Form {
    Replacement(replacement::Replacement),
    Operators(operator_update::OperatorUpdate),
    Pipeline(pipeline_update::PipelineUpdate),
}

/// What an update made of one document.
#[derive(Debug)]
pub struct Applied {
    /// The new document; `None` if it is the same, byte for byte.
    pub document: Option<RawDocumentBuf>,
    /// What to write to the oplog.
    pub oplog: OplogUpdate,
}

/// How the oplog tells an update. Each form can be applied again without further effect.
#[derive(Clone, Debug, PartialEq)]
pub enum OplogUpdate {
    /// Nothing to write.
    Unchanged,
    /// The entry's `o`: `{$v: 2, diff: {…}}`.
    Delta(RawDocumentBuf),
    /// The entry's `o` is the new document.
    Replacement,
}

impl OplogUpdate {
    /// How to tell that `before` became `after`.
    fn between(before: &RawDocument, after: &RawDocument) -> Result<Self> {
        match diff::compute(before, after)? {
            Some(delta) => {
                let bytes = delta.as_bytes();
                Self::from_delta(bytes.len(), |out| out.extend_from_slice(bytes), after)
            }
            None => Ok(Self::Replacement),
        }
    }

    /// The delta as an entry, unless the whole document is smaller. `delta` puts it at the end of what it is given, and is no longer
    /// than `len_max`.
    fn from_delta(len_max: usize, delta: impl FnOnce(&mut Vec<u8>), after: &RawDocument) -> Result<Self> {
        let mut out = Vec::with_capacity(len_max + 24);
        let start = raw::begin(&mut out);
        raw::put_bytes(&mut out, ElementType::Int32, "$v", &2_i32.to_le_bytes());
        raw::put_header(&mut out, ElementType::EmbeddedDocument, "diff");
        delta(&mut out);
        raw::end(&mut out, start);
        if out.len() >= after.as_bytes().len() {
            return Ok(Self::Replacement);
        }
        Ok(Self::Delta(raw::finish(out)?))
    }
}

impl Update {
    /// Parses the `u` of an update statement with its `arrayFilters`.
    ///
    /// `c`, the constants of a pipeline update, belong into the context's variables.
    pub fn parse<D: AsRef<RawDocument>>(spec: RawBsonRef<'_>, array_filters: &[D], ctx: &Context) -> Result<Self> {
        let form = match spec {
            RawBsonRef::Array(_) => {
                if !array_filters.is_empty() {
                    return Err(Error::failed_to_parse("arrayFilters may not be specified for pipeline-syle updates"));
                }
                Form::Pipeline(pipeline_update::PipelineUpdate::parse(spec, ctx)?)
            }
            RawBsonRef::Document(document) if is_operator_document(document)? => {
                let filters = ArrayFilters::parse(array_filters, ctx)?;
                Form::Operators(operator_update::OperatorUpdate::parse(document, filters, ctx)?)
            }
            RawBsonRef::Document(document) => {
                if !array_filters.is_empty() {
                    return Err(Error::failed_to_parse(
                        "arrayFilters may not be specified for replacement-style updates",
                    ));
                }
                Form::Replacement(replacement::Replacement::parse(document, ctx)?)
            }
            _ => return Err(Error::failed_to_parse("Update argument must be either an object or an array")),
        };
        Ok(Self { form })
    }

    /// Whether the update replaces whole documents; such an update may not be `multi`.
    pub fn is_replacement(&self) -> bool {
        matches!(self.form, Form::Replacement(_))
    }

    /// The top-level fields the update may touch; `None` if it may be any. An index on none of them stays as it is.
    pub fn touched_fields(&self) -> Option<Vec<&str>> {
        match &self.form {
            Form::Operators(update) => Some(update.touched_fields()),
            Form::Replacement(_) | Form::Pipeline(_) => None,
        }
    }

    /// Applies the update to a stored document. `details` say which array element the filter matched, for `$`.
    pub fn apply(&self, doc: &RawDocument, details: Option<&MatchDetails>) -> Result<Applied> {
        match &self.form {
            Form::Replacement(update) => update.apply(doc),
            Form::Operators(update) => update.apply(doc, details.and_then(|d| d.array_index)),
            Form::Pipeline(update) => update.apply(doc),
        }
    }

    /// The document to insert where an upsert's filter matches nothing: the filter's equalities, then the update.
    ///
    /// `_id` comes first; it is `generated` if neither filter nor update has one. Fails with `NotSingleValueField` (54)
    /// if the filter's equalities make no one document.
    pub fn upsert_document(&self, matcher: &Matcher, generated: ObjectId) -> Result<RawDocumentBuf> {
        let equalities = match &self.form {
            // Only `_id` survives a replacement.
            Form::Replacement(_) => matcher.equalities()?.into_iter().filter(|(path, _)| path == "_id").collect(),
            Form::Operators(_) | Form::Pipeline(_) => matcher.equalities()?,
        };
        let base = operator_update::OperatorUpdate::document_of(equalities)?;
        let document = match &self.form {
            Form::Replacement(update) => update.insert(&base)?,
            Form::Operators(update) => update.insert(&base)?,
            Form::Pipeline(update) => update.insert(&base)?,
        };
        upsert::finish(&document, generated)
    }
}

/// Whether a document is an update by operators: its first field says.
fn is_operator_document(document: &RawDocument) -> Result<bool> {
    match document.iter_elements().next() {
        Some(first) => Ok(first?.key().as_str().starts_with('$')),
        None => Ok(false),
    }
}
