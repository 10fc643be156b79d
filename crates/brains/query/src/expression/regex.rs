//! `$regexMatch`, `$regexFind`, `$regexFindAll`.
//!
//! A constant pattern is compiled once, when the expression is parsed. Searches are bounded, so that no pattern can
//! hold a thread; running into the bound is the client's error. Positions are counted in code points.

use super::named::{Field, Signature, field};
use super::node::{Node, Scope};
use super::parse::Parser;
use super::table::Operator;
use super::value::{self, Value};
use crate::pcre::{Failure, Pattern, Spans};
use baton_types::{Error, Result};
use bson::{Bson, Document, RawBsonRef};
use std::sync::Arc;

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

/// Parses any of the three.
pub(crate) fn parse(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let call = SIGNATURE.parse(parser, operator, raw)?;
    let prepared = match &call.arguments[1..] {
        [Node::Constant(pattern), Node::Constant(options)] => match compile(operator.name, pattern, options) {
            Ok(compiled) => Some(compiled),
            Err(error) => {
                parser.ctx.constant_failed(error.clone());
                return Err(error);
            }
        },
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
    let options = if own_options.is_empty() { options } else { own_options };
    if options.contains('\0') {
        let message = format!("{name}: regular expression options cannot contain an embedded null byte");
        return Err(Error::location(51110, message));
    }
    if let Some(unknown) = Pattern::unknown_option(options) {
        return Err(Error::location(51108, format!("{name} invalid flag in regex options: {unknown}")));
    }
    match Pattern::compile(pattern, options) {
        Ok(compiled) => Ok(Some(Arc::new(compiled))),
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
            "$regexMatch" => match regex.is_found_in(input, scope.meter.asked()) {
                Ok(found) => Ok(Some(Bson::Boolean(found))),
                Err(failure) => Err(self.failed(failure)),
            },
            "$regexFindAll" => self.find_all(input, &regex, scope),
            _ => match self.find(&regex, input, 0, scope)? {
                Some(found) => Ok(Some(described(input, &found.spans, found.characters_before(input, 0)))),
                None => Ok(Some(Bson::Null)),
            },
        }
    }

    fn find_all(&self, input: &str, regex: &Pattern, scope: &Scope<'_>) -> Result<Value> {
        let mut all = Vec::new();
        let mut output_bytes = 0;
        // How far code points have been counted.
        let (mut counted_bytes, mut counted) = (0, 0);
        let mut from = 0;
        while let Some(found) = self.find(regex, input, from, scope)? {
            counted += found.characters_before(input, counted_bytes);
            counted_bytes = found.start;
            let described = described(input, &found.spans, counted);
            output_bytes += value::size_bytes(&described);
            if output_bytes > OUTPUT_BYTES_MAX {
                return Err(Error::location(
                    51151,
                    format!("{}: the size of buffer to store output exceeded the 64MB limit", self.name),
                ));
            }
            all.push(described);
            // An empty match must not be found again.
            from = if found.end > found.start {
                found.end
            } else {
                found.end + input[found.end..].chars().next().map_or(1, char::len_utf8)
            };
            // As in MongoDB, an empty match at the end is found only in an empty text.
            if from >= input.len() {
                break;
            }
        }
        Ok(Some(Bson::Array(all)))
    }

    /// The first match from a byte on.
    fn find(&self, pattern: &Pattern, input: &str, from: usize, scope: &Scope<'_>) -> Result<Option<Found>> {
        let found = pattern.find(input, from, scope.meter.asked()).map_err(|failure| self.failed(failure))?;
        let Some(spans) = found else { return Ok(None) };
        Ok(spans.first().cloned().flatten().map(|whole| Found { start: whole.start, end: whole.end, spans }))
    }

    fn failed(&self, failure: Failure) -> Error {
        let why = match failure {
            Failure::Interrupted(error) => return error,
            Failure::GivenUp(why) => why,
        };
        let name = self.name;
        let message = format!("Error occurred while executing the regular expression in {name}. Result code: {why}");
        Error::location(51156, message)
    }
}

/// A match: its bounds in bytes, and those of its captures.
struct Found {
    start: usize,
    end: usize,
    spans: Spans,
}

impl Found {
    /// The code points between a byte of the input and the match.
    fn characters_before(&self, input: &str, from: usize) -> usize {
        input[from..self.start].chars().count()
    }
}

/// `{match: …, idx: …, captures: […]}`.
fn described(input: &str, spans: &Spans, position: usize) -> Bson {
    let mut parts = spans.iter().map(|span| match span {
        Some(span) => Bson::String(input[span.clone()].to_owned()),
        None => Bson::Null,
    });
    let mut document = Document::new();
    document.insert("match", parts.next().unwrap_or(Bson::Null));
    document.insert("idx", value::count(position));
    document.insert("captures", Bson::Array(parts.collect()));
    Bson::Document(document)
}
