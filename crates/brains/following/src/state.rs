//! The machine explains itself: what it is doing, and what keeps it from going on.
//!
//! Invariant: a member that makes no progress says why. While it waits for its source, that is what went wrong last; with the next
//! batch that is forgotten.

use crate::following::{Following, Phase};
use crate::refusal::Remedy;
use baton_consensus::{MemberId, Moment};
use baton_types::{OpTime, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the machine is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its name.
    pub name: &'static str,
    /// What keeps it from going on, or did so last.
    pub obstacle: Option<Obstacle>,
}

/// What keeps a member from going on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Obstacle {
    /// There is nobody to follow.
    NoSource,
    /// A test or an operator wants it so.
    Held,
    /// The next entry is not old enough.
    Delayed {
        /// Looked at again then, at the latest.
        until: Moment,
    },
    /// An entry completes an index that is not built here yet.
    NotBuilt,
    /// An entry cannot be applied.
    Refused {
        /// Which.
        optime: OpTime,
        /// How often it was tried.
        attempts: u32,
        /// What is done about it.
        remedy: Remedy,
    },
    /// The source did not answer, or had nothing.
    SourceFailed {
        /// Who.
        source: MemberId,
        /// How.
        reason: String,
    },
    /// The source lacks what follows this member's log.
    TooStale {
        /// Who.
        source: MemberId,
        /// Where its log begins.
        oldest: Timestamp,
    },
    /// The logs have parted, and this member's could not be rolled back.
    NotRolledBack {
        /// Whose is the other one.
        source: MemberId,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSource => write!(f, "there is nobody to follow"),
            Self::Held => write!(f, "somebody wants nothing to be applied"),
            Self::Delayed { .. } => write!(f, "the next entry is not old enough"),
            Self::NotBuilt => write!(f, "an entry completes an index that is not built here yet"),
            Self::Refused { optime, attempts, remedy } => {
                write!(f, "the entry {optime} could not be applied in {attempts} attempt(s); {}", remedy.name())
            }
            Self::SourceFailed { source, reason } => write!(f, "member {source}: {reason}"),
            Self::TooStale { source, oldest } => {
                write!(f, "the log of member {source} begins at {oldest}, after the end of this one's")
            }
            Self::NotRolledBack { source, reason } => write!(f, "no rollback for member {source}: {reason}"),
        }
    }
}

impl Following {
    /// What it is doing, and what keeps it from going on.
    pub fn state(&self) -> State {
        let refused = self.refusal.as_ref().map(|refusal| Obstacle::Refused {
            optime: refusal.optime,
            attempts: refusal.attempts,
            remedy: refusal.remedy,
        });
        let last = || refused.clone().or_else(|| self.obstacle.clone());
        let (name, obstacle) = match &self.phase {
            Phase::Idle => ("idle", last().or(Some(Obstacle::NoSource))),
            Phase::Connecting => ("connecting", last()),
            Phase::Copying => {
                let kept = self.copy.as_ref().and_then(|copy| copy.fault()).zip(self.current());
                let kept = kept.map(|(reason, source)| Obstacle::SourceFailed { source, reason: reason.to_owned() });
                (self.copy.as_ref().map_or("copying", |copy| copy.name()), kept.or_else(last))
            }
            Phase::Opening => ("opening a stream", last()),
            Phase::Reading => ("streaming", last()),
            Phase::Waiting { held: true, .. } => ("waiting", Some(Obstacle::Held)),
            Phase::Waiting { held: false, until } => ("waiting", Some(Obstacle::Delayed { until: *until })),
            Phase::Applying { .. } => ("applying", last()),
            Phase::AwaitingBuild { .. } => ("waiting", Some(Obstacle::NotBuilt)),
            Phase::AskingToSpare => ("asking whether its copy can be spared", last()),
            Phase::LookingBack | Phase::Paging => ("looking for the common entry", last()),
            Phase::TakingAway => ("rolling back", last()),
        };
        State { name, obstacle }
    }
}
