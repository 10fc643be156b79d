//! `count`: how many documents match. Source: MongoDB manual, "count".

use crate::call::{Call, Reply};
use crate::crud::{self, own_documents};
use crate::mirroring;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::{Given, Hint, Query, QuerySpec};
use baton_query::Context;
use baton_query::pipeline::Pipeline;
use baton_request::Fields;
use baton_types::Result;
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "count",
    flags: Flags::ADMITTED.and(Flags::READ_CONCERN).and(Flags::API_V1).and(Flags::ON_COLLECTION),
    help: "count objects in collection",
    mirrored_as: Some(mirroring::count),
    run,
    ..DEFAULT
};

/// The fields of a count, checked.
pub struct CountRequest<'a> {
    query: Option<&'a RawDocument>,
    limit: Option<u64>,
    skip: u64,
    hint: Option<Hint>,
}

impl<'a> CountRequest<'a> {
    /// Reads the command's own fields.
    pub fn read(fields: &mut Fields<'a>) -> Result<Self> {
        let request = Self {
            query: fields.optional("query")?,
            // A negative limit means its absolute value, as it did for cursors of old.
            limit: fields.optional::<i64>("limit")?.map(i64::unsigned_abs).filter(|limit| *limit > 0),
            skip: fields.non_negative("skip")?.unwrap_or(0) as u64,
            hint: crud::hint(fields.take("hint"))?,
        };
        crud::check_collation(fields.optional("collation")?)?;
        fields.take("fields");
        fields.finish()?;
        Ok(request)
    }

    /// The query it stands for.
    pub fn query_spec(&self, context: &Context) -> Result<QuerySpec> {
        Ok(QuerySpec {
            skip: self.skip,
            limit: self.limit,
            hint: self.hint.clone(),
            is_count: true,
            ..QuerySpec::matching(crud::matcher(self.query, context)?)
        })
    }

    /// The documents it counts, as a pipeline, for a view.
    fn documents(&self) -> RawDocumentBuf {
        rawdoc! { "$match": self.query.map_or_else(RawDocumentBuf::new, ToOwned::to_owned) }
    }

    /// The count as a pipeline, for a view.
    pub fn stages(&self) -> Vec<RawDocumentBuf> {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut stages = vec![self.documents()];
        stages.extend((self.skip > 0).then(|| rawdoc! { "$skip": number(self.skip) }));
        stages.extend(self.limit.map(|limit| rawdoc! { "$limit": number(limit) }));
        stages.push(rawdoc! { "$count": "count" });
        stages
    }
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let request = CountRequest::read(&mut call.fields)?;
    let storage = Arc::clone(&call.server.storage);
    let context = crud::context(call, None)?;
    let interrupt = || call.operation.check_interrupt();
    let collection = storage.collection(&namespace);
    let is_a_pipeline = own_documents::is_a_pipeline(&storage, &namespace, collection.as_deref());
    let count = if is_a_pipeline {
        let host = own_documents::host(call, &namespace);
        let stages = Pipeline::parse(&[&request.documents()], &context)?;
        let mut aggregation = host.open(&namespace, stages, None, &context)?;
        let mut count = 0_u64;
        aggregation.run(&call.operation.check(), &mut |_| {
            count += 1;
            Ok(Given::Taken)
        })?;
        let beyond = count.saturating_sub(request.skip);
        request.limit.map_or(beyond, |limit| beyond.min(limit))
    } else {
        let mut query = Query::new(&storage, collection, request.query_spec(&context)?, context)?;
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
