//! Carries plans and pipelines out on storage, and documents' changes into it.
//!
//! A query is a [`Query`]: an access path, a residual filter, a sort if no index serves one, a window, a projection. It
//! is run one batch at a time, against one [`baton_storage::View`] for each, and keeps only its position in between.
//! An aggregation is a query feeding a chain of stages ([`Aggregation`]). Writes find their documents with a query, lock
//! them one by one, look again, and commit ([`write`]).
//!
//! Not here: commands, replies, cursors' registration, write concerns.

mod access;
mod aggregation;
mod draw;
mod explain;
mod host;
mod interrupt;
mod oplog_range;
mod plan;
mod query;
mod resting;
mod stages;
pub mod write;

pub use access::{Access, Entries, Examined, Given};
pub use aggregation::{Aggregation, Input};
pub use draw::{Draw, SystemDraw};
pub use host::{NoOwnDocuments, OwnDocuments, StorageHost};
pub use interrupt::{Check, Interrupt, Interruption};
pub use oplog_range::oplog_range;
pub use plan::PlanChoice;
pub use query::{Hint, Query, QuerySpec};
