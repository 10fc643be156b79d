//! `$regexMatch`, `$regexFind`, `$regexFindAll`.
//!
//! A constant pattern is compiled once, when the expression is parsed. Backtracking is bounded, so that no pattern can
//! hold a thread; running into the bound is the client's error. Positions are counted in code points. The dialect is the
//! filters': PCRE's, translated for the engine.

use super::named::{Field, Signature, field};
use super::node::{Node, Scope};
use super::parse::Parser;
use super::table::Operator;
use super::value::{self, Value};
use crate::matcher::regex_syntax;
use baton_types::{Error, Result};
use bson::{Bson, Document, RawBsonRef};
use fancy_regex::{Captures, Regex, RegexBuilder};
use std::sync::Arc;

/// How often a match may backtrack before it is given up.
const BACKTRACKS_MAX: usize = 1_000_000;

/// Bytes a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The longest pattern, as in MongoDB.
const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// What the matches of one `$regexFindAll` may take.
const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

const FIELDS: &[Field] = &[field("input", 31022), field("regex", 31023), field("options", 0)];

static SIGNATURE: Signature = Signature {
    fields: FIELDS,
    not_an_object: (51103, "{op} expects an object of named arguments but found: {x}"),
    unknown: (31024, "{op} found unknown option(s) {x}"),
    missing: "{op} requires '{x}' parameter",
};

/// One of the three operators, parsed.
#[derive(Clone, Debug)]
pub(crate) struct RegexCall {
    name: &'static str,
    /// Input, pattern, options.
    operands: Vec<Node>,
    /// The pattern compiled, where pattern and options are constant; `None` within for a nullish pattern.
    prepared: Option<Option<Arc<Pattern>>>,
}

/// A compiled pattern.
#[derive(Debug)]
struct Pattern {
    regex: Regex,
    /// PCRE's `$` also matches before a final newline; the engine's does not.
    has_dollar: bool,
}

impl Pattern {
    /// The first match from a byte on.
    fn find<'t>(&self, text: &'t str, from: usize) -> Result<Option<Captures<'t, str>>, fancy_regex::Error> {
        let found = self.regex.captures_from_pos(text, from)?;
        match text.strip_suffix('\n') {
            Some(line) if found.is_none() && self.has_dollar && from <= line.len() => {
                self.regex.captures_from_pos(line, from)
            }
            _ => Ok(found),
        }
    }
}

/// Parses any of the three.
pub(crate) fn parse(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let call = SIGNATURE.parse(parser, operator, raw)?;
    let prepared = match &call.arguments[1..] {
        [Node::Constant(pattern), Node::Constant(options)] => Some(compile(operator.name, pattern, options)?),
        _ => None,
    };
    Ok(Node::Regex(Box::new(RegexCall { name: operator.name, operands: call.arguments, prepared })))
}

fn compile(name: &str, pattern: &Value, options: &Value) -> Result<Option<Arc<Pattern>>> {
    let (pattern, own_options) = match pattern {
        Some(Bson::String(pattern)) => (pattern.as_str(), ""),
        Some(Bson::RegularExpression(regex)) => (regex.pattern.as_str(), regex.options.as_str()),
        nullish if value::is_nullish(nullish) => return Ok(None),
        _ => return Err(Error::location(51105, format!("{name} needs 'regex' to be of type string or regex"))),
    };
    let options = match options {
        Some(Bson::String(options)) => options.as_str(),
        nullish if value::is_nullish(nullish) => "",
        _ => return Err(Error::location(51106, format!("{name} needs 'options' to be of type string"))),
    };
    if !own_options.is_empty() && !options.is_empty() {
        return Err(Error::location(
            51107,
            format!("{name}: found regex option(s) specified in both 'regex' and 'option' fields"),
        ));
    }
    if pattern.contains('\0') {
        return Err(Error::location(51109, format!("{name}: regular expression cannot contain an embedded null byte")));
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(Error::location(51111, format!("Invalid Regex in {name}: regular expression is too large")));
    }
    let options = if own_options.is_empty() { options } else { own_options };
    match options.chars().find(|option| !"imsxu".contains(*option)) {
        None => {}
        Some('\0') => {
            return Err(Error::location(
                51110,
                format!("{name}: regular expression options cannot contain an embedded null byte"),
            ));
        }
        Some(other) => return Err(Error::location(51108, format!("{name} invalid flag in regex options: {other}"))),
    }
    let has = |option| options.contains(option);
    let translated = regex_syntax::translate(pattern, has('x'));
    let built = RegexBuilder::new(&translated.pattern)
        .case_insensitive(has('i'))
        .multi_line(has('m'))
        .dot_matches_new_line(has('s'))
        .ignore_whitespace(has('x'))
        .backtrack_limit(BACKTRACKS_MAX)
        .delegate_size_limit(COMPILED_BYTES_MAX)
        .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
        .build();
    match built {
        Ok(regex) => Ok(Some(Arc::new(Pattern { regex, has_dollar: translated.has_dollar && !has('m') }))),
        Err(e) => Err(Error::location(51111, format!("Invalid Regex in {name}: {e}"))),
    }
}

impl RegexCall {
    /// Input, pattern and options.
    pub fn operands(&self) -> &[Node] {
        &self.operands
    }

    /// Evaluates the operator.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Value> {
        let input = self.operands[0].borrow(scope)?;
        let regex = match &self.prepared {
            Some(prepared) => prepared.clone(),
            None => compile(self.name, &*self.operands[1].borrow(scope)?, &*self.operands[2].borrow(scope)?)?,
        };
        let input = match input.as_ref() {
            Some(Bson::String(input)) => Some(input.as_str()),
            nullish if value::is_nullish(nullish) => None,
            _ => return Err(Error::location(51104, format!("{} needs 'input' to be of type string", self.name))),
        };
        let (Some(input), Some(regex)) = (input, regex) else {
            return Ok(Some(match self.name {
                "$regexMatch" => Bson::Boolean(false),
                "$regexFindAll" => Bson::Array(Vec::new()),
                _ => Bson::Null,
            }));
        };
        match self.name {
            "$regexMatch" => Ok(Some(Bson::Boolean(self.find(&regex, input, 0)?.is_some()))),
            "$regexFindAll" => self.find_all(input, &regex),
            _ => match self.find(&regex, input, 0)? {
                Some(captures) => Ok(Some(described(&captures, code_points_before(input, &captures)))),
                None => Ok(Some(Bson::Null)),
            },
        }
    }

    fn find_all(&self, input: &str, regex: &Pattern) -> Result<Value> {
        let mut found = Vec::new();
        let mut output_bytes = 0;
        // How far code points have been counted.
        let (mut counted_bytes, mut counted) = (0, 0);
        let mut from = 0;
        while from <= input.len() {
            let Some(captures) = self.find(regex, input, from)? else { break };
            let Some(whole) = captures.get(0) else { break };
            counted += input[counted_bytes..whole.start()].chars().count();
            counted_bytes = whole.start();
            let described = described(&captures, counted);
            output_bytes += value::size_bytes(&described);
            if output_bytes > OUTPUT_BYTES_MAX {
                return Err(Error::location(
                    51151,
                    format!("{}: the size of buffer to store output exceeded the 64MB limit", self.name),
                ));
            }
            found.push(described);
            // An empty match must not be found again.
            from = if whole.end() > whole.start() {
                whole.end()
            } else {
                whole.end() + input[whole.end()..].chars().next().map_or(1, char::len_utf8)
            };
        }
        Ok(Some(Bson::Array(found)))
    }

    /// The first match from a byte on. `\K` within a lookaround can move a match's start before the search's or behind
    /// its own end; PCRE refuses such patterns, here they fail when it happens.
    fn find<'t>(&self, pattern: &Pattern, input: &'t str, from: usize) -> Result<Option<Captures<'t, str>>> {
        let found = pattern.find(input, from).map_err(|e| self.failed(&e))?;
        match found.as_ref().and_then(|captures| captures.get(0)) {
            Some(whole) if whole.start() < from || whole.start() > whole.end() => {
                Err(self.failed(&"\\K is not allowed in a lookaround"))
            }
            _ => Ok(found),
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Error {
        Error::location(
            51156,
            format!("Error occurred while executing the regular expression in {}: {error}", self.name),
        )
    }
}

fn code_points_before(input: &str, captures: &Captures<'_, str>) -> usize {
    captures.get(0).map_or(0, |whole| input[..whole.start()].chars().count())
}

/// `{match: …, idx: …, captures: […]}`.
fn described(captures: &Captures<'_, str>, position: usize) -> Bson {
    let part = |index| match captures.get(index) {
        Some(part) => Bson::String(part.as_str().to_owned()),
        None => Bson::Null,
    };
    let mut document = Document::new();
    document.insert("match", part(0));
    document.insert("idx", value::count(position));
    document.insert("captures", Bson::Array((1..captures.len()).map(part).collect()));
    Bson::Document(document)
}
