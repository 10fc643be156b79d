//! Commands that another member logged (`c` entries), carried out here by whoever knows how: a scope on the calling thread
//! in which changes of the catalog log nothing of their own.
//!
//! The transaction that would log the command of the entry's name carries the entry itself, with its bytes and its OpTime,
//! so that both are there after a crash or neither is. If nothing was to be done, the entry is logged at the end alone.
//!
//! Invariants:
//! - A scope is of one thread and ends with [`Storage::replay`], whatever happens within; scopes do not nest.
//! - What is written within asks no gate: it has no entries of this member's own.
//! - An entry that is in the log already is skipped: carried out again it would undo what came after it.
//!
//! Not here: what a command does. Its steps before the one that carries the entry (a long index build) may be found half
//! done after a crash; opening the directory removes them, and the entry is replayed as it is not in the log.

use crate::commit::Durability;
use crate::oplog::optime_of;
use crate::storage::Storage;
use crate::transaction::Transaction;
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::{RawDocument, RawDocumentBuf};
use std::cell::RefCell;

struct Scope {
    /// Absent: nothing at all is to be logged.
    entry: Option<RawDocumentBuf>,
    /// Whether the entry is in a transaction that takes it to the log.
    is_carried: bool,
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// Ends the scope.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        SCOPE.with_borrow_mut(|scope| *scope = None);
    }
}

/// Whether this thread replays an entry.
pub(crate) fn is_under_way() -> bool {
    SCOPE.with_borrow(Option::is_some)
}

/// Lets a transaction that is to log the command `o` carry the entry instead, if that is the entry's command; tells whether
/// this thread replays an entry, so that nothing else is to be logged.
pub(crate) fn carry(transaction: &mut Transaction, o: &RawDocument) -> bool {
    SCOPE.with_borrow_mut(|scope| {
        let Some(scope) = scope else { return false };
        transaction.is_replicated = true;
        if let Some(entry) = scope.entry.as_deref().filter(|_| !scope.is_carried)
            && command_of(entry).is_some_and(|name| Some(name) == first_name(o))
        {
            transaction.carry(entry);
            scope.is_carried = true;
        }
        true
    })
}

/// The OpTime of the entry that this thread replays.
pub(crate) fn optime() -> Option<OpTime> {
    SCOPE.with_borrow(|scope| scope.as_ref()?.entry.as_deref().and_then(optime_of))
}

fn command_of(entry: &RawDocument) -> Option<&str> {
    first_name(entry.get_document("o").ok()?)
}

fn first_name(o: &RawDocument) -> Option<&str> {
    Some(o.iter().next()?.ok()?.0.as_str())
}

/// Lets `change` change the catalog and log nothing: what it undoes goes from the log with it.
pub(crate) fn silently<T>(change: impl FnOnce() -> Result<T>) -> Result<T> {
    SCOPE.set(Some(Scope { entry: None, is_carried: false }));
    let _guard = Guard;
    change()
}

impl Storage {
    /// Lets `apply` carry out the command of an entry from another member's oplog, and puts the entry into this one's. The
    /// caller says how; within, on this thread, changes of the catalog log nothing else. `None` if the entry is in the log
    /// already. On an error the entry is not logged, unless what carries it was done.
    ///
    /// `IllegalOperation` (20) unless the gate is closed to this member's own writes.
    pub fn replay<T>(&self, entry: &RawDocument, apply: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        let _turn = self.follow()?;
        let (Some(optime), Some(_)) = (optime_of(entry), command_of(entry)) else {
            return Err(Error::new(ErrorCode::FailedToParse, format!("An oplog entry is no command's: {entry:?}")));
        };
        if optime.timestamp <= self.commit.applied().timestamp {
            return Ok(None);
        }
        SCOPE.set(Some(Scope { entry: Some(entry.to_owned()), is_carried: false }));
        let guard = Guard;
        let done = apply()?;
        if SCOPE.with_borrow(|scope| scope.as_ref().is_some_and(|scope| !scope.is_carried)) {
            let mut transaction = Transaction::replicating();
            transaction.carry(entry);
            self.commit.commit_unasked(transaction, Durability::Applied);
        }
        drop(guard);
        Ok(Some(done))
    }
}
