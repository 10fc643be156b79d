//! Which request is of which class, and when it may begin: decided before it costs anything, with time as an argument.
//!
//! Where to look: [`Settings`] is `settings.priority` of a set's configuration; [`Claims::class`] decides of which class a request is;
//! [`Admission`] is the step machine at the door: it is told who arrives, pauses and leaves, and says who begins and who is refused;
//! [`Starving`] says which threads are helped that the processors never come to, and [`Pace`] how often it is looked for them.
//!
//! Invariants: no request waits longer than the stated worst wait; none of a lower class begins while one of a higher that could begin
//! waits, unless its own wait is at its end; what is in progress is never stopped.
//! What it deliberately does not do: read a clock, hold a thread, know a connection. Nor does it say what a request is: those of
//! members, heartbeats and status never come to it.
//!
//! Source: "RT-MongoDB: A NoSQL Database with Differentiated Performance" (Andreoli, Cucinotta and Pedreschi, CLOSER 2021), whose
//! check-in and check-out are the modes `checkpoint` and `both`; J. M. Moore, "An n Job, One Machine Sequencing Algorithm for Minimizing
//! the Number of Late Jobs" (Management Science, 1968) for deadlines under overload.

mod admission;
mod claims;
mod estimates;
mod limit;
#[cfg_attr(not(feature = "mutants"), allow(dead_code))]
mod mutant;
mod pace;
mod queue;
mod rules;
mod settings;
mod starving;

pub use admission::{Admission, Arrival, Counts, Effect, Input, Moment, Refusal, Ticket, WAITING_MAX};
pub use claims::{Claims, Source};
pub use estimates::{Computed, Estimate, Estimates};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use pace::Pace;
pub use rules::{Match, Principal, Rule, Subject};
pub use settings::{Mode, Settings, ShedAbove, Weights};
pub use starving::{ENOUGH, LASTS_MAX, PART, SAVED, Starving, Thread};
