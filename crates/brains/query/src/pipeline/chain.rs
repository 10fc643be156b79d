//! Several stages run one after another, as if they were one.
//!
//! Invariants: stages finish in order, each only after every document of its predecessors has passed it. Once a stage
//! wants no more, the stages before it are neither fed nor finished again.
//!
//! Documents that are furthest on go first, and a stage goes on with a document only when all it made of it so far has left
//! the chain or been taken in: what waits between stages is what one call of one stage emits.
//!
//! One document may become very many before any of them leaves the chain (`$unwind`, then a `$match` that holds for none), so
//! the chain asks now and then whether to go on.
//!
//! What it deliberately does not do: pull. Whoever drives the chain decides when the next document comes, and so bounds
//! what waits in `out`.

use super::stage::{Flow, Stage};
use crate::interruption::Interruption;
use crate::raw;
use baton_types::Result;
use bson::RawDocumentBuf;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a document may be between two stages: as much as a blocking stage may hold, for one may make one of all.
const DOCUMENT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// What a stage does with a document counts for so many steps, besides those it counts itself.
const STEPS_OF_A_STAGE: usize = 32;

/// Tells the time since some beginning.
pub type Clock = Box<dyn Fn() -> Duration + Send>;

struct Link {
    stage: Box<dyn Stage>,
    /// What the stage has emitted and the next has not taken yet.
    emitted: VecDeque<RawDocumentBuf>,
    /// Whether the stage has more of its last document to give.
    is_under_way: bool,
    /// How many documents it has emitted so far.
    returned: u64,
    /// How long it has worked so far, if the chain has a clock.
    spent: Duration,
}

/// Running stages in a row.
pub struct Chain {
    links: Vec<Link>,
    /// What long work is to ask; that of the context the stages run in.
    interruption: Arc<Interruption>,
    /// The first link that has not finished.
    first: usize,
    /// Whether that link has said its last word; what it emitted may still be on its way.
    first_ended: bool,
    /// Nothing is on its way behind this link.
    at: usize,
    /// By which stages are timed, if they are.
    clock: Option<Clock>,
}

impl Chain {
    /// A chain of `stages`; an empty one passes documents on as they are.
    pub fn new(stages: Vec<Box<dyn Stage>>) -> Self {
        let link =
            |stage| Link { stage, emitted: VecDeque::new(), is_under_way: false, returned: 0, spent: Duration::ZERO };
        let links = stages.into_iter().map(link).collect();
        Self { links, interruption: Arc::default(), first: 0, first_ended: false, at: 0, clock: None }
    }

    /// The same, asking there whether to go on.
    pub(crate) fn asking(self, interruption: &Arc<Interruption>) -> Self {
        Self { interruption: Arc::clone(interruption), ..self }
    }

    /// What the chain and its stages ask whether to go on.
    pub fn interruption(&self) -> &Arc<Interruption> {
        &self.interruption
    }

    /// How many documents each stage has given to the next so far, and what else explain shows of it.
    pub fn figures(&self) -> Vec<(u64, RawDocumentBuf)> {
        self.links.iter().map(|link| (link.returned, link.stage.figures())).collect()
    }

    /// Times each stage from now on.
    pub fn time_by(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    /// How long each stage has worked so far, without those before and behind it; nothing if they are not timed.
    pub fn spent(&self) -> Vec<Duration> {
        self.links.iter().map(|link| link.spent).collect()
    }

    /// Appends everything that is left to `out`: `finish` until it is done.
    pub fn finish_all(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<()> {
        while self.finish(out)? != Flow::Done {}
        Ok(())
    }

    /// Has link `at` do something; what it emits goes to the next link, or out of the last.
    fn step(
        &mut self,
        at: usize,
        out: &mut VecDeque<RawDocumentBuf>,
        work: impl FnOnce(&mut dyn Stage, &mut VecDeque<RawDocumentBuf>) -> Result<Flow>,
    ) -> Result<Flow> {
        self.interruption.steps(STEPS_OF_A_STAGE)?;
        let is_last = at + 1 == self.links.len();
        let Some(link) = self.links.get_mut(at) else { return Ok(Flow::Done) };
        let emitted = if is_last { out } else { &mut link.emitted };
        let before = emitted.len();
        let began = self.clock.as_ref().map(|clock| clock());
        let flow = work(link.stage.as_mut(), emitted)?;
        if let (Some(clock), Some(began)) = (&self.clock, began) {
            link.spent += clock().saturating_sub(began);
        }
        link.returned += (emitted.len() - before) as u64;
        link.is_under_way = flow == Flow::Again;
        self.at = at;
        Ok(flow)
    }

    /// Moves on what is on its way, the last first, until `out` grows or there is nothing. `Again` if there may be more on
    /// its way, `Done` if a stage has said that it wants no more.
    fn advance(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let (waiting, last) = (out.len(), self.links.len().saturating_sub(1));
        let mut ended = Flow::More;
        loop {
            let Some(link) = self.links.get_mut(self.at) else { return Ok(ended) };
            let at = self.at;
            let flow = if at < last
                && let Some(doc) = link.emitted.pop_front()
            {
                raw::check_growth(doc.as_bytes().len(), DOCUMENT_BYTES_MAX)?;
                self.step(at + 1, out, |stage, out| stage.push(doc, out)).map(|flow| (at + 1, flow))?
            } else if link.is_under_way {
                self.step(at, out, |stage, out| stage.resume(out)).map(|flow| (at, flow))?
            } else if at > self.first {
                self.at -= 1;
                continue;
            } else {
                return Ok(ended);
            };
            if let (done, Flow::Done) = flow {
                self.end_before(done);
                ended = Flow::Done;
            }
            if out.len() > waiting {
                return Ok(if ended == Flow::Done { ended } else { Flow::Again });
            }
        }
    }

    /// A stage wants no more: those before it are out of work.
    fn end_before(&mut self, done: usize) {
        for link in &mut self.links[..done] {
            link.emitted = VecDeque::new();
            link.is_under_way = false;
        }
        self.first = done;
        self.first_ended = false;
    }
}

impl Stage for Chain {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if self.links.is_empty() {
            out.push_back(doc);
            return Ok(Flow::More);
        }
        let waiting = out.len();
        match self.step(0, out, |stage, out| stage.push(doc, out))? {
            Flow::Done => {
                self.end_before(0);
                Ok(Flow::Done)
            }
            flow if out.len() > waiting => Ok(flow),
            _ => self.advance(out),
        }
    }

    fn resume(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        self.advance(out)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let waiting = out.len();
        while self.first < self.links.len() {
            while self.advance(out)? != Flow::More {
                if out.len() > waiting {
                    return Ok(Flow::More);
                }
            }
            if self.first_ended {
                self.first += 1;
                self.first_ended = false;
                self.at = self.first;
                continue;
            }
            if out.len() > waiting {
                return Ok(Flow::More);
            }
            let flow = self.step(self.first, out, |stage, out| stage.finish(out))?;
            self.first_ended = flow == Flow::Done;
        }
        Ok(Flow::Done)
    }

    fn memory_bytes(&self) -> usize {
        self.links.iter().map(|link| link.stage.memory_bytes()).sum()
    }
}
