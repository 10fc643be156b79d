//! The catalog of a simulated store: the indexes of its collections, complete or being built, and how far each is filled.
//!
//! A document of the store stands for a collection ([`super::disk::Documents`]). An index is filled in [`PARTS`] parts.
//!
//! Invariants:
//! - Which indexes there are, and which are complete, is what the log says: starts, commits and aborts of builds, and drops of
//!   collections. How far one is filled is the member's own.
//! - A part is written when the log had so many entries: a crash that loses one of these loses the part.
//! - As in a real store, a rollback of a commit leaves the index filled, and one of an abort or a drop has the build begin anew; a
//!   commit quorum that was changed stays changed.

use super::disk::Entry;
use baton_consensus::index_build::CommitQuorum;
use rand::Rng;

/// Names a build, in the whole world.
pub type BuildId = u32;

/// How many parts a pass over a collection has.
pub const PARTS: usize = 4;

/// Who must have built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// All voters with data.
    VotingMembers,
    /// A majority of them.
    Majority,
    /// So many of them.
    Members(u8),
}

/// What an entry says of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildChange {
    /// It begins; or, if it is under way, it has this quorum from now on.
    Start(Quorum),
    /// Its index is complete.
    Commit,
    /// It is given up.
    Abort,
}

/// An entry of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildEntry {
    /// Which.
    pub build: BuildId,
    /// The collection.
    pub document: u8,
    /// What becomes of it.
    pub change: BuildChange,
}

/// An index, and the build that makes it or has made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Which build.
    pub build: BuildId,
    /// The collection.
    pub document: u8,
    /// Who must have built before it is complete.
    pub quorum: Quorum,
    /// Whether it is.
    pub is_complete: bool,
    /// How many entries the log had when each of its parts was written.
    parts: Vec<usize>,
}

/// See the file's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// In the order of their builds.
    indexes: Vec<Index>,
}

impl Quorum {
    /// As the machine of a build has it.
    pub fn to_commit_quorum(self) -> CommitQuorum {
        match self {
            Self::VotingMembers => CommitQuorum::VotingMembers,
            Self::Majority => CommitQuorum::Majority,
            Self::Members(n) => CommitQuorum::Members(n.into()),
        }
    }
}

impl Index {
    /// How many parts are filled.
    pub fn filled(&self) -> usize {
        self.parts.len()
    }

    /// Whether it has all it should.
    pub fn is_filled(&self) -> bool {
        self.filled() == PARTS
    }
}

impl Catalog {
    /// All indexes.
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// Those that are being built.
    pub fn under_way(&self) -> impl Iterator<Item = &Index> {
        self.indexes.iter().filter(|index| !index.is_complete)
    }

    /// Those of a collection.
    pub fn of(&self, document: usize) -> impl Iterator<Item = &Index> {
        self.indexes.iter().filter(move |index| usize::from(index.document) == document)
    }

    /// The index of a build that is under way.
    pub fn building(&self, build: BuildId) -> Option<&Index> {
        self.under_way().find(|index| index.build == build)
    }

    fn find(&mut self, build: BuildId) -> Option<&mut Index> {
        self.indexes.iter_mut().find(|index| index.build == build)
    }

    fn add(&mut self, index: Index) {
        let at = self.indexes.partition_point(|other| other.build < index.build);
        self.indexes.insert(at, index);
    }

    /// Does what an entry says. Of a build that is not there none but a start says anything.
    pub fn apply(&mut self, entry: &BuildEntry) {
        let BuildEntry { build, document, change } = *entry;
        match (change, self.find(build)) {
            (BuildChange::Start(quorum), Some(index)) => index.quorum = quorum,
            (BuildChange::Start(quorum), None) => {
                self.add(Index { build, document, quorum, is_complete: false, parts: Vec::new() });
            }
            (BuildChange::Commit, Some(index)) => index.is_complete = true,
            (BuildChange::Abort, Some(_)) => self.indexes.retain(|index| index.build != build),
            (BuildChange::Commit | BuildChange::Abort, None) => {}
        }
    }

    /// A collection is dropped, with its indexes.
    pub fn drop_collection(&mut self, document: usize) {
        self.indexes.retain(|index| usize::from(index.document) != document);
    }

    /// The next part of an index is written, while the log has so many entries.
    pub fn fill(&mut self, build: BuildId, len: usize) {
        if let Some(index) = self.find(build).filter(|index| !index.is_filled()) {
            index.parts.push(len);
        }
    }

    /// Takes over the indexes of a collection: those that are complete are built with the copy, the others are to be.
    pub fn copy_collection(&mut self, document: usize, source: &[Index], len: usize) {
        self.drop_collection(document);
        for index in source {
            let parts = if index.is_complete { vec![len; PARTS] } else { Vec::new() };
            self.add(Index { parts, ..index.clone() });
        }
    }

    /// Becomes what the log makes of these collections; parts that are there stay.
    pub fn replay(&mut self, documents: &[usize], log: &[Entry]) {
        let mut then = Self::default();
        for entry in log.iter().filter(|entry| documents.contains(&entry.document())) {
            match &entry.build {
                Some(change) => then.apply(change),
                None if entry.is_drop() => then.drop_collection(entry.document()),
                None => {}
            }
        }
        let before = std::mem::take(&mut self.indexes);
        for index in &mut then.indexes {
            let known = before.iter().find(|known| known.build == index.build);
            index.parts = match known {
                Some(known) => known.parts.clone(),
                None if index.is_complete => vec![log.len(); PARTS],
                None => Vec::new(),
            };
        }
        let others = before.into_iter().filter(|index| !documents.contains(&index.document.into()));
        self.indexes = others.chain(then.indexes).collect();
        self.indexes.sort_by_key(|index| index.build);
    }

    /// Leaves the builds of an earlier catalog that are not here: what only a mutant does.
    pub fn keep_builds(&mut self, before: &Self) {
        let is_missing = |index: &&Index| self.indexes.iter().all(|other| other.build != index.build);
        let missing: Vec<Index> = before.under_way().filter(is_missing).cloned().collect();
        missing.into_iter().for_each(|index| self.add(index));
    }

    /// After a crash that left so many entries: parts that were written later are lost, and of those that were written then, some.
    pub fn crash(&mut self, kept: usize, random: &mut impl Rng) {
        for index in self.indexes.iter_mut().filter(|index| !index.is_complete) {
            let mut survivors = 0;
            for len in &index.parts {
                if *len > kept || (*len == kept && random.random_bool(0.5)) {
                    break;
                }
                survivors += 1;
            }
            index.parts.truncate(survivors);
        }
    }

    /// After a rollback that left so many entries, which was synced with all that is here.
    pub fn rolled_back(&mut self, before: &Self, len: usize) {
        for index in &mut self.indexes {
            index.parts.iter_mut().for_each(|part| *part = (*part).min(len.saturating_sub(1)));
            if let Some(known) = before.indexes.iter().find(|known| known.build == index.build) {
                index.quorum = known.quorum;
            }
        }
    }
}
