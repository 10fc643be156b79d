//! `distinct`: the different values of a field. Source: MongoDB manual, "distinct".

use crate::call::{Call, Reply};
use crate::crud::{self, own_documents};
use crate::mirroring;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_document::keys::{self, Direction};
use baton_document::path::{LeafArrays, Path, visit_with};
use baton_execution::{Given, Hint, Query, QuerySpec};
use baton_query::Context;
use baton_query::pipeline::Pipeline;
use baton_request::Fields;
use baton_types::{Error, ErrorCode, Result};
use bson::raw::RawBson;
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "distinct",
    flags: Flags::ADMITTED.and(Flags::READ_CONCERN).and(Flags::SNAPSHOT).and(Flags::ON_COLLECTION),
    help: "{ distinct : 'collection name' , key : 'a.b' , query : {} }",
    mirrored_as: Some(mirroring::distinct),
    run,
    ..DEFAULT
};

/// The result must fit into one reply.
const RESULT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The fields of a distinct, checked.
pub struct DistinctRequest<'a> {
    key: &'a str,
    query: Option<&'a RawDocument>,
    hint: Option<Hint>,
}

impl<'a> DistinctRequest<'a> {
    /// Reads the command's own fields.
    pub fn read(fields: &mut Fields<'a>) -> Result<Self> {
        let request = Self {
            key: fields.required("key")?,
            query: fields.optional("query")?,
            hint: crud::hint(fields.take("hint"))?,
        };
        crud::check_collation(fields.optional("collation")?)?;
        fields.finish()?;
        if request.key.contains('\0') {
            return Err(Error::location(31032, "Key field cannot contain an embedded null byte"));
        }
        Ok(request)
    }

    /// The query it stands for.
    pub fn query_spec(&self, context: &Context) -> Result<QuerySpec> {
        Ok(QuerySpec { hint: self.hint.clone(), ..QuerySpec::matching(crud::matcher(self.query, context)?) })
    }

    /// The documents whose values it takes, as a pipeline, for a view.
    fn documents(&self) -> RawDocumentBuf {
        rawdoc! { "$match": self.query.map_or_else(RawDocumentBuf::new, ToOwned::to_owned) }
    }

    /// The distinct as a pipeline, for a view.
    pub fn stages(&self) -> Vec<RawDocumentBuf> {
        let path = format!("${}", self.key);
        vec![
            self.documents(),
            rawdoc! { "$unwind": { "path": path.as_str(), "preserveNullAndEmptyArrays": true } },
            rawdoc! { "$group": { "_id": null, "distinct": { "$addToSet": path.as_str() } } },
        ]
    }
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let request = DistinctRequest::read(&mut call.fields)?;
    let storage = Arc::clone(&call.server.storage);
    let context = crud::context(call, None)?;
    let interrupt = || call.operation.check_interrupt();
    let path = Path::parse(request.key);
    // Values by their encoded keys: equal numbers of different types are one value, the first seen.
    let mut values: BTreeMap<Vec<u8>, RawBson> = BTreeMap::new();
    let mut bytes = 0;
    // They become one reply, so they are held whole: what is too much for that is too much.
    let mut memory = context.memory.account(usize::MAX);
    let mut take = |document: &RawDocument| -> Result<Given> {
        let flow = visit_with(document.into(), &path, LeafArrays::ElementsOnly, &mut |found| {
            if let Some(value) = found.value {
                let mut encoded = Vec::new();
                keys::encode(&mut encoded, value, Direction::Ascending);
                values.entry(encoded).or_insert_with_key(|encoded| {
                    bytes += encoded.len();
                    RawBson::from(value)
                });
            }
            ControlFlow::Continue(())
        })?;
        assert!(flow.is_continue(), "values are gathered to the end");
        if bytes > RESULT_BYTES_MAX {
            return Err(Error::location(17217, "distinct too big, 16mb cap"));
        }
        // Once as keys and once as values.
        if !memory.set(2 * bytes) {
            let message = "distinct exceeded the memory that all requests share; try again when fewer of them run";
            return Err(Error::new(ErrorCode::ExceededMemoryLimit, message));
        }
        Ok(Given::Taken)
    };
    let collection = storage.collection(&namespace);
    let is_a_pipeline = own_documents::is_a_pipeline(&storage, &namespace, collection.as_deref());
    if is_a_pipeline {
        let host = own_documents::host(call, &namespace);
        host.open(&namespace, Pipeline::parse(&[&request.documents()], &context)?, None, &context)?
            .run(&call.operation.check(), &mut take)?;
    } else {
        let mut query = Query::new(&storage, collection, request.query_spec(&context)?, context)?;
        call.operation.set_plan_summary(query.plan_summary());
        query
            .run(&interrupt, &mut |_, document| take(document))
            .map_err(|error| error.in_context("Executor error during distinct command"))?;
    }
    crud::settle_read(call)?;
    reply.begin_array(cstr!("values"));
    for value in values.values() {
        reply.push(value.as_raw_bson_ref());
    }
    reply.end();
    if let Some(time) = call.read_at {
        reply.append(cstr!("atClusterTime"), bson::Timestamp::from(time));
    }
    Ok(())
}
