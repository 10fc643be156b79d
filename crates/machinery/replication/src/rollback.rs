//! Going back to where this member's log parts from its source's.
//!
//! The source's entries are read backward from this member's end on, until one is found that this member has too; storage then
//! takes away all of its own that come after it.
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

/// How long the source may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
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

fn common_entry(storage: &Storage, host: &str) -> Result<OpTime> {
    let unreachable = |error: String| Error::new(ErrorCode::HostUnreachable, format!("{host}: {error}"));
    let mut connection = Outgoing::connect(host, TIMEOUT).map_err(|error| unreachable(error.to_string()))?;
    let mut until = storage.last_entry().timestamp;
    loop {
        let look = rawdoc! {
            "find": "oplog.rs", "filter": { "ts": { "$lte": bson::Timestamp::from(until) } }, "sort": { "$natural": -1 },
            "projection": { "ts": 1, "t": 1 }, "limit": ENTRIES_PER_LOOK, "singleBatch": true, "$db": "local",
            "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = connection.call(&look, TIMEOUT).map_err(|error| unreachable(error.to_string()))?;
        let mut oldest = None;
        for entry in reply.get_document("cursor")?.get_array("firstBatch")? {
            let RawBsonRef::Document(entry) = entry? else { continue };
            let Some(optime) = optime_of(entry) else { continue };
            if storage.entry_at(optime)?.is_some() {
                return Ok(optime);
            }
            oldest = Some(optime.timestamp);
        }
        match oldest {
            Some(oldest) if oldest > Timestamp::ZERO => until = Timestamp::from_u64(oldest.as_u64() - 1),
            _ => return Err(Error::new(UNRECOVERABLE, format!("{host} and this member have no entry in common"))),
        }
    }
}
