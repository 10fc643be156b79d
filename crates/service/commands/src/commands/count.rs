//! `count`: how many documents match. Source: MongoDB manual, "count".

use crate::call::{Call, Reply};
use crate::crud::{self, own_documents};
use crate::mirroring;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::{Given, Query, QuerySpec};
use baton_query::pipeline::Pipeline;
use baton_types::Result;
use bson::{RawDocument, cstr, rawdoc};
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "count",
    flags: Flags::READ_CONCERN.and(Flags::API_V1).and(Flags::ON_COLLECTION),
    help: "count objects in collection",
    mirrored_as: Some(mirroring::count),
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let query: Option<&RawDocument> = call.fields.optional("query")?;
    // A negative limit means its absolute value, as it did for cursors of old.
    let limit = call.fields.optional::<i64>("limit")?.map(i64::unsigned_abs).filter(|limit| *limit > 0);
    let skip = call.fields.non_negative("skip")?.unwrap_or(0) as u64;
    let hint = crud::hint(call.fields.take("hint"))?;
    crud::check_collation(call.fields.optional("collation")?)?;
    call.fields.take("fields");
    call.fields.finish()?;
    let storage = Arc::clone(&call.server.storage);
    let context = crud::context(call, None)?;
    let interrupt = || call.operation.check_interrupt();
    let collection = storage.collection(&namespace);
    let is_a_pipeline = own_documents::is_a_pipeline(&storage, &namespace, collection.as_deref());
    let count = if is_a_pipeline {
        let stage = rawdoc! { "$match": query.map_or_else(|| rawdoc! {}, ToOwned::to_owned) };
        let host = own_documents::host(call, &namespace);
        let mut aggregation = host.open(&namespace, Pipeline::parse(&[&stage], &context)?, None, &context)?;
        let mut count = 0_u64;
        aggregation.run(&call.operation.check(), &mut |_| {
            count += 1;
            Ok(Given::Taken)
        })?;
        let beyond = count.saturating_sub(skip);
        limit.map_or(beyond, |limit| beyond.min(limit))
    } else {
        let spec =
            QuerySpec { skip, limit, hint, is_count: true, ..QuerySpec::matching(crud::matcher(query, &context)?) };
        let mut query = Query::new(&storage, collection, spec, context)?;
        call.operation.set_plan_summary(query.plan_summary());
        query.count(&interrupt)?
    };
    crud::settle_read(call)?;
    match i32::try_from(count) {
        Ok(count) => reply.append(cstr!("n"), count),
        Err(_) => reply.append(cstr!("n"), count as i64),
    }
    Ok(())
}
