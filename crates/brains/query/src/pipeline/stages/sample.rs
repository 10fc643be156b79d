//! `$sample`: n documents drawn at random, in random order.
//!
//! Source: MongoDB manual, "$sample (aggregation)". Each document gets a random key and the n smallest are kept, so
//! every set of n is equally likely and no more than n are held. The draw is a function of the request's seed.

use super::sort::BATCH_DOCUMENTS;
use crate::Context;
use crate::pipeline::stage::{Flow, Stage};
use crate::sort::{Sorted, Sorter};
use crate::spill::SpillKind;
use baton_document::Number;
use baton_types::{Error, Result};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use std::collections::VecDeque;

/// The checked size: 28745 to 28749 where the argument is wrong.
pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<u64> {
    let Some(spec) = value.as_document() else {
        return Err(Error::location(28745, "the $sample stage specification must be an object"));
    };
    let mut size = None;
    for element in spec.iter() {
        let (name, value) = element?;
        if name.as_str() != "size" {
            return Err(Error::location(28748, format!("unrecognized option to $sample: {name}")));
        }
        let Some(number) = Number::from_raw(value) else {
            return Err(Error::location(28746, "size argument to $sample must be a number"));
        };
        let positive = u64::try_from(number.to_i64_lossy()).ok().filter(|size| *size > 0);
        let not_positive = || Error::location(28747, "size argument to $sample must be a positive integer");
        size = Some(positive.ok_or_else(not_positive)?);
    }
    size.ok_or_else(|| Error::location(28749, "$sample stage must specify a size"))
}

/// A small generator of well-spread numbers (SplitMix64: Steele, Lea, Flood 2014).
struct SplitMix {
    state: u64,
}

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// `$sample` at work.
pub(crate) struct SampleStage {
    random: SplitMix,
    sorter: Option<Sorter<RawDocumentBuf>>,
    chosen: Sorted<RawDocumentBuf>,
}

impl SampleStage {
    /// Draws `size` documents.
    pub(crate) fn new(size: u64, ctx: &Context) -> Self {
        let sorter = Sorter::new(Some(size), ctx.stage_room(SpillKind::Sort));
        Self { random: SplitMix { state: ctx.seed }, sorter: Some(sorter), chosen: Sorted::empty() }
    }
}

impl Stage for SampleStage {
    fn push(&mut self, doc: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let Some(sorter) = &mut self.sorter else { return Ok(Flow::Done) };
        let key = self.random.next().to_be_bytes();
        if sorter.threshold().is_none_or(|worst| key.as_slice() < worst) {
            let bytes = doc.as_bytes().len();
            sorter.push(key.to_vec(), doc, bytes)?;
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            self.chosen = sorter.into_sorted()?;
        }
        for _ in 0..BATCH_DOCUMENTS {
            let Some((_, doc)) = self.chosen.pop()? else { break };
            out.push_back(doc);
        }
        Ok(if self.chosen.is_empty() { Flow::Done } else { Flow::More })
    }

    fn memory_bytes(&self) -> usize {
        self.sorter.as_ref().map_or(0, Sorter::memory_bytes)
    }
}
