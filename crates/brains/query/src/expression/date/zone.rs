//! Time zones: fixed offsets and those of the Olson database.
//!
//! A local time that occurs twice means the earlier moment; one that is skipped is read with the offset from before the
//! change, which lands as much after it.

use super::calendar::DAY_MS;
use crate::expression::named::Named;
use crate::expression::value::{self, Value};
use baton_types::{Error, Result};
use bson::Bson;
use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;

/// A time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Always so many milliseconds ahead of UTC.
    Fixed(i64),
    /// One of the database's.
    Named(Tz),
}

impl Zone {
    /// UTC.
    pub const UTC: Self = Self::Fixed(0);

    /// The zone of a name, or of an offset such as `+03`, `-0930`, `+05:45`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(offset) = parse_offset_ms(text) {
            return Some(Self::Fixed(offset));
        }
        match text {
            "UTC" | "GMT" | "Z" => Some(Self::UTC),
            name => name.parse().ok().map(Self::Named),
        }
    }

    /// How far local time is ahead of UTC at a moment.
    pub fn offset_ms(self, utc_ms: i64) -> i64 {
        match self {
            Self::Fixed(offset) => offset,
            Self::Named(zone) => {
                i64::from(zone.offset_from_utc_datetime(&naive(utc_ms)).fix().local_minus_utc()) * 1000
            }
        }
    }

    /// Local time at a moment.
    pub fn to_local_ms(self, utc_ms: i64) -> i64 {
        utc_ms.saturating_add(self.offset_ms(utc_ms))
    }

    /// The moment of a local time; `None` beyond what a date can hold.
    pub fn to_utc_ms(self, local_ms: i64) -> Option<i64> {
        let offset = match self {
            Self::Fixed(offset) => offset,
            Self::Named(zone) => match zone.offset_from_local_datetime(&naive(local_ms)) {
                MappedLocalTime::Single(offset) | MappedLocalTime::Ambiguous(offset, _) => {
                    i64::from(offset.fix().local_minus_utc()) * 1000
                }
                MappedLocalTime::None => self.offset_ms(local_ms.saturating_sub(DAY_MS)),
            },
        };
        local_ms.checked_sub(offset)
    }
}

/// The moment for the zone database, clamped to the years it knows.
fn naive(ms: i64) -> NaiveDateTime {
    match DateTime::from_timestamp_millis(ms) {
        Some(moment) => moment.naive_utc(),
        None if ms < 0 => NaiveDateTime::MIN,
        None => NaiveDateTime::MAX,
    }
}

/// `+HH`, `+HHMM`, `+HH:MM`, and the same with a minus.
pub(crate) fn parse_offset_ms(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes() {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let number = |pair: &[u8]| match pair {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0')),
        _ => None,
    };
    let (hours, minutes) = match digits {
        [a, b] => (number(&[*a, *b])?, 0),
        [a, b, c, d] | [a, b, b':', c, d] => (number(&[*a, *b])?, number(&[*c, *d])?),
        _ => return None,
    };
    Some(sign * (hours * 60 + minutes) * 60_000)
}

/// The zone that an argument names: UTC if it was not given, `None` if it is nullish.
pub(crate) fn argument(call: &Named<'_>, position: usize) -> Result<Option<Zone>> {
    if !call.given(position) {
        return Ok(Some(Zone::UTC));
    }
    of_value(call.name(), &call.value(position)?)
}

fn of_value(name: &str, value: &Value) -> Result<Option<Zone>> {
    match value {
        Some(Bson::String(text)) => match Zone::parse(text) {
            Some(zone) => Ok(Some(zone)),
            None => Err(Error::location(40485, format!("unrecognized time zone identifier: \"{text}\""))),
        },
        nullish if value::is_nullish(nullish) => Ok(None),
        other => Err(Error::location(
            40517,
            format!(
                "{name} requires a string for the timezone argument, but was given a {} ({})",
                value::type_name(other),
                value::display(other)
            ),
        )),
    }
}
