//! Documents and values: their order, their numbers, the paths into them, and their order-preserving encoding as keys.
//!
//! Works on the `bson` crate's raw views, so that a document is read where it lies. Pure: no I/O, clock or randomness.
//! A document is checked once, by [`validate`], where it enters; everything else here assumes a checked document, and
//! on one that was not, answers something or an error but never panics.
//!
//! What it deliberately does not do: collation (strings order by their bytes), printing other than for messages (the `bson`
//! crate's extended JSON serves), and any knowledge of queries or storage.

pub mod decimal;
pub mod geometry;
pub mod hash;
pub mod index_keys;
pub mod keys;
pub mod number;
pub mod order;
pub mod path;
pub mod show;
pub mod type_names;
pub mod validate;

pub use bson;
pub use decimal::Decimal;
pub use number::Number;
pub use path::Path;
pub use type_names::type_name;
