//! Documents and index entries: where they lie, how they are read as of one moment, how one is changed.
//!
//! Here are the format of keys, reading, the transaction that gathers what an operation changes, locks on single keys, documents in memory,
//! sessions' records, capped order, exact counts, and `validate`.
//!
//! Not here: which collections and indexes there are (`catalog`) and how that changes (`ddl`); the order in which changes are written (`log`).

pub(crate) mod capped;
pub(crate) mod counters;
pub(crate) mod format;
pub(crate) mod in_flight;
pub(crate) mod index;
pub(crate) mod index_demands;
pub(crate) mod index_writes;
pub(crate) mod locks;
pub(crate) mod record_cache;
pub(crate) mod sessions;
pub(crate) mod transaction;
pub(crate) mod validate;
pub(crate) mod version;
pub(crate) mod view;
pub(crate) mod write;
