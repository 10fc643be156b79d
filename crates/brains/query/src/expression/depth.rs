//! A bound on how deep the values of an expression can nest, from its structure alone.
//!
//! The parser bounds the depth of the expression, and documents are bounded at the edge; but a variable can hold what
//! an outer variable holds and more, so that depth adds up. Arguments of calls count for two levels, the most that any
//! operator wraps around them (`$objectToArray`).

use super::node::{Node, Source};
use super::parse::DEPTH_MAX;

/// How many levels `node` may add to what the document and request bring; `outer` are the levels of the variables
/// bound around it, by slot.
pub(crate) fn levels(node: &Node, outer: &[usize]) -> usize {
    let most = |nodes: &[Node]| nodes.iter().map(|node| levels(node, outer)).max().unwrap_or(0);
    match node {
        Node::Constant(_) | Node::Rand => 0,
        // What is bound within the node is counted where it is bound, below.
        Node::Path(Source::Slot(slot), _) => outer.get(*slot).copied().unwrap_or(0),
        Node::Path(Source::Root | Source::Request(_) | Source::Now | Source::ClusterTime, _) => 0,
        Node::Object(fields) => 1 + fields.iter().map(|(_, node)| levels(node, outer)).max().unwrap_or(0),
        Node::Array(nodes) => 1 + most(nodes),
        Node::And(_) | Node::Or(_) => 0,
        Node::IfNull(nodes) => most(nodes),
        Node::Cond(parts) => most(parts.as_ref()),
        Node::Switch(branches, default) => branches
            .iter()
            .map(|(_, value)| value)
            .chain(default.as_deref())
            .map(|node| levels(node, outer))
            .max()
            .unwrap_or(0),
        Node::Let(_, values, body) => most(values) + levels(body, outer),
        Node::Map(_, parts) => 1 + levels(&parts[0], outer) + levels(&parts[1], outer),
        Node::Filter(_, parts, _) => levels(&parts[0], outer),
        // The value is checked as it grows.
        Node::Reduce(_, parts) => {
            parts.iter().map(|node| levels(node, outer)).sum::<usize>().min(DEPTH_MAX) + levels(&parts[2], outer)
        }
        Node::Regex(_) => 2,
        Node::SortArray(call) => levels(call.input(), outer),
        Node::Zip(inputs, defaults, _) => 1 + most(inputs).max(most(defaults)),
        Node::Call(call) => 2 + most(&call.arguments),
    }
}
