//! From whom to fetch.
//!
//! A source must be strictly ahead, so that no circle of members waits for itself; the primary, which fetches from nobody,
//! may also be level, and so may whoever has data be to one that has none. Among those that qualify the nearest is taken; the
//! primary is preferred unless another is nearer by more than [`NEARER_BY`]. Where nobody is primary, whose log ends in the latest
//! term comes before the nearest: another's end may have to be rolled back as soon as it has been fetched, and fetched again
//! after that.
//!
//! A source is kept while it serves, because changing costs a fetch, with one exception: where a member turns out to be nearer
//! by more than [`NEARER_BY`], it becomes the source, [`NEARER_MOVES_MAX`] times an hour at most. That is how the second member
//! of a far site comes to fetch from the first. (MongoDB: `changeSyncSourceThresholdMillis` and
//! `maxNumSyncSourceChangesPerHour`, with the same values.)
//!
//! Who copies all data of a source takes the primary only if there is no other, and a member in heavy work only before that; and nobody
//! whose log ends before the one that this member gave up, if it had data before: it may have acknowledged all of that, and what it
//! acknowledged may be committed. Nor anybody who lacks what it knows to be committed: it has told readers of that.
//!
//! A log is kept for so long only. A member that comes back later than that finds sources that lack what follows its own log;
//! when all that it could fetch from do, it is too stale: RECOVERING, for all to see, until somebody turns up whose log
//! reaches back. Its own log stays what it is, and so do its votes.
//!
//! When a member hears who won an election, it chooses anew at once: the paper waits for the next heartbeat, and all that time
//! nothing of the new term is committed.

use crate::configuration::{Member, MemberId};
use crate::consensus::{Consensus, Role};
use crate::message::{MemberState, Position};
use crate::peer::Peer;
use crate::step::{DataState, Effect, Moment};
use baton_types::{OpTime, Term, Timestamp};
use std::cmp::Reverse;
use std::time::Duration;

/// By how much another source must be nearer than the primary.
const NEARER_BY: Duration = Duration::from_millis(5);
/// How often in an hour a source that serves is left for a nearer one.
const NEARER_MOVES_MAX: usize = 3;
const HOUR: Duration = Duration::from_secs(3600);
/// A source this far behind another that would do is given up: seconds of the log's time.
const LAG_SECS_MAX: u32 = 30;
/// How long the source of a copy may be away.
const RESTART_PATIENCE: Duration = Duration::from_secs(5);
/// How long a member without data waits to hear from those that it has not heard from, before it copies somebody.
const HEARING: Duration = Duration::from_secs(5);
/// How long it waits to hear who is busy, if it could copy several.
const BUSY_HEARING: Duration = Duration::from_secs(1);
/// Without a source, look again this often.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A source that lacks what follows this member's log is asked again after this: its log grows at the other end, but its host
/// may come to have another.
const TRUNCATED_AVOID: Duration = Duration::from_secs(10);

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
        self.settle_staleness();
        if !self.wants_source() {
            self.set_sync_source(None);
            return;
        }
        if self.sync_source.is_some_and(|source| self.serves(source)) {
            return;
        }
        let chosen = self.choose_source();
        if self.data == DataState::InitialSync && chosen.is_some_and(|source| !self.may_begin_copy(source)) {
            return;
        }
        self.copy_wanted_at = None;
        self.set_sync_source(chosen);
    }

    /// Whether it is time to copy this member: a better one may not have answered yet.
    fn may_begin_copy(&mut self, source: MemberId) -> bool {
        let since = *self.copy_wanted_at.get_or_insert(self.now);
        let waited = self.now.saturating_sub(since);
        let is_silent = |peer: &Peer| peer.gossip.is_none() && !peer.unreachable;
        let has_choice = self.peers.iter().filter(|(id, peer)| self.may_fetch_from(**id, peer, true)).count() > 1;
        self.forced_source == Some(source)
            || waited >= HEARING
            || (!self.peers.values().any(is_silent) && (!has_choice || waited >= BUSY_HEARING))
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
        // Who looks for somebody to copy does so in its own time.
        let copies = self.data == DataState::InitialSync && self.sync_source.is_none_or(|source| self.serves(source));
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

    pub(crate) fn take_too_stale_source(&mut self, source: MemberId, oldest: Timestamp) {
        self.truncated_sources.insert(source, oldest);
        self.take_failed_source(source, TRUNCATED_AVOID);
    }

    /// A batch that follows this member's log has come from its source, whose own ends there. That is believed even if it is
    /// less than was heard before: a source that has rolled back in between would seem ahead for ever, and two members that
    /// both have could fetch from each other.
    pub(crate) fn hear_end_of_source(&mut self, source: MemberId, last: OpTime) {
        self.too_stale = false;
        self.truncated_sources.remove(&source);
        if let Some(peer) = self.peers.get_mut(&source) {
            let Position { written, applied, durable } = peer.position;
            peer.position =
                Position { written: written.min(last), applied: applied.min(last), durable: durable.min(last) };
        }
    }

    /// Once too stale, a member stays so until it has taken a batch, or copies its data anew.
    fn settle_staleness(&mut self) {
        let (peers, last) = (&self.peers, self.position.written.timestamp);
        self.truncated_sources.retain(|id, oldest| *oldest > last && peers.contains_key(id));
        if self.data == DataState::InitialSync || matches!(self.role, Role::Leader(_)) {
            self.truncated_sources.clear();
            self.too_stale = false;
        } else if !self.too_stale && self.sync_source.is_none() && !self.truncated_sources.is_empty() {
            let mut sources = self.peers.iter().filter(|(id, peer)| self.qualifies(**id, peer, false)).peekable();
            self.too_stale = sources.peek().is_some() && sources.all(|(id, _)| self.truncated_sources.contains_key(id));
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

    /// `candidate` has just said how far away it is and where its log ends: leaves the present source for it if it is much nearer.
    pub(crate) fn move_nearer(&mut self, candidate: MemberId) {
        self.nearer_moves.retain(|at| self.now.saturating_sub(*at) < HOUR);
        if self.data == DataState::Ready
            && self.forced_source.is_none()
            && self.nearer_moves.len() < NEARER_MOVES_MAX
            && self.is_much_nearer(candidate)
        {
            self.nearer_moves.push(self.now);
            self.set_sync_source(Some(candidate));
        }
    }

    fn is_much_nearer(&self, candidate: MemberId) -> bool {
        let Some(source) = self.sync_source.filter(|source| *source != candidate) else { return false };
        let Some((near, far)) = self.peers.get(&candidate).zip(self.peers.get(&source)) else { return false };
        // Whoever gets nothing itself is no source, and neither is whoever gets it from us.
        (self.primary == Some(candidate) || self.is_fed(candidate))
            && self.may_fetch_from(candidate, near, true)
            && near.round_trip.zip(far.round_trip).is_some_and(|(near, far)| near + NEARER_BY < far)
    }

    /// Whether the peer has been heard lately. Once another is primary, whoever has been silent for as long as it takes to replace a
    /// primary is one that was: it may have said last that it is ahead, and what follows comes from another. Nobody's write would have a
    /// majority until the longer timeout of the heartbeats.
    fn is_heard(&self, id: MemberId, peer: &Peer) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let (settings, is_replaced) = (&configuration.settings, self.primary.is_some_and(|primary| primary != id));
        let silence_max = settings.heartbeat_timeout;
        peer.is_alive(self.now, if is_replaced { silence_max.min(settings.election_timeout) } else { silence_max })
    }

    /// Whether the peer has what this member lacks: entries, or data at all.
    fn is_behind(&self, peer: &Peer) -> bool {
        match self.data {
            DataState::InitialSync => peer.position.written >= self.given_up.max(self.commit_point),
            _ => peer.position.written > self.position.written,
        }
    }

    /// Whether the present source is still worth fetching from.
    fn serves(&self, source: MemberId) -> bool {
        let Some((peer, configuration)) = self.peers.get(&source).zip(self.configuration.as_ref()) else {
            return false;
        };
        if self.avoided_sources.contains_key(&source) {
            return false;
        }
        let is_alive = self.is_heard(source, peer);
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
        if !is_primary && !is_ahead && !self.is_fed(source) {
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

    /// Whether a source that is level with this member has a source itself, and that is not, by whatever detour, this member: each
    /// of a circle was ahead of the next when it was chosen, or seemed so.
    fn is_fed(&self, source: MemberId) -> bool {
        let feeds = |id: MemberId| self.peers.get(&id)?.gossip.as_ref()?.sync_source;
        let mut at = feeds(source);
        if at.is_none() {
            return false;
        }
        for _ in 0..self.peers.len() {
            match at {
                None => return true,
                Some(id) if Some(id) == self.me => return false,
                Some(id) => at = feeds(id),
            }
        }
        false
    }

    fn choose_source(&self) -> Option<MemberId> {
        if let Some(forced) = self.forced_source
            && self.peers.get(&forced).is_some_and(|peer| self.may_fetch_from(forced, peer, false))
        {
            return Some(forced);
        }
        // First among those that suit; then, rather than none, among those that merely can.
        self.peers
            .iter()
            .filter(|(id, peer)| self.may_fetch_from(**id, peer, false))
            .min_by_key(|(id, peer)| {
                let distance = peer.round_trip.unwrap_or(Duration::MAX / 2);
                let is_primary = self.primary == Some(**id);
                let distance = if is_primary { distance.saturating_sub(NEARER_BY) } else { distance };
                let term = if self.primary.is_none() { peer.position.written.term } else { Term::default() };
                (!self.suits(**id), self.reluctance(**id), Reverse(term), distance, **id)
            })
            .map(|(id, _)| *id)
    }

    /// Who is copied reads everything for it: rather a member that has nothing else to do, and rather any than the primary.
    fn reluctance(&self, source: MemberId) -> u8 {
        match self.data {
            DataState::InitialSync if self.primary == Some(source) => 2,
            DataState::InitialSync if self.busy.contains(&source) => 1,
            _ => 0,
        }
    }

    fn may_fetch_from(&self, id: MemberId, peer: &Peer, strict: bool) -> bool {
        !self.avoided_sources.contains_key(&id) && self.qualifies(id, peer, strict)
    }

    /// Whether the member may be a source by what it is, be it avoided for a while or not.
    fn qualifies(&self, id: MemberId, peer: &Peer, strict: bool) -> bool {
        let (Some(configuration), Some(me)) = (&self.configuration, self.my_member()) else { return false };
        let Some(member) = configuration.member(id) else { return false };
        let is_primary = self.primary == Some(id) && peer.state() == MemberState::Primary;
        let is_ahead = self.is_behind(peer);
        let is_level_primary =
            is_primary && self.data != DataState::InitialSync && peer.position.written == self.position.written;
        let catches_up = matches!(self.role, Role::Leader(_));
        if !member.bears_data()
            || !peer.state().is_readable()
            || peer.unreachable
            || !self.is_heard(id, peer)
            || (me.builds_indexes && !member.builds_indexes)
            || !(is_ahead || is_level_primary)
            || (!configuration.settings.chaining_allowed && !is_primary && self.primary.is_some() && !catches_up)
        {
            return false;
        }
        // A member that catches up as primary takes nothing of its own term or a later one.
        if catches_up && peer.position.written.term >= self.term {
            return false;
        }
        !strict || self.suits(id)
    }

    /// Whether the member is one of a kind to be fetched from.
    fn suits(&self, id: MemberId) -> bool {
        let Some((me, member)) = self.my_member().zip(self.configuration.as_ref().and_then(|all| all.member(id)))
        else {
            return false;
        };
        (me.hidden || !member.hidden) && member.delay <= me.delay && (!me.is_voter() || member.is_voter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::consensus::Start;
    use crate::message::{Gossip, HeartbeatResponse, Position, Response};
    use crate::step::{Input, LastVote};
    use baton_types::{OpTime, Timestamp};
    use bson::oid::ObjectId;

    const PRIMARY: MemberId = MemberId(0);
    const SIBLING: MemberId = MemberId(1);
    const FAR: Duration = Duration::from_millis(40);
    const NEAR: Duration = Duration::from_millis(1);

    fn at(seconds: u32) -> Position {
        let entry = OpTime { term: 1, timestamp: Timestamp { seconds, increment: 1 } };
        Position { written: entry, applied: entry, durable: entry }
    }

    /// What member 2 of a set of three begins with.
    fn start(chaining_allowed: bool) -> Start {
        let mut configuration = Configuration::initial("rs0", "a:100", ObjectId::from_bytes([1; 12])).unwrap();
        configuration.members = (0..3).map(|id| Member::new(MemberId(id), format!("a:10{id}"))).collect();
        configuration.settings.chaining_allowed = chaining_allowed;
        Start {
            protocol_version: crate::PROTOCOL_VERSION,
            host: "a:102".into(),
            set_name: "rs0".into(),
            configuration: Some(configuration),
            vote: LastVote::default(),
            position: at(5),
            commit_point: at(5).written,
            data: DataState::Ready,
            given_up: OpTime::ZERO,
            seed: 1,
        }
    }

    /// That member, which fetches from the far primary.
    fn follower(chaining_allowed: bool) -> Consensus {
        let mut consensus = Consensus::new(Duration::ZERO, start(chaining_allowed));
        answer(&mut consensus, 1, PRIMARY, 9, FAR);
        assert_eq!(consensus.sync_source, Some(PRIMARY));
        consensus
    }

    /// A member answers a heartbeat; the sibling says that it fetches from the primary.
    fn answer(consensus: &mut Consensus, now_secs: u64, from: MemberId, seconds: u32, round_trip: Duration) {
        answer_under(PRIMARY, consensus, now_secs, from, seconds, round_trip);
    }

    /// The same, where this member is primary.
    fn answer_under(
        primary: MemberId,
        consensus: &mut Consensus,
        now_secs: u64,
        from: MemberId,
        seconds: u32,
        round_trip: Duration,
    ) {
        let is_primary = from == primary;
        let gossip = Gossip {
            protocol_version: crate::PROTOCOL_VERSION,
            term: 1 + i64::from(primary.0),
            primary: Some(primary),
            state: if is_primary { MemberState::Primary } else { MemberState::Secondary },
            position: at(seconds),
            commit_point: at(5).written,
            sync_source: (!is_primary).then_some(primary),
            configuration_version: consensus.configuration.as_ref().unwrap().version,
            leadership: None,
        };
        let response = Response::Heartbeat(HeartbeatResponse { gossip, configuration: None });
        consensus.step(Duration::from_secs(now_secs), Input::Response { from, response, round_trip });
    }

    #[test]
    fn a_serving_source_is_left_for_one_much_nearer_that_is_ahead() {
        let mut consensus = follower(true);
        answer(&mut consensus, 2, SIBLING, 5, NEAR);
        assert_eq!(consensus.sync_source, Some(PRIMARY), "it has nothing more than we have");
        answer(&mut consensus, 3, SIBLING, 6, NEAR);
        assert_eq!(consensus.sync_source, Some(SIBLING));
    }

    #[test]
    fn it_is_not_left_for_one_a_little_nearer_nor_where_chaining_is_not_allowed() {
        let mut consensus = follower(true);
        answer(&mut consensus, 2, SIBLING, 6, FAR - NEARER_BY);
        assert_eq!(consensus.sync_source, Some(PRIMARY));
        let mut consensus = follower(false);
        answer(&mut consensus, 2, SIBLING, 6, NEAR);
        assert_eq!(consensus.sync_source, Some(PRIMARY));
    }

    #[test]
    fn without_a_primary_who_ends_in_the_latest_term_is_followed_before_who_is_nearest() {
        let later = |seconds, term| {
            let OpTime { timestamp, .. } = at(seconds).written;
            let entry = OpTime { term, timestamp };
            Position { written: entry, applied: entry, durable: entry }
        };
        let mut consensus = follower(true);
        answer(&mut consensus, 2, SIBLING, 9, NEAR);
        consensus.peers.get_mut(&PRIMARY).unwrap().position = later(7, 2);
        assert_eq!(consensus.choose_source(), Some(SIBLING), "the primary sees to it that there is one log");
        consensus.primary = None;
        assert_eq!(consensus.choose_source(), Some(PRIMARY));
    }

    #[test]
    fn who_failed_as_a_source_is_fetched_from_as_soon_as_it_is_primary() {
        let mut consensus = follower(true);
        consensus.take_failed_source(PRIMARY, Duration::from_secs(60));
        consensus.take_failed_source(SIBLING, Duration::from_secs(60));
        answer(&mut consensus, 2, SIBLING, 9, NEAR);
        assert_eq!(consensus.sync_source, None);
        answer_under(SIBLING, &mut consensus, 3, SIBLING, 9, NEAR);
        assert_eq!(consensus.sync_source, Some(SIBLING));
    }

    /// Member 2 of a set of three, without data, which has heard from nobody.
    fn copier() -> Consensus {
        let mut consensus = follower(true);
        consensus.data = DataState::InitialSync;
        consensus.position = Position::default();
        consensus.set_sync_source(None);
        consensus.peers.values_mut().for_each(|peer| *peer = Peer::default());
        consensus
    }

    #[test]
    fn a_copy_is_of_a_secondary_even_if_the_primary_is_nearer_and_answers_first() {
        let mut consensus = copier();
        answer(&mut consensus, 10, PRIMARY, 9, NEAR);
        assert_eq!(consensus.sync_source, None, "the sibling has not answered yet");
        answer(&mut consensus, 11, SIBLING, 8, FAR);
        assert_eq!(consensus.sync_source, Some(SIBLING), "it has looked for a second");
    }

    #[test]
    fn a_copy_is_of_nobody_who_lacks_what_is_known_to_be_committed() {
        let mut consensus = copier();
        consensus.commit_point = at(8).written;
        answer(&mut consensus, 10, SIBLING, 7, NEAR);
        answer(&mut consensus, 10, PRIMARY, 7, FAR);
        consensus.step(Duration::from_secs(16), Input::Tick);
        assert_eq!(consensus.sync_source, None);
        answer(&mut consensus, 21, SIBLING, 8, NEAR);
        assert_eq!(consensus.sync_source, Some(SIBLING));
    }

    #[test]
    fn a_primary_that_fell_silent_while_it_was_ahead_is_left_once_another_leads() {
        let mut consensus = follower(true);
        consensus.configuration.as_mut().unwrap().settings.election_timeout = Duration::from_secs(2);
        answer(&mut consensus, 2, PRIMARY, 9, FAR);
        answer_under(SIBLING, &mut consensus, 3, SIBLING, 4, FAR);
        assert_eq!(consensus.sync_source, Some(PRIMARY), "what was heard last of the new primary's log is older");
        answer_under(SIBLING, &mut consensus, 5, SIBLING, 8, FAR);
        assert_eq!(consensus.sync_source, Some(SIBLING));
    }

    #[test]
    fn a_copy_is_of_nobody_whose_log_ends_before_the_one_that_was_given_up() {
        let mut consensus = follower(true);
        consensus.step(Duration::from_secs(1), Input::Log(at(8)));
        consensus.step(Duration::from_secs(1), Input::Data(DataState::InitialSync));
        consensus.set_sync_source(None);
        consensus.step(Duration::from_secs(1), Input::Log(Position::default()));
        consensus.peers.values_mut().for_each(|peer| *peer = Peer::default());
        answer(&mut consensus, 10, SIBLING, 7, NEAR);
        answer(&mut consensus, 10, PRIMARY, 7, FAR);
        consensus.step(Duration::from_secs(16), Input::Tick);
        assert_eq!(
            consensus.sync_source, None,
            "they have what is known to be committed, and not all that was acknowledged"
        );
        answer(&mut consensus, 21, SIBLING, 8, NEAR);
        assert_eq!(consensus.sync_source, Some(SIBLING));
        consensus.step(Duration::from_secs(22), Input::Data(DataState::Ready));
        assert_eq!(consensus.given_up, OpTime::ZERO);
    }

    #[test]
    fn a_start_in_the_middle_of_a_copy_asks_a_source_for_all_that_this_member_had() {
        let start = Start {
            position: Position::default(),
            data: DataState::InitialSync,
            given_up: at(8).written,
            ..start(true)
        };
        let mut consensus = Consensus::new(Duration::ZERO, start);
        answer(&mut consensus, 10, SIBLING, 7, NEAR);
        answer(&mut consensus, 10, PRIMARY, 7, FAR);
        consensus.step(Duration::from_secs(16), Input::Tick);
        assert_eq!(consensus.sync_source, None);
        answer(&mut consensus, 21, SIBLING, 8, NEAR);
        assert_eq!(consensus.sync_source, Some(SIBLING));
    }

    #[test]
    fn a_copy_is_of_the_primary_if_nobody_else_answers_in_time() {
        let mut consensus = copier();
        answer(&mut consensus, 10, PRIMARY, 9, NEAR);
        consensus.step(Duration::from_secs(14), Input::Tick);
        assert_eq!(consensus.sync_source, None);
        consensus.step(Duration::from_secs(15), Input::Tick);
        assert_eq!(consensus.sync_source, Some(PRIMARY));
    }

    #[test]
    fn a_copy_is_of_a_busy_secondary_rather_than_of_the_primary_and_of_an_idle_one_before_that() {
        const THIRD: MemberId = MemberId(3);
        let mut consensus = copier();
        let third = Member::new(THIRD, "a:103".into());
        consensus.configuration.as_mut().unwrap().members.push(third);
        consensus.peers.insert_new(THIRD, Peer::default());
        consensus.step(Duration::from_secs(9), Input::Busy([SIBLING].into()));
        answer(&mut consensus, 10, PRIMARY, 9, NEAR);
        answer(&mut consensus, 10, SIBLING, 9, NEAR);
        assert_eq!(consensus.sync_source, None, "the third has not answered yet");
        answer(&mut consensus, 11, THIRD, 9, FAR);
        assert_eq!(consensus.sync_source, Some(THIRD));
        consensus.set_sync_source(None);
        consensus.take_failed_source(THIRD, Duration::from_secs(60));
        consensus.step(Duration::from_secs(12), Input::Tick);
        assert_eq!(consensus.sync_source, None, "it may not know yet who is busy");
        consensus.step(Duration::from_secs(13), Input::Tick);
        assert_eq!(consensus.sync_source, Some(SIBLING));
    }

    #[test]
    fn it_is_left_three_times_an_hour_at_most() {
        let mut consensus = follower(true);
        for second in 0..NEARER_MOVES_MAX as u64 {
            answer(&mut consensus, 2 + second, SIBLING, 6, NEAR);
            assert_eq!(consensus.sync_source, Some(SIBLING), "move {second}");
            consensus.set_sync_source(Some(PRIMARY));
        }
        answer(&mut consensus, 9, SIBLING, 6, NEAR);
        assert_eq!(consensus.sync_source, Some(PRIMARY));
    }
}
