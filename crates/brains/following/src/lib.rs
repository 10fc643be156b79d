//! What a member does that follows another's log, as one step machine: fetch, judge, apply, roll back.
//!
//! Source: "Fault-Tolerant Replication with Pull-Based Consensus in MongoDB" (Zhou and Mu, NSDI 2021), sections 3 and 4.
//!
//! ```text
//!   Input (a source, a batch, an answer, time)
//!                     │
//!                     ▼
//!   Following::step(now, input)  ──▶  Effects (connect, open, read, apply, sync, look, take away, tell consensus)
//!   │
//!   ├─ fetch      a source, its stream, its end; whether that continues this member's log, consensus's `judge` says
//!   ├─ taking     a batch that is being taken
//!   ├─ apply      in order, when due; synced beside what comes next
//!   ├─ refusal    an entry that cannot be applied
//!   ├─ rollback   back to where both logs part
//!   ├─ copy       the hand-over to initial sync, and back
//!   ├─ initial_sync   a copy of the source: its phases, its lanes, its end
//!   └─ state      what it is doing, and what keeps it from going on
//! ```
//!
//! # How a driver carries it out
//!
//! - One worker. It carries effects out in their order; *work* ([`Effect`]) is answered by one input, and until then no other work comes.
//!   Of a copy each [`Lane`] has a worker of its own: the main one's is the one.
//! - Whoever sets a source, a delay, or wants a rest, steps the machine with it, too. [`Effect::Close`], [`Effect::HangUp`],
//!   [`Effect::Progress`] and [`Effect::Rested`] are his to carry out at once: the worker may wait for the very connection that is closed.
//! - It steps with [`Input::Tick`] at [`Following::next_deadline`].
//! - It keeps the batch that came last; [`Effect::Apply`] names places in that.
//!
//! A member runs it in `replication::following`, the simulator in `sim::world::following`.
//!
//! Invariants, each with a checker in the simulator, where this machine runs beside consensus:
//! - No entry of a log is left out or applied twice.
//! - Members that have applied the same entry have the same documents.
//! - What this member knows to be committed it never takes away.
//! - A member that makes no progress says why.
//!
//! What it deliberately does not do: choose the source, or decide who is primary (consensus does); see an entry, a document, a socket or a clock.

mod apply;
mod copy;
mod fetch;
mod following;
mod initial_sync;
mod mutant;
mod recorded;
mod refusal;
mod rollback;
mod state;
mod step;
mod taking;

pub use following::Following;
pub use initial_sync::{
    ATTEMPTS_MAX, Answer, Fault, FaultKind, HoldPoint, Lane, Listed, Method, Progress, ReadFrom, Settings, Task,
};
pub use mutant::Mutant;
pub use refusal::{ATTEMPTS_BEFORE_COPY, PAUSE_MAX, Refusal, Remedy};
pub use rollback::ENTRIES_PER_LOOK;
pub use state::{Obstacle, State};
pub use step::{Attempt, Batch, Copying, Effect, Here, Input, TakenAway};
