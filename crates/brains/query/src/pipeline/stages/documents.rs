//! `$documents`: a pipeline whose input is written in the pipeline itself.
//!
//! Source: MongoDB manual, "$documents (aggregation)". The expression may use variables but no fields.

use super::sort::BATCH_DOCUMENTS;
use crate::Context;
use crate::expression::Expression;
use crate::pipeline::field::raw_value;
use crate::pipeline::stage::{Flow, Stage};
use crate::show;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::Bson;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use std::collections::VecDeque;

/// The argument of `$documents`.
#[derive(Clone, Debug)]
pub struct DocumentsSpec {
    expression: Expression,
    /// The expression as the client wrote it.
    pub spec: RawBson,
}

impl DocumentsSpec {
    /// Parses the expression that yields the array.
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        Ok(Self { expression: Expression::parse(value, ctx)?, spec: value.into() })
    }

    /// The documents: 5858203 unless the expression yields an array, 40228 for an element that is no document.
    pub fn documents(&self, ctx: &Context) -> Result<VecDeque<RawDocumentBuf>> {
        let Some(Bson::Array(values)) = self.expression.evaluate(&RawDocumentBuf::new(), ctx)? else {
            return Err(Error::location(5858203, "an array is expected as the argument of $documents"));
        };
        values
            .into_iter()
            .map(|value| match raw_value(value)? {
                RawBson::Document(doc) => Ok(doc),
                other => {
                    let value = other.as_raw_bson_ref();
                    let message = format!(
                        "'newRoot' expression must evaluate to an object, but resulting value was: {}. Type of \
                         resulting value: '{}'. Input document: {{}}",
                        show::value(value),
                        type_name(value.element_type())
                    );
                    Err(Error::location(40228, message))
                }
            })
            .collect()
    }

    pub(crate) fn start(&self, ctx: &Context) -> Result<DocumentsStage> {
        Ok(DocumentsStage { left: self.documents(ctx)? })
    }
}

/// `$documents` at work: it takes no input and emits its own.
pub(crate) struct DocumentsStage {
    left: VecDeque<RawDocumentBuf>,
}

impl Stage for DocumentsStage {
    fn push(&mut self, _: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        Ok(Flow::Done)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let batch = self.left.len().min(BATCH_DOCUMENTS);
        out.extend(self.left.drain(..batch));
        Ok(if self.left.is_empty() { Flow::Done } else { Flow::More })
    }
}
