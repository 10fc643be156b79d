//! `$dateToString` and `$dateFromString`.

use super::calendar::Civil;
use super::reading;
use super::zone::{self, Zone};
use crate::expression::named::{Named, Signature, field};
use crate::expression::value::{self, Value};
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, DateTime};
use std::fmt::Write;

/// The arguments of `$dateToString`.
pub(crate) static TO_STRING: Signature = Signature {
    fields: &[field("date", 18628), field("format", 0), field("timezone", 0), field("onNull", 0)],
    not_an_object: (18629, "{op} only supports an object as its argument"),
    unknown: (18534, "Unrecognized argument to {op}: {x}"),
    missing: "Missing '{x}' parameter to {op}",
};

/// The format of a date in UTC.
const FORMAT_UTC: &str = "%Y-%m-%dT%H:%M:%S.%LZ";
/// The format of a date in another zone.
const FORMAT_LOCAL: &str = "%Y-%m-%dT%H:%M:%S.%L";

/// `{$dateToString: {date: …, format: …, timezone: …, onNull: …}}`.
pub(crate) fn to_string(call: &Named<'_>) -> Result<Value> {
    let format = call.value(1)?;
    match &format {
        Some(Bson::String(_)) => {}
        None if !call.given(1) => {}
        nullish if value::is_nullish(nullish) => return Ok(Some(Bson::Null)),
        other => {
            return Err(Error::location(
                18533,
                format!("{} requires 'format' to be a string, found: {}", call.name(), value::type_name(other)),
            ));
        }
    }
    let date = call.value(0)?;
    if value::is_nullish(&date) {
        return if call.given(3) { call.value(3) } else { Ok(Some(Bson::Null)) };
    }
    let Some(zone) = zone::argument(call, 2)? else { return Ok(Some(Bson::Null)) };
    let moment = value::coerce_to_date(&date)?.timestamp_millis();
    let format = match &format {
        Some(Bson::String(format)) => format.as_str(),
        _ if zone == Zone::UTC => FORMAT_UTC,
        _ => FORMAT_LOCAL,
    };
    Ok(Some(Bson::String(formatted(call.name(), moment, zone, format)?)))
}

fn formatted(name: &str, moment: i64, zone: Zone, format: &str) -> Result<String> {
    let civil = Civil::from_ms(zone.to_local_ms(moment));
    if !(0..=9999).contains(&civil.year) {
        return Err(Error::location(
            18537,
            format!("{name}: 'year' is out of range: could not convert {} to a string", civil.year),
        ));
    }
    let offset_minutes = zone.offset_ms(moment) / 60_000;
    let (iso_year, iso_week) = civil.iso_week();
    let month_name = usize::try_from(civil.month - 1).ok().and_then(|month| reading::MONTHS.get(month)).unwrap_or(&"");
    let mut text = String::new();
    let mut specifiers = format.chars();
    while let Some(next) = specifiers.next() {
        if next != '%' {
            text.push(next);
            continue;
        }
        let Some(specifier) = specifiers.next() else {
            return Err(Error::location(18535, "Unmatched '%' at end of format string"));
        };
        // Writing to a string does not fail.
        let _ = match specifier {
            '%' => write!(text, "%"),
            'Y' => write!(text, "{:04}", civil.year),
            'm' => write!(text, "{:02}", civil.month),
            'd' => write!(text, "{:02}", civil.day),
            'H' => write!(text, "{:02}", civil.hour),
            'M' => write!(text, "{:02}", civil.minute),
            'S' => write!(text, "{:02}", civil.second),
            'L' => write!(text, "{:03}", civil.millisecond),
            'j' => write!(text, "{:03}", civil.day_of_year()),
            'w' => write!(text, "{}", civil.day_of_week()),
            'u' => write!(text, "{}", civil.iso_day_of_week()),
            'U' => write!(text, "{:02}", civil.week()),
            'V' => write!(text, "{iso_week:02}"),
            'G' => write!(text, "{iso_year:04}"),
            'b' => write!(text, "{}", month_name.get(..3).unwrap_or("")),
            'B' => write!(text, "{month_name}"),
            'z' => {
                let (sign, minutes) = if offset_minutes < 0 { ('-', -offset_minutes) } else { ('+', offset_minutes) };
                write!(text, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
            }
            'Z' => write!(text, "{offset_minutes:+}"),
            other => {
                return Err(Error::location(18536, format!("Invalid format character '%{other}' in format string")));
            }
        };
    }
    Ok(text)
}

/// The arguments of `$dateFromString`.
pub(crate) static FROM_STRING: Signature = Signature {
    fields: &[
        field("dateString", 40542),
        field("format", 0),
        field("timezone", 0),
        field("onError", 0),
        field("onNull", 0),
    ],
    not_an_object: (40540, "{op} only supports an object as an argument, found: {x}"),
    unknown: (40541, "Unrecognized argument to {op}: {x}"),
    missing: "Missing '{x}' parameter to {op}",
};

/// `{$dateFromString: {dateString: …, format: …, timezone: …, onError: …, onNull: …}}`.
pub(crate) fn from_string(call: &Named<'_>) -> Result<Value> {
    let text = call.value(0)?;
    let zone = zone::argument(call, 2)?;
    let format = call.value(1)?;
    if value::is_nullish(&text) {
        return if call.given(4) { call.value(4) } else { Ok(Some(Bson::Null)) };
    }
    let Some(zone) = zone else { return Ok(Some(Bson::Null)) };
    let format = match format {
        Some(Bson::String(format)) => Some(format),
        None if !call.given(1) => None,
        nullish if value::is_nullish(&nullish) => return Ok(Some(Bson::Null)),
        other => {
            return Err(Error::location(
                40684,
                format!("{} requires that 'format' be a string, found: {}", call.name(), value::type_name(&other)),
            ));
        }
    };
    let zone = call.given(2).then_some(zone);
    let message = match &text {
        Some(Bson::String(text)) => {
            let read = match &format {
                Some(format) => reading::read_by_format(text, format, zone),
                None => reading::read(text, zone),
            };
            match read {
                Ok(ms) => return Ok(Some(Bson::DateTime(DateTime::from_millis(ms)))),
                Err(reason) => format!("Error parsing date string '{text}'; {reason}"),
            }
        }
        other => format!(
            "{} requires that 'dateString' be a string, found: {} with value {}",
            call.name(),
            value::type_name(other),
            value::display(other)
        ),
    };
    if call.given(3) { call.value(3) } else { Err(Error::new(ErrorCode::ConversionFailure, message)) }
}
