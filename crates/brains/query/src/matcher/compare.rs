//! `$eq $lt $lte $gt $gte`: one value against one value.
//!
//! Invariants: values of different type brackets never match, with three exceptions that MongoDB makes: `null` equals
//! missing and undefined, everything is less than MaxKey, everything is greater than MinKey. NaN equals NaN and is
//! neither less nor greater than any number.

use baton_document::order;
use bson::spec::ElementType;
use bson::{Decimal128, RawBson, RawBsonRef};
use smol_str::SmolStr;
use std::cmp::Ordering;

/// Which comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    /// `$eq`, and a plain value.
    Eq,
    /// `$lt`
    Lt,
    /// `$lte`
    Lte,
    /// `$gt`
    Gt,
    /// `$gte`
    Gte,
}

impl Operator {
    /// The operator as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eq => "$eq",
            Self::Lt => "$lt",
            Self::Lte => "$lte",
            Self::Gt => "$gt",
            Self::Gte => "$gte",
        }
    }

    /// Whether equal values satisfy it.
    fn includes_equal(self) -> bool {
        matches!(self, Self::Eq | Self::Lte | Self::Gte)
    }

    /// Whether a value that compares so satisfies it.
    fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Self::Eq => ordering.is_eq(),
            Self::Lt => ordering.is_lt(),
            Self::Lte => ordering.is_le(),
            Self::Gt => ordering.is_gt(),
            Self::Gte => ordering.is_ge(),
        }
    }
}

/// What is compared with. A short text, as many an `_id` is, takes no memory of its own.
#[derive(Clone, Debug)]
enum Constant {
    Text(SmolStr),
    Other(RawBson),
}

impl From<RawBsonRef<'_>> for Constant {
    fn from(value: RawBsonRef<'_>) -> Self {
        match value {
            RawBsonRef::String(text) => Self::Text(text.into()),
            other => Self::Other(other.into()),
        }
    }
}

/// A comparison with a constant.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Which comparison.
    pub operator: Operator,
    constant: Constant,
    bracket: u8,
    is_nan: bool,
}

impl Comparison {
    /// A comparison with `value`, which the parser has found fit for it.
    pub fn new(operator: Operator, value: RawBsonRef<'_>) -> Self {
        Self {
            operator,
            bracket: order::canonical_type(value.element_type()),
            is_nan: is_nan(value),
            constant: value.into(),
        }
    }

    /// What is compared with.
    #[inline]
    pub fn value(&self) -> RawBsonRef<'_> {
        match &self.constant {
            Constant::Text(text) => RawBsonRef::String(text),
            Constant::Other(value) => value.as_raw_bson_ref(),
        }
    }

    /// Whether a value, or missing, satisfies the comparison. Arrays are compared as wholes.
    pub fn test(&self, value: Option<RawBsonRef<'_>>) -> bool {
        let constant = self.value();
        let Some(value) = value else { return self.test_other_bracket(ElementType::Undefined) };
        if order::canonical_type(value.element_type()) != self.bracket
            || (value.element_type() == ElementType::Undefined) != (constant == RawBsonRef::Undefined)
        {
            return self.test_other_bracket(value.element_type());
        }
        if self.is_nan || is_nan(value) {
            return self.operator.includes_equal() && self.is_nan && is_nan(value);
        }
        self.operator.accepts(order::compare(value, constant))
    }

    fn test_other_bracket(&self, element_type: ElementType) -> bool {
        match (self.value().element_type(), self.operator) {
            (ElementType::Null, operator) => {
                matches!(element_type, ElementType::Undefined | ElementType::Null) && operator.includes_equal()
            }
            (ElementType::MaxKey, Operator::Lt | Operator::Lte) => true,
            (ElementType::MinKey, Operator::Gt | Operator::Gte) => true,
            _ => false,
        }
    }
}

/// Whether a value is a number that is not one.
pub(super) fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(d) => d.is_nan(),
        RawBsonRef::Decimal128(d) => decimal_is_nan(d),
        _ => false,
    }
}

/// In decimal128's encoding the five bits below the sign say NaN.
fn decimal_is_nan(decimal: Decimal128) -> bool {
    decimal.bytes()[15] & 0x7c == 0x7c
}
