//! The operators of one update arranged by path: a tree whose inner nodes are path components and whose leaves are
//! operators, as MongoDB's update tree.
//!
//! ```text
//!   {$set: {"a.b": 1, c: 2}, $inc: {"a.d": 1}}
//!
//!   fields   a ─▶ b ─▶ 0, d ─▶ 2      c ─▶ 1
//!   leaves   0: $set a.b   1: $set c   2: $inc a.d
//! ```
//!
//! The tree is what makes an update one pass over the document: each node knows which of its fields to touch, and the
//! rest is copied. Building it finds conflicting paths. Most updates name a few fields of the document itself: theirs is no more than
//! a list of names and one of operators, which for a single field take no memory of their own.
//!
//! Invariants: the children of a node are sorted ([`compare_names`]) once [`Builder::finish`] has run, so that new fields
//! appear in that order; no path leads through a leaf; the children of an [`Node::Array`] are array-filter identifiers
//! (`""` for `$[]`), those of an [`Node::Object`] and of the tree are field names, array indexes, or `$`.

use super::array_filter::ArrayFilters;
use super::operators::Operator;
use super::storage_rules::DEPTH_MAX;
use crate::by_name::ByName;
use crate::raw;
use baton_types::{Error, ErrorCode, Result};
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::cmp::Ordering;

/// The positional operator as a path component.
pub(super) const POSITIONAL: &str = "$";

/// Most components of a path.
const PATH_COMPONENTS_MAX: usize = 200;

/// Children by name.
pub(super) type Children = ByName<Node>;

/// See the file's header.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// What becomes of the document's fields.
    pub fields: Children,
    pub leaves: Leaves,
}

/// The operators, in the order in which the update names them.
pub(super) type Leaves = SmallVec<[Leaf; 1]>;

/// A node of the tree. Cheap to clone: operators are kept beside the nodes.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Apply the operator that has this place among the leaves.
    Leaf(usize),
    /// Go on by field name or array index.
    Object(Box<Children>),
    /// Go on by array filter.
    Array(Box<Children>),
}

/// An operator and the path it was given for.
#[derive(Debug)]
pub(super) struct Leaf {
    pub operator: Operator,
    /// As the client wrote it, for messages.
    pub path: SmolStr,
}

impl Node {
    /// The path of the first operator at or below this node.
    pub fn first_path<'l>(&self, leaves: &'l [Leaf]) -> &'l str {
        match self {
            Self::Leaf(at) => &leaves[*at].path,
            Self::Object(children) | Self::Array(children) => {
                children.first().map_or("", |(_, child)| child.first_path(leaves))
            }
        }
    }

    /// Both nodes' operators in one node; `path` is where they met.
    pub fn merge(&self, other: &Self, path: &str) -> Result<Self> {
        match (self, other) {
            (Self::Object(a), Self::Object(b)) => Ok(Self::Object(Box::new(merge_children(a, b, path)?))),
            (Self::Array(a), Self::Array(b)) => Ok(Self::Array(Box::new(merge_children(a, b, path)?))),
            _ => {
                Err(Error::new(ErrorCode::ConflictingUpdateOperators, format!("Update created a conflict at '{path}'")))
            }
        }
    }
}

fn merge_children(a: &Children, b: &Children, path: &str) -> Result<Children> {
    let mut merged = a.clone();
    for (name, node) in b.iter() {
        match merged.position(name) {
            Some(at) => *merged.at_mut(at) = merged[at].1.merge(node, &format!("{path}.{name}"))?,
            None => {
                merged.push(name, node.clone());
            }
        }
    }
    merged.sort_by(compare_names);
    Ok(merged)
}

/// Sorts children, all the way down.
fn sort(children: &mut Children) {
    children.sort_by(compare_names);
    for node in children.values_mut() {
        if let Node::Object(children) | Node::Array(children) = node {
            sort(children);
        }
    }
}

/// The order in which an update touches, and so creates, fields: array indexes by number and first, then names by
/// their bytes.
pub(super) fn compare_names(a: &str, b: &str) -> Ordering {
    match (raw::array_index(a), raw::array_index(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The identifier of a `$[identifier]` component.
fn filter_identifier(component: &str) -> Option<&str> {
    component.strip_prefix("$[")?.strip_suffix(']')
}

/// Whether a path has a component that only a document can resolve: `$`, `$[]` or `$[identifier]`.
pub(super) fn is_dynamic(path: &str) -> bool {
    path.split('.').any(|c| c == POSITIONAL || filter_identifier(c).is_some())
}

/// Collects operators into a tree.
pub(super) struct Builder<'f> {
    tree: Tree,
    filters: &'f mut ArrayFilters,
}

impl<'f> Builder<'f> {
    pub fn new(filters: &'f mut ArrayFilters) -> Self {
        Self { tree: Tree::default(), filters }
    }

    /// The finished tree, its fields in the order they were added.
    pub fn finish_unsorted(self) -> Tree {
        self.tree
    }

    /// The finished tree.
    pub fn finish(self) -> Tree {
        let mut tree = self.tree;
        sort(&mut tree.fields);
        tree
    }

    /// Adds one operator at a dotted path.
    ///
    /// Fails with `EmptyFieldName` (56) for empty components, `BadValue` (2) for misplaced positional components, and
    /// `ConflictingUpdateOperators` (40) if the path meets an earlier one.
    pub fn add(&mut self, path: &str, operator: Operator) -> Result<()> {
        check_path(path)?;
        let components: SmallVec<[&str; 8]> = path.split('.').collect();
        if components.len() > PATH_COMPONENTS_MAX {
            // Deeper than any document; and the tree is walked recursively.
            let message = format!("Document exceeds maximum nesting depth of {DEPTH_MAX}");
            return Err(Error::new(ErrorCode::Overflow, message));
        }
        let Tree { fields, leaves } = &mut self.tree;
        let mut children = fields;
        for (i, component) in components.iter().enumerate() {
            let name = match filter_identifier(component) {
                None => component,
                Some(_) if i == 0 => {
                    return Err(Error::bad_value(format!(
                        "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{path}'"
                    )));
                }
                Some(identifier) => {
                    self.filters.mark_used(identifier, path)?;
                    identifier
                }
            };
            let conflict = |end: usize| {
                let place = components[..end].join(".");
                let message = format!("Updating the path '{path}' would create a conflict at '{place}'");
                Err(Error::new(ErrorCode::ConflictingUpdateOperators, message))
            };
            let found = children.position(name);
            let Some(next) = components.get(i + 1) else {
                if found.is_some() {
                    return conflict(i + 1);
                }
                children.push(name, Node::Leaf(leaves.len()));
                leaves.push(Leaf { operator, path: path.into() });
                return Ok(());
            };
            let by_filter = filter_identifier(next).is_some();
            let fresh = || if by_filter { Node::Array(Box::default()) } else { Node::Object(Box::default()) };
            let index = found.unwrap_or_else(|| children.push(name, fresh()));
            children = match children.at_mut(index) {
                Node::Object(below) if !by_filter => below,
                Node::Array(below) if by_filter => below,
                _ => return conflict(i + 1),
            };
        }
        Ok(())
    }
}

/// The rules for update paths that need no other path.
pub(super) fn check_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(Error::new(ErrorCode::EmptyFieldName, "An empty update path is not valid."));
    }
    let mut positional = 0;
    for (i, component) in path.split('.').enumerate() {
        if component.is_empty() {
            return Err(Error::new(
                ErrorCode::EmptyFieldName,
                format!("The update path '{path}' contains an empty field name, which is not allowed."),
            ));
        }
        if component == POSITIONAL {
            positional += 1;
            if positional > 1 {
                return Err(Error::bad_value(format!(
                    "Too many positional (i.e. '$') elements found in path '{path}'"
                )));
            }
            if i == 0 {
                return Err(Error::bad_value(format!(
                    "Cannot have positional (i.e. '$') element in the first position in path '{path}'"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_all(paths: &[&str]) -> Result<Tree> {
        let mut filters = ArrayFilters::default();
        let mut builder = Builder::new(&mut filters);
        for path in paths {
            builder.add(path, Operator::Unset)?;
        }
        Ok(builder.finish())
    }

    #[test]
    fn paths_that_meet_are_refused_where_they_meet() {
        for (paths, place) in [
            (&["a.b", "a.b"][..], "a.b"),
            (&["a", "a.b"], "a"),
            (&["a.b", "a"], "a"),
            (&["a.b.c", "a.b.c.d"], "a.b.c"),
            (&["a.$[]", "a.0"], "a"),
        ] {
            let error = add_all(paths).unwrap_err();
            let last = paths[paths.len() - 1];
            assert_eq!(error.code, ErrorCode::ConflictingUpdateOperators);
            assert_eq!(error.message, format!("Updating the path '{last}' would create a conflict at '{place}'"));
        }
        add_all(&["a.b", "a.c", "ab", "a.$"]).unwrap();
    }

    #[test]
    fn malformed_paths_are_refused() {
        for (path, code, message) in [
            ("", 56, "An empty update path is not valid."),
            ("a..b", 56, "The update path 'a..b' contains an empty field name, which is not allowed."),
            (".a", 56, "The update path '.a' contains an empty field name, which is not allowed."),
            ("a.$.b.$", 2, "Too many positional (i.e. '$') elements found in path 'a.$.b.$'"),
            ("$.a", 2, "Cannot have positional (i.e. '$') element in the first position in path '$.a'"),
            (
                "$[].a",
                2,
                "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '$[].a'",
            ),
            ("a.$[x]", 2, "No array filter found for identifier 'x' in path 'a.$[x]'"),
        ] {
            let error = add_all(&[path]).unwrap_err();
            assert_eq!((error.code.0, error.message.as_str()), (code, message));
        }
    }

    #[test]
    fn a_path_as_long_as_a_message_is_refused() {
        let error = add_all(&["a.".repeat(1_000_000).trim_end_matches('.')]).unwrap_err();
        assert_eq!(error.code, ErrorCode::Overflow);
    }

    #[test]
    fn children_sort_by_number_then_name() {
        let tree = add_all(&["b", "10", "a", "9", "B"]).unwrap();
        let names: Vec<&str> = tree.fields.iter().map(|(n, _)| &**n).collect();
        assert_eq!(names, ["9", "10", "B", "a", "b"]);
    }
}
