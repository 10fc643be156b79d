//! What no honest member can have said, and is not believed: terms that no number of elections can have reached.
//!
//! A term is raised by one with each election, and everybody adopts the highest it hears of. So a single message with a term near
//! the end of the range would leave the set without a primary for good. Two bounds keep that from happening:
//!
//! - [`TERM_MAX`], the highest that a configuration can carry. Nobody stands for election beyond it, so a term is never counted past
//!   its type.
//! - A member's own ceiling: the term it began with (its disk's, and that of the first configuration it got), [`HEADROOM`] above
//!   that for what it may have missed while it was away, which is an election a minute for two years; and [`TERMS_PER_SEC`] for as
//!   long as it runs, more than a vote on a disk allows. What somebody without a part in the set can do within it wears off nothing:
//!   thousands of processes would have to be started before the range is used up.
//!
//! Invariant: no term above the ceiling is adopted, and of a message that has one nothing is.
//!
//! Not here: timestamps, which only a clock can judge (`baton-commands` does before it hands a request on).

use crate::configuration::ConfigurationVersion;
use crate::consensus::Consensus;
use crate::message::{Gossip, Request, Response};
use baton_types::{Error, ErrorCode, OpTime, Term};

/// The highest term there is.
pub const TERM_MAX: Term = crate::configuration::TERM_MAX;
/// How far a term may be ahead of the one that a member began with.
const HEADROOM: Term = 1_000_000;
/// And how much farther for each second since.
const TERMS_PER_SEC: Term = 100;

impl Request {
    /// The positions of logs that it speaks of.
    pub fn optimes(&self) -> Vec<OpTime> {
        match self {
            Self::Heartbeat(heartbeat) => optimes_of(&heartbeat.gossip).to_vec(),
            Self::RequestVotes(votes) => vec![votes.last_written],
            Self::UpdatePosition(update) => update
                .positions
                .values()
                .flat_map(|(position, _)| [position.written, position.applied, position.durable])
                .collect(),
            Self::StepUp { last_written, .. } => vec![*last_written],
        }
    }

    /// The highest term in it.
    fn highest_term(&self) -> Term {
        let of_sender = match self {
            Self::Heartbeat(heartbeat) => return highest_term_of(&heartbeat.gossip),
            Self::RequestVotes(votes) => with_version(votes.term, votes.configuration_version),
            Self::UpdatePosition(update) => update.term,
            Self::StepUp { term, .. } => *term,
        };
        self.optimes().iter().map(|optime| optime.term).fold(of_sender, Term::max)
    }
}

impl Response {
    /// The highest term in it.
    fn highest_term(&self) -> Term {
        match self {
            Self::Heartbeat(heartbeat) => {
                let own = highest_term_of(&heartbeat.gossip);
                heartbeat.configuration.as_ref().map_or(own, |sent| with_version(own, sent.version))
            }
            Self::RequestVotes(vote) => vote.term.max(vote.last_written.term),
            Self::UpdatePosition { term } | Self::StepUp { term } => *term,
        }
    }
}

fn highest_term_of(gossip: &Gossip) -> Term {
    let of_sender = with_version(gossip.term, gossip.configuration_version);
    optimes_of(gossip).iter().map(|optime| optime.term).fold(of_sender, Term::max)
}

fn with_version(term: Term, version: ConfigurationVersion) -> Term {
    term.max(version.term)
}

fn optimes_of(gossip: &Gossip) -> [OpTime; 4] {
    [gossip.position.written, gossip.position.applied, gossip.position.durable, gossip.commit_point]
}

impl Consensus {
    /// The highest term that is believed now.
    fn term_ceiling(&self) -> Term {
        // Nobody can know what a set has been through that this member is only about to join.
        if self.configuration.is_none() {
            return TERM_MAX;
        }
        let secs = Term::try_from(self.now.saturating_sub(self.began_at).as_secs()).unwrap_or(Term::MAX);
        let by_time = secs.saturating_mul(TERMS_PER_SEC);
        self.first_term.saturating_add(HEADROOM).saturating_add(by_time).min(TERM_MAX)
    }

    /// Whether a term can have come about.
    pub(crate) fn is_plausible(&self, term: Term) -> bool {
        term <= self.term_ceiling().max(self.term)
    }

    /// Why a request is not believed, if it is not.
    pub(crate) fn disbelief(&self, request: &Request) -> Option<Error> {
        let term = request.highest_term();
        (!self.is_plausible(term)).then(|| {
            let message = format!(
                "term {term} is further ahead of this member's ({}) than elections can have brought it; nothing of the message is taken",
                self.term
            );
            Error::new(ErrorCode::BadValue, message)
        })
    }

    /// Whether an answer can be believed.
    pub(crate) fn believes(&self, response: &Response) -> bool {
        self.is_plausible(response.highest_term())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Configuration, Member, MemberId};
    use crate::consensus::Start;
    use crate::message::{ElectionReason, HeartbeatRequest, MemberState, Position, PositionUpdate, VoteRequest};
    use crate::step::{DataState, Effect, Input, LastVote};
    use baton_types::Timestamp;
    use bson::oid::ObjectId;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const BEGINNING: Term = 3;

    fn optime(term: Term) -> OpTime {
        OpTime { term, timestamp: Timestamp { seconds: 5, increment: 1 } }
    }

    fn position(term: Term) -> Position {
        Position { written: optime(term), applied: optime(term), durable: optime(term) }
    }

    /// Member 2 of a set of three, in term 3.
    fn member() -> Consensus {
        let mut configuration = Configuration::initial("rs0", "a:100", ObjectId::from_bytes([1; 12])).unwrap();
        configuration.members = (0..3).map(|id| Member::new(MemberId(id), format!("a:10{id}"))).collect();
        let start = Start {
            protocol_version: crate::PROTOCOL_VERSION,
            host: "a:102".into(),
            set_name: "rs0".into(),
            configuration: Some(configuration),
            vote: LastVote { term: BEGINNING, candidate: None },
            position: position(1),
            commit_point: optime(1),
            data: DataState::Ready,
            given_up: OpTime::ZERO,
            seed: 1,
        };
        Consensus::new(Duration::ZERO, start)
    }

    fn gossip(term: Term) -> Gossip {
        Gossip {
            protocol_version: crate::PROTOCOL_VERSION,
            term,
            primary: None,
            state: MemberState::Secondary,
            position: position(1),
            commit_point: optime(1),
            sync_source: None,
            configuration_version: ConfigurationVersion { term: 1, version: 1 },
            leadership: None,
        }
    }

    fn heartbeat(gossip: Gossip) -> Request {
        Request::Heartbeat(HeartbeatRequest {
            set_name: "rs0".into(),
            set_id: None,
            from: Some(MemberId(1)),
            from_host: "a:101".into(),
            gossip,
        })
    }

    fn vote(term: Term, last_written: OpTime, configuration_term: Term) -> Request {
        Request::RequestVotes(VoteRequest {
            set_name: "rs0".into(),
            set_id: None,
            dry_run: false,
            term,
            candidate: MemberId(1),
            last_written,
            configuration_version: ConfigurationVersion { term: configuration_term, version: 1 },
            reason: ElectionReason::ElectionTimeout,
        })
    }

    /// What the request was answered with, and what else came of it.
    fn ask(member: &mut Consensus, request: Request) -> (Result<Response, Error>, Vec<Effect>) {
        let mut effects = member.step(Duration::from_secs(1), Input::Request { id: 1, request });
        let place = effects.iter().position(|effect| matches!(effect, Effect::Respond { .. })).expect("an answer");
        let Effect::Respond { response, .. } = effects.remove(place) else { unreachable!("looked for") };
        (response, effects)
    }

    /// Fails if a term near the end of its range, wherever a message has it, is adopted, overflows, or changes anything.
    #[test]
    fn a_term_that_nobody_can_have_reached_is_refused_wherever_it_stands() {
        for term in [Term::MAX, Term::MAX - 1, TERM_MAX, BEGINNING + HEADROOM + 2 * TERMS_PER_SEC] {
            let ahead = Gossip { position: position(term), ..gossip(BEGINNING) };
            let committed = Gossip { commit_point: optime(term), ..gossip(BEGINNING) };
            let configured = ConfigurationVersion { term, version: 1 };
            let requests = [
                heartbeat(gossip(term)),
                heartbeat(ahead),
                heartbeat(committed),
                heartbeat(Gossip { configuration_version: configured, ..gossip(BEGINNING) }),
                vote(term, optime(1), 1),
                vote(BEGINNING + 1, optime(term), 1),
                vote(BEGINNING + 1, optime(1), term),
                Request::UpdatePosition(PositionUpdate { term, positions: BTreeMap::new() }),
                Request::UpdatePosition(PositionUpdate {
                    term: BEGINNING,
                    positions: [(MemberId(1), (position(term), Duration::ZERO))].into(),
                }),
                Request::StepUp { term, last_written: optime(1) },
                Request::StepUp { term: BEGINNING, last_written: optime(term) },
            ];
            for request in requests {
                let mut member = member();
                let (answer, effects) = ask(&mut member, request.clone());
                assert_eq!(answer.expect_err("refused").code, ErrorCode::BadValue, "{request:?}");
                assert_eq!(member.term(), BEGINNING, "{request:?}");
                let changes = |effect: &&Effect| !matches!(effect, Effect::Send { .. });
                assert_eq!(effects.iter().filter(changes).count(), 0, "{request:?}");
            }
        }
    }

    #[test]
    fn what_elections_can_have_brought_is_adopted_and_what_came_with_time_too() {
        let mut one = member();
        ask(&mut one, heartbeat(gossip(BEGINNING + HEADROOM))).0.expect("believed");
        assert_eq!(one.term(), BEGINNING + HEADROOM);
        let mut later = member();
        let term = BEGINNING + HEADROOM + 3600 * TERMS_PER_SEC;
        let request = heartbeat(gossip(term));
        let effects = later.step(Duration::from_secs(3600), Input::Request { id: 1, request });
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Respond { response: Ok(_), .. })));
        assert_eq!(later.term(), term);
    }

    /// Fails if the wait for the answer goes on: the member would never be asked again.
    #[test]
    fn an_answer_with_such_a_term_counts_as_none() {
        let mut member = member();
        member.step(Duration::from_secs(1), Input::Tick);
        let response =
            Response::Heartbeat(crate::message::HeartbeatResponse { gossip: gossip(Term::MAX), configuration: None });
        let from = MemberId(1);
        member.step(Duration::from_secs(1), Input::Response { from, response, round_trip: Duration::ZERO });
        assert_eq!(member.term(), BEGINNING);
        let asked_again = (2..20).any(|second| {
            let effects = member.step(Duration::from_secs(second), Input::Tick);
            effects.iter().any(|effect| matches!(effect, Effect::Send { to, .. } if *to == from))
        });
        assert!(asked_again);
    }

    /// Whatever is on the disk: there is no term to stand in beyond the last.
    #[test]
    fn nobody_stands_beyond_the_last_term() {
        let mut last = member();
        last.term = TERM_MAX;
        let effects: Vec<Effect> =
            (2..60).flat_map(|second| last.step(Duration::from_secs(second), Input::Tick)).collect();
        assert!(effects.iter().all(|effect| !matches!(effect, Effect::PersistVote(_) | Effect::TermAdopted(_))));
        assert_eq!(last.term(), TERM_MAX);
    }

    /// Fails if a member that refuses what another refuses too would throw its copy away.
    #[test]
    fn a_copy_is_spared_only_where_all_others_can_be_read_from_and_have_more_on_disk() {
        let tell = |one: &mut Consensus, from: i32, state: MemberState, durable: u32| {
            let at = |seconds| OpTime { term: 1, timestamp: Timestamp { seconds, increment: 1 } };
            let position = Position { written: at(9), applied: at(9), durable: at(durable) };
            let gossip = Gossip { state, position, ..gossip(BEGINNING) };
            let response = Response::Heartbeat(crate::message::HeartbeatResponse { gossip, configuration: None });
            let round_trip = Duration::ZERO;
            one.step(Duration::from_secs(1), Input::Response { from: MemberId(from), response, round_trip });
        };
        let spared = |of: (MemberState, u32)| {
            let mut one = member();
            tell(&mut one, 0, MemberState::Primary, 9);
            tell(&mut one, 1, of.0, of.1);
            one.view().can_spare_my_copy
        };
        assert!(spared((MemberState::Secondary, 9)));
        assert!(
            !spared((MemberState::Secondary, 5)),
            "it may be about to refuse the same, or lose what it has beyond that"
        );
        assert!(!spared((MemberState::Recovering, 9)));
        assert!(!member().view().can_spare_my_copy, "nobody was heard of");
    }
}
