//! The aggregation pipeline: parsing it, optimising it, splitting off what a query plan can serve, and running its
//! stages.
//!
//! The way of a pipeline: [`Pipeline::parse`] checks the command's array against the table in `table.rs` and gives a
//! list of [`StageSpec`]s; [`Pipeline::optimize`] rewrites it; [`Pipeline::leading_query`] splits off filter, sort and
//! limits; [`Pipeline::start`] makes a [`Chain`] of running stages, into which the driver pushes documents. Stages that
//! need storage are parsed here and carried out by the [`Host`] that the driver brings.
//!
//! Invariants: parsing checks every argument, so a running stage fails only for what documents hold; specifications are
//! immutable and shared, state lives in the running stages alone.
//!
//! Deliberately absent: cursors, batches, collections, and the files that blocking stages spill to.

mod chain;
pub mod field;
mod filter;
mod leading;
mod optimize;
#[cfg(test)]
mod property_tests;
mod scope;
mod spec;
#[cfg(test)]
mod spill_tests;
mod stage;
mod stages;
mod table;
#[cfg(test)]
mod tests;

pub use chain::Chain;
pub use leading::LeadingQuery;
pub use spec::{Passing, StageSpec};
pub use stage::{Flow, Host, NoStorage, Stage};
pub use stages::bucket_auto::BucketAutoSpec;
pub use stages::documents::DocumentsSpec;
pub use stages::facet::FacetSpec;
pub use stages::group::GroupSpec;
pub use stages::lookup::{LookupSpec, Target};
pub use stages::matching::MatchSpec;
pub use stages::merge::{MergeSpec, WhenMatched, WhenNotMatched};
pub use stages::out::OutSpec;
pub use stages::project::ProjectSpec;
pub use stages::redact::RedactSpec;
pub use stages::replace_root::ReplaceRootSpec;
pub use stages::sort::SortSpec;
pub use stages::stats::{CollStatsSpec, CurrentOpSpec, LatencyStats, ListSessionsSpec};
pub use stages::sub_pipeline::SubPipeline;
pub use stages::union_with::UnionWithSpec;
pub use stages::unwind::UnwindSpec;
pub use table::{check_stage_names, stage_names};

use crate::Context;
use crate::expression::Dependencies;
use baton_types::{Error, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use scope::Scope;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most stages of one pipeline.
const STAGES_MAX: usize = 1000;

/// A checked pipeline. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pipeline {
    stages: Arc<[StageSpec]>,
    ctx: Arc<Context>,
}

/// The stages of a `pipeline` argument: `TypeMismatch` (14) unless it is an array of documents.
pub fn stage_documents(value: RawBsonRef<'_>) -> Result<Vec<&RawDocument>> {
    let Some(array) = value.as_array() else {
        return Err(Error::type_mismatch("'pipeline' option must be specified as an array"));
    };
    array
        .into_iter()
        .map(|element| {
            element?
                .as_document()
                .ok_or_else(|| Error::type_mismatch("Each element of the 'pipeline' array must be an object"))
        })
        .collect()
}

impl Pipeline {
    /// Parses a command's pipeline. The values of `ctx`'s variables are taken from it now, once.
    pub fn parse(stages: &[&RawDocument], ctx: &Context) -> Result<Self> {
        Self::parse_within(stages, &Scope::command(ctx))
    }

    pub(crate) fn parse_within(stages: &[&RawDocument], scope: &Scope<'_>) -> Result<Self> {
        if stages.len() > STAGES_MAX {
            let message = format!("Pipeline length must be no longer than {STAGES_MAX} stages.");
            return Err(Error::location(7749501, message));
        }
        let mut parsed = Vec::with_capacity(stages.len());
        for (at, stage) in stages.iter().enumerate() {
            let mut elements = stage.iter();
            let (Some(element), None) = (elements.next(), elements.next()) else {
                let message = "A pipeline stage specification object must contain exactly one field.";
                return Err(Error::location(40323, message));
            };
            let (name, value) = element?;
            table::parse(name.as_str(), value, (at, stages.len()), scope, &mut parsed)?;
        }
        Ok(Self { stages: parsed.into(), ctx: Arc::new(scope.ctx.clone()) })
    }

    /// The stages in order.
    pub fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    /// The surroundings the pipeline was parsed in.
    pub fn context(&self) -> &Arc<Context> {
        &self.ctx
    }

    /// A pipeline of other stages in the same surroundings.
    pub fn with_stages(&self, stages: Vec<StageSpec>) -> Self {
        Self { stages: stages.into(), ctx: Arc::clone(&self.ctx) }
    }

    /// The pipeline with the same results and less work.
    pub fn optimize(&self) -> Result<Self> {
        Ok(self.with_stages(optimize::optimize(self.stages.to_vec(), &self.ctx)?))
    }

    /// The query that serves the leading stages, and the rest. Best after [`Pipeline::optimize`].
    pub fn leading_query(&self) -> LeadingQuery {
        leading::split(self)
    }

    /// The stage that makes the input, where the pipeline does not read its collection.
    pub fn source(&self) -> Option<&StageSpec> {
        self.stages.first().filter(|stage| stage.is_source())
    }

    /// The `$out` or `$merge` at the end.
    pub fn write(&self) -> Option<&StageSpec> {
        self.stages.last().filter(|stage| stage.is_write())
    }

    /// The other collections the pipeline reads, sub-pipelines included, each once.
    pub fn reads(&self) -> Vec<Target> {
        let mut found = Vec::new();
        self.collect_reads(&mut found);
        found
    }

    fn collect_reads(&self, into: &mut Vec<Target>) {
        for stage in self.stages.iter() {
            let (from, pipeline) = match stage {
                StageSpec::Lookup(spec) => (spec.from.as_ref(), spec.pipeline.as_ref()),
                StageSpec::UnionWith(spec) => (spec.from.as_ref(), spec.pipeline.as_ref()),
                StageSpec::Facet(spec) => {
                    spec.facets.iter().for_each(|(_, pipeline)| pipeline.collect_reads(into));
                    continue;
                }
                _ => continue,
            };
            if let Some(target) = from.filter(|target| !into.contains(target)) {
                into.push(target.clone());
            }
            if let Some(pipeline) = pipeline {
                pipeline.shape().collect_reads(into);
            }
        }
    }

    /// What the pipeline reads of the documents it is given.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        for stage in self.stages.iter() {
            if stage.collect_dependencies(&mut found) == Passing::Consumed {
                return found;
            }
        }
        found.whole_document = true;
        found
    }

    /// The running pipeline; `host` starts the stages that need storage.
    pub fn start(&self, host: &dyn Host) -> Result<Chain> {
        self.start_with(&self.ctx, host)
    }

    pub(crate) fn start_with(&self, ctx: &Arc<Context>, host: &dyn Host) -> Result<Chain> {
        let running: Result<Vec<_>> = self.stages.iter().map(|stage| stage.start(ctx, host)).collect();
        Ok(Chain::new(running?).asking(&ctx.interruption))
    }

    /// The stages as `explain` shows them.
    pub fn explain(&self) -> Result<Vec<RawDocumentBuf>> {
        self.stages.iter().map(StageSpec::explain).collect()
    }

    /// Runs the pipeline over `docs` where they stand. `IllegalOperation` (20) if it holds a stage that needs storage.
    pub fn run_in_memory(&self, docs: impl IntoIterator<Item = RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        let mut chain = self.start(&NoStorage)?;
        let mut out = VecDeque::new();
        if self.source().is_none() {
            for doc in docs {
                let mut flow = chain.push(doc, &mut out)?;
                while flow == Flow::Again {
                    flow = chain.resume(&mut out)?;
                }
                if flow == Flow::Done {
                    break;
                }
            }
        }
        chain.finish_all(&mut out)?;
        Ok(out.into())
    }
}
