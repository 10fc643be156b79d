//! `$set`, and `$setOnInsert` on an insert: the value takes the place of whatever is there.

use super::Outcome;
use crate::raw::Value;
use std::borrow::Cow;

pub(super) fn apply(value: &Value) -> Outcome<'_> {
    Outcome::Put(Cow::Borrowed(value))
}
