//! Going back to where this member's log parts from its source's.
//!
//! The last entry that both have is looked for, from this member's end backward; storage then takes away all of its own that come
//! after it.
//!
//! Invariant: nothing that is known to be committed is taken away. If that were asked for, two members would disagree about what a
//! majority has, and going on would lose it: the rollback is refused, loudly.

use baton_net::Outgoing;
use baton_storage::{RolledBack, Storage, optime_of};
use baton_types::{Error, ErrorCode, OpTime, Result, Timestamp};
use bson::{RawBsonRef, rawdoc};
use std::path::Path;
use std::time::Duration;

/// MongoDB's UnrecoverableRollbackError: what history does not bring back.
pub(crate) const UNRECOVERABLE: ErrorCode = ErrorCode(127);

/// How long a connection to the source, and then each of its answers, is waited for. After that the rollback is given up, and tried
/// again with the source that is chosen then; nothing has been taken away yet.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Entries asked for at once.
const ENTRIES_PER_LOOK: i32 = 500;

/// Takes away what `host` does not have.
pub(crate) fn roll_back(storage: &Storage, host: &str, directory: &Path) -> Result<()> {
    let common = common_entry(storage, host)?;
    if storage.commit_point().is_some_and(|committed| committed > common.timestamp) {
        let message = format!("it would take away what the set has committed: the last entry both have is {common:?}");
        tracing::error!(target: "ROLLBACK", source = host, message);
        return Err(Error::new(ErrorCode::IllegalOperation, message));
    }
    let RolledBack { from, to, entries, documents } = storage.roll_back(common, directory)?;
    tracing::info!(target: "ROLLBACK", id = 21612, source = host, from = ?from, to = ?to, entries, documents, directory = %directory.display(), "Rollback summary");
    Ok(())
}

/// The last entry that both logs have. Entries of this member's log are tried further and further from its end, until the source
/// has one; from there on both are read forward. So it costs as much as lies behind the parting here, whatever the source wrote since.
fn common_entry(storage: &Storage, host: &str) -> Result<OpTime> {
    let mut connection = Outgoing::connect(host, TIMEOUT).map_err(|error| unreachable(host, &error))?;
    let last = storage.last_entry().timestamp;
    let (mut seconds_back, mut tried) = (0, None);
    loop {
        let until = Timestamp { seconds: last.seconds.saturating_sub(seconds_back), increment: 0 };
        let before = storage.entry_until(until)?;
        let is_oldest = before == OpTime::ZERO;
        let own = if is_oldest { storage.oldest_entry()?.unwrap_or(OpTime::ZERO) } else { before };
        if tried != Some(own)
            && let Some(common) = common_from(storage, &mut connection, host, own)?
        {
            return Ok(common);
        }
        if is_oldest {
            return Err(Error::new(UNRECOVERABLE, format!("{host} and this member have no entry in common")));
        }
        tried = Some(own);
        seconds_back = seconds_back.saturating_mul(2).max(1);
    }
}

/// The last entry that both have, if they have `own`.
fn common_from(storage: &Storage, connection: &mut Outgoing, host: &str, own: OpTime) -> Result<Option<OpTime>> {
    let mut common = None;
    let mut from = own.timestamp;
    loop {
        let theirs = entries_from(connection, host, from)?;
        if common.is_none() && theirs.first() != Some(&own) {
            return Ok(None);
        }
        for optime in &theirs {
            if storage.entry_at(*optime)?.is_none() {
                return Ok(common);
            }
            common = Some(*optime);
        }
        match theirs.last() {
            Some(last) if theirs.len() == ENTRIES_PER_LOOK as usize => {
                from = Timestamp::from_u64(last.timestamp.as_u64() + 1);
            }
            _ => return Ok(common),
        }
    }
}

/// The OpTimes of the source's entries from a timestamp on, as many as are asked for at once.
fn entries_from(connection: &mut Outgoing, host: &str, from: Timestamp) -> Result<Vec<OpTime>> {
    let look = rawdoc! {
        "find": "oplog.rs", "filter": { "ts": { "$gte": bson::Timestamp::from(from) } },
        "projection": { "ts": 1, "t": 1 }, "limit": ENTRIES_PER_LOOK, "batchSize": ENTRIES_PER_LOOK, "singleBatch": true,
        "$db": "local", "$readPreference": { "mode": "secondaryPreferred" },
    };
    let reply = connection.call(&look, TIMEOUT).map_err(|error| unreachable(host, &error))?;
    let mut optimes = Vec::new();
    for entry in reply.get_document("cursor")?.get_array("firstBatch")? {
        if let RawBsonRef::Document(entry) = entry?
            && let Some(optime) = optime_of(entry)
        {
            optimes.push(optime);
        }
    }
    Ok(optimes)
}

fn unreachable(host: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::HostUnreachable, format!("{host}: {error}"))
}
