//! Several stages run one after another, as if they were one.
//!
//! Invariants: stages finish in order, each only after every document of its predecessors has passed it. Once a stage
//! wants no more, the stages before it are neither fed nor finished again.
//!
//! What it deliberately does not do: pull. Whoever drives the chain decides when the next document comes, and so bounds
//! what waits in `out`.

use super::stage::{Flow, Stage};
use baton_types::Result;
use bson::RawDocumentBuf;
use std::collections::VecDeque;

struct Link {
    stage: Box<dyn Stage>,
    /// What the stage has emitted and the next has not taken yet; empty between calls.
    emitted: VecDeque<RawDocumentBuf>,
}

/// Running stages in a row.
pub struct Chain {
    links: Vec<Link>,
    /// The first link that has not finished.
    first: usize,
}

impl Chain {
    /// A chain of `stages`; an empty one passes documents on as they are.
    pub fn new(stages: Vec<Box<dyn Stage>>) -> Self {
        let links = stages.into_iter().map(|stage| Link { stage, emitted: VecDeque::new() }).collect();
        Self { links, first: 0 }
    }

    /// Appends everything that is left to `out`: `finish` until it is done.
    pub fn finish_all(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<()> {
        while self.finish(out)? == Flow::More {}
        Ok(())
    }
}

/// Pushes `doc` into the first of `links`, which is number `at`, and through the rest. The number of the last stage
/// that wants no more, if one does.
fn feed(
    links: &mut [Link],
    at: usize,
    doc: RawDocumentBuf,
    out: &mut VecDeque<RawDocumentBuf>,
) -> Result<Option<usize>> {
    let Some((head, rest)) = links.split_first_mut() else {
        out.push_back(doc);
        return Ok(None);
    };
    if rest.is_empty() {
        return Ok((head.stage.push(doc, out)? == Flow::Done).then_some(at));
    }
    let flow = head.stage.push(doc, &mut head.emitted)?;
    let done_after = drain(head, rest, at, out)?;
    Ok(done_after.or((flow == Flow::Done).then_some(at)))
}

/// Passes what `head` (number `at`) has emitted through `rest`.
fn drain(head: &mut Link, rest: &mut [Link], at: usize, out: &mut VecDeque<RawDocumentBuf>) -> Result<Option<usize>> {
    while let Some(next) = head.emitted.pop_front() {
        let done = feed(rest, at + 1, next, out)?;
        if done.is_some() {
            head.emitted.clear();
            return Ok(done);
        }
    }
    Ok(None)
}

impl Stage for Chain {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        match feed(&mut self.links, 0, doc, out)? {
            None => Ok(Flow::More),
            Some(done) => {
                self.first = done;
                Ok(Flow::Done)
            }
        }
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let waiting = out.len();
        while let Some((head, rest)) = self.links.get_mut(self.first..).and_then(|l| l.split_first_mut()) {
            if rest.is_empty() {
                if head.stage.finish(out)? == Flow::Done {
                    self.first += 1;
                }
            } else {
                let flow = head.stage.finish(&mut head.emitted)?;
                match drain(head, rest, self.first, out)? {
                    Some(done) => self.first = done,
                    None if flow == Flow::Done => self.first += 1,
                    None => {}
                }
            }
            if out.len() > waiting {
                break;
            }
        }
        Ok(if self.first < self.links.len() { Flow::More } else { Flow::Done })
    }

    fn memory_bytes(&self) -> usize {
        self.links.iter().map(|link| link.stage.memory_bytes()).sum()
    }
}
