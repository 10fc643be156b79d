//! What retryable writes each logical session did, so that the same write sent again is answered again and not done
//! again, over a restart too.
//!
//! Invariant: a session's record is stored in the same `WriteBatch` as the documents its statements changed.
//! A record holds only the session's newest write number: drivers never retry an older one, and are refused if they do.

use crate::oplog::optime_of;
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use parking_lot::{Mutex, MutexGuard};
use rust_rocksdb::DB;
use std::collections::HashMap;
use std::sync::Arc;

/// One statement that was carried out, with what a reply needs of it.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementRecord {
    /// The statement's number within the write.
    pub stmt_id: i32,
    /// The part of the command's reply that belongs to this statement.
    pub reply: RawDocumentBuf,
}

/// A session's newest retryable write.
#[derive(Clone, Debug, Default)]
pub struct SessionRecord {
    /// Its number; negative before the first.
    pub txn_number: i64,
    /// OpTime of its newest oplog entry.
    pub last: OpTime,
    /// What it did so far.
    pub statements: Vec<StatementRecord>,
}

impl SessionRecord {
    /// The statement, if it was carried out.
    pub fn statement(&self, stmt_id: i32) -> Option<&StatementRecord> {
        self.statements.iter().find(|statement| statement.stmt_id == stmt_id)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let document = RawDocument::from_bytes(bytes).ok()?;
        let mut statements = Vec::new();
        for element in document.get_array("statements").ok()? {
            let statement = element.ok()?.as_document()?;
            statements.push(StatementRecord {
                stmt_id: statement.get_i32("stmtId").ok()?,
                reply: statement.get_document("reply").ok()?.to_owned(),
            });
        }
        Some(Self { txn_number: document.get_i64("txnNumber").ok()?, last: optime_of(document)?, statements })
    }
}

/// The record as a transaction will store it, once its OpTime is known.
pub(crate) struct SessionUpdate {
    pub(crate) key: Vec<u8>,
    pub(crate) txn_number: i64,
    pub(crate) statements: Vec<StatementRecord>,
}

impl SessionUpdate {
    pub(crate) fn encode(&self, last: OpTime) -> Vec<u8> {
        let mut statements = RawArrayBuf::new();
        for statement in &self.statements {
            statements.push(rawdoc! { "stmtId": statement.stmt_id, "reply": statement.reply.clone() });
        }
        let mut document = rawdoc! { "txnNumber": self.txn_number };
        document.append(cstr!("statements"), statements);
        document.append(cstr!("ts"), bson::Timestamp::from(last.timestamp));
        document.append(cstr!("t"), last.term);
        document.into_bytes()
    }
}

/// All sessions with retryable writes, loaded as they are asked for.
#[derive(Default)]
pub struct SessionTable {
    sessions: Mutex<HashMap<Vec<u8>, Arc<Mutex<SessionRecord>>>>,
}

/// A session's record, held while one retryable write runs.
pub struct SessionHandle {
    pub(crate) key: Vec<u8>,
    record: Arc<Mutex<SessionRecord>>,
}

impl SessionTable {
    /// The session with this key (the bytes of its id and user), from memory or disk.
    pub(crate) fn get(&self, db: &DB, key: &[u8]) -> Result<SessionHandle> {
        let mut sessions = self.sessions.lock();
        if let Some(record) = sessions.get(key) {
            return Ok(SessionHandle { key: key.to_vec(), record: Arc::clone(record) });
        }
        let family = db.cf_handle(crate::format::family::SESSIONS).unwrap_or_else(|| unreachable!("opened"));
        let stored = db.get_pinned_cf(family, key).map_err(crate::machine::read_failure)?;
        let record = stored
            .and_then(|bytes| SessionRecord::decode(&bytes))
            .unwrap_or(SessionRecord { txn_number: -1, ..SessionRecord::default() });
        let record = Arc::new(Mutex::new(record));
        sessions.insert(key.to_vec(), Arc::clone(&record));
        Ok(SessionHandle { key: key.to_vec(), record })
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
    pub fn begin(&self, txn_number: i64) -> Result<MutexGuard<'_, SessionRecord>> {
        let mut record = self.record.lock();
        if txn_number < record.txn_number {
            let message = format!(
                "Retryable write with txnNumber {txn_number} is prohibited on this session because a newer retryable \
                 write with txnNumber {} has already started on it.",
                record.txn_number
            );
            return Err(Error::new(ErrorCode::TransactionTooOld, message));
        }
        if txn_number > record.txn_number {
            *record = SessionRecord { txn_number, last: record.last, statements: Vec::new() };
        }
        Ok(record)
    }

    /// The key it is stored under.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}
