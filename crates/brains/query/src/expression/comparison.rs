//! `$cmp`, `$eq`, `$ne`, `$lt`, `$lte`, `$gt`, `$gte`: MongoDB's total order, across types.

use super::node::Arguments;
use super::value::{self, Value};
use baton_types::Result;
use bson::Bson;
use std::cmp::Ordering;

fn order(arguments: &Arguments<'_, '_>) -> Result<Ordering> {
    if let (Some(a), Some(b)) = (arguments[0].as_ref(), arguments[1].as_ref()) {
        value::count_comparison(a, b, arguments.meter)?;
    }
    Ok(value::compare(&arguments[0], &arguments[1]))
}

fn truth(truth: bool) -> Result<Value> {
    Ok(Some(Bson::Boolean(truth)))
}

/// `{$cmp: [a, b]}`: -1, 0 or 1.
pub(crate) fn cmp(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    Ok(Some(Bson::Int32(order(arguments)? as i32)))
}

/// `{$eq: [a, b]}`.
pub(crate) fn eq(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    truth(order(arguments)?.is_eq())
}

/// `{$ne: [a, b]}`.
pub(crate) fn ne(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    truth(order(arguments)?.is_ne())
}

/// `{$lt: [a, b]}`.
pub(crate) fn lt(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    truth(order(arguments)?.is_lt())
}

/// `{$lte: [a, b]}`.
pub(crate) fn lte(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    truth(order(arguments)?.is_le())
}

/// `{$gt: [a, b]}`.
pub(crate) fn gt(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    truth(order(arguments)?.is_gt())
}

/// `{$gte: [a, b]}`.
pub(crate) fn gte(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    truth(order(arguments)?.is_ge())
}
