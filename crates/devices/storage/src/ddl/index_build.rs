//! Beginning, completing and giving up the building of indexes.
//!
//! ```text
//!  alone     register ── fill ── complete: `createIndexes` in the log       whoever waits for it builds it; a restart removes it
//!  in a set  register: `startIndexBuild` in the log
//!              └─ fill, on every member, beside its writers and beside what it applies
//!                   └─ `commitIndexBuild`, or `abortIndexBuild`              the primary decides; a restart goes on
//! ```
//!
//! Invariants:
//! - From its registration on, whoever writes a document does what the index asks of him by one way ([`crate::index_writes`]): clients'
//!   writers, what applies another's log, a rollback.
//! - A build of the set is in the catalog from its start to its end, with the indexes it makes, on disk too: who finds it there goes
//!   on with it. All its indexes are completed by one transaction, or go by one.
//! - An index of an empty collection is complete when it is registered: there is nothing to fill, nobody to wait for.
//!
//! Not here: filling ([`super::index_fill`]); who builds, and when the set has built enough (`baton_consensus::index_build`).

use super::index_fill::{Filling, Pass};
use super::{CatalogGuard, DroppedPart, FillPosition, Held, IndexBuildProgress, LoggedCommand, Quiet};
use crate::catalog::{BuildPhase, Collection, Index, IndexBuild, IndexDefinition, IndexState};
use crate::commit::Durability;
use crate::format::{CollectionId, IndexId, build_position_key, family};
use crate::storage::Storage;
use crate::transaction::Transaction;
use baton_types::{Error, ErrorCode, Interruption, Namespace, Result};
use std::sync::Arc;

/// Keys of deleted documents that are passed over to see whether a collection is empty.
const DELETED_PASSED_MAX: u64 = 1000;

/// What became of a build when it was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The collection is empty: the indexes are complete.
    Complete,
    /// They are registered, and are to be filled.
    Building,
}

/// A build of the set that the catalog has.
#[derive(Clone)]
pub struct BuildOfSet {
    /// The collection's UUID.
    pub collection: [u8; 16],
    /// The collection's name now.
    pub namespace: Namespace,
    /// Which build it is.
    pub build: IndexBuild,
    /// What it makes.
    pub definitions: Vec<IndexDefinition>,
}

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
    /// Begins a build of the set: registers its indexes and logs that. `may_complete` allows those of an empty collection to be
    /// complete at once, and logged as such; who follows takes the entry for what it is.
    ///
    /// # Errors
    /// `IndexAlreadyExists` (68) if there is an index of one of these names; `OutOfDiskSpace` (14031) where this member decides.
    pub fn start_build(
        &self,
        build: &IndexBuild,
        definitions: &[IndexDefinition],
        may_complete: bool,
    ) -> Result<Started> {
        self.check_names(definitions)?;
        if may_complete {
            self.guard.storage.check_room()?;
        }
        self.quietly(|this| {
            if may_complete && self.is_empty(this)? {
                let mut transaction = Transaction::default();
                self.register_complete(this, &mut transaction, definitions)?;
                return Ok(Started::Complete);
            }
            let mut transaction = Transaction::default();
            let (build, definitions) = (build.clone(), definitions.to_vec());
            let command =
                LoggedCommand::StartBuild { build: build.clone(), definitions: definitions.clone(), is_change: false };
            self.guard.log(&mut transaction, &self.namespace, Some(self.uuid), &command, None)?;
            let fresh = self.to_build(&mut transaction, &definitions, Some(&build));
            let mut indexes = Vec::clone(&self.indexes());
            indexes.extend(fresh);
            transaction.store_entry(this, self.entry(&indexes));
            crash_point!("index-build-before-start");
            self.guard.storage.commit.commit(transaction, Durability::Synced)?;
            self.indexes.store(Arc::new(indexes));
            crash_point!("index-build-started");
            Ok(Started::Building)
        })
    }

    /// Makes the indexes of this build be what queries may use, and logs that. `false` if there is no such build.
    pub fn commit_build(&self, build: [u8; 16]) -> Result<bool> {
        let indexes = self.of_build(build);
        let Some(build) = indexes.first().and_then(|index| index.build()).cloned() else { return Ok(false) };
        let definitions = indexes.iter().map(|index| index.definition.clone()).collect();
        self.complete(&indexes, &LoggedCommand::CommitBuild { build, definitions })?;
        Ok(true)
    }

    /// Takes the indexes of this build away, and logs that and why. `false` if there is no such build.
    pub(super) fn abort_build(&self, build: [u8; 16], cause: &Error) -> Result<bool> {
        let indexes = self.of_build(build);
        let left: Vec<_> = self.indexes().iter().filter(|index| !index.is_of_build(build)).cloned().collect();
        let Some(build) = indexes.first().and_then(|index| index.build()).cloned() else { return Ok(false) };
        let definitions = indexes.iter().map(|index| index.definition.clone()).collect();
        let command = LoggedCommand::AbortBuild { build, definitions, cause: (cause.code, cause.message.clone()) };
        self.quietly(|this| {
            let mut transaction = Transaction::default();
            transaction.store_entry(this, self.entry(&left));
            self.guard.log(&mut transaction, &self.namespace, Some(self.uuid), &command, None)?;
            for index in &indexes {
                transaction.free_later(index.id, DroppedPart::of_index(self.id, index));
                transaction.forget_build(index);
            }
            crash_point!("index-build-abort-before-commit");
            self.guard.storage.commit.commit(transaction, Durability::Synced)?;
            self.indexes.store(Arc::new(left));
            self.guard.storage.freeing.leave_build_files();
            crash_point!("index-build-abort-after-commit");
            Ok(true)
        })
    }

    /// Gives a build another commit quorum, and logs that as its start is logged. `false` if there is no such build.
    pub fn set_commit_quorum(&self, build: &IndexBuild) -> Result<bool> {
        let indexes = self.of_build(build.uuid);
        if indexes.is_empty() {
            return Ok(false);
        }
        let definitions = indexes.iter().map(|index| index.definition.clone()).collect();
        let command = LoggedCommand::StartBuild { build: build.clone(), definitions, is_change: true };
        self.quietly(|this| {
            let mut transaction = Transaction::default();
            self.guard.log(&mut transaction, &self.namespace, Some(self.uuid), &command, None)?;
            let altered: Vec<_> = self.indexes().iter().map(|index| index.with_quorum_of(build)).collect();
            transaction.store_entry(this, self.entry(&altered));
            self.guard.storage.commit.commit(transaction, Durability::Synced)?;
            self.indexes.store(Arc::new(altered));
            Ok(true)
        })
    }

    /// The indexes that this build makes, while it does.
    pub fn of_build(&self, build: [u8; 16]) -> Vec<Arc<Index>> {
        self.indexes().iter().filter(|index| index.is_of_build(build)).cloned().collect()
    }

    fn check_names(&self, definitions: &[IndexDefinition]) -> Result<()> {
        match definitions.iter().find(|definition| self.index(&definition.name).is_some()) {
            None => Ok(()),
            Some(definition) => Err(Error::new(
                ErrorCode::IndexAlreadyExists,
                format!("Identical index already exists: {}", definition.name),
            )),
        }
    }

    fn to_build(
        &self,
        transaction: &mut Transaction,
        definitions: &[IndexDefinition],
        build: Option<&IndexBuild>,
    ) -> Vec<Arc<Index>> {
        let mut id = || self.guard.storage.allocate_id(transaction);
        let mut make = |definition: &IndexDefinition| Index::to_build((id(), id()), definition.clone(), build.cloned());
        definitions.iter().map(|definition| Arc::new(make(definition))).collect()
    }

    /// Whether there is no document, while nobody writes. Where many were deleted, as everybody waits, that is not found out.
    fn is_empty(&self, _: &Quiet<'_>) -> Result<bool> {
        self.guard.storage.view().has_none(self, DELETED_PASSED_MAX)
    }

    fn register_complete(
        &self,
        this: &Quiet<'_>,
        transaction: &mut Transaction,
        definitions: &[IndexDefinition],
    ) -> Result<Vec<Arc<Index>>> {
        let mut id = || self.guard.storage.allocate_id(transaction);
        let fresh: Vec<_> =
            definitions.iter().map(|definition| Arc::new(Index::complete(id(), definition.clone()))).collect();
        let mut indexes = Vec::clone(&self.indexes());
        indexes.extend(fresh.iter().cloned());
        transaction.store_entry(this, self.entry(&indexes));
        for definition in definitions {
            let command = LoggedCommand::CreateIndexes(vec![definition.clone()]);
            self.guard.log(transaction, &self.namespace, Some(self.uuid), &command, None)?;
        }
        let _unreadable = self.guard.storage.commit_catalog_change(std::mem::take(transaction), || ())?;
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
            self.guard.storage.commit.commit_unasked(transaction, Durability::Synced);
            self.indexes.store(Arc::new(indexes));
            Ok(Arc::clone(&fresh[0]))
        })
    }

    /// Makes filled indexes ones that queries may use.
    fn complete(&self, indexes: &[Arc<Index>], command: &LoggedCommand) -> Result<()> {
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
            let _unreadable = guard.storage.commit_catalog_change(transaction, || ())?;
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
    storage: &'s Storage,
    collection: CollectionId,
    index: IndexId,
}

impl Drop for UnfinishedIndex<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.storage.abort_index(self.collection, self.index) {
            tracing::error!(component = "INDEX", error = %error, "An index whose build has failed could not be removed; the next start does so");
        }
    }
}

impl Storage {
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
        let pass = if crate::replay::is_under_way() { Pass::Follow } else { Pass::Decide };
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
        let unfinished = UnfinishedIndex { storage: self, collection: collection.id, index: index.id };
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

    /// The builds of the set that are under way.
    pub fn builds_of_set(&self) -> Vec<BuildOfSet> {
        let mut builds: Vec<BuildOfSet> = Vec::new();
        for collection in self.catalog().iter() {
            for index in collection.indexes().iter() {
                let Some(build) = index.build() else { continue };
                match builds.iter_mut().find(|known| known.build.uuid == build.uuid) {
                    Some(known) => known.definitions.push(index.definition.clone()),
                    None => builds.push(BuildOfSet {
                        collection: collection.uuid,
                        namespace: collection.namespace.clone(),
                        build: build.clone(),
                        definitions: vec![index.definition.clone()],
                    }),
                }
            }
        }
        builds
    }

    /// Gives up a build of the set and logs that, with the cause. `false` if there is no such build (any more).
    pub fn abort_build(&self, collection: [u8; 16], build: [u8; 16], cause: &Error) -> Result<bool> {
        let catalog = self.lock_catalog();
        catalog.by_uuid(collection).map_or(Ok(false), |held| held.abort_build(build, cause))
    }

    /// Takes the indexes of builds of a set away, without a word in the log: this member is of none.
    pub fn forget_builds_of_set(&self) -> Result<()> {
        for build in self.builds_of_set() {
            tracing::warn!(component = "INDEX", namespace = %build.namespace, "An index build of a replica set does not go on outside it");
            let cause = Error::new(ErrorCode::IndexBuildAborted, "this member is of no set");
            crate::replay::silently(|| self.abort_build(build.collection, build.build.uuid, &cause))?;
        }
        Ok(())
    }

    /// Makes one pass over the documents for a build of the set, from `at` on, which says on return how far it came. `asked` is asked
    /// within each document.
    ///
    /// # Errors
    /// `IndexBuildAborted` (276) if the build has ended meanwhile; what `progress` says; in a pass that asks
    /// ([`Pass::Decide`], [`Pass::Verify`]), what is wrong with a document.
    pub fn fill_build(
        &self,
        of: &BuildOfSet,
        pass: Pass,
        at: &mut FillPosition,
        asked: &Arc<Interruption>,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let build = of.build.uuid;
        let find = || -> Result<(Arc<Collection>, Vec<Arc<Index>>)> {
            let collection = self.catalog().by_uuid(of.collection).cloned().ok_or_else(aborted)?;
            let indexes: Vec<_> =
                collection.indexes().iter().filter(|index| index.is_of_build(build)).cloned().collect();
            if indexes.is_empty() { Err(aborted()) } else { Ok((collection, indexes)) }
        };
        let (collection, indexes) = find()?;
        let filling = Filling { collection: &collection, indexes: &indexes, pass, is_lasting: true, asked };
        let outcome = self.fill(&filling, at, &mut |done, total| find().and_then(|_| progress(done, total)));
        find().and(outcome).inspect_err(|_| self.remove_build_files())
    }

    /// How far the filling of a build was when it was last written down: where a restart goes on.
    pub fn build_position(&self, of: &BuildOfSet) -> Result<FillPosition> {
        let catalog = self.catalog();
        let indexes = catalog.by_uuid(of.collection).map(|collection| collection.indexes());
        let first = indexes.iter().flat_map(|all| all.iter()).find(|index| index.is_of_build(of.build.uuid));
        first.map_or(Ok(FillPosition::default()), |index| self.saved_position(index.id))
    }
}
