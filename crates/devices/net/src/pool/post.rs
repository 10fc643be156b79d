//! What a worker is at, as others see it: the turn's number, whether it is in it, whether it has been relieved, and what it left undone.
//!
//! Invariants: of all who would relieve a worker in the turn in which they saw it one does, none once that is over, and the worker learns of it
//! at the turn's end. What is undone is settled once: by the worker, or by whoever relieved it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

const IN_TURN: u64 = 1;
const RELIEVED: u64 = 2;
const TURN: u64 = 4;

/// What a worker was at in one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Seen {
    /// Whether it is in a turn, and has not been relieved.
    pub fn can_be_relieved(self) -> bool {
        self.0 & (IN_TURN | RELIEVED) == IN_TURN
    }
}

/// See the file's header.
#[derive(Default)]
pub(super) struct Post {
    state: AtomicU64,
    /// What the watch saw last.
    seen: AtomicU64,
    /// The turns since something was left undone, that one included; 0, if nothing is.
    undone: AtomicU32,
}

impl Post {
    pub fn begin_turn(&self) {
        self.state.fetch_or(IN_TURN, SeqCst);
    }

    /// Whether the worker was relieved meanwhile.
    pub fn end_turn(&self) -> bool {
        let next = (self.state.load(SeqCst) & !(IN_TURN | RELIEVED)).wrapping_add(TURN);
        self.state.swap(next, SeqCst) & RELIEVED != 0
    }

    pub fn see(&self) -> Seen {
        Seen(self.state.load(SeqCst))
    }

    /// What the watch sees, and whether it saw the same at its last look.
    pub fn look(&self) -> (Seen, bool) {
        let seen = self.see();
        (seen, self.seen.swap(seen.0, Relaxed) == seen.0)
    }

    /// Whether the worker is relieved by this, in the turn in which it was seen.
    pub fn relieve(&self, seen: Seen) -> bool {
        seen.can_be_relieved() && self.state.compare_exchange(seen.0, seen.0 | RELIEVED, SeqCst, SeqCst).is_ok()
    }

    /// A turn is over that left something undone, or that came after one that did.
    pub fn note_turn(&self, owes: bool) {
        if owes || self.undone() > 0 {
            self.undone.fetch_add(1, SeqCst);
        }
    }

    /// The turns since something was left undone, that one included; 0, if nothing is.
    pub fn undone(&self) -> u32 {
        self.undone.load(SeqCst)
    }

    /// Whoever calls this does what is undone from now on; whether anything is.
    pub fn take_undone(&self) -> bool {
        self.undone.swap(0, SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_relieved_once_and_only_in_the_turn_in_which_it_was_seen() {
        let post = Post::default();
        assert!(!post.relieve(post.see()), "it is in no turn");
        post.begin_turn();
        let seen = post.see();
        assert!(post.relieve(seen) && !post.relieve(seen) && !post.relieve(post.see()));
        assert!(post.end_turn() && !post.end_turn());
        post.begin_turn();
        assert!(!post.relieve(seen), "this is another turn");
        assert!(!post.end_turn());
    }

    #[test]
    fn the_watch_sees_who_is_at_the_same_turn_as_before() {
        let post = Post::default();
        let looks = || post.look().1;
        post.begin_turn();
        assert_eq!((looks(), looks()), (false, true));
        post.end_turn();
        post.begin_turn();
        assert_eq!((looks(), looks()), (false, true));
    }

    #[test]
    fn what_is_undone_is_counted_from_the_turn_that_left_it_on_and_taken_once() {
        let post = Post::default();
        post.note_turn(false);
        assert!(post.undone() == 0 && !post.take_undone());
        post.note_turn(true);
        post.note_turn(false);
        assert_eq!(post.undone(), 2);
        assert!(post.take_undone() && !post.take_undone());
    }
}
