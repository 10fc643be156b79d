//! The oplog's two ends, what lies from a place to the new end, and who follows that.
//!
//! Not here: cutting the new end off ([`crate::following::rollback`]); dropping the old end ([`crate::background::retention`]).

use crate::documents::format::{family, oplog_key};
use crate::documents::view::stored_document;
use crate::log::Oplog;
use crate::log::oplog::optime_of;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, OpTime, Result, Timestamp};
use bson::{RawDocument, RawDocumentBuf};
use std::sync::Arc;

impl Storage {
    /// Follows the log: while the follower lives, the newest entries can be had without a look at the disk.
    pub fn follow_log(self: &Arc<Self>) -> LogFollower {
        self.commit.follow();
        LogFollower(Arc::clone(self))
    }
}

impl Oplog<'_> {
    /// The OpTime of the newest entry; zero if there is none.
    pub fn last_entry(&self) -> OpTime {
        let last = self.0.commit.applied();
        if last.timestamp == Timestamp::ZERO { OpTime::ZERO } else { last }
    }

    /// The OpTime of the oldest entry; `None` if there is none.
    pub fn oldest_entry(&self) -> Result<Option<OpTime>> {
        // Asked for with every batch that a follower gets. It stays the oldest until files are dropped, or the log is cut off.
        let seen = (self.readable_from(), self.0.commit.truncations());
        if let Some((at, oldest)) = *self.0.oldest_seen.lock()
            && at == seen
        {
            return Ok(Some(oldest));
        }
        let mut iterator = self.0.db().raw_iterator_cf(self.0.family(family::OPLOG));
        iterator.seek(oplog_key(seen.0));
        iterator.status().map_err(read_failure)?;
        let oldest = iterator.value().map(position_of).transpose()?;
        *self.0.oldest_seen.lock() = oldest.map(|oldest| (seen, oldest));
        Ok(oldest)
    }

    /// The newest entry that is no newer than this timestamp; zero if there is none.
    pub fn entry_until(&self, timestamp: Timestamp) -> Result<OpTime> {
        let mut iterator = self.0.db().raw_iterator_cf(self.0.family(family::OPLOG));
        iterator.seek_for_prev(oplog_key(timestamp));
        iterator.status().map_err(read_failure)?;
        iterator.value().map_or(Ok(OpTime::ZERO), position_of)
    }

    /// The readable entries at or after a timestamp, in order: as many as have these bytes together, at least one if there
    /// is one. Whoever must not miss any looks whether the first is the one it knows, or [`Self::oldest_entry`] is older.
    pub fn entries_from(&self, from: Timestamp, bytes_max: usize) -> Result<Vec<RawDocumentBuf>> {
        let readable = oplog_key(self.0.commit.applied().timestamp);
        let mut iterator = self.0.db().raw_iterator_cf(self.0.family(family::OPLOG));
        iterator.seek(oplog_key(from));
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while let Some((key, value)) = iterator.item() {
            bytes += value.len();
            if key > readable.as_slice() || (bytes > bytes_max && !entries.is_empty()) {
                break;
            }
            entries.push(stored_document(value)?.to_owned());
            iterator.next();
        }
        iterator.status().map_err(read_failure)?;
        Ok(entries)
    }

    /// The entry with this OpTime, if it is in the log.
    pub fn entry_at(&self, optime: OpTime) -> Result<Option<RawDocumentBuf>> {
        let stored = self.0.db().get_pinned_cf(self.0.family(family::OPLOG), oplog_key(optime.timestamp));
        let Some(stored) = stored.map_err(read_failure)? else { return Ok(None) };
        let entry = stored_document(&stored)?;
        Ok((optime_of(entry) == Some(optime)).then(|| entry.to_owned()))
    }
}

/// Somebody who follows the log.
pub struct LogFollower(Arc<Storage>);

impl Drop for LogFollower {
    fn drop(&mut self) {
        self.0.commit.unfollow();
    }
}

fn position_of(entry: &[u8]) -> Result<OpTime> {
    let entry: &RawDocument = stored_document(entry)?;
    optime_of(entry).ok_or_else(|| {
        Error::new(
            ErrorCode(310),
            "Data corruption detected: an oplog entry has no OpTime. Empty this member's data directory and start it again: it copies the set's data",
        )
    })
}
