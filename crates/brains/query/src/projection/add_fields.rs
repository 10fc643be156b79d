//! Parsing the argument of `$addFields` and `$set`: every value is an expression, nested documents are paths.

use super::node::{Fields, Node};
use crate::Context;
use crate::expression::{self, Expression};
use crate::show;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBsonRef, RawDocument};

/// How deep a specification may nest.
const DEPTH_MAX: usize = 180;

/// Parses a specification.
pub(super) fn parse(spec: &RawDocument, ctx: &Context) -> Result<Fields> {
    if spec.is_empty() {
        return Err(Error::location(40177, "specification must have at least one field"));
    }
    let mut parser = Parser { ctx, fields: Fields::default(), paths: Vec::new() };
    parser.level(spec, "", 0)?;
    Ok(parser.fields)
}

struct Parser<'a> {
    ctx: &'a Context,
    fields: Fields,
    /// The paths added so far.
    paths: Vec<String>,
}

impl Parser<'_> {
    fn level(&mut self, spec: &RawDocument, prefix: &str, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(Error::new(
                ErrorCode::Overflow,
                format!("specification exceeds maximum nesting depth of {DEPTH_MAX}"),
            ));
        }
        for field in spec {
            let (name, value) = field?;
            let name = name.as_str();
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            expression::check_path(name)?;
            match value {
                RawBsonRef::Document(below) if below.is_empty() => {
                    let message = format!("an empty object is not a valid value. Found empty object at path {path}");
                    return Err(Error::location(40180, message));
                }
                RawBsonRef::Document(below) if !starts_with_operator(below)? => {
                    self.level(below, &path, depth + 1)?;
                }
                RawBsonRef::Document(below) if below.iter_elements().nth(1).is_some() => {
                    let message = format!(
                        "an expression specification must contain exactly one field, the name of the expression. Found {} fields in {}, while parsing object at path {path}",
                        below.iter_elements().count(),
                        show::document(below)
                    );
                    return Err(Error::location(40181, message));
                }
                expression => {
                    let node = Node::Compute(Expression::parse(expression, self.ctx)?);
                    self.fields.add(&path, node).map_err(|error| self.conflict(error, &path))?;
                    self.paths.push(path);
                }
            }
        }
        Ok(())
    }

    /// These stages report colliding paths with a code and words of their own.
    fn conflict(&self, error: Error, path: &str) -> Error {
        if !matches!(error.code.0, 31249 | 31250) {
            return error;
        }
        let below = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let other = self.paths.iter().find(|p| below(p, path) || below(path, p)).map_or("", String::as_str);
        let message =
            format!("specification contains two conflicting paths. Cannot specify both '{path}' and '{other}'");
        Error::location(40176, message)
    }
}

fn starts_with_operator(document: &RawDocument) -> Result<bool> {
    match document.iter_elements().next() {
        Some(first) => Ok(first?.key().as_str().starts_with('$')),
        None => Ok(false),
    }
}
