//! String operators: `$concat`, `$split`, `$strLen…`, `$substr…`, `$indexOfBytes`, `$indexOfCP`, `$toLower`, …
//!
//! "Bytes" operators count UTF-8 bytes, "CP" operators code points. Case is folded for ASCII only, as in MongoDB.

use super::meter::Elements;
use super::named::{Named, Signature, field};
use super::node::{Argument, Arguments};
use super::value::{self, Value};
use baton_types::{Error, ErrorCode, Result};
use bson::Bson;

/// The longest string an operator may build: that of the largest document.
const STRING_BYTES_MAX: usize = 16 * 1024 * 1024;

const NULL: Result<Value> = Ok(Some(Bson::Null));

fn text(text: impl Into<String>) -> Result<Value> {
    Ok(Some(Bson::String(text.into())))
}

/// `{$concat: [a, …]}`: null when any is nullish.
pub(crate) fn concat(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let mut joined = String::new();
    for argument in arguments.iter() {
        match argument.as_ref() {
            Some(Bson::String(part)) => joined.push_str(part),
            nullish if value::is_nullish(nullish) => return NULL,
            other => {
                return Err(Error::location(
                    16702,
                    format!("{name} only supports strings, not {}", value::type_name(other)),
                ));
            }
        }
        check_length(name, joined.len())?;
    }
    text(joined)
}

fn check_length(name: &str, bytes: usize) -> Result<()> {
    if bytes <= STRING_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::ExceededMemoryLimit,
        format!("{name} would build a string of more than {STRING_BYTES_MAX} bytes"),
    ))
}

/// `{$toLower: a}`.
pub(crate) fn to_lower(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    text(value::coerce_to_string(&arguments[0])?.to_ascii_lowercase())
}

/// `{$toUpper: a}`.
pub(crate) fn to_upper(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    text(value::coerce_to_string(&arguments[0])?.to_ascii_uppercase())
}

/// `{$strcasecmp: [a, b]}`: -1, 0 or 1.
pub(crate) fn strcasecmp(_: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let a = value::coerce_to_string(&arguments[0])?.to_ascii_uppercase();
    let b = value::coerce_to_string(&arguments[1])?.to_ascii_uppercase();
    Ok(Some(Bson::Int32(a.cmp(&b) as i32)))
}

/// `{$strLenBytes: a}`.
pub(crate) fn str_len_bytes(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    Ok(Some(value::count(only_string(name, 34473, &arguments[0])?.len())))
}

/// `{$strLenCP: a}`.
pub(crate) fn str_len_cp(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    Ok(Some(value::count(only_string(name, 34471, &arguments[0])?.chars().count())))
}

fn only_string<'v>(name: &str, code: i32, value: &'v Value) -> Result<&'v str> {
    match value {
        Some(Bson::String(text)) => Ok(text),
        other => {
            Err(Error::location(code, format!("{name} requires a string argument, found: {}", value::type_name(other))))
        }
    }
}

/// `{$split: [text, separator]}`.
pub(crate) fn split(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let (input, separator) = (arguments[0].as_ref(), arguments[1].as_ref());
    if value::is_nullish(input) || value::is_nullish(separator) {
        return NULL;
    }
    let expects = |code, place, found: &Value| {
        Error::location(
            code,
            format!(
                "{name} requires an expression that evaluates to a string as a {place} argument, found: {}",
                value::type_name(found)
            ),
        )
    };
    let Some(Bson::String(input)) = input else { return Err(expects(40085, "first", input)) };
    let Some(Bson::String(separator)) = separator else { return Err(expects(40086, "second", separator)) };
    if separator.is_empty() {
        return Err(Error::location(40087, format!("{name} requires a non-empty separator")));
    }
    let mut parts = Elements::new(arguments.meter, name, 0);
    for part in input.split(separator.as_str()) {
        parts.push(Bson::String(part.to_owned()))?;
    }
    Ok(parts.into_value())
}

/// `{$substrBytes: [text, start, length]}`; `$substr` is the same. A negative length takes the rest.
pub(crate) fn substr_bytes(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let input = value::coerce_to_string(&arguments[0])?;
    let (Some(start), Some(length)) = (truncated_long(&arguments[1]), truncated_long(&arguments[2])) else {
        let (code, what, found) = match truncated_long(&arguments[1]) {
            None => (16034, "starting index", &arguments[1]),
            Some(_) => (16035, "length", &arguments[2]),
        };
        return Err(Error::location(
            code,
            format!("{name}:  {what} must be a numeric type (is BSON type {})", value::type_name(found)),
        ));
    };
    let Ok(start) = usize::try_from(start) else {
        return Err(Error::location(50752, format!("{name}:  starting index must be non-negative (got: {start})")));
    };
    if start >= input.len() {
        return text("");
    }
    // A negative length becomes the largest one.
    let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(input.len());
    if !input.is_char_boundary(start) {
        return Err(Error::location(
            28656,
            format!("{name}:  Invalid range, starting index is a UTF-8 continuation byte."),
        ));
    }
    match input.get(start..end) {
        Some(part) => text(part),
        None => Err(Error::location(
            28657,
            format!("{name}:  Invalid range, ending index is in the middle of a UTF-8 character."),
        )),
    }
}

fn truncated_long(value: &Value) -> Option<i64> {
    value::number(value).map(|number| number.to_i64_lossy())
}

/// `{$substrCP: [text, start, length]}`.
pub(crate) fn substr_cp(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let input = value::coerce_to_string(&arguments[0])?;
    let integer = |value: &Value, what: &str, numeric: i32, integral: i32| {
        if !value::is_number(value) {
            return Err(Error::location(
                numeric,
                format!("{name}: {what} must be a numeric type (is BSON type {})", value::type_name(value)),
            ));
        }
        value::int_exact(value).ok_or_else(|| {
            Error::location(
                integral,
                format!("{name}: {what} cannot be represented as a 32-bit integral value: {}", value::display(value)),
            )
        })
    };
    let start = integer(&arguments[1], "starting index", 34450, 34451)?;
    let length = integer(&arguments[2], "length", 34452, 34453)?;
    let Ok(length) = usize::try_from(length) else {
        return Err(Error::location(34454, format!("{name}: length must be a nonnegative integer.")));
    };
    let Ok(start) = usize::try_from(start) else {
        return Err(Error::location(34455, format!("{name}: the starting index must be nonnegative integer.")));
    };
    text(input.chars().skip(start).take(length).collect::<String>())
}

/// `{$indexOfBytes: [text, token, start, end]}`: -1 when absent.
pub(crate) fn index_of_bytes(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let Some((input, token)) = index_operands(name, arguments, 40091, 40092)? else { return NULL };
    let (start, end) = index_range(name, arguments, input.len())?;
    let found = if start > end {
        None
    } else if token.is_empty() {
        Some(start)
    } else {
        // A token is found at whole characters only, so those that the range cuts do not matter.
        let from = (start..=end).find(|at| input.is_char_boundary(*at)).unwrap_or(end);
        let to = (from..=end).rev().find(|at| input.is_char_boundary(*at)).unwrap_or(from);
        input.get(from..to).and_then(|window| window.find(token)).map(|position| from + position)
    };
    Ok(Some(found.map_or(Bson::Int32(-1), value::count)))
}

/// `{$indexOfCP: [text, token, start, end]}`: -1 when absent.
pub(crate) fn index_of_cp(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    let Some((input, token)) = index_operands(name, arguments, 40093, 40094)? else { return NULL };
    let (start, end) = index_range(name, arguments, input.chars().count())?;
    // The byte where a code point begins; for the one behind the last, the end.
    let offset = |position| input.char_indices().map(|(at, _)| at).chain([input.len()]).nth(position);
    let found = match (offset(start), offset(end)) {
        (Some(from), Some(to)) if from <= to => {
            let window = &input[from..to];
            window.find(token).map(|at| start + window[..at].chars().count())
        }
        _ => None,
    };
    Ok(Some(found.map_or(Bson::Int32(-1), value::count)))
}

fn index_operands<'v>(
    name: &str,
    arguments: &'v [Argument<'_>],
    first_code: i32,
    second_code: i32,
) -> Result<Option<(&'v str, &'v str)>> {
    let expects = |code, place, found: &Value| {
        Error::location(
            code,
            format!("{name} requires a string as the {place} argument, found: {}", value::type_name(found)),
        )
    };
    let input = match arguments[0].as_ref() {
        Some(Bson::String(input)) => input,
        nullish if value::is_nullish(nullish) => return Ok(None),
        other => return Err(expects(first_code, "first", other)),
    };
    match arguments[1].as_ref() {
        Some(Bson::String(token)) => Ok(Some((input, token))),
        other => Err(expects(second_code, "second", other)),
    }
}

/// The optional third and fourth argument of the `$indexOf…` operators, the end clipped to `length`.
pub(crate) fn index_range(name: &str, arguments: &[Argument<'_>], length: usize) -> Result<(usize, usize)> {
    let index = |position: usize, what: &str| -> Result<Option<usize>> {
        let Some(argument) = arguments.get(position) else { return Ok(None) };
        let Some(number) = value::int_exact(argument) else {
            return Err(Error::location(
                40096,
                format!(
                    "{name} requires an integral {what} index, found a value of type: {}, with value: \"{}\"",
                    value::type_name(argument),
                    value::display(argument)
                ),
            ));
        };
        usize::try_from(number)
            .map(Some)
            .map_err(|_| Error::location(40097, format!("{name} requires a nonnegative {what} index, found: {number}")))
    };
    let start = index(2, "starting")?.unwrap_or(0);
    let end = index(3, "ending")?.unwrap_or(length).min(length);
    Ok((start, end))
}

/// The arguments of `$replaceOne` and `$replaceAll`.
pub(crate) static REPLACE: Signature = Signature {
    fields: &[field("input", 51749), field("find", 51748), field("replacement", 51747)],
    not_an_object: (51751, "{op} requires an object as an argument, found: {x}"),
    unknown: (51750, "{op} found an unknown argument: {x}"),
    missing: "{op} requires '{x}' to be specified",
};

/// `{$replaceOne: {input: …, find: …, replacement: …}}`.
pub(crate) fn replace_one(call: &Named<'_>) -> Result<Value> {
    let Some([input, find, replacement]) = replace_operands(call)? else { return NULL };
    text(input.replacen(&find, &replacement, 1))
}

/// `{$replaceAll: {input: …, find: …, replacement: …}}`.
pub(crate) fn replace_all(call: &Named<'_>) -> Result<Value> {
    let Some([input, find, replacement]) = replace_operands(call)? else { return NULL };
    let places = if find.is_empty() { input.len() + 1 } else { input.len() / find.len() };
    if input.len().saturating_add(places.saturating_mul(replacement.len())) > STRING_BYTES_MAX {
        check_length(
            call.name(),
            input.len() + input.matches(find.as_str()).count().saturating_mul(replacement.len()),
        )?;
    }
    text(input.replace(&find, &replacement))
}

/// The three strings; `None` when any is nullish. A wrong type outranks a null.
fn replace_operands(call: &Named<'_>) -> Result<Option<[String; 3]>> {
    const CODES: [(&str, i32); 3] = [("input", 51746), ("find", 51745), ("replacement", 51744)];
    let mut nullish = false;
    let mut operands = [const { String::new() }; 3];
    for (position, (name, code)) in CODES.into_iter().enumerate() {
        match call.value(position)? {
            Some(Bson::String(operand)) => operands[position] = operand,
            other if value::is_nullish(&other) => nullish = true,
            other => {
                return Err(Error::location(
                    code,
                    format!("{} requires that '{name}' be a string, found: {}", call.name(), value::display(&other)),
                ));
            }
        }
    }
    Ok((!nullish).then_some(operands))
}
