//! The stages, one file each: its arguments and their checks, and the stage at work.

pub(crate) mod accumulated;
pub(crate) mod bucket;
pub(crate) mod bucket_auto;
pub(crate) mod count;
pub(crate) mod documents;
pub(crate) mod facet;
pub(crate) mod granularity;
pub(crate) mod group;
pub(crate) mod limit;
pub(crate) mod lookup;
pub(crate) mod matching;
pub(crate) mod merge;
pub(crate) mod out;
pub(crate) mod project;
pub(crate) mod redact;
pub(crate) mod replace_root;
pub(crate) mod sample;
pub(crate) mod skip;
pub(crate) mod sort;
pub(crate) mod sort_by_count;
pub(crate) mod stats;
pub(crate) mod sub_pipeline;
pub(crate) mod union_with;
pub(crate) mod unwind;

use crate::show;
use baton_types::{Error, Result};
use bson::raw::RawBsonRef;

/// The whole, non-negative number that `$limit` and `$skip` take; the error names the stage and has `code`.
fn bounded_count(stage: &str, code: i32, value: RawBsonRef<'_>) -> Result<u64> {
    let refuse = |why: &str| {
        let message = format!("invalid argument to {stage} stage: {why} in: {stage}: {}", show::value(value));
        Err(Error::location(code, message))
    };
    let number = match value {
        RawBsonRef::Int32(n) => i64::from(n),
        RawBsonRef::Int64(n) => n,
        RawBsonRef::Double(n) => match whole(n) {
            Some(n) => n,
            None => return refuse("Expected an integer"),
        },
        RawBsonRef::Decimal128(n) => match n.to_string().parse().ok().and_then(whole) {
            Some(n) => n,
            None => return refuse("Expected an integer"),
        },
        _ => return refuse("Expected a number"),
    };
    match u64::try_from(number) {
        Ok(n) => Ok(n),
        Err(_) => refuse("Expected a non-negative number"),
    }
}

/// A double that is a 64-bit whole number.
fn whole(n: f64) -> Option<i64> {
    // Both bounds are exact as doubles; the upper is the first that is too large.
    let fits = n.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&n);
    fits.then_some(n as i64)
}
