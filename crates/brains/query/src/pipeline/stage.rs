//! The contract of a running stage.
//!
//! Invariants: documents go in by [`Stage::push`] one at a time; after [`Flow::Again`], [`Stage::resume`] is called until it
//! says something else, before anything else is; when the input ends, or the stage has said [`Flow::Done`],
//! [`Stage::finish`] is called until it says `Done` too, and the stage is not used again. A stage emits by appending to
//! `out` and never looks at what is already there.
//!
//! What it deliberately is not: it knows nothing of cursors or batches; the driver between two calls does.

use crate::Context;
use crate::pipeline::StageSpec;
use baton_types::{Error, ErrorCode, Result};
use bson::RawDocumentBuf;
use std::collections::VecDeque;
use std::sync::Arc;

/// Whether a stage has more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// From `push`: give me the next document. From `finish`: call me again.
    More,
    /// From `push` and `resume`: there is more of the document I was given; call `resume`.
    Again,
    /// From `push` and `resume`: I need no further document. From `finish`: that was all.
    Done,
}

/// A stage at work: its specification plus whatever it holds while documents pass.
pub trait Stage: Send {
    /// Takes one document and appends what comes of it to `out`.
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow>;

    /// Goes on with the document pushed last; called only after [`Flow::Again`]. A stage that makes many documents of one
    /// gives them in parts.
    fn resume(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let _ = out;
        Ok(Flow::More)
    }

    /// Called after the last document; appends a part of what is left to `out`. `More` asks for another call, so that a
    /// stage with a large result gives it in batches.
    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let _ = out;
        Ok(Flow::Done)
    }

    /// What explain shows of it beside what it has returned.
    fn figures(&self) -> RawDocumentBuf {
        RawDocumentBuf::new()
    }

    /// Bytes held at the moment.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// Who starts the stages that need more than the documents pushed into them (`$lookup`, `$unionWith`, `$out`, …).
pub trait Host {
    /// A running stage for `spec`, which is one of those [`StageSpec::needs_host`] tells.
    fn start(&self, spec: &StageSpec, ctx: &Arc<Context>) -> Result<Box<dyn Stage>>;
}

/// The host where there is no storage: every such stage is refused.
pub struct NoStorage;

impl Host for NoStorage {
    fn start(&self, spec: &StageSpec, _: &Arc<Context>) -> Result<Box<dyn Stage>> {
        Err(Error::new(ErrorCode::IllegalOperation, format!("{} cannot be used here", spec.name())))
    }
}
