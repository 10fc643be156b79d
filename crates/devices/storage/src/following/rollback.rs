//! Rolling back: taking away what this member logged and the set never committed.
//!
//! Every document that the entries to be removed touched becomes again what it was at the common entry, which the history
//! window still knows; what it was until then goes into files that an operator can read. Collections and indexes become again what
//! they were, too ([`catalog`]): what was made goes, what was dropped is still there and comes back, names, options and definitions
//! are those of then. Catalog, documents, index entries, counters, sessions and the log's end change in one `WriteBatch`.
//!
//! ```text
//!  log     … c ─ x ─ y ─ z          c: the last entry that the source has too
//!                └─rolled back─┘
//!  stamps  … c   x   y   z  r       r > z: the restored versions stand above those that are gone;
//!  then    … c ─ p ─ q              entries of the new primary may have timestamps below z: see `commit::stamps`
//!  again   … c ─ p                  p's stamp is above r, so documents are read as of that, not of p's timestamp
//! ```
//!
//! Invariants:
//! - A crash leaves the log as it was, or rolled back; then the same is done again, or nothing.
//! - Nothing of a rolled back write stays: not in an index, not in a session, not in memory.
//! - What is removed was synced to its file before.
//!
//! Not here: which entry is common, and whether the set committed what comes after it (the caller). Where the log or what was
//! dropped does not say enough (entries of an older Baton): `UnrecoverableRollbackError` (127), and the member must be filled anew.

mod catalog;
mod files;

use crate::catalog::{Collection, CollectionKind};
use crate::ddl::copy::DocumentChange;
use crate::documents::format::{CollectionId, RecordKey, family, oplog_key, oplog_timestamp, record_key};
use crate::documents::index::entries_of_fact;
use crate::documents::sessions::SessionRecord;
use crate::documents::transaction::{Transaction, Truncation};
use crate::documents::view::{Bounds, Order, View, stored_document};
use crate::following::Follower;
use crate::following::apply::Entry;
use crate::following::entry_change::EntryChange;
use crate::log::commit::{Durability, StampTeller};
use crate::log::facts::Fact;
use crate::log::oplog::optime_of;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{Class, Error, ErrorCode, OpTime, Result, Timestamp};
use bson::{RawBsonRef, RawDocument};
use catalog::Then;
use files::Files;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// MongoDB's `UnrecoverableRollbackError`: what history does not bring back.
pub const UNRECOVERABLE_ROLLBACK: ErrorCode = ErrorCode(127);
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

fn unrecoverable(what: &str) -> Error {
    Error::new(UNRECOVERABLE_ROLLBACK, format!("{what} cannot be undone; the member must be filled anew"))
}

/// Record keys, each with the stamps of the versions that the document had.
type Records = BTreeMap<Vec<u8>, Vec<u64>>;

/// What the entries to be removed touched.
#[derive(Default)]
struct Touched {
    /// By collection, of those that there were at the common entry.
    documents: BTreeMap<CollectionId, (Arc<Collection>, Records)>,
    /// Sessions that wrote, each with what its newest write was before.
    sessions: HashMap<Vec<u8>, OpTime>,
}

impl Follower<'_> {
    /// Takes away all entries after `common` and what they did. What documents were until then is appended to files below
    /// `directory`, one for each collection, as MongoDB names them.
    ///
    /// # Errors
    /// `IllegalOperation` (20) unless the gate is closed to this member's own writes; `UnrecoverableRollbackError` (127) if history does not
    /// reach back so far or an entry cannot be undone: nothing has changed then.
    pub fn roll_back(&self, common: OpTime, directory: &Path) -> Result<RolledBack> {
        let turn = self.0.follow()?;
        let from = self.0.commit.applied();
        let kept = self.0.oplog().entry_until(common.timestamp)?;
        if kept != common {
            let message = format!("the log has no entry {common:?} to roll back to; the newest until then is {kept:?}");
            return Err(Error::new(UNRECOVERABLE_ROLLBACK, message));
        }
        if common.timestamp < self.0.retention.history_from() {
            return Err(Error::new(UNRECOVERABLE_ROLLBACK, format!("history does not reach back to {common:?}")));
        }
        if common.timestamp < self.0.whole_from()? {
            return Err(Error::new(UNRECOVERABLE_ROLLBACK, format!("this member's data were not whole at {common:?}")));
        }
        let catalog = self.0.freeze_catalog();
        let (entries, change) = self.0.catalog_at(common)?;
        let (then, stamps) = self.0.stamps_until(common)?;
        let touched = self.0.touched_after(common, &change, &then, stamps)?;
        let mut files = Files::below(directory);
        let mut summary = RolledBack { from, to: common, entries, documents: 0 };
        for collection in &change.gone {
            self.0.keep_all(collection, &mut files)?;
        }
        // Who writes yet has looked his collection up before, and will be refused.
        let mut affected = self.0.affected(&change);
        affected.sort_by_key(|collection| collection.id);
        // Whoever comes to read or write waits for this thread, of whatever class he is.
        let _loan = baton_machine::bearer().lend_as(Class::High);
        let _no_writers: Vec<_> = affected.iter().map(|collection| collection.shared.ddl.write()).collect();
        let _unreadable = self.0.begin_catalog_change();
        let mut transaction = Transaction::replicating();
        change.put(&mut transaction, &catalog);
        self.0.store_next_id(&mut transaction);
        let outcome = self.0.restore(&mut transaction, &touched, &change, (common, &then), &mut files, &mut summary);
        if let Err(error) = outcome.and_then(|()| files.sync()) {
            self.0.abandon(transaction);
            return Err(error);
        }
        transaction.truncation = Some(Truncation { to: common, committed: self.0.retention.history_from() });
        transaction.put(family::META, Fact::RollbackId.key(), &(self.rollback_id()? + 1).to_le_bytes());
        crash_point!("rollback-before-commit");
        self.0.commit.commit_unasked(transaction, Durability::Synced);
        crash_point!("rollback-after-commit");
        catalog.publish(|catalog| change.publish(catalog));
        self.0.freeing.leave_build_files();
        change.restored.iter().try_for_each(|collection| self.0.load_capped_position(collection))?;
        self.0.stable_again();
        self.0.sessions().forget_all();
        drop(turn);
        Ok(summary)
    }

    /// How often this member has rolled back: whoever reads its log sees by this that what it read may be gone.
    pub fn rollback_id(&self) -> Result<i32> {
        let bytes = self.0.facts().get(Fact::RollbackId)?;
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map_or(1, i32::from_le_bytes))
    }
}

impl Storage {
    /// Reads of a time at which stamps and timestamps differ are refused.
    fn stable_again(&self) {
        let stable_from = self.commit.stamps_settle_at();
        self.refuse_reads_before(stable_from);
    }

    /// Lets `look` see all entries after the common one, in their order.
    fn entries_after(&self, common: OpTime, mut look: impl FnMut(&RawDocument) -> Result<()>) -> Result<()> {
        let mut log = self.db().raw_iterator_cf(self.family(family::OPLOG));
        log.seek(oplog_key(Timestamp::from_u64(common.timestamp.as_u64() + 1)));
        while let Some(entry) = log.value() {
            look(stored_document(entry)?)?;
            log.next();
        }
        log.status().map_err(read_failure)
    }

    /// How many entries come after the common one, and what is to be done so that the catalog is that of then.
    fn catalog_at(&self, common: OpTime) -> Result<(u64, catalog::Change)> {
        let (mut entries, mut commands) = (0, Vec::new());
        self.entries_after(common, |entry| {
            entries += 1;
            if matches!(entry.get_str("op"), Ok("c")) {
                commands.push(entry.to_owned());
            }
            Ok(())
        })?;
        let fresh_id = || self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut then = Then::now(self.catalog(), self.dropped()?, &fresh_id);
        for entry in commands.iter().rev() {
            then.undo(entry)?;
        }
        Ok((entries, then.change(common)?))
    }

    /// Collections that go or change, as writers know them.
    fn affected(&self, change: &catalog::Change) -> Vec<Arc<Collection>> {
        let now = self.catalog();
        let is_restored = |id: CollectionId| change.restored.iter().any(|restored| restored.id == id);
        let restored = now.iter().filter(|collection| is_restored(collection.id)).cloned();
        change.gone.iter().cloned().chain(restored).collect()
    }

    fn keep_all(&self, collection: &Arc<Collection>, files: &mut Files<'_>) -> Result<()> {
        let view = self.view();
        let mut documents = view.documents(collection, &Bounds::default(), Order::Forward);
        while let Some((_, document)) = documents.next_document()? {
            files.keep(collection, document)?;
        }
        Ok(())
    }

    /// What documents were at the common entry, and what tells the stamps of the entries after it.
    fn stamps_until(&self, common: OpTime) -> Result<(View<'_>, StampTeller)> {
        let mut stamps = self.commit.stamp_teller();
        let mut stamp = common.timestamp.as_u64();
        if let Some(from) = self.commit.stamps_needed_from(stamp).filter(|from| *from < stamp) {
            let mut log = self.db().raw_iterator_cf(self.family(family::OPLOG));
            log.seek(oplog_key(Timestamp::from_u64(from + 1)));
            while let Some(timestamp) = log.key().and_then(oplog_timestamp).filter(|at| *at <= common.timestamp) {
                stamp = stamps.next(timestamp.as_u64());
                log.next();
            }
            log.status().map_err(read_failure)?;
        }
        Ok((View::as_of(self, Timestamp::from_u64(stamp)), stamps))
    }

    fn touched_after(
        &self,
        common: OpTime,
        change: &catalog::Change,
        then: &View<'_>,
        mut stamps: StampTeller,
    ) -> Result<Touched> {
        let now = self.catalog();
        let mut touched = Touched::default();
        self.entries_after(common, |entry| {
            let optime = optime_of(entry).ok_or_else(|| Error::failed_to_parse("An oplog entry has no OpTime"))?;
            let stamp = stamps.next(optime.timestamp.as_u64());
            if matches!(entry.get_str("op"), Ok("c")) {
                return Ok(());
            }
            let entry = Entry::parse(entry)?;
            if let Some(statement) = &entry.statement {
                let before = entry.whole.get_document("prevOpTime").ok().and_then(optime_of).unwrap_or(OpTime::ZERO);
                touched.sessions.entry(statement.session.to_vec()).or_insert(before);
            }
            match entry.uuid.and_then(|uuid| change.collection_then(&now, uuid)) {
                Some(collection) => self.note_document(&mut touched, (&entry, stamp), collection, then),
                None => Ok(()),
            }
        })?;
        Ok(touched)
    }

    fn note_document(
        &self,
        touched: &mut Touched,
        (entry, stamp): (&Entry<'_>, u64),
        collection: &Arc<Collection>,
        then: &View<'_>,
    ) -> Result<()> {
        let Some(change) = entry.change else { return Ok(()) };
        let id = match change {
            EntryChange::Put(document) => document.get("_id")?.unwrap_or(RawBsonRef::Null),
            EntryChange::Update { id, .. } | EntryChange::Delete { id } => id,
        };
        let records: Vec<RecordKey> = match collection.kind {
            CollectionKind::Clustered => vec![record_key(id)?],
            CollectionKind::Capped => {
                // It may have been deleted since and come again elsewhere.
                let before = View::as_of(self, Timestamp::from_u64(stamp - 1));
                let views = [then, &before, &View::as_of(self, Timestamp::from_u64(stamp)), &self.view()];
                let found = views.map(|view| view.record_of_capped(collection, id));
                found.into_iter().filter_map(Result::transpose).collect::<Result<_>>()?
            }
            CollectionKind::Oplog | CollectionKind::View => return Ok(()),
        };
        let place = touched.documents.entry(collection.id);
        let (_, known) = place.or_insert_with(|| (Arc::clone(collection), Records::new()));
        for record in records {
            known.entry(record.to_vec()).or_default().push(stamp);
        }
        Ok(())
    }

    /// Adds what makes documents and sessions again what they were.
    fn restore(
        &self,
        transaction: &mut Transaction,
        touched: &Touched,
        change: &catalog::Change,
        (common, then): (OpTime, &View<'_>),
        files: &mut Files<'_>,
        summary: &mut RolledBack,
    ) -> Result<()> {
        for (collection, records) in touched.documents.values() {
            for (record, changed) in records {
                // A writer that has the lock waits for nobody who waits for us: it will be refused soon.
                while !self.locks.try_lock_new(&mut transaction.locks, collection.id, record) {
                    std::thread::sleep(LOCK_WAIT);
                }
                let old = then.get(collection, record)?;
                let old = old.as_deref().map(stored_document).transpose()?;
                let now = self.get_locked(collection, record)?;
                let now = now.as_deref().map(stored_document).transpose()?;
                self.restore_entries(transaction, change, (collection, record), changed, old)?;
                if old.map(RawDocument::as_bytes) == now.map(RawDocument::as_bytes) {
                    continue;
                }
                if let Some(now) = now {
                    files.keep(collection, now)?;
                }
                self.restore_document(transaction, collection, &RecordKey::from_slice(record), now, old)?;
                summary.documents += 1;
            }
        }
        for (session, before) in &touched.sessions {
            self.roll_session_back(transaction, session, common, *before)?;
        }
        Ok(())
    }

    /// Gives indexes that were dropped and come back the entries of a document as it was. Since the drop nobody has kept them up to
    /// date: what they may have is what any version of the document since the common entry had.
    fn restore_entries(
        &self,
        transaction: &mut Transaction,
        change: &catalog::Change,
        (collection, record): (&Arc<Collection>, &[u8]),
        changed: &[u64],
        old: Option<&RawDocument>,
    ) -> Result<()> {
        for index in collection.indexes().iter().filter(|index| change.stale.contains(&index.id)) {
            let right = old.map(|old| entries_of_fact(index, old)).unwrap_or_default();
            for stamp in changed {
                let version = View::as_of(self, Timestamp::from_u64(*stamp)).get(collection, record)?;
                let Some(version) = version else { continue };
                for entry in entries_of_fact(index, stored_document(&version)?).entries {
                    transaction.delete_index_entry(index, &entry.fields, record);
                }
            }
            self.note_multikey(transaction, collection, index, right.multikey);
            for entry in &right.entries {
                transaction.put_index_entry(index, entry, record);
            }
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
                    let entries = entries_of_fact(index, old);
                    self.note_multikey(transaction, collection, index, entries.multikey);
                    for entry in &entries.entries {
                        transaction.put_index_entry(index, entry, record);
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
        while let Some(entry) = self.oplog().entry_at(at)? {
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
