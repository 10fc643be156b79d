//! `$unionWith`: the documents of another pipeline after one's own.

use crate::access::Given;
use crate::aggregation::Aggregation;
use crate::host::StorageHost;
use baton_query::Context;
use baton_query::pipeline::{Flow, Pipeline, Stage, UnionWithSpec};
use baton_types::Result;
use bson::RawDocumentBuf;
use std::collections::VecDeque;
use std::sync::Arc;

/// So many documents are passed on before those who take them are asked whether they want more.
const AT_ONCE: usize = 256;

/// See the file's header. The other pipeline is opened when one's own has ended.
pub(crate) struct UnionWith {
    host: StorageHost,
    spec: Arc<UnionWithSpec>,
    context: Arc<Context>,
    other: Option<Aggregation>,
}

impl UnionWith {
    pub fn new(host: StorageHost, spec: Arc<UnionWithSpec>, context: Arc<Context>) -> Self {
        Self { host, spec, context, other: None }
    }
}

impl Stage for UnionWith {
    fn push(&mut self, document: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        out.push_back(document);
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if self.other.is_none() {
            let pipeline = match &self.spec.pipeline {
                Some(pipeline) => pipeline.bind(&self.context)?,
                None => Pipeline::parse(&[], &self.context)?,
            };
            self.other = Some(self.host.everything(self.spec.from.as_ref(), pipeline, &self.context)?);
        }
        let Some(other) = &mut self.other else { return Ok(Flow::Done) };
        let mut given = 0;
        let more = other.run(&self.host.check(), &mut |document| {
            out.push_back(document.to_owned());
            given += 1;
            Ok(if given == AT_ONCE { Given::TakenLast } else { Given::Taken })
        })?;
        Ok(if more { Flow::More } else { Flow::Done })
    }
}
