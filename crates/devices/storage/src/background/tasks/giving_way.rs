//! Long work leaves the processors to whoever waits for them, and a lowered weight is not enough for that: a thread that has a
//! processor keeps it for milliseconds whatever it weighs, and the threads of small requests, which run for microseconds at a time,
//! wait for it each time that they wake up. So a step of a task, or of a request that runs for long, is followed by rest, if others
//! wanted the processors during it.
//!
//! That others want them is known by what the worker's own thread had to wait for one ([`Turns`]): it sees
//! clients, other members and other programs alike. Whether those others are such as to give way to, [`super::Company`] says.
//!
//! Invariants: who has the processors for itself never rests; who has not takes its [`Share`] of one.
//! What it deliberately does not do: stop altogether. A step may be long, and is not divided here.

use baton_machine::Turns;
use std::thread::ThreadId;
use std::time::Duration;

/// A thread that had to wait for this part of the time that it ran has company.
const WAITED_PART: u32 = 8;

/// The part of one processor that is left to who gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// For work that nobody waits for.
    Tenth,
    /// For a client's request that runs for long beside others' small ones.
    Eighth,
    /// For the same on a member that serves no small ones, and follows one that does: what it applies has a niceness of its own.
    Half,
}

impl Share {
    /// Rest, in times of what a step ran for.
    fn rest(self) -> u32 {
        match self {
            Self::Tenth => 9,
            Self::Eighth => 7,
            Self::Half => 1,
        }
    }
}

/// How long to rest after a step, by what its thread had of the processors in it.
fn rest_after(share: Share, ran: Duration, waited: Duration) -> Duration {
    if waited.saturating_mul(WAITED_PART) > ran { ran.saturating_mul(share.rest()) } else { Duration::ZERO }
}

/// The steps of one task, or of one request.
#[derive(Debug)]
pub struct GivingWay {
    share: Share,
    before: Option<(ThreadId, Turns)>,
}

impl GivingWay {
    /// The first step begins, by the calling thread.
    pub fn new(share: Share) -> Self {
        Self { share, before: Self::now() }
    }

    /// From the step under way on it is left this part.
    pub fn take(&mut self, share: Share) {
        self.share = share;
    }

    fn now() -> Option<(ThreadId, Turns)> {
        Some((std::thread::current().id(), Turns::of_this_thread()?))
    }

    /// A step is over: how long it is good to rest. Nothing, if another thread began it.
    pub fn rest(&mut self) -> Duration {
        let now = Self::now();
        let before = std::mem::replace(&mut self.before, now);
        match before.zip(now) {
            Some(((began, before), (ends, now))) if began == ends => {
                let Turns { ran, waited } = now.since(before);
                rest_after(self.share, ran, waited)
            }
            _ => Duration::ZERO,
        }
    }

    /// The rest is over, and the next step begins: what was waited for since is not its own.
    pub fn rested(&mut self) {
        self.before = Self::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_waited_rests_until_it_has_had_its_share() {
        for (share, rest) in [(Share::Tenth, 72 * MS), (Share::Eighth, 56 * MS), (Share::Half, 8 * MS)] {
            assert_eq!(rest_after(share, 8 * MS, MS), Duration::ZERO, "an eighth is chance");
            assert_eq!(rest_after(share, 8 * MS, 2 * MS), rest);
            assert_eq!(rest_after(share, Duration::ZERO, Duration::ZERO), Duration::ZERO);
            assert_eq!(rest_after(share, Duration::ZERO, MS), Duration::ZERO, "it did nothing");
        }
    }

    fn work(time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {}
    }

    /// Threads on every processor, twice: one of them cannot but wait. And the one of which another thread made the first step.
    #[test]
    fn a_thread_among_many_rests_and_one_that_takes_over_does_not() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let rests: Vec<Duration> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * processors + 1)
                .map(|_| {
                    scope.spawn(|| {
                        let mut giving_way = GivingWay::new(Share::Tenth);
                        work(300 * MS);
                        giving_way.rest()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(rests.iter().any(|rest| *rest > Duration::ZERO), "{rests:?}");
        let mut of_another = std::thread::spawn(|| GivingWay::new(Share::Tenth)).join().unwrap();
        work(MS);
        assert_eq!(of_another.rest(), Duration::ZERO);
    }
}
