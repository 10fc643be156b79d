//! Projections: which fields of a document a query returns, in what shape.
//!
//! One tree serves `find`'s projection, `$project`, `$addFields`/`$set` and `$unset`. They differ in what happens to a
//! field that the tree does not name ([`Kind`]) and in what the specification may hold ([`Mode`]).
//!
//! Works on raw documents: what is kept is copied by byte range; only expressions make values.
//!
//! Invariants: kept fields stay in the document's order; computed fields come behind them in the specification's
//! order, unless they take the place of a field that is kept; a path through an array applies to each of its elements.
//!
//! Not here: `$meta` (nothing yet has metadata), and the context that stages and commands put before messages.

mod add_fields;
mod apply;
mod node;
mod parse;
mod slice;
#[cfg(test)]
mod tests;

use crate::Context;
use crate::expression::Dependencies;
use crate::matcher::{MatchDetails, Matcher};
use baton_types::{Error, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use node::{Fields, Node};

/// Whose projection language applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `find`, `findAndModify`: with `$slice`, `$elemMatch` and the positional `.$`.
    Find,
    /// `$project`.
    Aggregate,
}

/// What happens to fields that a projection does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// They go.
    Inclusion,
    /// They stay; the named ones go.
    Exclusion,
    /// They stay; the named ones are computed.
    Addition,
}

/// A parsed projection.
#[derive(Debug)]
pub struct Projection {
    kind: Kind,
    fields: Fields,
    ctx: Context,
}

impl Projection {
    /// Parses a projection. `filter` is the query's, which the positional `.$` depends on.
    pub fn parse(spec: &RawDocument, filter: Option<&Matcher>, ctx: &Context, mode: Mode) -> Result<Self> {
        let (kind, fields) = parse::parse(spec, filter, ctx, mode)?;
        Ok(Self { kind, fields: fields.finish(), ctx: ctx.clone() })
    }

    /// Parses the argument of `$addFields` or `$set`.
    pub fn parse_add_fields(spec: &RawDocument, ctx: &Context) -> Result<Self> {
        Ok(Self { kind: Kind::Addition, fields: add_fields::parse(spec, ctx)?.finish(), ctx: ctx.clone() })
    }

    /// Parses the argument of `$unset`: a path or an array of them.
    pub fn parse_unset(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let mut fields = Fields::default();
        match value {
            RawBsonRef::String(path) => fields.add(path, Node::Exclude)?,
            RawBsonRef::Array(paths) => {
                for path in paths {
                    let RawBsonRef::String(path) = path? else {
                        return Err(Error::location(
                            31120,
                            "$unset specification must be a string or an array containing only string values",
                        ));
                    };
                    fields.add(path, Node::Exclude)?;
                }
                if fields.is_empty() {
                    return Err(Error::location(
                        31119,
                        "$unset specification must be a string or an array with at least one field",
                    ));
                }
            }
            _ => return Err(Error::location(31002, "$unset specification must be a string or an array")),
        }
        Ok(Self { kind: Kind::Exclusion, fields: fields.finish(), ctx: ctx.clone() })
    }

    /// The projected document. `details` tell the array element the filter matched, if
    /// [`needs_match_details`](Self::needs_match_details).
    pub fn apply(&self, doc: &RawDocument, details: Option<&MatchDetails>) -> Result<RawDocumentBuf> {
        self.apply_in(doc, details, &self.ctx)
    }

    /// As [`apply`](Self::apply), with the variables of another context than the one the projection was parsed in.
    pub fn apply_in(&self, doc: &RawDocument, details: Option<&MatchDetails>, ctx: &Context) -> Result<RawDocumentBuf> {
        apply::apply(self.kind, &self.fields, doc, details.and_then(|d| d.array_index), ctx)
    }

    /// Whether the projection depends on which array element the filter matched.
    pub fn needs_match_details(&self) -> bool {
        self.fields.positional
    }

    /// Whether the projection only keeps, or only drops, top-level fields.
    pub fn is_simple_top_level(&self) -> bool {
        self.fields.children.iter().all(|(_, node)| matches!(node, Node::Include | Node::Exclude))
    }

    /// What of a document the projection reads. An index that holds these paths can answer for the document.
    pub fn required_fields(&self) -> Dependencies {
        let mut needed = Dependencies { whole_document: self.kind != Kind::Inclusion, ..Dependencies::default() };
        self.fields.collect_dependencies("", &mut needed);
        needed
    }

    /// Whether an expression reads the whole document, apart from what passes through.
    pub fn computes_from_whole_document(&self) -> bool {
        let mut needed = Dependencies::default();
        self.fields.collect_dependencies("", &mut needed);
        needed.whole_document
    }
}
