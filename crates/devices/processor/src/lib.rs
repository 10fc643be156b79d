//! How much of the processors a thread has, beside the others: its niceness, its slices, and whether there is anything left.
//!
//! Where to look: [`niceness`] for requests by their class, [`background`] for threads that nobody waits for, [`slices`] for who
//! computes for long, [`Idleness`] for what of the processors nobody used.
//!
//! Invariant: every function here is about the calling thread alone, but for [`Bearer::lend`].
//! What it deliberately does not do: decide. Who is of which class, and who may begin, is `baton_admission`'s.

mod background;
mod idleness;
mod lending;
mod niceness;
mod slices;
mod thread_time;

pub use background::{work_when_idle, yield_to_clients};
pub use idleness::Idleness;
pub use lending::{LendingGuard, LendingMutex};
pub use niceness::{Bearer, Loan, Right, as_class, at_most_as_nice_as, bearer, inheritances, niceness, right};
pub use slices::{has_long_slices, keep_long_slices, take_long_slices, take_usual_slices};
pub use thread_time::ThreadTime;
