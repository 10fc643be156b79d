//! The heavy slot: at most so many voters are in heavy tasks that a majority is free.
//!
//! ```text
//!  secondary   claim ──gossip──▶ primary: in turn, if one more may be busy ──gossip──▶ confirmed: begin … release
//! ```
//!
//! A claim waits in the primary's queue, first come, first served. A confirmed one holds until its owner says that it has none, or is
//! silent for the election timeout (two, if a new primary has not heard of it at all): then it is stolen. A task that must begin by its deadline, or that could not wait, asks nobody; its
//! member counts as busy for the next one.
//!
//! Invariants:
//! - Of those who begin with a confirmed claim there are never more at once than there are slots, unless the primary took one of them
//!   for gone.
//! - A member begins only by what the primary of its own term has confirmed; and a new primary takes every voter for busy until it has
//!   heard from it in the new term. So what an old primary confirmed cannot meet what a new one does.
//! - A primary begins by its own claim, and confirms others', only while a majority has listened to it, in its term, within an election
//!   timeout by its own clock: so that nobody else leads who has given those claims up. What came while it was paused proves nothing.
//! - A member begins only as long as its claim cannot have been stolen: a confirmation that was under way for too long is not believed,
//!   and one that was not repeated for too long serves no further task.

use crate::gossip::{Claim, Grant};
use crate::leadership::Leadership;
use crate::mutant::Mutant;
use crate::rule::Rule;
use crate::set::{MemberId, Set};
use crate::step::{Effect, Moment, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A claim, as a primary knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claimed {
    pub member: MemberId,
    pub incarnation: u64,
    pub number: u64,
}

/// What a primary has confirmed, and who is in turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Register {
    /// First come first. This member's own claim is in it, too.
    queue: Vec<Claimed>,
    grants: BTreeMap<MemberId, Claimed>,
    /// When this term of this primary began.
    since: Moment,
}

impl Register {
    /// The register of a primary that was elected at `since`.
    pub fn new(since: Moment) -> Self {
        Self { since, ..Self::default() }
    }

    /// Whether this member's claim is confirmed.
    pub fn has_granted(&self, member: MemberId) -> bool {
        self.grants.contains_key(&member)
    }

    /// Whether anybody asks, or has been confirmed.
    pub fn is_asked(&self) -> bool {
        !self.queue.is_empty() || !self.grants.is_empty()
    }

    /// Whether anything is confirmed.
    pub fn is_granting(&self) -> bool {
        !self.grants.is_empty()
    }

    /// What is confirmed.
    pub fn granted(&self) -> Vec<Claimed> {
        self.grants.values().copied().collect()
    }

    fn retain(&mut self, still_stands: impl Fn(&Claimed) -> bool) {
        self.queue.retain(&still_stands);
        self.grants.retain(|_, grant| still_stands(grant));
    }
}

impl Leadership {
    /// Sees to this member's own claim: there is one while a heavy task waits for the slot, or runs in it.
    pub(crate) fn settle_claim(&mut self, set: &Set) {
        let waits = self.tasks.has_pressing();
        let is_needed = match (self.claim, self.role) {
            (_, Role::Other) | (None, Role::Primary { .. }) => false,
            // A primary asks itself.
            (Some(claim), Role::Primary { .. }) => claim.is_confirmed && self.tasks.is_busy(),
            (None, Role::Secondary) => waits,
            (Some(claim), Role::Secondary) => waits || (claim.is_confirmed && self.tasks.is_busy()),
        };
        let is_needed = is_needed && set.am_voter();
        match self.claim {
            None if is_needed => {
                self.next_claim += 1;
                let number = self.next_claim;
                self.claim = Some(Claim { number, is_confirmed: false });
                self.effects.push(Effect::Claim { number });
            }
            Some(claim) if !is_needed => {
                self.claim = None;
                self.effects.push(Effect::Release { number: claim.number });
            }
            None | Some(_) => {}
        }
    }

    /// What the others are told of the register.
    pub(crate) fn grants(&self) -> Vec<Grant> {
        let may_tell = |set: &Arc<Set>| self.register.is_granting() && self.is_heard_by_majority(set);
        if !self.set.as_ref().is_some_and(may_tell) {
            return Vec::new();
        }
        let heard_made_at = |member| self.peers.get(&member).map_or(Moment::ZERO, |peer| peer.gossip.made_at);
        let granted = self.register.granted().into_iter();
        granted
            .map(|Claimed { member, incarnation, number }| Grant {
                member,
                incarnation,
                number,
                heard_made_at: heard_made_at(member),
            })
            .collect()
    }

    /// Takes what the primary of this member's term has confirmed, as long as it cannot have been stolen yet; and what it has not, or
    /// not any more.
    pub(crate) fn hear_grants(&mut self, set: &Set, from: MemberId) {
        let Some(peer) = self.peers.get(&from) else { return };
        let is_of_my_term = peer.gossip.term == self.term || self.is_mutant(Mutant::BelievesAnyTerm);
        let is_believed = peer.gossip.is_primary && is_of_my_term && self.role == Role::Secondary;
        let Some(claim) = self.claim.filter(|_| is_believed) else { return };
        let mine =
            peer.gossip.grants.iter().find(|grant| {
                (grant.member, grant.incarnation, grant.number) == (set.me, self.incarnation, claim.number)
            });
        // One interval less, for clocks that go at different rates.
        let lease = set.election_timeout.saturating_sub(set.heartbeat_interval);
        let lease_ends = mine.map(|grant| grant.heard_made_at.saturating_add(lease));
        if claim.is_confirmed {
            self.lease_ends = self.lease_ends.max(lease_ends.unwrap_or_default());
        } else {
            self.lease_ends = lease_ends.unwrap_or_default();
        }
        let is_confirmed = mine.is_some() && (claim.is_confirmed || self.is_leased());
        self.claim = Some(Claim { is_confirmed, ..claim });
    }

    /// Whether nobody can have taken this member for gone since its claim was confirmed last.
    fn is_leased(&self) -> bool {
        self.now < self.lease_ends || self.is_mutant(Mutant::BelievesLateGrants)
    }

    /// Why this member may not be busy now; none if it may.
    pub(crate) fn slot_obstacle(&self, set: &Set) -> Option<Rule> {
        if self.is_primary() {
            let may_begin = self.register.has_granted(set.me) && self.is_heard_by_majority(set);
            return (!may_begin).then_some(Rule::SlotsTaken);
        }
        let is_confirmed = self.claim.is_some_and(|claim| claim.is_confirmed);
        (!is_confirmed || !self.is_leased()).then_some(Rule::SlotAsked)
    }

    /// As primary: forgets what was released or whose owner is gone, hears who asks, and confirms in turn.
    pub(crate) fn settle_register(&mut self, set: &Set) {
        let claims: BTreeMap<MemberId, Claimed> = set
            .others()
            .filter(|member| member.is_voter && !self.is_gone(set, member.id))
            .filter_map(|member| {
                let gossip = &self.peers.get(&member.id)?.gossip;
                let number = gossip.claim?.number;
                Some((member.id, Claimed { member: member.id, incarnation: gossip.incarnation, number }))
            })
            .collect();
        let own = Claimed { member: set.me, incarnation: self.incarnation, number: 0 };
        let wants_own = self.wants_slot_as_primary || self.tasks.is_busy();
        self.register
            .retain(|grant| if grant.member == set.me { wants_own } else { claims.get(&grant.member) == Some(grant) });
        let asked = claims.into_values().chain(self.wants_slot_as_primary.then_some(own));
        for claim in asked {
            let is_known =
                self.register.grants.get(&claim.member) == Some(&claim) || self.register.queue.contains(&claim);
            if !is_known {
                self.register.queue.push(claim);
            }
        }
        if self.handoff.is_some() {
            // Whoever is to lead next must not become busy meanwhile.
            return;
        }
        while let Some(next) = self.register.queue.first().copied() {
            if self.busy_voters(set, next.member) + 1 > set.slots() && !self.is_mutant(Mutant::GrantsEverybody) {
                break;
            }
            self.register.queue.remove(0);
            self.register.grants.insert(next.member, next);
        }
    }

    /// How many voters besides this one are busy, or may be.
    fn busy_voters(&self, set: &Set, besides: MemberId) -> usize {
        set.members
            .iter()
            .filter(|member| member.is_voter && !member.is_arbiter && member.id != besides)
            .filter(|member| self.may_be_busy(set, member.id))
            .count()
    }

    fn may_be_busy(&self, set: &Set, member: MemberId) -> bool {
        if self.register.has_granted(member) {
            return true;
        }
        if member == set.me {
            return self.tasks.is_busy();
        }
        if self.is_gone(set, member) {
            return false;
        }
        let Some(gossip) = self.peers.get(&member).map(|peer| &peer.gossip) else {
            return !self.is_mutant(Mutant::GrantsUnheard);
        };
        if gossip.running().is_some() {
            return true;
        }
        let was_confirmed = gossip.claim.is_some_and(|claim| claim.is_confirmed) || gossip.term != self.term;
        was_confirmed && !self.is_mutant(Mutant::GrantsUnheard)
    }

    /// Whether a majority of the voters, this one among them, has heard in this primary's term what it said within the last election
    /// timeout: without that somebody else may lead by now, and confirm claims.
    fn is_heard_by_majority(&self, set: &Set) -> bool {
        let has_listened = |member: &MemberId| {
            let gossip = self.peers.get(member).map(|peer| &peer.gossip).filter(|gossip| gossip.term == self.term);
            let heard = gossip.and_then(|gossip| gossip.heard_primary).filter(|it| it.incarnation == self.incarnation);
            heard.is_some_and(|heard| self.now.saturating_sub(heard.made_at) < set.election_timeout)
        };
        let voters = || set.members.iter().filter(|member| member.is_voter).map(|member| member.id);
        voters().filter(|id| *id == set.me || has_listened(id)).count() > voters().count() / 2
    }

    /// Whether a member has been silent for so long, under this primary, that it holds nothing any more. Of one that was not heard of in
    /// this term an earlier primary, which nobody else follows any more, may have heard for an election timeout; and what that confirmed
    /// is believed for another one.
    fn is_gone(&self, set: &Set, member: MemberId) -> bool {
        let peer = self.peers.get(&member);
        let is_heard_in_term = peer.is_some_and(|peer| peer.gossip.term == self.term);
        let is_soon = is_heard_in_term || self.is_mutant(Mutant::GivesUpUnheardSoon);
        let elected_before = set.election_timeout * if is_soon { 1 } else { 2 };
        let heard_at = peer.map_or(Moment::ZERO, |peer| peer.heard_at);
        self.now.saturating_sub(heard_at) >= set.election_timeout
            && self.now.saturating_sub(self.register.since) >= elected_before
    }
}
