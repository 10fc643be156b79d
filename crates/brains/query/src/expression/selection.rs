//! `$firstN`, `$lastN`, `$minN`, `$maxN` over the elements of an array.

use super::named::{Named, Signature, field};
use super::value::{self, Value};
use crate::accumulator::check_n;
use baton_types::{Error, Result};
use bson::Bson;

/// The arguments of the four operators.
pub(crate) static SIGNATURE: Signature = Signature {
    fields: &[field("input", 5_787_907), field("n", 5_787_906)],
    not_an_object: (5_787_900, "specification must be an object; found {op}: {x}"),
    unknown: (5_787_901, "Unknown argument for 'n' operator: {x}"),
    missing: "Missing value for '{x}'",
};

fn operands(call: &Named<'_>) -> Result<Option<(Vec<Bson>, usize)>> {
    let input = call.value(0)?;
    let n = check_n(&call.value(1)?)?;
    match input {
        Some(Bson::Array(elements)) => Ok(Some((elements, n))),
        nullish if value::is_nullish(&nullish) => Ok(None),
        _ => Err(Error::location(5_788_200, "Input must be an array")),
    }
}

/// `{$firstN: {input: array, n: …}}`.
pub(crate) fn first(call: &Named<'_>) -> Result<Value> {
    let Some((mut elements, n)) = operands(call)? else { return Ok(Some(Bson::Null)) };
    elements.truncate(n);
    Ok(Some(Bson::Array(elements)))
}

/// `{$lastN: {input: array, n: …}}`.
pub(crate) fn last(call: &Named<'_>) -> Result<Value> {
    let Some((elements, n)) = operands(call)? else { return Ok(Some(Bson::Null)) };
    let skip = elements.len().saturating_sub(n);
    Ok(Some(Bson::Array(elements.into_iter().skip(skip).collect())))
}

/// `{$minN: {input: array, n: …}}`: nullish elements do not count.
pub(crate) fn least(call: &Named<'_>) -> Result<Value> {
    best(call, false)
}

/// `{$maxN: {input: array, n: …}}`: nullish elements do not count.
pub(crate) fn greatest(call: &Named<'_>) -> Result<Value> {
    best(call, true)
}

fn best(call: &Named<'_>, descending: bool) -> Result<Value> {
    let Some((mut elements, n)) = operands(call)? else { return Ok(Some(Bson::Null)) };
    // As many comparisons as a sort makes, at the most.
    let parts = elements.iter().map(value::size_bytes).sum::<usize>() / size_of::<Bson>();
    call.meter().steps(parts.saturating_mul(elements.len().max(1).ilog2() as usize))?;
    elements.retain(|element| !matches!(element, Bson::Null | Bson::Undefined));
    elements.sort_by(|a, b| {
        let order = baton_document::order::compare_bson(a, b);
        if descending { order.reverse() } else { order }
    });
    elements.truncate(n);
    Ok(Some(Bson::Array(elements)))
}
