//! `$count`: one document with the number of documents that came, or none if none came.
//!
//! Source: MongoDB manual, "$count (aggregation)".

use crate::pipeline::field::cstring;
use crate::pipeline::stage::{Flow, Stage};
use baton_types::{Error, Result};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use std::collections::VecDeque;

/// The checked field name: 40156 to 40160 where it is none.
pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<String> {
    let Some(name) = value.as_str() else {
        return Err(Error::location(40156, "the count field must be a non-empty string"));
    };
    if name.is_empty() {
        return Err(Error::location(40157, "the count field must be a non-empty string"));
    }
    if name.starts_with('$') {
        return Err(Error::location(40158, "the count field cannot be a $-prefixed path"));
    }
    if name.contains('\0') {
        return Err(Error::location(40159, "the count field cannot contain a null byte"));
    }
    if name.contains('.') {
        return Err(Error::location(40160, "the count field cannot contain '.'"));
    }
    Ok(name.to_owned())
}

/// `$count` at work.
pub(crate) struct CountStage {
    name: String,
    count: i64,
}

impl CountStage {
    /// Counts into the field `name`.
    pub(crate) fn new(name: String) -> Self {
        Self { name, count: 0 }
    }
}

impl Stage for CountStage {
    fn push(&mut self, _: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        self.count += 1;
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if self.count > 0 {
            let mut doc = RawDocumentBuf::new();
            // As `$sum: 1` does: an int until it no longer fits.
            match i32::try_from(self.count) {
                Ok(count) => doc.append(cstring(&self.name)?, count),
                Err(_) => doc.append(cstring(&self.name)?, self.count),
            }
            out.push_back(doc);
        }
        Ok(Flow::Done)
    }
}
