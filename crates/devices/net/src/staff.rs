//! How many threads serve connections in turns, and who takes the place of one that waits.
//!
//! A *worker* is at work, or has been relieved: what it does takes long, and until that is done another is at work in its place. One whose
//! long work is done goes back to work if a place is free, and is a spare for a while otherwise.
//!
//! Invariants:
//! - Whenever no worker waits for events there are as many at work as are wanted, or somebody is about to see to that: he who began to work
//!   last, or he who was relieved last.
//! - No more are at work than are wanted.
//! - A spare that is called goes to work; one that nobody calls ends.
//!
//! What it does not do: start threads, or notice who takes long.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long a spare waits to be called.
const SPARE_FOR: Duration = Duration::from_secs(5);

/// Who is to take a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hired {
    /// Nobody: enough are at work.
    Nobody,
    /// A spare, who has been called.
    Spare,
    /// A thread that the caller is to start.
    New,
}

#[derive(Default)]
struct State {
    /// The threads that there are.
    living: usize,
    /// Those that wait to be called, the last of them first.
    spares: Vec<(u64, Arc<Condvar>)>,
    next_spare: u64,
    is_over: bool,
}

/// See the file's header.
pub(crate) struct Staff {
    wanted: usize,
    at_work: AtomicUsize,
    /// Those at work that wait for events.
    idle: AtomicUsize,
    state: Mutex<State>,
    /// Signalled when a thread ends.
    ended: Condvar,
}

impl Staff {
    /// Nobody is there yet.
    pub fn new(wanted: usize) -> Self {
        Self {
            wanted,
            at_work: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Whether somebody waits for events.
    pub fn has_idle(&self) -> bool {
        self.idle.load(SeqCst) > 0
    }

    /// The calling worker waits for events from now on.
    pub fn waits(&self) {
        self.idle.fetch_add(1, SeqCst);
    }

    /// It has waited. Whether it is to see to it that others are hired.
    pub fn works(&self) -> bool {
        self.idle.fetch_sub(1, SeqCst) == 1 && self.is_short()
    }

    /// A worker has been relieved. Whether the caller is to see to it that others are hired.
    pub fn is_relieved(&self) -> bool {
        self.at_work.fetch_sub(1, SeqCst);
        self.is_short()
    }

    /// Whether nobody waits for events, and fewer than are wanted are at work.
    pub fn is_short(&self) -> bool {
        self.at_work.load(SeqCst) < self.wanted && !self.has_idle()
    }

    /// Fills a place, if one is free and nobody waits for events.
    pub fn hire(&self) -> Hired {
        let mut state = self.state.lock();
        if state.is_over || !self.is_short() || !self.take_place() {
            return Hired::Nobody;
        }
        match state.spares.pop() {
            Some((_, called)) => {
                called.notify_one();
                Hired::Spare
            }
            None => {
                state.living += 1;
                Hired::New
            }
        }
    }

    /// The thread that was to be started could not be.
    pub fn is_not_started(&self) {
        self.at_work.fetch_sub(1, SeqCst);
        self.ends();
    }

    /// A worker that was relieved has done its work: whether it is at work again, at once or after a while as a spare. If not it ends.
    pub fn comes_back(&self) -> bool {
        let mut state = self.state.lock();
        if state.is_over {
            return false;
        }
        if self.take_place() {
            return true;
        }
        let (number, called) = (state.next_spare, Arc::new(Condvar::new()));
        state.next_spare += 1;
        state.spares.push((number, Arc::clone(&called)));
        let until = Instant::now() + SPARE_FOR;
        loop {
            let is_late = called.wait_until(&mut state, until).timed_out();
            let place = state.spares.iter().position(|spare| spare.0 == number);
            match place {
                None => return true,
                Some(place) if is_late || state.is_over => {
                    state.spares.remove(place);
                    return false;
                }
                Some(_) => {}
            }
        }
    }

    /// A worker at work ends.
    pub fn leaves_work(&self) {
        self.at_work.fetch_sub(1, SeqCst);
    }

    /// A thread ends.
    pub fn ends(&self) {
        self.state.lock().living -= 1;
        self.ended.notify_all();
    }

    /// From now on nobody is hired, and spares end.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        for (_, called) in &state.spares {
            called.notify_one();
        }
    }

    /// Waits until no thread is left; whether that is so.
    pub fn is_gone(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.living > 0 {
            if self.ended.wait_until(&mut state, until).timed_out() {
                return state.living == 0;
            }
        }
        true
    }

    fn take_place(&self) -> bool {
        let more = |at_work| (at_work < self.wanted).then_some(at_work + 1);
        self.at_work.fetch_update(SeqCst, SeqCst, more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_work(count: usize) -> Staff {
        let staff = Staff::new(count);
        (0..count).for_each(|_| assert_eq!(staff.hire(), Hired::New));
        assert_eq!(staff.hire(), Hired::Nobody);
        staff
    }

    #[test]
    fn who_is_relieved_is_replaced_unless_somebody_waits_for_events() {
        let staff = at_work(2);
        staff.waits();
        assert!(!staff.is_relieved(), "the other one waits for events");
        assert_eq!(staff.hire(), Hired::Nobody);
        assert!(staff.works(), "now nobody does, and one is missing");
        assert_eq!(staff.hire(), Hired::New);
        assert_eq!(staff.hire(), Hired::Nobody);
    }

    #[test]
    fn who_comes_back_takes_a_free_place_or_is_a_spare_until_he_is_called() {
        let staff = at_work(2);
        assert!(staff.is_relieved());
        assert!(staff.comes_back(), "his place is free still");
        assert!(staff.is_relieved());
        assert_eq!(staff.hire(), Hired::New);
        std::thread::scope(|scope| {
            let spare = scope.spawn(|| staff.comes_back());
            while staff.state.lock().spares.is_empty() {
                std::thread::yield_now();
            }
            assert!(staff.is_relieved());
            assert_eq!(staff.hire(), Hired::Spare);
            assert!(spare.join().is_ok_and(|is_at_work| is_at_work));
        });
    }

    #[test]
    fn at_the_end_nobody_is_hired_and_spares_end() {
        let staff = at_work(1);
        assert!(staff.is_relieved());
        assert_eq!(staff.hire(), Hired::New);
        std::thread::scope(|scope| {
            let spare = scope.spawn(|| {
                let is_at_work = staff.comes_back();
                staff.ends();
                is_at_work
            });
            while staff.state.lock().spares.is_empty() {
                std::thread::yield_now();
            }
            staff.stop();
            assert!(spare.join().is_ok_and(|is_at_work| !is_at_work));
        });
        assert!(staff.is_relieved());
        assert_eq!(staff.hire(), Hired::Nobody);
        assert!(!staff.is_gone(Instant::now()), "one lives still");
        staff.ends();
        assert!(staff.is_gone(Instant::now()));
    }

    #[test]
    fn a_thread_that_cannot_be_started_leaves_its_place_free() {
        let staff = at_work(1);
        assert!(staff.is_relieved());
        assert_eq!(staff.hire(), Hired::New);
        staff.is_not_started();
        assert!(staff.is_short());
        assert_eq!(staff.hire(), Hired::New);
    }
}
