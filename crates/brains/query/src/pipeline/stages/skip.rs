//! `$skip`: all but the first n documents.
//!
//! Source: MongoDB manual, "$skip (aggregation)".

use super::bounded_count;
use crate::pipeline::stage::{Flow, Stage};
use baton_types::Result;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use std::collections::VecDeque;

/// Parses the argument: 5107200 unless it is a whole number from 0.
pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<u64> {
    bounded_count("$skip", 5107200, value)
}

/// `$skip` at work.
pub(crate) struct SkipStage {
    left: u64,
}

impl SkipStage {
    /// Holds `skip` documents back.
    pub(crate) fn new(skip: u64) -> Self {
        Self { left: skip }
    }
}

impl Stage for SkipStage {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if self.left > 0 {
            self.left -= 1;
        } else {
            out.push_back(doc);
        }
        Ok(Flow::More)
    }
}
