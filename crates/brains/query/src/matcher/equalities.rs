//! What an upsert starts from: the fields that the filter says are equal to something.
//!
//! Invariants: only conjunctions are followed (`$and`, `$all`, several fields); an `$in` of one value is an equality; no
//! path appears twice and none leads to another, else there is no one document to start from.

use super::{Node, Operator, Predicate};
use baton_document::path::Path;
use baton_types::{Error, ErrorCode, Result};
use bson::Bson;
use std::collections::HashMap;

/// Collects the equalities of a tree.
pub(super) fn collect(root: &Node) -> Result<Vec<(String, Bson)>> {
    let mut found: Vec<(&Path, Bson)> = Vec::new();
    // The paths there are, and those that are a beginning of one.
    let (mut whole, mut below): (HashMap<&str, &Path>, HashMap<&str, &Path>) = Default::default();
    for node in root.conjuncts() {
        let Node::Field(field) = node else { continue };
        let value = match &field.predicate {
            Predicate::Compare(comparison) if comparison.operator == Operator::Eq => comparison.value(),
            Predicate::In(list) if list.regexes().is_empty() => match list.values() {
                [value] => value.as_raw_bson_ref(),
                _ => continue,
            },
            _ => continue,
        };
        let path = field.path.as_str();
        let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
        let met = ends.clone().find_map(|end| whole.get(&path[..end])).or_else(|| below.get(path));
        if let Some(other) = met {
            return Err(conflict(other, &field.path));
        }
        whole.insert(path, &field.path);
        for end in ends {
            below.entry(&path[..end]).or_insert(&field.path);
        }
        found.push((&field.path, Bson::try_from(value)?));
    }
    Ok(found.into_iter().map(|(path, value)| (path.as_str().to_string(), value)).collect())
}

/// The equalities of a tree that holds nothing else.
pub(super) fn collect_all(root: &Node) -> Option<Vec<(String, Bson)>> {
    let found = collect(root).ok()?;
    (found.len() == root.conjuncts().len()).then_some(found)
}

fn conflict(a: &Path, b: &Path) -> Error {
    let cause = if a == b {
        format!("path '{a}' is matched twice")
    } else {
        let (shorter, longer) = if a.is_prefix_of(b) { (a, b) } else { (b, a) };
        format!("both paths '{longer}' and '{shorter}' are matched")
    };
    Error::new(ErrorCode::NotSingleValueField, format!("cannot infer query fields to set, {cause}"))
}
