//! What goes on behind clients' requests: tasks that ask before they begin, compactions, flushes, checkpoints, the cutting of the oplog, files
//! that are removed piece by piece; and the figures by which is decided when.
//!
//! Not here: the decision itself, which is the gate's ([`tasks::Gate`]); index builds (`ddl`).

pub(crate) mod checkpoints;
pub(crate) mod compaction_pace;
pub(crate) mod flushing;
pub(crate) mod full_memtables;
pub(crate) mod governor;
pub(crate) mod lately;
pub(crate) mod removal;
pub(crate) mod retention;
pub mod tasks;
pub(crate) mod vitals;
pub(crate) mod warming;

use crate::storage::Storage;

/// What somebody has to do now and then, for as long as the storage is open: see [`Storage::chores`].
#[derive(Clone, Copy)]
pub struct Chores<'s>(pub(crate) &'s Storage);

impl Storage {
    /// Each of them is one thread's alone, and nobody's request waits for it.
    pub fn chores(&self) -> Chores<'_> {
        Chores(self)
    }
}
