//! `$regex` and regular expression literals.
//!
//! Invariants: a pattern is compiled once, at parsing; it is searched in strings and symbols, and equals a stored regular
//! expression of the same pattern and options. A search beyond the engine's limits fails: MongoDB takes such a text for
//! one in which nothing is found, and leaves the document out without a word.

use crate::interruption::Interruption;
use crate::pcre::{Failure, Pattern};
use baton_types::{Error, Result};
use bson::raw::RawRegexRef;
use bson::{RawBsonRef, RawDocument};
use std::sync::Arc;

/// MongoDB's code for a regular expression that does not compile.
const REGEX_INVALID_CODE: i32 = 51091;

/// MongoDB's code for an unknown option.
const OPTION_INVALID_CODE: i32 = 51108;

/// MongoDB's code for a search that the engine gives up; there it is `$regexMatch`'s alone.
const SEARCH_FAILED_CODE: i32 = 51156;

/// A regular expression to search for.
#[derive(Clone, Debug)]
pub struct RegexPredicate {
    pattern: String,
    options: String,
    compiled: Arc<Pattern>,
}

impl RegexPredicate {
    /// Compiles a pattern with its options.
    pub fn new(pattern: &str, options: &str) -> Result<Self> {
        if let Some(unknown) = Pattern::unknown_option(options) {
            return Err(Error::location(OPTION_INVALID_CODE, format!("invalid flag in regex options: {unknown}")));
        }
        if pattern.contains('\0') {
            return Err(Error::bad_value("Regular expression cannot contain an embedded null byte"));
        }
        let compiled = Pattern::compile(pattern, options)
            .map_err(|e| Error::location(REGEX_INVALID_CODE, format!("Regular expression is invalid: {e}")))?;
        Ok(Self { pattern: pattern.into(), options: options.into(), compiled: Arc::new(compiled) })
    }

    /// Compiles a regular expression literal.
    pub fn from_literal(literal: RawRegexRef<'_>) -> Result<Self> {
        Self::new(literal.pattern.as_str(), literal.options.as_str())
    }

    /// The pattern as written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The options as written.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether a value is a string the pattern is found in, or the same regular expression.
    pub fn test(&self, value: Option<RawBsonRef<'_>>, asked: &Interruption) -> Result<bool> {
        match value {
            Some(RawBsonRef::String(text) | RawBsonRef::Symbol(text)) => self.is_found_in(text, asked),
            Some(RawBsonRef::RegularExpression(literal)) => {
                Ok(literal.pattern.as_str() == self.pattern && literal.options.as_str() == self.options)
            }
            _ => Ok(false),
        }
    }

    /// Whether the pattern is found in a text.
    pub fn is_found_in(&self, text: &str, asked: &Interruption) -> Result<bool> {
        self.compiled.is_found_in(text, asked).map_err(|failure| match failure {
            Failure::Interrupted(error) => error,
            Failure::GivenUp(why) => {
                let message =
                    format!("Error occurred while executing the regular expression '{}': {why}", self.pattern);
                Error::location(SEARCH_FAILED_CODE, message)
            }
        })
    }
}

/// The `$options` among the operators on one path.
#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    value: Option<RawBsonRef<'a>>,
    /// Whether a `$regex` comes before.
    is_after_regex: bool,
}

impl<'a> Options<'a> {
    /// Those in a document of operators.
    pub(super) fn beside(operators: &'a RawDocument) -> Result<Self> {
        let mut is_after_regex = false;
        for element in operators.iter_elements() {
            let element = element?;
            match element.key().as_str() {
                "$regex" => is_after_regex = true,
                "$options" => return Ok(Self { value: Some(element.value()?), is_after_regex }),
                _ => {}
            }
        }
        Ok(Self { value: None, is_after_regex })
    }
}

/// Parses `$regex` with the `$options` beside it, if any. Options may stand in both places only where those that stand first
/// are empty.
pub(super) fn parse(value: RawBsonRef<'_>, beside: Options<'_>) -> Result<RegexPredicate> {
    let options = match beside.value {
        None => None,
        Some(RawBsonRef::String(options)) => Some(options),
        Some(_) => return Err(Error::bad_value("$options has to be a string")),
    };
    let literal = match value {
        RawBsonRef::String(pattern) => return RegexPredicate::new(pattern, options.unwrap_or("")),
        RawBsonRef::RegularExpression(literal) => literal,
        _ => return Err(Error::bad_value("$regex has to be a string")),
    };
    let (pattern, own) = (literal.pattern.as_str(), literal.options.as_str());
    match options {
        Some(options) if own.is_empty() => RegexPredicate::new(pattern, options),
        Some(options) if beside.is_after_regex || !options.is_empty() => {
            let code = if beside.is_after_regex { 51075 } else { 51074 };
            Err(Error::location(code, "options set in both $regex and $options"))
        }
        _ => RegexPredicate::new(pattern, own),
    }
}
