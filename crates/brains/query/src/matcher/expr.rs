//! `$expr`: an aggregation expression as a condition.

use crate::Context;
use crate::expression::Expression;
use crate::interruption::Interruption;
use baton_types::Result;
use bson::{Bson, RawBsonRef, RawDocument};
use std::sync::Arc;

/// An expression with the surroundings it is evaluated in.
#[derive(Clone, Debug)]
pub struct ExprNode {
    source: Bson,
    expression: Expression,
    ctx: Arc<Context>,
}

impl ExprNode {
    /// Parses the operand of `$expr`. The values of variables are those of `ctx`, taken now.
    pub(super) fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let expression = Expression::parse(value, ctx)?;
        Ok(Self { source: Bson::try_from(value)?, expression, ctx: Arc::new(ctx.clone()) })
    }

    /// The expression as written.
    pub fn source(&self) -> &Bson {
        &self.source
    }

    /// The expression, parsed.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    pub(super) fn evaluate(&self, doc: &RawDocument, asked: &Interruption) -> Result<bool> {
        self.expression.evaluate_bool_asking(doc, &self.ctx, asked)
    }
}
