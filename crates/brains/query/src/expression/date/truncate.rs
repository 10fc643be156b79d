//! `$dateTrunc`: the beginning of the unit, or of the bin of several units, that a date lies in.
//!
//! Bins are counted from the beginning of 2000 in the zone; bins of weeks from the first week that begins in 2000.

use super::calendar::{Civil, DAY_MS, days_from_date};
use super::unit::{self, Measure, Unit};
use super::zone::{self, Zone};
use crate::expression::named::{Named, Signature, field};
use crate::expression::value::{self, Value};
use baton_types::{Error, Result};
use bson::{Bson, DateTime};

/// The arguments of `$dateTrunc`.
pub(crate) static DATE_TRUNC: Signature = Signature {
    fields: &[
        field("date", 5_439_009),
        field("unit", 5_439_010),
        field("binSize", 0),
        field("timezone", 0),
        field("startOfWeek", 0),
    ],
    not_an_object: (5_439_007, "{op} only supports an object as its argument"),
    unknown: (5_439_008, "Unrecognized argument to {op}: {x}"),
    missing: "Missing '{x}' parameter to {op}",
};

/// No date is in a month so far from year 0.
const MONTHS_MAX: i64 = 20_000_000_000;

/// 2000-01-01 in days.
const REFERENCE_DAYS: i64 = 10_957;

/// `{$dateTrunc: {date: …, unit: …, binSize: …, timezone: …, startOfWeek: …}}`.
pub(crate) fn trunc(call: &Named<'_>) -> Result<Value> {
    let date = call.value(0)?;
    let unit = unit::argument(call, 1, 5_439_013)?;
    let bin = bin_size(call)?;
    let zone = zone::argument(call, 3)?;
    let (Some(unit), Some(bin), Some(zone)) = (unit, bin, zone) else { return Ok(Some(Bson::Null)) };
    let week_start = if unit == Unit::Week { unit::start_of_week(call, 4, 5_439_015)? } else { Some(0) };
    let Some(week_start) = week_start else { return Ok(Some(Bson::Null)) };
    if value::is_nullish(&date) {
        return Ok(Some(Bson::Null));
    }
    if !value::is_date_like(&date) {
        return Err(Error::location(
            5_439_012,
            format!("{} requires 'date' to be a date, but got {}", call.name(), value::type_name(&date)),
        ));
    }
    let moment = value::coerce_to_date(&date)?.timestamp_millis();
    match truncated(moment, unit, bin, zone, week_start) {
        Some(ms) => Ok(Some(Bson::DateTime(DateTime::from_millis(ms)))),
        None => Err(Error::location(5_439_006, format!("{} overflowed", call.name()))),
    }
}

fn bin_size(call: &Named<'_>) -> Result<Option<i64>> {
    if !call.given(2) {
        return Ok(Some(1));
    }
    let value = call.value(2)?;
    if value::is_nullish(&value) {
        return Ok(None);
    }
    let Some(size) = value::long_exact(&value) else {
        return Err(Error::location(
            5_439_017,
            format!(
                "{} requires 'binSize' to be a 64-bit integer, but got value '{}' of type {}",
                call.name(),
                value::display(&value),
                value::type_name(&value)
            ),
        ));
    };
    if size > 0 {
        return Ok(Some(size));
    }
    Err(Error::location(
        5_439_018,
        format!("{} requires 'binSize' to be greater than 0, but got value {size}", call.name()),
    ))
}

fn truncated(moment: i64, unit: Unit, bin: i64, zone: Zone, week_start: i64) -> Option<i64> {
    match unit.measure() {
        Measure::Milliseconds(ms) => {
            let reference = zone.to_utc_ms(REFERENCE_DAYS * DAY_MS)?;
            floor_from(reference, moment, ms.checked_mul(bin)?)
        }
        Measure::Days(days) => {
            // 2000-01-01 was a Saturday, the sixth day counted from Monday.
            let reference =
                if unit == Unit::Week { REFERENCE_DAYS + (week_start - 5).rem_euclid(7) } else { REFERENCE_DAYS };
            let local = Civil::from_ms(zone.to_local_ms(moment));
            let day = floor_from(reference, local.days, days.checked_mul(bin)?)?;
            zone.to_utc_ms(day.checked_mul(DAY_MS)?)
        }
        Measure::Months(months) => {
            let local = Civil::from_ms(zone.to_local_ms(moment));
            let month = floor_from(2000 * 12, local.year * 12 + local.month - 1, months.checked_mul(bin)?)?;
            // Far beyond the dates there are, the calendar's arithmetic would overflow.
            if month.abs() > MONTHS_MAX {
                return None;
            }
            let day = days_from_date(month.div_euclid(12), month.rem_euclid(12) + 1, 1);
            zone.to_utc_ms(day.checked_mul(DAY_MS)?)
        }
    }
}

/// The greatest `reference + k · length` up to `at`.
fn floor_from(reference: i64, at: i64, length: i64) -> Option<i64> {
    at.checked_sub(at.checked_sub(reference)?.rem_euclid(length))
}
