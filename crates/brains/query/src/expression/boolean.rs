//! `$and`, `$or`, `$not`.
//!
//! `$and` and `$or` are nodes of their own, because they stop early.

use super::node::{Arguments, Node};
use super::parse::Parser;
use super::table::Operator;
use super::value::{self, Value};
use baton_types::Result;
use bson::{Bson, RawBsonRef};

/// `{$and: [a, …]}`: true when every operand is.
pub(crate) fn and(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    Ok(Node::And(parser.operands(raw)?))
}

/// `{$or: [a, …]}`: true when any operand is.
pub(crate) fn or(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    Ok(Node::Or(parser.operands(raw)?))
}

/// `{$not: [a]}`.
pub(crate) fn not(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    Ok(Some(Bson::Boolean(!value::is_true(&arguments[0]))))
}
