//! What retryable writes each logical session did, so that the same write sent again is answered again and not done
//! again, over a restart too.
//!
//! Each transaction of a write adds one row with its own statements, so a command of a hundred thousand statements costs
//! no more for each than one of ten does. Rows are numbered from 0 for each write; row 0 of a new write replaces that of
//! the one before, and what is left of the old rows is known by its write number.
//!
//! Invariants:
//! - A session's row is stored in the same `WriteBatch` as the documents its statements changed.
//! - Row 0 belongs to the session's newest stored write. Only that one counts: drivers never retry an older one, and are
//!   refused if they do.

use crate::documents::format::family;
use crate::documents::transaction::Transaction;
use crate::following::apply::LoggedStatement;
use crate::log::oplog::optime_of;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use parking_lot::{Mutex, MutexGuard};
use rust_rocksdb::{DB, Direction, IteratorMode};
use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A session's newest retryable write.
#[derive(Clone, Debug, Default)]
pub struct SessionRecord {
    /// Its number; negative before the first.
    pub txn_number: i64,
    /// OpTime of its newest oplog entry.
    pub last: OpTime,
    /// Rows stored for it.
    rows: u32,
    /// The statements carried out so far: number within the write, and the part of the reply that is theirs.
    statements: BTreeMap<i32, RawDocumentBuf>,
    /// A panic has left it.
    is_broken: bool,
}

impl SessionRecord {
    fn fresh(txn_number: i64, last: OpTime) -> Self {
        Self { txn_number, last, ..Self::default() }
    }

    /// What a statement was answered with, if it was carried out.
    pub fn statement(&self, stmt_id: i32) -> Option<&RawDocumentBuf> {
        self.statements.get(&stmt_id)
    }

    /// Notes a statement as carried out by this transaction.
    pub fn add(&mut self, transaction: &mut Transaction, session: &SessionHandle, stmt_id: i32, reply: RawDocumentBuf) {
        self.add_row(transaction, &session.key, stmt_id, reply, None);
    }

    /// Notes a statement as carried out by another member, which logged it with this OpTime. Of a write that the session is
    /// past nothing is noted.
    pub(crate) fn add_replicated(
        &mut self,
        transaction: &mut Transaction,
        session: &SessionHandle,
        statement: &LoggedStatement<'_>,
        reply: RawDocumentBuf,
        optime: OpTime,
    ) {
        if statement.txn_number > self.txn_number {
            *self = Self::fresh(statement.txn_number, self.last);
        }
        if statement.txn_number < self.txn_number || self.statements.contains_key(&statement.stmt_id) {
            return;
        }
        self.add_row(transaction, &session.key, statement.stmt_id, reply, Some(optime));
        self.last = optime;
    }

    /// What is left of a session's record without the entries after `common`; adds to `transaction` the deletion of the rest.
    pub(crate) fn rolled_back(transaction: &mut Transaction, db: &DB, session: &[u8], common: OpTime) -> Result<Self> {
        let mut record = Self::fresh(-1, OpTime::ZERO);
        let mut is_kept = true;
        for row in db.iterator_cf(rows(db), IteratorMode::From(session, Direction::Forward)) {
            let (key, value) = row.map_err(read_failure)?;
            if key.len() != session.len() + 4 || !key.starts_with(session) {
                break;
            }
            let row = RawDocument::from_bytes(&value)?;
            is_kept = is_kept && optime_of(row).is_some_and(|last| last <= common) && record.take_in(row) == Some(true);
            if !is_kept {
                transaction.delete(family::SESSIONS, &key);
            }
        }
        Ok(record)
    }

    /// Whether nothing is stored of any write.
    pub(crate) fn is_fresh(&self) -> bool {
        self.rows == 0
    }

    fn add_row(
        &mut self,
        transaction: &mut Transaction,
        session: &[u8],
        stmt_id: i32,
        reply: RawDocumentBuf,
        last: Option<OpTime>,
    ) {
        let rows = &mut transaction.sessions;
        let at = rows.iter().position(|row| row.txn_number == self.txn_number && row.is_of(session));
        let row = match at {
            Some(at) => &mut rows[at],
            None => {
                self.rows += 1;
                let key = row_key(session, self.rows - 1);
                rows.push(SessionUpdate { key, txn_number: self.txn_number, statements: Vec::new(), last });
                let Some(row) = rows.last_mut() else { unreachable!("just added") };
                row
            }
        };
        row.last = last;
        row.statements.push((stmt_id, reply.clone()));
        self.statements.insert(stmt_id, reply);
    }

    /// Forgets what was noted for a transaction that was refused.
    pub fn undo(&mut self, storage: &Storage, session: &SessionHandle) -> Result<()> {
        // Not while somebody applies entries: what is noted for a batch is stored with it.
        let _turn = storage.following.lock();
        let stored = load(storage.db(), &session.key)?;
        *self = if stored.txn_number == self.txn_number { stored } else { Self::fresh(self.txn_number, stored.last) };
        Ok(())
    }

    /// Takes in a stored row; tells whether it belongs to this write.
    fn take_in(&mut self, row: &RawDocument) -> Option<bool> {
        let txn_number = row.get_i64("txnNumber").ok()?;
        if self.rows == 0 {
            self.txn_number = txn_number;
        } else if self.txn_number != txn_number {
            return Some(false);
        }
        for element in row.get_array("statements").ok()? {
            let statement = element.ok()?.as_document()?;
            self.statements.insert(statement.get_i32("stmtId").ok()?, statement.get_document("reply").ok()?.to_owned());
        }
        self.last = self.last.max(optime_of(row)?);
        self.rows += 1;
        Some(true)
    }
}

fn row_key(session: &[u8], row: u32) -> Vec<u8> {
    [session, &row.to_be_bytes()].concat()
}

/// The row that a transaction will store, once its OpTime is known.
pub(crate) struct SessionUpdate {
    pub(crate) key: Vec<u8>,
    txn_number: i64,
    statements: Vec<(i32, RawDocumentBuf)>,
    /// The OpTime of the session's newest entry in the transaction, where it brings its OpTimes along.
    last: Option<OpTime>,
}

impl SessionUpdate {
    fn is_of(&self, session: &[u8]) -> bool {
        self.key.len() == session.len() + 4 && self.key.starts_with(session)
    }

    pub(crate) fn bytes(&self) -> usize {
        let statements: usize = self.statements.iter().map(|(_, reply)| 32 + reply.as_bytes().len()).sum();
        self.key.len() + 64 + statements
    }

    /// The row; `last` is the last OpTime of the transaction.
    pub(crate) fn encode(&self, last: OpTime) -> Vec<u8> {
        let last = self.last.unwrap_or(last);
        let mut statements = RawArrayBuf::new();
        for (stmt_id, reply) in &self.statements {
            let mut statement = rawdoc! { "stmtId": *stmt_id };
            statement.append(cstr!("reply"), &**reply);
            statements.push(statement);
        }
        let mut document = rawdoc! { "txnNumber": self.txn_number };
        document.append(cstr!("statements"), statements);
        document.append(cstr!("ts"), bson::Timestamp::from(last.timestamp));
        document.append(cstr!("t"), last.term);
        document.into_bytes()
    }
}

/// A session in memory.
#[derive(Debug)]
struct Session {
    record: Mutex<SessionRecord>,
    /// OpTime of the newest entry that was committed after its statement had given the record back. Its lock is never held while anything
    /// is waited for: those who commit take it.
    newest: Mutex<OpTime>,
}

/// All sessions with retryable writes, loaded as they are asked for.
#[derive(Default)]
pub struct SessionTable {
    sessions: Mutex<HashMap<Vec<u8>, Arc<Session>>>,
}

fn rows(db: &DB) -> &rust_rocksdb::ColumnFamily {
    db.cf_handle(family::SESSIONS).unwrap_or_else(|| unreachable!("all families were opened"))
}

fn is_older(row: &[u8], oldest: u32) -> bool {
    let newest = RawDocument::from_bytes(row).ok().and_then(optime_of).unwrap_or_default();
    newest.timestamp.as_u64() >> 32 < u64::from(oldest)
}

/// The record as stored. Keys of sessions have one length, so none is the beginning of another.
fn load(db: &DB, session: &[u8]) -> Result<SessionRecord> {
    let mut record = SessionRecord::fresh(-1, OpTime::ZERO);
    for row in db.iterator_cf(rows(db), IteratorMode::From(session, Direction::Forward)) {
        let (key, value) = row.map_err(read_failure)?;
        let belongs = key.len() == session.len() + 4 && key.starts_with(session);
        if !belongs || !RawDocument::from_bytes(&value).ok().and_then(|row| record.take_in(row)).unwrap_or(false) {
            break;
        }
    }
    Ok(record)
}

/// A session, while one retryable write runs.
#[derive(Clone)]
pub struct SessionHandle {
    pub(crate) key: Vec<u8>,
    session: Arc<Session>,
}

/// A session's record while one retryable write runs. A panic may come between a statement's being noted and its being committed:
/// then the record says what nobody knows, and is not used again.
#[derive(Debug)]
pub struct HeldRecord<'h>(MutexGuard<'h, SessionRecord>);

impl Deref for HeldRecord<'_> {
    type Target = SessionRecord;

    fn deref(&self) -> &SessionRecord {
        &self.0
    }
}

impl DerefMut for HeldRecord<'_> {
    fn deref_mut(&mut self) -> &mut SessionRecord {
        &mut self.0
    }
}

impl Drop for HeldRecord<'_> {
    fn drop(&mut self) {
        self.0.is_broken |= std::thread::panicking();
    }
}

impl SessionTable {
    /// The session with this key (the bytes of its id and user), from memory or disk.
    pub(crate) fn get(&self, db: &DB, key: &[u8]) -> Result<SessionHandle> {
        let mut sessions = self.sessions.lock();
        let is_broken = |session: &&Arc<Session>| session.record.try_lock().is_some_and(|held| held.is_broken);
        if let Some(session) = sessions.get(key).filter(|session| !is_broken(session)) {
            return Ok(SessionHandle { key: key.to_vec(), session: Arc::clone(session) });
        }
        let session = Arc::new(Session { record: Mutex::new(load(db, key)?), newest: Mutex::default() });
        sessions.insert(key.to_vec(), Arc::clone(&session));
        Ok(SessionHandle { key: key.to_vec(), session })
    }

    /// Lets all sessions be loaded anew; see [`Self::forget`].
    pub(crate) fn forget_all(&self) {
        self.sessions.lock().clear();
    }

    /// Lets a session be loaded anew. Who holds its record keeps one that nobody else has.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.sessions.lock().remove(key);
    }

    /// Adds to `transaction` the deletion of all rows of sessions whose newest write is older than `oldest` (seconds since
    /// 1970): their clients have given them up. While `commit` runs with it, no session is handed out.
    pub(crate) fn expire(&self, db: &DB, oldest: u32, commit: impl FnOnce(Transaction)) -> Result<()> {
        let mut expired = Vec::new();
        for row in db.iterator_cf(rows(db), IteratorMode::Start) {
            let (key, value) = row.map_err(read_failure)?;
            if let Some((session, [0, 0, 0, 0])) = key.split_last_chunk::<4>()
                && is_older(&value, oldest)
            {
                expired.push(session.to_vec());
            }
        }
        // What was used since the scan is in memory, or its row 0 is young again.
        let sessions = self.sessions.lock();
        let mut transaction = Transaction::default();
        for session in expired.iter().filter(|session| !sessions.contains_key(*session)) {
            let young = db.get_pinned_cf(rows(db), row_key(session, 0)).map_err(read_failure)?;
            if young.is_some_and(|row| !is_older(&row, oldest)) {
                continue;
            }
            for row in db.iterator_cf(rows(db), IteratorMode::From(session, Direction::Forward)) {
                let (key, _) = row.map_err(read_failure)?;
                if !key.starts_with(session) {
                    break;
                }
                transaction.delete(family::SESSIONS, &key);
            }
        }
        if !transaction.is_empty() {
            commit(transaction);
        }
        Ok(())
    }

    /// Forgets sessions whose record nobody holds, from memory only.
    pub fn shrink(&self) {
        self.sessions.lock().retain(|_, record| Arc::strong_count(record) > 1);
    }

    /// How many are in memory.
    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Whether none is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl SessionHandle {
    /// Takes the record for one retryable write.
    ///
    /// `TransactionTooOld` (225) if the session has already begun a later one.
    pub fn begin(&self, txn_number: i64) -> Result<HeldRecord<'_>> {
        let mut record = HeldRecord(self.session.record.lock());
        record.last = record.last.max(*self.session.newest.lock());
        if record.is_broken {
            // Asked again, it is loaded anew.
            let message = "The write that held this session was given up";
            return Err(Error::new(ErrorCode::InterruptedDueToReplStateChange, message));
        }
        if txn_number < record.txn_number {
            let message = format!(
                "Retryable write with txnNumber {txn_number} is prohibited on this session because a newer retryable \
                 write with txnNumber {} has already started on it.",
                record.txn_number
            );
            return Err(Error::new(ErrorCode::TransactionTooOld, message));
        }
        if txn_number > record.txn_number {
            *record = SessionRecord::fresh(txn_number, record.last);
        }
        Ok(record)
    }

    /// The write's entry is committed, whose statement has given the record back before.
    pub fn committed(&self, optime: OpTime) {
        let mut newest = self.session.newest.lock();
        *newest = newest.max(optime);
    }

    /// Takes the record, unless somebody has it.
    pub(crate) fn try_take(&self) -> Option<MutexGuard<'_, SessionRecord>> {
        self.session.record.try_lock()
    }

    /// The key it is stored under.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}
