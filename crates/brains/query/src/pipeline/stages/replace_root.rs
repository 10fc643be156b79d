//! `$replaceRoot` and `$replaceWith`: each document gives way to a document computed from it.
//!
//! Source: MongoDB manual, "$replaceRoot" and "$replaceWith".

use crate::Context;
use crate::expression::{Expression, InPlace, value};
use crate::pipeline::stage::{Flow, Stage};
use crate::raw;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use std::collections::VecDeque;
use std::sync::Arc;

/// The arguments of `$replaceRoot`.
#[derive(Clone, Debug)]
pub struct ReplaceRootSpec {
    /// What the document becomes.
    pub new_root: Expression,
    /// The expression as the client wrote it.
    pub spec: RawBson,
}

impl ReplaceRootSpec {
    /// Parses `{newRoot: <expression>}`: 40229, 40230, 40231.
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            let message = format!(
                "expected an object as specification for $replaceRoot stage, got {}",
                type_name(value.element_type())
            );
            return Err(Error::location(40229, message));
        };
        let mut new_root = None;
        for element in spec.iter() {
            let (name, value) = element?;
            if name.as_str() != "newRoot" {
                let message =
                    format!("unrecognized option to $replaceRoot stage: {name}, only valid option is 'newRoot'.");
                return Err(Error::location(40230, message));
            }
            new_root = Some(value);
        }
        let missing = || Error::location(40231, "no newRoot specified for the $replaceRoot stage");
        Self::with(new_root.ok_or_else(missing)?, ctx)
    }

    /// Parses the bare expression of `$replaceWith`.
    pub(crate) fn with(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        Ok(Self { new_root: Expression::parse(value, ctx)?, spec: value.into() })
    }

    pub(crate) fn start(self: &Arc<Self>, ctx: &Arc<Context>) -> ReplaceRootStage {
        ReplaceRootStage { spec: Arc::clone(self), ctx: Arc::clone(ctx) }
    }

    /// What `doc` becomes: 40228 where that is no document.
    pub fn apply(&self, doc: &RawDocument, ctx: &Context) -> Result<RawDocumentBuf> {
        match self.new_root.in_place(doc)? {
            InPlace::Value(RawBsonRef::Document(new_root)) => return Ok(new_root.to_owned()),
            InPlace::Value(_) | InPlace::Missing | InPlace::No => {}
        }
        match self.new_root.evaluate(doc, ctx)? {
            Some(Bson::Document(new_root)) => raw::encode(&new_root, doc.as_bytes().len() + raw::GROWTH_BYTES_MAX),
            other => {
                let kind = other.as_ref().map_or("missing", |value| type_name(value.element_type()));
                let message = format!(
                    "'newRoot' expression must evaluate to an object, but resulting value was: {}. Type of resulting \
                     value: '{kind}'. Input document: {}",
                    value::display(&other),
                    value::display(&Some(Bson::Document(Document::try_from(doc)?)))
                );
                Err(Error::location(40228, message))
            }
        }
    }
}

/// `$replaceRoot` at work.
pub(crate) struct ReplaceRootStage {
    spec: Arc<ReplaceRootSpec>,
    ctx: Arc<Context>,
}

impl Stage for ReplaceRootStage {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        out.push_back(self.spec.apply(&doc, &self.ctx)?);
        Ok(Flow::More)
    }
}
