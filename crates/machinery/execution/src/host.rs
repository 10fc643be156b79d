//! The stages that need storage: `$lookup` and `$unionWith` here, `$out` and `$merge` in [`crate::stages`]. And opening a
//! collection or view as the input of a pipeline, which all of them and the `aggregate` command share.

use crate::access::Given;
use crate::aggregation::{Aggregation, Input};
use crate::interrupt::{Check, Interruption};
use crate::query::{Hint, Query, QuerySpec};
use crate::stages::{Merge, Out};
use crate::write::{self, Work};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::pipeline::{Chain, Flow, Host, LookupSpec, Pipeline, Stage, StageSpec, Target, UnionWithSpec};
use baton_storage::{Author, Durability, Storage, Throttle, Writer};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::RawBson;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Views on views, at the most.
const VIEW_DEPTH_MAX: usize = 20;

/// Draws what storage needs drawn: UUIDs of new collections and ids of documents without one.
pub trait Draw: Send + Sync {
    /// A random UUID (version 4).
    fn uuid(&self) -> [u8; 16];
    /// A new ObjectId.
    fn object_id(&self) -> bson::oid::ObjectId;
    /// A timestamp of now that was not given before.
    fn timestamp(&self) -> bson::Timestamp;
}

/// Draws from the operating system.
pub struct SystemDraw;

impl Draw for SystemDraw {
    fn uuid(&self) -> [u8; 16] {
        bson::Uuid::new().bytes()
    }

    fn object_id(&self) -> bson::oid::ObjectId {
        bson::oid::ObjectId::new()
    }

    fn timestamp(&self) -> bson::Timestamp {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = (secs << 32) | 1;
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
        baton_types::Timestamp::from_u64(now.max(last.unwrap_or(0) + 1)).into()
    }
}

/// Documents that no collection holds.
pub trait OwnDocuments: Send + Sync {
    /// Those of a pipeline over `namespace`: what `source`, a first stage that makes its own input, gives, or what is only shown
    /// under this name. `None` if they are a collection's.
    fn documents(&self, namespace: &Namespace, source: Option<&StageSpec>) -> Result<Option<VecDeque<RawDocumentBuf>>>;
}

/// There are none: every pipeline begins at a collection.
pub struct NoOwnDocuments;

impl OwnDocuments for NoOwnDocuments {
    fn documents(&self, _: &Namespace, _: Option<&StageSpec>) -> Result<Option<VecDeque<RawDocumentBuf>>> {
        Ok(None)
    }
}

/// See the file's header.
#[derive(Clone)]
pub struct StorageHost {
    /// Where the collections are.
    pub storage: Arc<Storage>,
    /// The database of the aggregation.
    pub db: String,
    /// Sources of randomness.
    pub draw: Arc<dyn Draw>,
    /// What is no collection's.
    own: Arc<dyn OwnDocuments>,
    /// Whether `$out` and `$merge` do not ask their target's validator.
    pub bypass_validation: bool,
    /// Who runs the aggregation now.
    interruption: Arc<Interruption>,
    /// On whose behalf stages write.
    author: Arc<Author>,
}

impl StorageHost {
    /// The host of one aggregation.
    pub fn new(
        storage: Arc<Storage>,
        db: &str,
        draw: Arc<dyn Draw>,
        own: Arc<dyn OwnDocuments>,
        author: Arc<Author>,
    ) -> Self {
        let interruption = Arc::default();
        Self { storage, db: db.to_owned(), draw, own, bypass_validation: false, interruption, author }
    }

    /// The aggregation of `chain` over `input`, whose stages are this host's.
    pub fn aggregation(&self, input: Input, chain: Chain) -> Aggregation {
        Aggregation::new(input, chain, Arc::clone(&self.interruption))
    }

    /// What a stage's writes are carried out with: the command itself waits for the disk, at its end.
    pub(crate) fn work<'a>(&'a self, throttle: &'a Throttle) -> Work<'a> {
        Work {
            storage: &self.storage,
            draw: &*self.draw,
            interruption: &self.interruption,
            durability: Durability::Applied,
            throttle,
            author: &self.author,
            left: None,
        }
    }

    /// Changes what exists, for a stage.
    pub(crate) fn writer(&self) -> Writer<'_> {
        self.storage.by(&self.author)
    }

    /// A pipeline over a collection or view, ready to run. `depth` counts views on the way.
    pub fn open(
        &self,
        namespace: &Namespace,
        pipeline: Pipeline,
        hint: Option<Hint>,
        context: &Arc<Context>,
    ) -> Result<Aggregation> {
        let (namespace, pipeline) = self.resolve(namespace, pipeline, context)?;
        let pipeline = pipeline.optimize()?;
        if let Some(StageSpec::Documents(spec)) = pipeline.source() {
            let documents = spec.documents(context)?;
            let rest = pipeline.with_stages(pipeline.stages()[1..].to_vec());
            return Ok(self.aggregation(Input::Documents(documents), rest.start(self)?));
        }
        if let Some(documents) = self.own.documents(&namespace, pipeline.source())? {
            let rest = pipeline.with_stages(pipeline.stages()[usize::from(pipeline.source().is_some())..].to_vec());
            return Ok(self.aggregation(Input::Documents(documents), rest.start(self)?));
        }
        let leading = pipeline.leading_query();
        let filter = leading.filter.map_or_else(|| Arc::new(Matcher::always()), |(_, matcher)| matcher);
        let spec = QuerySpec {
            sort: leading.sort,
            skip: leading.skip,
            limit: leading.limit,
            hint,
            ..QuerySpec::matching(filter)
        };
        let query = Query::new(&self.storage, self.storage.collection(&namespace), spec, Arc::clone(context))?;
        Ok(self.aggregation(Input::Query(Box::new(query)), leading.rest.start(self)?))
    }

    /// Follows views down to a collection, putting their pipelines in front.
    pub fn resolve(
        &self,
        namespace: &Namespace,
        pipeline: Pipeline,
        context: &Context,
    ) -> Result<(Namespace, Pipeline)> {
        let (mut namespace, mut pipeline) = (namespace.clone(), pipeline);
        for _ in 0..=VIEW_DEPTH_MAX {
            let Some(collection) = self.storage.collection(&namespace) else { return Ok((namespace, pipeline)) };
            let Some((on, stages)) = &collection.options.view else { return Ok((namespace, pipeline)) };
            let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
            let mut all = Pipeline::parse(&stages, context)?.stages().to_vec();
            all.extend_from_slice(pipeline.stages());
            pipeline = pipeline.with_stages(all);
            namespace = Namespace::new(namespace.db(), on)?;
        }
        Err(Error::new(
            ErrorCode::ViewDepthLimitExceeded,
            format!("View depth too deep or view cycle detected; maximum depth is {VIEW_DEPTH_MAX}"),
        ))
    }

    /// The operation that runs the aggregation at this moment.
    pub(crate) fn check(&self) -> Check {
        self.interruption.current()
    }

    pub(crate) fn namespace(&self, target: &Target) -> Result<Namespace> {
        Namespace::new(target.db.as_deref().unwrap_or(&self.db), &target.coll)
    }

    fn everything(&self, target: Option<&Target>, pipeline: Pipeline, context: &Arc<Context>) -> Result<Aggregation> {
        match target {
            Some(target) => self.open(&self.namespace(target)?, pipeline, None, context),
            // Without a collection the pipeline begins with `$documents`, and this name is never looked at.
            None => self.open(&Namespace::new(&self.db, "none")?, pipeline, None, context),
        }
    }
}

impl Host for StorageHost {
    fn start(&self, spec: &StageSpec, context: &Arc<Context>) -> Result<Box<dyn Stage>> {
        match spec {
            StageSpec::Lookup(spec) => {
                Ok(Box::new(Lookup { host: self.clone(), spec: Arc::clone(spec), context: Arc::clone(context) }))
            }
            StageSpec::UnionWith(spec) => Ok(Box::new(UnionWith {
                host: self.clone(),
                spec: Arc::clone(spec),
                context: Arc::clone(context),
                other: None,
            })),
            StageSpec::Out(spec) => Ok(Box::new(Out::new(self.clone(), spec))),
            StageSpec::Merge(spec) => Ok(Box::new(Merge::new(self.clone(), Arc::clone(spec), Arc::clone(context))?)),
            // Parsing has seen to it in the request's own pipeline: here a view's stages stand before it.
            other => {
                let message = format!("{} is only valid as the first stage in a pipeline", other.name());
                Err(Error::location(40602, message))
            }
        }
    }
}

/// `$lookup`: for each document, its partners.
struct Lookup {
    host: StorageHost,
    spec: Arc<LookupSpec>,
    context: Arc<Context>,
}

impl Stage for Lookup {
    fn push(&mut self, document: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let bound = Arc::new(self.spec.bind(&document, &self.context)?);
        let mut stages = Vec::new();
        if let Some(filter) = self.spec.foreign_filter(&document)? {
            let mut stage = RawDocumentBuf::new();
            stage.append(bson::raw::cstr!("$match"), filter);
            stages.push(stage);
        }
        let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
        let mut pipeline = Pipeline::parse(&stages, &bound)?;
        if let Some(further) = self.spec.pipeline(&bound)? {
            let mut all = further.stages().to_vec();
            // A pipeline that begins with $documents keeps its beginning.
            let at = usize::from(further.source().is_some());
            all.splice(at..at, pipeline.stages().iter().cloned());
            pipeline = further.with_stages(all);
        }
        let mut partners = RawArrayBuf::new();
        let mut bytes = 0;
        let mut all = self.host.everything(self.spec.from.as_ref(), pipeline, &bound)?;
        all.run(&self.host.check(), &mut |partner| {
            bytes += partner.as_bytes().len();
            if bytes > write::DOCUMENT_BYTES_MAX {
                let from = self.spec.from.as_ref().map_or("the pipeline", |target| target.coll.as_str());
                return Err(Error::location(
                    4568,
                    format!(
                        "Total size of documents in {from} matching pipeline's $lookup stage exceeds {} bytes",
                        write::DOCUMENT_BYTES_MAX
                    ),
                ));
            }
            partners.push(RawBson::Document(partner.to_owned()));
            Ok(Given::Taken)
        })?;
        out.push_back(self.spec.attach(&document, &partners)?);
        Ok(Flow::More)
    }
}

/// `$unionWith`: the documents of another pipeline after one's own.
struct UnionWith {
    host: StorageHost,
    spec: Arc<UnionWithSpec>,
    context: Arc<Context>,
    other: Option<Aggregation>,
}

impl Stage for UnionWith {
    fn push(&mut self, document: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        out.push_back(document);
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if self.other.is_none() {
            let pipeline = match &self.spec.pipeline {
                Some(pipeline) => pipeline.bind(&self.context)?,
                None => Pipeline::parse(&[], &self.context)?,
            };
            self.other = Some(self.host.everything(self.spec.from.as_ref(), pipeline, &self.context)?);
        }
        let Some(other) = &mut self.other else { return Ok(Flow::Done) };
        let mut given = 0;
        let more = other.run(&self.host.check(), &mut |document| {
            out.push_back(document.to_owned());
            given += 1;
            Ok(if given == 256 { Given::TakenLast } else { Given::Taken })
        })?;
        Ok(if more { Flow::More } else { Flow::Done })
    }
}

/// A chain without stages, for commands that only page through documents.
pub(crate) fn no_stages() -> Chain {
    Chain::new(Vec::new())
}
