//! `$expr`: an aggregation expression as a condition.

use crate::Context;
use baton_types::{Error, Result};
use bson::{Bson, RawBsonRef, RawDocument};

/// An expression with the surroundings it is evaluated in.
#[derive(Clone, Debug)]
pub struct ExprNode {
    source: Bson,
}

impl ExprNode {
    /// Parses the operand of `$expr`.
    pub(super) fn parse(_value: RawBsonRef<'_>, _ctx: &Context) -> Result<Self> {
        Err(Error::not_implemented("$expr"))
    }

    /// The expression as written.
    pub fn source(&self) -> &Bson {
        &self.source
    }

    pub(super) fn evaluate(&self, _doc: &RawDocument) -> Result<bool> {
        Err(Error::not_implemented("$expr"))
    }
}
