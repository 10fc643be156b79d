//! `$in` (and below a `$not`, `$nin`): one value among many.
//!
//! Invariants: the values are sorted by MongoDB's order and distinct; regular expressions stand apart; `null` among the
//! values also means missing and undefined.

use super::regex::RegexPredicate;
use crate::interruption::Interruption;
use baton_document::order;
use baton_types::Result;
use bson::{RawBson, RawBsonRef};

/// The operand of `$in`.
#[derive(Clone, Debug, Default)]
pub struct InList {
    values: Vec<RawBson>,
    regexes: Vec<RegexPredicate>,
    has_null: bool,
}

impl InList {
    /// A list of values and of regular expressions.
    pub fn new(mut values: Vec<RawBson>, regexes: Vec<RegexPredicate>) -> Self {
        values.sort_by(|a, b| order::compare(a.as_raw_bson_ref(), b.as_raw_bson_ref()));
        values.dedup_by(|a, b| order::compare(a.as_raw_bson_ref(), b.as_raw_bson_ref()).is_eq());
        let has_null = values.iter().any(|value| matches!(value, RawBson::Null));
        Self { values, regexes, has_null }
    }

    /// The values, sorted and distinct.
    pub fn values(&self) -> &[RawBson] {
        &self.values
    }

    /// The regular expressions.
    pub fn regexes(&self) -> &[RegexPredicate] {
        &self.regexes
    }

    /// Whether `null` is among the values.
    pub fn has_null(&self) -> bool {
        self.has_null
    }

    /// Whether a value, or missing, is among the values or matches one of the regular expressions.
    pub fn test(&self, value: Option<RawBsonRef<'_>>, asked: &Interruption) -> Result<bool> {
        let value = match value {
            None | Some(RawBsonRef::Undefined) => return Ok(self.has_null),
            Some(value) => value,
        };
        if self.values.binary_search_by(|member| order::compare(member.as_raw_bson_ref(), value)).is_ok() {
            return Ok(true);
        }
        for regex in &self.regexes {
            asked.step()?;
            if regex.test(Some(value), asked)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
