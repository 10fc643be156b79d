//! `$dateFromParts` and `$dateToParts`.
//!
//! Parts outside their usual range carry into the next larger one: the 14th month is February of the next year.

use super::calendar::{Civil, DAY_MS, days_from_date, iso_year_start};
use super::zone;
use crate::expression::named::{Named, Signature, field};
use crate::expression::node::Node;
use crate::expression::parse::Parser;
use crate::expression::table::Operator;
use crate::expression::value::{self, Value};
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, DateTime, Document, RawBsonRef};

static FROM_PARTS: Signature = Signature {
    fields: &[
        field("year", 0),
        field("month", 0),
        field("day", 0),
        field("hour", 0),
        field("minute", 0),
        field("second", 0),
        field("millisecond", 0),
        field("isoWeekYear", 0),
        field("isoWeek", 0),
        field("isoDayOfWeek", 0),
        field("timezone", 0),
    ],
    not_an_object: (40519, "{op} only supports an object as its argument"),
    unknown: (40518, "Unrecognized argument to {op}: {x}"),
    missing: "Missing '{x}' parameter to {op}",
};

const YEAR: usize = 0;
const MONTH: usize = 1;
const DAY: usize = 2;
const HOUR: usize = 3;
const MINUTE: usize = 4;
const SECOND: usize = 5;
const MILLISECOND: usize = 6;
const ISO_WEEK_YEAR: usize = 7;
const ISO_WEEK: usize = 8;
const ISO_DAY_OF_WEEK: usize = 9;
const TIMEZONE: usize = 10;

/// Parses `$dateFromParts`: natural dates and ISO weeks do not mix.
pub(crate) fn parse_from(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let call = FROM_PARTS.parse(parser, operator, raw)?;
    let given = |position: usize| call.given & (1 << position) != 0;
    let mixed =
        |code| Error::location(code, format!("{} does not allow mixing natural dates with ISO dates", operator.name));
    if !given(YEAR) && !given(ISO_WEEK_YEAR) {
        return Err(Error::location(
            40516,
            format!("{} requires either 'year' or 'isoWeekYear' to be present", operator.name),
        ));
    }
    if given(YEAR) && (given(ISO_WEEK_YEAR) || given(ISO_WEEK) || given(ISO_DAY_OF_WEEK)) {
        return Err(mixed(40489));
    }
    if given(ISO_WEEK_YEAR) && (given(MONTH) || given(DAY)) {
        return Err(mixed(40525));
    }
    parser.fold(call)
}

/// A part; its default if it was not given, `None` if it is nullish.
fn part(call: &Named<'_>, position: usize, default: i64) -> Result<Option<i64>> {
    if !call.given(position) {
        return Ok(Some(default));
    }
    let value = call.value(position)?;
    if value::is_nullish(&value) {
        return Ok(None);
    }
    let name = FROM_PARTS.fields[position].name;
    let Some(number) = value::long_exact(&value) else {
        return Err(Error::location(
            40515,
            format!(
                "'{name}' must evaluate to an integer, found {} with value {}",
                value::type_name(&value),
                value::display(&value)
            ),
        ));
    };
    match position {
        YEAR | ISO_WEEK_YEAR if !(1..=9999).contains(&number) => Err(Error::location(
            if position == YEAR { 40523 } else { 31095 },
            format!("'{name}' must evaluate to an integer in the range 1 to 9999, found {number}"),
        )),
        SECOND | MILLISECOND | YEAR | ISO_WEEK_YEAR => Ok(Some(number)),
        _ if i16::try_from(number).is_err() => Err(Error::location(
            31034,
            format!("'{name}' must evaluate to a value in the range [-32768, 32767]; value {number} is not in range"),
        )),
        _ => Ok(Some(number)),
    }
}

/// `{$dateFromParts: {year: …, …}}`: null when any part is nullish.
pub(crate) fn from_parts(call: &Named<'_>) -> Result<Value> {
    let mut parts = [0; 10];
    for (position, slot) in parts.iter_mut().enumerate() {
        let default = match position {
            MONTH | DAY | ISO_WEEK | ISO_DAY_OF_WEEK => 1,
            _ => 0,
        };
        match part(call, position, default)? {
            Some(number) => *slot = number,
            None => return Ok(Some(Bson::Null)),
        }
    }
    let Some(zone) = zone::argument(call, TIMEZONE)? else { return Ok(Some(Bson::Null)) };
    let days = if call.given(YEAR) {
        let months = parts[MONTH] - 1;
        days_from_date(parts[YEAR] + months.div_euclid(12), months.rem_euclid(12) + 1, 1) + parts[DAY] - 1
    } else {
        iso_year_start(parts[ISO_WEEK_YEAR]) + (parts[ISO_WEEK] - 1) * 7 + parts[ISO_DAY_OF_WEEK] - 1
    };
    let whole_ms = days * DAY_MS + parts[HOUR] * 3_600_000 + parts[MINUTE] * 60_000;
    parts[SECOND]
        .checked_mul(1000)
        .and_then(|ms| ms.checked_add(parts[MILLISECOND]))
        .and_then(|ms| ms.checked_add(whole_ms))
        .and_then(|local| zone.to_utc_ms(local))
        .map(|ms| Some(Bson::DateTime(DateTime::from_millis(ms))))
        .ok_or_else(|| Error::new(ErrorCode::Overflow, format!("date overflow in {}", call.name())))
}

/// The arguments of `$dateToParts`.
pub(crate) static TO_PARTS: Signature = Signature {
    fields: &[field("date", 40522), field("timezone", 0), field("iso8601", 0)],
    not_an_object: (40524, "{op} only supports an object as its argument"),
    unknown: (40520, "Unrecognized argument to {op}: {x}"),
    missing: "Missing '{x}' parameter to {op}",
};

/// `{$dateToParts: {date: …, timezone: …, iso8601: …}}`.
pub(crate) fn to_parts(call: &Named<'_>) -> Result<Value> {
    let date = call.value(0)?;
    let Some(zone) = zone::argument(call, 1)? else { return Ok(Some(Bson::Null)) };
    let iso = match call.value(2)? {
        Some(Bson::Boolean(iso)) => iso,
        None if !call.given(2) => false,
        nullish if value::is_nullish(&nullish) => return Ok(Some(Bson::Null)),
        other => {
            return Err(Error::location(
                40521,
                format!("iso8601 must evaluate to a bool, found {}", value::type_name(&other)),
            ));
        }
    };
    if value::is_nullish(&date) {
        return Ok(Some(Bson::Null));
    }
    let civil = Civil::from_ms(zone.to_local_ms(value::coerce_to_date(&date)?.timestamp_millis()));
    let (year, week) = civil.iso_week();
    let day = if iso {
        [("isoWeekYear", year), ("isoWeek", week), ("isoDayOfWeek", civil.iso_day_of_week())]
    } else {
        [("year", civil.year), ("month", civil.month), ("day", civil.day)]
    };
    let time =
        [("hour", civil.hour), ("minute", civil.minute), ("second", civil.second), ("millisecond", civil.millisecond)];
    let mut document = Document::new();
    for (name, number) in day.into_iter().chain(time) {
        document.insert(name, value::narrow(number));
    }
    Ok(Some(Bson::Document(document)))
}
