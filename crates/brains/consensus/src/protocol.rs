//! Which members can work together: those that speak the same version of what members say to each other and write into their logs.
//!
//! Every heartbeat, asked or answered, names its sender's version. A member of another version is told so
//! (`IncompatibleServerVersion`, 188), and counts as one that is down: nothing it says is believed, its term least; it is not
//! fetched from, and gets no vote. So a set whose members are replaced one by one goes on with those of either version that have a
//! majority.
//!
//! Not here: versions of drivers (`hello`'s wire versions), and of the data directory, which `baton_storage` checks.

use crate::configuration::MemberId;
use crate::consensus::Consensus;
use crate::step::Effect;
use baton_types::{Error, ErrorCode};

/// This Baton's version. It rises with whatever a member of before would take for something else: an entry of the log, a vote.
///
/// | version | since when |
/// |---|---|
/// | 1 | the beginning; heartbeats do not name it |
/// | 2 | index builds in two phases: `startIndexBuild`, `commitIndexBuild` and `abortIndexBuild` in the log, `voteCommitIndexBuild`; what capped collections let go of is in the log |
pub const PROTOCOL_VERSION: u32 = 2;
/// The version of a member that does not say.
pub const UNSTATED_PROTOCOL_VERSION: u32 = 1;

impl Consensus {
    /// Why this member has nothing to do with one of that version, if so.
    pub(crate) fn incompatibility(&self, theirs: u32) -> Option<Error> {
        let ours = self.protocol_version;
        (ours != theirs).then(|| {
            let message = format!(
                "members speak different versions of the protocol between members, ours: {ours}; remote node's: {theirs}. Run the \
                 same version of Baton on all members"
            );
            Error::new(ErrorCode::IncompatibleServerVersion, message)
        })
    }

    /// From now on this member counts as down, until it is heard in our version.
    pub(crate) fn refuse_peer(&mut self, id: MemberId, error: &Error) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.refusal.as_ref() != Some(&error.message) {
            peer.refusal = Some(error.message.clone());
            self.effects.push(Effect::RefusedMember { member: id, reason: error.message.clone() });
        }
        if self.primary == Some(id) {
            self.lose_primary();
        }
    }

    /// Whether this member has nothing to do with that one.
    pub(crate) fn refuses(&self, id: MemberId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.refusal.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Configuration, Member};
    use crate::message::{
        ElectionReason, Gossip, HeartbeatRequest, HeartbeatResponse, MemberState, Position, Request, Response,
        VoteRequest,
    };
    use crate::step::{DataState, Input, LastVote, Moment};
    use crate::{ConfigurationVersion, Start};
    use baton_types::{OpTime, Term, Timestamp};
    use bson::oid::ObjectId;
    use std::time::Duration;

    const OTHER: MemberId = MemberId(1);

    fn end_of_log() -> Position {
        let entry = OpTime { term: 1, timestamp: Timestamp { seconds: 5, increment: 1 } };
        Position { written: entry, applied: entry, durable: entry }
    }

    fn member() -> Consensus {
        let mut configuration = Configuration::initial("rs0", "a:100", ObjectId::from_bytes([1; 12])).unwrap();
        configuration.members = (0..3).map(|id| Member::new(MemberId(id), format!("a:10{id}"))).collect();
        let start = Start {
            host: "a:100".into(),
            set_name: "rs0".into(),
            protocol_version: PROTOCOL_VERSION,
            configuration: Some(configuration),
            vote: LastVote::default(),
            position: end_of_log(),
            commit_point: OpTime::ZERO,
            data: DataState::Ready,
            given_up: OpTime::ZERO,
            seed: 1,
        };
        Consensus::new(Duration::ZERO, start)
    }

    fn gossip(consensus: &Consensus, term: Term, protocol_version: u32) -> Gossip {
        Gossip {
            term,
            protocol_version,
            primary: Some(OTHER),
            state: MemberState::Primary,
            position: Position { written: OpTime { term, ..end_of_log().written }, ..end_of_log() },
            commit_point: OpTime::ZERO,
            sync_source: None,
            configuration_version: consensus
                .configuration
                .as_ref()
                .map_or(ConfigurationVersion { term: 1, version: 1 }, |it| it.version),
            leadership: None,
        }
    }

    fn asked(consensus: &mut Consensus, at_secs: u64, version: u32) -> Vec<Effect> {
        let configuration = consensus.configuration.clone().unwrap();
        let heartbeat = HeartbeatRequest {
            set_name: configuration.set_name,
            set_id: configuration.settings.set_id,
            from: Some(OTHER),
            from_host: "a:101".into(),
            gossip: gossip(consensus, 4, version),
        };
        step(consensus, at_secs, Input::Request { id: 1, request: Request::Heartbeat(heartbeat) })
    }

    fn step(consensus: &mut Consensus, at_secs: u64, input: Input) -> Vec<Effect> {
        consensus.step(Moment::from_secs(at_secs), input)
    }

    fn refused(effects: &[Effect]) -> usize {
        effects.iter().filter(|effect| matches!(effect, Effect::RefusedMember { member: OTHER, .. })).count()
    }

    fn check_is_down(consensus: &Consensus, whether: bool) {
        let peer = &consensus.view().peers[&OTHER];
        assert_eq!(peer.refusal.is_some(), whether);
        assert_eq!(matches!(peer.state, MemberState::Down | MemberState::Unknown), whether);
        assert_eq!(consensus.primary.is_none() && consensus.sync_source.is_none(), whether);
    }

    #[test]
    fn a_member_that_asks_in_another_version_is_told_so_and_not_believed() {
        for version in [UNSTATED_PROTOCOL_VERSION, PROTOCOL_VERSION + 1] {
            let mut consensus = member();
            let effects = asked(&mut consensus, 1, version);
            let answered = effects.iter().find_map(|effect| match effect {
                Effect::Respond { response: Err(error), .. } => Some(error),
                _ => None,
            });
            assert_eq!(answered.unwrap().code, ErrorCode::IncompatibleServerVersion);
            assert_eq!(refused(&effects), 1);
            assert_ne!(consensus.term, 4, "its term is not believed");
            check_is_down(&consensus, true);
            assert_eq!(refused(&asked(&mut consensus, 2, version)), 0, "said once");
            // Replaced by one of our version it is a member as any other.
            asked(&mut consensus, 3, PROTOCOL_VERSION);
            check_is_down(&consensus, false);
            assert_eq!(consensus.term, 4);
            // And back.
            assert_eq!(refused(&asked(&mut consensus, 4, version)), 1);
            check_is_down(&consensus, true);
        }
    }

    #[test]
    fn a_member_that_answers_in_another_version_is_not_believed_and_gets_no_vote() {
        let mut consensus = member();
        let response = |consensus: &Consensus, version| {
            Response::Heartbeat(HeartbeatResponse { gossip: gossip(consensus, 4, version), configuration: None })
        };
        let answer = response(&consensus, UNSTATED_PROTOCOL_VERSION);
        let effects =
            step(&mut consensus, 1, Input::Response { from: OTHER, response: answer, round_trip: Duration::ZERO });
        assert_eq!(refused(&effects), 1);
        // It is asked again, so that its successor is noticed.
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Send { to: OTHER, .. })), "{effects:?}");
        assert_ne!(consensus.term, 4);
        check_is_down(&consensus, true);
        let configuration = consensus.configuration.clone().unwrap();
        let votes = VoteRequest {
            set_id: configuration.settings.set_id,
            set_name: configuration.set_name,
            dry_run: false,
            term: 5,
            candidate: OTHER,
            last_written: end_of_log().written,
            configuration_version: configuration.version,
            reason: ElectionReason::StepUpRequest,
        };
        let effects = step(&mut consensus, 2, Input::Request { id: 2, request: Request::RequestVotes(votes) });
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::PersistVote(_))), "{effects:?}");
        assert_ne!(consensus.term, 5);
        // Replaced by one of our version it is a member as any other.
        let answer = response(&consensus, PROTOCOL_VERSION);
        step(&mut consensus, 9, Input::Response { from: OTHER, response: answer, round_trip: Duration::ZERO });
        check_is_down(&consensus, false);
    }
}
