//! Accumulators as expressions: `$sum`, `$avg`, `$min`, `$max`, `$stdDevPop`, `$stdDevSamp`, `$mergeObjects`.
//!
//! Over the arguments; or, given one argument that is an array, over its elements.

use super::node::Argument;
use super::value::Value;
use crate::accumulator::{Accumulator, Average, Deviation, Extreme, MergeObjects, Sum};
use baton_types::Result;
use bson::Bson;
use std::mem::take;

fn reduce(mut accumulator: impl Accumulator + 'static, arguments: &mut [Argument<'_>]) -> Result<Value> {
    if let [single] = arguments
        && matches!(single.as_ref(), Some(Bson::Array(_)))
        && let Some(Bson::Array(elements)) = take(single).into_owned()
    {
        for element in elements {
            accumulator.accumulate(Some(element))?;
        }
    } else {
        for argument in arguments {
            accumulator.accumulate(take(argument).into_owned())?;
        }
    }
    Ok(Some(Box::new(accumulator).finish()))
}

/// `{$sum: [a, …]}`.
pub(crate) fn sum(_: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    reduce(Sum::default(), arguments)
}

/// `{$avg: [a, …]}`.
pub(crate) fn avg(_: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    reduce(Average::default(), arguments)
}

/// `{$min: [a, …]}`.
pub(crate) fn min(_: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    reduce(Extreme::least(), arguments)
}

/// `{$max: [a, …]}`.
pub(crate) fn max(_: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    reduce(Extreme::greatest(), arguments)
}

/// `{$stdDevPop: [a, …]}`.
pub(crate) fn std_dev_pop(_: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    reduce(Deviation::of_population(), arguments)
}

/// `{$stdDevSamp: [a, …]}`.
pub(crate) fn std_dev_samp(_: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    reduce(Deviation::of_sample(), arguments)
}

/// `{$mergeObjects: [a, …]}`.
pub(crate) fn merge_objects(_: &'static str, arguments: &mut [Argument<'_>]) -> Result<Value> {
    reduce(MergeObjects::default(), arguments)
}
