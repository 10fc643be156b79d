//! Units of time and days of the week, as arguments of `$dateAdd` and its kin.

use crate::expression::named::Named;
use crate::expression::value::{self, Value};
use baton_types::{Error, Result};
use bson::Bson;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

/// A unit as a count of something that has no further variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Calendar months.
    Months(i64),
    /// Calendar days.
    Days(i64),
    /// Milliseconds.
    Milliseconds(i64),
}

impl Unit {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "year" => Self::Year,
            "quarter" => Self::Quarter,
            "month" => Self::Month,
            "week" => Self::Week,
            "day" => Self::Day,
            "hour" => Self::Hour,
            "minute" => Self::Minute,
            "second" => Self::Second,
            "millisecond" => Self::Millisecond,
            _ => return None,
        })
    }

    /// What one unit is.
    pub fn measure(self) -> Measure {
        match self {
            Self::Year => Measure::Months(12),
            Self::Quarter => Measure::Months(3),
            Self::Month => Measure::Months(1),
            Self::Week => Measure::Days(7),
            Self::Day => Measure::Days(1),
            Self::Hour => Measure::Milliseconds(3_600_000),
            Self::Minute => Measure::Milliseconds(60_000),
            Self::Second => Measure::Milliseconds(1000),
            Self::Millisecond => Measure::Milliseconds(1),
        }
    }
}

/// The unit that an argument names; `None` if it is nullish. `code` is for one that is no string.
pub(crate) fn argument(call: &Named<'_>, position: usize, code: i32) -> Result<Option<Unit>> {
    let value = call.value(position)?;
    if value::is_nullish(&value) {
        return Ok(None);
    }
    let text = string(call.name(), "unit", &value, code)?;
    match Unit::parse(text) {
        Some(unit) => Ok(Some(unit)),
        None => Err(Error::failed_to_parse(format!(
            "{} parameter 'unit' value parsing failed :: caused by :: unknown time unit value: {text}",
            call.name()
        ))),
    }
}

fn string<'v>(name: &str, parameter: &str, value: &'v Value, code: i32) -> Result<&'v str> {
    match value {
        Some(Bson::String(text)) => Ok(text),
        other => Err(Error::location(
            code,
            format!("{name} requires '{parameter}' to be a string, but got {}", value::type_name(other)),
        )),
    }
}

/// The day of the week that an argument names, Monday 0 to Sunday 6: Sunday if not given, `None` if nullish.
pub(crate) fn start_of_week(call: &Named<'_>, position: usize, code: i32) -> Result<Option<i64>> {
    if !call.given(position) {
        return Ok(Some(6));
    }
    let value = call.value(position)?;
    if value::is_nullish(&value) {
        return Ok(None);
    }
    let text = string(call.name(), "startOfWeek", &value, code)?;
    const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let lower = text.to_ascii_lowercase();
    let day = DAYS.iter().position(|day| *day == lower || day[..3] == lower);
    match day.and_then(|day| i64::try_from(day).ok()) {
        Some(day) => Ok(Some(day)),
        None => Err(Error::failed_to_parse(format!(
            "{} parameter 'startOfWeek' value cannot be recognized as a day of a week: {text}",
            call.name()
        ))),
    }
}
