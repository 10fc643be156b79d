//! Evaluation of a filter's tree.
//!
//! Invariants: a field's predicate holds if any value its path leads to satisfies it; a position is recorded only on the
//! way through conjunctions (below `$or`, `$nor` and `$not` there is no one position to speak of).

use super::{FieldNode, Node, Predicate};
use crate::interruption::{BYTES_PER_STEP, Interruption};
use baton_document::path::{self, Container, Found, LeafArrays};
use baton_types::{Error, Result};
use bson::{RawArray, RawBsonRef, RawDocument};
use std::ops::ControlFlow;

/// Where in the document the filter matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchDetails {
    /// The position in the outermost array that was entered implicitly, by the last condition that entered one.
    pub array_index: Option<usize>,
}

impl Node {
    /// Whether the condition holds for a document.
    pub(super) fn evaluate<'a>(
        &self,
        doc: impl Into<Container<'a>>,
        mut details: Option<&mut MatchDetails>,
        asked: &Interruption,
    ) -> Result<bool> {
        let doc = doc.into();
        match self {
            Self::And(children) => {
                for child in children {
                    if !child.evaluate(doc, details.as_deref_mut(), asked)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(children) => any(children, |child| child.evaluate(doc, None, asked)),
            Self::Nor(children) => any(children, |child| child.evaluate(doc, None, asked)).map(|found| !found),
            Self::Not(child) => child.evaluate(doc, None, asked).map(|holds| !holds),
            Self::True => Ok(true),
            Self::False => Ok(false),
            Self::Field(field) => field.evaluate(doc, details, asked),
            Self::Expr(expr) => expr.evaluate(as_document(doc)?, asked),
            Self::Schema(schema) => schema.matches(as_document(doc)?, asked),
            Self::SampleRate(rate) => Ok(rate.draw()),
        }
    }

    /// Whether the condition holds for a value by itself.
    pub(super) fn evaluate_value(&self, value: RawBsonRef<'_>, asked: &Interruption) -> Result<bool> {
        match self {
            Self::And(children) => {
                for child in children {
                    if !child.evaluate_value(value, asked)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(children) => any(children, |child| child.evaluate_value(value, asked)),
            Self::Nor(children) => any(children, |child| child.evaluate_value(value, asked)).map(|found| !found),
            Self::Not(child) => child.evaluate_value(value, asked).map(|holds| !holds),
            Self::Field(field) if field.path.as_str().is_empty() => {
                asked.step()?;
                Ok(field.predicate.test_at(Some(value), asked)?.is_some())
            }
            Self::Field(_) | Self::True | Self::False | Self::Expr(_) | Self::Schema(_) | Self::SampleRate(_) => {
                match value {
                    RawBsonRef::Document(doc) => self.evaluate(doc, None, asked),
                    _ => Ok(matches!(self, Self::True)),
                }
            }
        }
    }
}

fn any(children: &[Node], mut holds: impl FnMut(&Node) -> Result<bool>) -> Result<bool> {
    for child in children {
        if holds(child)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A container as a document; an array as the one it is encoded as.
fn as_document(container: Container<'_>) -> Result<&RawDocument> {
    match container {
        Container::Document(doc) => Ok(doc),
        Container::Array(array) => Ok(RawDocument::from_bytes(array.as_bytes())?),
    }
}

impl FieldNode {
    fn evaluate(&self, doc: Container<'_>, details: Option<&mut MatchDetails>, asked: &Interruption) -> Result<bool> {
        // The way to the value passes over the fields before it.
        asked.steps(1 + doc.as_bytes().len() / BYTES_PER_STEP)?;
        let leaf = match self.predicate {
            Predicate::Size(_) | Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => LeafArrays::Keep,
            Predicate::Compare(_)
            | Predicate::In(_)
            | Predicate::Exists
            | Predicate::Type(_)
            | Predicate::Mod(_)
            | Predicate::Regex(_)
            | Predicate::Bits(_) => LeafArrays::Traverse,
        };
        let mut failure: Option<Error> = None;
        let mut position = None;
        let test = |value| asked.step().and_then(|()| self.predicate.test_at(value, asked));
        let flow = path::visit_with(doc, &self.path, leaf, &mut |found: Found<'_>| match test(found.value) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(own)) => {
                position = found.array_index.or(own);
                ControlFlow::Break(())
            }
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        if let (Some(details), Some(position)) = (details, position) {
            details.array_index = Some(position);
        }
        Ok(flow.is_break())
    }
}

impl Predicate {
    /// Whether a value, or missing, satisfies the predicate. An array counts as a whole.
    pub fn test(&self, value: Option<RawBsonRef<'_>>) -> Result<bool> {
        Ok(self.test_at(value, Interruption::nobody())?.is_some())
    }

    /// As [`Self::test`]; some if it does, and within it the position that `$elemMatch` chose.
    fn test_at(&self, value: Option<RawBsonRef<'_>>, asked: &Interruption) -> Result<Option<Option<usize>>> {
        let holds = match self {
            Self::Compare(comparison) => comparison.test(value),
            Self::In(list) => list.test(value, asked)?,
            Self::Exists => value.is_some(),
            Self::Type(types) => value.is_some_and(|value| types.contains(value.element_type())),
            Self::Mod(modulo) => modulo.test(value),
            Self::Regex(regex) => regex.test(value, asked)?,
            Self::Bits(bits) => bits.test(value),
            Self::Size(size) => match value {
                Some(RawBsonRef::Array(array)) => has_size(array, *size, asked)?,
                _ => false,
            },
            Self::ElemMatchObject(node) | Self::ElemMatchValue(node) => {
                let Some(RawBsonRef::Array(array)) = value else { return Ok(None) };
                let own_fields = matches!(self, Self::ElemMatchObject(_));
                for (i, element) in array.into_iter().enumerate() {
                    asked.step()?;
                    if element_matches(node, element?, own_fields, asked)? {
                        return Ok(Some(Some(i)));
                    }
                }
                false
            }
        };
        Ok(holds.then_some(None))
    }
}

fn element_matches(node: &Node, element: RawBsonRef<'_>, own_fields: bool, asked: &Interruption) -> Result<bool> {
    match element {
        RawBsonRef::Document(doc) if own_fields => node.evaluate(doc, None, asked),
        RawBsonRef::Array(inner) if own_fields => node.evaluate(inner, None, asked),
        _ if own_fields => Ok(false),
        value => node.evaluate_value(value, asked),
    }
}

/// Whether an array has exactly `size` elements, without counting further than needed.
fn has_size(array: &RawArray, size: i64, asked: &Interruption) -> Result<bool> {
    let mut left = size;
    for element in array.iter_elements() {
        asked.step()?;
        element?;
        left -= 1;
        if left < 0 {
            return Ok(false);
        }
    }
    Ok(left == 0)
}
