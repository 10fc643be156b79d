//! The shape of a query: what a cached choice of plan depends on, without the constants.
//!
//! Invariants: two queries of one shape have the same candidates up to the values in their bounds. So the shape names,
//! beside paths and operators, what about a constant changes the bounds' kind (null, arrays, fixed prefixes), and which
//! indexes with holes the query may use.

use super::index::IndexSpec;
use super::{Query, implies, regex_prefix};
use crate::matcher::{Node, Predicate};
use bson::RawBsonRef;
use std::fmt::Write as _;
use std::sync::Arc;

/// The shape as text.
pub(super) fn shape(query: &Query<'_>, indexes: &[Arc<IndexSpec>]) -> String {
    let mut out = String::new();
    node(&mut out, query.filter.root());
    out.push('|');
    if let Some(sort) = query.sort {
        for part in sort.parts() {
            _ = write!(out, "{}:{:?},", part.field, part.direction);
        }
    }
    out.push('|');
    if let Some(projection) = &query.projection {
        match &projection.fields {
            Some(fields) => fields.iter().for_each(|field| _ = write!(out, "{field},")),
            None => out.push('*'),
        }
    }
    out.push('|');
    // Which partial indexes hold all that can match depends on the constants.
    for index in indexes {
        if let Some(partial) = &index.partial {
            out.push(if implies::implies(query.filter, partial) { '1' } else { '0' });
        }
    }
    out.push(if query.is_count { 'c' } else { 'f' });
    out
}

/// Eight hexadecimal digits for a shape (FNV-1a, folded), as explain's `queryHash`.
pub fn hash(shape: &str) -> String {
    let hash = shape
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:08X}", (hash ^ (hash >> 32)) as u32)
}

fn node(out: &mut String, condition: &Node) {
    match condition {
        Node::And(children) => list(out, "and", children),
        Node::Or(children) => list(out, "or", children),
        Node::Nor(children) => list(out, "nor", children),
        Node::Not(child) => list(out, "not", std::slice::from_ref(child)),
        Node::True => out.push_str("true"),
        Node::False => out.push_str("false"),
        Node::Field(field) => {
            _ = write!(out, "{:?}", field.path.as_str());
            predicate(out, &field.predicate);
        }
        Node::Expr(expr) => _ = write!(out, "expr{}", expr.source()),
        Node::Schema(_) => out.push_str("schema"),
        Node::SampleRate(_) => out.push_str("sample"),
    }
}

fn list(out: &mut String, name: &str, children: &[Node]) {
    out.push_str(name);
    out.push('[');
    for child in children {
        node(out, child);
        out.push(',');
    }
    out.push(']');
}

fn predicate(out: &mut String, condition: &Predicate) {
    match condition {
        Predicate::Compare(comparison) => {
            out.push_str(comparison.operator.name());
            constant(out, comparison.value());
        }
        Predicate::In(list) => {
            out.push_str("$in");
            if list.values().len() == 1 {
                out.push('1');
            }
            list.values().iter().for_each(|value| constant(out, value.as_raw_bson_ref()));
            if !list.regexes().is_empty() {
                out.push('r');
            }
        }
        Predicate::Exists => out.push_str("$exists"),
        Predicate::Type(types) => _ = write!(out, "$type{types:?}"),
        Predicate::Mod(_) => out.push_str("$mod"),
        Predicate::Regex(regex) => {
            out.push_str("$regex");
            if !regex_prefix::of(regex.pattern(), regex.options()).text.is_empty() {
                out.push('^');
            }
        }
        Predicate::Bits(_) => out.push_str("$bits"),
        Predicate::Size(_) => out.push_str("$size"),
        Predicate::ElemMatchObject(inner) => list(out, "elemMatch", std::slice::from_ref(inner)),
        Predicate::ElemMatchValue(inner) => list(out, "elemMatchValue", std::slice::from_ref(inner)),
    }
}

/// What of a constant changes the kind of bounds.
fn constant(out: &mut String, value: RawBsonRef<'_>) {
    match value {
        RawBsonRef::Null if !out.ends_with('n') => out.push('n'),
        RawBsonRef::Array(_) if !out.ends_with('a') => out.push('a'),
        RawBsonRef::MinKey | RawBsonRef::MaxKey if !out.ends_with('m') => out.push('m'),
        _ => {}
    }
}
