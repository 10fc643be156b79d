//! Signs of life, and what travels with them: who is primary, how far logs reach, which configuration stands.
//!
//! Every member asks every other one, at an interval of at most a quarter of the election timeout. Both halves carry the same
//! [`Gossip`], so one exchange informs both sides; a member that has just become primary, or ceased to be, asks everybody at
//! once instead of waiting for its turn.
//!
//! Invariant: a message's term is adopted before anything else in it is believed.

use crate::configuration::{Configuration, MemberId};
use crate::consensus::{Consensus, Role};
use crate::message::{Gossip, HeartbeatRequest, HeartbeatResponse, MemberState, Request, Response};
use crate::step::{Effect, RequestId, RequestKind};
use baton_types::{Error, ErrorCode};
use bson::oid::ObjectId;
use std::time::Duration;

/// After a failed heartbeat the next one is sent no later than this.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

impl Consensus {
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.configuration.as_ref().map_or(Duration::from_secs(2), |configuration| {
            configuration.settings.heartbeat_interval.min(configuration.settings.election_timeout / 4)
        })
    }

    pub(crate) fn send_due_heartbeats(&mut self) {
        // Who was started for another set than its configuration is of has nothing to say to either.
        let is_ours = self.configuration.as_ref().is_some_and(|configuration| configuration.set_name == self.set_name);
        if !is_ours {
            return;
        }
        let now = self.now;
        let due: Vec<MemberId> = self
            .peers
            .iter()
            .filter(|(_, peer)| !peer.heartbeat_in_flight && peer.heartbeat_at <= now)
            .map(|(id, _)| *id)
            .collect();
        let interval = self.heartbeat_interval();
        for to in due {
            let request = Request::Heartbeat(HeartbeatRequest {
                set_name: self.set_name.clone(),
                set_id: self.set_id(),
                from: self.me,
                from_host: self.host.clone(),
                gossip: self.gossip(),
            });
            self.effects.push(Effect::Send { to, request });
            if let Some(peer) = self.peers.get_mut(&to) {
                peer.heartbeat_in_flight = true;
                peer.heartbeat_at = now + interval;
            }
        }
    }

    /// Has every other member asked at once, or as soon as it has answered the present heartbeat.
    pub(crate) fn announce(&mut self) {
        for peer in self.peers.values_mut() {
            peer.heartbeat_at = self.now;
        }
    }

    pub(crate) fn answer_heartbeat(&mut self, id: RequestId, request: HeartbeatRequest) {
        if self.set_name != request.set_name {
            let error = Error::new(
                ErrorCode::InconsistentReplicaSetNames,
                format!(
                    "Our set name of {} does not match the set name of {} reported by remote node",
                    self.set_name, request.set_name
                ),
            );
            self.effects.push(Effect::Respond { id, response: Err(error) });
            return;
        }
        if let Some((ours, theirs)) = self.foreign_set(request.set_id) {
            let message = format!("replica set IDs do not match, ours: {ours}; remote node's: {theirs}");
            let error = Error::new(ErrorCode::InvalidReplicaSetConfig, message);
            self.effects.push(Effect::Respond { id, response: Err(error) });
            return;
        }
        if let Some(error) = self.incompatibility(request.gossip.protocol_version) {
            if let Some(from) = request.from {
                self.refuse_peer(from, &error);
            }
            self.effects.push(Effect::Respond { id, response: Err(error) });
            return;
        }
        self.adopt_term(request.gossip.term);
        let theirs = request.gossip.configuration_version;
        let mine = self.configuration_version();
        if theirs.is_newer_than(mine) {
            self.ask_for_configuration(request.from, &request.from_host);
        }
        if let Some(from) = request.from.filter(|from| self.peers.contains_key(from)) {
            self.hear_gossip(from, request.gossip);
        }
        let configuration = match &self.configuration {
            Some(configuration) if mine.is_newer_than(theirs) => Some(Box::new(configuration.clone())),
            _ => None,
        };
        let response = Response::Heartbeat(HeartbeatResponse { gossip: self.gossip(), configuration });
        self.effects.push(Effect::Respond { id, response: Ok(response) });
    }

    /// The set's identity, once there is a configuration.
    pub(crate) fn set_id(&self) -> Option<ObjectId> {
        self.configuration.as_ref()?.settings.set_id
    }

    /// Both sets' identities, if a message is from another set of the same name. Nothing in it is to be believed, its term least.
    pub(crate) fn foreign_set(&self, theirs: Option<ObjectId>) -> Option<(ObjectId, ObjectId)> {
        self.set_id().zip(theirs).filter(|(ours, theirs)| ours != theirs)
    }

    fn ask_for_configuration(&mut self, from: Option<MemberId>, host: &str) {
        if self.configuration_in_progress.is_some() {
            return;
        }
        match from.and_then(|from| self.peers.get_mut(&from)) {
            Some(peer) => peer.heartbeat_at = self.now,
            None => self.effects.push(Effect::FetchConfiguration { host: host.to_owned() }),
        }
    }

    pub(crate) fn take_heartbeat_response(
        &mut self,
        from: MemberId,
        response: HeartbeatResponse,
        round_trip: Duration,
    ) {
        if let Some(error) = self.incompatibility(response.gossip.protocol_version) {
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.heartbeat_in_flight = false;
            }
            self.refuse_peer(from, &error);
            return;
        }
        self.adopt_term(response.gossip.term);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.heartbeat_in_flight = false;
            // It has heard who won, so what it says of its log is no older than that.
            peer.answered_since_win |= self.me.is_some() && response.gossip.primary == self.me;
            peer.measure(round_trip);
        }
        self.hear_gossip(from, response.gossip);
        if let Some(configuration) = response.configuration {
            self.hear_configuration(*configuration);
        }
        self.move_nearer(from);
    }

    fn hear_gossip(&mut self, from: MemberId, mut gossip: Gossip) {
        if let Some(leadership) = gossip.leadership.take() {
            self.effects.push(Effect::Heard { from, leadership });
        }
        let is_primary = gossip.state == MemberState::Primary && gossip.term == self.term;
        let commit_point = gossip.commit_point;
        let term = gossip.term;
        let silence = self.election_timeout();
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.hear_gossip(self.now, silence, gossip);
        }
        if is_primary {
            self.hear_primary(from);
        } else if self.primary == Some(from) && term == self.term {
            // It was, and says that it no longer is.
            self.hear_resignation();
        }
        self.learn_commit_point_from_heartbeat(commit_point);
        // Who has the configuration may be what the commit point waited for.
        self.advance_commit_point();
    }

    pub(crate) fn take_unreachable(&mut self, to: MemberId, gone: bool, request: RequestKind) {
        match request {
            RequestKind::Heartbeat => {}
            RequestKind::RequestVotes => self.take_lost_vote(to),
            RequestKind::UpdatePosition => self.position_update_in_flight = false,
            RequestKind::StepUp => {}
        }
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&to) else { return };
        peer.unreachable = true;
        if request == RequestKind::Heartbeat {
            peer.heartbeat_in_flight = false;
            peer.heartbeat_at = peer.heartbeat_at.min(now + RETRY_INTERVAL);
        }
        if gone && !peer.gone {
            peer.gone = true;
            if self.primary == Some(to) {
                self.lose_primary();
            }
        }
    }

    /// A configuration arrives from another member. The newest one stands; it is kept on disk before it is used.
    pub(crate) fn hear_configuration(&mut self, configuration: Configuration) {
        let is_ours = configuration.set_name == self.set_name
            && self.configuration.as_ref().is_none_or(|mine| {
                mine.set_name == configuration.set_name
                    && (mine.settings.set_id.is_none() || mine.settings.set_id == configuration.settings.set_id)
            });
        if !is_ours
            || !configuration.version.is_newer_than(self.configuration_version())
            || self.configuration_in_progress.is_some()
            || matches!(self.role, Role::Leader(_)) && configuration.version.term == self.term
        {
            return;
        }
        self.persist_configuration(configuration, false);
    }
}
