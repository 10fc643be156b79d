//! One part of a date: `$year`, `$month`, `$dayOfMonth`, `$dayOfWeek`, `$dayOfYear`, `$hour`, `$minute`, `$second`,
//! `$millisecond`, `$week`, `$isoWeek`, `$isoWeekYear`, `$isoDayOfWeek`; and of a timestamp: `$tsSecond`,
//! `$tsIncrement`.

use super::calendar::Civil;
use super::zone;
use crate::expression::named::Named;
use crate::expression::node::{Arguments, Call, Node};
use crate::expression::parse::Parser;
use crate::expression::table::Operator;
use crate::expression::value::{self, Value};
use baton_types::{Error, Result};
use bson::{Bson, RawBsonRef, RawDocument, Timestamp};

/// Parses `{$year: date}`, `{$year: [date]}` or `{$year: {date: …, timezone: …}}`.
pub(crate) fn parse(parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Node> {
    let call = match raw {
        RawBsonRef::Document(document) if !is_expression(document) => parse_options(parser, operator, document)?,
        RawBsonRef::Array(_) => {
            let arguments = parser.operands(raw)?;
            if arguments.len() != 1 {
                return Err(Error::location(
                    40536,
                    format!(
                        "{} accepts exactly one argument if given an array, but was given {}",
                        operator.name,
                        arguments.len()
                    ),
                ));
            }
            Call { operator, arguments, given: 1 }
        }
        single => Call { operator, arguments: vec![parser.operand(single)?], given: 1 },
    };
    parser.fold(call)
}

fn is_expression(document: &RawDocument) -> bool {
    matches!(document.iter().next(), Some(Ok((name, _))) if name.as_str().starts_with('$'))
}

fn parse_options(parser: &mut Parser<'_>, operator: &'static Operator, document: &RawDocument) -> Result<Call> {
    let mut arguments = vec![Node::Constant(None), Node::Constant(None)];
    let mut given = 0;
    for element in document {
        let (name, inner) = element?;
        let position = match name.as_str() {
            "date" => 0,
            "timezone" => 1,
            other => {
                return Err(Error::location(40535, format!("unrecognized option to {}: \"{other}\"", operator.name)));
            }
        };
        arguments[position] = parser.operand(inner)?;
        given |= 1 << position;
    }
    if given & 1 == 0 {
        return Err(Error::location(
            40539,
            format!("missing 'date' argument to {}, provided: {}", operator.name, value::display_document(document)),
        ));
    }
    Ok(Call { operator, arguments, given })
}

fn part(call: &Named<'_>, pick: fn(&Civil) -> i64) -> Result<Value> {
    let date = call.value(0)?;
    if value::is_nullish(&date) {
        return Ok(Some(Bson::Null));
    }
    let Some(zone) = zone::argument(call, 1)? else { return Ok(Some(Bson::Null)) };
    let moment = value::coerce_to_date(&date)?.timestamp_millis();
    Ok(Some(value::narrow(pick(&Civil::from_ms(zone.to_local_ms(moment))))))
}

macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident $pick:expr;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name(call: &Named<'_>) -> Result<Value> {
            part(call, $pick)
        })*
    };
}

parts! {
    /// `$dayOfMonth`: from 1.
    day_of_month |civil| civil.day;
    /// `$dayOfWeek`: Sunday is 1.
    day_of_week Civil::day_of_week;
    /// `$dayOfYear`: from 1.
    day_of_year Civil::day_of_year;
    /// `$hour`: from 0.
    hour |civil| civil.hour;
    /// `$isoDayOfWeek`: Monday is 1.
    iso_day_of_week Civil::iso_day_of_week;
    /// `$isoWeek`: from 1.
    iso_week |civil| civil.iso_week().1;
    /// `$millisecond`: from 0.
    millisecond |civil| civil.millisecond;
    /// `$minute`: from 0.
    minute |civil| civil.minute;
    /// `$month`: from 1.
    month |civil| civil.month;
    /// `$second`: from 0.
    second |civil| civil.second;
    /// `$week`: from 0, beginning on Sundays.
    week Civil::week;
    /// `$year`.
    year |civil| civil.year;
}

/// `$isoWeekYear`: the year the ISO week belongs to, a `long`.
pub(crate) fn iso_week_year(call: &Named<'_>) -> Result<Value> {
    Ok(match part(call, |civil| civil.iso_week().0)? {
        Some(Bson::Int32(year)) => Some(Bson::Int64(i64::from(year))),
        other => other,
    })
}

/// `{$tsSecond: timestamp}`: a `long`.
pub(crate) fn ts_second(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    of_timestamp(name, 5_687_301, &arguments[0], |timestamp| timestamp.time)
}

/// `{$tsIncrement: timestamp}`: a `long`.
pub(crate) fn ts_increment(name: &'static str, arguments: &mut Arguments<'_, '_>) -> Result<Value> {
    of_timestamp(name, 5_687_302, &arguments[0], |timestamp| timestamp.increment)
}

fn of_timestamp(name: &str, code: i32, value: &Value, pick: fn(&Timestamp) -> u32) -> Result<Value> {
    match value {
        Some(Bson::Timestamp(timestamp)) => Ok(Some(Bson::Int64(i64::from(pick(timestamp))))),
        nullish if value::is_nullish(nullish) => Ok(Some(Bson::Null)),
        other => Err(Error::location(
            code,
            format!("{name} requires argument to be a timestamp, but got {}", value::type_name(other)),
        )),
    }
}
