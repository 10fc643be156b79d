//! From whom to fetch.
//!
//! A source must be strictly ahead, so that no circle of members waits for itself; the primary, which fetches from nobody,
//! may also be level, and so may whoever has data be to one that has none. Among those that qualify the nearest is taken; the primary is preferred unless another is nearer by
//! more than [`NEARER_BY`]. A source is kept while it serves: changing costs a fetch.
//!
//! When a member hears who won an election, it chooses anew at once: the paper waits for the next heartbeat, and all that time
//! nothing of the new term is committed.

use crate::configuration::{Member, MemberId};
use crate::consensus::{Consensus, Role};
use crate::message::MemberState;
use crate::peer::Peer;
use crate::step::{DataState, Effect, Moment};
use std::time::Duration;

/// By how much another source must be nearer than the primary.
const NEARER_BY: Duration = Duration::from_millis(5);
/// A source this far behind another that would do is given up: seconds of the log's time.
const LAG_SECS_MAX: u32 = 30;
/// How long the source of a copy may be away.
const RESTART_PATIENCE: Duration = Duration::from_secs(5);
/// Without a source, look again this often.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

impl Consensus {
    pub(crate) fn sync_source_deadline(&self) -> Option<Moment> {
        (self.sync_source.is_none() && self.wants_source()).then_some(self.now + LOOK_INTERVAL)
    }

    fn wants_source(&self) -> bool {
        let fetches = match &self.role {
            Role::Follower | Role::Candidate(_) => true,
            Role::Leader(leadership) => leadership.is_catching_up() && self.catch_up_target() > self.position.written,
        };
        fetches && self.data != DataState::Rollback && self.my_member().is_some_and(Member::bears_data)
    }

    pub(crate) fn settle_sync_source(&mut self) {
        self.avoided_sources.retain(|_, until| *until > self.now);
        if !self.wants_source() {
            self.set_sync_source(None);
            return;
        }
        if self.sync_source.is_some_and(|source| self.serves(source)) {
            return;
        }
        let chosen = self.choose_source();
        self.set_sync_source(chosen);
    }

    pub(crate) fn set_sync_source(&mut self, source: Option<MemberId>) {
        if self.sync_source != source {
            self.sync_source = source;
            self.positions_dirty = true;
            self.position_update_in_flight = false;
            self.effects.push(Effect::SyncSource(source));
        }
    }

    pub(crate) fn reconsider_sync_source(&mut self) {
        let copies = self.data == DataState::InitialSync && self.sync_source.is_some_and(|source| self.serves(source));
        if self.wants_source() && self.forced_source.is_none() && !copies {
            let chosen = self.choose_source();
            if chosen.is_some() {
                self.set_sync_source(chosen);
            }
        }
    }

    pub(crate) fn take_failed_source(&mut self, source: MemberId, avoid: Duration) {
        self.avoided_sources.insert(source, self.now + avoid);
        if self.forced_source == Some(source) {
            self.forced_source = None;
        }
        if self.sync_source == Some(source) {
            self.set_sync_source(None);
        }
    }

    pub(crate) fn sync_from(&mut self, member: MemberId) {
        if self.peers.contains_key(&member) {
            self.avoided_sources.remove(&member);
            self.forced_source = Some(member);
            if self.wants_source() {
                self.set_sync_source(Some(member));
            }
        }
    }

    /// Whether the peer has what this member lacks: entries, or data at all.
    fn is_behind(&self, peer: &Peer) -> bool {
        self.data == DataState::InitialSync || peer.position.written > self.position.written
    }

    /// Whether the present source is still worth fetching from.
    fn serves(&self, source: MemberId) -> bool {
        let Some((peer, configuration)) = self.peers.get(&source).zip(self.configuration.as_ref()) else {
            return false;
        };
        if self.avoided_sources.contains_key(&source) {
            return false;
        }
        let is_alive = peer.is_alive(self.now, configuration.settings.heartbeat_timeout);
        // One that has just started again was gone, and is not readable for a moment: no reason to begin a copy anew.
        if self.data == DataState::InitialSync {
            return is_alive || peer.heard_at.is_some_and(|at| self.now.saturating_sub(at) < RESTART_PATIENCE);
        }
        if !is_alive {
            return false;
        }
        if !peer.state().is_readable() {
            return false;
        }
        if self.forced_source == Some(source) {
            return true;
        }
        let is_primary = self.primary == Some(source);
        let is_ahead = self.is_behind(peer);
        let feeds = peer.gossip.as_ref().and_then(|gossip| gossip.sync_source);
        // Level with a source that gets nothing from anybody, or gets it from us: there is nothing to come.
        if !is_primary && !is_ahead && (feeds.is_none() || feeds == self.me) {
            return false;
        }
        if !configuration.settings.chaining_allowed && !is_primary && self.primary.is_some() {
            return false;
        }
        let newest = peer.position.written.timestamp.seconds.saturating_add(LAG_SECS_MAX);
        !self.peers.iter().any(|(id, other)| {
            other.position.written.timestamp.seconds > newest && self.may_fetch_from(*id, other, true)
        })
    }

    fn choose_source(&self) -> Option<MemberId> {
        if let Some(forced) = self.forced_source
            && self.peers.get(&forced).is_some_and(|peer| self.may_fetch_from(forced, peer, false))
        {
            return Some(forced);
        }
        // First among those that suit; then, rather than none, among those that merely can.
        [true, false].into_iter().find_map(|strict| {
            self.peers
                .iter()
                .filter(|(id, peer)| self.may_fetch_from(**id, peer, strict))
                .min_by_key(|(id, peer)| {
                    let distance = peer.round_trip.unwrap_or(Duration::MAX / 2);
                    (if self.primary == Some(**id) { distance.saturating_sub(NEARER_BY) } else { distance }, **id)
                })
                .map(|(id, _)| *id)
        })
    }

    fn may_fetch_from(&self, id: MemberId, peer: &Peer, strict: bool) -> bool {
        let (Some(configuration), Some(me)) = (&self.configuration, self.my_member()) else { return false };
        let Some(member) = configuration.member(id) else { return false };
        let is_primary = self.primary == Some(id) && peer.state() == MemberState::Primary;
        let is_ahead = self.is_behind(peer);
        let catches_up = matches!(self.role, Role::Leader(_));
        if !member.bears_data()
            || !peer.state().is_readable()
            || peer.unreachable
            || !peer.is_alive(self.now, configuration.settings.heartbeat_timeout)
            || self.avoided_sources.contains_key(&id)
            || (me.builds_indexes && !member.builds_indexes)
            || !(is_ahead || is_primary && peer.position.written == self.position.written)
            || (!configuration.settings.chaining_allowed && !is_primary && self.primary.is_some() && !catches_up)
        {
            return false;
        }
        // A member that catches up as primary takes nothing of its own term or a later one.
        if catches_up && peer.position.written.term >= self.term {
            return false;
        }
        !strict || ((me.hidden || !member.hidden) && member.delay <= me.delay && (!me.is_voter() || member.is_voter()))
    }
}
