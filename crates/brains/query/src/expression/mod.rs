//! Aggregation expressions: parsing them once, evaluating them for each document.
//!
//! An expression is a tree of [`node::Node`], a closed enum for what has structure of its own (literals, paths,
//! objects, arrays, short-circuiting and variable-binding operators). Every other operator is a row of the sorted table
//! in [`table`], whose function lives in one file per family. `None` is MongoDB's "missing", which is not `null`.
//!
//! Invariants: evaluation never recurses deeper than the expression, and no expression is deeper than
//! [`parse::DEPTH_MAX`]; what an evaluation holds at a time is bounded, and asked now and then whether to go on
//! ([`meter`]); nothing here reads a clock or global randomness ([`Context`] brings both); `$cond`, `$switch`,
//! `$and`, `$or`, `$ifNull` and the `on…` fallbacks evaluate only what they need.
//!
//! Deliberately absent: server-side JavaScript, `$meta`, collation, and index use of `$expr` (the planner's).

mod arithmetic;
mod array;
mod bits;
mod boolean;
mod comparison;
mod conditional;
mod convert;
mod date;
mod dependencies;
mod depth;
mod hashed_key;
mod in_place;
mod meter;
mod named;
mod node;
mod object;
mod parse;
mod path;
mod reduction;
mod regex;
mod rounding;
mod selection;
mod set;
mod size;
mod sort_array;
mod string;
mod table;
mod trigonometry;
mod trim;
pub(crate) mod value;
mod variables;

#[cfg(test)]
pub(crate) mod tests;

pub use dependencies::Dependencies;
pub(crate) use node::InPlace;

use crate::Context;
use crate::interruption::Interruption;
use baton_types::Result;
use bson::{Bson, RawBsonRef, RawDocument};
use meter::Meter;
use node::{Node, Scope};

/// Refuses what cannot be one component of a dotted path, with MongoDB's errors.
pub fn check_component(name: &str) -> Result<()> {
    path::check_component(name)
}

/// Refuses what is no dotted path of an expression, a projection, a sort or a stage, with MongoDB's errors.
pub fn check_path(dotted: &str) -> Result<()> {
    path::parse(dotted).map(|_| ())
}

/// Refuses what no client may bind as a variable: names that do not begin with a lower-case letter, but for `CURRENT`.
pub fn check_variable_name(name: &str) -> Result<()> {
    parse::check_bindable_name(name)
}

/// A parsed aggregation expression.
#[derive(Clone, Debug)]
pub struct Expression {
    node: Node,
}

impl Expression {
    /// Parses an operand: a literal, a `"$path"`, a `"$$variable"`, an array, an object, or `{$operator: …}`.
    ///
    /// The variables of `ctx` are the `$$` variables the expression may use besides those it binds itself; their
    /// values are looked up in the context given to [`Expression::evaluate`]. Subexpressions without variables or
    /// paths are evaluated here, once.
    pub fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        Ok(Self { node: parse::Parser::new(ctx).operand(value)? })
    }

    /// An expression that always yields `value`.
    pub fn constant(value: Bson) -> Self {
        Self { node: Node::Constant(Some(value)) }
    }

    /// The value for one document; `None` where MongoDB speaks of a missing value.
    pub fn evaluate(&self, doc: &RawDocument, ctx: &Context) -> Result<Option<Bson>> {
        self.node.evaluate(&Scope::new(doc, ctx, &Meter::new(ctx)))
    }

    /// The value by MongoDB's truth: missing, `null`, `undefined`, `false` and zeroes are false, all else is true.
    pub fn evaluate_bool(&self, doc: &RawDocument, ctx: &Context) -> Result<bool> {
        self.evaluate_bool_asking(doc, ctx, &ctx.interruption)
    }

    /// [`Self::evaluate_bool`], on behalf of a request that is not the context's own.
    pub(crate) fn evaluate_bool_asking(&self, doc: &RawDocument, ctx: &Context, asked: &Interruption) -> Result<bool> {
        self.node.evaluate_bool(&Scope::new(doc, ctx, &Meter::asking(ctx, asked)))
    }

    /// Which fields of the document the value depends on.
    pub fn dependencies(&self) -> Dependencies {
        let mut dependencies = Dependencies::default();
        dependencies::collect(&self.node, &mut dependencies);
        dependencies
    }

    /// The value, where it is the same for every document and request.
    pub fn as_constant(&self) -> Option<Option<&Bson>> {
        match &self.node {
            Node::Constant(value) => Some(value.as_ref()),
            _ => None,
        }
    }

    /// The value as it lies in the document, where the expression is a path and nothing but documents are on its way.
    pub(crate) fn in_place<'d>(&self, doc: &'d RawDocument) -> Result<InPlace<'d>> {
        self.node.in_place(doc)
    }

    /// The dotted path, where the expression is nothing but a `"$path"` of the document.
    pub fn as_field_path(&self) -> Option<String> {
        match &self.node {
            Node::Path(node::Source::Root, path) if !path.is_empty() => Some(path.join(".")),
            _ => None,
        }
    }
}
