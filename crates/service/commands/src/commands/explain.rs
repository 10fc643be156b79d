//! `explain`: by which plan a command would run, and what it looked at. Source: MongoDB manual, "explain results".

use crate::call::{Call, Reply};
use crate::commands::aggregate::{self, Explained};
use crate::commands::count::CountRequest;
use crate::commands::distinct::DistinctRequest;
use crate::commands::find::FindRequest;
use crate::commands::{delete, find_and_modify, update};
use crate::crud::{self, own_documents};
use crate::ddl::refuse_view;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::{Given, Query, QuerySpec};
use baton_query::Context;
use baton_query::pipeline::Pipeline;
use baton_request::Envelope;
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{Bson, Document, RawDocument, RawDocumentBuf, cstr, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "explain",
    flags: Flags::READ_CONCERN.and(Flags::API_V1),
    help: "explain database reads and writes",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(command) = call.envelope.value.as_document() else {
        return Err(Error::failed_to_parse("explain command requires a nested object"));
    };
    let verbosity = call.fields.optional::<&str>("verbosity")?.unwrap_or("allPlansExecution");
    call.fields.finish()?;
    if !matches!(verbosity, "queryPlanner" | "executionStats" | "allPlansExecution") {
        return Err(Error::failed_to_parse(format!(
            "verbosity string must be one of {{'queryPlanner', 'executionStats', 'allPlansExecution'}}, got {verbosity}"
        )));
    }
    let Some(first) = command.iter().next() else {
        return Err(Error::failed_to_parse("explain command requires a nested object"));
    };
    let name = first?.0.as_str();
    // Of its generic arguments none matters but that they are what they may be.
    let (inner, mut fields) = Envelope::parse_body(command, call.envelope.db, name)?;
    if name == "aggregate" {
        if inner.write_concern.is_some() {
            return Err(refused_write_concern());
        }
        let explained = aggregate::explained(&mut fields, call.envelope.db, inner.value, call)?;
        return append_pipeline(call, reply, explained, verbosity);
    }
    let namespace = || -> Result<Namespace> {
        let invalid = || Error::new(ErrorCode::InvalidNamespace, "collection name has invalid type");
        Namespace::new(call.envelope.db, inner.value.as_str().ok_or_else(invalid)?)
    };
    let (namespace, (spec, context)) = match name {
        "find" => {
            let (namespace, request) = (namespace()?, FindRequest::read(&mut fields)?);
            let context = crud::context_with(call, request.variables(), request.allow_disk_use())?;
            if is_a_pipeline(call, &namespace) {
                return append_stages(call, reply, namespace, &request.stages()?, context, verbosity);
            }
            (namespace, (request.query_spec(&context)?, context))
        }
        "count" => {
            let (namespace, request) = (namespace()?, CountRequest::read(&mut fields)?);
            let context = crud::context(call, None)?;
            if is_a_pipeline(call, &namespace) {
                return append_stages(call, reply, namespace, &request.stages(), context, verbosity);
            }
            (namespace, (request.query_spec(&context)?, context))
        }
        "distinct" => {
            let (namespace, request) = (namespace()?, DistinctRequest::read(&mut fields)?);
            let context = crud::context(call, None)?;
            if is_a_pipeline(call, &namespace) {
                return append_stages(call, reply, namespace, &request.stages(), context, verbosity);
            }
            (namespace, (request.query_spec(&context)?, context))
        }
        "update" => (to_write(call, namespace()?)?, update::explained(call, &mut fields)?),
        "delete" => (to_write(call, namespace()?)?, delete::explained(call, &mut fields)?),
        "findAndModify" | "findandmodify" => {
            (to_write(call, namespace()?)?, find_and_modify::explained(call, &mut fields)?)
        }
        other => {
            let message = format!("Explain failed due to unknown command: {other}");
            return Err(Error::new(ErrorCode::CommandNotFound, message));
        }
    };
    append_query(call, reply, &namespace, spec, &context, verbosity)?;
    finish(call, reply, command)
}

/// An aggregation that is explained writes nothing.
pub fn refused_write_concern() -> Error {
    Error::failed_to_parse("Aggregation explain does not support the'writeConcern' option")
}

/// The sections about a query.
fn append_query(
    call: &Call<'_>,
    reply: &mut Reply<'_>,
    namespace: &Namespace,
    spec: QuerySpec,
    context: &Arc<Context>,
    verbosity: &str,
) -> Result<()> {
    for (name, value) in describe_query(call, namespace, spec, context, verbosity)? {
        let value = bson::RawBson::try_from(value)?;
        reply.append(bson::raw::CString::try_from(name.as_str())?, value.as_raw_bson_ref());
    }
    Ok(())
}

fn describe_query(
    call: &Call<'_>,
    namespace: &Namespace,
    spec: QuerySpec,
    context: &Arc<Context>,
    verbosity: &str,
) -> Result<Document> {
    let storage = &call.server.storage;
    let mut query = Query::new(storage, storage.collection(namespace), spec, Arc::clone(context))?;
    let mut out = planner_section(&query, namespace);
    if verbosity != "queryPlanner" {
        let began = Instant::now();
        let interrupt = || call.operation.check_interrupt();
        while query.run(&interrupt, &mut |_, _| Ok(Given::Taken))? {}
        out.insert("executionStats", execution_section(&query, began.elapsed(), verbosity));
    }
    Ok(out)
}

fn planner_section(query: &Query, namespace: &Namespace) -> Document {
    let rejected: Vec<Bson> = query.rejected_plans().into_iter().map(Bson::Document).collect();
    doc! {
        "explainVersion": "1",
        "queryPlanner": {
            "namespace": namespace.as_str(),
            "parsedQuery": query.filter().to_document(),
            "indexFilterSet": false,
            "maxIndexedOrSolutionsReached": false,
            "maxIndexedAndSolutionsReached": false,
            "maxScansToExplodeReached": false,
            "winningPlan": query.winning_plan(),
            "rejectedPlans": rejected,
        },
    }
}

/// What a query did that has run to its end.
fn execution_section(query: &Query, took: Duration, verbosity: &str) -> Document {
    let mut statistics = query.execution_stats(milliseconds(took));
    if verbosity == "allPlansExecution" {
        statistics.insert("allPlansExecution", Bson::Array(Vec::new()));
    }
    statistics
}

/// What a query on a view runs: its own stages, behind the view's.
fn append_stages(
    call: &Call<'_>,
    reply: &mut Reply<'_>,
    namespace: Namespace,
    stages: &[RawDocumentBuf],
    context: Arc<Context>,
    verbosity: &str,
) -> Result<()> {
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    let pipeline = Pipeline::parse(&stages, &context)?;
    append_pipeline(call, reply, Explained { namespace, pipeline, hint: None, context }, verbosity)
}

fn is_a_pipeline(call: &Call<'_>, namespace: &Namespace) -> bool {
    let storage = &call.server.storage;
    own_documents::is_a_pipeline(storage, namespace, storage.collection(namespace).as_deref())
}

/// `CommandNotSupportedOnView` (166) for a view, as what is explained would answer.
fn to_write(call: &Call<'_>, namespace: Namespace) -> Result<Namespace> {
    call.server.storage.collection(&namespace).map_or(Ok(()), |collection| refuse_view(&collection))?;
    Ok(namespace)
}

/// The sections about a pipeline. What it does is found out by running it.
///
/// # Errors
/// 51029 if it would write and is to be run.
pub fn append_pipeline(call: &Call<'_>, reply: &mut Reply<'_>, explained: Explained, verbosity: &str) -> Result<()> {
    let Explained { namespace, pipeline, hint, context } = explained;
    let runs = verbosity != "queryPlanner";
    if let Some(write) = pipeline.write().filter(|_| runs) {
        let message = format!("explain of {} is not allowed with verbosity {verbosity}", write.name());
        return Err(Error::location(51029, message));
    }
    let host = own_documents::host(call, &namespace);
    let (namespace, pipeline) = host.resolve(&namespace, pipeline, &context)?;
    let pipeline = pipeline.optimize()?;
    let leading = pipeline.leading_query();
    // Documents of the member's own are found by no query.
    let has_query = pipeline.source().is_none() && !is_a_pipeline(call, &namespace);
    let is_query = leading.rest.stages().is_empty() && has_query;
    let mut stages = if has_query { leading.rest.explain()? } else { pipeline.explain()? };
    let query = if runs && !is_query {
        let mut aggregation = host.open(&namespace, pipeline.clone(), hint, &context)?;
        aggregation.time_stages();
        while aggregation.run(&call.operation.check(), &mut |_| Ok(Given::Taken))? {}
        let figures = aggregation.figures_by_stage().into_iter().zip(aggregation.times_by_stage());
        // A source's documents are made before the stages behind it begin.
        let behind_source = usize::from(pipeline.source().is_some());
        for (stage, ((returned, figures), time)) in stages.iter_mut().skip(behind_source).zip(figures) {
            for figure in &figures {
                let (name, value) = figure?;
                stage.append(name, value);
            }
            stage.append(cstr!("nReturned"), i64::try_from(returned).unwrap_or(i64::MAX));
            stage.append(cstr!("executionTimeMillisEstimate"), milliseconds(time) as i64);
        }
        let took = aggregation.input_time();
        aggregation.query().map(|query| {
            let mut section = planner_section(query, &namespace);
            section.insert("executionStats", execution_section(query, took, verbosity));
            section
        })
    } else if has_query {
        let filter = leading.filter.map_or_else(|| crud::matcher(None, &context), |(_, matcher)| Ok(matcher))?;
        let (sort, skip, limit) = (leading.sort, leading.skip, leading.limit);
        let spec = QuerySpec { sort, skip, limit, hint, ..QuerySpec::matching(filter) };
        let verbosity = if is_query { verbosity } else { "queryPlanner" };
        Some(describe_query(call, &namespace, spec, &context, verbosity)?)
    } else {
        None
    };
    if is_query {
        for (name, value) in query.unwrap_or_default() {
            let value = bson::RawBson::try_from(value)?;
            reply.append(bson::raw::CString::try_from(name.as_str())?, value.as_raw_bson_ref());
        }
    } else {
        reply.append(cstr!("explainVersion"), "1");
        reply.begin_array(cstr!("stages"));
        if let Some(mut cursor) = query {
            cursor.remove("explainVersion");
            let cursor = RawDocumentBuf::try_from(&doc! { "$cursor": cursor })?;
            reply.push(&*cursor);
        }
        for stage in stages {
            reply.push(&*stage);
        }
        reply.end();
    }
    finish(call, reply, call.request.body)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn finish(call: &Call<'_>, reply: &mut Reply<'_>, command: &RawDocument) -> Result<()> {
    let identity = &call.server.identity;
    reply.append(cstr!("command"), command);
    let server = RawDocumentBuf::try_from(&doc! {
        "host": identity.host.as_str(), "port": i32::from(identity.port), "version": crate::commands::build_info::VERSION,
        "gitVersion": "unknown",
    })?;
    reply.append(cstr!("serverInfo"), &*server);
    let parameters = &call.server.parameters;
    reply.append(
        cstr!("serverParameters"),
        &*bson::rawdoc! {
            "internalDocumentSourceGroupMaxMemoryBytes": parameters.group_memory_bytes_max.load(Relaxed),
            "internalQueryMaxBlockingSortMemoryUsageBytes": parameters.sort_memory_bytes_max.load(Relaxed),
        },
    );
    Ok(())
}
