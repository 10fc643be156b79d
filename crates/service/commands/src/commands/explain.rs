//! `explain`: by which plan a command would run, and what it looked at. Source: MongoDB manual, "explain results".

use crate::call::{Call, Reply};
use crate::commands::aggregate::{self, Explained};
use crate::commands::find::FindRequest;
use crate::crud;
use crate::fields::Fields;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::{Given, Query, QuerySpec};
use baton_query::Context;
use baton_query::pipeline::{Pipeline, StageSpec};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{Bson, Document, RawDocument, RawDocumentBuf, cstr, doc};
use std::sync::Arc;
use std::time::Instant;

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
    let mut elements = command.iter();
    let Some(first) = elements.next() else {
        return Err(Error::failed_to_parse("explain command requires a nested object"));
    };
    let (name, value) = first?;
    let mut fields = Fields::empty("explain");
    for element in elements {
        let (key, value) = element?;
        if name == "aggregate" && key == "writeConcern" {
            return Err(refused_write_concern());
        }
        // Generic arguments of the inner command mean nothing here.
        if !matches!(
            key.as_str(),
            "$db"
                | "lsid"
                | "$clusterTime"
                | "maxTimeMS"
                | "comment"
                | "readConcern"
                | "writeConcern"
                | "$readPreference"
                | "apiVersion"
                | "apiStrict"
                | "txnNumber"
                | "priority"
        ) {
            fields.add(key.as_str(), value)?;
        }
    }
    let db = call.envelope.db;
    let collection = || -> Result<Namespace> {
        let name = value
            .as_str()
            .ok_or_else(|| Error::new(ErrorCode::InvalidNamespace, "collection name has invalid type"))?;
        Namespace::new(db, name)
    };
    match name.as_str() {
        "aggregate" => {
            let explained = aggregate::explained(&mut fields, db, value, call)?;
            return append_pipeline(call, reply, explained, verbosity);
        }
        "find" => {
            let namespace = collection()?;
            let request = FindRequest::read(&mut fields)?;
            let context = crud::context(call, request.variables())?;
            let spec = request.query_spec(&context)?;
            append_query(call, reply, &namespace, spec, &context, verbosity)?;
        }
        "count" | "distinct" => {
            let is_count = name.as_str() == "count";
            let namespace = collection()?;
            let context = crud::context(call, None)?;
            let filter = crud::matcher(fields.optional("query")?, &context)?;
            let hint = crud::hint(fields.take("hint"))?;
            append_query(
                call,
                reply,
                &namespace,
                QuerySpec { hint, is_count, ..QuerySpec::matching(filter) },
                &context,
                verbosity,
            )?;
        }
        "update" | "delete" => {
            let namespace = collection()?;
            let context = crud::context(call, None)?;
            let list: &bson::RawArray =
                fields.required(if name.as_str() == "update" { "updates" } else { "deletes" })?;
            let statement = list
                .get_document(0)
                .map_err(|_| Error::failed_to_parse("explained write batches must be of size 1"))?;
            let filter = crud::matcher(statement.get_document("q").ok(), &context)?;
            let hint = crud::hint(statement.get("hint")?)?;
            append_query(
                call,
                reply,
                &namespace,
                QuerySpec { hint, ..QuerySpec::matching(filter) },
                &context,
                verbosity,
            )?;
        }
        "findAndModify" | "findandmodify" => {
            let namespace = collection()?;
            let context = crud::context(call, None)?;
            let filter = crud::matcher(fields.optional("query")?, &context)?;
            let (sort, _) = crud::sort(fields.optional("sort")?)?;
            append_query(
                call,
                reply,
                &namespace,
                QuerySpec { sort, limit: Some(1), ..QuerySpec::matching(filter) },
                &context,
                verbosity,
            )?;
        }
        other => {
            return Err(Error::new(
                ErrorCode::CommandNotFound,
                format!("Explain failed due to unknown command: {other}"),
            ));
        }
    }
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
        out.insert("executionStats", execution_section(&query, began, verbosity));
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
fn execution_section(query: &Query, began: Instant, verbosity: &str) -> Document {
    let mut statistics = query.execution_stats(began.elapsed().as_millis() as u64);
    if verbosity == "allPlansExecution" {
        statistics.insert("allPlansExecution", Bson::Array(Vec::new()));
    }
    statistics
}

/// The sections about a pipeline. What a pipeline without `$out` and `$merge` does is found out by running it.
pub fn append_pipeline(call: &Call<'_>, reply: &mut Reply<'_>, explained: Explained, verbosity: &str) -> Result<()> {
    let Explained { namespace, pipeline, hint, context } = explained;
    let host = aggregate::host(call, &namespace);
    let (namespace, pipeline) = host.resolve(&namespace, pipeline, &context)?;
    let pipeline = pipeline.optimize()?;
    let leading = pipeline.leading_query();
    let is_query = leading.rest.stages().is_empty() && pipeline.source().is_none();
    let runs = verbosity != "queryPlanner" && !is_query && pipeline.write().is_none();
    let mut stages = leading.rest.explain()?;
    let query = if runs && has_documents(&pipeline) {
        let mut aggregation = host.open(&namespace, pipeline.clone(), hint, &context)?;
        let began = Instant::now();
        while aggregation.run(&call.operation.check(), &mut |_| Ok(Given::Taken))? {}
        let millis = began.elapsed().as_millis() as i64;
        for (stage, returned) in stages.iter_mut().zip(aggregation.returned_by_stage()) {
            stage.append(cstr!("nReturned"), i64::try_from(returned).unwrap_or(i64::MAX));
            stage.append(cstr!("executionTimeMillisEstimate"), millis);
        }
        aggregation.query().map(|query| {
            let mut section = planner_section(query, &namespace);
            section.insert("executionStats", execution_section(query, began, verbosity));
            section
        })
    } else if pipeline.source().is_none() {
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

/// Whether the pipeline's input is a collection or documents of its own, and not the member's state.
fn has_documents(pipeline: &Pipeline) -> bool {
    matches!(pipeline.source(), None | Some(StageSpec::Documents(_)))
}

fn finish(call: &Call<'_>, reply: &mut Reply<'_>, command: &RawDocument) -> Result<()> {
    let identity = &call.server.identity;
    reply.append(cstr!("command"), command);
    let server = RawDocumentBuf::try_from(&doc! {
        "host": identity.host.as_str(), "port": i32::from(identity.port), "version": crate::commands::build_info::VERSION,
        "gitVersion": "unknown",
    })?;
    reply.append(cstr!("serverInfo"), &*server);
    reply.append(
        cstr!("serverParameters"),
        &*bson::rawdoc! { "internalQueryMaxBlockingSortMemoryUsageBytes": 104_857_600 },
    );
    Ok(())
}
