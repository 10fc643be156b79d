//! The set as this machine sees it: who is a member with which rights, and the settings.

use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A member's `_id` in the configuration.
pub type MemberId = i32;

/// One member's rights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Who.
    pub id: MemberId,
    /// `priority`: 0 never becomes primary.
    pub priority: f64,
    /// Whether its vote counts now.
    pub is_voter: bool,
    /// Whether it holds no data.
    pub is_arbiter: bool,
}

impl Member {
    /// One with a vote, data and priority 1.
    pub fn new(id: MemberId) -> Self {
        Self { id, priority: 1.0, is_voter: true, is_arbiter: false }
    }

    /// Whether it may be elected.
    pub fn is_electable(&self) -> bool {
        self.is_voter && !self.is_arbiter && self.priority > 0.0
    }
}

/// The configuration, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Set {
    /// This member.
    pub me: MemberId,
    /// Every member, this one too.
    pub members: Vec<Member>,
    /// `heartbeatIntervalMillis`: gossip older than two of these is old.
    pub heartbeat_interval: Duration,
    /// `electionTimeoutMillis`: who is silent for so long is gone.
    pub election_timeout: Duration,
    /// `settings.leadership`.
    pub settings: Settings,
}

impl Set {
    /// A set of these members with the default timing and settings.
    pub fn new(me: MemberId, members: Vec<Member>) -> Self {
        let (heartbeat_interval, election_timeout) = (Duration::from_secs(2), Duration::from_secs(10));
        Self { me, members, heartbeat_interval, election_timeout, settings: Settings::default() }
    }

    /// The member of this `_id`.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Every member but this one.
    pub fn others(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.id != self.me)
    }

    /// Whether this member's vote counts.
    pub fn am_voter(&self) -> bool {
        self.member(self.me).is_some_and(|member| member.is_voter)
    }

    /// How many voters may be in heavy tasks at once: so many that a majority is left. One, where even that is none: in a set of
    /// one or two voters tasks could not run otherwise.
    pub fn slots(&self) -> usize {
        let voters = self.members.iter().filter(|member| member.is_voter).count();
        let majority = voters / 2 + 1;
        voters.saturating_sub(majority).max(1)
    }

    /// The age from which gossip is old.
    pub fn gossip_age_max(&self) -> Duration {
        2 * self.heartbeat_interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_may_be_busy_as_leave_a_majority_and_one_at_least() {
        let slots = [1, 2, 3, 4, 5, 6, 7].map(|voters| Set::new(0, (0..voters).map(Member::new).collect()).slots());
        assert_eq!(slots, [1, 1, 1, 1, 2, 2, 3]);
        let mut set = Set::new(0, (0..5).map(Member::new).collect());
        set.members[3].is_voter = false;
        set.members[4].is_voter = false;
        assert_eq!(set.slots(), 1, "who has no vote is not counted");
    }
}
