//! How the driver hears of storage's progress: by one letter, however often storage tells of it, until the driver has looked.
//!
//! Invariant: progress that storage tells of while there are other members has a letter on its way until the driver looks.

use super::{Inbox, Letter};
use baton_storage::Storage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Who is told of progress: nobody, while nobody waits for it.
#[derive(Default)]
pub(super) struct Progress {
    /// A letter about it is on its way: it is noticed once however often it is told, until it has been looked at.
    is_told: AtomicBool,
    /// There are other members to tell. A member alone looks at its log now and then.
    is_wanted: AtomicBool,
}

impl Progress {
    /// Whoever has read the letter looks now: what advances from here on is told anew.
    pub fn is_read(&self) {
        self.is_told.store(false, Ordering::Release);
    }

    pub fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }
}

pub(super) fn listen_to_storage(storage: &Arc<Storage>, inbox: &Inbox) -> Arc<Progress> {
    // Storage outlives replication, and hears of nobody then.
    let inbox = Arc::downgrade(inbox);
    let progress = Arc::new(Progress::default());
    let listener = Arc::clone(&progress);
    storage.queue().on_progress(Box::new(move || {
        if listener.is_wanted()
            && !listener.is_told.swap(true, Ordering::AcqRel)
            && inbox.upgrade().is_none_or(|inbox| inbox.post(Letter::Progress).is_err())
        {
            listener.is_told.store(false, Ordering::Release);
        }
    }));
    progress
}
