//! The stages that write: `$out` and `$merge`.
//!
//! Invariants: both end early where the operation that runs the aggregation is interrupted; both ask the target's
//! validator unless the command bypasses it.

mod merge;
mod out;

pub(crate) use merge::Merge;
pub(crate) use out::Out;
