//! Updates by pipeline. Not implemented yet.

use super::Applied;
use crate::Context;
use baton_types::{Error, Result};
use bson::{RawArray, RawDocument, RawDocumentBuf};

#[derive(Debug)]
pub(super) struct PipelineUpdate {}

impl PipelineUpdate {
    pub fn parse(_stages: &RawArray, _ctx: &Context) -> Result<Self> {
        Err(Error::not_implemented("an update by pipeline"))
    }

    pub fn apply(&self, _doc: &RawDocument) -> Result<Applied> {
        Err(Error::not_implemented("an update by pipeline"))
    }

    pub fn insert(&self, _base: &RawDocument) -> Result<RawDocumentBuf> {
        Err(Error::not_implemented("an update by pipeline"))
    }
}
