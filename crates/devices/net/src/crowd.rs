//! Whether so many clients speak at a time that their connections had better share threads.
//!
//! Threads that are shared keep a crowd from interrupting each other, above all where some commit what others wait for. But a client among
//! few is answered sooner by a thread that waits for its bytes and nothing else: one system call less, and one wake-up on the processor on
//! which the client runs (docs/spikes/shared-threads.md). Time is cut into moments; those that speak in each are counted, and those of them
//! whose replies are promised, which is to say that they write.
//!
//! Invariants:
//! - More than one of the limits within a moment are a crowd at once. They are one until a whole moment has brought no more than three
//!   quarters of each: at the limit threads do not come and go.
//! - Who has not spoken in the moment before shares threads: a client that asks something and goes, or asks now and then, costs none.
//!
//! What it does not do: tell the time, or start threads.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long a moment is: a client that is at work speaks in each.
const MOMENT_MS: u128 = 100;

/// So many clients at a time are no crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdLimits {
    /// Those that speak.
    pub speakers: usize,
    /// Those of them that write.
    pub writers: usize,
}

/// Who has spoken so far in a moment.
#[derive(Debug, Default)]
struct Count {
    moment: u64,
    speakers: usize,
    writers: usize,
}

/// When a connection's client has spoken.
#[derive(Debug, Default)]
pub(crate) struct Spoken {
    last: u64,
    has_written: bool,
    /// It spoke in the moment before that as well.
    is_steady: bool,
}

/// See the file's header.
#[derive(Debug)]
pub(crate) struct Crowd {
    limits: CrowdLimits,
    count: Mutex<Count>,
    is_one: AtomicBool,
}

impl Crowd {
    /// Nobody has spoken yet.
    pub fn new(limits: CrowdLimits) -> Self {
        Self { limits, count: Mutex::default(), is_one: AtomicBool::new(false) }
    }

    /// A client has spoken, so long after the start. Whether its connection is to share threads.
    pub fn shares(&self, at: Duration, writes: bool, spoken: &mut Spoken) -> bool {
        // From 2: in moment 0 nobody has spoken, so nobody has in the one before the first.
        let moment = (at.as_millis() / MOMENT_MS) as u64 + 2;
        let is_first = spoken.last != moment;
        if is_first {
            *spoken = Spoken { last: moment, has_written: false, is_steady: spoken.last + 1 == moment };
        }
        let is_first_write = writes && !spoken.has_written;
        spoken.has_written |= writes;
        if is_first || is_first_write {
            self.count(moment, is_first, is_first_write);
        }
        !spoken.is_steady || self.is_one.load(Relaxed)
    }

    fn count(&self, moment: u64, speaks: bool, writes: bool) {
        let mut count = self.count.lock();
        if count.moment < moment {
            // Between the two may have been others, in which nobody spoke.
            if count.moment + 1 < moment || !self.are_more_than(&count, 3, 4) {
                self.is_one.store(false, Relaxed);
            }
            *count = Count { moment, speakers: 0, writers: 0 };
        }
        count.speakers += usize::from(speaks);
        count.writers += usize::from(writes);
        if self.are_more_than(&count, 1, 1) {
            self.is_one.store(true, Relaxed);
        }
    }

    /// Whether they are more than this part of one of the limits.
    fn are_more_than(&self, count: &Count, numerator: usize, denominator: usize) -> bool {
        let is_more = |count, limit: usize| denominator * count > limit.saturating_mul(numerator);
        is_more(count.speakers, self.limits.speakers) || is_more(count.writers, self.limits.writers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEAKERS: usize = 8;
    const WRITERS: usize = 4;

    fn crowd() -> Crowd {
        Crowd::new(CrowdLimits { speakers: SPEAKERS, writers: WRITERS })
    }

    fn clients(count: usize) -> Vec<Spoken> {
        (0..count).map(|_| Spoken::default()).collect()
    }

    /// The clients speak twice in a moment, and write in between; whether the last of them shares threads.
    fn act(crowd: &Crowd, moment: u64, writes: bool, clients: &mut [Spoken]) -> bool {
        let at = Duration::from_millis(moment * MOMENT_MS as u64 + 7);
        let mut shares = true;
        for client in clients {
            crowd.shares(at, false, client);
            crowd.shares(at, writes, client);
            shares = crowd.shares(at + Duration::from_millis(50), false, client);
        }
        shares
    }

    fn speak(crowd: &Crowd, moment: u64, clients: &mut [Spoken]) -> bool {
        act(crowd, moment, false, clients)
    }

    #[test]
    fn as_many_as_the_limit_have_threads_of_their_own_once_they_are_at_work() {
        let (crowd, mut few) = (crowd(), clients(SPEAKERS));
        assert!(speak(&crowd, 0, &mut few), "nobody knows whether they come back");
        assert!(!speak(&crowd, 1, &mut few));
        assert!(!speak(&crowd, 2, &mut few));
        assert!(speak(&crowd, 9, &mut few), "they were silent");
        assert!(!speak(&crowd, 10, &mut few));
    }

    #[test]
    fn one_more_makes_a_crowd_until_a_whole_moment_was_quiet() {
        let (crowd, mut many) = (crowd(), clients(SPEAKERS + 1));
        speak(&crowd, 0, &mut many);
        assert!(speak(&crowd, 1, &mut many));
        assert!(speak(&crowd, 2, &mut many[..7]), "the moment before was a crowd");
        assert!(speak(&crowd, 3, &mut many[..7]), "seven are more than three quarters");
        assert!(speak(&crowd, 4, &mut many[..6]), "six are not, but their moment is not over");
        assert!(!speak(&crowd, 5, &mut many[..6]));
        assert!(speak(&crowd, 6, &mut many), "at once");
    }

    #[test]
    fn those_that_write_are_a_crowd_sooner() {
        let (crowd, mut few) = (crowd(), clients(WRITERS + 1));
        act(&crowd, 0, true, &mut few);
        assert!(act(&crowd, 1, true, &mut few));
        assert!(speak(&crowd, 2, &mut few), "in the moment before they wrote");
        assert!(!speak(&crowd, 3, &mut few));
        assert!(!act(&crowd, 4, true, &mut few[..WRITERS]), "as many as the limit are none");
    }

    #[test]
    fn a_silence_ends_a_crowd() {
        let (crowd, mut many) = (crowd(), clients(SPEAKERS + 1));
        speak(&crowd, 0, &mut many);
        assert!(speak(&crowd, 1, &mut many));
        speak(&crowd, 3, &mut many[..1]);
        assert!(!speak(&crowd, 4, &mut many[..1]));
    }

    #[test]
    fn with_limits_of_none_all_share() {
        let (crowd, mut one) = (Crowd::new(CrowdLimits { speakers: 0, writers: 0 }), clients(1));
        assert!((0..9).all(|moment| speak(&crowd, moment, &mut one)));
    }
}
