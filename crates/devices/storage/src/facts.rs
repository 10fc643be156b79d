//! What a member of a replica set must know after a crash beside its log: one small value for each fact.
//!
//! Invariant: a fact that [`Storage::put_fact`] has returned from survives the loss of power.
//! Not here: what the bytes mean.

use crate::commit::Durability;
use crate::format::family;
use crate::machine::read_failure;
use crate::storage::Storage;
use crate::transaction::Transaction;
use baton_types::Result;

/// One thing kept for the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The term and candidate of the last vote.
    LastVote,
    /// The set's configuration. A data directory that has one belongs to a member of a set.
    Configuration,
    /// The newest commit point known.
    CommitPoint,
    /// Counts the rollbacks, so that others notice them.
    RollbackId,
    /// There while this member is being filled from another: what it has is not whole.
    Cloning,
    /// Where an initial sync became whole: of the time before that nothing can be brought back.
    WholeFrom,
    /// After a rollback, a stamp above all that were given (see `commit::stamps`).
    Stamp,
}

impl Fact {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] = [
        Self::LastVote,
        Self::Configuration,
        Self::CommitPoint,
        Self::RollbackId,
        Self::Cloning,
        Self::WholeFrom,
        Self::Stamp,
    ];

    /// Its name in the meta family.
    pub(crate) fn key(self) -> &'static [u8] {
        match self {
            Self::LastVote => b"set/vote",
            Self::Configuration => b"set/configuration",
            Self::CommitPoint => b"set/commit-point",
            Self::RollbackId => b"set/rollback-id",
            Self::Cloning => b"set/cloning",
            Self::WholeFrom => b"set/whole-from",
            Self::Stamp => b"set/stamp",
        }
    }
}

impl Storage {
    /// Keeps a fact in place of what was known; durable when it returns. The gate is not asked.
    pub fn put_fact(&self, fact: Fact, bytes: &[u8]) {
        let mut transaction = Transaction::empty();
        transaction.put(family::META, fact.key(), bytes);
        crash_point!("fact-before-commit");
        self.commit.commit_unasked(transaction, Durability::Synced);
        crash_point!("fact-after-commit");
    }

    /// What was kept last.
    pub fn fact(&self, fact: Fact) -> Result<Option<Vec<u8>>> {
        let stored = self.db().get_pinned_cf(self.family(family::META), fact.key()).map_err(read_failure)?;
        Ok(stored.map(|value| value.to_vec()))
    }
}
