//! The log's lane: a stream of the source's log, and its entries into the buffer.

use super::lane::{Context, LaneWorker, LogStream};
use super::source::{connect, unreachable_source};
use crate::log_stream::{self, Batch};
use baton_following::Answer;
use baton_types::{OpTime, Result};
use bson::RawDocument;
use std::time::{Duration, Instant};

impl LaneWorker {
    pub(super) fn open_log(&mut self, context: &Context<'_>, after: OpTime, within: Duration) -> Result<Answer> {
        self.stream = None;
        let lost = |error: baton_net::CallError| unreachable_source(&error);
        let mut connection = connect(&self.line(context))?;
        let first = log_stream::open(&mut connection, after.timestamp, within).map_err(lost)?;
        let (answer, cursor_id) = self.take_log(&first, "firstBatch")?;
        self.stream = Some(LogStream { connection, cursor_id, goes_on: false });
        Ok(answer)
    }

    pub(super) fn read_log(&mut self, within: Duration) -> Result<Answer> {
        let Some(stream) = &mut self.stream else { return Err(unreachable_source(&"there is no stream of its log")) };
        stream.request_more()?;
        let reply = log_stream::next(&mut stream.connection, within).map_err(|error| unreachable_source(&error))?;
        let reply = reply.ok_or_else(|| unreachable_source(&"it ended the stream of its log"))?;
        Ok(self.take_log(&reply, "nextBatch")?.0)
    }

    fn take_log(&mut self, reply: &RawDocument, name: &str) -> Result<(Answer, i64)> {
        let batch = Batch::read(reply, name).map_err(|error| unreachable_source(&error))?;
        let optimes = batch.entries.iter().map(|(optime, _)| *optime).collect();
        self.batch = batch.entries.iter().map(|(_, entry)| (*entry).to_owned()).collect();
        self.batch_from = 0;
        Ok((Answer::LogRead { optimes, is_open: batch.cursor_id != 0 }, batch.cursor_id))
    }

    /// Puts what came into the buffer, from this place on, as far as there is room.
    pub(super) fn keep(&mut self, context: &Context<'_>, from: usize) -> Result<Answer> {
        if self.batch.iter().any(|entry| !matches!(entry.get_str("op"), Ok("n"))) {
            context.storage.company().note_entry(Instant::now());
        }
        let mut buffer = self.session.buffer.lock();
        while let Some(entry) = self.batch.pop_front() {
            if self.batch_from >= from
                && let Some(entry) = buffer.put(entry)?
            {
                self.batch.push_front(entry);
                break;
            }
            self.batch_from += 1;
        }
        Ok(Answer::Kept { until: self.batch_from })
    }
}
