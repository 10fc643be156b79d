//! The end of connections that rest: one thread drops them, one after the other.
//!
//! Ten thousand clients may hang up at once, as the processes of an application that is restarted. A thread for each of their connections
//! would keep those who work from the processors for seconds, so there is one for all, and it yields to clients: while the processors are
//! busy it has a tenth of a client's part. It has no less than that, because dropping a handler takes locks that clients take, and gives
//! back what others may wait for: cursors, tasks that it was begun for, its place among the connections that the limit allows. All of that
//! is given back within microseconds of the hang-up as a rule, and within seconds when ten thousand hang up at a busy member. What holds
//! more than that [keeps its thread](crate::Handler::keeps_thread), and is dropped by it.
//!
//! Invariants: what comes is dropped, in the order in which it comes; the thread ends when nobody can send any more and all is dropped.
//! What it does not do: end connections that a thread serves.

use crate::resting::Rests;
use baton_machine::yield_to_clients;
use baton_types::must_not_unwind;
use std::sync::mpsc::Receiver;

/// Drops what comes, until nobody can send any more.
pub(crate) fn drop_all(ended: &Receiver<Box<dyn Rests>>) {
    // Whoever comes later would never end.
    let _guard = must_not_unwind("ending connections that rest");
    yield_to_clients();
    ended.iter().for_each(drop);
}
