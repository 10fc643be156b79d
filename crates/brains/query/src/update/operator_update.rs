//! Updates by operators: `{$set: {…}, $inc: {…}}`.

use super::apply::{self, Change, Changes, Scope};
use super::array_filter::ArrayFilters;
use super::diff::{self, Delta};
use super::operators::{Kind, Operator, parse_rename};
use super::tree::{Builder, Node, Tree};
use super::{Applied, OplogUpdate, storage_rules};
use crate::Context;
use crate::interruption::Interruption;
use crate::{raw, show};
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use smallvec::SmallVec;
use std::sync::Arc;

/// A parsed update by operators.
#[derive(Debug)]
pub(super) struct OperatorUpdate {
    tree: Tree,
    filters: ArrayFilters,
    /// Whether a result may be nested too deep; known not to be for almost all updates.
    check_depth: bool,
    interruption: Arc<Interruption>,
}

impl OperatorUpdate {
    pub fn parse(spec: &RawDocument, mut filters: ArrayFilters, ctx: &Context) -> Result<Self> {
        let mut builder = Builder::new(&mut filters);
        let mut check_depth = false;
        for modifier in spec {
            let (name, argument) = modifier?;
            let name = name.as_str();
            let kind = Kind::from_name(name).ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an array"
                ))
            })?;
            let RawBsonRef::Document(paths) = argument else {
                let (found, modifier) = (type_name(argument.element_type()), show::element(name, argument));
                return Err(Error::failed_to_parse(format!(
                    "Modifiers operate on fields but we found type {found} instead. For example: {{$mod: {{<field>: ...}}}} not {{{modifier}}}"
                )));
            };
            for field in paths {
                let (path, argument) = field?;
                let path = path.as_str();
                if kind == Kind::Rename {
                    let (destination, operator) = parse_rename(path, argument)?;
                    check_depth |= destination.contains('.');
                    builder.add(path, Operator::Unset)?;
                    builder.add(&destination, operator)?;
                    continue;
                }
                let operator = Operator::parse(kind, path, argument, ctx)?;
                let depth = path.split('.').count();
                check_depth |= operator.value_depth()?.is_none_or(|d| d + depth > storage_rules::DEPTH_MAX);
                builder.add(path, operator)?;
            }
        }
        let tree = builder.finish();
        filters.check_all_used(spec)?;
        Ok(Self { tree, filters, check_depth, interruption: Arc::clone(&ctx.interruption) })
    }

    /// The document made of `paths` and their values, in their order. For upserts, from the filter's equalities.
    pub fn document_of(paths: Vec<(String, bson::Bson)>) -> Result<RawDocumentBuf> {
        let mut filters = ArrayFilters::default();
        let mut builder = Builder::new(&mut filters);
        for (path, value) in paths {
            builder.add(&path, Operator::Set(raw::Value::from_bson(value)?))?;
        }
        let tree = builder.finish_unsorted();
        let empty = RawDocumentBuf::new();
        let interruption = Interruption::nobody();
        let leaves = &tree.leaves;
        let scope = Scope { root: &empty, array_index: None, filters: &filters, leaves, inserting: true, interruption };
        let made = apply::apply(&tree.fields, &scope, &mut Changes::new())?;
        made.map_or_else(|| Ok(RawDocumentBuf::new()), raw::finish)
    }

    /// The top-level names the update may touch.
    pub fn touched_fields(&self) -> Vec<&str> {
        self.tree.fields.iter().map(|(name, _)| &**name).collect()
    }

    fn scope<'a>(&'a self, root: &'a RawDocument, array_index: Option<usize>, inserting: bool) -> Scope<'a> {
        let Self { tree, filters, interruption, .. } = self;
        Scope { root, array_index, filters, leaves: &tree.leaves, inserting, interruption }
    }

    pub fn apply(&self, doc: &RawDocument, array_index: Option<usize>) -> Result<Applied> {
        let scope = self.scope(doc, array_index, false);
        let mut changes = Changes::new();
        let Some(bytes) = apply::apply(&self.tree.fields, &scope, &mut changes)? else {
            return Ok(Applied { document: None, oplog: OplogUpdate::Unchanged });
        };
        let after = raw::finish(bytes)?;
        self.check(&after, &changes)?;
        let oplog = describe(doc, &after, &changes)?;
        Ok(Applied { document: Some(after), oplog })
    }

    /// The document that an upsert inserts, made from the one that the filter's equalities make.
    pub fn insert(&self, base: &RawDocument) -> Result<RawDocumentBuf> {
        let scope = self.scope(base, None, true);
        let mut changes = Changes::new();
        match apply::apply(&self.tree.fields, &scope, &mut changes)? {
            None => Ok(base.to_owned()),
            Some(bytes) => {
                let document = raw::finish(bytes)?;
                if self.check_depth {
                    storage_rules::check_depth(&document)?;
                }
                storage_rules::check_size(&document, true)?;
                Ok(document)
            }
        }
    }

    fn check(&self, after: &RawDocument, changes: &[Change<'_>]) -> Result<()> {
        for change in changes {
            let Some(range) = &change.after else { continue };
            let (name, _, _) = split_element(after, range.clone());
            // Below a name that is there already, everything may be written.
            if name.starts_with('$') && (change.before.is_none() || self.writes_whole(name)) {
                storage_rules::check_name(after, name)?;
            }
        }
        if self.check_depth {
            storage_rules::check_depth(after)?;
        }
        storage_rules::check_size(after, false)
    }

    /// Whether an operator is given for a top-level field itself.
    fn writes_whole(&self, name: &str) -> bool {
        self.tree.fields.get(name).is_some_and(|node| matches!(node, Node::Leaf(_)))
    }
}

/// Name, type and value of the element at a range of a document's bytes.
fn split_element(doc: &RawDocument, range: std::ops::Range<usize>) -> (&str, ElementType, &[u8]) {
    let bytes = doc.as_bytes().get(range).unwrap_or_default();
    let kind = bytes.first().and_then(|b| ElementType::from(*b)).unwrap_or(ElementType::Null);
    let rest = bytes.get(1..).unwrap_or_default();
    let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
    (std::str::from_utf8(&rest[..end]).unwrap_or_default(), kind, rest.get(end + 1..).unwrap_or_default())
}

/// How the oplog tells the change: as a delta unless that is larger than the document.
fn describe(before: &RawDocument, after: &RawDocument, changes: &[Change<'_>]) -> Result<OplogUpdate> {
    let touched: SmallVec<[&str; 8]> = changes.iter().filter_map(|c| c.before.as_ref().map(|e| e.key())).collect();
    if diff::is_ambiguous(before, &touched)? {
        return Ok(OplogUpdate::Replacement);
    }
    let mut delta = Delta::default();
    for change in changes {
        match (&change.before, &change.after) {
            (Some(before), None) => delta.remove(before.key()),
            (Some(before), Some(range)) => {
                let (name, kind, value) = split_element(after, range.clone());
                delta.update(name, before, kind, value)?;
            }
            (None, Some(range)) => delta.insert(after.as_bytes().get(range.clone()).unwrap_or_default()),
            (None, None) => (),
        }
    }
    OplogUpdate::from_delta(delta.len_max(), |out| delta.encode(out), after)
}
