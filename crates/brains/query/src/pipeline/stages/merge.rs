//! `$merge`: the result is merged into a collection, document by document.
//!
//! Source: MongoDB manual, "$merge (aggregation)". Here are its arguments; writing is the executor's.

use super::lookup::{Target, let_variables};
use super::out::check_target;
use super::stats::unknown_field;
use crate::Context;
use crate::expression::Expression;
use crate::pipeline::field;
use crate::pipeline::stage_documents;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

/// What becomes of a document that the target already has.
#[derive(Clone, Debug)]
pub enum WhenMatched {
    /// The new document takes its place.
    Replace,
    /// The old one stays.
    KeepExisting,
    /// The new one's fields are set in the old one.
    Merge,
    /// The aggregation fails.
    Fail,
    /// The old one is updated by this pipeline, which sees the variables of `let`.
    Pipeline(Vec<RawDocumentBuf>),
}

/// What becomes of a document that the target does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenNotMatched {
    /// It is inserted.
    Insert,
    /// It is dropped.
    Discard,
    /// The aggregation fails, with `MergeStageNoMatchingDocument` (13113).
    Fail,
}

/// The arguments of `$merge`.
#[derive(Clone, Debug)]
pub struct MergeSpec {
    /// The collection to merge into.
    pub target: Target,
    /// The fields that identify a document; the executor takes `_id` when the client names none.
    pub on: Option<Vec<String>>,
    /// What becomes of a document that is there.
    pub when_matched: WhenMatched,
    /// What becomes of a document that is not there.
    pub when_not_matched: WhenNotMatched,
    /// The variables of the pipeline of [`WhenMatched::Pipeline`], computed from the new document; `new` is among them.
    pub let_variables: Vec<(String, Expression)>,
    /// The argument as the client wrote it.
    pub spec: RawBson,
}

impl MergeSpec {
    /// Parses the argument; the codes are 51178 to 51199, 51273, 31465, 31319, 31320, 40414 and 40415.
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let mut parsed = Self {
            target: Target { db: None, coll: String::new() },
            on: None,
            when_matched: WhenMatched::Merge,
            when_not_matched: WhenNotMatched::Insert,
            let_variables: Vec::new(),
            spec: value.into(),
        };
        match value {
            RawBsonRef::String(coll) => parsed.target.coll = coll.to_owned(),
            RawBsonRef::Document(spec) => parsed.read(spec, ctx)?,
            other => {
                let message = format!(
                    "$merge requires a string or object argument, but found {}",
                    type_name(other.element_type())
                );
                return Err(Error::type_mismatch(message));
            }
        }
        check_target("$merge", &parsed.target, 31319, 31320)?;
        Ok(parsed)
    }

    fn read(&mut self, spec: &RawDocument, ctx: &Context) -> Result<()> {
        let mut into = None;
        let mut variables = None;
        for element in spec.iter() {
            let (name, value) = element?;
            match name.as_str() {
                "into" => into = Some(into_argument(value)?),
                "on" => self.on = Some(on_argument(value)?),
                "whenMatched" => self.when_matched = when_matched(value)?,
                "whenNotMatched" => self.when_not_matched = when_not_matched(value)?,
                "let" => variables = Some(let_argument(value)?),
                other => return Err(unknown_field("$merge", other)),
            }
        }
        let Some(into) = into else {
            return Err(Error::location(40414, "BSON field '$merge.into' is missing but a required field"));
        };
        self.target = into;
        self.check_combination()?;
        self.bind_variables(variables, ctx)
    }

    fn check_combination(&self) -> Result<()> {
        let supported = match (&self.when_matched, self.when_not_matched) {
            (WhenMatched::KeepExisting, WhenNotMatched::Insert) => true,
            (WhenMatched::KeepExisting, WhenNotMatched::Discard | WhenNotMatched::Fail) => false,
            (WhenMatched::Fail, WhenNotMatched::Insert) => true,
            (WhenMatched::Fail, WhenNotMatched::Discard | WhenNotMatched::Fail) => false,
            (WhenMatched::Replace | WhenMatched::Merge | WhenMatched::Pipeline(_), _) => true,
        };
        if supported {
            return Ok(());
        }
        let message = format!(
            "Combination of $merge modes 'whenMatched: {}' and 'whenNotMatched: {}' is not supported",
            self.when_matched.name(),
            self.when_not_matched.name()
        );
        Err(Error::location(51181, message))
    }

    fn bind_variables(&mut self, variables: Option<&RawDocument>, ctx: &Context) -> Result<()> {
        let is_pipeline = matches!(self.when_matched, WhenMatched::Pipeline(_));
        if !is_pipeline {
            if variables.is_some() {
                let message =
                    format!("Cannot use 'let' variables with 'whenMatched: {}' mode", self.when_matched.name());
                return Err(Error::location(51199, message));
            }
            return Ok(());
        }
        let new = variables.map(|spec| spec.get("new")).transpose()?.flatten();
        if new.is_some_and(|new| new.as_str() != Some("$$ROOT")) {
            let message = "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'";
            return Err(Error::location(51273, message));
        }
        self.let_variables = let_variables(variables, ctx)?;
        if !self.let_variables.iter().any(|(name, _)| name == "new") {
            self.let_variables.extend(let_variables(Some(&rawdoc! { "new": "$$ROOT" }), ctx)?);
        }
        Ok(())
    }
}

impl WhenMatched {
    /// MongoDB's name of the mode.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::KeepExisting => "keepExisting",
            Self::Merge => "merge",
            Self::Fail => "fail",
            Self::Pipeline(_) => "pipeline",
        }
    }
}

impl WhenNotMatched {
    /// MongoDB's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Discard => "discard",
            Self::Fail => "fail",
        }
    }
}

fn into_argument(value: RawBsonRef<'_>) -> Result<Target> {
    match value {
        RawBsonRef::String(coll) => Ok(Target { db: None, coll: coll.to_owned() }),
        RawBsonRef::Document(spec) => {
            let mut target = Target { db: None, coll: String::new() };
            for element in spec.iter() {
                let (name, value) = element?;
                let text = || {
                    value.as_str().map(str::to_owned).ok_or_else(|| {
                        let message = format!(
                            "BSON field 'into.{name}' is the wrong type '{}', expected type 'string'",
                            type_name(value.element_type())
                        );
                        Error::type_mismatch(message)
                    })
                };
                match name.as_str() {
                    "db" => target.db = Some(text()?),
                    "coll" => target.coll = text()?,
                    other => return Err(unknown_field("into", other)),
                }
            }
            Ok(target)
        }
        other => {
            let message = format!(
                "$merge 'into' field  must be either a string or an object, but found {}",
                type_name(other.element_type())
            );
            Err(Error::location(51178, message))
        }
    }
}

fn on_argument(value: RawBsonRef<'_>) -> Result<Vec<String>> {
    let mut fields: Vec<String> = Vec::new();
    match value {
        RawBsonRef::String(name) => fields.push(name.to_owned()),
        RawBsonRef::Array(names) => {
            for name in names {
                let name = name?;
                let Some(name) = name.as_str() else {
                    let message = format!(
                        "$merge 'on' array elements must be strings, but found {}",
                        type_name(name.element_type())
                    );
                    return Err(Error::location(51134, message));
                };
                if fields.iter().any(|known| known == name) {
                    return Err(Error::location(31465, format!("Found a duplicate field '{name}'")));
                }
                fields.push(name.to_owned());
            }
            if fields.is_empty() {
                let message = "If explicitly specifying $merge 'on', must include at least one field";
                return Err(Error::location(51187, message));
            }
        }
        other => {
            let message = format!(
                "$merge 'on' field  must be either a string or an array of strings, but found {}",
                type_name(other.element_type())
            );
            return Err(Error::location(51186, message));
        }
    }
    fields.iter().try_for_each(|path| field::check_path(path))?;
    Ok(fields)
}

fn when_matched(value: RawBsonRef<'_>) -> Result<WhenMatched> {
    match value {
        RawBsonRef::String("replace") => Ok(WhenMatched::Replace),
        RawBsonRef::String("keepExisting") => Ok(WhenMatched::KeepExisting),
        RawBsonRef::String("merge") => Ok(WhenMatched::Merge),
        RawBsonRef::String("fail") => Ok(WhenMatched::Fail),
        RawBsonRef::String(other) => Err(unknown_mode("whenMatched", other)),
        RawBsonRef::Array(_) => {
            let stages = stage_documents(value)?;
            Ok(WhenMatched::Pipeline(stages.into_iter().map(RawDocument::to_owned).collect()))
        }
        other => {
            let message = format!(
                "$merge 'whenMatched' field  must be either a string or an array, but found {}",
                type_name(other.element_type())
            );
            Err(Error::location(51191, message))
        }
    }
}

fn when_not_matched(value: RawBsonRef<'_>) -> Result<WhenNotMatched> {
    match value {
        RawBsonRef::String("insert") => Ok(WhenNotMatched::Insert),
        RawBsonRef::String("discard") => Ok(WhenNotMatched::Discard),
        RawBsonRef::String("fail") => Ok(WhenNotMatched::Fail),
        RawBsonRef::String(other) => Err(unknown_mode("$merge.whenNotMatched", other)),
        other => {
            let message = format!(
                "BSON field '$merge.whenNotMatched' is the wrong type '{}', expected type 'string'",
                type_name(other.element_type())
            );
            Err(Error::type_mismatch(message))
        }
    }
}

fn unknown_mode(field: &str, mode: &str) -> Error {
    Error::bad_value(format!("Enumeration value '{mode}' for field '{field}' is not a valid value."))
}

fn let_argument(value: RawBsonRef<'_>) -> Result<&RawDocument> {
    value.as_document().ok_or_else(|| {
        let message = format!(
            "BSON field '$merge.let' is the wrong type '{}', expected type 'object'",
            type_name(value.element_type())
        );
        Error::type_mismatch(message)
    })
}
