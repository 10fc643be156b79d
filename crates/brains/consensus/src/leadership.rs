//! From winning an election to resigning.
//!
//! ```text
//!   won ──▶ catching up ──▶ beginning ──▶ writable ──▶ (writes blocked) ──▶ resigned
//! ```
//!
//! A new primary first fetches what others have and it has not, so that few unreplicated writes are lost with the old primary
//! (paper, section 4.3): only entries of terms below its own, and only until its term's first entry. It resigns when it
//! learns of a higher term, when no majority gives a sign of life for the election timeout, when a configuration forbids it,
//! and when asked to. Asked, it hands over: it waits for a member that is nearly level, blocks writes, waits until that
//! member has every entry and a majority has them too, resigns, and tells it to stand at once.
//!
//! Invariants:
//! - Writes are taken only from the term's first entry on, and never again after the primary resigned in that term.
//! - Writes are blocked for a bounded time only; a step-down that is given up takes writes again.

use crate::configuration::{Member, MemberId};
use crate::consensus::{Consensus, Role};
use crate::message::Request;
use crate::step::{DataState, Effect, Moment, ResignReason, StepDownRequest};
use baton_types::{Error, ErrorCode, OpTime, Term};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a new primary waits for the positions of members that seemed alive.
const POSITIONS_WAIT: Duration = Duration::from_secs(1);
/// How long writes stay blocked for one attempt to hand over.
const BLOCKED_MAX: Duration = Duration::from_millis(500);
/// How long writes flow again after a failed attempt.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(500);
/// A member this close behind is worth blocking writes for: seconds of the log's time.
const HANDOVER_LAG_SECS_MAX: u32 = 1;

/// The primary's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Leadership {
    won_at: Moment,
    phase: Phase,
    /// The configuration on disk carries this term, or one that an operator forced has taken its place.
    pub has_stamped: bool,
    pub step_down: Option<StepDown>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Fetching, until this moment at the latest.
    CatchingUp {
        until: Option<Moment>,
    },
    /// The term's first entry is being written.
    Beginning,
    Writable,
}

/// A step-down that somebody waits for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StepDown {
    request: StepDownRequest,
    deadline: Moment,
    blocked: Blocked,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Blocked {
    /// Writes flow; not to be blocked before this moment.
    No { not_before: Moment },
    /// No new write begins; those in progress may still end.
    Blocking { since: Moment },
    /// The log does not grow.
    Yes { since: Moment },
}

impl Leadership {
    pub fn new(now: Moment, catch_up_until: Option<Moment>) -> Self {
        Self { won_at: now, phase: Phase::CatchingUp { until: catch_up_until }, has_stamped: false, step_down: None }
    }

    pub fn takes_writes(&self) -> bool {
        let blocked = self.step_down.as_ref().is_some_and(|s| !matches!(s.blocked, Blocked::No { .. }));
        self.phase == Phase::Writable && !blocked
    }

    pub fn has_begun(&self) -> bool {
        self.phase == Phase::Writable
    }

    /// Whether the term's first entry is there, or on its way.
    pub fn has_begun_term(&self) -> bool {
        !self.is_catching_up()
    }

    pub fn is_catching_up(&self) -> bool {
        matches!(self.phase, Phase::CatchingUp { .. })
    }
}

impl Consensus {
    pub(crate) fn catch_up_deadline(&self) -> Option<Moment> {
        let timeout = self.configuration.as_ref()?.settings.catch_up_timeout?;
        Some(self.now + timeout)
    }

    pub(crate) fn leadership_deadline(&self) -> Option<Moment> {
        let Role::Leader(leadership) = &self.role else { return None };
        let phase = match leadership.phase {
            Phase::CatchingUp { until } => {
                let positions = leadership.won_at + POSITIONS_WAIT;
                let waits = (positions > self.now).then_some(positions);
                until.into_iter().chain(waits).min()
            }
            Phase::Beginning | Phase::Writable => None,
        };
        let step_down = leadership.step_down.as_ref().map(|step_down| {
            let attempt = match step_down.blocked {
                Blocked::No { not_before } => not_before.max(self.now + Duration::from_millis(10)),
                Blocked::Blocking { since } | Blocked::Yes { since } => since + BLOCKED_MAX,
            };
            attempt.min(step_down.deadline)
        });
        // A lost majority is noticed by its members' silence, which needs a look now and then.
        let look = self.now + self.election_timeout() / 8;
        phase.into_iter().chain(step_down).chain([look]).min()
    }

    pub(crate) fn settle_leadership(&mut self) {
        if !matches!(self.role, Role::Leader(_)) {
            return;
        }
        if !self.my_member().is_some_and(Member::is_electable) {
            self.resign(ResignReason::Configuration);
            return;
        }
        if self.data == DataState::Recovering {
            self.resign(ResignReason::Data);
            return;
        }
        if !self.majority_is_alive() {
            self.resign(ResignReason::NoMajority);
            return;
        }
        self.settle_catch_up();
        self.settle_step_down();
    }

    fn majority_is_alive(&self) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let Role::Leader(leadership) = &self.role else { return false };
        let timeout = self.election_timeout();
        if self.now.saturating_sub(leadership.won_at) < timeout {
            return true;
        }
        let alive = configuration
            .voters()
            .filter(|member| self.peers.get(&member.id).is_none_or(|peer| peer.is_alive(self.now, timeout)));
        alive.count() >= configuration.majority_of_votes()
    }

    // ---- catching up ----

    fn settle_catch_up(&mut self) {
        let timeout = self.election_timeout();
        let Role::Leader(leadership) = &self.role else { return };
        let Phase::CatchingUp { until } = leadership.phase else { return };
        let waited = self.now.saturating_sub(leadership.won_at);
        let target = self.catch_up_target();
        let heard_all = waited >= POSITIONS_WAIT
            || self
                .peers
                .values()
                .all(|peer| peer.answered_since_win || !peer.is_alive(self.now, timeout) || peer.unreachable);
        let is_over = until.is_some_and(|until| until <= self.now);
        if is_over || (heard_all && self.position.written >= target) {
            self.begin_term();
        }
    }

    /// The end of the longest log that may still be fetched: by a member that is alive, and of an earlier term.
    pub(crate) fn catch_up_target(&self) -> OpTime {
        let timeout = self.election_timeout();
        let Some(configuration) = &self.configuration else { return OpTime::ZERO };
        self.peers
            .iter()
            .filter(|(id, peer)| {
                peer.is_alive(self.now, timeout)
                    && !peer.unreachable
                    && peer.state().is_readable()
                    && configuration.member(**id).is_some_and(Member::bears_data)
                    && peer.position.written.term < self.term
            })
            .map(|(_, peer)| peer.position.written)
            .max()
            .unwrap_or(OpTime::ZERO)
    }

    pub(crate) fn abort_catch_up(&mut self) {
        if matches!(&self.role, Role::Leader(leadership) if leadership.is_catching_up()) {
            self.begin_term();
        }
    }

    fn begin_term(&mut self) {
        let term = self.term;
        let Role::Leader(leadership) = &mut self.role else { return };
        leadership.phase = Phase::Beginning;
        self.set_sync_source(None);
        self.effects.push(Effect::BeginTerm(term));
        self.stamp_configuration();
    }

    pub(crate) fn take_begun_term(&mut self, term: Term) {
        if term != self.term {
            return;
        }
        if let Role::Leader(leadership) = &mut self.role
            && leadership.phase == Phase::Beginning
        {
            leadership.phase = Phase::Writable;
            self.advance_commit_point();
        }
    }

    // ---- stepping down ----

    pub(crate) fn begin_step_down(&mut self, request: StepDownRequest) {
        let now = self.now;
        let Role::Leader(leadership) = &mut self.role else {
            let error = Error::new(ErrorCode::NotWritablePrimary, "not primary so can't step down");
            self.effects.push(Effect::SteppedDown(Err(error)));
            return;
        };
        if leadership.step_down.is_some() {
            let error = Error::new(ErrorCode::ConflictingOperationInProgress, "a step-down is already in progress");
            self.effects.push(Effect::SteppedDown(Err(error)));
            return;
        }
        let deadline = now + request.catch_up;
        leadership.step_down = Some(StepDown { request, deadline, blocked: Blocked::No { not_before: now } });
    }

    pub(crate) fn interrupt_step_down(&mut self) {
        self.give_up_step_down(Error::new(ErrorCode::Interrupted, "the step-down was interrupted"));
    }

    fn give_up_step_down(&mut self, error: Error) {
        let Role::Leader(leadership) = &mut self.role else { return };
        let Some(step_down) = leadership.step_down.take() else { return };
        if !matches!(step_down.blocked, Blocked::No { .. }) {
            self.effects.push(Effect::UnblockWrites);
        }
        self.effects.push(Effect::SteppedDown(Err(error)));
    }

    pub(crate) fn take_blocked_writes(&mut self, position: crate::message::Position) {
        self.take_position(position);
        if let Role::Leader(leadership) = &mut self.role
            && let Some(step_down) = &mut leadership.step_down
            && let Blocked::Blocking { since } = step_down.blocked
        {
            step_down.blocked = Blocked::Yes { since };
        }
    }

    fn settle_step_down(&mut self) {
        let now = self.now;
        let Role::Leader(leadership) = &self.role else { return };
        let Some(step_down) = &leadership.step_down else { return };
        let request = step_down.request;
        let is_due = step_down.deadline <= now;
        let (ready, near) = (self.successor(request.to, 0), self.successor(request.to, HANDOVER_LAG_SECS_MAX));
        match step_down.blocked {
            Blocked::Yes { .. } if ready.is_some() && self.majority_has_all() => self.hand_over(request, ready),
            // Before the term's first entry there is nothing of one's own to lose.
            Blocked::No { .. } if ready.is_some() && !leadership.has_begun() => self.hand_over(request, ready),
            _ if is_due && request.force => self.hand_over(request, None),
            _ if is_due => {
                let message = format!(
                    "No electable secondaries caught up as of {now:?}. Please use the replSetStepDown command with the argument {{force: true}} to force node to step down."
                );
                self.give_up_step_down(Error::new(ErrorCode::ExceededTimeLimit, message));
            }
            Blocked::No { not_before } if not_before <= now && near.is_some() && leadership.has_begun() => {
                self.set_blocked(Blocked::Blocking { since: now });
                self.effects.push(Effect::BlockWrites);
            }
            Blocked::Blocking { since } | Blocked::Yes { since } if now.saturating_sub(since) >= BLOCKED_MAX => {
                self.set_blocked(Blocked::No { not_before: now + BETWEEN_ATTEMPTS });
                self.effects.push(Effect::UnblockWrites);
            }
            Blocked::No { .. } | Blocked::Blocking { .. } | Blocked::Yes { .. } => {}
        }
    }

    fn set_blocked(&mut self, blocked: Blocked) {
        if let Role::Leader(leadership) = &mut self.role
            && let Some(step_down) = &mut leadership.step_down
        {
            step_down.blocked = blocked;
        }
    }

    /// The successor is told first, since clients wait for it from now on; that this member resigns wakes all of them. No client's write
    /// of this term can begin in between: they are blocked, or none was ever let in.
    fn hand_over(&mut self, request: StepDownRequest, successor: Option<MemberId>) {
        if let Some(to) = successor.filter(|_| request.hand_off) {
            let request = Request::StepUp { term: self.term, last_written: self.position.written };
            self.effects.push(Effect::Send { to, request });
        }
        self.resign(ResignReason::Request);
        self.frozen_until = self.now + request.freeze;
    }

    /// The best of those that lag at most so much. At a lag of 0 it has every entry.
    fn successor(&self, to: Option<MemberId>, lag_secs_max: u32) -> Option<MemberId> {
        self.succession()
            .into_iter()
            .filter(|candidate| candidate.obstacle.is_none() && to.is_none_or(|to| to == candidate.member))
            .find(|candidate| if lag_secs_max == 0 { candidate.is_level } else { candidate.lag_secs <= lag_secs_max })
            .map(|candidate| candidate.member)
    }

    fn majority_has_all(&self) -> bool {
        self.majority_position().is_some_and(|position| position >= self.position.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::consensus::Start;
    use crate::message::{
        Gossip, HeartbeatResponse, MemberState, Position, PositionUpdate, Request, Response, VoteResponse,
    };
    use crate::step::{Input, LastVote};
    use baton_types::Timestamp;
    use bson::oid::ObjectId;

    const RESIGNED: MemberId = MemberId(0);
    const HEIR: MemberId = MemberId(1);
    const OTHER: MemberId = MemberId(2);
    const NOW: Duration = Duration::from_secs(1);

    fn at(term: Term, seconds: u32) -> Position {
        let entry = OpTime { term, timestamp: Timestamp { seconds, increment: 1 } };
        Position { written: entry, applied: entry, durable: entry }
    }

    /// Member 1 of a set of three. In term 1 the log of the primary ends at second 7, and that of the other member, too.
    fn heir(position: Position) -> Consensus {
        let mut configuration = Configuration::initial("rs0", "a:100", ObjectId::from_bytes([1; 12])).unwrap();
        configuration.members = (0..3).map(|id| Member::new(MemberId(id), format!("a:10{id}"))).collect();
        let start = Start {
            protocol_version: crate::PROTOCOL_VERSION,
            host: "a:101".into(),
            set_name: "rs0".into(),
            configuration: Some(configuration),
            vote: LastVote::default(),
            position,
            commit_point: at(1, 5).written,
            data: DataState::Ready,
            given_up: OpTime::ZERO,
            seed: 1,
        };
        let mut consensus = Consensus::new(Duration::ZERO, start);
        answer(&mut consensus, RESIGNED, 1, RESIGNED);
        answer(&mut consensus, OTHER, 1, RESIGNED);
        consensus
    }

    /// A member answers a heartbeat, as one that knows of that primary.
    fn answer(consensus: &mut Consensus, from: MemberId, term: Term, primary: MemberId) -> Vec<Effect> {
        let gossip = Gossip {
            protocol_version: crate::PROTOCOL_VERSION,
            term,
            primary: Some(primary),
            state: if from == primary { MemberState::Primary } else { MemberState::Secondary },
            position: at(1, 7),
            commit_point: at(1, 5).written,
            sync_source: (from != primary).then_some(primary),
            configuration_version: consensus.configuration.as_ref().unwrap().version,
            leadership: None,
        };
        let response = Response::Heartbeat(HeartbeatResponse { gossip, configuration: None });
        consensus.step(NOW, Input::Response { from, response, round_trip: Duration::from_millis(1) })
    }

    /// The primary resigns in this member's favour, which gets the vote that it lacks; what is to be done with that.
    fn elect(consensus: &mut Consensus) -> Vec<Effect> {
        let request = Request::StepUp { term: 1, last_written: at(1, 7).written };
        consensus.step(NOW, Input::Request { id: 1, request });
        consensus.step(NOW, Input::VotePersisted(LastVote { term: 2, candidate: Some(HEIR) }));
        let vote = VoteResponse {
            term: 2,
            dry_run: false,
            granted: true,
            reason: String::new(),
            last_written: at(1, 7).written,
        };
        let response = Response::RequestVotes(vote);
        let effects =
            consensus.step(NOW, Input::Response { from: OTHER, response, round_trip: Duration::from_millis(1) });
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Won { term: 2, .. })));
        effects
    }

    fn begins_its_term(effects: &[Effect]) -> bool {
        effects.iter().any(|effect| matches!(effect, Effect::BeginTerm(2)))
    }

    #[test]
    fn an_heir_that_has_everything_begins_its_term_with_the_votes_and_one_that_is_behind_catches_up_first() {
        let effects = elect(&mut heir(at(1, 7)));
        assert!(begins_its_term(&effects), "{effects:?}");

        let mut consensus = heir(at(1, 6));
        let effects = elect(&mut consensus);
        assert!(!begins_its_term(&effects), "{effects:?}");
        assert_eq!(consensus.sync_source, Some(RESIGNED));
        answer(&mut consensus, RESIGNED, 2, HEIR);
        assert!(!begins_its_term(&answer(&mut consensus, OTHER, 2, HEIR)), "it knows by now that it is behind");
        assert!(begins_its_term(&consensus.step(NOW, Input::Log(at(1, 7)))));
    }

    #[test]
    fn a_new_primary_commits_nothing_before_its_configuration_carries_its_term() {
        let mut consensus = heir(at(1, 7));
        let effects = elect(&mut consensus);
        let stamped = effects.iter().find_map(|effect| match effect {
            Effect::PersistConfiguration(configuration) => Some(configuration.version),
            _ => None,
        });
        assert_eq!(stamped.map(|version| version.term), Some(2));
        consensus.step(NOW, Input::Log(at(2, 8)));
        consensus.step(NOW, Input::TermBegun(2));
        let positions = [(RESIGNED, (at(2, 8), Duration::ZERO)), (OTHER, (at(2, 8), Duration::ZERO))].into();
        let request = Request::UpdatePosition(PositionUpdate { term: 2, positions });
        let effects = consensus.step(NOW, Input::Request { id: 2, request });
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Committed(_))), "{effects:?}");
        assert!(consensus.is_writable());
        assert_eq!(consensus.majority_position(), Some(at(2, 8).written), "nothing else is missing");

        let effects = consensus.step(NOW, Input::ConfigurationPersisted(stamped.unwrap()));
        let committed = |effect: &Effect| matches!(effect, Effect::Committed(to) if *to == at(2, 8).written);
        assert!(effects.iter().any(committed), "{effects:?}");
    }
}
