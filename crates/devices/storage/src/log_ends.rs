//! The oplog's two ends, what lies from a place to the new end, and cutting the new end off.
//!
//! Invariant: entries are cut off in one batch with nothing else, and synced; then the positions have gone back to the
//! newest entry left, and what is logged next comes after that one.
//! Not here: undoing what the entries cut off did to documents; dropping the old end ([`crate::retention`]).

use crate::commit::Durability;
use crate::format::{family, oplog_key};
use crate::machine::read_failure;
use crate::oplog::optime_of;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::view::stored_document;
use baton_types::{Error, ErrorCode, OpTime, Result, Timestamp};
use bson::{RawDocument, RawDocumentBuf};

impl Storage {
    /// The OpTime of the newest entry; zero if there is none.
    pub fn last_entry(&self) -> OpTime {
        let last = self.commit.applied();
        if last.timestamp == Timestamp::ZERO { OpTime::ZERO } else { last }
    }

    /// The OpTime of the oldest entry; `None` if there is none.
    pub fn oldest_entry(&self) -> Result<Option<OpTime>> {
        let mut iterator = self.db().raw_iterator_cf(self.family(family::OPLOG));
        iterator.seek(oplog_key(self.oplog_oldest()));
        iterator.status().map_err(read_failure)?;
        iterator.value().map(position_of).transpose()
    }

    /// The newest entry that is no newer than this timestamp; zero if there is none.
    pub fn entry_until(&self, timestamp: Timestamp) -> Result<OpTime> {
        let mut iterator = self.db().raw_iterator_cf(self.family(family::OPLOG));
        iterator.seek_for_prev(oplog_key(timestamp));
        iterator.status().map_err(read_failure)?;
        iterator.value().map_or(Ok(OpTime::ZERO), position_of)
    }

    /// The readable entries at or after a timestamp, in order: as many as have these bytes together, at least one if there
    /// is one. Whoever must not miss any looks whether the first is the one it knows, or [`Self::oldest_entry`] is older.
    pub fn entries_from(&self, from: Timestamp, bytes_max: usize) -> Result<Vec<RawDocumentBuf>> {
        let readable = oplog_key(self.commit.applied().timestamp);
        let mut iterator = self.db().raw_iterator_cf(self.family(family::OPLOG));
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

    /// Removes all entries newer than `last`, synced; returns the OpTime of the newest one left. The documents stay as the
    /// entries made them.
    ///
    /// `IllegalOperation` (20) unless the gate is closed to this member's own writes.
    pub fn truncate_oplog_after(&self, last: OpTime) -> Result<OpTime> {
        let _turn = self.follow()?;
        let kept = self.entry_until(last.timestamp)?;
        if kept.timestamp < self.commit.applied().timestamp {
            let mut transaction = Transaction::empty();
            transaction.truncation = Some(kept);
            crash_point!("truncation-before-commit");
            self.commit.commit_unasked(transaction, Durability::Synced);
            crash_point!("truncation-after-commit");
        }
        Ok(kept)
    }
}

fn position_of(entry: &[u8]) -> Result<OpTime> {
    let entry: &RawDocument = stored_document(entry)?;
    optime_of(entry).ok_or_else(|| {
        Error::new(
            ErrorCode(310),
            "Data corruption detected: an oplog entry has no OpTime. Restore this member from another",
        )
    })
}
