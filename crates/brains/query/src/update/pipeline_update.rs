//! Updates by pipeline: `[{$set: {…}}, {$unset: …}, {$replaceWith: …}]`.
//!
//! Only stages that turn one document into one are allowed. The result takes the place of the document as a
//! replacement would: it keeps `_id`, and a result without one gets it back. Names that start with `$` are allowed at
//! the top, unlike in other updates.

use super::{Applied, OplogUpdate, replacement, storage_rules};
use crate::Context;
use crate::pipeline::{self, Pipeline, StageSpec};
use crate::raw;
use baton_document::order;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::cmp::Ordering;

/// A parsed update by pipeline.
#[derive(Debug)]
pub(super) struct PipelineUpdate {
    pipeline: Pipeline,
}

impl PipelineUpdate {
    /// Parses the stages; one that an update may not have is `InvalidOptions` (72).
    pub fn parse(stages: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let stages = pipeline::stage_documents(stages)?;
        let pipeline = Pipeline::parse(&stages, ctx)?;
        for stage in &stages {
            let name = match stage.iter_elements().next() {
                Some(first) => first?.key().as_str(),
                None => "",
            };
            let allowed = ["$addFields", "$set", "$project", "$unset", "$replaceRoot", "$replaceWith"].contains(&name);
            if !allowed {
                let message = format!("{name} is not allowed to be used within an update");
                return Err(Error::new(ErrorCode::InvalidOptions, message));
            }
        }
        Ok(Self { pipeline })
    }

    pub fn apply(&self, doc: &RawDocument) -> Result<Applied> {
        let after = self.run(doc)?;
        storage_rules::check_size(&after, false)?;
        if after.as_bytes() == doc.as_bytes() {
            return Ok(Applied { document: None, oplog: OplogUpdate::Unchanged });
        }
        let oplog = OplogUpdate::between(doc, &after)?;
        Ok(Applied { document: Some(after), oplog })
    }

    /// The document that an upsert inserts, made from the one that the filter's equalities make.
    pub fn insert(&self, base: &RawDocument) -> Result<RawDocumentBuf> {
        self.run(base)
    }

    fn run(&self, doc: &RawDocument) -> Result<RawDocumentBuf> {
        let mut result = doc.to_owned();
        for stage in self.pipeline.stages() {
            result = match stage {
                StageSpec::AddFields(spec) | StageSpec::Project(spec) => spec.projection().apply(&result, None)?,
                StageSpec::ReplaceRoot(spec) => spec.apply(&result, self.pipeline.context())?,
                other => {
                    let message = format!("{} is not allowed to be used within an update", other.name());
                    return Err(Error::new(ErrorCode::InvalidOptions, message));
                }
            };
        }
        let old_id = raw::find(doc, "_id")?;
        if let (Some(old), Some(new)) = (&old_id, raw::find(&result, "_id")?) {
            let new = new.value()?;
            if order::compare(old.value()?, new) != Ordering::Equal {
                return Err(storage_rules::id_altered(Some(new)));
            }
        }
        storage_rules::check_depth(&result)?;
        match &old_id {
            Some(id) => replacement::with_id(&result, Some(id)),
            None => Ok(result),
        }
    }
}
