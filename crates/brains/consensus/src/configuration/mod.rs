//! The set's configuration: who is a member, with which rights, and the set's timing.
//!
//! A configuration names its members by `_id`, which never changes its owner, and is itself ordered by
//! [`ConfigurationVersion`]. It is not kept in the oplog: the newest one that a majority of its voters has stands
//! ("Design and Analysis of a Logless Dynamic Reconfiguration Protocol", Schultz, Dardik and Tripakis, 2022).
//!
//! Invariants: a [`Configuration`] that [`Configuration::validate`] passed has 1 to 50 members, 1 to 7 voters, distinct `_id`s
//! and hosts, and a member that may become primary. Quorums are counted here and nowhere else.
//! What it deliberately does not do: decide whether a change from one configuration to the next is safe now
//! (`crate::reconfiguration`).

mod bounds;
mod document;
mod fields;
mod host;
mod leadership;
mod priority;
#[cfg(test)]
mod tests;
mod validate;

pub use fields::type_name;
pub use host::{DEFAULT_PORT, HostAndPort};

use baton_types::{Result, Term};
use bson::oid::ObjectId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The most members of a set.
pub const MEMBERS_MAX: usize = 50;
/// The most members of a set that vote.
pub const VOTERS_MAX: usize = 7;
/// The term of a configuration that was forced, or never rewritten by a primary: such a one is compared by version alone.
pub const UNKNOWN_TERM: Term = -1;
/// The highest term that a configuration can carry.
pub const TERM_MAX: Term = (1 << 31) - 1;
/// The highest version.
pub const VERSION_MAX: i64 = (1 << 31) - 1;
/// The term of the configuration that a set is initiated with.
pub const INITIAL_TERM: Term = 1;

/// A member's `_id` in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub i32);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Orders the configurations of one set: by term, then by version; by version alone where either term is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationVersion {
    /// The term of the primary that made it, or [`UNKNOWN_TERM`].
    pub term: Term,
    /// Grows with every change.
    pub version: i64,
}

impl ConfigurationVersion {
    /// Whether this one replaces `other`.
    pub fn is_newer_than(self, other: Self) -> bool {
        if self.term == UNKNOWN_TERM || other.term == UNKNOWN_TERM {
            return self.version > other.version;
        }
        (self.term, self.version) > (other.term, other.version)
    }
}

/// See the file's header. Field names in documents are MongoDB's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// `_id`: the set's name.
    pub set_name: String,
    /// `version` and `term`.
    pub version: ConfigurationVersion,
    /// `members`, in the order of the document.
    pub members: Vec<Member>,
    /// `writeConcernMajorityJournalDefault`: whether a majority counts who has synced, or who has written.
    pub majority_is_durable: bool,
    /// `settings`.
    pub settings: Settings,
}

/// One entry of `members`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// `_id`.
    pub id: MemberId,
    /// `host`: `name:port`, as the other members and the drivers reach it.
    pub host: String,
    /// `arbiterOnly`: votes, and holds no data.
    pub arbiter: bool,
    /// `buildIndexes`.
    pub builds_indexes: bool,
    /// `hidden`: drivers are not told of it.
    pub hidden: bool,
    /// `priority`: 0 never becomes primary; the highest that can becomes it. 0 to 1000.
    pub priority: f64,
    /// `tags`, by name.
    pub tags: BTreeMap<String, String>,
    /// `secondaryDelaySecs`: stays this far behind on purpose.
    pub delay: Duration,
    /// `votes`: whether it votes, and counts towards a majority.
    pub votes: bool,
    /// `newlyAdded`: will vote once it has its data. The primary then removes the mark by a reconfiguration of its own.
    pub newly_added: bool,
}

impl Member {
    /// A member with every field as it is by default. `host` is taken as it is: [`HostAndPort`] gives it its form.
    pub fn new(id: MemberId, host: String) -> Self {
        Self {
            id,
            host,
            arbiter: false,
            builds_indexes: true,
            hidden: false,
            priority: 1.0,
            tags: BTreeMap::new(),
            delay: Duration::ZERO,
            votes: true,
            newly_added: false,
        }
    }

    /// Whether its vote counts now.
    pub fn is_voter(&self) -> bool {
        self.votes && !self.newly_added
    }

    /// Whether it has data.
    pub fn bears_data(&self) -> bool {
        !self.arbiter
    }

    /// Whether it may be elected.
    pub fn is_electable(&self) -> bool {
        self.is_voter() && self.bears_data() && self.priority > 0.0
    }
}

/// `settings` of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `chainingAllowed`: secondaries may fetch from secondaries.
    pub chaining_allowed: bool,
    /// `heartbeatIntervalMillis`.
    pub heartbeat_interval: Duration,
    /// `heartbeatTimeoutSecs`.
    pub heartbeat_timeout: Duration,
    /// `electionTimeoutMillis`: how long a primary may be silent.
    pub election_timeout: Duration,
    /// `catchUpTimeoutMillis`: how long a new primary may go on fetching; absent: as long as there is something to fetch.
    pub catch_up_timeout: Option<Duration>,
    /// `catchUpTakeoverDelayMillis`: after how long a member that is ahead of a primary that is catching up stands for
    /// election itself; absent: never.
    pub catch_up_takeover_delay: Option<Duration>,
    /// `getLastErrorModes`: write concerns by name; each asks for so many different values of each tag.
    pub write_modes: BTreeMap<String, BTreeMap<String, u32>>,
    /// `leadership`: when leadership moves before heavy work, and to whom. Not a field of MongoDB's.
    pub leadership: baton_leadership::Settings,
    /// `priority`: which requests are of which class, and what is done for that. Not a field of MongoDB's.
    pub priority: baton_admission::Settings,
    /// `replicaSetId`: drawn when the set was initiated.
    pub set_id: Option<ObjectId>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chaining_allowed: true,
            heartbeat_interval: Duration::from_secs(2),
            heartbeat_timeout: Duration::from_secs(10),
            election_timeout: Duration::from_secs(10),
            catch_up_timeout: None,
            catch_up_takeover_delay: Some(Duration::from_secs(30)),
            write_modes: BTreeMap::new(),
            leadership: baton_leadership::Settings::default(),
            priority: baton_admission::Settings::default(),
            set_id: None,
        }
    }
}

impl Configuration {
    /// The first configuration of a set with one member, `_id` 0, at `host` (by default port 27017): `FailedToParse` (9) if
    /// that is no host, `BadValue` (2) without a name.
    pub fn initial(set_name: &str, host: &str, set_id: ObjectId) -> Result<Self> {
        let configuration = Self {
            set_name: set_name.into(),
            version: ConfigurationVersion { term: INITIAL_TERM, version: 1 },
            members: vec![Member::new(MemberId(0), HostAndPort::parse(host)?.to_string())],
            majority_is_durable: true,
            settings: Settings { set_id: Some(set_id), ..Settings::default() },
        };
        configuration.validate()?;
        Ok(configuration)
    }

    /// The member with this `_id`.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        // Where members are numbered from zero on, as they are in most sets, it is there.
        let there = usize::try_from(id.0).ok().and_then(|place| self.members.get(place));
        there.filter(|member| member.id == id).or_else(|| self.members.iter().find(|member| member.id == id))
    }

    /// The member with this `host`.
    pub fn member_at(&self, host: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.host == host)
    }

    /// Those whose votes count.
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_voter())
    }

    /// How many votes elect a primary.
    pub fn majority_of_votes(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// How many voters with data must have an entry for it to be committed. Where arbiters leave fewer such voters than a
    /// majority has, all of them must: whoever is elected is one of them.
    pub fn majority_of_writes(&self) -> usize {
        self.majority_of_votes().min(self.voters().filter(|member| member.bears_data()).count())
    }

    /// Whether those who commit in this configuration meet every majority of votes of the other, whoever they are. Of two
    /// configurations that differ in one voter this fails only where arbiters leave few members with data.
    pub fn writes_meet_votes_of(&self, other: &Self) -> bool {
        let voters: BTreeSet<MemberId> = self.voters().chain(other.voters()).map(|member| member.id).collect();
        self.majority_of_writes() + other.majority_of_votes() > voters.len()
    }

    /// The place of a member when those that may be elected are put in order of falling priority; equal ones share one.
    /// Members of lower rank number stand for election sooner.
    pub fn priority_rank(&self, id: MemberId) -> usize {
        let priority = self.member(id).map_or(0.0, |member| member.priority);
        self.members.iter().filter(|other| other.priority > priority).count()
    }
}
