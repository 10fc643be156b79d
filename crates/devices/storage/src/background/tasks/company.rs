//! Whether somebody is served whom long work would keep waiting, and how long requests have rested for such.
//!
//! A small request of a client ended lately; or, on a member that follows, an entry came that a client of the primary brought about, for
//! whom less need be left.
//! Two requests that run for long are no company to each other, nor are a copy and the member that it reads from: where there are only
//! such, the processors are shared as the kernel has it, and nobody rests. Nor does anybody rest for who is of a lower class.

use super::Share;
use crate::background::lately::Lately;
use baton_types::Class;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Company stays for so long after it was noted last.
const STAYS: Duration = Duration::from_secs(1);

/// See the file's header.
#[derive(Debug, Default)]
pub struct Company {
    /// By their rank.
    served: [Lately; 3],
    followed: Lately,
    rests: AtomicU64,
    rest_micros: AtomicU64,
}

impl Company {
    /// A small request has ended that was served as this class.
    pub fn note(&self, class: Class, now: Instant) {
        self.served[class.rank()].note(now);
    }

    /// An entry of one has come from the primary.
    pub fn note_entry(&self, now: Instant) {
        self.followed.note(now);
    }

    /// Whether there is any.
    pub fn is_there(&self, now: Instant) -> bool {
        self.share_beside(Class::Background, now).is_some()
    }

    /// What of a processor is left to a request of this class that runs for long, beside those that there are of its own and of higher ones;
    /// nothing, if there are none. Of what comes from the primary it is not known whether it is urgent, so it counts as normal.
    pub fn share_beside(&self, class: Class, now: Instant) -> Option<Share> {
        let is_lately = |lately: &Lately| lately.is_within(STAYS, now);
        if self.served[class.rank()..].iter().any(is_lately) {
            Some(Share::Eighth)
        } else if class <= Class::Normal && is_lately(&self.followed) {
            Some(Share::Half)
        } else {
            None
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
        let beside = |class| company.share_beside(class, now);
        assert_eq!(beside(Class::Normal), None);
        company.note_entry(now);
        assert_eq!(beside(Class::Normal), Some(Share::Half));
        company.note(Class::Normal, now);
        assert_eq!(beside(Class::Normal), Some(Share::Eighth));
        assert!(company.is_there(now) && !company.is_there(now + 2 * STAYS));
    }

    #[test]
    fn nobody_rests_for_a_lower_class() {
        let (company, now) = (Company::default(), Instant::now());
        let beside = || [Class::Low, Class::Normal, Class::High].map(|class| company.share_beside(class, now));
        company.note(Class::Low, now);
        assert_eq!(beside(), [Some(Share::Eighth), None, None]);
        company.note_entry(now);
        assert_eq!(beside(), [Some(Share::Eighth), Some(Share::Half), None]);
        company.note(Class::High, now);
        assert_eq!(beside(), [Some(Share::Eighth); 3]);
        assert_eq!(company.share_beside(Class::Background, now), Some(Share::Eighth));
    }
}
