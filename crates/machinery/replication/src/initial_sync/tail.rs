//! Reads the source's log into a buffer from the entry on at which a copy began.
//!
//! Invariant: what is in the buffer follows that entry without a gap: a stream that was lost is opened again at the last entry
//! that came, and must begin with it.

use super::log_buffer::LogBuffer;
use super::source::{Line, connect, is_transient, unreachable_source};
use crate::log_stream::{self, Batch};
use baton_types::{Error, ErrorCode, OpTime, Result, must_not_unwind};
use std::time::{Duration, Instant};

/// How long a lost stream is opened again in vain.
const PATIENCE: Duration = Duration::from_secs(20);
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Fills the buffer until it is closed or the source fails; tells it the latter.
pub(super) fn run(line: &Line<'_>, begin: OpTime, buffer: &LogBuffer) {
    let _guard = must_not_unwind("an initial sync");
    let mut newest = begin;
    let mut patient_until = Instant::now() + PATIENCE;
    loop {
        let before = newest;
        let Err(error) = stream(line, &mut newest, buffer) else { return };
        if buffer.is_closed() {
            return;
        }
        if newest != before {
            patient_until = Instant::now() + PATIENCE;
        }
        if !is_transient(&error) || (line.interrupted)() || Instant::now() >= patient_until {
            buffer.fail(error);
            return;
        }
        (line.retried)();
        std::thread::sleep(TRY_AGAIN);
    }
}

/// Reads until the buffer is closed.
fn stream(line: &Line<'_>, newest: &mut OpTime, buffer: &LogBuffer) -> Result<()> {
    let mut connection = connect(line)?;
    let lost = |error: baton_net::CallError| unreachable_source(&error);
    let first = log_stream::open(&mut connection, newest.timestamp).map_err(lost)?;
    let batch = Batch::read(&first, "firstBatch").map_err(|error| unreachable_source(&error))?;
    if batch.entries.first().map(|(optime, _)| *optime) != Some(*newest) {
        let message = format!("the source's log has no entry {newest:?} any more, at which the copy is");
        return Err(Error::new(ErrorCode::OplogStartMissing, message));
    }
    put(&batch, 1, newest, buffer)?;
    let mut cursor_id = batch.cursor_id;
    log_stream::go_on(&mut connection, cursor_id).map_err(lost)?;
    while !buffer.is_closed() {
        let Some(reply) = log_stream::next(&mut connection).map_err(lost)? else {
            return Err(unreachable_source(&"it ended the stream of its log"));
        };
        let batch = Batch::read(&reply, "nextBatch").map_err(|error| unreachable_source(&error))?;
        put(&batch, 0, newest, buffer)?;
        cursor_id = batch.cursor_id;
        if cursor_id == 0 {
            return Err(unreachable_source(&"it closed the cursor on its log"));
        }
    }
    Ok(())
}

fn put(batch: &Batch<'_>, skipped: usize, newest: &mut OpTime, buffer: &LogBuffer) -> Result<()> {
    for (optime, entry) in batch.entries.iter().skip(skipped) {
        buffer.put((*entry).to_owned())?;
        *newest = *optime;
    }
    Ok(())
}
