//! `$sort`, with the limit of a `$limit` that follows it.
//!
//! Source: MongoDB manual, "$sort (aggregation)". Blocking: it holds what it may have to emit, within the request's
//! memory bound, and spills the rest.

use crate::Context;
use crate::interruption::Interruption;
use crate::pipeline::stage::{Flow, Stage};
use crate::sort::{SortPattern, Sorted, Sorter};
use crate::spill::{Room, SpillKind};
use baton_types::{Error, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::collections::VecDeque;
use std::sync::Arc;

/// Documents given to the next stage at a time.
pub(crate) const BATCH_DOCUMENTS: usize = 128;

/// The arguments of `$sort`.
#[derive(Clone, Debug)]
pub struct SortSpec {
    /// What to order by.
    pub pattern: Arc<SortPattern>,
    /// How many documents are wanted of the sorted order, where a `$limit` says so.
    pub limit: Option<u64>,
}

impl SortSpec {
    /// Parses the argument: 15973 unless it is an object, else as [`SortPattern::parse`].
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            return Err(Error::location(15973, "the $sort key specification must be an object"));
        };
        Self::by(spec)
    }

    /// A sort by a pattern, without a limit.
    pub(crate) fn by(spec: &RawDocument) -> Result<Self> {
        Ok(Self { pattern: Arc::new(SortPattern::parse(spec)?), limit: None })
    }

    pub(crate) fn start(&self, ctx: &Context) -> SortStage {
        SortStage {
            pattern: Arc::clone(&self.pattern),
            interruption: Arc::clone(&ctx.interruption),
            state: State::Collecting(Sorter::new(self.limit, ctx.stage_room(SpillKind::Sort))),
        }
    }
}

enum State {
    Collecting(Sorter<RawDocumentBuf>),
    Emitting(Sorted<RawDocumentBuf>),
}

/// `$sort` at work.
pub(crate) struct SortStage {
    pattern: Arc<SortPattern>,
    interruption: Arc<Interruption>,
    state: State,
}

impl Stage for SortStage {
    fn push(&mut self, doc: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let State::Collecting(sorter) = &mut self.state else { return Ok(Flow::Done) };
        let key = self.pattern.key(&doc, &self.interruption)?;
        let bytes = doc.as_bytes().len();
        sorter.push(key, doc, bytes)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if let State::Collecting(sorter) = &mut self.state {
            let full = std::mem::replace(sorter, Sorter::new(Some(0), Room::of_bytes(0)));
            self.state = State::Emitting(full.into_sorted()?);
        }
        let State::Emitting(sorted) = &mut self.state else { return Ok(Flow::Done) };
        for _ in 0..BATCH_DOCUMENTS {
            let Some((_, doc)) = sorted.pop()? else { break };
            out.push_back(doc);
        }
        Ok(if sorted.is_empty() { Flow::Done } else { Flow::More })
    }

    fn figures(&self) -> RawDocumentBuf {
        let (bytes, spilled) = match &self.state {
            State::Collecting(sorter) => (sorter.taken_bytes(), sorter.spilled()),
            State::Emitting(sorted) => (sorted.taken_bytes(), sorted.spilled()),
        };
        let mut figures = RawDocumentBuf::new();
        figures.append(cstr!("totalDataSizeSortedBytesEstimate"), i64::try_from(bytes).unwrap_or(i64::MAX));
        spilled.append_to(&mut figures);
        figures
    }

    fn memory_bytes(&self) -> usize {
        match &self.state {
            State::Collecting(sorter) => sorter.memory_bytes(),
            State::Emitting(_) => 0,
        }
    }
}
