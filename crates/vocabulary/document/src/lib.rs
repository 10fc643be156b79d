//! Documents and values: their order, their numbers, the paths into them, and their order-preserving encoding as keys.
//!
//! Works on the `bson` crate's raw views, so that a document is read where it lies. Pure: no I/O, clock or randomness.

pub use bson;
