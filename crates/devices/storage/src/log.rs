//! The log, and the one way into it: transactions wait in the commit queue, get their OpTimes there, and reach RocksDB and the oplog in
//! order.
//!
//! Here are the queue, who it is on whose behalf something is written, how an entry is built and where the oplog ends, what a member must
//! know after a crash, how far one operation may run ahead, and whether RocksDB's own log is whole.
//!
//! Not here: what a transaction holds (`documents`), what becomes of another member's entries (`following`), when the oplog's old end is
//! cut off (`background`).

pub(crate) mod author;
pub(crate) mod check;
pub(crate) mod commit;
pub(crate) mod ends;
pub(crate) mod facts;
pub(crate) mod flow;
pub(crate) mod oplog;
pub(crate) mod switch;
