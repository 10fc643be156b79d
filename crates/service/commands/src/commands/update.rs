//! `update`: changes documents where they are. Source: MongoDB manual, "update".

use crate::aftermath::{self, StatementFigures};
use crate::call::{Call, Reply};
use crate::crud::errors::{WriteErrors, ends_command};
use crate::crud::retry::{self, RetrySession, Statements};
use crate::crud::{self, check_batch_length, durability};
use crate::mirroring;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::write::{self, Image, Retry, UpdateStatement, Work, Written};
use baton_execution::{QuerySpec, SystemDraw};
use baton_query::Context;
use baton_query::update::Update;
use baton_request::{Fields, Kind};
use baton_storage::{Durability, Throttle};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{Bson, RawArray, RawBsonRef, RawDocument, cstr};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "update",
    kind: Kind::Update,
    flags: Flags::ADMITTED
        .and(Flags::WRITE_CONCERN)
        .and(Flags::RETRYABLE)
        .and(Flags::API_V1)
        .and(Flags::WRITES)
        .and(Flags::ON_COLLECTION),
    sequences: &["updates"],
    help: "update documents",
    mirrored_as: Some(mirroring::update),
    run,
    ..DEFAULT
};

/// `arrayFilters` as documents.
pub fn array_filters(array: Option<&RawArray>) -> Result<Vec<&RawDocument>> {
    let mut filters = Vec::new();
    for filter in array.into_iter().flat_map(<&RawArray>::into_iter) {
        filters.push(filter?.as_document().ok_or_else(|| {
            Error::type_mismatch("BSON field 'update.updates.arrayFilters.0' is the wrong type, expected type 'object'")
        })?);
    }
    Ok(filters)
}

/// A context in which the constants of a pipeline update have their values.
pub fn with_constants(context: &Arc<Context>, constants: Option<&RawDocument>) -> Result<Arc<Context>> {
    let Some(constants) = constants else { return Ok(Arc::clone(context)) };
    let mut context = Context::clone(context);
    for element in constants {
        let (name, value) = element?;
        context.set_variable(name.as_str(), Bson::try_from(value)?)?;
    }
    Ok(Arc::new(context))
}

/// One element of `updates`, its fields checked and not yet what they hold.
struct Element<'a> {
    statement: &'a RawDocument,
    filter: &'a RawDocument,
    update: RawBsonRef<'a>,
    constants: Option<&'a RawDocument>,
    multi: bool,
    upsert: bool,
    filters: Option<&'a RawArray>,
    hint: Option<RawBsonRef<'a>>,
}

impl<'a> Element<'a> {
    /// What fails here fails the command before anything is done: fields that are missing, unknown or of a wrong type,
    /// and a pipeline that names no known stage.
    fn read(statement: &'a RawDocument) -> Result<Self> {
        let mut fields = Fields::of("update.updates", statement)?;
        let element = Self {
            statement,
            filter: fields.required("q")?,
            update: fields.required("u")?,
            constants: fields.optional("c")?,
            multi: fields.truth("multi")?,
            upsert: fields.truth("upsert")?,
            filters: fields.optional("arrayFilters")?,
            hint: fields.take("hint"),
        };
        crud::check_collation(fields.optional("collation")?)?;
        for ignored in ["upsertSupplied", "sampleId"] {
            fields.take(ignored);
        }
        fields.finish()?;
        if let RawBsonRef::Array(pipeline) = element.update {
            baton_query::pipeline::check_stage_names(pipeline)?;
        }
        Ok(element)
    }

    /// What fails here fails this statement alone.
    fn parse(&self, context: &Arc<Context>, rules: Rules) -> Result<(UpdateStatement, Arc<Context>)> {
        let filters = array_filters(self.filters)?;
        let hint = crud::hint(self.hint)?;
        let context = with_constants(context, self.constants)?;
        let update = parse_update(self.update, &filters, &context, rules.keeps_empty_timestamps)?;
        if self.multi && update.is_replacement() {
            return Err(Error::failed_to_parse("multi update is not supported for replacement-style update"));
        }
        let statement = UpdateStatement {
            filter: crud::matcher(Some(self.filter), &context)?,
            update,
            multi: self.multi,
            upsert: self.upsert,
            hint,
            sort: None,
            supplied: None,
            bypass_validation: rules.bypass_validation,
            image: Image::None,
        };
        Ok((statement, context))
    }
}

/// An update; a replacement with the time of now in place of empty timestamps.
pub fn parse_update(
    update: RawBsonRef<'_>,
    filters: &[&RawDocument],
    context: &Arc<Context>,
    keeps_empty_timestamps: bool,
) -> Result<Update> {
    let is_operator = |document: &RawDocument| {
        document.iter().next().and_then(std::result::Result::ok).is_some_and(|(name, _)| name.as_str().starts_with('$'))
    };
    match update {
        RawBsonRef::Document(replacement) if !keeps_empty_timestamps && !is_operator(replacement) => {
            let filled = write::fill_timestamps(replacement.into(), &SystemDraw)?;
            Update::parse(RawBsonRef::Document(&filled), filters, context)
        }
        update => Update::parse(update, filters, context),
    }
}

/// What a command says about all its statements.
#[derive(Clone, Copy)]
struct Rules {
    bypass_validation: bool,
    keeps_empty_timestamps: bool,
}

/// Sums of what the statements did.
#[derive(Default)]
struct Sums {
    matched: u64,
    modified: u64,
    upserted: Vec<(usize, Bson)>,
}

impl Sums {
    fn add(&mut self, index: usize, written: Written) {
        self.matched += written.matched;
        self.modified += written.modified;
        if let Some(id) = written.upserted {
            self.matched += 1;
            self.upserted.push((index, id));
        }
    }

    /// What a statement carried out before had done.
    fn add_repeated(&mut self, index: usize, reply: &RawDocument) -> Result<()> {
        self.matched += u64::from(reply.get_i32("n").unwrap_or(0).unsigned_abs());
        self.modified += u64::from(reply.get_i32("nModified").unwrap_or(0).unsigned_abs());
        if let Some(id) = reply.get("upserted")? {
            self.upserted.push((index, id.try_into()?));
        }
        Ok(())
    }
}

/// The fields of an update beside its statements, checked.
struct UpdateRequest<'a> {
    ordered: bool,
    rules: Rules,
    variables: Option<&'a RawDocument>,
}

impl<'a> UpdateRequest<'a> {
    fn read(fields: &mut Fields<'a>) -> Result<Self> {
        let request = Self {
            ordered: fields.optional::<bool>("ordered")?.unwrap_or(true),
            rules: Rules {
                bypass_validation: fields.truth("bypassDocumentValidation")?,
                keeps_empty_timestamps: fields.truth("bypassEmptyTsReplacement")?,
            },
            variables: fields.optional("let")?,
        };
        fields.finish()?;
        Ok(request)
    }
}

/// The query of an update that is explained, and its surroundings.
pub fn explained(call: &Call<'_>, fields: &mut Fields<'_>) -> Result<(QuerySpec, Arc<Context>)> {
    let statement = crud::sole_statement(fields.required("updates")?)?;
    let request = UpdateRequest::read(fields)?;
    let element = Element::read(statement)?;
    let (statement, context) = element.parse(&crud::context(call, request.variables)?, request.rules)?;
    Ok((QuerySpec { hint: statement.hint, ..QuerySpec::matching(statement.filter) }, context))
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    super::create::check_writable(&namespace)?;
    let updates = call.documents("updates")?;
    let UpdateRequest { ordered, rules, variables } = UpdateRequest::read(&mut call.fields)?;
    check_batch_length(updates.len())?;
    call.server.counters.count_operations(Kind::Update, updates.len() as u64);
    let updates = updates.iter().map(Element::read).collect::<Result<SmallVec<[_; 1]>>>()?;
    let context = crud::context(call, variables)?;
    let mut errors = WriteErrors::default();
    let mut sums = Sums::default();
    let session = retry::session(call)?;
    let single = updates.len() == 1;
    // What was done before may not be on disk yet.
    let mut repeated = false;
    // Of several statements only the end waits for the disk: one sync covers them all.
    let each = if single { durability(call) } else { Durability::Applied };
    let (throttle, author, left) = (Throttle::default(), Arc::clone(&call.author), Cell::default());
    let work = Work {
        storage: &call.server.storage,
        draw: &SystemDraw,
        interruption: &context.interruption,
        durability: each,
        throttle: &throttle,
        author: &author,
        left: (single && !updates[0].multi).then_some(&left),
    };
    let mut all = |mut statements: Option<&mut Statements<'_>>| -> Result<()> {
        for (index, element) in updates.iter().enumerate() {
            let stmt_id = retry::statement_id(call, index);
            if let Some(done) = statements.as_ref().and_then(|statements| statements.executed(stmt_id)) {
                sums.add_repeated(index, &done)?;
                repeated = true;
                continue;
            }
            let retry = statements.as_deref_mut().map(|statements| statements.retry(stmt_id));
            let carry_out = || one(call, &work, &namespace, element, &context, rules, retry);
            match aftermath::profiled(call, &namespace, element.statement, figures, carry_out) {
                Ok(written) => sums.add(index, written),
                // Not the statement's failure but the member's: drivers look for it at the top of a reply.
                Err(error) if ends_command(error.code) => return Err(error),
                Err(error) => {
                    errors.push(index, error);
                    if ordered {
                        break;
                    }
                }
            }
        }
        Ok(())
    };
    match &session {
        None => all(None)?,
        Some(session) => session.with(|statements| all(Some(statements)))?,
    }
    if !single || repeated {
        crud::settle(call, repeated);
    } else if !updates[0].multi {
        call.wrote_one();
        call.leave(&left, session.as_ref().map(RetrySession::handle));
    }
    reply.append(cstr!("n"), sums.matched as i32);
    if !sums.upserted.is_empty() {
        reply.begin_array(cstr!("upserted"));
        for (index, id) in &sums.upserted {
            let id = bson::RawBson::try_from(id.clone())?;
            reply.push_document();
            reply.append(cstr!("index"), *index as i32);
            reply.append(cstr!("_id"), id.as_raw_bson_ref());
            reply.end();
        }
        reply.end();
    }
    reply.append(cstr!("nModified"), sums.modified as i32);
    errors.append(reply);
    Ok(())
}

fn figures(written: &Written) -> StatementFigures {
    let upserted = u64::from(written.upserted.is_some());
    StatementFigures { matched: written.matched, modified: written.modified, upserted, ..StatementFigures::default() }
}

fn one(
    call: &Call<'_>,
    work: &Work<'_>,
    namespace: &Namespace,
    element: &Element<'_>,
    context: &Arc<Context>,
    rules: Rules,
    mut retry: Option<Retry<'_>>,
) -> Result<Written> {
    let (statement, context) = element.parse(context, rules)?;
    if statement.multi && retry.is_some() {
        return Err(Error::new(ErrorCode::InvalidOptions, "Cannot use retryable writes with multi=true"));
    }
    if retry.is_some() {
        retry::fail_before(call)?;
    }
    let written = write::update(work, namespace, &statement, &context, retry.as_mut())?;
    if retry.is_some() {
        retry::fail_after(call, written.modified + u64::from(written.upserted.is_some()));
    }
    Ok(written)
}
