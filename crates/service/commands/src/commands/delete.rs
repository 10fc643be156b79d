//! `delete`: removes documents. Source: MongoDB manual, "delete".

use crate::aftermath::StatementFigures;
use crate::call::{Call, Reply};
use crate::crud::statements::{self, Statement};
use crate::crud::{self, check_batch_length};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::QuerySpec;
use baton_execution::write::{self, DeleteStatement, Image, Retry, Work, Written};
use baton_query::Context;
use baton_request::{Fields, Kind};
use baton_types::{Error, Namespace, Result};
use bson::{RawBsonRef, RawDocument, cstr};
use smallvec::SmallVec;
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
}

impl Statement for Element<'_> {
    type Parsed = (DeleteStatement, Arc<Context>);

    const OF_MANY: &'static str = "limit=0";

    fn document(&self) -> &RawDocument {
        self.statement
    }

    fn is_of_many(&self) -> bool {
        self.limit == 0
    }

    fn parse(&self, context: &Arc<Context>) -> Result<Self::Parsed> {
        let statement = DeleteStatement {
            filter: crud::matcher(Some(self.filter), context)?,
            multi: self.is_of_many(),
            hint: crud::hint(self.hint)?,
            sort: None,
            image: Image::None,
        };
        Ok((statement, Arc::clone(context)))
    }

    fn write(
        (statement, context): &Self::Parsed,
        work: &Work<'_>,
        namespace: &Namespace,
        retry: Option<&mut Retry<'_>>,
    ) -> Result<Written> {
        write::delete(work, namespace, statement, context, retry)
    }

    fn figures(written: &Written) -> StatementFigures {
        StatementFigures { deleted: written.modified, ..StatementFigures::default() }
    }
}

/// How many documents are gone.
#[derive(Default)]
struct Deleted(u64);

impl statements::Sums for Deleted {
    fn add(&mut self, _: usize, written: Written) {
        self.0 += written.modified;
    }

    fn add_repeated(&mut self, _: usize, reply: &RawDocument) -> Result<()> {
        self.0 += u64::from(reply.get_i32("n").unwrap_or(0).unsigned_abs());
        Ok(())
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
    let (statement, context) = Element::read(statement)?.parse(&context)?;
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
    let mut deleted = Deleted::default();
    let errors = statements::carry_out(call, &namespace, &deletes, ordered, &context, &mut deleted)?;
    reply.append(cstr!("n"), deleted.0 as i32);
    errors.append(reply);
    Ok(())
}
