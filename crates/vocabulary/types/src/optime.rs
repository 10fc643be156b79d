//! Positions in the oplog.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An election term. Grows with every election; never falls.
pub type Term = i64;

/// A BSON timestamp: whole seconds since the epoch, and an ordinal within the second. Orders as one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: u32,
    /// Ordinal of the operation within that second, from 1.
    pub increment: u32,
}

impl Timestamp {
    /// The timestamp before every other.
    pub const ZERO: Self = Self { seconds: 0, increment: 0 };

    /// Seconds in the high half, the ordinal in the low half: sorts as the timestamp does.
    pub fn as_u64(self) -> u64 {
        (u64::from(self.seconds) << 32) | u64::from(self.increment)
    }

    /// The inverse of [`Timestamp::as_u64`].
    pub fn from_u64(value: u64) -> Self {
        Self { seconds: (value >> 32) as u32, increment: value as u32 }
    }
}

impl From<Timestamp> for bson::Timestamp {
    fn from(t: Timestamp) -> Self {
        Self { time: t.seconds, increment: t.increment }
    }
}

impl From<bson::Timestamp> for Timestamp {
    fn from(t: bson::Timestamp) -> Self {
        Self { seconds: t.time, increment: t.increment }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({}, {})", self.seconds, self.increment)
    }
}

/// A position in the oplog: the term first, then the timestamp. No two entries of one set share an OpTime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpTime {
    /// The term of the primary that wrote the entry.
    pub term: Term,
    /// When, by the set's logical clock.
    pub timestamp: Timestamp,
}

impl OpTime {
    /// The position before every entry.
    pub const ZERO: Self = Self { term: 0, timestamp: Timestamp::ZERO };
}

impl fmt::Display for OpTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ts: {}, t: {}}}", self.timestamp, self.term)
    }
}
