//! Accumulators as expressions: `$sum`, `$avg`, `$min`, `$max`, `$stdDevPop`, `$stdDevSamp`, `$mergeObjects`.
//!
//! Over the arguments; or, given one argument that is an array, over its elements.

use super::node::Arguments;
use super::value::Value;
use crate::accumulator::{Accumulator, Average, Deviation, Extreme, MergeObjects, Sum};
use baton_types::Result;
use bson::Bson;
use std::borrow::Cow;
use std::mem::take;

fn reduce(
    name: &'static str,
    mut accumulator: impl Accumulator + 'static,
    arguments: &mut Arguments<'_, '_>,
) -> Result<Value> {
    let meter = arguments.meter;
    let mut held = meter.hold(name);
    if let [single] = &mut **arguments
        && let Some(Bson::Array(_)) = single.as_ref()
    {
        match take(single) {
            Cow::Owned(Some(Bson::Array(elements))) => {
                for element in elements {
                    meter.step()?;
                    accumulator.accumulate(Some(element))?;
                }
            }
            // One by one: a copy of the whole may be large where the result is a number.
            Cow::Borrowed(Some(Bson::Array(elements))) => {
                for element in elements {
                    meter.step()?;
                    let mut copy = meter.hold(name);
                    copy.add_contents(Some(element))?;
                    accumulator.accumulate(Some(element.clone()))?;
                    held.set(accumulator.memory_bytes())?;
                }
            }
            _ => {}
        }
    } else {
        for argument in arguments.iter_mut() {
            if let Cow::Borrowed(value) = argument {
                held.add_contents(value.as_ref())?;
            }
            accumulator.accumulate(take(argument).into_owned())?;
        }
    }
    Ok(Some(Box::new(accumulator).finish()))
}

/// `{$sum: [a, …]}`.
pub(crate) fn sum(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    reduce(name, Sum::default(), arguments)
}

/// `{$avg: [a, …]}`.
pub(crate) fn avg(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    reduce(name, Average::default(), arguments)
}

/// `{$min: [a, …]}`.
pub(crate) fn min(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    reduce(name, Extreme::least(), arguments)
}

/// `{$max: [a, …]}`.
pub(crate) fn max(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    reduce(name, Extreme::greatest(), arguments)
}

/// `{$stdDevPop: [a, …]}`.
pub(crate) fn std_dev_pop(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    reduce(name, Deviation::of_population(), arguments)
}

/// `{$stdDevSamp: [a, …]}`.
pub(crate) fn std_dev_samp(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    reduce(name, Deviation::of_sample(), arguments)
}

/// `{$mergeObjects: [a, …]}`.
pub(crate) fn merge_objects(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    reduce(name, MergeObjects::default(), arguments)
}
