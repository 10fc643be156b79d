//! Where a pipeline stands while it is parsed: at the top or inside another one, and how deep.

use crate::Context;
use baton_types::{Error, ErrorCode, Result};

/// Most pipelines inside one another, the outermost not counted.
const DEPTH_MAX: usize = 20;

/// What a pipeline is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// Nothing: the command's own pipeline.
    Command,
    /// A `$facet`.
    Facet,
    /// A `$lookup`.
    Lookup,
    /// A `$unionWith`.
    UnionWith,
}

/// The surroundings of a pipeline while it is parsed.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'c> {
    pub ctx: &'c Context,
    pub inside: Inside,
    pub depth: usize,
}

impl<'c> Scope<'c> {
    /// The scope of a command's own pipeline.
    pub fn command(ctx: &'c Context) -> Self {
        Self { ctx, inside: Inside::Command, depth: 0 }
    }

    /// The scope of a pipeline one level down: `MaxSubPipelineDepthExceeded` (224) beyond 20 levels.
    pub fn within(&self, inside: Inside) -> Result<Self> {
        if self.depth == DEPTH_MAX {
            let message = format!("Maximum number of nested sub-pipelines exceeded. Limit is {DEPTH_MAX}");
            return Err(Error::new(ErrorCode(224), message));
        }
        Ok(Self { ctx: self.ctx, inside, depth: self.depth + 1 })
    }
}
