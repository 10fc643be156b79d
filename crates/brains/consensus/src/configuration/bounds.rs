//! Which numbers each field of a configuration may hold, read from a document or made by code alike.
//!
//! Invariants: a bound is written here once; a value outside is answered as MongoDB answers it (51024).
//! What it deliberately does not do: rules that concern two fields or two members (`validate.rs`).

use baton_types::{Error, Result};
use std::fmt::Display;
use std::time::Duration;

/// One side of a range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound<T> {
    /// More than.
    Above(T),
    /// At least.
    AtLeast(T),
    /// Less than.
    Below(T),
    /// At most.
    AtMost(T),
}

use Bound::{Above, AtLeast, AtMost, Below};

/// One more than the largest 32-bit integer.
const INT_END: i64 = 1 << 31;

/// `version`.
pub(super) const VERSION: [Bound<i64>; 2] = [Above(0), Below(INT_END)];
/// `term`; -1 is the unknown one.
pub(super) const TERM: [Bound<i64>; 2] = [AtLeast(-1), Below(INT_END)];
/// `protocolVersion`: only one is left.
pub(super) const PROTOCOL_VERSION: [Bound<i64>; 2] = [AtLeast(1), AtMost(1)];
/// `votes`.
pub(super) const VOTES: [Bound<i64>; 2] = [AtLeast(0), AtMost(1)];
/// `priority`.
pub(super) const PRIORITY: [Bound<f64>; 2] = [AtLeast(0.0), AtMost(1000.0)];
/// `secondaryDelaySecs`: up to a leap year.
pub(super) const DELAY_SECS: [Bound<i64>; 2] = [AtLeast(0), AtMost(366 * 24 * 60 * 60)];
/// The timers that must run. MongoDB has no upper bound; here one keeps sums of times within their type.
pub(super) const TIMER: [Bound<i64>; 2] = [Above(0), Below(INT_END)];
/// The timers that -1 turns off.
pub(super) const TIMER_OR_NEVER: [Bound<i64>; 2] = [AtLeast(-1), Below(INT_END)];

/// 51024 unless `value` is within both bounds; NaN is within none.
pub(super) fn check<T: PartialOrd + Display + Copy>(field: &str, value: T, bounds: &[Bound<T>; 2]) -> Result<()> {
    for bound in bounds {
        let (holds, relation, limit) = match *bound {
            Above(limit) => (value > limit, ">", limit),
            AtLeast(limit) => (value >= limit, ">=", limit),
            Below(limit) => (value < limit, "<", limit),
            AtMost(limit) => (value <= limit, "<=", limit),
        };
        if !holds {
            let message = format!("BSON field '{field}' value must be {relation} {limit}, actual value '{value}'");
            return Err(Error::location(51024, message));
        }
    }
    Ok(())
}

/// A member's `_id`: it has to fit where one byte is kept of it.
pub(super) fn check_member_id(id: i64) -> Result<()> {
    if (0..=255).contains(&id) {
        return Ok(());
    }
    Err(Error::bad_value(format!("_id field value of {id} is out of range.")))
}

/// Whole milliseconds, clamped.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Whole seconds, clamped.
pub(super) fn secs(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
