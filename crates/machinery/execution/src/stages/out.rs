//! `$out`: the result becomes a collection, all at once, when it is complete.
//!
//! The documents go into a temporary collection with the target's options and indexes, which then takes the target's name.
//!
//! Invariants: nobody sees a part of the result under the target's name; whatever ends the aggregation early leaves the
//! target as it was and nothing of the temporary collection (after a crash or a fail-over the next primary drops it); a
//! target whose options or indexes changed meanwhile is not replaced, since the change would be lost.

use crate::host::StorageHost;
use crate::write::{self, InsertRules};
use baton_document::show;
use baton_query::pipeline::{Flow, OutSpec, Stage, Target};
use baton_storage::{Collection, CollectionKind, CollectionOptions, CreateOutcome, IndexState, Throttle};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::RawDocumentBuf;
use std::collections::VecDeque;

/// Documents are written together, up to this many, or so many bytes.
const BATCH_DOCUMENTS: usize = 256;
const BATCH_BYTES: usize = 256 * 1024;

/// See the file's header. What the target is it looks up with the first document, or at the end if there is none.
pub(crate) struct Out {
    host: StorageHost,
    target: Target,
    writing: Option<Writing>,
}

impl Out {
    pub fn new(host: StorageHost, spec: &OutSpec) -> Self {
        Self { host, target: spec.target.clone(), writing: None }
    }

    fn writing(&mut self) -> Result<&mut Writing> {
        let begun = match self.writing.take() {
            Some(begun) => begun,
            None => Writing::begin(self.host.clone(), &self.target)?,
        };
        Ok(self.writing.insert(begun))
    }
}

impl Stage for Out {
    fn push(&mut self, document: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        self.writing()?.add(document)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        self.writing()?.end()?;
        Ok(Flow::Done)
    }
}

/// A result on its way.
struct Writing {
    host: StorageHost,
    target: Namespace,
    /// What the target was when this began.
    before: Likeness,
    scratch: Scratch,
    batch: Vec<RawDocumentBuf>,
    batch_bytes: usize,
    throttle: Throttle,
}

impl Writing {
    fn begin(host: StorageHost, target: &Target) -> Result<Self> {
        check_name(target)?;
        let target = host.namespace(target)?;
        let existing = host.storage.collection(&target);
        if let Some(collection) = &existing {
            check_target(collection)?;
        }
        let before = Likeness::of(existing.as_deref());
        let scratch = Scratch::create(&host, &target, existing.as_deref())?;
        Ok(Self { host, target, before, scratch, batch: Vec::new(), batch_bytes: 0, throttle: Throttle::default() })
    }

    fn add(&mut self, document: RawDocumentBuf) -> Result<()> {
        self.batch_bytes += document.as_bytes().len();
        self.batch.push(document);
        if self.batch.len() >= BATCH_DOCUMENTS || self.batch_bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn end(&mut self) -> Result<()> {
        self.flush()?;
        (self.host.check())()?;
        let Self { host, target, before, scratch, .. } = self;
        host.writer().replace_collection(&scratch.namespace, target, |now| {
            before.check(target, &Likeness::of(now.map(|now| &**now)))
        })?;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let rules =
            InsertRules { ordered: true, bypass_validation: self.host.bypass_validation, keeps_empty_timestamps: true };
        let mut failure = None;
        let mut documents = self.batch.iter().enumerate().map(|(at, document)| (at, &**document, 0));
        let work = self.host.work(&self.throttle);
        write::insert_many(&work, &self.scratch.namespace, &mut documents, rules, None, &mut |_, error| {
            failure.get_or_insert(error);
        })?;
        self.batch.clear();
        self.batch_bytes = 0;
        failure.map_or(Ok(()), Err)
    }
}

/// `IllegalOperation` (20) for a name that no collection can be renamed to.
fn check_name(target: &Target) -> Result<()> {
    if target.coll.contains('$') {
        let message = format!("error with target namespace: Invalid collection name: {}", target.coll);
        return Err(Error::new(ErrorCode::IllegalOperation, message));
    }
    Ok(())
}

/// Whether a collection may be replaced at all.
fn check_target(collection: &Collection) -> Result<()> {
    let target = &collection.namespace;
    if collection.kind == CollectionKind::View {
        return Err(Error::new(
            ErrorCode::CommandNotSupportedOnView,
            format!("Namespace {target} is a view, not a collection"),
        ));
    }
    if collection.options.capped.is_some() {
        return Err(Error::location(17152, format!("namespace '{target}' is capped so it can't be used for $out")));
    }
    Ok(())
}

/// What the new collection has of the one it replaces: at one moment, since a collection's list of indexes goes with the time.
#[derive(PartialEq)]
struct Likeness {
    options: RawDocumentBuf,
    /// `None` if there is no collection.
    indexes: Option<Vec<RawDocumentBuf>>,
}

impl Likeness {
    fn of(collection: Option<&Collection>) -> Self {
        Self {
            options: collection.map_or_else(RawDocumentBuf::new, |collection| collection.options.document.clone()),
            indexes: collection.map(|collection| {
                let indexes = collection.indexes();
                indexes.iter().map(|index| index.definition.document.clone()).collect()
            }),
        }
    }

    /// Whether the target is still what the temporary collection was made like: `CommandFailed` (125) if not.
    fn check(&self, target: &Namespace, now: &Self) -> Result<()> {
        if self.options != now.options {
            return Err(Error::new(
                ErrorCode::CommandFailed,
                format!(
                    "collection options of target collection {target} changed during processing. Original options: \
                     {}, new options: {}",
                    show::document(&self.options),
                    show::document(&now.options)
                ),
            ));
        }
        if self.indexes != now.indexes {
            return Err(Error::new(
                ErrorCode::CommandFailed,
                format!("indexes of target collection {target} changed during processing."),
            ));
        }
        Ok(())
    }
}

/// The temporary collection; goes when this is dropped, unless it has got another name by then.
struct Scratch {
    host: StorageHost,
    namespace: Namespace,
}

impl Scratch {
    fn create(host: &StorageHost, target: &Namespace, like: Option<&Collection>) -> Result<Self> {
        let name = bson::Uuid::from_bytes(host.draw.uuid()).to_string();
        let namespace = Namespace::new(target.db(), &format!("tmp.agg_out.{name}"))?;
        let options = like.map_or_else(CollectionOptions::default, |collection| collection.options.clone());
        match host.writer().create_collection(&namespace, options.with_temporary(true)?, host.draw.uuid())? {
            CreateOutcome::Created(_) | CreateOutcome::Exists(_) => {}
        }
        let scratch = Self { host: host.clone(), namespace };
        for index in like.into_iter().flat_map(|collection| collection.indexes().iter().cloned().collect::<Vec<_>>()) {
            if index.state() == IndexState::Ready {
                let check = host.check();
                let definition = index.definition.clone();
                scratch.host.writer().create_index(&scratch.namespace, definition, &mut |_, _| check())?;
            }
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = self.host.writer().drop_collection(&self.namespace) {
            tracing::warn!(component = "QUERY", namespace = %self.namespace, error = %error, "Could not drop what an unfinished $out left; the next primary drops it");
        }
    }
}
