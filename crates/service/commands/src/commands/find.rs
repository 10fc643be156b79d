//! `find`: documents that match, as a cursor. Source: MongoDB manual, "find".

use crate::call::{Call, Reply};
use crate::crud::cursor::{Opening, Tail, open};
use crate::crud::{self, batch_size, own_documents};
use crate::mirroring;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_document::keys::Direction;
use baton_execution::{Query, QuerySpec, oplog_range};
use baton_query::matcher::Matcher;
use baton_query::pipeline::Pipeline;
use baton_query::projection::{Mode, Projection};
use baton_query::sort::natural_direction;
use baton_request::Kind;
use baton_storage::{Bounds, Collection, CollectionKind, Storage, record_key};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "find",
    kind: Kind::Query,
    flags: Flags::ADMITTED.and(Flags::READ_CONCERN).and(Flags::SNAPSHOT).and(Flags::API_V1).and(Flags::ON_COLLECTION),
    help: "query for documents",
    mirrored_as: Some(mirroring::find),
    run,
    ..DEFAULT
};

/// The fields of a find, checked.
pub struct FindRequest<'a> {
    filter: Option<&'a RawDocument>,
    sort: Option<&'a RawDocument>,
    projection: Option<&'a RawDocument>,
    hint: Option<RawBsonRef<'a>>,
    min: Option<&'a RawDocument>,
    max: Option<&'a RawDocument>,
    variables: Option<&'a RawDocument>,
    skip: u64,
    limit: Option<u64>,
    batch_size: Option<usize>,
    single_batch: bool,
    tailable: bool,
    awaits: bool,
    no_timeout: bool,
    allow_disk_use: Option<bool>,
}

impl<'a> FindRequest<'a> {
    /// Reads the command's own fields.
    pub fn read(fields: &mut baton_request::Fields<'a>) -> Result<Self> {
        let mut request = Self {
            filter: fields.optional("filter")?,
            sort: fields.optional("sort")?,
            projection: fields.optional("projection")?,
            hint: fields.take("hint"),
            min: fields.optional("min")?,
            max: fields.optional("max")?,
            variables: fields.optional("let")?,
            skip: fields.non_negative("skip")?.unwrap_or(0) as u64,
            limit: None,
            batch_size: None,
            single_batch: fields.truth("singleBatch")?,
            tailable: fields.truth("tailable")?,
            awaits: fields.truth("awaitData")?,
            no_timeout: fields.truth("noCursorTimeout")?,
            allow_disk_use: fields.optional("allowDiskUse")?,
        };
        let limit = fields.optional::<i64>("limit")?.unwrap_or(0);
        if limit < 0 {
            return Err(Error::location(
                51024,
                format!("BSON field 'limit' value must be >= 0, actual value '{limit}'"),
            ));
        }
        request.limit = (limit > 0).then_some(limit as u64);
        request.batch_size = batch_size(fields.optional("batchSize")?, "batchSize")?;
        crud::check_collation(fields.optional("collation")?)?;
        for refused in ["returnKey", "showRecordId"] {
            if fields.truth(refused)? {
                return Err(Error::not_implemented(format!("find with {refused}")));
            }
        }
        for ignored in ["allowPartialResults", "oplogReplay", "term", "readOnce", "ntoreturn", "querySettings"] {
            fields.take(ignored);
        }
        fields.finish()?;
        if request.awaits && !request.tailable {
            return Err(Error::failed_to_parse("Cannot set 'awaitData' without also setting 'tailable'"));
        }
        if request.tailable && request.single_batch {
            return Err(Error::bad_value("cannot use tailable option with the 'singleBatch' option"));
        }
        if request.tailable && request.sort.is_some_and(|sort| !sort.is_empty() && !is_natural_order(sort)) {
            return Err(Error::bad_value("cannot use tailable option with a sort other than {$natural: 1}"));
        }
        Ok(request)
    }

    /// The query it stands for.
    pub fn query_spec(&self, context: &baton_query::Context) -> Result<QuerySpec> {
        let filter = crud::matcher(self.filter, context)?;
        let (sort, natural) = crud::sort(self.sort)?;
        let projection = self.projection(&filter, context)?;
        context.check_constants()?;
        Ok(QuerySpec {
            filter,
            sort,
            skip: self.skip,
            limit: self.limit,
            projection,
            is_count: false,
            hint: crud::hint(self.hint)?.or(natural),
            min: self.min.map(ToOwned::to_owned),
            max: self.max.map(ToOwned::to_owned),
        })
    }

    #[allow(clippy::type_complexity)]
    fn projection(
        &self,
        filter: &Matcher,
        context: &baton_query::Context,
    ) -> Result<Option<(Arc<RawDocumentBuf>, Arc<Projection>)>> {
        match self.projection {
            Some(projection) if !projection.is_empty() => {
                let parsed = Projection::parse(projection, Some(filter), context, Mode::Find)?;
                Ok(Some((Arc::new(projection.to_owned()), Arc::new(parsed))))
            }
            _ => Ok(None),
        }
    }

    /// The `let` of the command.
    pub fn variables(&self) -> Option<&'a RawDocument> {
        self.variables
    }

    /// Whether the command says that it may use the disk.
    pub fn allow_disk_use(&self) -> Option<bool> {
        self.allow_disk_use
    }

    fn opening(&self, namespace: Namespace) -> Opening {
        Opening { namespace, batch_size: self.batch_size, single_batch: self.single_batch, no_timeout: self.no_timeout }
    }

    /// The `_id` if the filter is that alone, with a value that stands for itself.
    fn simple_id(&self) -> Option<RawBsonRef<'a>> {
        // A first batch of nothing leaves the cursor open, and the document to the next.
        let opens_cursor = self.batch_size == Some(0) && !self.single_batch;
        if opens_cursor
            || self.skip > 0
            || self.tailable
            || self.hint.is_some()
            || self.min.is_some()
            || self.max.is_some()
        {
            return None;
        }
        let mut elements = self.filter?.iter();
        let (name, value) = elements.next()?.ok()?;
        let stands_for_itself = matches!(
            value,
            RawBsonRef::ObjectId(_)
                | RawBsonRef::String(_)
                | RawBsonRef::Int32(_)
                | RawBsonRef::Int64(_)
                | RawBsonRef::Binary(_)
                | RawBsonRef::DateTime(_)
        );
        (name.as_str() == "_id" && stands_for_itself && elements.next().is_none()).then_some(value)
    }

    /// The find as a pipeline, for a view.
    pub fn stages(&self) -> Result<Vec<RawDocumentBuf>> {
        let mut stages = Vec::new();
        let mut stage = |name: &bson::raw::CStr, value: RawBsonRef<'_>| {
            let mut stage = RawDocumentBuf::new();
            stage.append(name, value);
            stages.push(stage);
        };
        if let Some(filter) = self.filter {
            stage(cstr!("$match"), RawBsonRef::Document(filter));
        }
        if let Some(sort) = self.sort.filter(|sort| !sort.is_empty()) {
            stage(cstr!("$sort"), RawBsonRef::Document(sort));
        }
        if self.skip > 0 {
            stage(cstr!("$skip"), RawBsonRef::Int64(self.skip as i64));
        }
        if let Some(limit) = self.limit {
            stage(cstr!("$limit"), RawBsonRef::Int64(limit as i64));
        }
        if let Some(projection) = self.projection.filter(|projection| !projection.is_empty()) {
            stage(cstr!("$project"), RawBsonRef::Document(projection));
        }
        Ok(stages)
    }
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let request = FindRequest::read(&mut call.fields)?;
    let storage = Arc::clone(&call.server.storage);
    let collection = storage.collection(&namespace);
    if let (Some(id), Some(collection)) = (request.simple_id(), &collection)
        && collection.kind == CollectionKind::Clustered
        && call.read_at.is_none()
    {
        return find_by_id(call, reply, &request, &storage, collection, id);
    }
    let context = crud::context_with(call, request.variables, request.allow_disk_use)?;
    let mut opening = request.opening(namespace.clone());
    // There is nothing to come from what is not there, not even for a cursor that would wait.
    opening.single_batch |= collection.is_none();
    if own_documents::is_a_pipeline(&storage, &namespace, collection.as_deref()) {
        if request.tailable {
            return Err(Error::new(ErrorCode::OptionNotSupportedOnView, "tailable cursors are not supported on views"));
        }
        let stages = request.stages()?;
        let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
        let host = own_documents::host(call, &namespace);
        let aggregation = host.open(&namespace, Pipeline::parse(&stages, &context)?, None, &context)?;
        return open(call, reply, Box::new(aggregation), &opening);
    }
    let mut spec = request.query_spec(&context)?;
    if request.tailable {
        let Some(collection) = collection else {
            return open(call, reply, Box::new(Query::new(&storage, None, spec, context)?), &opening);
        };
        if !matches!(collection.kind, CollectionKind::Capped | CollectionKind::Oplog) {
            return Err(Error::bad_value(format!(
                "error processing query: ns={namespace} tailable cursor requested on non capped collection"
            )));
        }
        if collection.kind == CollectionKind::Capped && collection.counts().documents == 0 {
            // As in MongoDB, a cursor that is to wait for the first document is dead from its start.
            opening.single_batch = true;
            return open(call, reply, Box::new(Query::new(&storage, None, spec, context)?), &opening);
        }
        let bounds = match collection.kind {
            CollectionKind::Oplog => oplog_range(&spec.filter),
            _ => Bounds::default(),
        };
        let tail = Tail {
            truncations: storage.queue().truncations(),
            follower: (collection.kind == CollectionKind::Oplog).then(|| storage.follow_log()),
            storage,
            collection,
            filter: spec.filter,
            projection: spec.projection.map(|(_, projection)| projection),
            context,
            awaits: request.awaits,
            bounds,
            last: None,
            skip: spec.skip,
            left: spec.limit,
            is_busy: false,
        };
        return open(call, reply, Box::new(tail), &opening);
    }
    if request.single_batch && spec.limit.is_none() {
        spec.limit = request.batch_size.map(|size| size as u64).filter(|size| *size > 0);
    }
    let query = Query::new(&storage, collection, spec, context)?;
    open(call, reply, Box::new(query), &opening)
        .map_err(|error| error.in_context(format_args!("Executor error during find command: {namespace}")))
}

/// Whether a sort is the order in which a capped collection keeps its documents.
fn is_natural_order(sort: &RawDocument) -> bool {
    matches!(natural_direction(sort), Ok(Some(Direction::Ascending)))
}

/// The shortest way: one look-up, and the document goes from storage into the reply.
fn find_by_id(
    call: &Call<'_>,
    reply: &mut Reply<'_>,
    request: &FindRequest<'_>,
    storage: &Storage,
    collection: &Collection,
    id: RawBsonRef<'_>,
) -> Result<()> {
    let record = record_key(id)?;
    let found = storage.get_by(call.reads_as(), collection, &record)?;
    reply.begin_document(cstr!("cursor"));
    reply.begin_array(cstr!("firstBatch"));
    if let Some(bytes) = &found {
        let document = baton_storage::stored_document(bytes)?;
        match request.projection.filter(|projection| !projection.is_empty()) {
            None => reply.push(document),
            Some(projection) => {
                let context = crud::context(call, request.variables)?;
                let filter = crud::matcher(request.filter, &context)?;
                let projection = Projection::parse(projection, Some(&filter), &context, Mode::Find)?;
                let details =
                    if projection.needs_match_details() { filter.matches_with_position(document)? } else { None };
                reply.push(&*projection.apply(document, details.as_ref())?);
            }
        }
    }
    reply.end();
    reply.append(cstr!("id"), 0_i64);
    reply.append(cstr!("ns"), collection.namespace.as_str());
    reply.end();
    crud::settle_read(call)
}
