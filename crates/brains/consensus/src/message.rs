//! What members say to each other. The transport carries requests and brings responses back; a lost one is a response of
//! [`Input::Unreachable`](crate::Input::Unreachable), never silence for ever.
//!
//! Names are those of MongoDB's commands (replSetHeartbeat, replSetRequestVotes, replSetUpdatePosition, replSetStepUp), and
//! what they carry is theirs, except where a field says otherwise.

use crate::configuration::{Configuration, ConfigurationVersion, MemberId};
use baton_types::{OpTime, Term};
use bson::RawDocumentBuf;
use bson::oid::ObjectId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How far a member's copy of the log reaches.
///
/// Invariant: `durable` ≤ `written`, `applied` ≤ `written`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The last entry in the log.
    pub written: OpTime,
    /// The last entry whose effect readers see.
    pub applied: OpTime,
    /// The last entry that would survive the loss of power.
    pub durable: OpTime,
}

impl Position {
    /// The later of both, each part by itself.
    pub fn max(self, other: Self) -> Self {
        Self {
            written: self.written.max(other.written),
            applied: self.applied.max(other.applied),
            durable: self.durable.max(other.durable),
        }
    }
}

/// What a member is doing; the numbers are MongoDB's `myState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum MemberState {
    Startup = 0,
    Primary = 1,
    Secondary = 2,
    Recovering = 3,
    /// In initial sync.
    Startup2 = 5,
    /// Never heard of.
    Unknown = 6,
    Arbiter = 7,
    Down = 8,
    Rollback = 9,
    Removed = 10,
}

impl MemberState {
    /// Whether its data may be read and fetched.
    pub fn is_readable(self) -> bool {
        matches!(self, Self::Primary | Self::Secondary)
    }

    /// `stateStr`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "STARTUP",
            Self::Primary => "PRIMARY",
            Self::Secondary => "SECONDARY",
            Self::Recovering => "RECOVERING",
            Self::Startup2 => "STARTUP2",
            Self::Unknown => "UNKNOWN",
            Self::Arbiter => "ARBITER",
            Self::Down => "DOWN",
            Self::Rollback => "ROLLBACK",
            Self::Removed => "REMOVED",
        }
    }
}

/// Why somebody stands for election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ElectionReason {
    /// There was no sign of a primary for the election timeout, or its process is known to be gone.
    ElectionTimeout,
    /// The primary has a lower priority.
    PriorityTakeover,
    /// The primary is catching up from a log that ends before ours.
    CatchUpTakeover,
    /// The primary that stepped down chose us.
    Handoff,
    /// An operator's `replSetStepUp`.
    StepUpRequest,
    /// The set has no other voter.
    SingleMember,
}

impl ElectionReason {
    /// `electionReason` in counters and status.
    pub fn name(self) -> &'static str {
        match self {
            Self::ElectionTimeout => "electionTimeout",
            Self::PriorityTakeover => "priorityTakeover",
            Self::CatchUpTakeover => "catchUpTakeover",
            Self::Handoff => "stepUpRequestSkipDryRun",
            Self::StepUpRequest => "stepUpRequest",
            Self::SingleMember => "singleNodePromptElection",
        }
    }

    /// Whether the candidate means to replace a primary that works, so that seeing one is no reason to refuse.
    pub fn replaces_a_primary(self) -> bool {
        self != Self::ElectionTimeout
    }
}

impl fmt::Display for ElectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a member says of itself in both halves of a heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gossip {
    /// Its term.
    pub term: Term,
    /// In which version it speaks: see [`crate::PROTOCOL_VERSION`].
    pub protocol_version: u32,
    /// Who it believes is primary in that term.
    pub primary: Option<MemberId>,
    /// What it is doing.
    pub state: MemberState,
    /// Its log.
    pub position: Position,
    /// The last entry it knows to be committed.
    pub commit_point: OpTime,
    /// Whom it fetches from.
    pub sync_source: Option<MemberId>,
    /// The configuration it has.
    pub configuration_version: ConfigurationVersion,
    /// What it says of its heavy tasks, for who decides when leadership moves. It is carried here, and not read.
    #[serde(with = "baton_replay::documents::optional")]
    pub leadership: Option<RawDocumentBuf>,
}

/// `replSetHeartbeat`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatRequest {
    /// The set's name: a member of another set is told so.
    pub set_name: String,
    /// The set's identity, which two sets of one name do not share; absent if the sender has no configuration.
    pub set_id: Option<ObjectId>,
    /// The sender; absent if it is in no configuration.
    pub from: Option<MemberId>,
    /// Where the sender can be asked.
    pub from_host: String,
    /// What it says of itself.
    pub gossip: Gossip,
}

/// The answer to `replSetHeartbeat`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatResponse {
    /// What the member says of itself.
    pub gossip: Gossip,
    /// Its configuration, if the request's is older.
    pub configuration: Option<Box<Configuration>>,
}

/// `replSetRequestVotes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VoteRequest {
    /// The set's name.
    pub set_name: String,
    /// The set's identity.
    pub set_id: Option<ObjectId>,
    /// Asks how the member would vote; nobody's term or vote changes.
    pub dry_run: bool,
    /// The term of the election; in a dry run the candidate's present one.
    pub term: Term,
    /// Who stands.
    pub candidate: MemberId,
    /// The end of the candidate's log.
    pub last_written: OpTime,
    /// The candidate's configuration.
    pub configuration_version: ConfigurationVersion,
    /// Why it stands. Not in MongoDB's command: a voter that hears from a primary refuses a candidate that does not.
    pub reason: ElectionReason,
}

/// The answer to `replSetRequestVotes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteResponse {
    /// The voter's term.
    pub term: Term,
    /// Whether a dry run was asked for.
    pub dry_run: bool,
    /// Whether it votes for the candidate.
    pub granted: bool,
    /// Why not.
    pub reason: String,
    /// Where the voter's log ends, if it told: whoever is refused for that can fetch what it lacks.
    #[serde(default)]
    pub last_written: OpTime,
}

/// `replSetUpdatePosition`: what the sender knows of the members' logs, its own and those below it in the sync tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionUpdate {
    /// The sender's term. Whoever receives it adopts the term before it merges a position: an old primary must not count
    /// the entry of somebody who has voted for its successor.
    pub term: Term,
    /// Logs by member, each with the time since it was reported by that member itself.
    pub positions: BTreeMap<MemberId, (Position, Duration)>,
}

/// Everything that one member asks another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Request {
    Heartbeat(HeartbeatRequest),
    RequestVotes(VoteRequest),
    /// Answered by [`Response::UpdatePosition`], which only carries the receiver's term back.
    UpdatePosition(PositionUpdate),
    /// Stand for election now, without a dry run: the primary of `term` has stepped down in your favour. `last_written` is the
    /// end of its log: who has that has nothing to catch up on.
    StepUp {
        term: Term,
        last_written: OpTime,
    },
}

/// The answers to [`Request`]s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Response {
    Heartbeat(HeartbeatResponse),
    RequestVotes(VoteResponse),
    UpdatePosition { term: Term },
    StepUp { term: Term },
}
