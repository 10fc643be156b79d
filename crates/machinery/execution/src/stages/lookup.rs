//! `$lookup`: for each document, its partners.
//!
//! Invariant: together the partners of one document are no larger than a document may be.

use crate::access::Given;
use crate::host::StorageHost;
use crate::write;
use baton_query::Context;
use baton_query::pipeline::{Flow, LookupSpec, Pipeline, Stage};
use baton_types::{Error, Result};
use bson::raw::RawBson;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;

/// See the file's header.
pub(crate) struct Lookup {
    host: StorageHost,
    spec: Arc<LookupSpec>,
    context: Arc<Context>,
}

impl Lookup {
    pub fn new(host: StorageHost, spec: Arc<LookupSpec>, context: Arc<Context>) -> Self {
        Self { host, spec, context }
    }
}

impl Stage for Lookup {
    fn push(&mut self, document: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let bound = Arc::new(self.spec.bind(&document, &self.context)?);
        let mut stages = Vec::new();
        if let Some(filter) = self.spec.foreign_filter(&document)? {
            let mut stage = RawDocumentBuf::new();
            stage.append(bson::raw::cstr!("$match"), filter);
            stages.push(stage);
        }
        let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
        let mut pipeline = Pipeline::parse(&stages, &bound)?;
        if let Some(further) = self.spec.pipeline(&bound)? {
            let mut all = further.stages().to_vec();
            // A pipeline that begins with $documents keeps its beginning.
            let at = usize::from(further.source().is_some());
            all.splice(at..at, pipeline.stages().iter().cloned());
            pipeline = further.with_stages(all);
        }
        let mut partners = RawArrayBuf::new();
        let mut bytes = 0;
        let mut all = self.host.everything(self.spec.from.as_ref(), pipeline, &bound)?;
        all.run(&self.host.check(), &mut |partner| {
            bytes += partner.as_bytes().len();
            if bytes > write::DOCUMENT_BYTES_MAX {
                let from = self.spec.from.as_ref().map_or("the pipeline", |target| target.coll.as_str());
                return Err(Error::location(
                    4568,
                    format!(
                        "Total size of documents in {from} matching pipeline's $lookup stage exceeds {} bytes",
                        write::DOCUMENT_BYTES_MAX
                    ),
                ));
            }
            partners.push(RawBson::Document(partner.to_owned()));
            Ok(Given::Taken)
        })?;
        out.push_back(self.spec.attach(&document, &partners)?);
        Ok(Flow::More)
    }
}
