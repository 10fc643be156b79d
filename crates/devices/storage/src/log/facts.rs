//! What a member of a replica set must know after a crash beside its log: one small value for each fact.
//!
//! Invariant: a fact that [`Storage::put_fact`] has returned from survives the loss of power.
//! The configuration is also there for clients to read, as MongoDB has it: the one document of `local.system.replset`, written with
//! the fact in one batch.
//!
//! Not here: what the bytes mean.

use crate::catalog::{Collection, CollectionOptions};
use crate::ddl::CreateOutcome;
use crate::documents::format::{family, record_key};
use crate::documents::transaction::Transaction;
use crate::documents::write::id_of;
use crate::following::entry_change::{CarriedOut, EntryChange};
use crate::log::Facts;
use crate::log::commit::Durability;
use crate::machine::read_failure;
use baton_types::{Namespace, Result};
use bson::RawDocument;

/// Where clients read the configuration.
const CONFIGURATION_COLLECTION: &str = "system.replset";

/// One thing kept for the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The term and candidate of the last vote.
    LastVote,
    /// The set's configuration. A data directory that has one belongs to a member of a set.
    Configuration,
    /// The newest commit point known.
    CommitPoint,
    /// Counts the rollbacks and the machine's own starts, so that others notice what may be gone.
    RollbackId,
    /// The number of the process that had this member's data last: those of one member are in order.
    Incarnation,
    /// As which start of the machine this member's data were opened last.
    MachineStart,
    /// There while this member is being filled from another: what it has is not whole. Where the log ended that it gave up for that.
    Cloning,
    /// Where an initial sync became whole: of the time before that nothing can be brought back.
    WholeFrom,
    /// The oplog's limits, decided when it was made or by `replSetResizeOplog`.
    OplogLimits,
    /// After a rollback, a stamp above all that were given (see `commit::stamps`).
    Stamp,
    /// Which stamps entries after a rollback have (see `commit::stamps`).
    StampBases,
}

impl Fact {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 11] = [
        Self::LastVote,
        Self::Configuration,
        Self::CommitPoint,
        Self::RollbackId,
        Self::Incarnation,
        Self::MachineStart,
        Self::Cloning,
        Self::WholeFrom,
        Self::Stamp,
        Self::StampBases,
        Self::OplogLimits,
    ];

    /// Its name in the meta family.
    pub(crate) fn key(self) -> &'static [u8] {
        match self {
            Self::LastVote => b"set/vote",
            Self::Configuration => b"set/configuration",
            Self::CommitPoint => b"set/commit-point",
            Self::RollbackId => b"set/rollback-id",
            Self::Incarnation => b"set/incarnation",
            Self::MachineStart => b"set/machine-start",
            Self::Cloning => b"set/cloning",
            Self::WholeFrom => b"set/whole-from",
            Self::OplogLimits => b"set/oplog-limits",
            Self::Stamp => b"set/stamp",
            Self::StampBases => b"set/stamp-bases",
        }
    }
}

impl Facts<'_> {
    /// Keeps a fact in place of what was known; durable when it returns. The gate is not asked.
    pub fn put(&self, fact: Fact, bytes: &[u8]) {
        let mut transaction = Transaction::empty();
        transaction.put(family::META, fact.key(), bytes);
        crash_point!("fact-before-commit");
        self.0.commit.commit_unasked(transaction, Durability::Synced);
        crash_point!("fact-after-commit");
    }

    /// Keeps the set's configuration: as a fact, and as the document of `local.system.replset`. Durable when it returns. `uuid` is
    /// the collection's, if it is to be made.
    pub fn put_configuration(&self, configuration: &RawDocument, uuid: [u8; 16]) -> Result<()> {
        let namespace = Namespace::new("local", CONFIGURATION_COLLECTION)?;
        let (CreateOutcome::Created(collection) | CreateOutcome::Exists(collection)) =
            self.0.by_member().create_collection(&namespace, CollectionOptions::default(), uuid)?;
        loop {
            let mut transaction = Transaction::replicating();
            let change = EntryChange::Put(configuration);
            if let CarriedOut::CommitFirst = self.0.carry_out(&mut transaction, &collection, change, None)? {
                continue;
            }
            transaction.put(family::META, Fact::Configuration.key(), configuration.as_bytes());
            crash_point!("fact-before-commit");
            self.0.commit.commit_unasked(transaction, Durability::Synced);
            crash_point!("fact-after-commit");
            return Ok(());
        }
    }

    /// Sees to it that clients read the configuration that was kept: a copy of another member's files has no such document.
    pub fn show_configuration(&self, uuid: [u8; 16]) -> Result<()> {
        let Some(bytes) = self.get(Fact::Configuration)? else { return Ok(()) };
        let configuration = RawDocument::from_bytes(&bytes)?;
        let is_shown = |collection: &Collection| -> Result<bool> {
            let record = record_key(id_of(configuration)?)?;
            Ok(self.0.get(collection, &record)?.is_some_and(|shown| *shown == *configuration.as_bytes()))
        };
        match self.0.collection(&Namespace::new("local", CONFIGURATION_COLLECTION)?) {
            Some(collection) if is_shown(&collection)? => Ok(()),
            Some(_) | None => self.put_configuration(configuration, uuid),
        }
    }

    /// What was kept last.
    pub fn get(&self, fact: Fact) -> Result<Option<Vec<u8>>> {
        let stored = self.0.db().get_pinned_cf(self.0.family(family::META), fact.key()).map_err(read_failure)?;
        Ok(stored.map(|value| value.to_vec()))
    }
}
