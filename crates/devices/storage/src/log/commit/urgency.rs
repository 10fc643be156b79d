//! The urgent entries of the log: those of high class, which other members are to have before all else.
//!
//! Whoever carries entries from member to member asks here how urgent that is, so that no urgent entry stands behind others' on its way: the
//! reader of the log does not wait for company for it, and the threads on the way are as urgent as it is, from a moment before it comes
//! until a moment after. On a member that follows this is known from the entries themselves.
//!
//! Invariant: an urgent entry is known here before it is readable.

use crate::background::lately::Lately;
use baton_types::{Class, Timestamp};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For so long after an urgent entry the next one is expected: who is told of it by being woken is urgent already.
const EXPECTED: Duration = Duration::from_secs(1);

/// See the file's header.
#[derive(Debug, Default)]
pub struct Urgency {
    /// The timestamp of the last urgent entry.
    last: AtomicU64,
    lately: Lately,
    /// Signalled when there is another.
    came: Condvar,
    came_lock: Mutex<()>,
    /// Threads waiting on `came`.
    watchers: AtomicU64,
}

impl Urgency {
    /// The entry with this timestamp is urgent, and not readable yet.
    pub(super) fn note(&self, timestamp: u64) {
        self.last.store(timestamp, Ordering::SeqCst);
        self.lately.note(Instant::now());
    }

    /// What was noted is readable.
    pub(super) fn announce(&self) {
        if self.watchers.load(Ordering::SeqCst) > 0 {
            let _guard = self.came_lock.lock();
            self.came.notify_all();
        }
    }

    /// The class of whoever carries entries now.
    pub fn class(&self) -> Class {
        if self.lately.is_within(EXPECTED, Instant::now()) { Class::High } else { Class::Normal }
    }

    /// Waits that long, or until there is an urgent entry after `seen`; tells whether there is.
    pub fn wait_beyond(&self, seen: Timestamp, time: Duration) -> bool {
        let until = Instant::now() + time;
        let is_there = || self.last.load(Ordering::SeqCst) > seen.as_u64();
        if is_there() {
            return true;
        }
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.came_lock.lock();
        while !is_there() && !self.came.wait_until(&mut guard, until).timed_out() {}
        drop(guard);
        self.watchers.fetch_sub(1, Ordering::SeqCst);
        is_there()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(increment: u32) -> Timestamp {
        Timestamp { seconds: 1, increment }
    }

    #[test]
    fn who_waits_for_company_is_woken_by_an_urgent_entry_and_by_that_alone() {
        let urgency = Urgency::default();
        assert_eq!(urgency.class(), Class::Normal);
        assert!(!urgency.wait_beyond(at(0), Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| urgency.wait_beyond(at(1), Duration::from_secs(60)));
            while urgency.watchers.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            urgency.note(at(2).as_u64());
            urgency.announce();
            assert!(waits.join().unwrap());
        });
        assert_eq!(urgency.class(), Class::High);
        assert!(urgency.wait_beyond(at(1), Duration::ZERO), "it was there before");
        assert!(!urgency.wait_beyond(at(2), Duration::ZERO), "it has been seen");
    }
}
