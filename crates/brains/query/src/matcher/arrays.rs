//! `$all`, `$elemMatch` and `$size`: parsing. Their evaluation is in `evaluate`, beside the other predicates.

use super::parse::{Parser, is_operators, literal};
use super::{Node, Predicate, integer};
use baton_document::path::Path;
use baton_types::{Error, Result};
use bson::{RawBsonRef, RawDocument};

/// `$all`: a conjunction of equalities, regular expressions or `$elemMatch`es; of nothing, it never matches.
pub(super) fn all(parser: &Parser<'_>, path: &Path, value: RawBsonRef<'_>, depth: usize) -> Result<Node> {
    let RawBsonRef::Array(array) = value else { return Err(Error::bad_value("$all needs an array")) };
    let mut children = Vec::new();
    let mut of_elem_match = None;
    for element in array {
        let element = element?;
        let inner = elem_match_operand(element)?;
        if *of_elem_match.get_or_insert(inner.is_some()) != inner.is_some() {
            return Err(Error::bad_value(if inner.is_some() {
                "no $ expressions in $all"
            } else {
                "$all/$elemMatch has to be consistent"
            }));
        }
        children.push(match inner {
            Some(operand) => Node::field(path, elem_match(parser, operand, depth + 1)?),
            None if is_operators(element, false) => return Err(Error::bad_value("no $ expressions in $all")),
            None => Node::field(path, literal(element)?),
        });
    }
    Ok(if children.is_empty() { Node::False } else { Node::and(children) })
}

/// The operand of `{$elemMatch: …}`, if the value is that.
fn elem_match_operand(value: RawBsonRef<'_>) -> Result<Option<RawBsonRef<'_>>> {
    let RawBsonRef::Document(doc) = value else { return Ok(None) };
    match doc.iter_elements().next() {
        Some(first) => {
            let first = first?;
            Ok(if first.key().as_str() == "$elemMatch" { Some(first.value()?) } else { None })
        }
        None => Ok(None),
    }
}

/// `$elemMatch`: operators on the element itself, or conditions on its fields.
pub(super) fn elem_match(parser: &Parser<'_>, value: RawBsonRef<'_>, depth: usize) -> Result<Predicate> {
    let RawBsonRef::Document(doc) = value else { return Err(Error::bad_value("$elemMatch needs an Object")) };
    if is_on_element_itself(doc)? {
        Ok(Predicate::ElemMatchValue(Box::new(parser.operators(&Path::parse(""), doc, depth + 1)?)))
    } else {
        Ok(Predicate::ElemMatchObject(Box::new(parser.nested().document(doc, depth + 1)?)))
    }
}

/// A first field that begins with `$` means operators on the element, unless it combines whole conditions.
fn is_on_element_itself(doc: &RawDocument) -> Result<bool> {
    let Some(first) = doc.iter_elements().next() else { return Ok(false) };
    let name = first?.key().as_str();
    let combines = matches!(
        name,
        "$and"
            | "$or"
            | "$nor"
            | "$where"
            | "$expr"
            | "$jsonSchema"
            | "$comment"
            | "$alwaysTrue"
            | "$alwaysFalse"
            | "$sampleRate"
            | "$text"
    );
    Ok(is_operators(RawBsonRef::Document(doc), true) && !combines)
}

/// `$size`
pub(super) fn size(value: RawBsonRef<'_>) -> Result<Predicate> {
    integer::parse_non_negative("$size", value)
        .map(Predicate::Size)
        .map_err(|e| Error::bad_value(format!("Failed to parse $size. {}", e.message)))
}
