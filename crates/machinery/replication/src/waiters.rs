//! Those who wait for the set to acknowledge a write.
//!
//! Each waits for one OpTime and is woken when it is committed, so that many who wait do not wake for each other; or has left what is to be
//! done then ([`Waiters::when_majority`]), which whoever brings the news does.
//!
//! That the set has committed as much does not say that it has committed *this*: a member that stepped down may have rolled it
//! back, and then others' entries of a later term are committed. So time is cut into eras, which end when this member ceases to
//! be primary and when it rolls back; a request notes the era before it reads or writes, and waits in that era only.
//!
//! Invariants: nobody waits for what is committed already; whoever waits is told, at the latest when the era ends, and is never
//! told that something is committed that was read or written in an earlier era; a wait that is over leaves nothing behind.

use baton_types::{Class, Error, ErrorCode, OpTime, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A killed waiter notices within this time.
const SLICE: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    commit_point: OpTime,
    /// By what is waited for, and by the order of coming.
    waiting: BTreeMap<(OpTime, u64), Waiting>,
    sequence: u64,
}

struct Waiter {
    thread: Thread,
    outcome: Mutex<Option<Result<()>>>,
}

/// Whoever has left a wait to others.
pub trait Waits: Send {
    /// Asked now and then whether it is to go on.
    ///
    /// # Errors
    /// Why not: the wait ends with that.
    fn check(&self) -> Result<()>;

    /// The wait has ended. It is called by who brings the news to all: it is quick, and does not wait.
    fn ended(self: Box<Self>, outcome: Result<()>);
}

/// A wait that somebody has left.
pub struct Left {
    /// Of whoever waits: the most urgent are told first.
    pub class: Class,
    /// When it is over in any case.
    pub until: Option<Instant>,
    /// Whose it is.
    pub of: Box<dyn Waits>,
}

enum Waiting {
    Here(Arc<Waiter>),
    Left(Left),
}

impl Waiting {
    /// Whose thread is there is only woken, which is soon done.
    fn class(&self) -> Class {
        match self {
            Self::Here(_) => Class::Normal,
            Self::Left(left) => left.class,
        }
    }

    fn tell(self, outcome: Result<()>) {
        match self {
            Self::Here(waiter) => {
                *waiter.outcome.lock() = Some(outcome);
                waiter.thread.unpark();
            }
            Self::Left(left) => left.of.ended(outcome),
        }
    }
}

fn timed_out() -> Error {
    Error::new(ErrorCode::WriteConcernFailed, "waiting for replication timed out")
}

/// See the file's header.
#[derive(Default)]
pub struct Waiters {
    state: Mutex<State>,
    /// Changes under the state's lock, so that who has that sees it stand still.
    era: AtomicU64,
    /// Signalled when somebody has left a wait that has an end.
    sooner: Condvar,
    /// Waits that have ended, whom nobody has told yet.
    ended: Mutex<Vec<(Waiting, Result<()>)>>,
    has_ended: AtomicBool,
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
        let waiter = Arc::new(Waiter { thread: std::thread::current(), outcome: Mutex::new(None) });
        let key = match self.enter(era, optime, Waiting::Here(Arc::clone(&waiter))) {
            Ok(key) => key,
            Err((outcome, _)) => return outcome,
        };
        loop {
            if let Some(outcome) = waiter.outcome.lock().take() {
                return outcome;
            }
            let now = Instant::now();
            let over = match until {
                Some(until) if until <= now => Err(timed_out()),
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

    /// Has `left` wait until a majority has everything up to `optime`. How that ends it is told with the errors of
    /// [`Self::await_majority`]: by this thread, if it is known already.
    pub fn when_majority(&self, era: u64, optime: OpTime, left: Left) {
        let until = left.until;
        match self.enter(era, optime, Waiting::Left(left)) {
            Ok(_) if until.is_some() => {
                self.sooner.notify_one();
            }
            Ok(_) => {}
            Err((outcome, waiting)) => waiting.tell(outcome),
        }
    }

    /// Begins a wait; or gives it back, with how it ends.
    fn enter(&self, era: u64, optime: OpTime, waiting: Waiting) -> Result<(OpTime, u64), (Result<()>, Waiting)> {
        let mut state = self.state.lock();
        if self.era() != era {
            let message = "This member's part in the set has changed since the operation began";
            return Err((Err(Error::new(ErrorCode::PrimarySteppedDown, message)), waiting));
        }
        if state.commit_point >= optime {
            return Err((Ok(()), waiting));
        }
        state.sequence += 1;
        let key = (optime, state.sequence);
        state.waiting.insert(key, waiting);
        Ok(key)
    }

    /// Ends the waits that were left and are over, by their time or because they are interrupted, for that long. For one thread, that
    /// has nothing else to do.
    pub fn tend(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            if now >= end {
                return;
            }
            let (mut over, mut next) = (Vec::new(), end);
            for (key, waiting) in &state.waiting {
                let Waiting::Left(left) = waiting else { continue };
                next = next.min(now + SLICE);
                match left.until {
                    Some(until) if until <= now => over.push((*key, timed_out())),
                    until => {
                        next = until.map_or(next, |until| next.min(until));
                        over.extend(left.of.check().err().map(|error| (*key, error)));
                    }
                }
            }
            let over: Vec<_> =
                over.into_iter().filter_map(|(key, error)| Some((state.waiting.remove(&key)?, error))).collect();
            if over.is_empty() {
                self.sooner.wait_until(&mut state, next);
            } else {
                MutexGuard::unlocked(&mut state, || {
                    over.into_iter().for_each(|(waiting, error)| waiting.tell(Err(error)));
                });
            }
        }
    }

    /// Ends the waits for what is committed now; [`Self::tell`] tells them.
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
        self.end(done.into_values(), &Ok(()));
    }

    /// Ends the era, and every wait; [`Self::tell`] tells them.
    pub(crate) fn fail_all(&self, error: &Error) {
        let waiting = {
            let mut state = self.state.lock();
            self.era.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut state.waiting)
        };
        self.end(waiting.into_values(), &Err(error.clone()));
    }

    fn end(&self, waits: impl ExactSizeIterator<Item = Waiting>, outcome: &Result<()>) {
        if waits.len() > 0 {
            self.ended.lock().extend(waits.map(|waiting| (waiting, outcome.clone())));
            self.has_ended.store(true, Ordering::Release);
        }
    }

    /// Tells those whose waits have ended. Where no lock is held that others want: much may come of it.
    pub(crate) fn tell(&self) {
        if self.has_ended.swap(false, Ordering::AcqRel) {
            let mut ended = std::mem::take(&mut *self.ended.lock());
            ended.sort_by_key(|(waiting, _)| Reverse(waiting.class()));
            ended.into_iter().for_each(|(waiting, outcome)| waiting.tell(outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::Timestamp;

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
        waiters.tell();
        waiters.committed(at(5));
        waiters.tell();
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
        waiters.tell();
        assert_eq!(waiting.join().unwrap().unwrap_err().code, ErrorCode::PrimarySteppedDown);
    }

    /// Passes on what it is told.
    struct Passes<F: FnOnce(Result<()>) + Send> {
        is_killed: bool,
        then: F,
    }

    impl<F: FnOnce(Result<()>) + Send> Waits for Passes<F> {
        fn check(&self) -> Result<()> {
            if self.is_killed { Err(Error::new(ErrorCode::Interrupted, "killed")) } else { Ok(()) }
        }

        fn ended(self: Box<Self>, outcome: Result<()>) {
            (self.then)(outcome);
        }
    }

    /// A wait that is left; what it is told comes here.
    fn left(until: Option<Instant>, is_killed: bool) -> (Left, std::sync::mpsc::Receiver<Result<()>>) {
        let (told, outcome) = std::sync::mpsc::channel();
        let then = move |outcome| told.send(outcome).unwrap();
        (Left { class: Class::Normal, until, of: Box::new(Passes { is_killed, then }) }, outcome)
    }

    #[test]
    fn of_those_who_have_left_the_most_urgent_are_told_first() {
        let waiters = Waiters::default();
        let (told, order) = std::sync::mpsc::channel();
        let classes = [Class::Low, Class::High, Class::Normal, Class::High];
        for (place, class) in (1_u32..).zip(classes) {
            let told = told.clone();
            let then = move |outcome: Result<()>| told.send((outcome.is_ok(), place)).unwrap();
            let left = Left { class, until: None, of: Box::new(Passes { is_killed: false, then }) };
            waiters.when_majority(0, at(place), left);
        }
        waiters.committed(at(3));
        waiters.tell();
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [(true, 2), (true, 3), (true, 1)]);
        waiters.committed(at(4));
        waiters.tell();
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [(true, 4)]);
    }

    #[test]
    fn a_wait_that_was_left_is_told_once_however_it_ends() {
        let waiters = Waiters::default();
        let code = |outcome: &std::sync::mpsc::Receiver<Result<()>>| outcome.try_recv().unwrap().err().map(|e| e.code);
        let (committed, of_committed) = left(None, false);
        waiters.when_majority(0, at(5), committed);
        waiters.committed(at(4));
        waiters.tell();
        assert!(of_committed.try_recv().is_err(), "an earlier entry is not this one");
        waiters.committed(at(5));
        waiters.tell();
        assert_eq!(code(&of_committed), None);
        let (known, of_known) = left(None, false);
        waiters.when_majority(0, at(3), known);
        assert_eq!(code(&of_known), None);
        // Its time, and an interruption, are noticed by who tends them.
        let (late, of_late) = left(Some(Instant::now() + Duration::from_millis(5)), false);
        let (killed, of_killed) = left(None, true);
        waiters.when_majority(0, at(9), late);
        waiters.when_majority(0, at(9), killed);
        waiters.tend(Duration::from_millis(50));
        assert_eq!(
            (code(&of_late), code(&of_killed)),
            (Some(ErrorCode::WriteConcernFailed), Some(ErrorCode::Interrupted))
        );
        let (deposed, of_deposed) = left(None, false);
        waiters.when_majority(0, at(9), deposed);
        waiters.fail_all(&Error::new(ErrorCode::PrimarySteppedDown, "stepped down"));
        waiters.tell();
        let (of_an_earlier_era, told) = left(None, false);
        waiters.when_majority(0, at(3), of_an_earlier_era);
        let stepped_down = Some(ErrorCode::PrimarySteppedDown);
        assert_eq!((code(&of_deposed), code(&told)), (stepped_down, stepped_down));
        waiters.committed(at(20));
        waiters.tell();
        assert!(waiters.state.lock().waiting.is_empty());
        assert!([of_committed, of_known, of_late, of_killed, of_deposed, told].iter().all(|of| of.try_recv().is_err()));
    }

    #[test]
    fn what_was_written_before_a_step_down_is_not_taken_for_committed_after_it() {
        let waiters = Waiters::default();
        let era = waiters.era();
        // Written here; then this member stepped down and rolled back, and a later term's entry is committed.
        waiters.fail_all(&Error::new(ErrorCode::PrimarySteppedDown, "stepped down"));
        waiters.tell();
        waiters.committed(OpTime { term: 2, ..at(9) });
        waiters.tell();
        let told = waiters.await_majority(era, at(5), None, || Ok(())).unwrap_err();
        assert_eq!(told.code, ErrorCode::PrimarySteppedDown);
        waiters.await_majority(waiters.era(), at(5), None, || Ok(())).unwrap();
    }
}
