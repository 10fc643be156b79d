//! `findAndModify`: changes or removes one document and returns it. Source: MongoDB manual, "findAndModify".

use crate::call::{Call, Reply};
use crate::commands::update::{array_filters, parse_update, with_constants};
use crate::crud::retry::{self, RetrySession, Statements};
use crate::crud::{self, durability};
use crate::mirroring;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::write::{self, DeleteStatement, Image, UpdateStatement, Work, Written};
use baton_execution::{Hint, QuerySpec, SystemDraw};
use baton_query::Context;
use baton_query::projection::{Mode, Projection};
use baton_request::Fields;
use baton_storage::Throttle;
use baton_types::{Error, Result};
use bson::raw::RawBson;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::cell::Cell;
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "findAndModify",
    aliases: &["findandmodify"],
    flags: Flags::ADMITTED
        .and(Flags::WRITE_CONCERN)
        .and(Flags::RETRYABLE)
        .and(Flags::API_V1)
        .and(Flags::WRITES)
        .and(Flags::ON_COLLECTION),
    help: "{ findAndModify: \"collection\", query: {processed:false}, update: {$set: {processed:true}}, new: true }",
    mirrored_as: Some(mirroring::find_and_modify),
    run,
    ..DEFAULT
};

/// The fields of a findAndModify, checked.
struct FindAndModifyRequest<'a> {
    query: Option<&'a RawDocument>,
    sort: Option<&'a RawDocument>,
    remove: bool,
    update: Option<RawBsonRef<'a>>,
    new: bool,
    projection: Option<&'a RawDocument>,
    upsert: bool,
    filters: Vec<&'a RawDocument>,
    hint: Option<Hint>,
    variables: Option<&'a RawDocument>,
    constants: Option<&'a RawDocument>,
    bypass_validation: bool,
    keeps_empty_timestamps: bool,
}

impl<'a> FindAndModifyRequest<'a> {
    fn read(fields: &mut Fields<'a>) -> Result<Self> {
        let request = Self {
            query: fields.optional("query")?,
            sort: fields.optional("sort")?,
            remove: fields.truth("remove")?,
            update: fields.take("update"),
            new: fields.truth("new")?,
            projection: fields.optional("fields")?,
            upsert: fields.truth("upsert")?,
            filters: array_filters(fields.optional("arrayFilters")?)?,
            hint: crud::hint(fields.take("hint"))?,
            variables: fields.optional("let")?,
            constants: fields.optional("c")?,
            bypass_validation: fields.truth("bypassDocumentValidation")?,
            keeps_empty_timestamps: fields.truth("bypassEmptyTsReplacement")?,
        };
        crud::check_collation(fields.optional("collation")?)?;
        fields.finish()?;
        match (request.remove, &request.update) {
            (true, Some(_)) => Err(Error::failed_to_parse("Cannot specify both an update and remove=true")),
            (true, None) if request.upsert => {
                Err(Error::failed_to_parse("Cannot specify both upsert=true and remove=true "))
            }
            (true, None) if request.new => Err(Error::failed_to_parse(
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            )),
            (false, None) => Err(Error::failed_to_parse("Either an update or remove=true must be specified")),
            _ => Ok(request),
        }
    }

    fn context(&self, call: &Call<'_>) -> Result<Arc<Context>> {
        with_constants(&crud::context(call, self.variables)?, self.constants)
    }
}

/// The query of a findAndModify that is explained, and its surroundings.
pub fn explained(call: &Call<'_>, fields: &mut Fields<'_>) -> Result<(QuerySpec, Arc<Context>)> {
    let request = FindAndModifyRequest::read(fields)?;
    let context = request.context(call)?;
    let filter = crud::matcher(request.query, &context)?;
    let (sort, _) = crud::sort(request.sort)?;
    let spec = QuerySpec { sort, hint: request.hint, limit: Some(1), ..QuerySpec::matching(filter) };
    Ok((spec, context))
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    super::create::check_writable(&namespace)?;
    let request = FindAndModifyRequest::read(&mut call.fields)?;
    let context = request.context(call)?;
    let filter = crud::matcher(request.query, &context)?;
    let (sort, _) = crud::sort(request.sort)?;
    let projection = match request.projection {
        Some(projection) if !projection.is_empty() => {
            Some(Projection::parse(projection, Some(&filter), &context, Mode::Find)?)
        }
        _ => None,
    };
    let session = retry::session(call)?;
    let stmt_id = retry::statement_id(call, 0);
    let storage = &call.server.storage;
    let (throttle, author, left) = (Throttle::default(), Arc::clone(&call.author), Cell::default());
    let work = Work {
        storage,
        draw: &SystemDraw,
        interruption: &context.interruption,
        durability: durability(call),
        throttle: &throttle,
        author: &author,
        left: Some(&left),
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
        let written = match request.update {
            None => {
                let statement = DeleteStatement {
                    filter: filter.clone(),
                    multi: false,
                    hint: request.hint.clone(),
                    sort: sort.clone(),
                    image: Image::Before,
                };
                write::delete(&work, &namespace, &statement, &context, retry.as_mut()).map_err(in_execution)?
            }
            Some(update) => {
                let update = parse_update(update, &request.filters, &context, request.keeps_empty_timestamps)?;
                let statement = UpdateStatement {
                    filter: filter.clone(),
                    update,
                    multi: false,
                    upsert: request.upsert,
                    hint: request.hint.clone(),
                    sort: sort.clone(),
                    supplied: None,
                    bypass_validation: request.bypass_validation,
                    image: if request.new { Image::After } else { Image::Before },
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
        crud::settle(call, repeated);
    } else {
        call.wrote_one();
        call.leave(&left, session.as_ref().map(RetrySession::handle));
    }
    let value = match (&done.image, &projection) {
        (Some(image), Some(projection)) => {
            let details = if projection.needs_match_details() { filter.matches_with_position(image)? } else { None };
            Some(projection.apply(image, details.as_ref())?)
        }
        (image, _) => image.clone(),
    };
    answer(reply, &done, request.remove, value.as_deref())
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
