//! A batch of the source's log in the follower's hands: the replies as they came, and where in them each entry is.
//!
//! Invariant: a place names the same entry for the machine, which knows its OpTime, and here.

use crate::log_stream::Batch as Read;
use baton_consensus::SourceState;
use baton_following::Batch as Judged;
use baton_types::{OpTime, Result};
use bson::{RawDocument, RawDocumentBuf};
use std::ops::Range;

/// See the file's header.
#[derive(Default)]
pub(super) struct Batch {
    replies: Vec<RawDocumentBuf>,
    /// The reply, and the entry's bytes in it.
    entries: Vec<(usize, Range<usize>)>,
}

/// Replies that came one after the other, taken as one batch.
#[derive(Default)]
pub(super) struct Gathering {
    batch: Batch,
    optimes: Vec<OpTime>,
    /// What the source said of itself with the last of them, its commit point, and the cursor's id.
    last: Option<(SourceState, OpTime, i64)>,
    /// The bytes of all replies.
    pub bytes: usize,
    /// Whether one of the entries is urgent.
    pub is_urgent: bool,
}

impl Gathering {
    /// Takes one more reply, whose batch has this name.
    pub fn take(&mut self, reply: RawDocumentBuf, name: &str) -> Result<()> {
        let read = Read::read(&reply, name)?;
        let begin = reply.as_bytes().as_ptr() as usize;
        for (optime, entry) in &read.entries {
            let at = entry.as_bytes().as_ptr() as usize - begin;
            self.optimes.push(*optime);
            self.batch.entries.push((self.batch.replies.len(), at..at + entry.as_bytes().len()));
        }
        self.last = Some((read.source, read.commit_point, read.cursor_id));
        self.is_urgent |= read.is_urgent;
        self.bytes += reply.as_bytes().len();
        self.batch.replies.push(reply);
        Ok(())
    }

    /// The batch, what the machine is to judge, and the cursor's id.
    pub fn finish(self) -> (Batch, Judged, i64) {
        let nothing = SourceState { term: 0, last: OpTime::ZERO, oldest: OpTime::ZERO.timestamp };
        let (source, commit_point, cursor_id) = self.last.unwrap_or((nothing, OpTime::ZERO, 0));
        let judged = Judged { optimes: self.optimes, source, commit_point, is_open: cursor_id != 0 };
        (self.batch, judged, cursor_id)
    }
}

impl Batch {
    /// The bytes of all replies.
    pub fn bytes(&self) -> usize {
        self.replies.iter().map(|reply| reply.as_bytes().len()).sum()
    }

    /// All entries.
    pub fn all(&self) -> Vec<&RawDocument> {
        self.entries(0..self.entries.len())
    }

    /// Entries by their places; none, if there are not so many.
    pub fn entries(&self, places: Range<usize>) -> Vec<&RawDocument> {
        let entry = |(reply, bytes): &(usize, Range<usize>)| {
            RawDocument::from_bytes(self.replies.get(*reply)?.as_bytes().get(bytes.clone())?).ok()
        };
        self.entries.get(places).unwrap_or_default().iter().filter_map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    fn reply(seconds: &[u32], cursor: i64) -> RawDocumentBuf {
        let mut batch = bson::RawArrayBuf::new();
        for seconds in seconds {
            batch.push(
                rawdoc! { "ts": bson::Timestamp { time: *seconds, increment: 1 }, "t": 1_i64, "op": "n", "o": {} },
            );
        }
        let at = rawdoc! { "ts": bson::Timestamp { time: 9, increment: 1 }, "t": 1_i64 };
        rawdoc! {
            "cursor": { "id": cursor, "ns": "local.oplog.rs", "nextBatch": batch },
            "$oplogQueryData": {
                "lastOpCommitted": at.clone(), "lastOpApplied": at,
                "oldestOp": bson::Timestamp { time: 1, increment: 1 }, "term": 1_i64,
            },
            "ok": 1.0,
        }
    }

    #[test]
    fn places_go_on_from_one_reply_to_the_next() {
        let mut gathering = Gathering::default();
        for reply in [reply(&[3, 4], 7), reply(&[], 7), reply(&[5], 0)] {
            gathering.take(reply, "nextBatch").unwrap();
        }
        assert!(gathering.take(rawdoc! { "ok": 0.0 }, "nextBatch").is_err());
        let (batch, judged, cursor) = gathering.finish();
        let seconds: Vec<u32> = judged.optimes.iter().map(|optime| optime.timestamp.seconds).collect();
        assert_eq!((seconds, judged.is_open, cursor), (vec![3, 4, 5], false, 0));
        let of = |places| -> Vec<u32> {
            batch.entries(places).iter().map(|entry| entry.get_timestamp("ts").unwrap().time).collect()
        };
        assert_eq!((of(0..3), of(1..2), of(2..9)), (vec![3, 4, 5], vec![4], vec![]));
        assert_eq!(batch.all(), batch.entries(0..3));
    }
}
