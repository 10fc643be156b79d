//! `findAndModify`: changes or removes one document and returns it. Source: MongoDB manual, "findAndModify".

use crate::call::{Call, Reply};
use crate::commands::update::{array_filters, parse_update, with_constants};
use crate::crud::retry::{self, Statements};
use crate::crud::{self, durability};
use crate::mirroring;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::SystemDraw;
use baton_execution::write::{self, DeleteStatement, Image, UpdateStatement, Work, Written};
use baton_query::projection::{Mode, Projection};
use baton_storage::Throttle;
use baton_types::{Error, Result};
use bson::raw::RawBson;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "findAndModify",
    aliases: &["findandmodify"],
    flags: Flags::WRITE_CONCERN.and(Flags::RETRYABLE).and(Flags::API_V1).and(Flags::WRITES).and(Flags::ON_COLLECTION),
    help: "{ findAndModify: \"collection\", query: {processed:false}, update: {$set: {processed:true}}, new: true }",
    mirrored_as: Some(mirroring::find_and_modify),
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    super::create::check_writable(&namespace)?;
    let fields = &mut call.fields;
    let query: Option<&RawDocument> = fields.optional("query")?;
    let sort: Option<&RawDocument> = fields.optional("sort")?;
    let remove = fields.truth("remove")?;
    let update: Option<RawBsonRef<'_>> = fields.take("update");
    let new = fields.truth("new")?;
    let projection: Option<&RawDocument> = fields.optional("fields")?;
    let upsert = fields.truth("upsert")?;
    let filters = array_filters(fields.optional("arrayFilters")?)?;
    let hint = crud::hint(fields.take("hint"))?;
    let variables: Option<&RawDocument> = fields.optional("let")?;
    let constants: Option<&RawDocument> = fields.optional("c")?;
    let bypass = fields.truth("bypassDocumentValidation")?;
    crud::check_collation(fields.optional("collation")?)?;
    let keeps_empty_timestamps = fields.truth("bypassEmptyTsReplacement")?;
    fields.finish()?;
    match (remove, &update) {
        (true, Some(_)) => return Err(Error::failed_to_parse("Cannot specify both an update and remove=true")),
        (true, None) if upsert => {
            return Err(Error::failed_to_parse("Cannot specify both upsert=true and remove=true "));
        }
        (true, None) if new => {
            return Err(Error::failed_to_parse(
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            ));
        }
        (false, None) => return Err(Error::failed_to_parse("Either an update or remove=true must be specified")),
        _ => {}
    }
    let context = crud::context(call, variables)?;
    let context = with_constants(&context, constants)?;
    let filter = crud::matcher(query, &context)?;
    let (sort, _) = crud::sort(sort)?;
    let projection = match projection {
        Some(projection) if !projection.is_empty() => {
            Some(Projection::parse(projection, Some(&filter), &context, Mode::Find)?)
        }
        _ => None,
    };
    let session = retry::session(call)?;
    let stmt_id = retry::statement_id(call, 0);
    let storage = &call.server.storage;
    let (throttle, author) = (Throttle::default(), Arc::clone(&call.author));
    let work = Work {
        storage,
        draw: &SystemDraw,
        interruption: &context.interruption,
        durability: durability(call),
        throttle: &throttle,
        author: &author,
    };
    // What was done before may not be on disk yet.
    let mut repeated = false;
    let mut act = |statements: Option<&mut Statements<'_>>| -> Result<Written> {
        if let Some(done) = statements.as_ref().and_then(|statements| statements.executed(stmt_id)) {
            repeated = true;
            return repeat(&done);
        }
        let mut retry = statements.map(|statements| statements.retry(stmt_id));
        if retry.is_some() {
            retry::fail_before(call)?;
        }
        let written = match update {
            None => {
                let statement = DeleteStatement {
                    filter: filter.clone(),
                    multi: false,
                    hint: hint.clone(),
                    sort: sort.clone(),
                    image: Image::Before,
                };
                write::delete(&work, &namespace, &statement, &context, retry.as_mut()).map_err(in_execution)?
            }
            Some(update) => {
                let update = parse_update(update, &filters, &context, keeps_empty_timestamps)?;
                let statement = UpdateStatement {
                    filter: filter.clone(),
                    update,
                    multi: false,
                    upsert,
                    hint: hint.clone(),
                    sort: sort.clone(),
                    supplied: None,
                    bypass_validation: bypass,
                    image: if new { Image::After } else { Image::Before },
                };
                write::update(&work, &namespace, &statement, &context, retry.as_mut()).map_err(in_execution)?
            }
        };
        if retry.is_some() {
            retry::fail_after(call, written.modified + u64::from(written.upserted.is_some()));
        }
        Ok(written)
    };
    let done = match &session {
        None => act(None)?,
        Some(session) => session.with(|statements| act(Some(statements)))?,
    };
    if repeated {
        storage.queue().settle(durability(call));
    } else {
        call.wrote_one();
    }
    let value = match (&done.image, &projection) {
        (Some(image), Some(projection)) => {
            let details = if projection.needs_match_details() { filter.matches_with_position(image)? } else { None };
            Some(projection.apply(image, details.as_ref())?)
        }
        (image, _) => image.clone(),
    };
    answer(reply, &done, remove, value.as_deref())
}

fn in_execution(error: Error) -> Error {
    error.in_context("Plan executor error during findAndModify")
}

/// What the statement did when it was carried out.
fn repeat(done: &RawDocument) -> Result<Written> {
    let image = done.get_document("image").ok().map(ToOwned::to_owned);
    let count = u64::from(done.get_i32("n").unwrap_or(0).unsigned_abs());
    let upserted = done.get("upserted")?.map(bson::Bson::try_from).transpose()?;
    let matched = if upserted.is_some() { 0 } else { count };
    Ok(Written { matched, modified: matched, upserted, image, ..Written::default() })
}

fn answer(reply: &mut Reply<'_>, written: &Written, remove: bool, value: Option<&RawDocument>) -> Result<()> {
    let mut last = RawDocumentBuf::new();
    let count = written.matched + u64::from(written.upserted.is_some());
    last.append(cstr!("n"), count as i32);
    if !remove {
        last.append(cstr!("updatedExisting"), written.matched > 0);
    }
    if let Some(id) = &written.upserted {
        last.append(cstr!("upserted"), RawBson::try_from(id.clone())?);
    }
    reply.append(cstr!("lastErrorObject"), &*last);
    match value {
        Some(value) => reply.append(cstr!("value"), value),
        None => reply.append(cstr!("value"), RawBsonRef::Null),
    }
    Ok(())
}
