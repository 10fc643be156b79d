//! Commands that another member logged (`c` entries), carried out here by whoever knows how: as an [`Author`] whose changes of the
//! catalog log nothing of their own.
//!
//! The transaction that would log the command of the entry's name carries the entry itself, with its bytes and its OpTime,
//! so that both are there after a crash or neither is. If nothing was to be done, the entry is logged at the end alone.
//!
//! Invariants:
//! - What such an author writes asks no gate: it has no entries of this member's own.
//! - An entry that is in the log already is skipped: carried out again it would undo what came after it.
//!
//! Not here: what a command does. Its steps before the one that carries the entry (a long index build) may be found half
//! done after a crash; opening the directory removes them, and the entry is replayed as it is not in the log.

use crate::documents::transaction::Transaction;
use crate::log::author::{Author, Writer};
use crate::log::commit::Durability;
use crate::log::oplog::optime_of;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::{RawDocument, RawDocumentBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// What an author follows.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Absent: nothing at all is to be logged.
    entry: Option<RawDocumentBuf>,
    /// Whether the entry is in a transaction that takes it to the log.
    is_carried: AtomicBool,
}

impl Replay {
    fn of(entry: Option<&RawDocument>) -> Self {
        Self { entry: entry.map(ToOwned::to_owned), is_carried: AtomicBool::new(false) }
    }

    /// Lets a transaction that is to log the command `o` carry the entry instead, if that is the entry's command.
    pub fn carry(&self, transaction: &mut Transaction, o: &RawDocument) {
        transaction.is_replicated = true;
        if let Some(entry) = self.entry.as_deref()
            && command_of(entry).is_some_and(|name| Some(name) == first_name(o))
            && !self.is_carried.swap(true, Ordering::Relaxed)
        {
            transaction.carry(entry);
        }
    }

    /// The entry's OpTime.
    pub fn optime(&self) -> Option<OpTime> {
        self.entry.as_deref().and_then(optime_of)
    }
}

fn command_of(entry: &RawDocument) -> Option<&str> {
    first_name(entry.get_document("o").ok()?)
}

fn first_name(o: &RawDocument) -> Option<&str> {
    Some(o.iter().next()?.ok()?.0.as_str())
}

impl Storage {
    /// Lets `apply` carry out the command of an entry from another member's oplog, and puts the entry into this one's. The
    /// caller says how; what the writer changes in the catalog logs nothing else. `None` if the entry is in the log
    /// already. On an error the entry is not logged, unless what carries it was done.
    ///
    /// `IllegalOperation` (20) unless the gate is closed to this member's own writes.
    pub fn replay<T>(&self, entry: &RawDocument, apply: impl FnOnce(Writer<'_>) -> Result<T>) -> Result<Option<T>> {
        let _turn = self.follow()?;
        let (Some(optime), Some(_)) = (optime_of(entry), command_of(entry)) else {
            return Err(Error::new(ErrorCode::FailedToParse, format!("An oplog entry is no command's: {entry:?}")));
        };
        if optime.timestamp <= self.commit.applied().timestamp {
            return Ok(None);
        }
        let author = Author::replaying(Replay::of(Some(entry)));
        let done = apply(self.by(&author))?;
        if author.replay().is_some_and(|replay| !replay.is_carried.load(Ordering::Relaxed)) {
            let mut transaction = Transaction::replicating();
            transaction.carry(entry);
            self.commit.commit_unasked(transaction, Durability::Applied);
        }
        Ok(Some(done))
    }

    /// Lets `change` change the catalog and log nothing: what it undoes goes from the log with it.
    pub(crate) fn silently<T>(&self, change: impl FnOnce(Writer<'_>) -> Result<T>) -> Result<T> {
        change(self.by(&Author::replaying(Replay::of(None))))
    }
}
