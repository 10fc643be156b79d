//! What this member is at a moment, as the follower is to know it.
//!
//! Invariant: term and role are of one moment.

use baton_following::Here;
use baton_storage::Storage;
use baton_types::{Term, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// This member's term, and whether it is primary of it.
pub(crate) struct OwnTerm(AtomicI64);

impl OwnTerm {
    pub fn new(term: Term, leads: bool) -> Self {
        Self(AtomicI64::new(Self::packed(term, leads)))
    }

    fn packed(term: Term, leads: bool) -> i64 {
        term << 1 | i64::from(leads)
    }

    pub fn set(&self, term: Term, leads: bool) {
        self.0.store(Self::packed(term, leads), Ordering::Release);
    }

    fn get(&self) -> (Term, bool) {
        let packed = self.0.load(Ordering::Acquire);
        (packed >> 1, packed & 1 == 1)
    }

    /// This member now.
    pub fn here(&self, storage: &Storage) -> Here {
        let (term, leads) = self.get();
        let committed = storage.oplog().commit_point().unwrap_or(Timestamp::from_u64(0));
        Here { last: storage.oplog().last_entry(), term, leads, committed, wall: wall() }
    }
}

/// The time since 1970-01-01, by the clock that entries are stamped by.
pub(super) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_and_a_role_come_back_as_they_were_set() {
        let own_term = OwnTerm::new(-1, false);
        assert_eq!(own_term.get(), (-1, false));
        for (term, leads) in [(-1, true), (0, true), (7, false), (1 << 40, true)] {
            own_term.set(term, leads);
            assert_eq!(own_term.get(), (term, leads));
        }
    }
}
