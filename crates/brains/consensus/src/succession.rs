//! Who would follow a primary that hands over: every other member, best first, and what keeps those from it that cannot.
//!
//! Of those that nothing keeps from it, the one of the highest priority comes first, then the one with the later log, then the
//! lower `_id`. The same ranking decides a step-down and explains it.
//!
//! What it deliberately does not do: wait for anybody to catch up (`crate::leadership`).

use crate::configuration::{Member, MemberId};
use crate::consensus::Consensus;
use crate::message::MemberState;
use baton_types::OpTime;
use std::cmp::Ordering;
use std::fmt;

/// A member's place in the ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Who.
    pub member: MemberId,
    /// Its priority.
    pub priority: f64,
    /// The end of its log.
    pub written: OpTime,
    /// How far that is behind this member's: seconds of the log's time.
    pub lag_secs: u32,
    /// Whether it has every entry.
    pub is_level: bool,
    /// What keeps it from being elected, whatever its log.
    pub obstacle: Option<Obstacle>,
}

/// Why a member cannot be elected now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It holds no data.
    Arbiter,
    /// Its priority is 0.
    NoPriority,
    /// It has no vote, or not yet.
    NoVote,
    /// It gives no sign of life, or cannot be reached from here.
    Unreachable,
    /// It is doing something else than following.
    NotSecondary(MemberState),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arbiter => f.write_str("it is an arbiter"),
            Self::NoPriority => f.write_str("its priority is 0"),
            Self::NoVote => f.write_str("it has no vote"),
            Self::Unreachable => f.write_str("it cannot be reached"),
            Self::NotSecondary(state) => write!(f, "it is {}", state.name()),
        }
    }
}

impl Candidate {
    /// The better one is the lesser.
    fn order(&self, other: &Self) -> Ordering {
        self.obstacle
            .is_some()
            .cmp(&other.obstacle.is_some())
            .then(other.priority.total_cmp(&self.priority))
            .then(other.written.cmp(&self.written))
            .then(self.member.cmp(&other.member))
    }
}

impl Consensus {
    /// Whether this member may throw its copy away to make another: every other voter with data can be read from and has more on its
    /// disk than this member has. Two that have the same trouble keep what they have, so that the set never has fewer copies for it than one less.
    pub(crate) fn can_spare_my_copy(&self) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let timeout = self.election_timeout();
        let mut others =
            configuration.voters().filter(|other| other.bears_data() && Some(other.id) != self.me).peekable();
        others.peek().is_some()
            && others.all(|other| {
                self.peers.get(&other.id).is_some_and(|peer| {
                    peer.is_alive(self.now, timeout)
                        && peer.state().is_readable()
                        && peer.position.durable > self.position.written
                })
            })
    }

    /// See the file's header.
    pub fn succession(&self) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = self.candidates().collect();
        candidates.sort_by(Candidate::order);
        candidates
    }

    /// The same members as the configuration has them, unranked.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let members = self.configuration.as_ref().map_or(&[][..], |configuration| &configuration.members);
        members.iter().filter(|member| Some(member.id) != self.me).map(|member| self.candidate(member))
    }

    fn candidate(&self, member: &Member) -> Candidate {
        let mine = self.position.written;
        let peer = self.peers.get(&member.id);
        let written = peer.map_or(OpTime::ZERO, |peer| peer.position.written);
        let is_reached = peer.is_some_and(|peer| peer.is_alive(self.now, self.election_timeout()) && !peer.unreachable);
        let state = peer.map_or(MemberState::Unknown, |peer| peer.state());
        let obstacle = if member.arbiter {
            Some(Obstacle::Arbiter)
        } else if member.priority <= 0.0 {
            Some(Obstacle::NoPriority)
        } else if !member.is_voter() {
            Some(Obstacle::NoVote)
        } else if !is_reached {
            Some(Obstacle::Unreachable)
        } else if state != MemberState::Secondary {
            Some(Obstacle::NotSecondary(state))
        } else {
            None
        };
        Candidate {
            member: member.id,
            priority: member.priority,
            written,
            lag_secs: mine.timestamp.seconds.saturating_sub(written.timestamp.seconds),
            is_level: written >= mine,
            obstacle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::Timestamp;

    fn candidate(id: i32, priority: f64, seconds: u32, obstacle: Option<Obstacle>) -> Candidate {
        let written = OpTime { term: 1, timestamp: Timestamp { seconds, increment: 1 } };
        Candidate { member: MemberId(id), priority, written, lag_secs: 0, is_level: false, obstacle }
    }

    #[test]
    fn priority_goes_before_the_log_and_whoever_cannot_goes_last() {
        let mut candidates = [
            candidate(1, 9.0, 9, Some(Obstacle::Unreachable)),
            candidate(2, 1.0, 9, None),
            candidate(3, 2.0, 5, None),
            candidate(5, 2.0, 6, None),
            candidate(4, 2.0, 6, None),
        ];
        candidates.sort_by(Candidate::order);
        assert_eq!(candidates.map(|candidate| candidate.member.0), [4, 5, 3, 2, 1]);
    }
}
