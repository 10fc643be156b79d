//! Those who wait for certain members to have a write: any write concern but a majority, which [`crate::waiters`] serve.
//!
//! Invariants: whoever waits is looked at when it comes and whenever the driver has stepped, and told as soon as its demand is met;
//! nobody waits beyond this member's time as primary in the term of the write; a wait that is over leaves nothing behind.

use baton_consensus::{Consensus, Demand};
use baton_types::{Error, ErrorCode, OpTime, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// One that waits.
struct Waiter {
    demand: Demand,
    optime: OpTime,
    durable: bool,
    thread: Thread,
    outcome: Mutex<Option<Result<()>>>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, Arc<Waiter>>,
    sequence: u64,
}

/// See the file's header.
#[derive(Default)]
pub(crate) struct Acknowledgements {
    state: Mutex<State>,
    /// How many wait, so that a driver for whom nobody waits takes no lock.
    count: AtomicUsize,
}

/// What is said to those who wait when this member is primary no more.
pub(crate) fn stepped_down() -> Error {
    Error::new(ErrorCode::PrimarySteppedDown, "Primary stepped down while waiting for replication")
}

impl Acknowledgements {
    /// Waits until `demand` is met, or `until`. `come` tells the driver to [`Self::look`]; `interrupted` is asked now and then.
    pub fn wait(
        &self,
        demand: Demand,
        optime: OpTime,
        durable: bool,
        until: Option<Instant>,
        come: impl FnOnce(),
        mut interrupted: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        /// A killed waiter notices within this time.
        const SLICE: Duration = Duration::from_millis(100);
        let thread = std::thread::current();
        let waiter = Arc::new(Waiter { demand, optime, durable, thread, outcome: Mutex::new(None) });
        let key = {
            let mut state = self.state.lock();
            state.sequence += 1;
            let key = state.sequence;
            state.waiting.insert(key, Arc::clone(&waiter));
            self.count.store(state.waiting.len(), Ordering::Release);
            key
        };
        come();
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
                let mut state = self.state.lock();
                state.waiting.remove(&key);
                self.count.store(state.waiting.len(), Ordering::Release);
                drop(state);
                // It may have been told in that very moment.
                return waiter.outcome.lock().take().unwrap_or(Err(error));
            }
            std::thread::park_timeout(until.map_or(SLICE, |until| SLICE.min(until - now)));
        }
    }

    /// Tells those whose demand is met, and those who wait in vain. For the driver, whenever it has stepped.
    pub fn look(&self, consensus: &Consensus) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let term = consensus.leading_term();
        let mut state = self.state.lock();
        state.waiting.retain(|_, waiter| {
            let outcome = if term != Some(waiter.optime.term) {
                Err(stepped_down())
            } else if consensus.is_acknowledged(&waiter.demand, waiter.optime, waiter.durable) {
                Ok(())
            } else {
                return true;
            };
            *waiter.outcome.lock() = Some(outcome);
            waiter.thread.unpark();
            false
        });
        self.count.store(state.waiting.len(), Ordering::Release);
    }

    /// Tells all of them that there is nothing to wait for.
    pub fn fail_all(&self, error: &Error) {
        let waiting = {
            let mut state = self.state.lock();
            self.count.store(0, Ordering::Release);
            std::mem::take(&mut state.waiting)
        };
        for waiter in waiting.values() {
            *waiter.outcome.lock() = Some(Err(error.clone()));
            waiter.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_and_the_end_of_a_term_end_the_wait_and_leave_nothing() {
        let acknowledgements = Arc::new(Acknowledgements::default());
        let soon = Some(Instant::now() + Duration::from_millis(5));
        let wait = |acknowledgements: &Acknowledgements, until| {
            acknowledgements.wait(Demand::Members(2), OpTime::ZERO, false, until, || (), || Ok(()))
        };
        assert_eq!(wait(&acknowledgements, soon).unwrap_err().code, ErrorCode::WriteConcernFailed);
        assert_eq!(acknowledgements.count.load(Ordering::Acquire), 0);
        let waiting = {
            let acknowledgements = Arc::clone(&acknowledgements);
            std::thread::spawn(move || wait(&acknowledgements, None))
        };
        while acknowledgements.count.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        acknowledgements.fail_all(&stepped_down());
        assert_eq!(waiting.join().unwrap().unwrap_err().code, ErrorCode::PrimarySteppedDown);
    }
}
