//! `update`: changes documents where they are. Source: MongoDB manual, "update".

use crate::aftermath::StatementFigures;
use crate::call::{Call, Reply};
use crate::crud::statements::{self, Statement};
use crate::crud::{self, check_batch_length};
use crate::mirroring;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::write::{self, Image, Retry, UpdateStatement, Work, Written};
use baton_execution::{QuerySpec, SystemDraw};
use baton_query::Context;
use baton_query::update::Update;
use baton_request::{Fields, Kind};
use baton_types::{Error, Namespace, Result};
use bson::{Bson, RawArray, RawBsonRef, RawDocument, cstr};
use smallvec::SmallVec;
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
    rules: Rules,
}

impl<'a> Element<'a> {
    /// What fails here fails the command before anything is done: fields that are missing, unknown or of a wrong type,
    /// and a pipeline that names no known stage.
    fn read(statement: &'a RawDocument, rules: Rules) -> Result<Self> {
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
            rules,
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
}

impl Statement for Element<'_> {
    type Parsed = (UpdateStatement, Arc<Context>);

    const OF_MANY: &'static str = "multi=true";

    fn document(&self) -> &RawDocument {
        self.statement
    }

    fn is_of_many(&self) -> bool {
        self.multi
    }

    fn parse(&self, context: &Arc<Context>) -> Result<Self::Parsed> {
        let filters = array_filters(self.filters)?;
        let hint = crud::hint(self.hint)?;
        let context = with_constants(context, self.constants)?;
        let update = parse_update(self.update, &filters, &context, self.rules.keeps_empty_timestamps)?;
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
            bypass_validation: self.rules.bypass_validation,
            image: Image::None,
        };
        Ok((statement, context))
    }

    fn write(
        (statement, context): &Self::Parsed,
        work: &Work<'_>,
        namespace: &Namespace,
        retry: Option<&mut Retry<'_>>,
    ) -> Result<Written> {
        write::update(work, namespace, statement, context, retry)
    }

    fn figures(written: &Written) -> StatementFigures {
        let upserted = u64::from(written.upserted.is_some());
        StatementFigures {
            matched: written.matched,
            modified: written.modified,
            upserted,
            ..StatementFigures::default()
        }
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

impl statements::Sums for Sums {
    fn add(&mut self, index: usize, written: Written) {
        self.matched += written.matched;
        self.modified += written.modified;
        if let Some(id) = written.upserted {
            self.matched += 1;
            self.upserted.push((index, id));
        }
    }

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
    let element = Element::read(statement, request.rules)?;
    let (statement, context) = element.parse(&crud::context(call, request.variables)?)?;
    Ok((QuerySpec { hint: statement.hint, ..QuerySpec::matching(statement.filter) }, context))
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    super::create::check_writable(&namespace)?;
    let updates = call.documents("updates")?;
    let UpdateRequest { ordered, rules, variables } = UpdateRequest::read(&mut call.fields)?;
    check_batch_length(updates.len())?;
    call.server.counters.count_operations(Kind::Update, updates.len() as u64);
    let read = updates.iter().map(|statement| Element::read(statement, rules));
    let updates = read.collect::<Result<SmallVec<[_; 1]>>>()?;
    let context = crud::context(call, variables)?;
    let mut sums = Sums::default();
    let errors = statements::carry_out(call, &namespace, &updates, ordered, &context, &mut sums)?;
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
