//! What a step machine was told and what it asked for, kept in memory, written to a file, and stepped through again.
//!
//! ```text
//!  driver ──now, input──▶ Recorder ──▶ Machine::step ──▶ effects ──▶ driver
//!                            │ segments: the machine at their beginning, then its steps
//!                            ▼
//!                        Recording ──write──▶ lines of JSON ──read──▶ replay: the same steps, compared
//! ```
//!
//! Invariants:
//! - A recorder keeps every step since the beginning of its oldest segment, in order, and the machine as it was there.
//! - What it keeps is bounded, in time and in memory ([`Bounds`]); so is what is kept of machines that have ended ([`Ended`]).
//! - A step is noted before it is taken: the one in which a machine breaks is the last that is kept.
//! - Nothing is turned into text before somebody wants a file.
//! - A machine that was changed by other means than a step is replayed from what it was changed into, or found out.
//!
//! What it deliberately does not do: open files, read a clock, know a machine.

pub mod documents;
mod ended;
mod file;
pub mod numbers;
pub mod pairs;
mod recorder;
mod replay;

pub use ended::Ended;
pub use file::{FORMAT, Header, SegmentLine, StepLine, Steps, Unreadable, read, title, write};
pub use recorder::{Bounds, Recorder, Recording, Segment, Step, step};
pub use replay::{Difference, Replayed, Seen, replay};

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// A step machine: what it does depends on its state, the time it is told and the input alone.
pub trait Machine: Clone + Serialize + DeserializeOwned {
    /// What files call it.
    const NAME: &'static str;

    /// What it is told.
    type Input: Clone + Serialize + DeserializeOwned;

    /// What it asks for, or answers.
    type Effect: Clone + Serialize;

    /// Takes one input; returns what is to be done, in order.
    fn step(&mut self, now: Duration, input: Self::Input) -> Vec<Self::Effect>;

    /// About how many bytes an input takes in memory beside its own size: what is behind its pointers.
    fn bytes_behind(input: &Self::Input) -> usize;

    /// The same of an effect.
    fn bytes_behind_effect(effect: &Self::Effect) -> usize;
}
