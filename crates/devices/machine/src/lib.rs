//! What this machine has, what of it the process may use and has used, and how much of the processors a thread has beside the others.
//!
//! Where to look: [`host`] for what there is, [`Limits`] and [`memory_limit_bytes`] for what this process may have of it, [`Usage`] and
//! [`Spent`] for what it has had; [`niceness`](mod@niceness) for requests by their class, [`background`] for threads that nobody waits
//! for, [`slices`] for who computes for long, [`Readiness`] for who does not come to run, [`relief`] for who works for many and waits for one, [`Idleness`] and [`Turns`] for whether
//! others want the processors.
//!
//! Invariants: what the machine does not tell is `None` or empty, never a guess. Whatever changes something is about the calling thread
//! alone, but for [`Bearer::lend`] and [`lend_to_sharers`]. `/proc` and `/sys` are read here and nowhere else in a member.
//! What it deliberately does not do: decide. Who is of which class, and who may begin, is `baton_admission`'s; when leadership moves,
//! `baton_leadership`'s.

mod background;
mod groups;
pub mod host;
mod idleness;
mod lending;
mod lending_shared;
mod limits;
mod niceness;
mod readiness;
mod relief;
mod slices;
mod spent;
mod terminal;
mod thread_time;
mod turns;
mod usage;

pub use background::{work_when_idle, yield_to_clients};
pub use idleness::Idleness;
pub use lending::{LendingGuard, LendingMutex};
pub use lending_shared::{LendingReadGuard, LendingRwLock, LendingWriteGuard};
pub use limits::{Limits, memory_limit_bytes};
pub use niceness::{
    Bearer, Loan, Right, Sharing, as_class, at_most_as_nice_as, bearer, bearers, inheritances, is_urgent,
    lend_to_sharers, niceness, right, share,
};
pub use readiness::{Readiness, ran_if_busy};
pub use relief::{Relief, Waiting, about_to_wait, be_relieved_by, connection, work_for_connection};
pub use slices::{has_long_slices, keep_long_slices, take_long_slices, take_usual_slices};
pub use spent::{Meter, Spent};
pub use terminal::is_in_foreground;
pub use thread_time::ThreadTime;
pub use turns::Turns;
pub use usage::Usage;

/// mongod's exit code of a process that must not go on.
pub const EXIT_ABRUPT: i32 = 14;
