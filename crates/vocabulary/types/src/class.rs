//! The class of a request or task: whose latency counts more when there is not enough of the machine for all.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A class of service, ordered from least to most urgent.
///
/// Decided once, where a request enters, and carried with it from there on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Work nobody waits for: compaction, index builds, truncation, TTL deletion.
    Background,
    /// A client that said it can wait.
    Low,
    /// A client that said nothing.
    #[default]
    Normal,
    /// A client whose users are looking at the screen.
    High,
}

impl Class {
    /// Its place where clients' classes are counted: low, normal, high. What nobody waits for is counted with the low.
    pub fn rank(self) -> usize {
        match self {
            Self::Background | Self::Low => 0,
            Self::Normal => 1,
            Self::High => 2,
        }
    }

    /// The class a client may name, by the name it uses (`"high"`, `"normal"`, `"low"`).
    pub fn from_client_name(name: &str) -> Option<Self> {
        match name {
            "high" => Some(Self::High),
            "normal" => Some(Self::Normal),
            "low" => Some(Self::Low),
            _ => None,
        }
    }

    /// The name shown in `currentOp`, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
