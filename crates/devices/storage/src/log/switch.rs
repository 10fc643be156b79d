//! The moment at which RocksDB leaves a log for the next, because a memtable is full or flushed.
//!
//! Invariants:
//! - Nothing is written to a log before the logs before it are synced. What a loss of power takes of writes that
//!   nobody synced is therefore the end of their sequence. Otherwise the older log could lose its end while the newer one
//!   survives, and recovery would replay both: where logs are written over, it cannot tell a lost end from the true one.
//! - Nobody writes meanwhile, of whatever class: so whoever sees to it is urgent, whatever it does else, and so is whose sync it waits for.
//!
//! RocksDB tells of the moment on the thread that changes the log, which lets nobody write until it is back. So it costs
//! one sync for each memtable, of no more than what was written since the last.

use super::commit::CommitQueue;
use super::file::LogFile;
use crate::machine;
use baton_types::Class;
use rust_rocksdb::event_listener::{EventListener, MemTableInfo};
use std::sync::{Arc, OnceLock, Weak};

/// Syncs the logs that are left.
#[derive(Clone, Default)]
pub(crate) struct LogSwitch {
    /// Once the database is open: recovery writes tables, and one new log.
    log: Arc<OnceLock<Arc<LogFile>>>,
    queue: Arc<OnceLock<Weak<CommitQueue>>>,
}

impl LogSwitch {
    /// Says what it syncs.
    pub fn watch(&self, log: &Arc<LogFile>) {
        let _ = self.log.set(Arc::clone(log));
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
        if let Some(log) = self.log.get()
            && let Err(error) = log.change()
        {
            machine::stop_by_disk("syncing the log", &error);
        }
    }
}
