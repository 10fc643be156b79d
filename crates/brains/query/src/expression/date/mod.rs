//! Dates: the calendar, time zones, and one file per kind of date operator.
//!
//! A date is a count of milliseconds since 1970 in UTC. The calendar is the proleptic Gregorian one, computed with whole
//! numbers, so that every date BSON can hold has its parts.

pub(crate) mod calendar;
pub(crate) mod fields;
pub(crate) mod parts;
pub(crate) mod reading;
pub(crate) mod steps;
pub(crate) mod text;
pub(crate) mod truncate;
mod unit;
mod zone;

pub(crate) use calendar::iso_text;
