//! The pipeline inside a `$lookup` or `$unionWith`.
//!
//! Invariant: it has been parsed once, so that what is wrong in it is told before anything runs. It is parsed again for
//! each set of variable values, because filters take the values of their variables when they are parsed.

use crate::Context;
use crate::pipeline::scope::Scope;
use crate::pipeline::{Pipeline, stage_documents};
use baton_types::{Error, Result};
use bson::Bson;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

/// A checked pipeline whose variables have no values yet.
#[derive(Clone, Debug)]
pub struct SubPipeline {
    /// The stages as the client wrote them.
    pub stages: Vec<RawDocumentBuf>,
    parsed: Pipeline,
}

impl SubPipeline {
    /// Parses the pipeline in the scope it stands in, with `names` as further variables.
    pub(crate) fn parse<'n>(
        value: RawBsonRef<'_>,
        names: impl Iterator<Item = &'n str>,
        scope: &Scope<'_>,
    ) -> Result<Self> {
        let stages = stage_documents(value)?;
        let mut ctx = scope.ctx.clone();
        for name in names {
            ctx.set_variable(name, Bson::Null)?;
        }
        let parsed = Pipeline::parse_within(&stages, &Scope { ctx: &ctx, ..*scope })?;
        Ok(Self { stages: stages.into_iter().map(RawDocument::to_owned).collect(), parsed })
    }

    /// The pipeline under `ctx`, which holds the values of all its variables.
    pub fn bind(&self, ctx: &Context) -> Result<Pipeline> {
        let stages: Vec<&RawDocument> = self.stages.iter().map(|stage| &**stage).collect();
        Pipeline::parse(&stages, ctx)
    }

    /// The pipeline as it was checked, without values for its variables: for reading its shape only.
    pub fn shape(&self) -> &Pipeline {
        &self.parsed
    }
}

/// Where there is no collection the pipeline has to bring its documents: `FailedToParse` (9).
pub(super) fn require_documents(stage: &str, pipeline: Option<&SubPipeline>) -> Result<()> {
    let Some(pipeline) = pipeline else {
        let field = if stage == "$lookup" { "from" } else { "coll" };
        return Err(Error::failed_to_parse(format!("must specify 'pipeline' when '{field}' is empty")));
    };
    if pipeline.parsed.stages().first().is_some_and(|first| first.name() == "$documents") {
        return Ok(());
    }
    let message =
        format!("{stage} stage without explicit collection must have a pipeline with $documents as first stage");
    Err(Error::failed_to_parse(message))
}
