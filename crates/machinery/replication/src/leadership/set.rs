//! What the brain is told of the set: the configuration, this member's role, and how well the others follow.

use baton_consensus::{self as consensus, Configuration, MemberState};
use baton_leadership::{Follower, Member, MemberId, Role, Set};
use std::collections::BTreeMap;
use std::time::Duration;

/// The configuration, if it has this member.
pub(crate) fn set_of(configuration: &Configuration, me: Option<consensus::MemberId>) -> Option<Set> {
    let timing = &configuration.settings;
    let members = configuration.members.iter().map(|member| Member {
        id: member.id.0,
        priority: member.priority,
        is_voter: member.is_voter(),
        is_arbiter: member.arbiter,
    });
    Some(Set {
        me: me?.0,
        members: members.collect(),
        // As consensus sends them.
        heartbeat_interval: timing.heartbeat_interval.min(timing.election_timeout / 4),
        election_timeout: timing.election_timeout,
        settings: timing.leadership.clone(),
    })
}

/// The role that a state of consensus is. Who hands over is primary until it has resigned, though it blocks writes.
pub(crate) fn role_of(state: MemberState, handed_by: Option<MemberId>) -> Role {
    match state {
        MemberState::Primary => Role::Primary { handed_by },
        MemberState::Secondary => Role::Secondary,
        MemberState::Startup
        | MemberState::Recovering
        | MemberState::Startup2
        | MemberState::Unknown
        | MemberState::Arbiter
        | MemberState::Down
        | MemberState::Rollback
        | MemberState::Removed => Role::Other,
    }
}

/// How well the others follow, from whether they could succeed this member.
pub(crate) fn followers_of(candidates: impl Iterator<Item = consensus::Candidate>) -> BTreeMap<MemberId, Follower> {
    let follower = |candidate: consensus::Candidate| {
        let (is_reachable, is_secondary) = match candidate.obstacle {
            Some(consensus::Obstacle::Unreachable) => (false, false),
            Some(consensus::Obstacle::NotSecondary(_)) => (true, false),
            // What the configuration keeps from it the brain knows itself.
            Some(consensus::Obstacle::Arbiter | consensus::Obstacle::NoPriority | consensus::Obstacle::NoVote)
            | None => (true, true),
        };
        let lag = Duration::from_secs(candidate.lag_secs.into());
        (candidate.member.0, Follower { is_reachable, is_secondary, lag })
    };
    candidates.map(follower).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::OpTime;
    use bson::oid::ObjectId;

    #[test]
    fn what_consensus_knows_of_the_others_is_whether_they_are_there_and_how_far_behind() {
        let candidate = |id, obstacle| consensus::Candidate {
            member: consensus::MemberId(id),
            priority: 1.0,
            written: OpTime::ZERO,
            lag_secs: 3,
            is_level: false,
            obstacle,
        };
        let candidates = [
            candidate(1, None),
            candidate(2, Some(consensus::Obstacle::Unreachable)),
            candidate(3, Some(consensus::Obstacle::NotSecondary(MemberState::Rollback))),
            candidate(4, Some(consensus::Obstacle::NoPriority)),
        ];
        let followers = followers_of(candidates.into_iter());
        let shown = |id| (followers[&id].is_reachable, followers[&id].is_secondary);
        assert_eq!([1, 2, 3, 4].map(shown), [(true, true), (false, false), (true, false), (true, true)]);
        assert_eq!(followers[&1].lag, Duration::from_secs(3));
    }

    #[test]
    fn gossip_grows_old_as_fast_as_heartbeats_come_and_a_member_of_no_set_has_none() {
        let mut configuration = Configuration::initial("rs0", "a", ObjectId::from_bytes([1; 12])).unwrap();
        configuration.settings.election_timeout = Duration::from_secs(2);
        let set = set_of(&configuration, Some(consensus::MemberId(0))).unwrap();
        assert_eq!(set.heartbeat_interval, Duration::from_millis(500), "a quarter of the election timeout");
        assert!(set.am_voter());
        assert_eq!(set_of(&configuration, None), None);
    }
}
