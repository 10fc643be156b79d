//! Sorting: the pattern ([`SortPattern`]), a document's key under it ([`SortKey`]), and the sorter, in memory and
//! beyond ([`Sorter`]).
//!
//! Invariant: keys are bytes, made once a document; from then on comparing is `memcmp`.

mod pattern;
mod sorter;
#[cfg(test)]
mod tests;

pub use pattern::{SortKey, SortPart, SortPattern, natural_direction};
pub use sorter::{Sorted, Sorter};
