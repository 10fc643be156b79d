//! Rolling back: taking away what this member logged and the set never committed.
//!
//! Every document that the entries to be removed touched becomes again what it was at the common entry, which the history
//! window still knows; what it was until then goes into files that an operator can read. Collections and indexes that were
//! made meanwhile go. Documents, index entries, counters, sessions and the log's end change in one `WriteBatch`.
//!
//! ```text
//!  log     … c ─ x ─ y ─ z          c: the last entry that the source has too
//!                └─rolled back─┘
//!  stamps  … c   x   y   z  r       r > z: the restored versions stand above those that are gone;
//!  then    … c ─ p ─ q              entries of the new primary may have timestamps below z: see `commit::stamps`
//! ```
//!
//! Invariants:
//! - A crash leaves the log as it was, or rolled back; then the same is done again, or nothing.
//! - Nothing of a rolled back write stays: not in an index, not in a session, not in memory.
//! - What is removed was synced to its file before.
//!
//! Not here: which entry is common, and whether the set committed what comes after it (the caller); dropped or renamed
//! collections and changed options, which history does not bring back: `UnrecoverableRollbackError` (127), and the member must
//! be filled anew.

use crate::apply::Entry;
use crate::catalog::{Collection, CollectionKind};
use crate::commit::Durability;
use crate::copy::DocumentChange;
use crate::entry_change::EntryChange;
use crate::facts::Fact;
use crate::format::{RecordKey, family, oplog_key, record_key};
use crate::index::{entries_of, entry_key};
use crate::machine::read_failure;
use crate::oplog::optime_of;
use crate::sessions::SessionRecord;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::view::{View, newest, stored_document};
use crate::{Bounds, Order, replay};
use baton_types::{Error, ErrorCode, OpTime, Result, Timestamp};
use bson::{RawBsonRef, RawDocument};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// MongoDB's `UnrecoverableRollbackError`.
const UNRECOVERABLE: ErrorCode = ErrorCode(127);
/// How long a lock is left to a writer that is about to be refused.
const LOCK_WAIT: Duration = Duration::from_millis(1);

/// What a rollback took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolledBack {
    /// The newest entry before.
    pub from: OpTime,
    /// The newest entry since.
    pub to: OpTime,
    /// Entries removed.
    pub entries: u64,
    /// Documents that became again what they were.
    pub documents: u64,
}

/// What the entries to be removed touched.
#[derive(Default)]
struct Touched {
    entries: u64,
    documents: BTreeMap<[u8; 16], BTreeSet<Vec<u8>>>,
    /// Collections that were created.
    collections: Vec<[u8; 16]>,
    /// Indexes that were built, by collection.
    indexes: Vec<([u8; 16], String)>,
    /// Sessions that wrote, each with what its newest write was before.
    sessions: HashMap<Vec<u8>, OpTime>,
}

impl Storage {
    /// Takes away all entries after `common` and what they did. What documents were until then is appended to files below
    /// `directory`, one for each collection, as MongoDB names them.
    ///
    /// # Errors
    /// `IllegalOperation` (20) unless the gate is closed to this member's own writes; `UnrecoverableRollbackError` (127) if history does not
    /// reach back so far or an entry cannot be undone: nothing has changed then.
    pub fn roll_back(&self, common: OpTime, directory: &Path) -> Result<RolledBack> {
        let turn = self.follow()?;
        let from = self.commit.applied();
        let kept = self.entry_until(common.timestamp)?;
        if kept != common {
            let message = format!("the log has no entry {common:?} to roll back to; the newest until then is {kept:?}");
            return Err(Error::new(UNRECOVERABLE, message));
        }
        if common.timestamp < self.retention.history_from() {
            return Err(Error::new(UNRECOVERABLE, format!("history does not reach back to {common:?}")));
        }
        if common.timestamp < self.whole_from()? {
            return Err(Error::new(UNRECOVERABLE, format!("this member's data were not whole at {common:?}")));
        }
        let touched = self.touched_after(common)?;
        let mut files = Files { directory, open: HashMap::new() };
        let mut summary = RolledBack { from, to: common, entries: touched.entries, documents: 0 };
        self.undo_catalog(&touched, &mut files)?;
        let _catalog = self.lock_catalog();
        let mut transaction = Transaction::replicating();
        let outcome = self.restore(&mut transaction, &touched, common, &mut files, &mut summary);
        if let Err(error) = outcome.and_then(|()| files.sync()) {
            self.abandon(transaction);
            return Err(error);
        }
        transaction.truncation = Some(common);
        transaction.put(family::META, Fact::RollbackId.key(), &(self.rollback_id()? + 1).to_le_bytes());
        crash_point!("rollback-before-commit");
        self.commit.commit_unasked(transaction, Durability::Synced);
        crash_point!("rollback-after-commit");
        self.stable_again();
        self.sessions().forget_all();
        drop(turn);
        Ok(summary)
    }

    /// How often this member has rolled back: whoever reads its log sees by this that what it read may be gone.
    pub fn rollback_id(&self) -> Result<i32> {
        let bytes = self.fact(Fact::RollbackId)?;
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map_or(1, i32::from_le_bytes))
    }

    /// Reads of a time at which stamps and timestamps differ are refused.
    fn stable_again(&self) {
        let stable_from = self.commit.stamps_settle_at();
        self.refuse_reads_before(stable_from);
    }

    fn touched_after(&self, common: OpTime) -> Result<Touched> {
        let mut touched = Touched::default();
        let then = View::as_of(self, common.timestamp);
        let mut log = self.db().raw_iterator_cf(self.family(family::OPLOG));
        log.seek(oplog_key(Timestamp::from_u64(common.timestamp.as_u64() + 1)));
        while let Some(entry) = log.value() {
            let entry = stored_document(entry)?;
            touched.entries += 1;
            if matches!(entry.get_str("op"), Ok("c")) {
                touched.note_command(entry)?;
            } else {
                self.note_document(&mut touched, &then, entry)?;
            }
            log.next();
        }
        log.status().map_err(read_failure)?;
        // Inserts into a full capped collection drop its oldest documents, of which the log has no entry.
        for (uuid, records) in &mut touched.documents {
            let Some(collection) = self.catalog.load().by_uuid(*uuid).cloned() else { continue };
            if collection.kind == CollectionKind::Capped {
                records.extend(self.dropped_since(&then, &collection)?);
            }
        }
        Ok(touched)
    }

    fn note_document(&self, touched: &mut Touched, then: &View<'_>, entry: &RawDocument) -> Result<()> {
        let entry = Entry::parse(entry)?;
        if let Some(statement) = &entry.statement {
            let before = entry.whole.get_document("prevOpTime").ok().and_then(optime_of).unwrap_or(OpTime::ZERO);
            touched.sessions.entry(statement.session.to_vec()).or_insert(before);
        }
        let (Some(change), Some(uuid)) = (entry.change, entry.uuid) else { return Ok(()) };
        let id = match change {
            EntryChange::Put(document) => document.get("_id")?.unwrap_or(RawBsonRef::Null),
            EntryChange::Update { id, .. } | EntryChange::Delete { id } => id,
        };
        let Some(collection) = self.catalog.load().by_uuid(uuid).cloned() else { return Ok(()) };
        let records = touched.documents.entry(uuid).or_default();
        match collection.kind {
            CollectionKind::Clustered => records.extend([record_key(id)?.to_vec()]),
            // Only a document itself tells where it lies: the one of now, and the one of then.
            CollectionKind::Capped => {
                for options in [newest(family::INDEXES), then.options(family::INDEXES)] {
                    records.extend(
                        self.capped_record(options, &collection, &record_key(id)?)?.map(|record| record.to_vec()),
                    );
                }
            }
            CollectionKind::Oplog | CollectionKind::View => {}
        }
        Ok(())
    }

    /// Takes away collections and indexes that are younger than the common entry. Each by itself: if it ends half way, the
    /// log still has their entries, and the same is done again.
    fn undo_catalog(&self, touched: &Touched, files: &mut Files<'_>) -> Result<()> {
        for uuid in &touched.collections {
            let Some(collection) = self.catalog.load().by_uuid(*uuid).cloned() else { continue };
            let view = self.view();
            let mut documents = view.documents(&collection, &Bounds::default(), Order::Forward);
            while let Some((_, document)) = documents.next_document()? {
                files.keep(&collection, document)?;
            }
            files.sync()?;
            replay::silently(|| self.drop_collection(&collection.namespace))?;
        }
        for (uuid, name) in &touched.indexes {
            let Some(collection) = self.catalog.load().by_uuid(*uuid).cloned() else { continue };
            if collection.index(name).is_some() {
                replay::silently(|| self.drop_index(&collection, name))?;
            }
        }
        Ok(())
    }

    /// Adds what makes documents and sessions again what they were.
    fn restore(
        &self,
        transaction: &mut Transaction,
        touched: &Touched,
        common: OpTime,
        files: &mut Files<'_>,
        summary: &mut RolledBack,
    ) -> Result<()> {
        let then = View::as_of(self, common.timestamp);
        for (uuid, records) in &touched.documents {
            let Some(collection) = self.catalog.load().by_uuid(*uuid).cloned() else { continue };
            for record in records {
                // A writer that has the lock waits for nobody who waits for us: it will be refused soon.
                while !self.locks.try_lock_new(&mut transaction.locks, collection.id, record) {
                    std::thread::sleep(LOCK_WAIT);
                }
                let old = then.get(&collection, record)?;
                let old = old.as_deref().map(stored_document).transpose()?;
                let now = self.get_locked(&collection, record)?;
                let now = now.as_deref().map(stored_document).transpose()?;
                if old.map(RawDocument::as_bytes) == now.map(RawDocument::as_bytes) {
                    continue;
                }
                if let Some(now) = now {
                    files.keep(&collection, now)?;
                }
                self.restore_document(transaction, &collection, &RecordKey::from_slice(record), now, old)?;
                summary.documents += 1;
            }
        }
        for (session, before) in &touched.sessions {
            self.roll_session_back(transaction, session, common, *before)?;
        }
        Ok(())
    }

    fn restore_document(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        record: &[u8],
        now: Option<&RawDocument>,
        old: Option<&RawDocument>,
    ) -> Result<()> {
        match (now, old) {
            (Some(now), Some(old)) => self.update(transaction, collection, record, (now, old), old, None),
            (Some(now), None) => self.delete(transaction, collection, record, now, None),
            (None, Some(old)) => {
                if collection.kind == CollectionKind::Capped {
                    self.forget_start(transaction, collection);
                }
                for index in collection.indexes().iter() {
                    let entries = entries_of(index, old)?;
                    self.note_multikey(transaction, collection, index, entries.multikey);
                    for entry in &entries.entries {
                        let key = entry_key(index, &entry.fields, record);
                        transaction.put(family::INDEXES, &key, &entry.value);
                    }
                }
                transaction.change(collection, record, DocumentChange::Insert(old));
                transaction.count(collection, 1, old.as_bytes().len() as i64);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// The session's statements after `common` count as never made; if all of its newest write are, the write before counts
    /// again, as the log tells of it.
    fn roll_session_back(
        &self,
        transaction: &mut Transaction,
        session: &[u8],
        common: OpTime,
        before: OpTime,
    ) -> Result<()> {
        let mut record = SessionRecord::rolled_back(transaction, self.db(), session, common)?;
        if !record.is_fresh() {
            return Ok(());
        }
        // The rows of the write before are gone since this one replaced them: the log has its entries still.
        let mut chain = Vec::new();
        let (mut at, mut number) = (before, None);
        while let Some(entry) = self.entry_at(at)? {
            let Some(statement) = Entry::parse(&entry)?.statement.map(|statement| statement.txn_number) else { break };
            if *number.get_or_insert(statement) != statement {
                break;
            }
            at = entry.get_document("prevOpTime").ok().and_then(optime_of).unwrap_or(OpTime::ZERO);
            chain.push(entry);
        }
        let handle = self.session(session)?;
        for entry in chain.iter().rev() {
            let entry = Entry::parse(entry)?;
            if let (Some(statement), Some(reply)) = (&entry.statement, entry.reply(None)) {
                record.add_replicated(transaction, &handle, statement, reply, entry.optime);
            }
        }
        Ok(())
    }
}

impl Touched {
    fn note_command(&mut self, entry: &RawDocument) -> Result<()> {
        let unrecoverable = |what: &str| {
            Err(Error::new(UNRECOVERABLE, format!("'{what}' cannot be undone; the member must be filled anew")))
        };
        let o = entry.get_document("o")?;
        let Some((name, _)) = o.iter().next().transpose()? else { return unrecoverable("a command without a name") };
        let uuid: Option<[u8; 16]> = entry.get_binary("ui").ok().and_then(|binary| binary.bytes.try_into().ok());
        match (name.as_str(), uuid) {
            ("create", Some(uuid)) => self.collections.push(uuid),
            ("createIndexes", Some(uuid)) => self.indexes.push((uuid, o.get_str("name")?.to_owned())),
            ("commitIndexBuild", Some(uuid)) => {
                for spec in o.get_array("indexes")? {
                    if let RawBsonRef::Document(spec) = spec? {
                        self.indexes.push((uuid, spec.get_str("name")?.to_owned()));
                    }
                }
            }
            ("startIndexBuild" | "abortIndexBuild", _) => {}
            // Of a collection that is younger itself nothing is to be brought back.
            ("drop" | "dropIndexes" | "collMod", Some(uuid)) if self.collections.contains(&uuid) => {}
            (name, _) => return unrecoverable(name),
        }
        Ok(())
    }
}

/// What was removed, one file of BSON documents for each collection: `<directory>/<uuid>/removed.<time>.bson`.
struct Files<'a> {
    directory: &'a Path,
    open: HashMap<[u8; 16], BufWriter<File>>,
}

impl Files<'_> {
    fn keep(&mut self, collection: &Collection, document: &RawDocument) -> Result<()> {
        let failed = |path: &Path, error: std::io::Error| {
            let message = format!("Rolled back documents cannot be kept in {}: {error}", path.display());
            Error::new(ErrorCode::OperationFailed, message)
        };
        let file = match self.open.entry(collection.uuid) {
            std::collections::hash_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let directory = self.directory.join(bson::Uuid::from_bytes(collection.uuid).to_string());
                std::fs::create_dir_all(&directory).map_err(|error| failed(&directory, error))?;
                let path = free_name(&directory);
                place.insert(BufWriter::new(File::create_new(&path).map_err(|error| failed(&path, error))?))
            }
        };
        file.write_all(document.as_bytes()).map_err(|error| failed(self.directory, error))
    }

    fn sync(&mut self) -> Result<()> {
        for file in self.open.values_mut() {
            file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|error| {
                Error::new(ErrorCode::OperationFailed, format!("Rolled back documents cannot be kept: {error}"))
            })?;
        }
        Ok(())
    }
}

/// `removed.<time>.bson`, and a number behind the time if that was taken in the same second.
fn free_name(directory: &Path) -> PathBuf {
    let time = bson::DateTime::now().try_to_rfc3339_string().unwrap_or_default();
    let time = time.split('.').next().unwrap_or_default().trim_end_matches('Z').replace(':', "-");
    (0..)
        .map(|number| directory.join(format!("removed.{time}.{number}.bson")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| unreachable!("numbers do not end"))
}
