//! `$match`: the documents that a filter matches.
//!
//! Source: MongoDB manual, "$match (aggregation)".

use crate::Context;
use crate::expression::Dependencies;
use crate::matcher::Matcher;
use crate::pipeline::filter;
use crate::pipeline::stage::{Flow, Stage};
use baton_types::{Error, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;

/// The argument of `$match`.
#[derive(Clone, Debug)]
pub struct MatchSpec {
    /// The filter as the client wrote it, or as the optimiser put it together.
    pub filter: RawDocumentBuf,
    /// The filter, parsed.
    pub matcher: Arc<Matcher>,
    /// What the filter reads.
    pub dependencies: Dependencies,
}

impl MatchSpec {
    /// Parses the argument: 15959 unless it is an object.
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let Some(filter) = value.as_document() else {
            return Err(Error::location(15959, "the match filter must be an expression in an object"));
        };
        Self::by(filter, ctx)
    }

    /// A match by `filter`.
    pub(crate) fn by(filter: &RawDocument, ctx: &Context) -> Result<Self> {
        Ok(Self {
            filter: filter.to_owned(),
            matcher: Arc::new(Matcher::parse(filter, ctx)?),
            dependencies: filter::dependencies(filter, ctx)?,
        })
    }

    pub(crate) fn start(&self) -> MatchStage {
        MatchStage { matcher: Arc::clone(&self.matcher) }
    }
}

/// `$match` at work.
pub(crate) struct MatchStage {
    matcher: Arc<Matcher>,
}

impl Stage for MatchStage {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if self.matcher.matches(&doc)? {
            out.push_back(doc);
        }
        Ok(Flow::More)
    }
}
