//! `$limit`: the first n documents and no more.
//!
//! Source: MongoDB manual, "$limit (aggregation)".

use super::bounded_count;
use crate::pipeline::stage::{Flow, Stage};
use baton_types::{Error, Result};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use std::collections::VecDeque;

/// Parses the argument: 5107201 unless it is a whole number from 0, 15958 if it is 0.
pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<u64> {
    match bounded_count("$limit", 5107201, value)? {
        0 => Err(Error::location(15958, "the limit must be positive")),
        n => Ok(n),
    }
}

/// `$limit` at work.
pub(crate) struct LimitStage {
    left: u64,
}

impl LimitStage {
    /// Lets `limit` documents pass.
    pub(crate) fn new(limit: u64) -> Self {
        Self { left: limit }
    }
}

impl Stage for LimitStage {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if self.left > 0 {
            self.left -= 1;
            out.push_back(doc);
        }
        Ok(if self.left > 0 { Flow::More } else { Flow::Done })
    }
}
