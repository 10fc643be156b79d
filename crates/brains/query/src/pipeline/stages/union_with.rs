//! `$unionWith`: the documents of another collection after those of this one.
//!
//! Source: MongoDB manual, "$unionWith (aggregation)". Here are its arguments; fetching is the executor's.

use super::lookup::Target;
use super::stats::unknown_field;
use super::sub_pipeline::{self, SubPipeline};
use crate::pipeline::scope::{Inside, Scope};
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::raw::{RawBson, RawBsonRef};

/// The arguments of `$unionWith`.
#[derive(Clone, Debug)]
pub struct UnionWithSpec {
    /// The other collection; absent when the pipeline brings its own documents (`$documents`).
    pub from: Option<Target>,
    /// What runs over the other collection.
    pub pipeline: Option<SubPipeline>,
    /// The argument as the client wrote it.
    pub spec: RawBson,
}

impl UnionWithSpec {
    /// Parses either form, a collection's name or `{coll, pipeline}`: `FailedToParse` (9), 31441 for a stage that may
    /// not stand in the sub-pipeline.
    pub(crate) fn parse(value: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<Self> {
        let mut parsed = Self { from: None, pipeline: None, spec: value.into() };
        match value {
            RawBsonRef::String(coll) => parsed.from = Some(Target { db: None, coll: coll.to_owned() }),
            RawBsonRef::Document(spec) => {
                for element in spec.iter() {
                    let (name, value) = element?;
                    match name.as_str() {
                        "coll" => parsed.from = Some(collection(value)?),
                        "pipeline" => {
                            let inner = scope.within(Inside::UnionWith)?;
                            parsed.pipeline = Some(SubPipeline::parse(value, std::iter::empty(), &inner)?);
                        }
                        other => return Err(unknown_field("$unionWith", other)),
                    }
                }
                if parsed.from.is_none() {
                    sub_pipeline::require_documents("$unionWith", parsed.pipeline.as_ref())?;
                }
            }
            other => {
                let message = format!(
                    "the $unionWith stage specification must be an object or string, but found {}",
                    type_name(other.element_type())
                );
                return Err(Error::failed_to_parse(message));
            }
        }
        Ok(parsed)
    }
}

fn collection(value: RawBsonRef<'_>) -> Result<Target> {
    match value.as_str() {
        Some(coll) => Ok(Target { db: None, coll: coll.to_owned() }),
        None => {
            let message = format!(
                "BSON field '$unionWith.coll' is the wrong type '{}', expected type 'string'",
                type_name(value.element_type())
            );
            Err(Error::type_mismatch(message))
        }
    }
}
