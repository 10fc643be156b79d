//! Who has which part of the log, and what of it is committed.
//!
//! Positions flow towards the primary along the sync tree: each member reports its own and those it was told, and whoever
//! is told passes them on. Point for point, what makes the commit point sound:
//!
//! - It advances only on an entry of the primary's own term. An older entry may lie on a majority and still be replaced by
//!   a member that never had it.
//! - A message's term is adopted before its positions are merged, at every hop: a member that has voted for a successor may
//!   go on pulling from the old primary, and must not be counted by it.
//! - From a heartbeat it is learnt only if its term is that of one's own last entry: then one's log is the beginning of the
//!   log it speaks of. (Appendix A of the paper takes the lesser of it and one's own last entry; that marks a divergent entry
//!   committed.)
//! - Where arbiters leave fewer members with data than a majority has, those few commit; but only once a majority has the
//!   configuration that says so. Two members with a configuration of theirs alone do not meet the voters of the one before.
//! - From one configuration to the next those few may not meet the voters of the next: it begins only once its own majority has
//!   all that is committed, and until it is installed both commit.
//! - From the sync source it is learnt up to one's own last entry, because that entry was found in the source's log.
//!
//! Invariants: the commit point never falls, and never lies beyond one's own log.

use crate::configuration::{Configuration, MemberId};
use crate::consensus::{Consensus, Role};
use crate::message::{Position, PositionUpdate, Request, Response};
use crate::mutant::Mutant;
use crate::step::{DataState, Effect, RequestId};
use baton_types::OpTime;
use std::collections::BTreeMap;
use std::time::Duration;

impl Consensus {
    /// This member's log has changed.
    pub(crate) fn take_position(&mut self, position: Position) {
        if position == self.position {
            return;
        }
        self.position = position;
        self.positions_dirty = true;
        self.advance_commit_point();
        self.settle_refusal();
    }

    pub(crate) fn answer_position_update(&mut self, id: RequestId, update: PositionUpdate) {
        if !self.is_mutant(Mutant::AcknowledgementsOfAnyTerm) {
            self.adopt_term(update.term);
        }
        let now = self.now;
        for (member, (position, age)) in update.positions {
            let Some(peer) = self.peers.get_mut(&member) else { continue };
            let merged = peer.position.max(position);
            self.positions_dirty |= merged != peer.position;
            peer.position = merged;
            if let Some(heard_at) = now.checked_sub(age) {
                // A sign of life, though a second-hand one: a chained member must not look dead to the primary.
                if peer.heard_at.is_none_or(|before| before < heard_at) {
                    peer.heard_at = Some(heard_at);
                    peer.gone = false;
                }
            }
        }
        self.advance_commit_point();
        self.effects.push(Effect::Respond { id, response: Ok(Response::UpdatePosition { term: self.term }) });
    }

    /// Reports what is known upstream; one report at a time is on its way, and the next one carries all that came meanwhile.
    pub(crate) fn send_positions(&mut self) {
        if !self.positions_dirty || self.position_update_in_flight {
            return;
        }
        let (Some(me), Some(to)) = (self.me, self.sync_source) else { return };
        if matches!(self.role, Role::Leader(_)) {
            return;
        }
        let mut positions: BTreeMap<MemberId, (Position, Duration)> = self
            .peers
            .iter()
            .filter_map(|(id, peer)| Some((*id, (peer.position, self.now.saturating_sub(peer.heard_at?)))))
            .collect();
        // A member without its data acknowledges nothing.
        if self.data != DataState::InitialSync {
            positions.insert(me, (self.position, Duration::ZERO));
        }
        self.positions_dirty = false;
        self.position_update_in_flight = true;
        let update = PositionUpdate { term: self.term, positions };
        self.effects.push(Effect::Send { to, request: Request::UpdatePosition(update) });
    }

    /// The last entry that a majority of the configuration's voters has, each as the configuration counts having.
    pub(crate) fn majority_position(&self) -> Option<OpTime> {
        self.majority_position_in(self.configuration.as_ref()?)
    }

    /// The same, if that were the configuration.
    pub(crate) fn majority_position_in(&self, configuration: &Configuration) -> Option<OpTime> {
        let counts = |position: &Position| {
            if configuration.majority_is_durable && !self.is_mutant(Mutant::CountWrittenAsDurable) {
                position.durable
            } else {
                position.written
            }
        };
        let mut positions: Vec<OpTime> = configuration
            .voters()
            .filter(|member| member.bears_data())
            .map(|member| match self.peers.get(&member.id) {
                Some(peer) => counts(&peer.position),
                None if Some(member.id) == self.me => counts(&self.position),
                None => OpTime::ZERO,
            })
            .collect();
        positions.sort_unstable_by(|a, b| b.cmp(a));
        positions.get(configuration.majority_of_writes().checked_sub(1)?).copied()
    }

    /// The primary's rule.
    pub(crate) fn advance_commit_point(&mut self) {
        // A primary whose configuration does not carry its term could lose that in a crash: it commits nothing yet.
        if !matches!(&self.role, Role::Leader(leadership) if leadership.has_stamped) {
            return;
        }
        if let Some(candidate) = self.committable_position()
            && self.writes_meet_votes()
            && (candidate.term == self.term || self.is_mutant(Mutant::OlderTermsCommit))
        {
            self.commit(candidate.min(self.position.written));
        }
    }

    /// While a configuration is being written whose voters may not meet those of the present one, both commit.
    fn committable_position(&self) -> Option<OpTime> {
        let present = self.majority_position()?;
        match (&self.configuration, &self.configuration_in_progress) {
            (Some(old), Some((new, _))) if !old.writes_meet_votes_of(new) => {
                Some(present.min(self.majority_position_in(new)?))
            }
            _ => Some(present),
        }
    }

    /// Whether every majority of votes that could elect another primary meets the members that commit now.
    fn writes_meet_votes(&self) -> bool {
        let small = self.configuration.as_ref().is_some_and(|c| c.majority_of_writes() < c.majority_of_votes());
        !small || self.configuration_is_committed()
    }

    pub(crate) fn learn_commit_point_from_heartbeat(&mut self, commit_point: OpTime) {
        let speaks_of_our_log =
            commit_point.term == self.position.written.term || self.is_mutant(Mutant::CommitPointFromAnyHeartbeat);
        if !matches!(self.role, Role::Leader(_)) && speaks_of_our_log {
            self.commit(commit_point.min(self.position.written));
        }
    }

    pub(crate) fn learn_commit_point_from_source(&mut self, commit_point: OpTime) {
        if !matches!(self.role, Role::Leader(_)) {
            let unclamped = self.is_mutant(Mutant::CommitPointUnclamped);
            self.commit(if unclamped { commit_point } else { commit_point.min(self.position.written) });
        }
    }

    fn commit(&mut self, to: OpTime) {
        if to > self.commit_point {
            self.commit_point = to;
            self.effects.push(Effect::Committed(to));
        }
    }
}
