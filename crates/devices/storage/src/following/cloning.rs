//! Filling a member with another's documents: the steps of an initial sync that change what is stored.
//!
//! Invariants:
//! - From [`Storage::begin_clone`] until [`Storage::end_clone`] a fact says that what is here is not whole; a start in between
//!   finds it and begins anew.
//! - That fact tells where the log ended that was given up, until the copy is whole: this member may have acknowledged all of it.
//! - What is cloned is not logged: the log begins with the entry at which the clone began, and goes on with those after it.
//!
//! Not here: asking the other member, and the order of the steps (`baton-replication`).

use crate::catalog::{Collection, CollectionKind};
use crate::documents::format::family;
use crate::documents::transaction::{Transaction, Truncation};
use crate::following::Follower;
use crate::following::apply::Entry;
use crate::following::entry_change::{CarriedOut, EntryChange};
use crate::log::author::Writer;
use crate::log::commit::Durability;
use crate::log::facts::Fact;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, OpTime, Result, Term, Timestamp};
use bson::RawDocument;
use rust_rocksdb::IteratorMode;
use std::sync::Arc;

/// Bytes that one transaction takes in, at the most, and one document more.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

impl Follower<'_> {
    /// Whether a clone was begun and has not ended.
    pub fn is_cloning(&self) -> Result<bool> {
        Ok(self.0.facts().get(Fact::Cloning)?.is_some())
    }

    /// If what is here is not whole: where the log ended that this member gave up for a copy; zero if it had none that counted.
    ///
    /// # Errors
    /// `DataCorruptionDetected` if what is noted is no OpTime.
    pub fn given_up(&self) -> Result<Option<OpTime>> {
        let Some(noted) = self.0.facts().get(Fact::Cloning)? else { return Ok(None) };
        if noted.is_empty() {
            // Older versions do not note it.
            return Ok(Some(OpTime::ZERO));
        }
        let halves = noted.split_first_chunk().and_then(|(timestamp, term)| Some((*timestamp, term.try_into().ok()?)));
        let (timestamp, term) = halves.ok_or_else(|| {
            let message = "where the log ended that was given up is damaged on disk";
            Error::new(ErrorCode::DataCorruptionDetected, message)
        })?;
        Ok(Some(OpTime {
            timestamp: Timestamp::from_u64(u64::from_le_bytes(timestamp)),
            term: Term::from_le_bytes(term),
        }))
    }

    /// Says that what is here is of no use any more, so that it is cloned anew, by the next start too; and where the log ends that is
    /// given up, if it counted for anything. What was noted before stays: of a copy that is not whole nothing counted.
    pub fn note_not_whole(&self, end: OpTime) {
        if !matches!(self.0.facts().get(Fact::Cloning), Ok(Some(_))) {
            let (timestamp, term) = (end.timestamp.as_u64().to_le_bytes(), end.term.to_le_bytes());
            self.0.facts().put(Fact::Cloning, &[timestamp, term].concat());
        }
    }

    /// Removes everything that belongs to the set's data: collections, sessions, the log.
    ///
    /// # Errors
    /// `IllegalOperation` (20) unless the gate is closed to this member's own writes.
    pub fn begin_clone(&self) -> Result<()> {
        let _turn = self.0.follow()?;
        self.note_not_whole(self.0.oplog().last_entry());
        let mut transaction = Transaction::replicating();
        for row in self.0.db().iterator_cf(self.0.family(family::SESSIONS), IteratorMode::Start) {
            let (key, _) = row.map_err(crate::machine::read_failure)?;
            transaction.delete(family::SESSIONS, &key);
        }
        self.0.sessions().forget_all();
        let all: Vec<Arc<Collection>> = self.0.catalog().iter().cloned().collect();
        let replicated = |c: &&Arc<Collection>| !c.namespace.is_local() && c.kind != CollectionKind::Oplog;
        for collection in all.iter().filter(replicated) {
            self.0.silently(|writer| writer.drop_collection(&collection.namespace))?;
        }
        self.0.forget_dropped(&mut transaction)?;
        if self.0.commit.applied() != OpTime::ZERO {
            transaction.truncation = Some(Truncation { to: OpTime::ZERO, committed: Timestamp::ZERO });
        }
        self.0.commit.commit_unasked(transaction, Durability::Synced);
        Ok(())
    }

    /// Begins the log with the entry at which the clone begins. What it did is in the clone.
    pub fn begin_log_with(&self, entry: &RawDocument) -> Result<()> {
        let _turn = self.0.follow()?;
        let mut transaction = Transaction::replicating();
        transaction.carry(entry);
        self.0.commit.commit_unasked(transaction, Durability::Synced);
        Ok(())
    }

    /// Lets `change` change the catalog and log nothing.
    pub fn unlogged<T>(&self, change: impl FnOnce(Writer<'_>) -> Result<T>) -> Result<T> {
        let _turn = self.0.follow()?;
        self.0.silently(change)
    }

    /// Puts documents into a collection, in place of those with their `_id`s, without entries.
    pub fn put_cloned(&self, collection: &Arc<Collection>, documents: &[&RawDocument]) -> Result<()> {
        let _turn = self.0.follow()?;
        // A build of the set may be at a moment when no writer may be under way.
        let _writes = collection.shared.ddl.read();
        let mut transaction = Transaction::replicating();
        for document in documents {
            loop {
                match self.0.carry_out(&mut transaction, collection, EntryChange::Put(document), None) {
                    Ok(CarriedOut::Done(_) | CarriedOut::Absent) => break,
                    Ok(CarriedOut::CommitFirst) => self.0.commit_part(&mut transaction),
                    Err(error) => {
                        self.0.abandon(transaction);
                        return Err(error);
                    }
                }
            }
            if transaction.bytes() >= BATCH_BYTES_MAX {
                self.0.commit_part(&mut transaction);
            }
        }
        self.0.commit_part(&mut transaction);
        Ok(())
    }

    /// Notes the statements of retryable writes that another member logged before the clone began, given in order: sent
    /// again, they are answered and not done again. What a findAndModify answered with is not known any more.
    pub fn put_statements(&self, entries: &[&RawDocument]) -> Result<()> {
        let _turn = self.0.follow()?;
        let mut transaction = Transaction::replicating();
        for entry in entries {
            let entry = Entry::parse(entry)?;
            if let (Some(statement), Some(reply)) = (&entry.statement, entry.reply(None)) {
                let handle = self.0.session(statement.session)?;
                let Some(mut record) = handle.try_take() else { continue };
                record.add_replicated(&mut transaction, &handle, statement, reply, entry.optime);
            }
        }
        self.0.commit_part(&mut transaction);
        Ok(())
    }

    /// Puts another member's entry into the log and does nothing: what it did is in a copy already. A statement of a retryable write
    /// is noted.
    pub fn pass_over(&self, entry: &RawDocument) -> Result<()> {
        if !matches!(entry.get_str("op"), Ok("c")) {
            self.put_statements(&[entry])?;
        }
        let _turn = self.0.follow()?;
        let Some(optime) = crate::log::oplog::optime_of(entry) else {
            return Err(Error::failed_to_parse("An oplog entry has no OpTime"));
        };
        if optime.timestamp > self.0.commit.applied().timestamp {
            let mut transaction = Transaction::replicating();
            transaction.carry(entry);
            self.0.commit.commit_unasked(transaction, Durability::Applied);
        }
        Ok(())
    }

    /// What is here is whole, and synced.
    pub fn end_clone(&self) {
        /// Two seconds, as timestamps count: see `commit::stamps`.
        const SETTLING: u64 = 2 << 32;
        let now = self.0.commit.applied().timestamp.as_u64();
        // What was here before may have had later stamps than what came.
        let settled = self.0.commit.stamps_settle_at();
        self.0.refuse_reads_before(if settled > now + SETTLING { settled } else { now });
        let mut transaction = Transaction::empty();
        transaction.put(family::META, Fact::WholeFrom.key(), &now.to_le_bytes());
        transaction.delete(family::META, Fact::Cloning.key());
        self.0.commit.commit_unasked(transaction, Durability::Synced);
    }
}

impl Storage {
    /// Where the copy that this member began with became whole; zero if it began with nothing.
    pub(crate) fn whole_from(&self) -> Result<Timestamp> {
        let bytes = self.facts().get(Fact::WholeFrom)?.and_then(|bytes| bytes.try_into().ok());
        Ok(Timestamp::from_u64(bytes.map_or(0, u64::from_le_bytes)))
    }

    fn commit_part(&self, transaction: &mut Transaction) {
        let part = std::mem::replace(transaction, Transaction::replicating());
        self.commit.commit_unasked(part, Durability::Applied);
    }
}
