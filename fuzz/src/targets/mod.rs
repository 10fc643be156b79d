//! One file a target; `TARGETS` in the crate's root lists them.

pub mod bson_validate;
pub mod expression;
pub mod filter;
pub mod key_decode;
pub mod pipeline;
pub mod projection;
pub mod update;
pub mod wire_decode;

use baton_query::Context;
use bson::{DateTime, Document, RawDocumentBuf};

/// A request's surroundings that are always the same.
fn context() -> Context {
    let mut context = Context::new(DateTime::from_millis(1_700_000_000_000), 42);
    context.memory_bytes_max = 8 * 1024 * 1024;
    context
}

/// Documents as seeds: their bytes are BSON, which the targets of the query language take as it is.
fn bson_seeds(documents: Vec<Document>) -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> =
        documents.iter().filter_map(|d| Some(RawDocumentBuf::try_from(d).ok()?.into_bytes())).collect();
    // And something for documents to grow from.
    seeds.push((0..=255).collect());
    seeds.push((0..120u8).map(|n| n.wrapping_mul(37)).collect());
    seeds
}
