//! An aggregation at work: a query that feeds a chain of stages, one batch at a time.

use crate::access::Given;
use crate::host::no_stages;
use crate::interrupt::{Check, Interruption};
use crate::query::Query;
use baton_query::pipeline::{Chain, Flow, Stage};
use baton_types::Result;
use bson::{RawDocument, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// Read from the input and not yet pushed into the chain.
    read: VecDeque<RawDocumentBuf>,
    interruption: Arc<Interruption>,
    input_ended: bool,
    /// Whether the chain has more of the last document to give.
    chain_under_way: bool,
    chain_ended: bool,
    ready: VecDeque<RawDocumentBuf>,
    /// Documents returned so far.
    pub returned: u64,
    /// How long reading the input has taken so far.
    read_for: Duration,
}

impl Aggregation {
    /// A chain over an input. `interruption` is what the host's stages ask.
    pub(crate) fn new(input: Input, chain: Chain, interruption: Arc<Interruption>) -> Self {
        Self {
            input,
            chain,
            read: VecDeque::new(),
            interruption,
            input_ended: false,
            chain_under_way: false,
            chain_ended: false,
            ready: VecDeque::new(),
            returned: 0,
            read_for: Duration::ZERO,
        }
    }

    /// Documents made beforehand, as they are.
    pub fn of_documents(documents: VecDeque<RawDocumentBuf>) -> Self {
        Self::new(Input::Documents(documents), no_stages(), Arc::default())
    }

    /// The query behind it, for the log and explain.
    pub fn query(&self) -> Option<&Query> {
        match &self.input {
            Input::Query(query) => Some(query),
            Input::Documents(_) => None,
        }
    }

    /// How many documents each stage behind the query has given to the next so far, and what else explain shows of it.
    pub fn figures_by_stage(&self) -> Vec<(u64, RawDocumentBuf)> {
        self.chain.figures()
    }

    /// Has each stage timed, for explain: the clock is read twice for each document that a stage takes.
    pub fn time_stages(&mut self) {
        let began = Instant::now();
        self.chain.time_by(Box::new(move || began.elapsed()));
    }

    /// How long the input has taken so far.
    pub fn input_time(&self) -> Duration {
        self.read_for
    }

    /// How long each stage has taken so far, with all that comes before it, as explain shows it.
    pub fn times_by_stage(&self) -> Vec<Duration> {
        let mut sum = self.read_for;
        let with_before = |spent: Duration| {
            sum += spent;
            sum
        };
        self.chain.spent().into_iter().map(with_before).collect()
    }

    /// Offers documents until `offer` refuses one or there are none left; tells whether there may be more.
    pub fn run(&mut self, check: &Check, offer: &mut dyn FnMut(&RawDocument) -> Result<Given>) -> Result<bool> {
        self.interruption.set(check);
        self.chain.interruption().set(check);
        if let Input::Query(query) = &self.input {
            query.ask(check);
        }
        check()?;
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
            if self.chain_ended {
                return Ok(false);
            }
            self.advance(check)?;
        }
    }

    /// Runs the chain until it gave something or ended. A stage may make many documents of one, so no more is asked of it
    /// than is needed. The chain counts its steps and asks whether to go on, and so does the query before it: to ask for each document
    /// would cost a tenth of a scan where there is a deadline.
    fn advance(&mut self, check: &Check) -> Result<()> {
        if self.read.is_empty() && !self.input_ended {
            self.read_input(check)?;
        }
        while self.ready.is_empty() {
            let flow = if self.chain_under_way {
                self.chain.resume(&mut self.ready)?
            } else if let Some(document) = self.read.pop_front() {
                self.chain.push(document, &mut self.ready)?
            } else {
                break;
            };
            self.chain_under_way = flow == Flow::Again;
            if flow == Flow::Done {
                self.input_ended = true;
                self.read.clear();
            }
        }
        if self.chain_under_way {
            return Ok(());
        }
        if self.ready.is_empty() && self.read.is_empty() && self.input_ended {
            self.chain_ended = self.chain.finish(&mut self.ready)? == Flow::Done;
        }
        Ok(())
    }

    fn read_input(&mut self, check: &Check) -> Result<()> {
        let began = Instant::now();
        let read = &mut self.read;
        match &mut self.input {
            Input::Query(query) => {
                let more = query.run(&**check, &mut |_, document| {
                    read.push_back(document.to_owned());
                    Ok(if read.len() == INPUT_DOCUMENTS { Given::TakenLast } else { Given::Taken })
                })?;
                self.input_ended = !more;
            }
            Input::Documents(documents) => {
                read.append(documents);
                self.input_ended = true;
            }
        }
        self.read_for += began.elapsed();
        Ok(())
    }
}
