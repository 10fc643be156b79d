//! The leading part of a pipeline that a find plan can serve: filter, sort, skip, limit, and the fields wanted at all.
//!
//! Invariant: running `rest` over the result of that query, in its order, gives what the whole pipeline gives.

use super::Pipeline;
use super::spec::StageSpec;
use super::stages::sort::SortSpec;
use crate::expression::Dependencies;
use crate::matcher::Matcher;
use crate::sort::SortPattern;
use bson::raw::RawDocumentBuf;
use std::sync::Arc;

/// A query, and what is left to do with its result.
#[derive(Clone, Debug)]
pub struct LeadingQuery {
    /// The filter and its parsed form; absent when every document is wanted.
    pub filter: Option<(RawDocumentBuf, Arc<Matcher>)>,
    /// The order.
    pub sort: Option<Arc<SortPattern>>,
    /// Documents to leave out at the start of the order.
    pub skip: u64,
    /// Documents wanted after those; `Some(0)` means none at all.
    pub limit: Option<u64>,
    /// What `rest` reads of a document, besides what filter and sort need: with `whole_document` everything. Empty
    /// fields mean that only the number of documents matters.
    pub dependencies: Dependencies,
    /// The stages after the query.
    pub rest: Pipeline,
}

/// Skips and limits one after another, as one window.
#[derive(Default)]
struct Window {
    skip: u64,
    limit: Option<u64>,
}

impl Window {
    fn limit(&mut self, limit: u64) {
        self.limit = Some(self.limit.map_or(limit, |known| known.min(limit)));
    }

    /// False, and nothing changed, if the number of documents to skip is beyond counting.
    fn skip(&mut self, skip: u64) -> bool {
        let Some(sum) = self.skip.checked_add(skip) else { return false };
        self.skip = sum;
        self.limit = self.limit.map(|limit| limit.saturating_sub(skip));
        true
    }
}

/// Splits `pipeline`, which is best optimised before.
pub(crate) fn split(pipeline: &Pipeline) -> LeadingQuery {
    let stages = pipeline.stages();
    let mut taken = 0;
    let mut filter = None;
    let mut sort = None;
    let mut window = Window::default();
    if let Some(StageSpec::Match(spec)) = stages.first() {
        filter = Some((spec.filter.clone(), Arc::clone(&spec.matcher)));
        taken = 1;
    }
    if let Some(StageSpec::Sort(SortSpec { pattern, limit })) = stages.get(taken) {
        sort = Some(Arc::clone(pattern));
        window.limit = *limit;
        taken += 1;
    }
    loop {
        match stages.get(taken) {
            Some(StageSpec::Limit(limit)) => window.limit(*limit),
            Some(StageSpec::Skip(skip)) if window.skip(*skip) => {}
            _ => break,
        }
        taken += 1;
    }
    let rest = pipeline.with_stages(stages[taken..].to_vec());
    LeadingQuery {
        filter: filter.filter(|(filter, _)| !filter.is_empty()),
        sort,
        skip: window.skip,
        limit: window.limit,
        dependencies: rest.dependencies(),
        rest,
    }
}
