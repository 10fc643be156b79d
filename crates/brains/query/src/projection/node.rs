//! The tree of a projection: what becomes of each field that it names.

use super::slice::Slice;
use crate::by_name::ByName;
use crate::expression::{self, Dependencies, Expression};
use crate::matcher::Matcher;
use baton_types::{Error, Result};

/// What becomes of one field.
#[derive(Debug)]
pub(super) enum Node {
    /// It stays.
    Include,
    /// It goes.
    Exclude,
    /// It gets the value of an expression.
    Compute(Expression),
    /// Its array's first element that matches stays; the filter is on the whole document.
    ElemMatch(Box<Matcher>),
    /// A part of its array stays.
    Slice(Slice),
    /// The element of its array that the query's filter matched stays.
    Positional,
    /// Its own fields are projected.
    Below(Box<Fields>),
}

/// Nodes by field name, in the specification's order.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub children: ByName<Node>,
    /// Whether some field at or below here is computed.
    pub computed: bool,
    /// Whether some field at or below here is [`Node::Positional`].
    pub positional: bool,
}

impl Fields {
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// The child of that name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.children.position(name)
    }

    /// Puts a node at a dotted path. Collisions are 31250 and 31249.
    pub fn add(&mut self, path: &str, node: Node) -> Result<()> {
        expression::check_path(path)?;
        let mut fields = self;
        let mut rest = path;
        loop {
            let (name, below) = match rest.split_once('.') {
                Some((name, below)) => (name, Some(below)),
                None => (rest, None),
            };
            let found = fields.position(name);
            let Some(below) = below else {
                if found.is_some() {
                    return Err(Error::location(31250, format!("Path collision at {path}")));
                }
                fields.children.push(name, node);
                return Ok(());
            };
            let index = found.unwrap_or_else(|| fields.children.push(name, Node::Below(Box::default())));
            match fields.children.at_mut(index) {
                Node::Below(inner) => fields = inner,
                _ => {
                    // As MongoDB puts it: the path but for its first component, wherever they meet.
                    let remaining = path.split_once('.').map_or("", |(_, remaining)| remaining);
                    let message = format!("Path collision at {path} remaining portion {remaining}");
                    return Err(Error::location(31249, message));
                }
            }
            rest = below;
        }
    }

    /// Fills in what can be known once the tree is complete.
    pub fn finish(mut self) -> Self {
        self.summarize();
        self
    }

    fn summarize(&mut self) {
        for node in self.children.values_mut() {
            match node {
                Node::Below(fields) => {
                    fields.summarize();
                    self.computed |= fields.computed;
                    self.positional |= fields.positional;
                }
                Node::Compute(_) | Node::ElemMatch(_) => self.computed = true,
                Node::Positional => self.positional = true,
                Node::Include | Node::Exclude | Node::Slice(_) => (),
            }
        }
    }

    /// Adds what the nodes read; `prefix` is the path of this node.
    pub fn collect_dependencies(&self, prefix: &str, needed: &mut Dependencies) {
        for (name, node) in self.children.iter() {
            let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
            match node {
                Node::Include | Node::ElemMatch(_) | Node::Slice(_) | Node::Positional => {
                    needed.fields.insert(path);
                }
                Node::Exclude => (),
                Node::Compute(expression) => {
                    needed.merge(expression.dependencies());
                    // The value goes into whatever documents and arrays are on the way.
                    if !prefix.is_empty() {
                        needed.fields.insert(prefix.to_owned());
                    }
                }
                Node::Below(fields) => fields.collect_dependencies(&path, needed),
            }
        }
    }
}
