//! `$dateAdd`, `$dateSubtract`, `$dateDiff`.
//!
//! Months and days are stepped on the local calendar, so that the time of day survives a change of offset, and a day
//! that the target month lacks becomes its last; hours and less are stepped on the clock. A difference counts how often
//! a unit begins between the two moments.

use super::calendar::{Civil, DAY_MS, days_from_date, month_days};
use super::unit::{self, Measure, Unit};
use super::zone::{self, Zone};
use crate::expression::named::{Named, Signature, field};
use crate::expression::value::{self, Value};
use baton_types::{Error, Result};
use bson::{Bson, DateTime};

/// The arguments of `$dateAdd` and `$dateSubtract`.
pub(crate) static DATE_ADD: Signature = Signature {
    fields: &[
        field("startDate", 5_166_402),
        field("unit", 5_166_402),
        field("amount", 5_166_402),
        field("timezone", 0),
    ],
    not_an_object: (5_166_400, "{op} expects an object as its argument.found :{x}"),
    unknown: (
        5_166_401,
        "Unrecognized argument to {op}: {x}. Expected arguments are startDate, unit, amount, and optionally timezone.",
    ),
    missing: "{op} requires startDate, unit, and amount to be present",
};

/// No date is so many months from another: beyond, the arithmetic need not be exact.
const MONTHS_MAX: i64 = 20_000_000_000;

/// `{$dateAdd: {startDate: …, unit: …, amount: …, timezone: …}}`.
pub(crate) fn add(call: &Named<'_>) -> Result<Value> {
    step(call, Some)
}

/// `{$dateSubtract: {startDate: …, unit: …, amount: …, timezone: …}}`.
pub(crate) fn subtract(call: &Named<'_>) -> Result<Value> {
    step(call, i64::checked_neg)
}

fn step(call: &Named<'_>, direction: fn(i64) -> Option<i64>) -> Result<Value> {
    let name = call.name();
    let start = call.value(0)?;
    let unit = unit::argument(call, 1, 5_166_404)?;
    let amount = call.value(2)?;
    let zone = zone::argument(call, 3)?;
    if value::is_nullish(&start) || value::is_nullish(&amount) {
        return Ok(Some(Bson::Null));
    }
    let (Some(unit), Some(zone)) = (unit, zone) else { return Ok(Some(Bson::Null)) };
    if !value::is_date_like(&start) {
        return Err(Error::location(5_166_403, format!("{name} requires startDate to be convertible to a date")));
    }
    let start = value::coerce_to_date(&start)?.timestamp_millis();
    let Some(amount) = value::long_exact(&amount) else {
        return Err(Error::location(5_166_405, format!("{name} expects integer amount of time units")));
    };
    let amount = direction(amount)
        .ok_or_else(|| Error::location(6_045_000, format!("invalid {name} 'amount' parameter value: {amount}")))?;
    match stepped(start, unit, amount, zone) {
        Some(ms) => Ok(Some(Bson::DateTime(DateTime::from_millis(ms)))),
        None => Err(Error::location(5_166_406, format!("{name} overflowed"))),
    }
}

fn stepped(start_ms: i64, unit: Unit, amount: i64, zone: Zone) -> Option<i64> {
    match unit.measure() {
        Measure::Milliseconds(ms) => start_ms.checked_add(amount.checked_mul(ms)?),
        Measure::Days(days) => {
            let local = zone.to_local_ms(start_ms);
            zone.to_utc_ms(local.checked_add(amount.checked_mul(days)?.checked_mul(DAY_MS)?)?)
        }
        Measure::Months(months) => {
            let months = amount.checked_mul(months).filter(|months| months.abs() <= MONTHS_MAX)?;
            let local = zone.to_local_ms(start_ms);
            let civil = Civil::from_ms(local);
            let month = civil.year * 12 + civil.month - 1 + months;
            let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
            let day = civil.day.min(month_days(year, month));
            let days = days_from_date(year, month, day);
            zone.to_utc_ms(days.checked_mul(DAY_MS)?.checked_add(local.rem_euclid(DAY_MS))?)
        }
    }
}

/// The arguments of `$dateDiff`.
pub(crate) static DATE_DIFF: Signature = Signature {
    fields: &[
        field("startDate", 5_166_303),
        field("endDate", 5_166_304),
        field("unit", 5_166_305),
        field("timezone", 0),
        field("startOfWeek", 0),
    ],
    not_an_object: (5_166_301, "{op} only supports an object as its argument"),
    unknown: (5_166_302, "Unrecognized argument to {op}: {x}"),
    missing: "Missing '{x}' parameter to {op}",
};

/// `{$dateDiff: {startDate: …, endDate: …, unit: …, timezone: …, startOfWeek: …}}`: a `long`.
pub(crate) fn diff(call: &Named<'_>) -> Result<Value> {
    let start = call.value(0)?;
    let end = call.value(1)?;
    let unit = unit::argument(call, 2, 5_439_013)?;
    let zone = zone::argument(call, 3)?;
    if value::is_nullish(&start) || value::is_nullish(&end) {
        return Ok(Some(Bson::Null));
    }
    let (Some(unit), Some(zone)) = (unit, zone) else { return Ok(Some(Bson::Null)) };
    let week_start = if unit == Unit::Week { unit::start_of_week(call, 4, 5_439_015)? } else { Some(0) };
    let Some(week_start) = week_start else { return Ok(Some(Bson::Null)) };
    let moment = |value: &Value, name: &str| {
        if value::is_date_like(value) {
            return Ok(value::coerce_to_date(value)?.timestamp_millis());
        }
        Err(Error::location(
            5_166_307,
            format!("{} requires '{name}' to be a date, but got {}", call.name(), value::type_name(value)),
        ))
    };
    let (start, end) = (moment(&start, "startDate")?, moment(&end, "endDate")?);
    match begun(start, end, unit, zone, week_start) {
        Some(count) => Ok(Some(Bson::Int64(count))),
        None => Err(Error::location(5_166_308, format!("{} overflowed", call.name()))),
    }
}

/// How many units begin after `start` up to `end`; `week_start` counts from Monday.
fn begun(start: i64, end: i64, unit: Unit, zone: Zone, week_start: i64) -> Option<i64> {
    let (from, to) = (Civil::from_ms(zone.to_local_ms(start)), Civil::from_ms(zone.to_local_ms(end)));
    // Day 0 was a Thursday, the fourth day counted from Monday.
    let week = |civil: &Civil| (civil.days + 3 - week_start).div_euclid(7);
    match unit {
        Unit::Year => Some(to.year - from.year),
        Unit::Quarter => Some((to.year - from.year) * 4 + (to.month - 1) / 3 - (from.month - 1) / 3),
        Unit::Month => Some((to.year - from.year) * 12 + to.month - from.month),
        Unit::Week => Some(week(&to) - week(&from)),
        Unit::Day => Some(to.days - from.days),
        Unit::Millisecond => end.checked_sub(start),
        Unit::Hour | Unit::Minute | Unit::Second => {
            let Measure::Milliseconds(length) = unit.measure() else { return None };
            // On the clock, but with boundaries where the zone has them.
            let offset = zone.offset_ms(start);
            let index = |moment: i64| moment.saturating_add(offset).div_euclid(length);
            Some(index(end) - index(start))
        }
    }
}
