//! `$arrayElemAt`, `$first`, `$in`, `$isArray`, `$last` and `$size` of an array that lies in the document.
//!
//! As values, the elements of an array take some ten times as much room as in the document. These operators need one of
//! them, or none: they look at the document instead. Each gives `None` where the array is none of the document's; then
//! the operator's own function, in `array`, has its arguments evaluated.

use super::node::{Call, Scope};
use super::path;
use super::value::{self, Value};
use baton_document::order;
use baton_types::Result;
use bson::{Bson, RawArray};

/// How many elements of a raw array are passed over in the time of a step.
const ELEMENTS_PER_STEP: usize = 8;

/// `$arrayElemAt` of an array of the document.
pub(crate) fn elem_at(call: &Call, scope: &Scope<'_>) -> Result<Option<Value>> {
    let [array, index] = call.arguments.as_slice() else { return Ok(None) };
    let Some(array) = array.array_in_place(scope.root)? else { return Ok(None) };
    match value::int_exact(&*index.borrow(scope)?) {
        Some(position) => raw_at(array, i64::from(position), scope).map(Some),
        None => Ok(None),
    }
}

/// `$first` of an array of the document.
pub(crate) fn first(call: &Call, scope: &Scope<'_>) -> Result<Option<Value>> {
    end(call, 0, scope)
}

/// `$last` of an array of the document.
pub(crate) fn last(call: &Call, scope: &Scope<'_>) -> Result<Option<Value>> {
    end(call, -1, scope)
}

fn end(call: &Call, position: i64, scope: &Scope<'_>) -> Result<Option<Value>> {
    let [array] = call.arguments.as_slice() else { return Ok(None) };
    match array.array_in_place(scope.root)? {
        Some(array) => raw_at(array, position, scope).map(Some),
        None => Ok(None),
    }
}

fn raw_at(array: &RawArray, position: i64, scope: &Scope<'_>) -> Result<Value> {
    let position = if position < 0 { position + raw_length(array, scope)? } else { position };
    let Ok(position) = usize::try_from(position) else { return Ok(None) };
    scope.meter.steps(position / ELEMENTS_PER_STEP)?;
    match array.get(position)? {
        Some(element) => path::decode(element, scope.meter).map(Some),
        None => Ok(None),
    }
}

fn raw_length(array: &RawArray, scope: &Scope<'_>) -> Result<i64> {
    let mut length = 0;
    for element in array.iter_elements() {
        element?;
        length += 1;
    }
    scope.meter.steps(length / ELEMENTS_PER_STEP)?;
    Ok(i64::try_from(length).unwrap_or(i64::MAX))
}

/// `$size` of an array of the document.
pub(crate) fn size(call: &Call, scope: &Scope<'_>) -> Result<Option<Value>> {
    let [array] = call.arguments.as_slice() else { return Ok(None) };
    match array.array_in_place(scope.root)? {
        Some(array) => Ok(Some(Some(value::narrow(raw_length(array, scope)?)))),
        None => Ok(None),
    }
}

/// `$isArray` of an array of the document.
pub(crate) fn is_array(call: &Call, scope: &Scope<'_>) -> Result<Option<Value>> {
    let [array] = call.arguments.as_slice() else { return Ok(None) };
    Ok(array.array_in_place(scope.root)?.map(|_| Some(Bson::Boolean(true))))
}

/// `$in` an array of the document.
pub(crate) fn is_in(call: &Call, scope: &Scope<'_>) -> Result<Option<Value>> {
    let [wanted, array] = call.arguments.as_slice() else { return Ok(None) };
    let Some(array) = array.array_in_place(scope.root)? else { return Ok(None) };
    let wanted = wanted.borrow(scope)?;
    let Some(wanted) = wanted.as_ref() else { return Ok(Some(Some(Bson::Boolean(false)))) };
    for element in array {
        scope.meter.step()?;
        if order::compare_raw_bson(element?, wanted).is_eq() {
            return Ok(Some(Some(Bson::Boolean(true))));
        }
    }
    Ok(Some(Some(Bson::Boolean(false))))
}
