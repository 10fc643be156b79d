//! `$lookup`: joins each document with documents of another collection, by equality of two fields, by a pipeline with
//! variables, or by both.
//!
//! Source: MongoDB manual, "$lookup (aggregation)". Here are its arguments and the pure halves of the work: which
//! filter finds the partners of a document, which pipeline runs over them, and how the result is put into the document.
//! Fetching the partners is the executor's.

use super::sub_pipeline::{self, SubPipeline};
use crate::Context;
use crate::expression::{self, Dependencies, Expression};
use crate::pipeline::Pipeline;
use crate::pipeline::field::{self, components, cstring};
use crate::pipeline::scope::{Inside, Scope};
use crate::show;
use baton_document::type_name;
use baton_types::{Error, ErrorCode, Result};
use bson::Bson;
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

/// Where a joined or united collection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The database; that of the aggregation when absent.
    pub db: Option<String>,
    /// The collection or view.
    pub coll: String,
}

/// The arguments of `$lookup`.
#[derive(Clone, Debug)]
pub struct LookupSpec {
    /// The other collection; absent when the pipeline brings its own documents (`$documents`).
    pub from: Option<Target>,
    /// The path the partners go to.
    pub as_field: String,
    /// The two paths that are to be equal, of this document and of the other collection's.
    pub equality: Option<(String, String)>,
    /// What runs over the partners.
    pub pipeline: Option<SubPipeline>,
    /// The variables of `let`, by name.
    pub let_variables: Vec<(String, Expression)>,
    /// The argument as the client wrote it.
    pub spec: RawDocumentBuf,
    local_names: Box<[Box<str>]>,
    as_names: Box<[Box<str>]>,
}

/// The argument's fields, unchecked against each other.
#[derive(Default)]
struct Arguments<'v> {
    from: Option<Target>,
    as_field: Option<String>,
    local_field: Option<String>,
    foreign_field: Option<String>,
    let_variables: Option<&'v RawDocument>,
    pipeline: Option<RawBsonRef<'v>>,
}

impl LookupSpec {
    /// Parses the argument: `FailedToParse` (9) for most of what may be wrong, 51047 for a stage that may not stand in
    /// the sub-pipeline.
    pub(crate) fn parse(value: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            let message = format!(
                "the $lookup stage specification must be an object, but found {}",
                type_name(value.element_type())
            );
            return Err(Error::failed_to_parse(message));
        };
        let arguments = read(spec)?;
        let Some(as_field) = arguments.as_field else {
            return Err(Error::failed_to_parse("must specify 'as' field for a $lookup"));
        };
        let equality = match (arguments.local_field, arguments.foreign_field) {
            (Some(local), Some(foreign)) => Some((local, foreign)),
            (None, None) => None,
            _ if arguments.pipeline.is_some() => {
                let message = "$lookup requires both or neither of 'localField' and 'foreignField' to be specified";
                return Err(Error::failed_to_parse(message));
            }
            _ => return Err(neither_form()),
        };
        if equality.is_none() && arguments.pipeline.is_none() {
            return Err(neither_form());
        }
        if arguments.let_variables.is_some() && arguments.pipeline.is_none() {
            return Err(Error::failed_to_parse("$lookup with a 'let' argument must also specify 'pipeline'"));
        }
        let let_variables = let_variables(arguments.let_variables, scope.ctx)?;
        let names = let_variables.iter().map(|(name, _)| name.as_str());
        let pipeline = match arguments.pipeline {
            Some(pipeline) => Some(SubPipeline::parse(pipeline, names, &scope.within(Inside::Lookup)?)?),
            None => None,
        };
        if arguments.from.is_none() {
            sub_pipeline::require_documents("$lookup", pipeline.as_ref())?;
        }
        let local_names = equality.as_ref().map(|(local, _)| components(local)).unwrap_or_default();
        Ok(Self {
            from: arguments.from,
            as_names: components(&as_field),
            as_field,
            equality,
            pipeline,
            let_variables,
            spec: spec.to_owned(),
            local_names,
        })
    }

    /// The filter that the partners of `doc` match, by the equality of the two fields; `None` without an equality.
    ///
    /// An array on this side stands for each of its elements; a missing field is looked for as null.
    pub fn foreign_filter(&self, doc: &RawDocument) -> Result<Option<RawDocumentBuf>> {
        let Some((_, foreign)) = &self.equality else { return Ok(None) };
        let mut values = Vec::new();
        local_values(doc.into(), &self.local_names, &mut values)?;
        if values.is_empty() {
            values.push(RawBsonRef::Null);
        }
        let foreign = cstring(foreign)?;
        let mut filter = RawDocumentBuf::new();
        if let [value] = values.as_slice() {
            filter.append(foreign, operator("$eq", *value)?);
        } else if values.iter().any(|value| matches!(value, RawBsonRef::RegularExpression(_))) {
            // Inside `$in` a regular expression would match strings; here it is a value like any other.
            let mut branches = RawArrayBuf::new();
            for value in values {
                let mut branch = RawDocumentBuf::new();
                branch.append(&foreign, operator("$eq", value)?);
                branches.push(branch);
            }
            filter.append(cstring("$or")?, branches);
        } else {
            let list: RawArrayBuf = values.into_iter().collect();
            filter.append(foreign, operator("$in", (&*list).into())?);
        }
        Ok(Some(filter))
    }

    /// `ctx` with the variables of `let`, as they are for `doc`. A missing value is one that no path finds.
    pub fn bind(&self, doc: &RawDocument, ctx: &Context) -> Result<Context> {
        let mut bound = ctx.clone();
        for (name, expression) in &self.let_variables {
            // An expression cannot hold "missing" in a variable; undefined compares and prints as close to it as can be.
            let value = expression.evaluate(doc, ctx)?.unwrap_or(Bson::Undefined);
            bound.set_variable(name, value)?;
        }
        Ok(bound)
    }

    /// Whether the sub-pipeline gives the same for every document, so that one run may serve all.
    pub fn is_uncorrelated(&self) -> bool {
        self.equality.is_none() && self.let_variables.is_empty()
    }

    /// The pipeline to run over the partners under `bound`, which [`LookupSpec::bind`] made; `None` if there is none.
    pub fn pipeline(&self, bound: &Context) -> Result<Option<Pipeline>> {
        self.pipeline.as_ref().map(|pipeline| pipeline.bind(bound)).transpose()
    }

    /// `doc` with its partners.
    pub fn attach(&self, doc: &RawDocument, partners: &RawArray) -> Result<RawDocumentBuf> {
        field::set(doc, &self.as_names, Some(partners.into()))
    }

    /// Adds what of a document the join reads.
    pub(crate) fn collect_dependencies(&self, into: &mut Dependencies) {
        if let Some((local, _)) = &self.equality {
            into.fields.insert(local.clone());
        }
        for (_, expression) in &self.let_variables {
            into.merge(expression.dependencies());
        }
    }
}

fn neither_form() -> Error {
    Error::failed_to_parse("$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified")
}

fn read(spec: &RawDocument) -> Result<Arguments<'_>> {
    let mut arguments = Arguments::default();
    for element in spec.iter() {
        let (name, value) = element?;
        match name.as_str() {
            "from" => arguments.from = Some(from_argument(value)?),
            "pipeline" => arguments.pipeline = Some(value),
            "let" => {
                let Some(variables) = value.as_document() else {
                    let message = format!(
                        "$lookup argument 'let: {}' must be an object, is type {}",
                        show::value(value),
                        type_name(value.element_type())
                    );
                    return Err(Error::failed_to_parse(message));
                };
                arguments.let_variables = Some(variables);
            }
            "as" | "localField" | "foreignField" => {
                let Some(path) = value.as_str() else {
                    let message = format!(
                        "$lookup argument '{name}: {}' must be a string, is type {}",
                        show::value(value),
                        type_name(value.element_type())
                    );
                    return Err(Error::failed_to_parse(message));
                };
                field::check_path(path)?;
                let path = Some(path.to_owned());
                match name.as_str() {
                    "as" => arguments.as_field = path,
                    "localField" => arguments.local_field = path,
                    _ => arguments.foreign_field = path,
                }
            }
            other => return Err(Error::failed_to_parse(format!("unknown argument to $lookup: {other}"))),
        }
    }
    Ok(arguments)
}

fn from_argument(value: RawBsonRef<'_>) -> Result<Target> {
    match value {
        RawBsonRef::String("") => {
            Err(Error::new(ErrorCode::InvalidNamespace, "invalid $lookup namespace: the collection name is empty"))
        }
        RawBsonRef::String(coll) => Ok(Target { db: None, coll: coll.to_owned() }),
        RawBsonRef::Document(spec) => {
            let name = |field| match spec.get(field)? {
                None => Ok(""),
                Some(RawBsonRef::String(name)) => Ok(name),
                Some(other) => Err(Error::type_mismatch(format!(
                    "BSON field 'from.{field}' is the wrong type '{}', expected type 'string'",
                    type_name(other.element_type())
                ))),
            };
            let (db, coll) = (name("db")?, name("coll")?);
            if (db, coll) != ("local", "oplog.rs") {
                let message = format!(
                    "$lookup with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {db} and coll: {coll}"
                );
                return Err(Error::failed_to_parse(message));
            }
            Ok(Target { db: Some(db.to_owned()), coll: coll.to_owned() })
        }
        other => {
            let message =
                format!("$lookup 'from' field must be a string, but found {}", type_name(other.element_type()));
            Err(Error::failed_to_parse(message))
        }
    }
}

/// Parses the variables of a `let`.
pub(super) fn let_variables(spec: Option<&RawDocument>, ctx: &Context) -> Result<Vec<(String, Expression)>> {
    let Some(spec) = spec else { return Ok(Vec::new()) };
    spec.iter()
        .map(|element| {
            let (name, value) = element?;
            let name = name.as_str();
            expression::check_variable_name(name)?;
            Ok((name.to_owned(), Expression::parse(value, ctx)?))
        })
        .collect()
}

/// Collects every value at a path, through arrays and into the elements of an array at its end.
fn local_values<'d>(value: RawBsonRef<'d>, names: &[Box<str>], into: &mut Vec<RawBsonRef<'d>>) -> Result<()> {
    let Some((first, rest)) = names.split_first() else {
        match value {
            RawBsonRef::Array(array) => {
                for element in array {
                    into.push(element?);
                }
            }
            other => into.push(other),
        }
        return Ok(());
    };
    match value {
        RawBsonRef::Document(doc) => match doc.get(first)? {
            Some(inner) => local_values(inner, rest, into),
            None => Ok(()),
        },
        RawBsonRef::Array(array) => {
            if let Ok(position) = first.parse::<usize>()
                && let Some(element) = array.get(position)?
            {
                local_values(element, rest, into)?;
            }
            for element in array {
                if let element @ RawBsonRef::Document(_) = element? {
                    local_values(element, names, into)?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn operator(name: &str, value: RawBsonRef<'_>) -> Result<RawBson> {
    Ok(RawBson::Document(field::single(name, value)?))
}
