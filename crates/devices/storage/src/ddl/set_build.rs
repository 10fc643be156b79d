//! Beginning, completing and giving up a build of the set: what of it is in the log, and what is done here.
//!
//! ```text
//!  register: `startIndexBuild` in the log
//!    └─ fill, on every member, beside its writers and beside what it applies
//!         └─ `commitIndexBuild`, or `abortIndexBuild`    the primary decides; a restart goes on
//! ```
//!
//! Invariant: a build of the set is in the catalog from its start to its end, with the indexes it makes, on disk too: who finds it there
//! goes on with it. All its indexes are completed by one transaction, or go by one.
//!
//! Not here: what it has in common with a build of one member ([`super::index_build`]); who builds, and when the set has built enough
//! (`baton_consensus::index_build`).

use super::index_build::aborted;
use super::index_fill::{Filling, Pass};
use super::{DroppedPart, FillPosition, Held, IndexBuildProgress, LoggedCommand};
use crate::catalog::{BuildPhase, Collection, Index, IndexBuild, IndexDefinition};
use crate::documents::transaction::Transaction;
use crate::log::author::Writer;
use crate::log::commit::Durability;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, Interruption, Namespace, Result};
use std::sync::Arc;

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
            self.guard.writer.check_room()?;
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
            self.guard.writer.commit(transaction, Durability::Synced)?;
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
            self.guard.writer.commit(transaction, Durability::Synced)?;
            self.indexes.store(Arc::new(left));
            self.guard.writer.freeing.leave_build_files();
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
            self.guard.writer.commit(transaction, Durability::Synced)?;
            self.indexes.store(Arc::new(altered));
            Ok(true)
        })
    }

    /// The indexes that this build makes, while it does.
    pub fn of_build(&self, build: [u8; 16]) -> Vec<Arc<Index>> {
        self.indexes().iter().filter(|index| index.is_of_build(build)).cloned().collect()
    }
}

impl Writer<'_> {
    /// Gives up a build of the set and logs that, with the cause. `false` if there is no such build (any more).
    pub fn abort_build(&self, collection: [u8; 16], build: [u8; 16], cause: &Error) -> Result<bool> {
        let catalog = self.lock_catalog();
        catalog.by_uuid(collection).map_or(Ok(false), |held| held.abort_build(build, cause))
    }
}

impl Storage {
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

    /// Takes the indexes of builds of a set away, without a word in the log: this member is of none.
    pub fn forget_builds_of_set(&self) -> Result<()> {
        for build in self.builds_of_set() {
            tracing::warn!(component = "INDEX", namespace = %build.namespace, "An index build of a replica set does not go on outside it");
            let cause = Error::new(ErrorCode::IndexBuildAborted, "this member is of no set");
            self.silently(|writer| writer.abort_build(build.collection, build.build.uuid, &cause))?;
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

    /// Whether the indexes of a build that is under way have all their entries, so that they can be complete. A rollback and a copy
    /// have indexes that had them filled anew.
    pub fn is_build_filled(&self, of: &BuildOfSet) -> bool {
        let catalog = self.catalog();
        let Some(collection) = catalog.by_uuid(of.collection) else { return false };
        let indexes = collection.indexes();
        let mut of_build = indexes.iter().filter(|index| index.is_of_build(of.build.uuid));
        of_build.all(|index| index.phase() == BuildPhase::Checking)
    }

    /// How far the filling of a build was when it was last written down: where a restart goes on.
    pub fn build_position(&self, of: &BuildOfSet) -> Result<FillPosition> {
        let catalog = self.catalog();
        let indexes = catalog.by_uuid(of.collection).map(|collection| collection.indexes());
        let first = indexes.iter().flat_map(|all| all.iter()).find(|index| index.is_of_build(of.build.uuid));
        first.map_or(Ok(FillPosition::default()), |index| self.saved_position(index.id))
    }
}
