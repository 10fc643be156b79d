//! MongoDB's query language, as pure code: what a filter matches, what an update makes, what a projection or an
//! expression yields, what each pipeline stage does with a document, and which plan serves a query.
//!
//! Documents flow between the parts as raw BSON ([`bson::RawDocument`], [`bson::RawDocumentBuf`]); single values
//! inside expressions are [`bson::Bson`]. Nothing here touches storage: a plan is a description, and
//! `baton-execution` carries it out. Time, randomness and limits come in through [`Context`].

pub mod accumulator;
mod by_name;
mod context;
mod effort;
pub mod expression;
pub mod matcher;
mod pcre;
pub mod pipeline;
pub mod planner;
pub mod projection;
mod raw;
pub mod sort;
pub mod spill;
pub mod update;

use baton_document::show;
pub use baton_types::interruption::{self, Check, Interruption};
pub use context::Context;
pub use effort::Effort;
