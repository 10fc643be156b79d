//! Retryable writes: the session's record, and which statements of a command it has already carried out.
//!
//! Source: MongoDB drivers' specification "Retryable Writes". A statement is known by its number within the session's
//! write: `stmtIds` if the client gave them, else counted from `stmtId` or 0.

use crate::call::Call;
use baton_execution::write::Retry;
use baton_request::fields::number_as_i64;
use baton_storage::{SessionHandle, SessionRecord};
use baton_types::{Error, ErrorCode, Result};
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};

/// The session of a retryable command.
pub struct RetrySession {
    handle: SessionHandle,
    lsid: RawDocumentBuf,
    txn_number: i64,
}

/// The session, if the command is retryable: it has a session and a transaction number, and is not part of a
/// transaction.
pub fn session(call: &Call<'_>) -> Result<Option<RetrySession>> {
    let (Some(id), Some(txn_number), None) =
        (call.envelope.session, call.envelope.txn_number, call.envelope.transaction)
    else {
        return Ok(None);
    };
    let lsid = rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: id.0.to_vec() } };
    Ok(Some(RetrySession { handle: call.server.storage.session(&id.0)?, lsid, txn_number }))
}

impl RetrySession {
    /// The session.
    pub fn handle(&self) -> &SessionHandle {
        &self.handle
    }

    /// Runs `work` with the session's record held; `TransactionTooOld` (225) if the session is past this write.
    pub fn with<T>(&self, work: impl FnOnce(&mut Statements<'_>) -> Result<T>) -> Result<T> {
        let mut record = self.handle.begin(self.txn_number)?;
        work(&mut Statements { handle: &self.handle, record: &mut record, lsid: &self.lsid })
    }
}

/// The record of the write being carried out.
pub struct Statements<'s> {
    handle: &'s SessionHandle,
    record: &'s mut SessionRecord,
    lsid: &'s RawDocument,
}

impl Statements<'_> {
    /// What the statement was answered with, if it was carried out before.
    pub fn executed(&self, stmt_id: i32) -> Option<RawDocumentBuf> {
        self.record.statement(stmt_id).cloned()
    }

    /// The statement, to be carried out.
    pub fn retry(&mut self, stmt_id: i32) -> Retry<'_> {
        Retry { handle: self.handle, record: self.record, lsid: self.lsid, stmt_id }
    }
}

/// The number of the statement at `index` of a command's batch.
pub fn statement_id(call: &Call<'_>, index: usize) -> i32 {
    let explicit = call.envelope.stmt_ids.and_then(|ids| ids.get(index).ok().flatten()).and_then(number_as_i64);
    explicit.map_or_else(|| call.envelope.stmt_id.unwrap_or(0).saturating_add(index as i32), |id| id as i32)
}

/// The fail point at a retryable statement's commit: cuts the connection unless `closeConnection` is false, and with
/// `failBeforeCommitExceptionCode` keeps the statement from being carried out.
const FAIL_POINT: &str = "onPrimaryTransactionalWrite";
const FAIL_BEFORE: &str = "failBeforeCommitExceptionCode";

/// Asks the fail point before a retryable statement is carried out.
pub fn fail_before(call: &Call<'_>) -> Result<()> {
    let Some(data) = call.server.fail_points.data(FAIL_POINT) else { return Ok(()) };
    match data.get(FAIL_BEFORE)?.and_then(number_as_i64) {
        Some(code) if call.server.fail_points.fires(FAIL_POINT).is_some() => {
            call.hang_up.set(cuts_connection(&data));
            Err(Error::new(ErrorCode(code as i32), format!("Failing write due to {FAIL_POINT} failpoint")))
        }
        _ => Ok(()),
    }
}

/// Asks the fail point after retryable statements wrote this many documents.
pub fn fail_after(call: &Call<'_>, written: u64) {
    let Some(data) = call.server.fail_points.data(FAIL_POINT) else { return };
    if matches!(data.get(FAIL_BEFORE), Ok(Some(_))) {
        return;
    }
    for _ in 0..written {
        if call.server.fail_points.fires(FAIL_POINT).is_some() {
            call.hang_up.set(cuts_connection(&data));
        }
    }
}

fn cuts_connection(data: &RawDocument) -> bool {
    data.get_bool("closeConnection").unwrap_or(true)
}
