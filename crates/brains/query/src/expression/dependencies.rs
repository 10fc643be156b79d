//! Which fields an expression reads, so that a projection can be pushed down.

use super::node::{Node, Source};
use std::collections::BTreeSet;

/// What of a document an expression needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Dotted paths.
    pub fields: BTreeSet<String>,
    /// Whether the whole document is needed, whatever `fields` says.
    pub whole_document: bool,
    /// Whether the value may differ between two evaluations for the same document (`$rand`).
    pub random: bool,
}

impl Dependencies {
    /// Adds what `other` needs.
    pub fn merge(&mut self, other: Self) {
        self.fields.extend(other.fields);
        self.whole_document |= other.whole_document;
        self.random |= other.random;
    }
}

/// Adds what `node` needs to `into`.
pub(crate) fn collect(node: &Node, into: &mut Dependencies) {
    match node {
        Node::Constant(_) => {}
        Node::Rand => into.random = true,
        Node::Path(Source::Root, path) if path.is_empty() => into.whole_document = true,
        Node::Path(Source::Root, path) => {
            into.fields.insert(path.join("."));
        }
        Node::Path(Source::Slot(_) | Source::Request(_) | Source::Now | Source::ClusterTime, _) => {}
        Node::Object(fields) => fields.iter().for_each(|(_, node)| collect(node, into)),
        Node::Array(nodes) | Node::And(nodes) | Node::Or(nodes) | Node::IfNull(nodes) => all(nodes, into),
        Node::Cond(parts) | Node::Reduce(_, parts) => all(parts.as_ref(), into),
        Node::Switch(branches, default) => {
            for (condition, value) in branches {
                collect(condition, into);
                collect(value, into);
            }
            if let Some(default) = default {
                collect(default, into);
            }
        }
        Node::Let(_, values, body) => {
            all(values, into);
            collect(body, into);
        }
        Node::Map(_, parts) => all(parts.as_ref(), into),
        Node::Filter(_, parts, limit) => {
            all(parts.as_ref(), into);
            if let Some(limit) = limit {
                collect(limit, into);
            }
        }
        Node::Regex(call) => all(call.operands(), into),
        Node::SortArray(call) => collect(call.input(), into),
        Node::Zip(inputs, defaults, _) => {
            all(inputs, into);
            all(defaults, into);
        }
        Node::Call(call) => all(&call.arguments, into),
    }
}

fn all(nodes: &[Node], into: &mut Dependencies) {
    nodes.iter().for_each(|node| collect(node, into));
}
