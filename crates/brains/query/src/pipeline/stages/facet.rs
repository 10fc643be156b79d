//! `$facet`: several pipelines over the same input, their results side by side in one document.
//!
//! Source: MongoDB manual, "$facet (aggregation)". Every document is pushed through all pipelines as it comes; what is
//! held is their results, within the request's memory bound (4031700 beyond it), and at the end the one document they
//! become. Results are held one by one until then: a growing array would hold room for as much again.

use crate::Context;
use crate::expression::Dependencies;
use crate::pipeline::Pipeline;
use crate::pipeline::chain::Chain;
use crate::pipeline::field;
use crate::pipeline::scope::{Inside, Scope};
use crate::pipeline::stage::{Flow, Host, Stage};
use crate::{raw, show};
use baton_document::type_name;
use baton_types::{Error, MemoryAccount, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use std::collections::VecDeque;
use std::sync::Arc;

/// The argument of `$facet`.
#[derive(Clone, Debug)]
pub struct FacetSpec {
    /// The pipelines by the field their results go to.
    pub facets: Vec<(String, Pipeline)>,
}

impl FacetSpec {
    /// Parses the argument: 40169 to 40171, 40600 for a stage that may not stand in a facet.
    pub(crate) fn parse(value: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<Self> {
        let Some(spec) = value.as_document().filter(|spec| !spec.is_empty()) else {
            let message = format!(
                "the $facet specification must be a non-empty object, but found: $facet: {}",
                show::value(value)
            );
            return Err(Error::location(40169, message));
        };
        let inner = scope.within(Inside::Facet)?;
        let mut facets = Vec::new();
        for element in spec.iter() {
            let (name, value) = element?;
            field::check_name(name.as_str())?;
            let stages = stage_documents(name.as_str(), value)?;
            facets.push((name.as_str().to_owned(), Pipeline::parse_within(&stages, &inner)?));
        }
        Ok(Self { facets })
    }

    /// Adds what the pipelines read; the input goes no further than this stage.
    pub(crate) fn collect_dependencies(&self, into: &mut Dependencies) {
        for (_, pipeline) in &self.facets {
            into.merge(pipeline.dependencies());
        }
    }

    pub(crate) fn start(&self, ctx: &Arc<Context>, host: &dyn Host) -> Result<FacetStage> {
        let facets = self
            .facets
            .iter()
            .map(|(name, pipeline)| {
                let chain = pipeline.start_with(ctx, host)?;
                Ok(Facet { name: name.clone(), chain, wants_more: true, results: Vec::new() })
            })
            .collect::<Result<_>>()?;
        Ok(FacetStage { facets, memory: ctx.stage_memory(), taken: VecDeque::new() })
    }
}

fn stage_documents<'v>(name: &str, value: RawBsonRef<'v>) -> Result<Vec<&'v RawDocument>> {
    let Some(array) = value.as_array() else {
        let message = format!("arguments to $facet must be arrays, {name} is type {}", type_name(value.element_type()));
        return Err(Error::location(40170, message));
    };
    array
        .into_iter()
        .map(|element| {
            let element = element?;
            element.as_document().ok_or_else(|| {
                let message = format!(
                    "elements of arrays in $facet spec must be non-empty objects, {name} argument contained an \
                     element of type {}: {}",
                    type_name(element.element_type()),
                    show::value(element)
                );
                Error::location(40171, message)
            })
        })
        .collect()
}

struct Facet {
    name: String,
    chain: Chain,
    wants_more: bool,
    results: Vec<RawDocumentBuf>,
}

/// `$facet` at work.
pub(crate) struct FacetStage {
    facets: Vec<Facet>,
    /// The results so far.
    memory: MemoryAccount,
    /// What a pipeline has just emitted; empty between calls.
    taken: VecDeque<RawDocumentBuf>,
}

impl FacetStage {
    /// Moves what facet number `at` has emitted to its results.
    fn keep(&mut self, at: usize) -> Result<()> {
        while let Some(doc) = self.taken.pop_front() {
            self.hold(self.memory.bytes() + size_of::<RawDocumentBuf>() + doc.as_bytes().len())?;
            if let Some(facet) = self.facets.get_mut(at) {
                facet.results.push(doc);
            }
        }
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        if self.memory.set(bytes) {
            return Ok(());
        }
        let message = format!(
            "document constructed by $facet is {bytes} bytes, which exceeds the limit of {} bytes",
            self.memory.bytes_max()
        );
        Err(Error::location(4031700, message))
    }

    /// The results as one document.
    fn document(&mut self) -> Result<RawDocumentBuf> {
        // An element's type, its name (a number for results) and their ends, at most.
        const ELEMENT_BYTES: usize = 1 + 10 + 1;
        let size = |facet: &Facet| {
            let results: usize = facet.results.iter().map(|doc| ELEMENT_BYTES + doc.as_bytes().len()).sum();
            ELEMENT_BYTES + facet.name.len() + 5 + results
        };
        let room = 5 + self.facets.iter().map(size).sum::<usize>();
        self.hold(self.memory.bytes() + room)?;
        let mut out = Vec::with_capacity(room);
        let start = raw::begin(&mut out);
        for facet in &mut self.facets {
            raw::put_header(&mut out, ElementType::Array, &facet.name);
            let array = raw::begin(&mut out);
            for (place, doc) in facet.results.drain(..).enumerate() {
                raw::put_bytes(&mut out, ElementType::EmbeddedDocument, &place.to_string(), doc.as_bytes());
            }
            raw::end(&mut out, array);
        }
        raw::end(&mut out, start);
        raw::finish(out)
    }
}

impl Stage for FacetStage {
    fn push(&mut self, doc: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let mut wanted = false;
        for at in 0..self.facets.len() {
            let facet = &mut self.facets[at];
            if facet.wants_more {
                let mut flow = facet.chain.push(doc.clone(), &mut self.taken)?;
                self.keep(at)?;
                while flow == Flow::Again {
                    flow = self.facets[at].chain.resume(&mut self.taken)?;
                    self.keep(at)?;
                }
                self.facets[at].wants_more = flow == Flow::More;
                wanted |= flow == Flow::More;
            }
        }
        Ok(if wanted { Flow::More } else { Flow::Done })
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        for at in 0..self.facets.len() {
            loop {
                let flow = self.facets[at].chain.finish(&mut self.taken)?;
                self.keep(at)?;
                if flow == Flow::Done {
                    break;
                }
            }
        }
        out.push_back(self.document()?);
        Ok(Flow::Done)
    }

    fn memory_bytes(&self) -> usize {
        self.memory.bytes() + self.facets.iter().map(|facet| facet.chain.memory_bytes()).sum::<usize>()
    }
}
