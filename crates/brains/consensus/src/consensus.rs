//! The step machine's state, and the way of an input through it.
//!
//! Invariants:
//! - `term` is never below `vote.term`, nor below the term of the last entry in the log.
//! - What an answer promises is on disk when the answer leaves: a vote waits in `unpersisted_votes`.
//! - After the input was taken, [`Consensus::settle`] does everything that is then due; so no transition depends on which input
//!   made it possible, and a lost timer is made good by the next input.

use crate::configuration::{Configuration, ConfigurationVersion, Member, MemberId};
use crate::election::Campaign;
use crate::leadership::Leadership;
use crate::message::{ElectionReason, Gossip, MemberState, Position, Request, Response};
use crate::mutant::Mutant;
use crate::peer::Peers;
use crate::step::{DataState, Effect, Input, LastVote, Moment, Occupation, RequestId, ResignReason};
use baton_types::{Error, ErrorCode, OpTime, Term, Timestamp};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a member knows when its process begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// `name:port`, as the configuration names this member.
    pub host: String,
    /// The name of the set that this member was started for.
    pub set_name: String,
    /// In which version this member speaks to others: [`crate::PROTOCOL_VERSION`].
    pub protocol_version: u32,
    /// The configuration on disk, if the set was initiated.
    pub configuration: Option<Configuration>,
    /// The vote on disk.
    pub vote: LastVote,
    /// The log on disk.
    pub position: Position,
    /// The commit point on disk.
    pub commit_point: OpTime,
    /// What state the data is in.
    pub data: DataState,
    /// Where the log ended that was given up for a copy which is not whole yet. Zero if there was none.
    pub given_up: OpTime,
    /// Seeds this member's draws.
    pub seed: u64,
}

/// What this member is in the present term.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    Follower,
    Candidate(Campaign),
    Leader(Leadership),
}

/// See the crate's and the file's header.
#[derive(Clone, Serialize, Deserialize)]
pub struct Consensus {
    pub(crate) host: String,
    /// The set's name by the command line: a configuration of another one is kept, and this member has no part in it.
    pub(crate) set_name: String,
    pub(crate) protocol_version: u32,
    pub(crate) began_at: Moment,
    /// The term that this member began with: see [`crate::plausible`].
    pub(crate) first_term: Term,
    pub(crate) me: Option<MemberId>,
    pub(crate) configuration: Option<Configuration>,
    /// A configuration that is being written to disk, and whether somebody waits for it.
    pub(crate) configuration_in_progress: Option<(Configuration, bool)>,
    /// The commit point when the present configuration was installed: a majority of it must have this before the next one.
    pub(crate) committed_before_configuration: OpTime,
    pub(crate) term: Term,
    pub(crate) vote: LastVote,
    /// Answers that wait for a vote to be on disk.
    pub(crate) unpersisted_votes: Vec<(LastVote, RequestId)>,
    pub(crate) position: Position,
    pub(crate) data: DataState,
    /// Where the log ended that this member gave up, until it has a copy: it may have acknowledged all of it.
    pub(crate) given_up: OpTime,
    pub(crate) maintenance: bool,
    pub(crate) occupation: Occupation,
    /// Since when this member has looked for somebody to copy.
    pub(crate) copy_wanted_at: Option<Moment>,
    /// Other members that are in heavy work.
    pub(crate) busy: BTreeSet<MemberId>,
    pub(crate) commit_point: OpTime,
    pub(crate) peers: Peers,
    pub(crate) role: Role,
    /// Who is primary in `term`, as far as is known.
    pub(crate) primary: Option<MemberId>,
    /// When the primary last gave a sign of life of its own.
    pub(crate) primary_heard_at: Moment,
    /// When to stand for election if nothing is heard of a primary.
    pub(crate) election_at: Moment,
    /// `election_at` is near because there is known to be no primary.
    pub(crate) election_is_prompt: bool,
    /// `election_at` was put off, because this member stands last.
    pub(crate) election_is_put_off: bool,
    /// Until then somebody else's election is given the time to end before a prompt one of this member's own.
    pub(crate) courtesy_until: Moment,
    /// Elections in a row that this member did not win.
    pub(crate) elections_lost: u32,
    /// Where the longest log ends of those for which this member was refused a vote; zero if it has all of it, or hears of a primary.
    pub(crate) refused_below: OpTime,
    /// When to take over from a primary that this member should replace.
    pub(crate) takeover: Option<(ElectionReason, Moment)>,
    pub(crate) frozen_until: Moment,
    pub(crate) sync_source: Option<MemberId>,
    /// The source an operator asked for, until it fails.
    pub(crate) forced_source: Option<MemberId>,
    /// Sources not to choose before a moment.
    pub(crate) avoided_sources: BTreeMap<MemberId, Moment>,
    /// When a source was left for a nearer one, within the last hour.
    pub(crate) nearer_moves: Vec<Moment>,
    /// Sources whose log begins behind the end of this member's, and where it begins.
    pub(crate) truncated_sources: BTreeMap<MemberId, Timestamp>,
    /// Nobody who can be fetched from has what follows this member's log.
    pub(crate) too_stale: bool,
    /// Positions have changed since they were last sent upstream.
    pub(crate) positions_dirty: bool,
    pub(crate) position_update_in_flight: bool,
    pub(crate) random: ChaCha12Rng,
    #[cfg(feature = "mutants")]
    #[serde(skip)]
    pub(crate) mutant: Mutant,
    pub(crate) now: Moment,
    /// Empty between steps.
    #[serde(skip)]
    pub(crate) effects: Vec<Effect>,
}

impl Consensus {
    /// A member at the beginning of its process, at moment `now`.
    pub fn new(now: Moment, start: Start) -> Self {
        let term = start.vote.term.max(start.position.written.term);
        let mut consensus = Self {
            host: start.host,
            set_name: start.set_name,
            protocol_version: start.protocol_version,
            began_at: now,
            first_term: term,
            me: None,
            configuration: None,
            configuration_in_progress: None,
            committed_before_configuration: OpTime::ZERO,
            term,
            vote: start.vote,
            unpersisted_votes: Vec::new(),
            position: start.position,
            data: start.data,
            given_up: start.given_up,
            maintenance: false,
            occupation: Occupation::default(),
            copy_wanted_at: None,
            busy: BTreeSet::new(),
            commit_point: start.commit_point.min(start.position.written),
            peers: Peers::default(),
            role: Role::Follower,
            primary: None,
            primary_heard_at: Moment::ZERO,
            election_at: Moment::MAX,
            election_is_prompt: false,
            election_is_put_off: false,
            courtesy_until: Moment::ZERO,
            elections_lost: 0,
            refused_below: OpTime::ZERO,
            takeover: None,
            frozen_until: Moment::ZERO,
            sync_source: None,
            forced_source: None,
            avoided_sources: BTreeMap::new(),
            nearer_moves: Vec::new(),
            truncated_sources: BTreeMap::new(),
            too_stale: false,
            positions_dirty: false,
            position_update_in_flight: false,
            random: ChaCha12Rng::seed_from_u64(start.seed),
            #[cfg(feature = "mutants")]
            mutant: Mutant::None,
            now,
            effects: Vec::new(),
        };
        if let Some(configuration) = start.configuration {
            consensus.install(configuration);
        }
        consensus.effects.clear();
        consensus
    }

    /// Takes one input; returns what is to be done, in order. `now` never goes back.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        self.now = self.now.max(now);
        let topology_before = self.topology();
        self.take(input);
        self.settle();
        if self.is_mutant(Mutant::VoteNotPersisted) {
            self.take_votes_as_persisted();
        }
        if self.topology() != topology_before {
            // Before an operator is answered: what he asks next is to see what was done.
            let answer = self.effects.iter().position(Effect::is_answer_to_operator);
            self.effects.insert(answer.unwrap_or(self.effects.len()), Effect::TopologyChanged);
        }
        std::mem::take(&mut self.effects)
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Tick => {}
            Input::Request { id, request } => self.take_request(id, request),
            Input::Response { from, response, round_trip } => self.take_response(from, response, round_trip),
            Input::Unreachable { to, gone, request } => self.take_unreachable(to, gone, request),
            Input::Log(position) => self.take_position(position),
            Input::Data(state) => self.take_data_state(state),
            Input::VotePersisted(vote) => self.take_persisted_vote(vote),
            Input::ConfigurationPersisted(version) => self.take_persisted_configuration(version),
            Input::ConfigurationFetched(configuration) => {
                if self.is_plausible(configuration.version.term) {
                    self.hear_configuration(*configuration);
                }
            }
            Input::TermBegun(term) => self.take_begun_term(term),
            Input::WritesBlocked(position) => self.take_blocked_writes(position),
            Input::BatchTaken { source, term, commit_point, last } => {
                if !self.is_plausible(term.max(commit_point.term).max(last.term)) {
                    return;
                }
                self.adopt_term(term);
                self.hear_end_of_source(source, last);
                self.learn_commit_point_from_source(commit_point);
            }
            Input::SourceFailed { source, avoid } => self.take_failed_source(source, avoid),
            Input::SourceTooStale { source, oldest } => self.take_too_stale_source(source, oldest),
            Input::Initiate(configuration) => self.initiate(*configuration),
            Input::Reconfigure { configuration, force } => self.reconfigure(*configuration, force),
            Input::StepDown(request) => self.begin_step_down(request),
            Input::StepDownInterrupted => self.interrupt_step_down(),
            Input::StandForElection { dry_run } => self.stand_on_request(dry_run),
            Input::Freeze(duration) => self.freeze(duration),
            Input::SyncFrom(member) => self.sync_from(member),
            Input::AbortCatchUp => self.abort_catch_up(),
            Input::Maintenance(on) => self.maintenance = on,
            Input::Occupied(occupation) => self.take_occupation(occupation),
            Input::Busy(members) => self.busy = members,
            Input::Announce => self.announce(),
        }
    }

    fn take_data_state(&mut self, state: DataState) {
        // What counts for nothing without data counts with it.
        self.positions_dirty |= self.data != state;
        match (self.data, state) {
            (_, DataState::Ready) => self.given_up = OpTime::ZERO,
            // Whoever is in no set yet has acknowledged nothing in it.
            (DataState::Ready | DataState::Recovering | DataState::Rollback, DataState::InitialSync)
                if self.configuration.is_some() =>
            {
                self.given_up = self.position.written;
            }
            (_, DataState::InitialSync | DataState::Recovering | DataState::Rollback) => {}
        }
        self.data = state;
        // Its votes were for a log that it is about to shorten.
        if state == DataState::Rollback && matches!(self.role, Role::Candidate(_)) {
            self.end_campaign();
            self.postpone_election();
        }
    }

    fn take_request(&mut self, id: RequestId, request: Request) {
        if let Some(error) = self.disbelief(&request) {
            self.effects.push(Effect::Respond { id, response: Err(error) });
            return;
        }
        match request {
            Request::Heartbeat(heartbeat) => self.answer_heartbeat(id, heartbeat),
            Request::RequestVotes(votes) => self.answer_vote_request(id, votes),
            Request::UpdatePosition(update) => self.answer_position_update(id, update),
            Request::StepUp { term, last_written } => self.answer_step_up(id, term, last_written),
        }
    }

    fn take_response(&mut self, from: MemberId, response: Response, round_trip: Duration) {
        if !self.peers.contains_key(&from) {
            return;
        }
        if !self.believes(&response) {
            self.take_unreachable(from, false, response.kind());
            return;
        }
        match response {
            Response::Heartbeat(heartbeat) => self.take_heartbeat_response(from, heartbeat, round_trip),
            Response::RequestVotes(vote) => self.take_vote_response(from, &vote),
            Response::UpdatePosition { term } => {
                self.position_update_in_flight = false;
                self.adopt_term(term);
            }
            Response::StepUp { term } => self.adopt_term(term),
        }
    }

    /// Everything that is due now, whatever the input was.
    fn settle(&mut self) {
        self.send_due_heartbeats();
        self.settle_leadership();
        self.settle_elections();
        self.settle_sync_source();
        self.send_positions();
        self.settle_newly_added();
    }

    /// When [`Input::Tick`] is due, if nothing else comes before.
    pub fn next_deadline(&self) -> Moment {
        let mut deadline =
            self.peers.values().filter(|peer| !peer.heartbeat_in_flight).map(|peer| peer.heartbeat_at).min();
        let mut at = |moment: Option<Moment>| {
            if let Some(moment) = moment {
                deadline = Some(deadline.map_or(moment, |before: Moment| before.min(moment)));
            }
        };
        at(self.election_deadline());
        at(self.leadership_deadline());
        at(self.sync_source_deadline());
        deadline.unwrap_or(self.now + Duration::from_secs(1)).max(self.now + Duration::from_millis(1))
    }

    /// A higher term ends whatever this member was doing in its own.
    pub(crate) fn adopt_term(&mut self, term: Term) {
        if term <= self.term {
            return;
        }
        self.resign(ResignReason::HigherTerm(term));
        self.end_campaign();
        self.term = term;
        self.primary = None;
        self.effects.push(Effect::TermAdopted(term));
    }

    /// A primary becomes a secondary; anybody else stays what it is.
    pub(crate) fn resign(&mut self, reason: ResignReason) {
        let Role::Leader(leadership) = &mut self.role else { return };
        let asked = leadership.step_down.take().is_some();
        self.role = Role::Follower;
        self.primary = None;
        self.primary_heard_at = self.now;
        self.effects.push(Effect::Resign { reason });
        if asked {
            // Whatever made it step down, the one who asked has what was asked for.
            self.effects.push(Effect::SteppedDown(Ok(())));
        }
        for peer in self.peers.values_mut() {
            peer.heartbeat_at = self.now;
        }
        self.postpone_election();
    }

    /// Takes the host by which a configuration that comes names this member. To be said before that configuration is installed.
    pub fn set_host(&mut self, host: String) {
        self.host = host;
    }

    /// The configuration, once there is one.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    /// This member's `_id` in the configuration.
    pub fn me(&self) -> Option<MemberId> {
        self.me
    }

    /// This member's entry in the configuration.
    pub(crate) fn my_member(&self) -> Option<&Member> {
        self.configuration.as_ref()?.member(self.me?)
    }

    /// The configuration's version; before there is one, older than all.
    pub(crate) fn configuration_version(&self) -> ConfigurationVersion {
        self.configuration
            .as_ref()
            .map_or(ConfigurationVersion { term: crate::configuration::UNKNOWN_TERM, version: 0 }, |c| c.version)
    }

    /// How long a member may be silent before it counts as dead.
    pub(crate) fn election_timeout(&self) -> Duration {
        self.configuration.as_ref().map_or(Duration::from_secs(10), |c| c.settings.election_timeout)
    }

    /// A random part of `whole`.
    pub(crate) fn random_part(&mut self, whole: Duration) -> Duration {
        whole.mul_f64(self.random.random_range(0.0..1.0))
    }

    /// `UnknownReplWriteConcern`'s neighbour for members that are in no set: there is nothing to do it with.
    pub(crate) fn not_initiated() -> Error {
        Error::new(ErrorCode::NotYetInitialized, "no replset config has been received")
    }

    /// What this member is doing.
    pub fn state(&self) -> MemberState {
        if self.configuration.is_none() {
            return MemberState::Startup;
        }
        let Some(member) = self.my_member() else { return MemberState::Removed };
        if member.arbiter {
            return MemberState::Arbiter;
        }
        if let Role::Leader(_) = self.role {
            return MemberState::Primary;
        }
        match self.data {
            DataState::InitialSync => MemberState::Startup2,
            DataState::Recovering => MemberState::Recovering,
            DataState::Rollback => MemberState::Rollback,
            DataState::Ready if self.maintenance || self.too_stale => MemberState::Recovering,
            DataState::Ready => MemberState::Secondary,
        }
    }

    /// What this member says of itself.
    pub(crate) fn gossip(&self) -> Gossip {
        Gossip {
            term: self.term,
            protocol_version: self.protocol_version,
            primary: self.primary,
            state: self.state(),
            // What a member has that makes its copy may still be thrown away: it acknowledges nothing.
            position: if self.data == DataState::InitialSync { Position::default() } else { self.position },
            commit_point: self.commit_point,
            sync_source: self.sync_source,
            configuration_version: self.configuration_version(),
            leadership: None,
        }
    }

    fn topology(&self) -> (MemberState, bool, Option<MemberId>, ConfigurationVersion, Option<MemberId>) {
        (self.state(), self.is_writable_primary(), self.primary, self.configuration_version(), self.me)
    }

    /// Whether this member is primary and writes get a place in its log now; not while it tries to hand over.
    pub fn is_writable(&self) -> bool {
        matches!(&self.role, Role::Leader(leadership) if leadership.takes_writes())
    }

    /// Whether this member is the primary that drivers are to send writes to. While it tries to hand over it still is: the attempt is
    /// bounded and may fail, and a write that waits for its end is not refused for nothing, nor again when the next attempt succeeds.
    pub fn is_writable_primary(&self) -> bool {
        matches!(&self.role, Role::Leader(leadership) if leadership.has_begun())
    }

    /// Builds a fault in.
    #[cfg(feature = "mutants")]
    pub fn mutate(&mut self, mutant: Mutant) {
        self.mutant = mutant;
    }

    /// Whether this is the mutant that the checkers are to catch. Never, in a member that anybody runs.
    #[cfg(feature = "mutants")]
    pub(crate) fn is_mutant(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    #[cfg(not(feature = "mutants"))]
    pub(crate) fn is_mutant(&self, _: Mutant) -> bool {
        false
    }

    /// Why this member stands for election, if it does.
    pub fn standing_reason(&self) -> Option<ElectionReason> {
        match &self.role {
            Role::Candidate(campaign) => Some(campaign.reason),
            Role::Follower | Role::Leader(_) => None,
        }
    }

    /// This member's term.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Where this member's log ends, as far as this machine was told.
    pub fn position(&self) -> Position {
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::oid::ObjectId;
    use std::time::Duration;

    /// A member of no set.
    fn member() -> Consensus {
        let position = Position { written: OpTime::ZERO, applied: OpTime::ZERO, durable: OpTime::ZERO };
        let start = Start {
            protocol_version: crate::PROTOCOL_VERSION,
            host: "a:100".into(),
            set_name: "rs0".into(),
            configuration: None,
            vote: LastVote::default(),
            position,
            commit_point: OpTime::ZERO,
            data: DataState::Ready,
            given_up: OpTime::ZERO,
            seed: 1,
        };
        Consensus::new(Moment::ZERO, start)
    }

    #[test]
    fn an_operator_hears_that_it_is_done_once_it_shows() {
        let mut member = member();
        let configuration = Configuration::initial("rs0", "a:100", ObjectId::from_bytes([1; 12])).unwrap();
        let asked = member.step(Moment::ZERO, Input::Initiate(Box::new(configuration)));
        let version = asked.iter().find_map(|effect| match effect {
            Effect::PersistConfiguration(configuration) => Some(configuration.version),
            _ => None,
        });
        let at = Moment::ZERO + Duration::from_millis(1);
        let done = member.step(at, Input::ConfigurationPersisted(version.unwrap()));
        let shows = done.iter().position(|effect| matches!(effect, Effect::TopologyChanged)).unwrap();
        let hears = done.iter().position(|effect| matches!(effect, Effect::Reconfigured(Ok(())))).unwrap();
        assert!(shows < hears, "{done:?}");
    }
}
