//! Filters: parsed once into a tree, then tested against raw documents.
//!
//! ```text
//!   filter document ── parse ──► Node ── evaluate ──► bool, and the array position for `$`
//!                                 │
//!                                 ├── equalities   what an upsert starts from
//!                                 ├── serialize    what explain shows
//!                                 └── the planner  reads it for bounds
//! ```
//!
//! Invariants: matching allocates nothing for plain predicates; nesting is bounded when parsing ([`DEPTH_MAX`]), so
//! evaluation recurses no deeper; a look at many values is asked now and then whether to go on; `$ne`, `$nin`, `$exists: false` and friends exist only as a `Not` above their positive
//! form. One file per family of operators; the table of operators is in `parse`. Source: MongoDB manual, "Query and
//! Projection Operators".
//!
//! What it deliberately does not do: geospatial and text operators (`NotImplemented`), JavaScript (`$where` is refused),
//! collation.

mod arrays;
mod ast;
mod bits;
mod compare;
mod equalities;
mod evaluate;
mod expr;
mod integer;
mod membership;
mod modulo;
mod parse;
mod regex;
mod sample;
mod schema;
mod serialize;
#[cfg(test)]
mod tests;
mod types;
mod violation;

pub use ast::{FieldNode, Node, Predicate};
pub use bits::{BitOperator, BitTest};
pub use compare::{Comparison, Operator};
pub use evaluate::MatchDetails;
pub use expr::ExprNode;
pub use membership::InList;
pub use modulo::Modulo;
pub use regex::RegexPredicate;
pub use sample::SampleRate;
pub use schema::Schema;
pub use types::TypeSet;
pub use violation::violation;

use crate::Context;
use crate::interruption::Interruption;
use baton_types::Result;
use bson::{Bson, Document, RawBsonRef, RawDocument};
use std::sync::Arc;

/// How deep operators may nest, as in MongoDB.
pub const DEPTH_MAX: usize = 100;

/// A parsed filter.
#[derive(Clone, Debug)]
pub struct Matcher {
    root: Node,
    /// What long evaluation asks; that of the context it was parsed in.
    interruption: Arc<Interruption>,
}

impl Matcher {
    /// Parses a filter document.
    pub fn parse(filter: &RawDocument, ctx: &Context) -> Result<Self> {
        Ok(Self { root: parse::filter(filter, ctx)?, interruption: Arc::clone(&ctx.interruption) })
    }

    /// Parses a document of operators (`{$gte: 5, $lt: 9}`) that apply to a value by itself, as `$pull` has them;
    /// for [`Self::matches_value`].
    pub fn parse_operators(operators: &RawDocument, ctx: &Context) -> Result<Self> {
        Ok(Self { root: parse::value_operators(operators, ctx)?, interruption: Arc::clone(&ctx.interruption) })
    }

    /// The filter that matches everything.
    pub fn always() -> Self {
        Self::from_node(Node::And(Vec::new()))
    }

    /// A filter of the given tree, which asks nobody whether to go on.
    pub fn from_node(root: Node) -> Self {
        Self { root, interruption: Arc::default() }
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Whether the filter is empty, and so matches everything.
    pub fn is_always(&self) -> bool {
        matches!(&self.root, Node::And(children) if children.is_empty())
    }

    /// Whether a document matches.
    pub fn matches(&self, doc: &RawDocument) -> Result<bool> {
        self.root.evaluate(doc, None, &self.interruption)
    }

    /// [`Self::matches`], on behalf of a request that is not the one it was parsed for: a validator, the filter of a partial
    /// index.
    pub fn matches_asking(&self, doc: &RawDocument, asked: &Interruption) -> Result<bool> {
        self.root.evaluate(doc, None, asked)
    }

    /// Whether a value by itself matches: the operators of [`Self::parse_operators`] apply to it without entering an
    /// array; a filter on fields applies to it if it is a document.
    pub fn matches_value(&self, value: RawBsonRef<'_>) -> Result<bool> {
        self.root.evaluate_value(value, &self.interruption)
    }

    /// Whether a document matches, and at which array position: what the positional `$` stands for.
    pub fn matches_with_position(&self, doc: &RawDocument) -> Result<Option<MatchDetails>> {
        let mut details = MatchDetails::default();
        Ok(self.root.evaluate(doc, Some(&mut details), &self.interruption)?.then_some(details))
    }

    /// The fields that an upsert starts from: what the filter says is equal, by dotted path, in order of appearance.
    /// Fails (`NotSingleValueField`) if two of them contradict each other.
    pub fn equalities(&self) -> Result<Vec<(String, Bson)>> {
        equalities::collect(&self.root)
    }

    /// [`Self::equalities`], if the filter asks for nothing else.
    pub fn sole_equalities(&self) -> Option<Vec<(String, Bson)>> {
        equalities::collect_all(&self.root)
    }

    /// The filter in normal form, as explain prints it.
    pub fn to_document(&self) -> Document {
        serialize::document(&self.root)
    }
}

/// Whether a value is a document of operators (`{$gt: 1}`), and not a literal: its first field begins with `$`, and it is
/// no database reference (which has `$ref` and `$id`).
pub fn is_operator_document(value: RawBsonRef<'_>) -> bool {
    parse::is_operators(value, false)
}
