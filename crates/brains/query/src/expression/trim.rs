//! `$trim`, `$ltrim`, `$rtrim`.

use super::named::{Named, Signature, field};
use super::value::{self, Value};
use baton_types::{Error, Result};
use bson::Bson;
use std::collections::HashSet;

/// What is trimmed when no characters are given: MongoDB's list of white space, the null character among it.
const WHITE_SPACE: [char; 20] = [
    '\0', ' ', '\t', '\n', '\u{b}', '\u{c}', '\r', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}', '\u{2002}',
    '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}', '\u{200a}',
];

/// The arguments of the three operators.
pub(crate) static TRIM: Signature = Signature {
    fields: &[field("input", 50695), field("chars", 0)],
    not_an_object: (50696, "{op} only supports an object as an argument, found {x}"),
    unknown: (50694, "{op} found an unknown argument: {x}"),
    missing: "{op} requires an '{x}' field",
};

/// `{$trim: {input: …, chars: …}}`.
pub(crate) fn both(call: &Named<'_>) -> Result<Value> {
    trim(call, true, true)
}

/// `{$ltrim: {input: …, chars: …}}`.
pub(crate) fn left(call: &Named<'_>) -> Result<Value> {
    trim(call, true, false)
}

/// `{$rtrim: {input: …, chars: …}}`.
pub(crate) fn right(call: &Named<'_>) -> Result<Value> {
    trim(call, false, true)
}

fn trim(call: &Named<'_>, left: bool, right: bool) -> Result<Value> {
    let input = call.value(0)?;
    if value::is_nullish(&input) {
        return Ok(Some(Bson::Null));
    }
    let Some(Bson::String(input)) = input else {
        return Err(Error::location(
            50699,
            format!(
                "{} requires its input to be a string, got {} (of type {}) instead.",
                call.name(),
                value::display(&input),
                value::type_name(&input)
            ),
        ));
    };
    let chars: Option<HashSet<char>> = if call.given(1) {
        match call.value(1)? {
            Some(Bson::String(chars)) => Some(chars.chars().collect()),
            nullish if value::is_nullish(&nullish) => return Ok(Some(Bson::Null)),
            other => {
                return Err(Error::location(
                    50700,
                    format!(
                        "{} requires 'chars' to be a string, got {} (of type {}) instead.",
                        call.name(),
                        value::display(&other),
                        value::type_name(&other)
                    ),
                ));
            }
        }
    } else {
        None
    };
    let unwanted = |c: char| match &chars {
        Some(chars) => chars.contains(&c),
        None => WHITE_SPACE.contains(&c),
    };
    let mut rest = input.as_str();
    if left {
        rest = rest.trim_start_matches(unwanted);
    }
    if right {
        rest = rest.trim_end_matches(unwanted);
    }
    Ok(Some(Bson::String(rest.to_owned())))
}
