//! What this member knows of another one, and of all of them.
//!
//! Invariant: `position` is what that member said of its own log, first hand or forwarded, and only grows while the member
//! is not known to have rolled back: a shorter log is believed only from the member itself.

use crate::configuration::MemberId;
use crate::message::{Gossip, MemberState, Position};
use crate::step::Moment;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// See the file's header.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// What it last said of itself.
    pub gossip: Option<Gossip>,
    /// When it last gave a sign of life, to us or to somebody who told us.
    pub heard_at: Option<Moment>,
    /// Since when it has been heard from without a break.
    pub up_since: Option<Moment>,
    /// Its log.
    pub position: Position,
    /// Its process is known to be gone, since it last gave a sign of life.
    pub gone: bool,
    /// The last request to it failed.
    pub unreachable: bool,
    /// Why nothing it says is believed, since it last said something that was.
    pub refusal: Option<String>,
    /// Smoothed time from request to answer.
    pub round_trip: Option<Duration>,
    /// When to send the next heartbeat.
    pub heartbeat_at: Moment,
    /// A heartbeat is on its way.
    pub heartbeat_in_flight: bool,
    /// When it answered a heartbeat that was sent after this member won its election.
    pub answered_since_win: bool,
}

impl Peer {
    /// Takes a sign of life.
    pub fn hear(&mut self, now: Moment) {
        self.heard_at = Some(self.heard_at.map_or(now, |before| before.max(now)));
        self.gone = false;
    }

    /// Takes what the member says of itself. After more than `silence`, or when its process was known to be gone, it is up anew.
    pub fn hear_gossip(&mut self, now: Moment, silence: Duration, gossip: Gossip) {
        if self.up_since.is_none() || !self.is_alive(now, silence) {
            self.up_since = Some(now);
        }
        self.hear(now);
        self.unreachable = false;
        self.refusal = None;
        self.position = match gossip.state {
            // It has less than it had, and says so itself.
            MemberState::Rollback | MemberState::Startup2 | MemberState::Recovering => gossip.position,
            _ if gossip.term > self.gossip.as_ref().map_or(0, |before| before.term) => gossip.position,
            _ => self.position.max(gossip.position),
        };
        self.gossip = Some(gossip);
    }

    /// Takes one measured time from request to answer.
    pub fn measure(&mut self, round_trip: Duration) {
        self.round_trip = Some(match self.round_trip {
            // MongoDB's weights: four fifths of what was, one of what is.
            Some(before) => (before * 4 + round_trip) / 5,
            None => round_trip,
        });
    }

    /// Whether it gave a sign of life within `silence`, is not known to be gone, and can be worked with.
    pub fn is_alive(&self, now: Moment, silence: Duration) -> bool {
        !self.gone && self.refusal.is_none() && self.heard_at.is_some_and(|at| now.saturating_sub(at) < silence)
    }

    /// What it does, by its own words.
    pub fn state(&self) -> MemberState {
        self.gossip.as_ref().map_or(MemberState::Unknown, |gossip| gossip.state)
    }
}

/// What this member knows of each of the others, in the order of their `_id`s.
///
/// There are few, and every step looks through all of them more than once: so they lie side by side. Written down it is a map.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<MemberId, Peer>")]
pub(crate) struct Peers(Vec<(MemberId, Peer)>);

impl Peers {
    fn place(&self, id: &MemberId) -> Result<usize, usize> {
        self.0.binary_search_by_key(id, |(of, _)| *of)
    }

    pub fn get(&self, id: &MemberId) -> Option<&Peer> {
        self.place(id).ok().map(|place| &self.0[place].1)
    }

    pub fn get_mut(&mut self, id: &MemberId) -> Option<&mut Peer> {
        self.place(id).ok().map(|place| &mut self.0[place].1)
    }

    pub fn contains_key(&self, id: &MemberId) -> bool {
        self.place(id).is_ok()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&MemberId, &Peer)> {
        self.0.iter().map(|(id, peer)| (id, peer))
    }

    pub fn values(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter().map(|(_, peer)| peer)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.0.iter_mut().map(|(_, peer)| peer)
    }

    /// Forgets everybody else.
    pub fn retain(&mut self, stays: impl Fn(&MemberId) -> bool) {
        self.0.retain(|(id, _)| stays(id));
    }

    /// Adds a member, unless it is known.
    pub fn insert_new(&mut self, id: MemberId, peer: Peer) {
        if let Err(place) = self.place(&id) {
            self.0.insert(place, (id, peer));
        }
    }
}

impl From<BTreeMap<MemberId, Peer>> for Peers {
    fn from(peers: BTreeMap<MemberId, Peer>) -> Self {
        Self(peers.into_iter().collect())
    }
}

impl Serialize for Peers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConfigurationVersion;
    use baton_types::OpTime;

    fn gossip() -> Gossip {
        Gossip {
            protocol_version: crate::PROTOCOL_VERSION,
            term: 1,
            primary: None,
            state: MemberState::Secondary,
            position: Position::default(),
            commit_point: OpTime::ZERO,
            sync_source: None,
            configuration_version: ConfigurationVersion { term: 1, version: 1 },
            leadership: None,
        }
    }

    /// What `replSetGetStatus` gives as another member's uptime.
    #[test]
    fn a_member_is_up_since_it_was_first_heard_after_a_silence() {
        let secs = Duration::from_secs;
        let mut peer = Peer::default();
        for (at, since) in [(3, 3), (5, 3), (14, 3), (24, 24), (26, 24)] {
            peer.hear_gossip(secs(at), secs(10), gossip());
            assert_eq!(peer.up_since, Some(secs(since)), "heard at {at} s");
        }
        peer.gone = true;
        peer.hear_gossip(secs(27), secs(10), gossip());
        assert_eq!(peer.up_since, Some(secs(27)), "its process has been another since");
    }
}
