//! Whether somebody is served whom long work would keep waiting, and how long requests have rested for such.
//!
//! A small request of a client ended lately; or, on a member that follows, an entry came that a client of the primary brought about, for
//! whom less need be left.
//! Two requests that run for long are no company to each other, nor are a copy and the member that it reads from: where there are only
//! such, the processors are shared as the kernel has it, and nobody rests.

use super::Share;
use crate::background::lately::Lately;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Company stays for so long after it was noted last.
const STAYS: Duration = Duration::from_secs(1);

/// See the file's header.
#[derive(Debug, Default)]
pub struct Company {
    served: Lately,
    followed: Lately,
    rests: AtomicU64,
    rest_micros: AtomicU64,
}

impl Company {
    /// A small request has ended.
    pub fn note(&self, now: Instant) {
        self.served.note(now);
    }

    /// An entry of one has come from the primary.
    pub fn note_entry(&self, now: Instant) {
        self.followed.note(now);
    }

    /// Whether there is any.
    pub fn is_there(&self, now: Instant) -> bool {
        self.share_beside(now).is_some()
    }

    /// What of a processor is left to a request that runs for long beside those that there are; nothing, if there are none.
    pub fn share_beside(&self, now: Instant) -> Option<Share> {
        let [served, followed] = [&self.served, &self.followed].map(|lately| lately.is_within(STAYS, now));
        match (served, followed) {
            (true, _) => Some(Share::Eighth),
            (false, true) => Some(Share::Half),
            (false, false) => None,
        }
    }

    /// A request that runs for long has rested.
    pub fn note_rest(&self, rest: Duration) {
        self.rests.fetch_add(1, Ordering::Relaxed);
        self.rest_micros.fetch_add(rest.as_micros() as u64, Ordering::Relaxed);
    }

    /// How often requests have rested since the start.
    pub fn rests(&self) -> u64 {
        self.rests.load(Ordering::Relaxed)
    }

    /// How long together, in microseconds.
    pub fn rest_micros(&self) -> u64 {
        self.rest_micros.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_left_more_than_those_of_the_primary_and_nobody_nothing() {
        let (company, now) = (Company::default(), Instant::now());
        assert_eq!(company.share_beside(now), None);
        company.note_entry(now);
        assert_eq!(company.share_beside(now), Some(Share::Half));
        company.note(now);
        assert_eq!(company.share_beside(now), Some(Share::Eighth));
        assert!(company.is_there(now) && !company.is_there(now + 2 * STAYS));
    }
}
