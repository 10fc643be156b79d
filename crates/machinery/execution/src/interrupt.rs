//! Whether to go on, on the way to documents: what evaluation asks is `baton_query::interruption`'s.
//!
//! Invariant: whatever may take long asks, every few documents or index entries at the most. What asks on behalf of an
//! aggregation, inner pipelines of its stages included, asks the operation that runs the aggregation at that moment: a
//! cursor lives longer than the request that opened it.

use baton_types::Result;

pub use baton_query::interruption::{Check, Interruption};

/// Asked now and then while work goes on: `Err` says that the request was killed or has run out of time.
pub type Interrupt<'a> = &'a (dyn Fn() -> Result<()> + 'a);
