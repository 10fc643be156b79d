//! `$cond`, `$ifNull`, `$switch`: nodes of their own, because they evaluate only the branch they take.

use super::node::{Node, Scope};
use super::parse::Parser;
use super::table::{Arity, Operator};
use super::value::{self, Value};
use baton_types::{Error, Result};
use bson::RawBsonRef;

/// `{$cond: [if, then, else]}` or `{$cond: {if: …, then: …, else: …}}`.
pub(crate) fn cond(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let RawBsonRef::Document(document) = raw else {
        let operands = parser.operands(raw)?;
        Arity::Exactly(3).check(operator.name, operands.len())?;
        return match <[Node; 3]>::try_from(operands) {
            Ok(parts) => Ok(Node::Cond(Box::new(parts))),
            Err(_) => Err(Error::location(16020, "Expression $cond takes exactly 3 arguments.")),
        };
    };
    const PARTS: [(&str, i32); 3] = [("if", 17080), ("then", 17081), ("else", 17082)];
    let mut parts: [Option<Node>; 3] = [None, None, None];
    for element in document {
        let (name, inner) = element?;
        let Some(position) = PARTS.iter().position(|(part, _)| *part == name.as_str()) else {
            return Err(Error::location(17083, format!("Unrecognized parameter to $cond: {name}")));
        };
        parts[position] = Some(parser.operand(inner)?);
    }
    let missing = |position: usize| {
        let (part, code) = PARTS[position];
        Error::location(code, format!("Missing '{part}' parameter to $cond"))
    };
    let [condition, then, otherwise] = parts;
    Ok(Node::Cond(Box::new([
        condition.ok_or_else(|| missing(0))?,
        then.ok_or_else(|| missing(1))?,
        otherwise.ok_or_else(|| missing(2))?,
    ])))
}

/// `{$ifNull: [a, …, fallback]}`.
pub(crate) fn if_null(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let operands = parser.operands(raw)?;
    if operands.len() < 2 {
        return Err(Error::location(
            1_257_300,
            format!("$ifNull needs at least two arguments, had: {}", operands.len()),
        ));
    }
    Ok(Node::IfNull(operands))
}

/// `{$switch: {branches: [{case: …, then: …}, …], default: …}}`.
pub(crate) fn parse_switch(parser: &mut Parser<'_>, _: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let RawBsonRef::Document(document) = raw else {
        return Err(Error::location(
            40060,
            format!("$switch requires an object as an argument, found: {}", value::raw_type_name(raw)),
        ));
    };
    let mut branches = Vec::new();
    let mut default = None;
    for element in document {
        let (name, inner) = element?;
        match name.as_str() {
            "branches" => {
                let RawBsonRef::Array(array) = inner else {
                    return Err(Error::location(
                        40061,
                        format!("$switch expected an array for 'branches', found: {}", value::raw_type_name(inner)),
                    ));
                };
                for branch in array {
                    branches.push(parse_branch(parser, branch?)?);
                }
            }
            "default" => default = Some(Box::new(parser.operand(inner)?)),
            other => return Err(Error::location(40067, format!("$switch found an unknown argument: {other}"))),
        }
    }
    if branches.is_empty() {
        return Err(Error::location(40068, "$switch requires at least one branch."));
    }
    Ok(Node::Switch(branches, default))
}

fn parse_branch(parser: &mut Parser<'_>, raw: RawBsonRef<'_>) -> Result<(Node, Node)> {
    let RawBsonRef::Document(document) = raw else {
        return Err(Error::location(
            40062,
            format!("$switch expected each branch to be an object, found: {}", value::raw_type_name(raw)),
        ));
    };
    let (mut case, mut then) = (None, None);
    for element in document {
        let (name, inner) = element?;
        match name.as_str() {
            "case" => case = Some(parser.operand(inner)?),
            "then" => then = Some(parser.operand(inner)?),
            other => {
                return Err(Error::location(40063, format!("$switch found an unknown argument to a branch: {other}")));
            }
        }
    }
    match (case, then) {
        (Some(case), Some(then)) => Ok((case, then)),
        (None, _) => Err(Error::location(40064, "$switch requires each branch have a 'case' expression")),
        (_, None) => Err(Error::location(40065, "$switch requires each branch have a 'then' expression.")),
    }
}

/// The value of the first branch whose case holds.
pub(crate) fn switch(branches: &[(Node, Node)], default: Option<&Node>, scope: &Scope<'_>) -> Result<Value> {
    for (case, then) in branches {
        if case.evaluate_bool(scope)? {
            return then.evaluate(scope);
        }
    }
    match default {
        Some(default) => default.evaluate(scope),
        None => Err(Error::location(
            40066,
            "$switch could not find a matching branch for an input, and no default was specified.",
        )),
    }
}
