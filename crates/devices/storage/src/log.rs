//! The log, and the one way into it: transactions wait in the commit queue, get their OpTimes there, and reach RocksDB and the oplog in
//! order.
//!
//! Here are the queue, who it is on whose behalf something is written, how an entry is built and where the oplog ends, what a member must
//! know after a crash, how far one operation may run ahead, and of RocksDB's own log how it is synced and whether it is whole.
//!
//! Not here: what a transaction holds (`documents`), what becomes of another member's entries (`following`), when the oplog's old end is
//! cut off (`background`).

pub(crate) mod author;
pub(crate) mod check;
pub(crate) mod commit;
pub(crate) mod ends;
pub(crate) mod facts;
pub(crate) mod file;
pub(crate) mod flow;
pub(crate) mod oplog;
pub(crate) mod switch;

use crate::storage::Storage;

/// The log of what this member and those that it follows have changed: see [`Storage::oplog`].
#[derive(Clone, Copy)]
pub struct Oplog<'s>(pub(crate) &'s Storage);

/// What a member must know after a crash, beside its documents: see [`Storage::facts`].
#[derive(Clone, Copy)]
pub struct Facts<'s>(pub(crate) &'s Storage);

impl Storage {
    /// Its ends, its entries, how long it may become, and how much of it the set has committed.
    pub fn oplog(&self) -> Oplog<'_> {
        Oplog(self)
    }

    /// Each by its name.
    pub fn facts(&self) -> Facts<'_> {
        Facts(self)
    }
}
