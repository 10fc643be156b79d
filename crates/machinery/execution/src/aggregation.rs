//! An aggregation at work: a query that feeds a chain of stages, one batch at a time.

use crate::Interrupt;
use crate::access::Given;
use crate::query::Query;
use baton_query::pipeline::{Chain, Flow, Stage};
use baton_types::Result;
use bson::{RawDocument, RawDocumentBuf};
use std::collections::VecDeque;

/// Documents the query hands over before the chain runs: enough to make a view worth taking.
const INPUT_DOCUMENTS: usize = 256;

/// Where an aggregation's documents come from.
pub enum Input {
    /// The collection, through a query.
    Query(Box<Query>),
    /// Made beforehand (`$documents`, `$collStats`, `$currentOp`, …).
    Documents(VecDeque<RawDocumentBuf>),
}

/// See the file's header.
pub struct Aggregation {
    input: Input,
    chain: Chain,
    input_ended: bool,
    chain_ended: bool,
    ready: VecDeque<RawDocumentBuf>,
    /// Documents returned so far.
    pub returned: u64,
}

impl Aggregation {
    /// A chain over an input.
    pub fn new(input: Input, chain: Chain) -> Self {
        Self { input, chain, input_ended: false, chain_ended: false, ready: VecDeque::new(), returned: 0 }
    }

    /// The query behind it, for the log and explain.
    pub fn query(&self) -> Option<&Query> {
        match &self.input {
            Input::Query(query) => Some(query),
            Input::Documents(_) => None,
        }
    }

    /// Offers documents until `offer` refuses one or there are none left; tells whether there may be more.
    pub fn run(
        &mut self,
        interrupt: Interrupt<'_>,
        offer: &mut dyn FnMut(&RawDocument) -> Result<Given>,
    ) -> Result<bool> {
        loop {
            while let Some(document) = self.ready.front() {
                match offer(document)? {
                    Given::Refused => return Ok(true),
                    Given::Taken => {}
                    Given::TakenLast => {
                        self.ready.pop_front();
                        self.returned += 1;
                        return Ok(!(self.ready.is_empty() && self.chain_ended));
                    }
                }
                self.ready.pop_front();
                self.returned += 1;
            }
            interrupt()?;
            if self.chain_ended {
                return Ok(false);
            }
            self.advance(interrupt)?;
        }
    }

    /// Runs the chain until it gave something or ended.
    fn advance(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        if self.input_ended {
            if self.chain.finish(&mut self.ready)? == Flow::Done {
                self.chain_ended = true;
            }
            return Ok(());
        }
        let mut batch = Vec::with_capacity(INPUT_DOCUMENTS);
        match &mut self.input {
            Input::Query(query) => {
                let more = query.run(interrupt, &mut |_, document| {
                    batch.push(document.to_owned());
                    Ok(if batch.len() == INPUT_DOCUMENTS { Given::TakenLast } else { Given::Taken })
                })?;
                self.input_ended = !more;
            }
            Input::Documents(documents) => {
                let take = documents.len().min(INPUT_DOCUMENTS);
                batch.extend(documents.drain(..take));
                self.input_ended = documents.is_empty();
            }
        }
        for document in batch {
            if self.chain.push(document, &mut self.ready)? == Flow::Done {
                self.input_ended = true;
                break;
            }
        }
        Ok(())
    }
}
