//! The end of connections that have no thread of their own: one thread drops them, one after the other.
//!
//! Ten thousand clients may hang up at once, as the processes of an application that is restarted. If the threads that serve
//! connections dropped them, those who work would wait behind them, so there is one for all. It has the part of the processors that one client has who never
//! waits, and long slices: a client's thread that wakes up takes the processor from it. It has no smaller part, though nobody waits for it:
//! dropping a handler takes locks that clients take, and gives back what others may wait for, a task's end or a place among the
//! connections that the limit allows. A tenth of a client's part, as threads of the background have, would make minutes of seconds where
//! hundreds of clients keep the processors busy. Each connection takes it some twenty microseconds: ten thousand are gone within half a
//! second on a machine that has time, and within seconds beside sixty-four clients that leave it none. What cannot wait for so long belongs
//! to connections that [keep their threads](crate::Handler::keeps_thread), and are dropped by those.
//!
//! Invariants: what comes is dropped, in the order in which it comes; the thread ends when nobody can send any more and all is dropped.
//! What it does not do: end connections that have a thread of their own, or whose handler panicked.

use crate::pool::Seated;
use baton_machine::keep_long_slices;
use baton_types::must_not_unwind;
use std::sync::mpsc::Receiver;

/// Drops what comes, until nobody can send any more.
pub(crate) fn drop_all(ended: &Receiver<Box<dyn Seated>>) {
    // Whoever comes later would never end.
    let _guard = must_not_unwind("ending connections");
    keep_long_slices();
    ended.iter().for_each(drop);
}
