//! `delete`: removes documents. Source: MongoDB manual, "delete".

use crate::aftermath::{self, StatementFigures};
use crate::call::{Call, Reply};
use crate::crud::errors::{WriteErrors, ends_command};
use crate::crud::retry::{self, RetrySession, Statements};
use crate::crud::{self, check_batch_length, durability};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::write::{self, DeleteStatement, Image, Retry, Work};
use baton_execution::{QuerySpec, SystemDraw};
use baton_query::Context;
use baton_request::{Fields, Kind};
use baton_storage::{Durability, Throttle};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawBsonRef, RawDocument, cstr};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "delete",
    kind: Kind::Delete,
    flags: Flags::ADMITTED
        .and(Flags::WRITE_CONCERN)
        .and(Flags::RETRYABLE)
        .and(Flags::API_V1)
        .and(Flags::WRITES)
        .and(Flags::ON_COLLECTION),
    sequences: &["deletes"],
    help: "delete documents",
    run,
    ..DEFAULT
};

/// One element of `deletes`, its fields checked and not yet what they hold.
struct Element<'a> {
    statement: &'a RawDocument,
    filter: &'a RawDocument,
    limit: i64,
    hint: Option<RawBsonRef<'a>>,
}

impl<'a> Element<'a> {
    /// What fails here fails the command before anything is done: fields that are missing, unknown or of a wrong type.
    fn read(statement: &'a RawDocument) -> Result<Self> {
        let mut fields = Fields::of("delete.deletes", statement)?;
        let element = Self {
            statement,
            filter: fields.required("q")?,
            limit: fields.required("limit")?,
            hint: fields.take("hint"),
        };
        crud::check_collation(fields.optional("collation")?)?;
        fields.take("sampleId");
        fields.finish()?;
        let limit = element.limit;
        if !matches!(limit, 0 | 1) {
            let message = format!("The limit field in delete objects must be 0 or 1. Got {limit}");
            return Err(Error::failed_to_parse(message));
        }
        Ok(element)
    }

    /// What fails here fails this statement alone.
    fn parse(&self, context: &Context) -> Result<DeleteStatement> {
        Ok(DeleteStatement {
            filter: crud::matcher(Some(self.filter), context)?,
            multi: self.limit == 0,
            hint: crud::hint(self.hint)?,
            sort: None,
            image: Image::None,
        })
    }
}

/// The fields of a delete beside its statements, checked.
struct DeleteRequest<'a> {
    ordered: bool,
    variables: Option<&'a RawDocument>,
}

impl<'a> DeleteRequest<'a> {
    fn read(fields: &mut Fields<'a>) -> Result<Self> {
        let request =
            Self { ordered: fields.optional::<bool>("ordered")?.unwrap_or(true), variables: fields.optional("let")? };
        // As in MongoDB, where all writes take it: a deletion asks no validator.
        fields.truth("bypassDocumentValidation")?;
        fields.finish()?;
        Ok(request)
    }
}

/// The query of a delete that is explained, and its surroundings.
pub fn explained(call: &Call<'_>, fields: &mut Fields<'_>) -> Result<(QuerySpec, Arc<Context>)> {
    let statement = crud::sole_statement(fields.required("deletes")?)?;
    let request = DeleteRequest::read(fields)?;
    let context = crud::context(call, request.variables)?;
    let statement = Element::read(statement)?.parse(&context)?;
    Ok((QuerySpec { hint: statement.hint, ..QuerySpec::matching(statement.filter) }, context))
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    super::create::check_writable(&namespace)?;
    let deletes = call.documents("deletes")?;
    let DeleteRequest { ordered, variables } = DeleteRequest::read(&mut call.fields)?;
    check_batch_length(deletes.len())?;
    call.server.counters.count_operations(Kind::Delete, deletes.len() as u64);
    let deletes = deletes.iter().map(Element::read).collect::<Result<SmallVec<[_; 1]>>>()?;
    let context = crud::context(call, variables)?;
    let mut errors = WriteErrors::default();
    let mut deleted = 0_u64;
    let session = retry::session(call)?;
    let single = deletes.len() == 1;
    // What was done before may not be on disk yet.
    let mut repeated = false;
    let each = if single { durability(call) } else { Durability::Applied };
    let (throttle, author, left) = (Throttle::default(), Arc::clone(&call.author), Cell::default());
    let work = Work {
        storage: &call.server.storage,
        draw: &SystemDraw,
        interruption: &context.interruption,
        durability: each,
        throttle: &throttle,
        author: &author,
        left: (single && deletes[0].limit == 1).then_some(&left),
    };
    let mut all = |mut statements: Option<&mut Statements<'_>>| -> Result<()> {
        for (index, element) in deletes.iter().enumerate() {
            let stmt_id = retry::statement_id(call, index);
            if let Some(done) = statements.as_ref().and_then(|statements| statements.executed(stmt_id)) {
                deleted += u64::from(done.get_i32("n").unwrap_or(0).unsigned_abs());
                repeated = true;
                continue;
            }
            let retry = statements.as_deref_mut().map(|statements| statements.retry(stmt_id));
            let carry_out = || one(call, &work, &namespace, element, &context, retry);
            match aftermath::profiled(call, &namespace, element.statement, figures, carry_out) {
                Ok(count) => deleted += count,
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
    } else if deletes[0].limit == 1 {
        call.wrote_one();
        call.leave(&left, session.as_ref().map(RetrySession::handle));
    }
    reply.append(cstr!("n"), deleted as i32);
    errors.append(reply);
    Ok(())
}

fn figures(deleted: &u64) -> StatementFigures {
    StatementFigures { deleted: *deleted, ..StatementFigures::default() }
}

fn one(
    call: &Call<'_>,
    work: &Work<'_>,
    namespace: &Namespace,
    element: &Element<'_>,
    context: &Arc<Context>,
    mut retry: Option<Retry<'_>>,
) -> Result<u64> {
    let statement = element.parse(context)?;
    if statement.multi && retry.is_some() {
        return Err(Error::new(ErrorCode::InvalidOptions, "Cannot use retryable writes with limit=0"));
    }
    if retry.is_some() {
        retry::fail_before(call)?;
    }
    let written = write::delete(work, namespace, &statement, context, retry.as_mut())?;
    if retry.is_some() {
        retry::fail_after(call, written.modified);
    }
    Ok(written.modified)
}
