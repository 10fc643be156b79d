//! The source's side of following: a stream of its log, and pages of it while the common entry is looked for.

use super::batch::{Batch, Gathering};
use crate::log_stream;
use baton_consensus::SourceState;
use baton_following::Batch as Judged;
use baton_net::{CallError, Outgoing};
use baton_types::{Error, ErrorCode, OpTime, Result, Timestamp};
use bson::rawdoc;
use std::time::Duration;

/// Bytes of replies that are taken together, at most (reached, not exceeded by more than one reply).
const TOGETHER_BYTES_MAX: usize = 4 << 20;

/// A connection, and the cursor that is open on it.
pub(super) struct Stream {
    connection: Outgoing,
    cursor_id: i64,
    /// All that follows was asked for.
    goes_on: bool,
}

fn lost(error: CallError) -> Error {
    Error::new(ErrorCode::HostUnreachable, error.to_string())
}

impl Stream {
    pub fn new(connection: Outgoing) -> Self {
        Self { connection, cursor_id: 0, goes_on: false }
    }

    /// Opens the cursor; gives what it begins with.
    pub fn open(&mut self, from: Timestamp, within: Duration) -> Result<(Batch, Judged)> {
        let first = log_stream::open(&mut self.connection, from, within).map_err(lost)?;
        let mut gathering = Gathering::default();
        gathering.take(first, "firstBatch")?;
        let (batch, judged, cursor_id) = gathering.finish();
        self.cursor_id = cursor_id;
        self.goes_on = false;
        Ok((batch, judged))
    }

    /// How much of what follows has come already.
    pub fn waiting_bytes(&self) -> usize {
        if self.goes_on { self.connection.waiting_bytes() } else { 0 }
    }

    /// Waits for what follows; takes together what is there, but nothing behind an urgent entry: that is applied and acknowledged first.
    pub fn read(&mut self, within: Duration) -> Result<(Batch, Judged)> {
        if !self.goes_on {
            log_stream::go_on(&mut self.connection, self.cursor_id).map_err(lost)?;
            self.goes_on = true;
        }
        let ended = || Error::new(ErrorCode::HostUnreachable, "the source ended the stream");
        let reply = log_stream::next(&mut self.connection, within).map_err(lost)?.ok_or_else(ended)?;
        let mut gathering = Gathering::default();
        gathering.take(reply, "nextBatch")?;
        while gathering.bytes < TOGETHER_BYTES_MAX
            && !gathering.is_urgent
            && let Some(reply) = log_stream::next_if_there(&mut self.connection).map_err(lost)?
        {
            gathering.take(reply, "nextBatch")?;
        }
        let (batch, judged, cursor_id) = gathering.finish();
        self.cursor_id = cursor_id;
        Ok((batch, judged))
    }
}

/// OpTimes of the source's log from there on, and what it says of itself.
pub(super) fn page(
    connection: &mut Outgoing,
    from: Timestamp,
    entries_max: usize,
    within: Duration,
) -> Result<(Vec<OpTime>, SourceState)> {
    let entries_max = i32::try_from(entries_max).unwrap_or(i32::MAX);
    let look = rawdoc! {
        "find": "oplog.rs", "filter": { "ts": { "$gte": bson::Timestamp::from(from) } },
        "projection": { "ts": 1, "t": 1 }, "limit": entries_max, "batchSize": entries_max, "singleBatch": true,
        "$db": "local", "$oplogQueryData": 1, "$readPreference": { "mode": "secondaryPreferred" },
    };
    let reply = connection.call(&look, within).map_err(lost)?;
    let page = log_stream::Batch::read(&reply, "firstBatch")?;
    Ok((page.entries.iter().map(|(optime, _)| *optime).collect(), page.source))
}
