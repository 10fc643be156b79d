//! The words every floor shares: log positions, namespaces, classes of service, the client's kind of failure, pools of
//! memory, and what long work asks whether to go on.
//!
//! Invariants: nothing here does I/O, reads a clock or draws a random number. A type belongs here only when crates on
//! two different floors need it; what one floor needs lives on that floor.

mod class;
mod error;
pub mod interruption;
mod memory;
mod namespace;
mod optime;
mod striped;
mod task;
mod unwind;

pub use class::Class;
pub use error::{Error, ErrorCode, Result};
pub use interruption::{Check, Interruption};
pub use memory::{MemoryAccount, MemoryPool, MemoryWait};
pub use namespace::{Namespace, check_database};
pub use optime::{OpTime, Term, Timestamp};
pub use striped::Striped;
pub use task::{Admission, Pace, Proposal, TaskCost, TaskKind};
pub use unwind::{MustNotUnwind, guarded_section, must_not_unwind};
