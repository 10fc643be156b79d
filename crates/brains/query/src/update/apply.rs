//! One pass of an update tree over a raw document.
//!
//! What the tree does not name is copied by byte range, so that the cost of `$set` on one field of a large document
//! is a scan of field names up to that field and one copy. Nothing is parsed into a document value.
//!
//! Invariants: a field keeps its place; new fields come last, in the tree's order; a field removed from an array
//! becomes null; each operator sees the document as it was before the update.

use super::array_filter::ArrayFilters;
use super::operators::Outcome;
use super::storage_rules;
use super::tree::{Children, Leaf, Node, POSITIONAL};
use crate::interruption::{BYTES_PER_STEP, Interruption};
use crate::raw::{self, Element};
use crate::show;
use baton_types::{Error, ErrorCode, Result};
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;

/// How many nulls an update may add to reach an array index.
const ARRAY_PADDING_MAX: usize = 1_500_000;

/// What one application of an update knows besides the tree.
pub(super) struct Scope<'a> {
    /// The document before the update.
    pub root: &'a RawDocument,
    /// The array index the filter matched, which `$` stands for.
    pub array_index: Option<usize>,
    pub filters: &'a ArrayFilters,
    /// The tree's operators.
    pub leaves: &'a [Leaf],
    /// Whether the document is being inserted by an upsert.
    pub inserting: bool,
    /// What long work asks whether to go on.
    pub interruption: &'a Interruption,
}

/// The path taken so far, as a list on the stack.
#[derive(Clone, Copy)]
pub(super) struct Trail<'t> {
    parent: Option<&'t Trail<'t>>,
    pub name: &'t str,
}

impl<'t> Trail<'t> {
    fn below(parent: Option<&'t Self>, name: &'t str) -> Self {
        Self { parent, name }
    }

    /// The dotted path.
    pub fn dotted(&self) -> String {
        match self.parent {
            None => self.name.to_owned(),
            Some(parent) => format!("{}.{}", parent.dotted(), self.name),
        }
    }
}

impl Scope<'_> {
    /// Counts the steps of a pass over so many bytes.
    fn pass(&self, bytes: usize) -> Result<()> {
        self.interruption.steps(1 + bytes / BYTES_PER_STEP)
    }

    /// Refuses what has grown beyond what can be stored, long before it is complete: an operator can put as much into
    /// each element of an array as a request holds.
    fn check_growth(&self, out: &[u8]) -> Result<()> {
        if out.len() <= self.root.as_bytes().len() + raw::GROWTH_BYTES_MAX {
            return Ok(());
        }
        Err(storage_rules::too_large(self.inserting))
    }

    /// `_id: value` for messages.
    pub fn id(&self) -> String {
        match raw::find(self.root, "_id") {
            Ok(Some(id)) => id.value().map_or_else(|_| "no id".to_owned(), |v| show::element("_id", v)),
            _ => "no id".to_owned(),
        }
    }
}

/// What applying a node to an existing element did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Unchanged,
    /// The element's new form has been written.
    Written,
    Removed,
}

/// A top-level field that an update changed.
pub(super) struct Change<'a> {
    /// The element before, if there was one.
    pub before: Option<Element<'a>>,
    /// Where in the new document's bytes the element is now, if it still is.
    pub after: Option<Range<usize>>,
}

/// The top-level fields that an update changed, in the order in which they stand in the new document.
pub(super) type Changes<'a> = SmallVec<[Change<'a>; 4]>;

/// Applies a tree, whose fields these are, to `scope.root`. Returns the new document's bytes, or `None` if nothing changed, and adds the
/// top-level changes to `changes`.
pub(super) fn apply<'a>(fields: &Children, scope: &Scope<'a>, changes: &mut Changes<'a>) -> Result<Option<Vec<u8>>> {
    let mut out = Vec::with_capacity(scope.root.as_bytes().len() + 64);
    let mut record = |change: Change<'a>| changes.push(change);
    let changed = object(fields, scope.root, None, scope, &mut out, Some(&mut record))?;
    Ok(changed.then_some(out))
}

/// Which children have met their field. A word for the common case, a vector beyond.
enum Seen {
    Few(u64),
    Many(Vec<bool>),
}

impl Seen {
    fn new(count: usize) -> Self {
        if count <= 64 { Self::Few(0) } else { Self::Many(vec![false; count]) }
    }

    fn contains(&self, i: usize) -> bool {
        match self {
            Self::Few(bits) => bits & (1 << i) != 0,
            Self::Many(flags) => flags[i],
        }
    }

    fn insert(&mut self, i: usize) {
        match self {
            Self::Few(bits) => *bits |= 1 << i,
            Self::Many(flags) => flags[i] = true,
        }
    }
}

type Record<'r, 'a> = Option<&'r mut dyn FnMut(Change<'a>)>;

/// Applies children to the fields of a document, writing the whole document to `out`. Says whether it changed.
fn object<'a>(
    children: &Children,
    doc: &'a RawDocument,
    trail: Option<&Trail<'_>>,
    scope: &Scope<'_>,
    out: &mut Vec<u8>,
    mut record: Record<'_, 'a>,
) -> Result<bool> {
    let children = &*resolve_positional(children, trail, scope)?;
    let bytes = doc.as_bytes();
    scope.pass(bytes.len())?;
    let start = raw::begin(out);
    let mut seen = Seen::new(children.len());
    let mut left = children.len();
    // How much of `doc` is in `out` already.
    let mut copied = 4;
    let mut changed = false;
    for element in raw::elements(doc) {
        if left == 0 {
            break;
        }
        let element = element?;
        let key = element.key();
        let Some(i) = children.position(key).filter(|i| !seen.contains(*i)) else {
            continue;
        };
        seen.insert(i);
        left -= 1;
        out.extend_from_slice(&bytes[copied..element.start]);
        copied = element.start;
        let at = out.len();
        let child = &children[i].1;
        let effect = existing(child, &element, key, &Trail::below(trail, key), scope, false, out)?;
        if effect == Effect::Unchanged {
            continue;
        }
        if trail.is_none() && key == "_id" {
            return Err(Error::new(
                ErrorCode::ImmutableField,
                format!(
                    "Performing an update on the path '{}' would modify the immutable field '_id'",
                    child.first_path(scope.leaves)
                ),
            ));
        }
        changed = true;
        copied = element.end;
        scope.check_growth(out)?;
        if let Some(record) = &mut record {
            let after = (effect == Effect::Written).then_some(at..out.len());
            record(Change { before: Some(element), after });
        }
    }
    out.extend_from_slice(&bytes[copied..bytes.len() - 1]);
    for (i, (name, child)) in children.iter().enumerate() {
        if seen.contains(i) {
            continue;
        }
        let at = out.len();
        scope.interruption.step()?;
        if missing(child, name, &Trail::below(trail, name), scope, out)? {
            changed = true;
            scope.check_growth(out)?;
            if let Some(record) = &mut record {
                record(Change { before: None, after: Some(at..out.len()) });
            }
        }
    }
    raw::end(out, start);
    Ok(changed)
}

/// Puts the matched array index in the place of `$`.
fn resolve_positional<'n>(
    children: &'n Children,
    trail: Option<&Trail<'_>>,
    scope: &Scope<'_>,
) -> Result<Cow<'n, Children>> {
    let Some(at) = children.position(POSITIONAL) else {
        return Ok(Cow::Borrowed(children));
    };
    let Some(index) = scope.array_index else {
        return Err(Error::bad_value("The positional operator did not find the match needed from the query."));
    };
    let index = index.to_string();
    let mut resolved = children.clone();
    let node = resolved.remove(at);
    match resolved.position(&index) {
        Some(at) => *resolved.at_mut(at) = resolved[at].1.merge(&node, &child_path(trail, &index))?,
        None => {
            resolved.push(&index, node);
        }
    }
    resolved.sort_by(super::tree::compare_names);
    Ok(Cow::Owned(resolved))
}

fn child_path(trail: Option<&Trail<'_>>, name: &str) -> String {
    Trail::below(trail, name).dotted()
}

/// Applies a node to an element that exists, writing its new form under `key` unless nothing changed.
fn existing(
    node: &Node,
    element: &Element<'_>,
    key: &str,
    trail: &Trail<'_>,
    scope: &Scope<'_>,
    in_array: bool,
    out: &mut Vec<u8>,
) -> Result<Effect> {
    let mark = out.len();
    let changed = match node {
        Node::Leaf(at) => return apply_leaf(&scope.leaves[*at], element, key, trail, scope, in_array, out),
        Node::Object(children) => match element.container()? {
            Some(inner) if element.is_array() => {
                raw::put_header(out, ElementType::Array, key);
                by_index(children, inner, element, trail, scope, out)?
            }
            Some(inner) => {
                raw::put_header(out, ElementType::EmbeddedDocument, key);
                object(children, inner, Some(trail), scope, out, None)?
            }
            None => {
                let children = resolve_positional(children, Some(trail), scope)?;
                for (name, child) in children.iter() {
                    blocked(child, name, &Trail::below(Some(trail), name), element, trail, scope)?;
                }
                false
            }
        },
        Node::Array(children) => {
            let Some(inner) = element.container()?.filter(|_| element.is_array()) else {
                let text = show::element(key, element.value()?);
                return Err(Error::bad_value(format!("Cannot apply array updates to non-array element {text}")));
            };
            raw::put_header(out, ElementType::Array, key);
            by_filter(children, inner, trail, scope, out)?
        }
    };
    if changed {
        return Ok(Effect::Written);
    }
    out.truncate(mark);
    Ok(Effect::Unchanged)
}

fn apply_leaf(
    leaf: &Leaf,
    element: &Element<'_>,
    key: &str,
    trail: &Trail<'_>,
    scope: &Scope<'_>,
    in_array: bool,
    out: &mut Vec<u8>,
) -> Result<Effect> {
    match leaf.operator.apply(Some(element), trail, scope)? {
        Outcome::Keep => Ok(Effect::Unchanged),
        Outcome::Put(value) if value.same_as(element) => Ok(Effect::Unchanged),
        Outcome::Put(value) => {
            raw::put_bytes(out, value.element_type(), key, value.bytes());
            Ok(Effect::Written)
        }
        // Removing an element would renumber those behind it.
        Outcome::Remove if in_array && element.element_type() == ElementType::Null => Ok(Effect::Unchanged),
        Outcome::Remove if in_array => {
            raw::put_header(out, ElementType::Null, key);
            Ok(Effect::Written)
        }
        Outcome::Remove => Ok(Effect::Removed),
    }
}

/// Creates what a node puts at a path that does not exist. Says whether it wrote anything.
fn missing(node: &Node, name: &str, trail: &Trail<'_>, scope: &Scope<'_>, out: &mut Vec<u8>) -> Result<bool> {
    match node {
        Node::Leaf(at) => match scope.leaves[*at].operator.apply(None, trail, scope)? {
            Outcome::Put(value) => {
                raw::put_bytes(out, value.element_type(), name, value.bytes());
                Ok(true)
            }
            Outcome::Keep | Outcome::Remove => Ok(false),
        },
        Node::Object(children) => {
            let children = resolve_positional(children, Some(trail), scope)?;
            let mark = out.len();
            raw::put_header(out, ElementType::EmbeddedDocument, name);
            let start = raw::begin(out);
            let mut created = false;
            for (name, child) in children.iter() {
                created |= missing(child, name, &Trail::below(Some(trail), name), scope, out)?;
            }
            if created {
                raw::end(out, start);
            } else {
                out.truncate(mark);
            }
            Ok(created)
        }
        Node::Array(_) => Err(must_exist(trail)),
    }
}

fn must_exist(trail: &Trail<'_>) -> Error {
    Error::bad_value(format!(
        "The path '{}' must exist in the document in order to apply array updates.",
        trail.dotted()
    ))
}

/// Decides what a node below a value that has no fields means: an error if it would create something there.
///
/// `name` is the first component that cannot exist, `holder` the element in its way, at `holder_trail`.
fn blocked(
    node: &Node,
    name: &str,
    trail: &Trail<'_>,
    holder: &Element<'_>,
    holder_trail: &Trail<'_>,
    scope: &Scope<'_>,
) -> Result<()> {
    match node {
        Node::Leaf(at) => {
            let leaf = &scope.leaves[*at];
            let would_create = matches!(leaf.operator.apply(None, trail, scope)?, Outcome::Put(_));
            let element = show::element(holder_trail.name, holder.value()?);
            if would_create {
                let message = format!("Cannot create field '{name}' in element {{{element}}}");
                return Err(Error::new(ErrorCode::PathNotViable, message));
            }
            if leaf.operator.tolerates_blocked_path() {
                return Ok(());
            }
            let path = &leaf.path;
            let message = format!("Cannot use the part ({name}) of ({path}) to traverse the element ({{{element}}})");
            Err(Error::new(ErrorCode::PathNotViable, message))
        }
        Node::Object(children) => {
            let children = resolve_positional(children, Some(trail), scope)?;
            children.iter().try_for_each(|(below, child)| {
                blocked(child, name, &Trail::below(Some(trail), below), holder, holder_trail, scope)
            })
        }
        Node::Array(_) => Err(must_exist(trail)),
    }
}

/// Applies children named by array index to an array.
fn by_index(
    children: &Children,
    array: &RawDocument,
    holder: &Element<'_>,
    trail: &Trail<'_>,
    scope: &Scope<'_>,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let children = resolve_positional(children, Some(trail), scope)?;
    let mut by_index: Vec<(usize, &str, &Node)> = Vec::with_capacity(children.len());
    for (name, child) in children.iter() {
        match raw::array_index(name) {
            Some(index) => by_index.push((index, name, child)),
            None => blocked(child, name, &Trail::below(Some(trail), name), holder, trail, scope)?,
        }
    }
    let mut pending = by_index.into_iter().peekable();
    let start = raw::begin(out);
    let mut changed = false;
    let mut length = 0;
    for element in raw::elements(array) {
        let element = element?;
        scope.interruption.step()?;
        scope.check_growth(out)?;
        let effect = match pending.next_if(|(index, _, _)| *index == length) {
            Some((_, name, child)) => {
                existing(child, &element, element.key(), &Trail::below(Some(trail), name), scope, true, out)?
            }
            None => Effect::Unchanged,
        };
        match effect {
            Effect::Unchanged => out.extend_from_slice(element.bytes()),
            Effect::Written | Effect::Removed => changed = true,
        }
        length += 1;
    }
    for (index, name, child) in pending {
        let mark = out.len();
        if index.saturating_sub(length) > ARRAY_PADDING_MAX {
            let message = format!("can't backfill more than {ARRAY_PADDING_MAX} elements");
            return Err(Error::new(ErrorCode::CannotBackfillArray, message));
        }
        for pad in length..index {
            raw::put_header(out, ElementType::Null, &pad.to_string());
        }
        scope.pass(out.len() - mark)?;
        scope.check_growth(out)?;
        if missing(child, name, &Trail::below(Some(trail), name), scope, out)? {
            changed = true;
            length = index + 1;
        } else {
            out.truncate(mark);
        }
    }
    raw::end(out, start);
    Ok(changed)
}

/// Applies children named by array filter to the elements their filters select.
fn by_filter(
    children: &Children,
    array: &RawDocument,
    trail: &Trail<'_>,
    scope: &Scope<'_>,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let start = raw::begin(out);
    let mut changed = false;
    for element in raw::elements(array) {
        let element = element?;
        let here = Trail::below(Some(trail), element.key());
        scope.pass(element.value_bytes().len())?;
        scope.check_growth(out)?;
        let mut node: Option<Cow<'_, Node>> = None;
        for (identifier, child) in children.iter() {
            if scope.filters.selects(identifier, element.element_type(), element.value_bytes())? {
                node = Some(match node {
                    None => Cow::Borrowed(child),
                    Some(first) => Cow::Owned(first.merge(child, &here.dotted())?),
                });
            }
        }
        let effect = match node {
            Some(node) => existing(&node, &element, element.key(), &here, scope, true, out)?,
            None => Effect::Unchanged,
        };
        match effect {
            Effect::Unchanged => out.extend_from_slice(element.bytes()),
            Effect::Written | Effect::Removed => changed = true,
        }
    }
    raw::end(out, start);
    Ok(changed)
}

/// The value at a dotted path, for `$rename`: through documents only.
///
/// An array on the way is an error made by `array_error` from its path; anything else in the way is
/// `PathNotViable` (28).
pub(super) fn value_at<'a>(
    root: &'a RawDocument,
    path: &str,
    array_error: impl Fn(&str) -> Error,
) -> Result<Option<Element<'a>>> {
    let mut doc = root;
    let mut walked = 0;
    let mut components = path.split('.').peekable();
    while let Some(name) = components.next() {
        let Some(element) = raw::find(doc, name)? else { return Ok(None) };
        walked += name.len() + 1;
        let Some(next) = components.peek() else { return Ok(Some(element)) };
        match element.container()? {
            Some(_) if element.is_array() && raw::array_index(next).is_some() => {
                return Err(array_error(&path[..walked - 1]));
            }
            Some(inner) if !element.is_array() => doc = inner,
            _ => {
                let value: RawBsonRef<'_> = element.value()?;
                let message = format!(
                    "Cannot use the part ({next}) of ({path}) to traverse the element ({{{}}})",
                    show::element(name, value)
                );
                return Err(Error::new(ErrorCode::PathNotViable, message));
            }
        }
    }
    Ok(None)
}
