//! What a pipeline has of storage: a collection or view opened as its input, which the `aggregate` command and the stages of
//! [`crate::stages`] share, and those stages themselves.

use crate::aggregation::{Aggregation, Input};
use crate::draw::Draw;
use crate::interrupt::{Check, Interruption};
use crate::query::{Hint, Query, QuerySpec};
use crate::stages::{Lookup, Merge, Out, UnionWith};
use crate::write::Work;
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::pipeline::{Chain, Host, Pipeline, Stage, StageSpec, Target};
use baton_storage::{Author, Durability, Storage, Throttle, Writer};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawDocument, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;

/// Views on views, at the most.
const VIEW_DEPTH_MAX: usize = 20;

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

    /// All documents of a target, through a pipeline.
    pub(crate) fn everything(
        &self,
        target: Option<&Target>,
        pipeline: Pipeline,
        context: &Arc<Context>,
    ) -> Result<Aggregation> {
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
            StageSpec::Lookup(spec) => Ok(Box::new(Lookup::new(self.clone(), Arc::clone(spec), Arc::clone(context)))),
            StageSpec::UnionWith(spec) => {
                Ok(Box::new(UnionWith::new(self.clone(), Arc::clone(spec), Arc::clone(context))))
            }
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

/// A chain without stages, for commands that only page through documents.
pub(crate) fn no_stages() -> Chain {
    Chain::new(Vec::new())
}
