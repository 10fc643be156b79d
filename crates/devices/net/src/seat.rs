//! Where a connection is that has no thread of its own: it waits for its client, or is ready to be served, or somebody serves it.
//!
//! ```text
//!    waits ── news ──▶ ready ── take ──▶ served ── give back ──▶ waits
//!                        ▲                  └─ there was news, or is more ─▶ ready
//!                        └──────────────────────────────┘
//! ```
//!
//! Invariants: at every moment it is served by one thread at the most; news that comes while it is served is not lost; who is told that it
//! has become ready is told once, and puts it into the row of those that are. News of one that is ready already is not told: whoever takes it
//! finds what has come, and gives it back as one of which there is more until he has looked.
//! What it does not do: wait, or serve.

use parking_lot::Mutex;

enum State<C> {
    Waits(C),
    Ready(C),
    Served { has_news: bool },
    Left,
}

/// See the file's header.
pub(crate) struct Seat<C>(Mutex<State<C>>);

impl<C> Seat<C> {
    /// It waits for its client.
    pub fn new(connection: C) -> Self {
        Self(Mutex::new(State::Waits(connection)))
    }

    /// The client has sent something, or is gone. Whether it is ready now, and was not before.
    pub fn tell_news(&self) -> bool {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Left) {
            State::Waits(connection) => {
                *state = State::Ready(connection);
                true
            }
            State::Served { .. } => {
                *state = State::Served { has_news: true };
                false
            }
            before @ (State::Ready(_) | State::Left) => {
                *state = before;
                false
            }
        }
    }

    /// The calling thread serves it from now on, if it is ready.
    pub fn take(&self) -> Option<C> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Served { has_news: false }) {
            State::Ready(connection) => Some(connection),
            before => {
                *state = before;
                None
            }
        }
    }

    /// It has been served. Whether it is ready again: there was news meanwhile, or there is more to be served.
    pub fn give_back(&self, connection: C, is_more: bool) -> bool {
        let mut state = self.0.lock();
        let is_ready = is_more || matches!(*state, State::Served { has_news: true });
        *state = if is_ready { State::Ready(connection) } else { State::Waits(connection) };
        is_ready
    }

    /// Whoever serves it takes it away for good.
    pub fn leave(&self) {
        *self.0.lock() = State::Left;
    }

    /// Takes it away for good if it waits, and is to be taken.
    pub fn take_away_if(&self, is_to_be: impl FnOnce(&C) -> bool) -> Option<C> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Left) {
            State::Waits(connection) if is_to_be(&connection) => Some(connection),
            before => {
                *state = before;
                None
            }
        }
    }

    /// Does something with it if it waits; it goes on waiting.
    pub fn while_it_waits(&self, work: impl FnOnce(&mut C)) {
        if let State::Waits(connection) = &mut *self.0.lock() {
            work(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_becomes_ready_once_and_is_served_by_one() {
        let seat = Seat::new(7);
        assert!(seat.take().is_none(), "it is not ready");
        assert!(seat.tell_news());
        assert!(!seat.tell_news(), "it is ready already");
        assert_eq!(seat.take(), Some(7));
        assert!(seat.take().is_none(), "it is served");
        assert!(!seat.give_back(7, false));
        assert!(seat.take().is_none(), "nothing has come");
    }

    #[test]
    fn news_while_it_is_served_makes_it_ready_again() {
        let seat = Seat::new(7);
        assert!(seat.tell_news());
        assert_eq!(seat.take(), Some(7));
        assert!(!seat.tell_news(), "whoever serves it gives it back");
        assert!(seat.give_back(7, false));
        assert_eq!(seat.take(), Some(7));
        assert!(seat.give_back(7, true), "there is more");
        assert_eq!(seat.take(), Some(7));
        assert!(!seat.give_back(7, false), "each news counts once");
    }

    #[test]
    fn it_is_taken_away_and_touched_only_while_it_waits() {
        let seat = Seat::new(7);
        seat.while_it_waits(|seven| *seven = 8);
        assert!(seat.take_away_if(|eight| *eight != 8).is_none());
        assert!(seat.tell_news());
        seat.while_it_waits(|_| panic!("it is ready"));
        assert!(seat.take_away_if(|_| true).is_none());
        let eight = seat.take().unwrap_or_default();
        assert!(!seat.give_back(eight, false));
        assert_eq!(seat.take_away_if(|_| true), Some(8));
        assert!(!seat.tell_news());
        assert!(seat.take().is_none());
    }
}
