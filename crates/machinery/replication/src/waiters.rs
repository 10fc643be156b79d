//! Those who wait for the set to acknowledge a write.
//!
//! Each waits for one OpTime and is woken when it is committed, so that many who wait do not wake for each other.
//!
//! That the set has committed as much does not say that it has committed *this*: a member that stepped down may have rolled it
//! back, and then others' entries of a later term are committed. So time is cut into eras, which end when this member ceases to
//! be primary and when it rolls back; a request notes the era before it reads or writes, and waits in that era only.
//!
//! Invariants: nobody waits for what is committed already; whoever waits is told, at the latest when the era ends, and is never
//! told that something is committed that was read or written in an earlier era; a wait that is over leaves nothing behind.

use baton_types::{Error, ErrorCode, OpTime, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Instant;

#[derive(Default)]
struct State {
    commit_point: OpTime,
    /// By what is waited for, and by the order of coming.
    waiting: BTreeMap<(OpTime, u64), Arc<Waiter>>,
    sequence: u64,
}

struct Waiter {
    thread: Thread,
    outcome: Mutex<Option<Result<()>>>,
}

impl Waiter {
    fn tell(&self, outcome: Result<()>) {
        *self.outcome.lock() = Some(outcome);
        self.thread.unpark();
    }
}

/// See the file's header.
#[derive(Default)]
pub struct Waiters {
    state: Mutex<State>,
    /// Changes under the state's lock, so that who has that sees it stand still.
    era: AtomicU64,
}

impl Waiters {
    /// The last entry that is known to be committed.
    pub fn commit_point(&self) -> OpTime {
        self.state.lock().commit_point
    }

    /// The present era: to be asked for before anything is read or written that [`Self::await_majority`] is to speak of.
    pub fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// Waits until a majority has everything up to `optime`, or `until`. `interrupted` is asked now and then.
    ///
    /// # Errors
    /// `WriteConcernTimeout` (64) when the time is up; what `interrupted` says; `PrimarySteppedDown` (189) if that happened since
    /// `era`, `InterruptedDueToReplStateChange` (11602) if there was a rollback.
    pub fn await_majority(
        &self,
        era: u64,
        optime: OpTime,
        until: Option<Instant>,
        mut interrupted: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        /// A killed waiter notices within this time.
        const SLICE: std::time::Duration = std::time::Duration::from_millis(100);
        let waiter = Arc::new(Waiter { thread: std::thread::current(), outcome: Mutex::new(None) });
        let key = {
            let mut state = self.state.lock();
            if self.era() != era {
                return Err(Error::new(
                    ErrorCode::PrimarySteppedDown,
                    "This member's part in the set has changed since the operation began",
                ));
            }
            if state.commit_point >= optime {
                return Ok(());
            }
            state.sequence += 1;
            let key = (optime, state.sequence);
            state.waiting.insert(key, Arc::clone(&waiter));
            key
        };
        loop {
            if let Some(outcome) = waiter.outcome.lock().take() {
                return outcome;
            }
            let now = Instant::now();
            let over = match until {
                Some(until) if until <= now => {
                    Err(Error::new(ErrorCode::WriteConcernFailed, "waiting for replication timed out"))
                }
                _ => interrupted(),
            };
            if let Err(error) = over {
                self.state.lock().waiting.remove(&key);
                // It may have been told in that very moment.
                return waiter.outcome.lock().take().unwrap_or(Err(error));
            }
            let slice = until.map_or(SLICE, |until| SLICE.min(until - now));
            std::thread::park_timeout(slice);
        }
    }

    pub(crate) fn committed(&self, optime: OpTime) {
        let done = {
            let mut state = self.state.lock();
            if optime <= state.commit_point {
                return;
            }
            state.commit_point = optime;
            let later = state.waiting.split_off(&(optime, u64::MAX));
            std::mem::replace(&mut state.waiting, later)
        };
        for waiter in done.values() {
            waiter.tell(Ok(()));
        }
    }

    /// Ends the era.
    pub(crate) fn fail_all(&self, error: &Error) {
        let waiting = {
            let mut state = self.state.lock();
            self.era.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut state.waiting)
        };
        for waiter in waiting.values() {
            waiter.tell(Err(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::Timestamp;
    use std::time::Duration;

    fn at(increment: u32) -> OpTime {
        OpTime { term: 1, timestamp: Timestamp { seconds: 1, increment } }
    }

    #[test]
    fn a_waiter_is_told_of_its_entry_and_not_of_earlier_ones() {
        let waiters = Arc::new(Waiters::default());
        let waiting = {
            let waiters = Arc::clone(&waiters);
            std::thread::spawn(move || {
                waiters.await_majority(0, at(5), None, || Ok(())).map(|()| waiters.commit_point())
            })
        };
        waiters.committed(at(4));
        waiters.committed(at(5));
        assert_eq!(waiting.join().unwrap().unwrap(), at(5));
        waiters.await_majority(0, at(3), None, || Ok(())).unwrap();
    }

    #[test]
    fn a_time_limit_and_a_step_down_end_the_wait_and_leave_nothing() {
        let waiters = Arc::new(Waiters::default());
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(waiters.await_majority(0, at(1), soon, || Ok(())).unwrap_err().code, ErrorCode::WriteConcernFailed);
        assert!(waiters.state.lock().waiting.is_empty());
        let waiting = {
            let waiters = Arc::clone(&waiters);
            std::thread::spawn(move || waiters.await_majority(0, at(1), None, || Ok(())))
        };
        while waiters.state.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        waiters.fail_all(&Error::new(ErrorCode::PrimarySteppedDown, "stepped down"));
        assert_eq!(waiting.join().unwrap().unwrap_err().code, ErrorCode::PrimarySteppedDown);
    }
    #[test]
    fn what_was_written_before_a_step_down_is_not_taken_for_committed_after_it() {
        let waiters = Waiters::default();
        let era = waiters.era();
        // Written here; then this member stepped down and rolled back, and a later term's entry is committed.
        waiters.fail_all(&Error::new(ErrorCode::PrimarySteppedDown, "stepped down"));
        waiters.committed(OpTime { term: 2, ..at(9) });
        let told = waiters.await_majority(era, at(5), None, || Ok(())).unwrap_err();
        assert_eq!(told.code, ErrorCode::PrimarySteppedDown);
        waiters.await_majority(waiters.era(), at(5), None, || Ok(())).unwrap();
    }
}
