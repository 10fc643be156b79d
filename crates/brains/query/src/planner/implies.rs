//! Whether a filter implies another: then a partial index holds every document the query can match.
//!
//! Invariants: sound, not complete. What is not recognised is not implied.

use super::bounds::{self, FieldFacts, Precision};
use crate::matcher::{FieldNode, Matcher, Node, Predicate};

/// Whether every document that matches `filter` also matches `partial`.
pub(super) fn implies(filter: &Matcher, partial: &Matcher) -> bool {
    node_implies(filter.root(), partial.root())
}

fn node_implies(filter: &Node, partial: &Node) -> bool {
    match (filter, partial) {
        (_, Node::True) => true,
        (_, Node::And(parts)) => parts.iter().all(|part| node_implies(filter, part)),
        (Node::Or(branches), _) => branches.iter().all(|branch| node_implies(branch, partial)),
        (_, Node::Or(alternatives)) => {
            alternatives.iter().any(|alternative| node_implies(filter, alternative))
                || conjunct_implies(filter, partial)
        }
        _ => conjunct_implies(filter, partial),
    }
}

fn conjunct_implies(filter: &Node, partial: &Node) -> bool {
    match filter {
        Node::And(conjuncts) => conjuncts.iter().any(|conjunct| node_implies(conjunct, partial)),
        Node::Field(known) => match partial {
            Node::Field(wanted) => field_implies(known, wanted),
            _ => false,
        },
        Node::Not(_) => is_same(filter, partial) || negation_implies(filter, partial),
        Node::False => true,
        Node::Or(_) | Node::Nor(_) | Node::True | Node::Expr(_) | Node::Schema(_) | Node::SampleRate(_) => {
            is_same(filter, partial)
        }
    }
}

/// Two conditions that print alike are one; but drawing twice is not drawing once.
fn is_same(a: &Node, b: &Node) -> bool {
    !matches!(a, Node::SampleRate(_))
        && Matcher::from_node(a.clone()).to_document() == Matcher::from_node(b.clone()).to_document()
}

/// `{a: {$ne: null}}` says that `a` exists, at the top level.
fn negation_implies(filter: &Node, partial: &Node) -> bool {
    let (Node::Not(child), Node::Field(wanted)) = (filter, partial) else { return false };
    let Node::Field(known) = &**child else { return false };
    matches!(wanted.predicate, Predicate::Exists)
        && known.path == wanted.path
        && !known.path.is_dotted()
        && known.predicate.test(None).unwrap_or(false)
}

fn field_implies(known: &FieldNode, wanted: &FieldNode) -> bool {
    if known.path != wanted.path {
        return false;
    }
    if let Predicate::Exists = wanted.predicate {
        return !known.predicate.test(None).unwrap_or(true);
    }
    let facts = FieldFacts { is_multikey: true, has_numeric_component: false, is_sparse_alone: false };
    let value_sets = match (&known.predicate, &wanted.predicate) {
        (Predicate::Compare(_) | Predicate::In(_) | Predicate::Regex(_), Predicate::Compare(_) | Predicate::In(_)) => {
            bounds::bounds(&known.predicate, false, facts).zip(bounds::bounds(&wanted.predicate, false, facts))
        }
        _ => None,
    };
    // Every value that satisfies the one is in its set; every value in an exact set satisfies the other.
    if let Some((known, wanted)) = value_sets
        && wanted.precision == Precision::Exact
        && wanted.set.contains_all(&known.set)
    {
        return true;
    }
    is_same(&Node::Field(known.clone()), &Node::Field(wanted.clone()))
}
