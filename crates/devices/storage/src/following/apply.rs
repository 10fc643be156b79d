//! Entries that another member logged, carried out here: what a member that follows does instead of writing.
//!
//! Invariants:
//! - An entry keeps its bytes and its OpTime, which is also the timestamp of the versions it makes. It reaches RocksDB in
//!   one `WriteBatch` with what it changes: documents, index entries, counters, the session's row. No crash shows a part.
//! - Entries are applied in the order of their OpTimes, each once: one that is in the log already is skipped.
//! - Only while the gate is closed to this member's own entries, so that none of these gets an OpTime in between; and
//!   nothing changes the catalog meanwhile.
//!
//! Not here: entries of commands ([`crate::following::replay`]); from whom entries come and when they are synced (the caller); undoing.

use crate::catalog::Collection;
use crate::critical::Critical;
use crate::documents::sessions::SessionHandle;
use crate::documents::transaction::Transaction;
use crate::following::Follower;
use crate::following::entry_change::{CarriedOut, EntryChange};
use crate::log::commit::{Durability, WriteGate};
use crate::log::oplog::{RetryImage, optime_of};
use crate::storage::Storage;
use baton_machine::LendingGuard;
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result};
use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;
use std::time::Instant;

/// Entries and bytes that one transaction takes in, at the most (bytes: reached, not exceeded by more than one entry).
const BATCH_ENTRIES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// An entry that changes one document, or none, taken apart.
pub(crate) struct Entry<'a> {
    pub(crate) whole: &'a RawDocument,
    pub(crate) optime: OpTime,
    namespace: Namespace,
    pub(crate) uuid: Option<[u8; 16]>,
    /// Absent: a message for readers of the oplog.
    pub(crate) change: Option<EntryChange<'a>>,
    pub(crate) statement: Option<LoggedStatement<'a>>,
}

/// What an entry of a retryable write tells of its statement.
pub(crate) struct LoggedStatement<'a> {
    pub(crate) session: &'a [u8],
    pub(crate) txn_number: i64,
    pub(crate) stmt_id: i32,
    image: Option<RetryImage>,
}

impl<'a> Entry<'a> {
    pub(crate) fn parse(whole: &'a RawDocument) -> Result<Self> {
        let broken = |what: &str| {
            Error::new(ErrorCode::FailedToParse, format!("An oplog entry has no valid '{what}': {whole:?}"))
        };
        let optime = optime_of(whole).ok_or_else(|| broken("ts"))?;
        let fields = Fields::read(whole)?;
        let o = || fields.o.ok_or_else(|| broken("o"));
        let id_in = |document: &'a RawDocument| document.get("_id")?.ok_or_else(|| broken("_id"));
        let change = match fields.op.ok_or_else(|| broken("op"))? {
            "i" => Some(EntryChange::Put(o()?)),
            "u" => {
                let o2 = fields.o2.ok_or_else(|| broken("o2"))?;
                Some(EntryChange::Update { id: id_in(o2)?, o: o()? })
            }
            "d" => Some(EntryChange::Delete { id: id_in(o()?)? }),
            "n" => None,
            _ => return Err(broken("op")),
        };
        Ok(Self {
            whole,
            optime,
            namespace: Namespace::parse(fields.ns.ok_or_else(|| broken("ns"))?)?,
            uuid: fields.uuid,
            change,
            statement: fields.statement(),
        })
    }

    /// What the statement answers when it is sent again. An insert stands for an upsert too: who asks knows which it was.
    pub(crate) fn reply(&self, image: Option<RawDocumentBuf>) -> Option<RawDocumentBuf> {
        let mut reply = match self.change? {
            EntryChange::Put(document) => {
                let mut reply = rawdoc! { "n": 1, "nModified": 0 };
                reply.append(cstr!("upserted"), document.get("_id").ok()??);
                reply
            }
            EntryChange::Update { .. } => rawdoc! { "n": 1, "nModified": 1 },
            EntryChange::Delete { .. } => rawdoc! { "n": 1 },
        };
        if let Some(image) = image {
            reply.append(cstr!("image"), image);
        }
        Some(reply)
    }
}

/// The fields of an entry that matter here, each absent if it is missing or of another type than it should be.
#[derive(Default)]
struct Fields<'a> {
    op: Option<&'a str>,
    ns: Option<&'a str>,
    uuid: Option<[u8; 16]>,
    o: Option<&'a RawDocument>,
    o2: Option<&'a RawDocument>,
    lsid: Option<&'a RawDocument>,
    txn_number: Option<i64>,
    stmt_id: Option<i32>,
    image: Option<RetryImage>,
}

impl<'a> Fields<'a> {
    /// In one pass: what is looked up by name is found by reading all before it.
    fn read(entry: &'a RawDocument) -> Result<Self> {
        let mut fields = Self::default();
        for element in entry {
            let (name, value) = element?;
            match name.as_str() {
                "op" => fields.op = value.as_str(),
                "ns" => fields.ns = value.as_str(),
                "ui" => fields.uuid = value.as_binary().and_then(|uuid| uuid.bytes.try_into().ok()),
                "o" => fields.o = value.as_document(),
                "o2" => fields.o2 = value.as_document(),
                "lsid" => fields.lsid = value.as_document(),
                "txnNumber" => fields.txn_number = value.as_i64(),
                "stmtId" => fields.stmt_id = value.as_i32(),
                "needsRetryImage" => fields.image = value.as_str().and_then(RetryImage::from_code),
                _ => {}
            }
        }
        Ok(fields)
    }

    fn statement(&self) -> Option<LoggedStatement<'a>> {
        let id = self.lsid?.get_binary("id").ok()?;
        Some(LoggedStatement {
            session: id.bytes,
            txn_number: self.txn_number?,
            stmt_id: self.stmt_id?,
            image: self.image,
        })
    }
}

/// What is applied together.
struct Batch {
    transaction: Transaction,
    last: OpTime,
    /// Some entry was more than a message.
    has_changes: bool,
    /// Collections that entries named, by UUID.
    collections: Vec<([u8; 16], Option<Arc<Collection>>)>,
    /// Sessions whose records in memory are ahead of what is applied; held, so that they stay there.
    sessions: Vec<SessionHandle>,
}

impl Follower<'_> {
    /// Carries out entries of documents (`i`, `u`, `d`) and messages (`n`) from another member's oplog, given in order, and
    /// puts them into this one's. Returns the last OpTime of the log. They are readable then, and durable once synced.
    ///
    /// On an error the log ends with the last entry that could be carried out, or before it. `IllegalOperation` (20) unless
    /// the gate is closed to this member's own writes.
    pub fn apply_entries(&self, entries: &[&RawDocument]) -> Result<OpTime> {
        let _turn = self.0.follow()?;
        // No command may stand half way through a change of the catalog, not even one that will be refused.
        let _catalog = self.0.freeze_catalog();
        let mut batch = Batch {
            transaction: Transaction::replicating(),
            last: self.0.commit.applied(),
            has_changes: false,
            collections: Vec::new(),
            sessions: Vec::new(),
        };
        for entry in entries {
            if let Err(error) = self.0.apply_entry(&mut batch, entry) {
                self.0.abandon(batch.transaction);
                batch.sessions.iter().for_each(|session| self.0.sessions().forget(session.key()));
                return Err(error);
            }
        }
        self.0.commit_batch(&mut batch);
        if batch.has_changes {
            self.0.company().note_entry(Instant::now());
        }
        Ok(batch.last)
    }
}

impl Storage {
    /// Takes the turn of the one who applies.
    pub(crate) fn follow(&self) -> Result<Critical<LendingGuard<'_, ()>>> {
        let turn = self.following.lock();
        if self.commit.write_gate() != WriteGate::Closed {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "A member does not follow another's oplog while it may write entries of its own",
            ));
        }
        Ok(turn)
    }

    fn commit_batch(&self, batch: &mut Batch) {
        let transaction = std::mem::replace(&mut batch.transaction, Transaction::replicating());
        crash_point!("apply-before-commit");
        self.commit.commit_unasked(transaction, Durability::Applied);
        crash_point!("apply-after-commit");
        batch.sessions.clear();
    }

    fn apply_entry(&self, batch: &mut Batch, entry: &RawDocument) -> Result<()> {
        if optime_of(entry).is_some_and(|optime| optime.timestamp <= batch.last.timestamp) {
            return Ok(());
        }
        let entry = Entry::parse(entry)?;
        batch.has_changes |= entry.change.is_some();
        let collection = match entry.change {
            Some(_) => self.collection_of(batch, &entry),
            None => None,
        };
        match (entry.change, collection, &entry.statement) {
            (Some(change), Some(collection), Some(statement)) => {
                self.apply_statement(batch, &entry, change, &collection, statement)?;
            }
            (Some(change), Some(collection), None) => {
                self.apply_change(batch, change, &collection, None)?;
            }
            // A collection that is not there was dropped later.
            (Some(_), None, _) | (None, ..) => {}
        }
        batch.transaction.carry(entry.whole);
        batch.last = entry.optime;
        if batch.transaction.oplog_entries() >= BATCH_ENTRIES_MAX || batch.transaction.bytes() >= BATCH_BYTES_MAX {
            self.commit_batch(batch);
        }
        Ok(())
    }

    /// The collection an entry names. It may have been renamed since; its UUID stays.
    fn collection_of(&self, batch: &mut Batch, entry: &Entry<'_>) -> Option<Arc<Collection>> {
        let Some(uuid) = entry.uuid else { return self.collection(&entry.namespace) };
        if let Some((_, known)) = batch.collections.iter().find(|(known, _)| *known == uuid) {
            return known.clone();
        }
        let found = self.catalog.load().by_uuid(uuid).cloned();
        batch.collections.push((uuid, found.clone()));
        found
    }

    fn apply_change(
        &self,
        batch: &mut Batch,
        change: EntryChange<'_>,
        collection: &Arc<Collection>,
        image: Option<RetryImage>,
    ) -> Result<Option<RawDocumentBuf>> {
        loop {
            match self.carry_out(&mut batch.transaction, collection, change, image)? {
                CarriedOut::Done(image) => return Ok(image),
                CarriedOut::Absent => return Ok(None),
                CarriedOut::CommitFirst => self.commit_batch(batch),
            }
        }
    }

    /// Applies a change that is a statement of a retryable write, and notes the statement in its session's record.
    fn apply_statement(
        &self,
        batch: &mut Batch,
        entry: &Entry<'_>,
        change: EntryChange<'_>,
        collection: &Arc<Collection>,
        statement: &LoggedStatement<'_>,
    ) -> Result<()> {
        loop {
            let handle = self.session(statement.session)?;
            let Some(mut record) = handle.try_take() else {
                // Somebody began a write while this member was primary, and will be refused. Nobody waits for that.
                self.commit_batch(batch);
                self.sessions().forget(statement.session);
                continue;
            };
            let image = self.apply_change(batch, change, collection, statement.image)?;
            if let Some(reply) = entry.reply(image) {
                record.add_replicated(&mut batch.transaction, &handle, statement, reply, entry.optime);
            }
            drop(record);
            if batch.sessions.last().is_none_or(|last| last.key() != handle.key()) {
                batch.sessions.push(handle);
            }
            return Ok(());
        }
    }
}
