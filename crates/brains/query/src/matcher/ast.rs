//! The tree of a filter.
//!
//! Invariants: `And` holds no `And` and `Or` no `Or`; neither has a single child; the empty `And` is the filter that
//! matches everything. Below [`Predicate::ElemMatchValue`] the paths of field nodes are empty and mean the value itself.

use super::{BitTest, Comparison, ExprNode, InList, Modulo, RegexPredicate, SampleRate, Schema, TypeSet};
use baton_document::path::Path;
use std::sync::Arc;

/// A condition on a document.
#[derive(Clone, Debug)]
pub enum Node {
    /// All of them; `$and`, and several fields or operators.
    And(Vec<Node>),
    /// Any of them; `$or`.
    Or(Vec<Node>),
    /// None of them; `$nor`.
    Nor(Vec<Node>),
    /// Not this one; `$not`, `$ne`, `$nin`, `$exists: false`.
    Not(Box<Node>),
    /// `$alwaysTrue`
    True,
    /// `$alwaysFalse`, and `$all` of nothing.
    False,
    /// A predicate on what a path leads to.
    Field(FieldNode),
    /// `$expr`
    Expr(ExprNode),
    /// `$jsonSchema`
    Schema(Arc<Schema>),
    /// `$sampleRate`
    SampleRate(SampleRate),
}

/// A predicate on what a path leads to.
#[derive(Clone, Debug)]
pub struct FieldNode {
    /// The path; with one empty component below [`Predicate::ElemMatchValue`].
    pub path: Path,
    /// What at least one of the values there must satisfy.
    pub predicate: Predicate,
}

/// A condition on a value.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// `$eq $lt $lte $gt $gte`
    Compare(Comparison),
    /// `$in`
    In(InList),
    /// `$exists: true`
    Exists,
    /// `$type`
    Type(TypeSet),
    /// `$mod`
    Mod(Modulo),
    /// `$regex`
    Regex(Box<RegexPredicate>),
    /// `$bitsAllSet` and its kin.
    Bits(BitTest),
    /// `$size`
    Size(i64),
    /// `$elemMatch` with conditions on the fields of the element.
    ElemMatchObject(Box<Node>),
    /// `$elemMatch` with operators on the element itself.
    ElemMatchValue(Box<Node>),
}

impl Node {
    /// All of `children`.
    pub fn and(children: Vec<Node>) -> Self {
        if children.len() == 1 {
            return Self::only(children, Self::And);
        }
        let mut flat = Vec::with_capacity(children.len());
        for child in children {
            match child {
                Self::And(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        Self::only(flat, Self::And)
    }

    /// Any of `children`.
    pub fn or(children: Vec<Node>) -> Self {
        if children.len() == 1 {
            return Self::only(children, Self::Or);
        }
        let mut flat = Vec::with_capacity(children.len());
        for child in children {
            match child {
                Self::Or(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        Self::only(flat, Self::Or)
    }

    fn only(mut children: Vec<Node>, several: fn(Vec<Node>) -> Self) -> Self {
        match (children.len(), children.pop()) {
            (1, Some(child)) => child,
            (_, last) => {
                children.extend(last);
                several(children)
            }
        }
    }

    /// The contrary of `self`.
    #[allow(clippy::should_implement_trait, reason = "the tree's vocabulary: and, or, not")]
    pub fn not(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// A predicate on a path.
    pub fn field(path: &Path, predicate: Predicate) -> Self {
        Self::Field(FieldNode { path: path.clone(), predicate })
    }

    /// The conditions that must all hold.
    pub fn conjuncts(&self) -> &[Node] {
        match self {
            Self::And(children) => children,
            other => std::slice::from_ref(other),
        }
    }
}
