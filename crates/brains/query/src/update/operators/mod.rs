//! The update operators, one file each, and the table that names them.
//!
//! An operator is parsed once from its argument and then applied to any number of values: it sees the existing value,
//! if there is one, and says what becomes of it. Where in the document that is, and how the result gets there, is the
//! business of [`super::apply`].

mod add_to_set;
mod bit;
mod current_date;
mod inc;
mod min_max;
mod mul;
mod number;
mod pop;
mod pull;
mod pull_all;
mod push;
mod rename;
mod set;

use super::apply::{Scope, Trail};
use crate::Context;
use crate::raw::{ArrayBuilder, Element, Value};
use baton_document::order;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::{RawBsonRef, RawDocument};
use std::borrow::Cow;
use std::cmp::Ordering;

pub(super) use current_date::now;
pub(super) use rename::parse as parse_rename;

/// What becomes of a value.
#[derive(Debug)]
pub(super) enum Outcome<'v> {
    /// It stays; or nothing is created.
    Keep,
    /// This takes its place. The applier finds out whether it differs.
    Put(Cow<'v, Value>),
    /// It goes.
    Remove,
}

/// The operators by name, as the table of update documents has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    AddToSet,
    Bit,
    CurrentDate,
    Inc,
    Max,
    Min,
    Mul,
    Pop,
    Pull,
    PullAll,
    Push,
    Rename,
    Set,
    SetOnInsert,
    Unset,
}

impl Kind {
    /// The operator of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "$addToSet" => Self::AddToSet,
            "$bit" => Self::Bit,
            "$currentDate" => Self::CurrentDate,
            "$inc" => Self::Inc,
            "$max" => Self::Max,
            "$min" => Self::Min,
            "$mul" => Self::Mul,
            "$pop" => Self::Pop,
            "$pull" => Self::Pull,
            "$pullAll" => Self::PullAll,
            "$push" => Self::Push,
            "$rename" => Self::Rename,
            "$set" => Self::Set,
            "$setOnInsert" => Self::SetOnInsert,
            "$unset" => Self::Unset,
            _ => return None,
        })
    }
}

/// One operator with its argument.
#[derive(Debug)]
pub(super) enum Operator {
    AddToSet(add_to_set::AddToSet),
    Bit(bit::Bit),
    Inc(inc::Inc),
    MinMax(min_max::MinMax),
    Mul(mul::Mul),
    Pop(pop::Pop),
    Pull(Box<pull::Pull>),
    PullAll(pull_all::PullAll),
    Push(push::Push),
    /// The destination of a `$rename`; its source is an [`Operator::Unset`].
    Rename(rename::Rename),
    /// `$set`, and `$currentDate`, whose value is known once the update is parsed.
    Set(Value),
    SetOnInsert(Value),
    Unset,
}

impl Operator {
    /// Parses the argument of an operator for one path. `$rename` makes two operators: see [`parse_rename`].
    pub fn parse(kind: Kind, path: &str, argument: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        Ok(match kind {
            Kind::AddToSet => Self::AddToSet(add_to_set::AddToSet::parse(argument)?),
            Kind::Bit => Self::Bit(bit::Bit::parse(argument)?),
            Kind::CurrentDate => Self::Set(current_date::parse(argument, ctx)?),
            Kind::Inc => Self::Inc(inc::Inc::parse(path, argument)?),
            Kind::Max => Self::MinMax(min_max::MinMax::max(argument)),
            Kind::Min => Self::MinMax(min_max::MinMax::min(argument)),
            Kind::Mul => Self::Mul(mul::Mul::parse(path, argument)?),
            Kind::Pop => Self::Pop(pop::Pop::parse(path, argument)?),
            Kind::Pull => Self::Pull(Box::new(pull::Pull::parse(argument, ctx)?)),
            Kind::PullAll => Self::PullAll(pull_all::PullAll::parse(argument)?),
            Kind::Push => Self::Push(push::Push::parse(argument)?),
            Kind::Rename => rename::parse(path, argument)?.1,
            Kind::Set => Self::Set(Value::from(argument)),
            Kind::SetOnInsert => Self::SetOnInsert(Value::from(argument)),
            Kind::Unset => Self::Unset,
        })
    }

    /// Applies the operator to the value at `trail`, or to its absence.
    pub fn apply<'v>(
        &'v self,
        existing: Option<&Element<'_>>,
        trail: &Trail<'_>,
        scope: &Scope<'_>,
    ) -> Result<Outcome<'v>> {
        match self {
            Self::AddToSet(op) => op.apply(existing, trail, scope),
            Self::Bit(op) => op.apply(existing, trail, scope),
            Self::Inc(op) => op.apply(existing, trail, scope),
            Self::MinMax(op) => op.apply(existing),
            Self::Mul(op) => op.apply(existing, trail, scope),
            Self::Pop(op) => op.apply(existing, trail),
            Self::Pull(op) => op.apply(existing, scope),
            Self::PullAll(op) => op.apply(existing, scope),
            Self::Push(op) => op.apply(existing, trail, scope),
            Self::Rename(op) => op.apply(scope),
            Self::Set(value) => Ok(set::apply(value)),
            Self::SetOnInsert(value) => Ok(if scope.inserting { set::apply(value) } else { Outcome::Keep }),
            Self::Unset => Ok(if existing.is_some() { Outcome::Remove } else { Outcome::Keep }),
        }
    }

    /// Whether a path that a scalar blocks means "nothing to do" rather than an error, when nothing would be created.
    pub fn tolerates_blocked_path(&self) -> bool {
        matches!(self, Self::Unset | Self::SetOnInsert(_) | Self::Rename(_))
    }

    /// How deep the value is nested that the operator may write; `None` if only the document can tell.
    pub fn value_depth(&self) -> Result<Option<usize>> {
        Ok(match self {
            Self::Set(value) | Self::SetOnInsert(value) => Some(crate::raw::depth(value.as_ref())?),
            Self::MinMax(op) => Some(crate::raw::depth(op.value.as_ref())?),
            Self::Unset | Self::Inc(_) | Self::Mul(_) | Self::Bit(_) => Some(0),
            Self::Pop(_) | Self::Pull(_) | Self::PullAll(_) => Some(0),
            Self::Push(_) | Self::AddToSet(_) | Self::Rename(_) => None,
        })
    }
}

/// So many values are found as fast by looking at each.
const VALUES_FEW: usize = 8;

/// A value that sorts by MongoDB's order, for ordered sets.
struct Ordered<'v>(RawBsonRef<'v>);

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order::compare(self.0, other.0)
    }
}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered<'_> {}

/// The elements of an array in one vector, each as it lies in the document.
fn array_elements<'a>(element: &Element<'a>) -> Result<Vec<Element<'a>>> {
    match element.container()? {
        Some(inner) => crate::raw::elements(inner).collect(),
        None => Ok(Vec::new()),
    }
}

/// The name of an element's type.
fn type_of(element: &Element<'_>) -> &'static str {
    type_name(element.element_type())
}

/// The name of a value's type.
fn type_of_value(value: RawBsonRef<'_>) -> &'static str {
    type_name(value.element_type())
}

/// The fields of an argument that must be a document with `$each`, if it is one.
fn each_clause<'a>(argument: RawBsonRef<'a>) -> Result<Option<&'a RawDocument>> {
    match argument {
        RawBsonRef::Document(d) if d.get("$each")?.is_some() => Ok(Some(d)),
        _ => Ok(None),
    }
}

/// Fails unless the value that `$pull` or `$pullAll` culls is an array.
fn pulled_array<'e, 'a>(existing: Option<&'e Element<'a>>) -> Result<Option<&'e Element<'a>>> {
    match existing {
        Some(element) if !element.is_array() => Err(Error::bad_value("Cannot apply $pull to a non-array value")),
        other => Ok(other),
    }
}

/// Removes the elements that `pulled` picks.
fn cull<'v>(
    existing: Option<&Element<'_>>,
    scope: &Scope<'_>,
    mut pulled: impl FnMut(&Element<'_>) -> Result<bool>,
) -> Result<Outcome<'v>> {
    let Some(element) = pulled_array(existing)? else { return Ok(Outcome::Keep) };
    let mut rest = ArrayBuilder::new();
    let mut removed = false;
    for item in array_elements(element)? {
        scope.interruption.step()?;
        if pulled(&item)? {
            removed = true;
        } else {
            rest.push(item.element_type(), item.value_bytes());
        }
    }
    Ok(if removed { Outcome::Put(Cow::Owned(rest.finish())) } else { Outcome::Keep })
}
