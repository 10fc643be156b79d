//! `dataSize`: how many documents lie between two keys, and how large they are. Source: MongoDB manual, "dataSize".

use crate::call::{Call, Reply};
use crate::crud;
use crate::ddl::{parse_namespace, refuse_view, statistics};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::{Given, Hint, Query, QuerySpec};
use baton_types::{Error, ErrorCode, Result};
use bson::{RawDocument, cstr, rawdoc};
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "dataSize",
    aliases: &["datasize"],
    flags: Flags::READ_CONCERN,
    help: "{ dataSize: 'db.coll', keyPattern: { _id: 1 }, min: { _id: 10 }, max: { _id: 50 } } gives the size of what \
           lies between; without min and max, of all.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = parse_namespace("dataSize", "dataSize", call.envelope.value)?;
    let pattern = call.fields.optional::<&RawDocument>("keyPattern")?;
    let min = call.fields.optional::<&RawDocument>("min")?;
    let max = call.fields.optional::<&RawDocument>("max")?;
    let estimate = call.fields.truth("estimate")?;
    let size_max = call.fields.optional::<i64>("maxSize")?;
    let documents_max = call.fields.optional::<i64>("maxObjects")?;
    call.fields.finish()?;
    if min.is_some() != max.is_some() {
        return Err(Error::new(ErrorCode::BadValue, "Both \"min\" and \"max\" must be provided"));
    }
    let storage = &call.server.storage;
    let (mut size, mut count) = (0_i64, 0_i64);
    let mut reached = false;
    if let Some(collection) = storage.collection(&namespace) {
        refuse_view(&collection)?;
        if let (Some(min), Some(max)) = (min, max) {
            let context = crud::context(call, None)?;
            let spec = QuerySpec {
                min: Some(min.to_owned()),
                max: Some(max.to_owned()),
                hint: Some(Hint::Pattern(pattern.map_or_else(|| rawdoc! { "_id": 1 }, ToOwned::to_owned))),
                ..QuerySpec::matching(crud::matcher(None, &context)?)
            };
            let mut query = Query::new(storage, Some(Arc::clone(&collection)), spec, context)?;
            query.run(&|| call.operation.check_interrupt(), &mut |_, document| {
                size += document.as_bytes().len() as i64;
                count += 1;
                let over = |limit: Option<i64>, now: i64| limit.is_some_and(|limit| limit > 0 && now > limit);
                reached = over(size_max, size) || over(documents_max, count);
                Ok(if reached { Given::TakenLast } else { Given::Taken })
            })?;
        } else {
            let figures = statistics::of(storage, &collection);
            (size, count) = (figures.document_bytes, figures.documents);
        }
    } else if let Some(figures) = statistics::of_views(storage, &namespace) {
        (size, count) = (figures.document_bytes, figures.documents);
    }
    reply.append(cstr!("estimate"), estimate);
    reply.append(cstr!("size"), size);
    reply.append(cstr!("numObjects"), count);
    if reached {
        reply.append(cstr!("maxReached"), true);
    }
    reply.append(cstr!("millis"), call.operation.started.elapsed().as_millis() as i64);
    Ok(())
}
