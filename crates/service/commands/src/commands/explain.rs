//! `explain`: by which plan a command would run, and what it looked at. Source: MongoDB manual, "explain results".

use crate::call::{Call, Reply};
use crate::commands::aggregate::{self, Explained};
use crate::commands::find::FindRequest;
use crate::crud::{self, own_documents};
use crate::ddl::refuse_view;
use crate::fields::Fields;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::{Given, Query, QuerySpec};
use baton_query::Context;
use baton_query::pipeline::Pipeline;
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{Bson, Document, RawDocument, RawDocumentBuf, cstr, doc, rawdoc};
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
            let context = crud::context_with(call, request.variables(), request.allow_disk_use())?;
            if is_a_pipeline(call, &namespace) {
                return append_stages(call, reply, namespace, &request.stages()?, context, verbosity);
            }
            let spec = request.query_spec(&context)?;
            append_query(call, reply, &namespace, spec, &context, verbosity)?;
        }
        "count" | "distinct" => {
            let is_count = name.as_str() == "count";
            let namespace = collection()?;
            let context = crud::context(call, None)?;
            let query: Option<&RawDocument> = fields.optional("query")?;
            if is_a_pipeline(call, &namespace) {
                let mut stages = vec![rawdoc! { "$match": query.map_or_else(RawDocumentBuf::new, ToOwned::to_owned) }];
                if is_count {
                    stages.extend(window(&mut fields)?);
                    stages.push(rawdoc! { "$count": "count" });
                } else {
                    stages.extend(distinct_values(fields.required("key")?));
                }
                return append_stages(call, reply, namespace, &stages, context, verbosity);
            }
            let filter = crud::matcher(query, &context)?;
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
            refuse_to_write(call, &namespace)?;
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
            refuse_to_write(call, &namespace)?;
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
fn refuse_to_write(call: &Call<'_>, namespace: &Namespace) -> Result<()> {
    call.server.storage.collection(namespace).map_or(Ok(()), |collection| refuse_view(&collection))
}

/// The stages of a count's `skip` and `limit`.
fn window(fields: &mut Fields<'_>) -> Result<Vec<RawDocumentBuf>> {
    let mut stages = Vec::new();
    if let Some(skip) = fields.non_negative("skip")?.filter(|skip| *skip > 0) {
        stages.push(rawdoc! { "$skip": skip });
    }
    if let Some(limit) = fields.optional::<i64>("limit")?.filter(|limit| *limit != 0) {
        stages.push(rawdoc! { "$limit": limit.saturating_abs() });
    }
    Ok(stages)
}

/// The stages of a distinct.
fn distinct_values(key: &str) -> [RawDocumentBuf; 2] {
    let path = format!("${key}");
    [
        rawdoc! { "$unwind": { "path": path.as_str(), "preserveNullAndEmptyArrays": true } },
        rawdoc! { "$group": { "_id": null, "distinct": { "$addToSet": path.as_str() } } },
    ]
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
