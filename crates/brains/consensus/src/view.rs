//! What others than the machine itself see of it: status commands, drivers' greetings, checkers.

use crate::configuration::{Configuration, ConfigurationVersion, MemberId};
use crate::consensus::{Consensus, Role};
use crate::message::{MemberState, Position};
use crate::peer::Peer;
use crate::step::{LastVote, Moment};
use crate::succession::Candidate;
use baton_types::{OpTime, Term};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a member is at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What it is doing.
    pub state: MemberState,
    /// Whether it takes writes.
    pub is_writable: bool,
    /// Its term.
    pub term: Term,
    /// Who it believes is primary.
    pub primary: Option<MemberId>,
    /// Its log.
    pub position: Position,
    /// The last entry it knows to be committed.
    pub commit_point: OpTime,
    /// Whom it fetches from.
    pub sync_source: Option<MemberId>,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            state: MemberState::Startup,
            is_writable: false,
            term: 0,
            primary: None,
            position: Position::default(),
            commit_point: OpTime::ZERO,
            sync_source: None,
        }
    }
}

/// A member's view of itself and its set at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// This member's place in the configuration.
    pub me: Option<MemberId>,
    /// What it is doing.
    pub state: MemberState,
    /// What drivers are told: [`Consensus::is_writable_primary`].
    pub is_writable_primary: bool,
    /// Whether it was elected and has not begun its term.
    pub is_catching_up: bool,
    /// Its term.
    pub term: Term,
    /// Its last vote.
    pub vote: LastVote,
    /// Who it believes is primary.
    pub primary: Option<MemberId>,
    /// Its log.
    pub position: Position,
    /// The last entry it knows to be committed.
    pub commit_point: OpTime,
    /// Whom it fetches from.
    pub sync_source: Option<MemberId>,
    /// Whether nobody who can be fetched from has what follows its log: it is RECOVERING until somebody has.
    pub is_too_stale: bool,
    /// Whether every other voter with data can be read from and has more than this member, so that it may throw its copy away.
    pub can_spare_my_copy: bool,
    /// When it stands for election next, if it may.
    pub election_at: Option<Moment>,
    /// The configuration.
    pub configuration: Option<Configuration>,
    /// Whether a majority of its voters have it.
    pub configuration_is_committed: bool,
    /// The other members.
    pub peers: BTreeMap<MemberId, PeerView>,
    /// Who would follow this member if it handed over, best first; empty unless it is primary.
    pub succession: Vec<Candidate>,
}

impl View {
    /// What a member has to say that has not begun.
    pub fn of_nobody() -> Self {
        Self {
            me: None,
            state: MemberState::Startup,
            is_writable_primary: false,
            is_catching_up: false,
            term: 0,
            vote: LastVote::default(),
            primary: None,
            position: Position::default(),
            commit_point: OpTime::ZERO,
            sync_source: None,
            is_too_stale: false,
            can_spare_my_copy: false,
            election_at: None,
            configuration: None,
            configuration_is_committed: false,
            peers: BTreeMap::new(),
            succession: Vec::new(),
        }
    }
}

/// What a member knows of another.
#[derive(Clone, Debug)]
pub struct PeerView {
    /// What it does: its own words, or DOWN after too long a silence.
    pub state: MemberState,
    /// Its log.
    pub position: Position,
    /// How long ago it gave a sign of life.
    pub silence: Option<Duration>,
    /// For how long it has been heard from without a break; zero while it is not.
    pub up: Duration,
    /// Smoothed time from request to answer.
    pub round_trip: Option<Duration>,
    /// Whom it fetches from.
    pub sync_source: Option<MemberId>,
    /// Its term.
    pub term: Term,
    /// Its configuration.
    pub configuration_version: Option<ConfigurationVersion>,
    /// Why this member has nothing to do with it, if so.
    pub refusal: Option<String>,
}

impl Consensus {
    /// What changes most, without a copy of anything large.
    pub fn summary(&self) -> Summary {
        Summary {
            state: self.state(),
            is_writable: self.is_writable(),
            term: self.term,
            primary: self.primary,
            position: self.position,
            commit_point: self.commit_point,
            sync_source: self.sync_source,
        }
    }

    /// Everything that status commands, drivers' greetings and checkers want to know.
    pub fn view(&self) -> View {
        View {
            me: self.me,
            state: self.state(),
            is_writable_primary: self.is_writable_primary(),
            is_catching_up: matches!(&self.role, Role::Leader(leadership) if leadership.is_catching_up()),
            term: self.term,
            vote: self.vote,
            primary: self.primary,
            position: self.position,
            commit_point: self.commit_point,
            sync_source: self.sync_source,
            is_too_stale: self.too_stale,
            can_spare_my_copy: self.can_spare_my_copy(),
            election_at: self.election_deadline(),
            configuration: self.configuration.clone(),
            configuration_is_committed: self.configuration_is_committed(),
            peers: self.peers.iter().map(|(id, peer)| (*id, self.peer_view(peer))).collect(),
            succession: if matches!(self.role, Role::Leader(_)) { self.succession() } else { Vec::new() },
        }
    }

    fn peer_view(&self, peer: &Peer) -> PeerView {
        let alive = peer.is_alive(self.now, self.election_timeout());
        PeerView {
            state: if alive {
                peer.state()
            } else if peer.heard_at.is_some() {
                MemberState::Down
            } else {
                MemberState::Unknown
            },
            position: peer.position,
            silence: peer.heard_at.map(|at| self.now.saturating_sub(at)),
            up: peer.up_since.filter(|_| alive).map_or(Duration::ZERO, |since| self.now.saturating_sub(since)),
            round_trip: peer.round_trip,
            sync_source: peer.gossip.as_ref().and_then(|gossip| gossip.sync_source),
            term: peer.gossip.as_ref().map_or(0, |gossip| gossip.term),
            configuration_version: peer.gossip.as_ref().map(|gossip| gossip.configuration_version),
            refusal: peer.refusal.clone(),
        }
    }
}
