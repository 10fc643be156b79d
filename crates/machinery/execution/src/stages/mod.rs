//! The stages that need storage: those that read other collections, `$lookup` and `$unionWith`, and those that write, `$out` and `$merge`.
//!
//! Invariants: each ends early where the operation that runs the aggregation is interrupted; those that write ask the target's
//! validator unless the command bypasses it.

mod lookup;
mod merge;
mod out;
mod union_with;

pub(crate) use lookup::Lookup;
pub(crate) use merge::Merge;
pub(crate) use out::Out;
pub(crate) use union_with::UnionWith;
