//! What goes on behind clients' requests: tasks that ask before they begin, compactions, flushes, checkpoints, the cutting of the oplog, files
//! that are removed piece by piece; and the figures by which is decided when.
//!
//! Not here: the decision itself, which is the gate's ([`tasks::Gate`]); index builds (`ddl`).

pub(crate) mod checkpoints;
pub(crate) mod flushing;
pub(crate) mod governor;
pub(crate) mod lately;
pub(crate) mod removal;
pub(crate) mod retention;
pub mod tasks;
pub(crate) mod vitals;
pub(crate) mod warming;
