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
/// has it or one after it that is here too; from there on both are read forward. So it costs as much as lies behind the parting here,
/// whatever the source wrote since.
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
            && let Some(common) = common_from(
                own,
                |optime| Ok(storage.entry_at(optime)?.is_some()),
                |from| entries_from(&mut connection, host, from),
            )?
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

/// The last entry that both have, if the source's first from `own` on is here. That need not be `own` itself: the log of a source that
/// was copied a while ago begins later than this one.
fn common_from(
    own: OpTime,
    is_here: impl Fn(OpTime) -> Result<bool>,
    mut theirs_from: impl FnMut(Timestamp) -> Result<Vec<OpTime>>,
) -> Result<Option<OpTime>> {
    let mut common = None;
    let mut from = own.timestamp;
    loop {
        let theirs = theirs_from(from)?;
        for optime in &theirs {
            if !is_here(*optime)? {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(term: i64, seconds: u32) -> OpTime {
        OpTime { term, timestamp: Timestamp { seconds, increment: 1 } }
    }

    fn common(own: &[OpTime], theirs: &[OpTime], from: OpTime) -> Option<OpTime> {
        common_from(
            from,
            |optime| Ok(own.contains(&optime)),
            |from| Ok(theirs.iter().copied().filter(|t| t.timestamp >= from).take(ENTRIES_PER_LOOK as usize).collect()),
        )
        .unwrap()
    }

    #[test]
    fn the_last_entry_of_both_is_found_from_one_before_the_parting() {
        let own = [at(1, 1), at(1, 2), at(1, 3), at(1, 4)];
        let theirs = [at(1, 1), at(1, 2), at(2, 4), at(2, 5)];
        assert_eq!(common(&own, &theirs, at(1, 1)), Some(at(1, 2)));
        assert_eq!(common(&own, &theirs, at(1, 3)), None);
        assert_eq!(common(&own, &theirs, at(1, 4)), None);
    }

    /// The search went past the little that both had, and the member was copied anew.
    #[test]
    fn a_source_that_was_copied_lately_has_entries_in_common_though_its_log_begins_later() {
        let own: Vec<_> = (1..100).map(|n| at(1, n)).collect();
        let theirs: Vec<_> = (40..50).map(|n| at(1, n)).chain([at(2, 50)]).collect();
        assert_eq!(common(&own, &theirs, at(1, 10)), Some(at(1, 49)));
        assert_eq!(common(&own, &theirs, at(1, 60)), None);
    }

    #[test]
    fn a_long_way_is_read_in_several_looks() {
        let own: Vec<_> = (1..2000).map(|n| at(1, n)).collect();
        let theirs: Vec<_> = (1..1500).map(|n| at(1, n)).chain([at(2, 1500)]).collect();
        assert_eq!(common(&own, &theirs, at(1, 1)), Some(at(1, 1499)));
    }
}
