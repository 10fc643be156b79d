//! `aggregate`: a pipeline over a collection, a view or a database. Source: MongoDB manual, "aggregate".

use crate::call::{Call, Reply};
use crate::commands::at_the_primary;
use crate::commands::explain;
use crate::crud::cursor::{Opening, open};
use crate::crud::own_documents::{self, WHOLE_DATABASE};
use crate::crud::{self, batch_size};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::{Given, Hint};
use baton_query::Context;
use baton_query::pipeline::{Pipeline, StageSpec, stage_documents};
use baton_request::{Fields, ReadLevel};
use baton_storage::Durability;
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawBsonRef, RawDocument};
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "aggregate",
    flags: Flags::ADMITTED
        .and(Flags::READ_CONCERN)
        .and(Flags::SNAPSHOT)
        .and(Flags::WRITE_CONCERN)
        .and(Flags::API_V1)
        .and(Flags::ON_COLLECTION),
    help: "Runs the aggregation command",
    run,
    ..DEFAULT
};

/// The fields of an aggregate, checked.
pub struct AggregateRequest<'a> {
    stages: Vec<&'a RawDocument>,
    batch_size: Option<usize>,
    explain: bool,
    hint: Option<RawBsonRef<'a>>,
    variables: Option<&'a RawDocument>,
    bypass_validation: bool,
    allow_disk_use: Option<bool>,
}

impl<'a> AggregateRequest<'a> {
    /// Reads the command's own fields. `explained` tells that it stands inside `explain`, where `cursor` may be absent.
    pub fn read(fields: &mut Fields<'a>, explained: bool) -> Result<Self> {
        let pipeline: RawBsonRef<'a> = fields.required("pipeline")?;
        let stages = stage_documents(pipeline)?;
        let explain = fields.truth("explain")?;
        let cursor: Option<&RawDocument> = fields.optional("cursor")?;
        let batch_size = match cursor {
            Some(cursor) => {
                let mut fields = Fields::of("cursor", cursor)?;
                let size = batch_size(fields.optional("batchSize")?, "batchSize")?;
                fields.finish()?;
                size
            }
            None if explain || explained => None,
            None => {
                return Err(Error::failed_to_parse(
                    "The 'cursor' option is required, except for aggregate with the explain argument",
                ));
            }
        };
        let hint = fields.take("hint");
        let variables = fields.optional("let")?;
        crud::check_collation(fields.optional("collation")?)?;
        let bypass_validation = fields.truth("bypassDocumentValidation")?;
        let allow_disk_use = fields.optional("allowDiskUse")?;
        for ignored in ["fromMongos", "needsMerge", "bypassEmptyTsReplacement"] {
            fields.take(ignored);
        }
        fields.finish()?;
        Ok(Self { stages, batch_size, explain, hint, variables, bypass_validation, allow_disk_use })
    }
}

/// What the pipeline runs on, and the namespace its cursor has.
fn target(db: &str, value: RawBsonRef<'_>) -> Result<(Namespace, bool)> {
    match value {
        RawBsonRef::String(collection) => Ok((Namespace::new(db, collection)?, false)),
        RawBsonRef::Int32(1) | RawBsonRef::Int64(1) => Ok((Namespace::new(db, WHOLE_DATABASE)?, true)),
        RawBsonRef::Double(1.0) => Ok((Namespace::new(db, WHOLE_DATABASE)?, true)),
        _ => Err(Error::failed_to_parse(
            "Invalid command format: the 'aggregate' field must specify a collection name or 1",
        )),
    }
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let (namespace, whole_database) = target(call.envelope.db, call.envelope.value)?;
    let request = AggregateRequest::read(&mut call.fields, false)?;
    let context = crud::context_with(call, request.variables, request.allow_disk_use)?;
    let pipeline = parse(&request.stages, &context)?;
    own_documents::check_source(&pipeline, &namespace, whole_database)?;
    check_read_concern(call, &pipeline)?;
    check_api(call, &pipeline)?;
    if request.explain {
        if call.envelope.write_concern.is_some() {
            return Err(explain::refused_write_concern());
        }
        let explained = Explained { namespace, pipeline, hint: crud::hint(request.hint)?, context };
        return explain::append_pipeline(call, reply, explained, "queryPlanner");
    }
    let mut host = own_documents::host(call, &namespace);
    host.bypass_validation = request.bypass_validation;
    let writes = pipeline.write().is_some();
    if writes && call.read_at.is_some() {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "Aggregation stages $out and $merge cannot run with a readConcern of level 'snapshot'",
        ));
    }
    if writes && !call.server.topology.is_writable_primary() && call.envelope.db != "local" {
        return at_the_primary::carry_out(call, reply);
    }
    let server = call.server;
    let _writing = match writes {
        true => Some(server.write_lock.enter(&|| call.operation.check_interrupt())?),
        false => None,
    };
    let mut aggregation = host.open(&namespace, pipeline, crud::hint(request.hint)?, &context)?;
    if writes {
        // $out and $merge give nothing back; they run to their end now.
        let check = call.operation.check();
        while aggregation.run(&check, &mut |_| Ok(Given::Taken)).map_err(executing)? {}
        if crud::durability(call) == Durability::Synced {
            call.server.storage.sync();
        }
    }
    let opening = Opening { namespace, batch_size: request.batch_size, single_batch: false, no_timeout: false };
    open(call, reply, Box::new(aggregation), &opening).map_err(executing)
}

/// The pipeline of the stages. A constant part of an expression that fails is the optimiser's failure, as in MongoDB,
/// whether or not it would be reached.
fn parse(stages: &[&RawDocument], context: &Arc<Context>) -> Result<Pipeline> {
    let parsed = Pipeline::parse(stages, context);
    context.check_constants().map_err(|error| error.in_context("Failed to optimize pipeline"))?;
    parsed
}

/// An error of a pipeline that runs.
fn executing(error: Error) -> Error {
    error.in_context("PlanExecutor error during aggregation")
}

/// `InvalidOptions` (72) for a pipeline that writes what it is to read linearizably.
fn check_read_concern(call: &Call<'_>, pipeline: &Pipeline) -> Result<()> {
    match pipeline.write() {
        Some(stage) if call.envelope.read_concern.level == ReadLevel::Linearizable => {
            let message = format!("{} cannot be used with a 'linearizable' read concern level", stage.name());
            Err(Error::new(ErrorCode::InvalidOptions, message))
        }
        _ => Ok(()),
    }
}

fn check_api(call: &Call<'_>, pipeline: &Pipeline) -> Result<()> {
    if call.envelope.api_strict { check_strict(pipeline) } else { Ok(()) }
}

/// `APIStrictError` (323) for a stage that is not in API version 1.
pub fn check_strict(pipeline: &Pipeline) -> Result<()> {
    let outside = pipeline.stages().iter().find(|stage| match stage {
        StageSpec::CollStats(spec) => spec.storage_scale.is_some(),
        stage => matches!(
            stage.name(),
            "$currentOp" | "$indexStats" | "$listLocalSessions" | "$listSessions" | "$planCacheStats"
        ),
    });
    match outside {
        Some(stage) => Err(Error::new(
            ErrorCode::APIStrictError,
            format!("stage {} is not allowed with 'apiStrict: true' in API Version 1", stage.name()),
        )),
        None => Ok(()),
    }
}

/// An aggregate that is to be explained.
pub struct Explained {
    /// What it runs on.
    pub namespace: Namespace,
    /// Its pipeline.
    pub pipeline: Pipeline,
    /// By which path its documents are to be found.
    pub hint: Option<Hint>,
    /// The surroundings of its expressions.
    pub context: Arc<Context>,
}

/// The pipeline of an explained aggregate.
pub fn explained<'a>(fields: &mut Fields<'a>, db: &str, value: RawBsonRef<'a>, call: &Call<'_>) -> Result<Explained> {
    let (namespace, whole_database) = target(db, value)?;
    let request = AggregateRequest::read(fields, true)?;
    let context = crud::context_with(call, request.variables, request.allow_disk_use)?;
    let pipeline = parse(&request.stages, &context)?;
    own_documents::check_source(&pipeline, &namespace, whole_database)?;
    Ok(Explained { namespace, pipeline, hint: crud::hint(request.hint)?, context })
}
