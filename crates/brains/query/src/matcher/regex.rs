//! `$regex` and regular expression literals.
//!
//! Invariants: a pattern is compiled once, at parsing; it is searched in strings and symbols, and equals a stored regular
//! expression of the same pattern and options; a search that backtracks beyond [`BACKTRACK_LIMIT`] ends with an error
//! instead of holding up others.
//!
//! What it deliberately does not do: read PCRE's dialect. `regex_syntax` translates that for the engine.

use super::regex_syntax;
use baton_types::{Error, ErrorCode, Result};
use bson::RawBsonRef;
use bson::raw::RawRegexRef;
use fancy_regex::{Regex, RegexBuilder};

/// Steps of backtracking one search may take: some tens of milliseconds.
const BACKTRACK_LIMIT: usize = 1_000_000;

/// Bytes a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Characters of a pattern, as in MongoDB.
const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// MongoDB's code for a regular expression that does not compile.
const REGEX_INVALID_CODE: i32 = 51091;

/// MongoDB's code for an unknown option.
const OPTION_INVALID_CODE: i32 = 51108;

/// A regular expression to search for.
#[derive(Clone, Debug)]
pub struct RegexPredicate {
    pattern: String,
    options: String,
    regex: Regex,
    /// PCRE's `$` also matches before a final newline; the engine's does not.
    has_dollar: bool,
}

impl RegexPredicate {
    /// Compiles a pattern with its options.
    pub fn new(pattern: &str, options: &str) -> Result<Self> {
        if pattern.contains('\0') || options.contains('\0') {
            return Err(Error::location(REGEX_INVALID_CODE, "Regular expression cannot contain an embedded null byte"));
        }
        if let Some(unknown) = options.chars().find(|c| !"imsxu".contains(*c)) {
            return Err(Error::location(OPTION_INVALID_CODE, format!("invalid flag in regex options: {unknown}")));
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(invalid("regular expression is too large"));
        }
        let has = |option| options.contains(option);
        let translated = regex_syntax::translate(pattern, has('x'));
        let regex = RegexBuilder::new(&translated.pattern)
            .case_insensitive(has('i'))
            .multi_line(has('m'))
            .dot_matches_new_line(has('s'))
            .ignore_whitespace(has('x'))
            .backtrack_limit(BACKTRACK_LIMIT)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|e| invalid(&e.to_string()))?;
        Ok(Self {
            pattern: pattern.into(),
            options: options.into(),
            regex,
            has_dollar: translated.has_dollar && !has('m'),
        })
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
    pub fn test(&self, value: Option<RawBsonRef<'_>>) -> Result<bool> {
        match value {
            Some(RawBsonRef::String(text) | RawBsonRef::Symbol(text)) => self.is_found_in(text),
            Some(RawBsonRef::RegularExpression(literal)) => {
                Ok(literal.pattern.as_str() == self.pattern && literal.options.as_str() == self.options)
            }
            _ => Ok(false),
        }
    }

    /// Whether the pattern is found in a text.
    pub fn is_found_in(&self, text: &str) -> Result<bool> {
        if self.search(text)? {
            return Ok(true);
        }
        match text.strip_suffix('\n') {
            Some(line) if self.has_dollar => self.search(line),
            _ => Ok(false),
        }
    }

    fn search(&self, text: &str) -> Result<bool> {
        self.regex.is_match(text).map_err(|e| {
            Error::new(
                ErrorCode::MaxTimeMSExpired,
                format!("Error occurred while executing regular expression '{}': {e}", self.pattern),
            )
        })
    }
}

fn invalid(cause: &str) -> Error {
    Error::location(REGEX_INVALID_CODE, format!("Regular expression is invalid: {cause}"))
}

/// Parses `$regex` with the `$options` beside it, if any.
pub(super) fn parse(value: RawBsonRef<'_>, options: Option<RawBsonRef<'_>>) -> Result<RegexPredicate> {
    let options = match options {
        None => None,
        Some(RawBsonRef::String(options)) => Some(options),
        Some(_) => return Err(Error::bad_value("$options has to be a string")),
    };
    match value {
        RawBsonRef::String(pattern) => RegexPredicate::new(pattern, options.unwrap_or("")),
        RawBsonRef::RegularExpression(literal) => match options {
            Some(_) if !literal.options.is_empty() => {
                Err(Error::location(51075, "options set in both $regex and $options"))
            }
            Some(options) => RegexPredicate::new(literal.pattern.as_str(), options),
            None => RegexPredicate::from_literal(literal),
        },
        _ => Err(Error::bad_value("$regex has to be a string")),
    }
}
