//! `$currentDate`: the request's time, as a date or a timestamp.
//!
//! The time is the request's, not the moment of application: all documents of one update get the same, and the pure
//! code reads no clock.

use super::type_of_value;
use crate::Context;
use crate::raw::Value;
use baton_types::{Error, Result};
use bson::{RawBsonRef, Timestamp};

/// The value that the argument asks for.
pub(super) fn parse(argument: RawBsonRef<'_>, ctx: &Context) -> Result<Value> {
    let wrong_type = || {
        Error::bad_value(
            "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}",
        )
    };
    let timestamp = match argument {
        RawBsonRef::Boolean(_) => false,
        RawBsonRef::Document(options) => {
            let mut timestamp = None;
            for field in options {
                let (name, value) = field?;
                if name.as_str() != "$type" {
                    return Err(Error::bad_value(format!("Unrecognized $currentDate option: {}", name.as_str())));
                }
                timestamp = match value.as_str() {
                    Some("date") => Some(false),
                    Some("timestamp") => Some(true),
                    _ => return Err(wrong_type()),
                };
            }
            timestamp.ok_or_else(wrong_type)?
        }
        other => {
            return Err(Error::bad_value(format!(
                "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({{$type: 'timestamp/date'}}).",
                type_of_value(other)
            )));
        }
    };
    Ok(Value::from(if timestamp { RawBsonRef::Timestamp(now(ctx)) } else { RawBsonRef::DateTime(ctx.now) }))
}

/// The request's time as a timestamp: the set's logical clock, or the wall clock where there is none.
pub(in crate::update) fn now(ctx: &Context) -> Timestamp {
    match ctx.cluster_time {
        Some(time) => time.into(),
        None => Timestamp { time: (ctx.now.timestamp_millis() / 1000).clamp(0, u32::MAX.into()) as u32, increment: 1 },
    }
}
