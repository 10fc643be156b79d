//! The predicates of a filter that an index could serve, with where they stand.
//!
//! Invariants: a leaf must hold for every document that matches; two leaves inside the same `$elemMatch` speak of the
//! same array element. Disjunctions have no leaves here: each of their branches is planned by itself.

use crate::matcher::{FieldNode, Node, Predicate};
use baton_document::path::Path;

/// An `$elemMatch` around a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scope {
    /// Which one in the filter.
    id: usize,
    /// How many components lead to the array it speaks of.
    components: usize,
}

/// A predicate with its path from the document's top.
#[derive(Clone, Debug)]
pub(super) struct Leaf<'a> {
    /// Which of the filter's conjuncts it comes from.
    pub(super) conjunct: usize,
    pub(super) path: Path,
    pub(super) predicate: &'a Predicate,
    pub(super) negated: bool,
    scopes: Vec<Scope>,
}

/// The leaves of a conjunction.
pub(super) fn collect(conjuncts: &[Node]) -> Vec<Leaf<'_>> {
    let mut collector = Collector { leaves: Vec::new(), scopes_count: 0 };
    for (conjunct, node) in conjuncts.iter().enumerate() {
        collector.node(node, conjunct, None, &[]);
    }
    collector.leaves
}

struct Collector<'a> {
    leaves: Vec<Leaf<'a>>,
    scopes_count: usize,
}

impl<'a> Collector<'a> {
    fn node(&mut self, node: &'a Node, conjunct: usize, base: Option<&Path>, scopes: &[Scope]) {
        match node {
            Node::Field(field) => self.field(field, false, conjunct, base, scopes),
            Node::Not(child) => {
                if let Node::Field(field) = &**child {
                    self.field(field, true, conjunct, base, scopes);
                }
            }
            Node::And(children) => children.iter().for_each(|child| self.node(child, conjunct, base, scopes)),
            Node::Or(_)
            | Node::Nor(_)
            | Node::True
            | Node::False
            | Node::Expr(_)
            | Node::Schema(_)
            | Node::SampleRate(_) => {}
        }
    }

    fn field(&mut self, field: &'a FieldNode, negated: bool, conjunct: usize, base: Option<&Path>, scopes: &[Scope]) {
        let path = match (base, field.path.as_str()) {
            (None, _) => field.path.clone(),
            (Some(base), "") => base.clone(),
            (Some(base), inner) => Path::parse(&format!("{base}.{inner}")),
        };
        match &field.predicate {
            Predicate::ElemMatchObject(inner) | Predicate::ElemMatchValue(inner) if !negated => {
                let mut scopes = scopes.to_vec();
                scopes.push(Scope { id: self.scopes_count, components: path.parts().len() });
                self.scopes_count += 1;
                self.node(inner, conjunct, Some(&path), &scopes);
            }
            predicate => self.leaves.push(Leaf { conjunct, path, predicate, negated, scopes: scopes.to_vec() }),
        }
    }
}

impl Leaf<'_> {
    /// Whether the predicate stands by itself, outside any `$elemMatch`: only then can the keys alone satisfy it.
    pub(super) fn is_top_level(&self) -> bool {
        self.scopes.is_empty()
    }

    /// Whether a document without the field may match, so that its absence from an index matters.
    pub(super) fn accepts_missing(&self) -> bool {
        let holds = self.predicate.test(None).unwrap_or(true);
        holds != self.negated
    }

    /// Whether two predicates may bound the same key, given whether arrays are on the paths of both: then only if they
    /// are known to speak of the same element of each array that the paths share.
    pub(super) fn is_compatible(&self, other: &Self, both_multikey: bool) -> bool {
        let shared = self.path.parts().iter().zip(other.path.parts()).take_while(|(a, b)| a.name == b.name).count();
        if !both_multikey || shared == 0 {
            return true;
        }
        let in_common = self.scopes.iter().filter(|scope| other.scopes.contains(scope));
        in_common.map(|scope| scope.components).max().is_some_and(|components| components >= shared)
    }
}
