//! The moment at which RocksDB leaves a log for the next, because a memtable is full or flushed.
//!
//! Invariants:
//! - Nothing is written to a log before the logs before it are synced. What a loss of power takes of writes that
//!   nobody synced is therefore the end of their sequence. Otherwise the older log could lose its end while the newer one
//!   survives, and recovery would replay both: where logs are written over, it cannot tell a lost end from the true one.
//! - Nobody writes meanwhile, of whatever class: so whoever sees to it is urgent, whatever it does else, and so is whose sync it waits for.
//!
//! RocksDB tells of the moment on the thread that changes the log, which lets nobody write until it is back. So it costs
//! one sync for each memtable, of no more than what was written since the last. Who syncs a log that was left closes it, too, and has the kernel
//! forget what the file has beyond its end from when it was another log: that is milliseconds of computing.

use super::commit::CommitQueue;
use crate::machine;
use baton_types::Class;
use rust_rocksdb::DB;
use rust_rocksdb::event_listener::{EventListener, MemTableInfo};
use std::sync::{Arc, OnceLock, Weak};

/// Syncs the logs that are left.
#[derive(Clone, Default)]
pub(crate) struct LogSwitch {
    /// Once it is open: recovery writes tables, and one new log.
    db: Arc<OnceLock<Weak<DB>>>,
    queue: Arc<OnceLock<Weak<CommitQueue>>>,
}

impl LogSwitch {
    /// Says which database it listens to.
    pub fn watch(&self, db: &Arc<DB>) {
        let _ = self.db.set(Arc::downgrade(db));
    }

    /// Says whose syncs it may have to wait for.
    pub fn watch_queue(&self, queue: &Arc<CommitQueue>) {
        let _ = self.queue.set(Arc::downgrade(queue));
    }
}

impl EventListener for LogSwitch {
    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        crash_point!("log-switch");
        let _loan = baton_machine::bearer().lend_as(Class::High);
        if let Some(queue) = self.queue.get().and_then(Weak::upgrade) {
            queue.hurry_sync();
        }
        // Whoever writes or flushes holds the database, so this is never the last to let it go.
        if let Some(db) = self.db.get().and_then(Weak::upgrade)
            && let Err(error) = db.flush_wal(true)
        {
            machine::stop("syncing the log", &error);
        }
    }
}
