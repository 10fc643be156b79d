//! What all index builds have in common, and those of one member alone, which whoever wants the index waits for.
//!
//! ```text
//!  register ── fill ── complete: `createIndexes` in the log       a restart removes what is not complete
//! ```
//!
//! Invariants:
//! - From its registration on, whoever writes a document does what the index asks of him by one way ([`crate::documents::index_writes`]): clients'
//!   writers, what applies another's log, a rollback.
//! - An index of an empty collection is complete when it is registered: there is nothing to fill, nobody to wait for.
//!
//! Not here: filling ([`super::index_fill`]); builds of the set ([`super::set_build`]).

use super::index_fill::{Filling, Pass};
use super::{CatalogGuard, FillPosition, Held, IndexBuildProgress, LoggedCommand, Quiet};
use crate::catalog::{BuildPhase, Index, IndexBuild, IndexDefinition, IndexState};
use crate::documents::format::{CollectionId, IndexId, build_position_key, family};
use crate::documents::transaction::Transaction;
use crate::log::author::Writer;
use crate::log::commit::Durability;
use baton_types::{Error, ErrorCode, Interruption, Namespace, Result};
use std::sync::Arc;

/// Keys of deleted documents that are passed over to see whether a collection is empty.
const DELETED_PASSED_MAX: u64 = 1000;

pub(super) fn aborted() -> Error {
    Error::new(ErrorCode::IndexBuildAborted, "Index build aborted: the index or its collection was dropped")
}

impl Transaction {
    /// Leaves nothing of what an index had while it was built. Its own entries stay.
    pub(crate) fn forget_build(&mut self, index: &Index) {
        self.delete(family::META, &build_position_key(index.id));
        if let Some(side) = index.side() {
            self.free_at_once(side);
        }
    }
}

impl Held<'_> {
    pub(super) fn check_names(&self, definitions: &[IndexDefinition]) -> Result<()> {
        match definitions.iter().find(|definition| self.index(&definition.name).is_some()) {
            None => Ok(()),
            Some(definition) => Err(Error::new(
                ErrorCode::IndexAlreadyExists,
                format!("Identical index already exists: {}", definition.name),
            )),
        }
    }

    pub(super) fn to_build(
        &self,
        transaction: &mut Transaction,
        definitions: &[IndexDefinition],
        build: Option<&IndexBuild>,
    ) -> Vec<Arc<Index>> {
        let mut id = || self.guard.writer.allocate_id(transaction);
        let mut make = |definition: &IndexDefinition| Index::to_build((id(), id()), definition.clone(), build.cloned());
        definitions.iter().map(|definition| Arc::new(make(definition))).collect()
    }

    /// Whether there is no document, while nobody writes. Where many were deleted, as everybody waits, that is not found out.
    pub(super) fn is_empty(&self, _: &Quiet<'_>) -> Result<bool> {
        self.guard.writer.view().has_none(self, DELETED_PASSED_MAX)
    }

    pub(super) fn register_complete(
        &self,
        this: &Quiet<'_>,
        transaction: &mut Transaction,
        definitions: &[IndexDefinition],
    ) -> Result<Vec<Arc<Index>>> {
        let mut id = || self.guard.writer.allocate_id(transaction);
        let fresh: Vec<_> =
            definitions.iter().map(|definition| Arc::new(Index::complete(id(), definition.clone()))).collect();
        let mut indexes = Vec::clone(&self.indexes());
        indexes.extend(fresh.iter().cloned());
        transaction.store_entry(this, self.entry(&indexes));
        for definition in definitions {
            let command = LoggedCommand::CreateIndexes(vec![definition.clone()]);
            self.guard.log(transaction, &self.namespace, Some(self.uuid), &command, None)?;
        }
        let _unreadable = self.guard.writer.commit_catalog_change(std::mem::take(transaction))?;
        self.indexes.store(Arc::new(indexes));
        Ok(fresh)
    }

    /// Registers an index that its caller fills: from now on writers keep it up to date.
    fn begin_index(&self, definition: IndexDefinition) -> Result<Arc<Index>> {
        let definitions = [definition];
        self.check_names(&definitions)?;
        self.quietly(|this| {
            let mut transaction = Transaction::default();
            if self.is_empty(this)? {
                return self.register_complete(this, &mut transaction, &definitions).map(|fresh| Arc::clone(&fresh[0]));
            }
            let fresh = self.to_build(&mut transaction, &definitions, None);
            let mut indexes = Vec::clone(&self.indexes());
            indexes.extend(fresh.iter().cloned());
            transaction.store_entry(this, self.entry(&indexes));
            self.guard.writer.commit.commit_unasked(transaction, Durability::Synced);
            self.indexes.store(Arc::new(indexes));
            Ok(Arc::clone(&fresh[0]))
        })
    }

    /// Makes filled indexes ones that queries may use.
    pub(super) fn complete(&self, indexes: &[Arc<Index>], command: &LoggedCommand) -> Result<()> {
        let guard = self.guard;
        if indexes.iter().any(|index| index.phase() != BuildPhase::Checking) {
            return Err(Error::new(ErrorCode::InternalError, "an index is not filled yet that is to be complete"));
        }
        self.quietly(|this| {
            let mut transaction = Transaction::default();
            let mut entry = self.entry(&self.indexes());
            for index in indexes {
                entry = entry.completed(index.id);
                transaction.forget_build(index);
            }
            transaction.store_entry(this, entry);
            guard.log(&mut transaction, &self.namespace, Some(self.uuid), command, None)?;
            crash_point!("index-build-before-ready");
            let _unreadable = guard.writer.commit_catalog_change(transaction)?;
            indexes.iter().for_each(|index| index.set_ready());
            crash_point!("index-build-ready");
            Ok(())
        })
    }

    fn finish_index(&self, id: IndexId) -> Result<()> {
        let indexes = self.indexes();
        let Some(index) = indexes.iter().find(|index| index.id == id) else { return Err(aborted()) };
        let command = LoggedCommand::CreateIndexes(vec![index.definition.clone()]);
        self.complete(std::slice::from_ref(index), &command)
    }
}

/// An index that is being built by whoever waits for it: whatever ends the build early, nothing of it stays. Else everybody who
/// wants the same index would wait for it for ever.
struct UnfinishedIndex<'s> {
    writer: Writer<'s>,
    collection: CollectionId,
    index: IndexId,
}

impl Drop for UnfinishedIndex<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.writer.abort_index(self.collection, self.index) {
            tracing::error!(component = "INDEX", error = %error, "An index whose build has failed could not be removed; the next start does so");
        }
    }
}

impl Writer<'_> {
    /// Builds an index. Writers go on meanwhile; on error nothing of the index stays. `IndexAlreadyExists` (68) if there
    /// is one of this name, complete or not; `IndexBuildAborted` (276) if the index or its collection is dropped meanwhile.
    pub fn create_index(
        &self,
        namespace: &Namespace,
        definition: IndexDefinition,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let missing = || Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {namespace}"));
        self.create_index_if(
            |catalog| Ok(Some((catalog.collection(namespace).ok_or_else(missing)?, definition))),
            &Arc::default(),
            progress,
        )
        .map(|_| ())
    }

    /// Builds the index that `decide` wants of the collection that it holds, as it is when the index is registered; gives its id,
    /// or `None` if none was wanted. `progress` hears of every batch of documents; `asked` is asked within each document. Errors as
    /// those of [`Self::create_index`].
    pub fn create_index_if(
        &self,
        decide: impl for<'g> FnOnce(&'g CatalogGuard<'g>) -> Result<Option<(Held<'g>, IndexDefinition)>>,
        asked: &Arc<Interruption>,
        progress: IndexBuildProgress<'_>,
    ) -> Result<Option<IndexId>> {
        let pass = if self.follows() { Pass::Follow } else { Pass::Decide };
        let (collection, index) = {
            let catalog = self.lock_catalog();
            let Some((held, definition)) = decide(&catalog)? else { return Ok(None) };
            if pass == Pass::Decide {
                self.check_room()?;
            }
            let index = held.begin_index(definition)?;
            (Arc::clone(&held), index)
        };
        if index.state() == IndexState::Ready {
            return Ok(Some(index.id));
        }
        let unfinished = UnfinishedIndex { writer: *self, collection: collection.id, index: index.id };
        let filling =
            Filling { collection: &collection, indexes: std::slice::from_ref(&index), pass, is_lasting: false, asked };
        let filled = self.fill(&filling, &mut FillPosition::default(), progress);
        // What is dropped takes the build's folder with it, which the build may notice first.
        filled.map_err(|error| match self.in_build(&filling, || Ok(())) {
            Ok(()) => error,
            Err(gone) => gone,
        })?;
        self.lock_catalog().by_id(collection.id).ok_or_else(aborted)?.finish_index(index.id)?;
        std::mem::forget(unfinished);
        Ok(Some(index.id))
    }

    /// Takes away what there is of an index that was not completed, in a collection that may be gone, and the index with it.
    pub(super) fn abort_index(&self, collection: CollectionId, index: IndexId) -> Result<()> {
        let catalog = self.lock_catalog();
        let removed = catalog.by_id(collection).map_or(Ok(()), |held| held.remove_indexes(&[index], false));
        drop(catalog);
        self.remove_build_files();
        removed
    }
}
