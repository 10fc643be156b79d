//! Standing for election. (Voting is [`crate::voting`].)
//!
//! A member stands when it has heard of no primary for the election timeout; at once, nearly, when there is known to be
//! none (its process is gone, it says that it resigned, or a majority knows of none); when it should replace a primary of
//! lower priority, or one that catches up from an older log; and when it is told to. It first asks how the others would vote
//! (the dry run; Ongaro's pre-vote), so that a member that cannot win does not raise the term and depose a primary that works.
//!
//! Who stands first is a matter of priority, of the log, and of chance, in that order: members with a later log and a higher
//! priority wait a shorter time, and chance keeps equals from standing together. Who refuses a candidate for its shorter log need not
//! wait for its own chance: it is the one to stand, unless the candidate's priority is higher, which fetches what it lacks and stands
//! again as soon as it has it. A member in heavy work stands last, unless nobody else can, and takes over from nobody ([`Occupation`]);
//! who resigned in its favour did not know, and is not refused. If its log is the longest, nobody wins until another has fetched the rest
//! of it: so whoever is refused a vote hears where the voter's log ends.
//!
//! Invariants:
//! - A candidate's own vote is on disk before it is counted, and nobody wins without it. Others are asked for theirs meanwhile: should
//!   this process end before its vote is on disk, the next one may stand in the same term again, for which those votes still are.
//! - A dry run changes nobody's term and nobody's vote.
//! - A member in heavy work stands once there was no sign of a primary for two election timeouts, whatever it does: the set always gets
//!   a primary.
//! - A member without its data does not stand, nor does one in the midst of a rollback.

use crate::configuration::MemberId;
use crate::consensus::{Consensus, Role};
use crate::leadership::Leadership;
use crate::message::{ElectionReason, MemberState, Request, Response, VoteRequest, VoteResponse};
use crate::mutant::Mutant;
use crate::plausible::TERM_MAX;
use crate::step::{DataState, Effect, LastVote, Moment, Occupation, RequestId};
use baton_types::{Error, ErrorCode, OpTime, Term};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// A candidate gives up after this long without a majority, or after the election timeout if that is shorter.
const CAMPAIGN_TIMEOUT: Duration = Duration::from_secs(1);
/// What one step of priority, or a log behind another's, adds to the wait before a prompt election.
const PROMPT_STEP: Duration = Duration::from_millis(20);
/// The part of chance in a prompt election, and in the wait after a lost one.
const PROMPT_CHANCE: Duration = Duration::from_millis(30);
/// The part of chance in the wait of who has refused a candidate for its shorter log, and of such a candidate when it has the rest: of
/// several one should come first.
const TURN_CHANCE: Duration = Duration::from_millis(5);
/// Whoever would vote for another one waits this long for that election's outcome before it stands itself, as does whoever hears
/// that a primary has resigned, perhaps in somebody's favour.
const COURTESY: Duration = Duration::from_millis(150);
/// A primary is fresh enough to be taken over from if we are this close behind it, in seconds of the log.
const TAKEOVER_LAG_SECS_MAX: u32 = 2;
/// By how much chance and priority may lengthen the election timeout.
const OFFSET_FRACTION: f64 = 0.15;

/// An election that this member stands in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Campaign {
    pub dry_run: bool,
    pub term: Term,
    pub reason: ElectionReason,
    granted: BTreeSet<MemberId>,
    refused: BTreeSet<MemberId>,
    deadline: Moment,
    /// An operator waits to hear that it began.
    asked: bool,
    /// The primary before resigned in this member's favour, which has all that it had.
    is_heir: bool,
}

impl Consensus {
    fn can_stand(&self) -> bool {
        self.can_lead() && self.frozen_until <= self.now
    }

    fn can_lead(&self) -> bool {
        self.my_member().is_some_and(crate::configuration::Member::is_electable)
            && self.data == DataState::Ready
            && self.term < TERM_MAX
            && !self.maintenance
            && !self.too_stale
    }

    // ---- when to stand ----

    /// A sign of life of the primary of this term.
    pub(crate) fn hear_primary(&mut self, primary: MemberId) {
        let is_news = self.primary != Some(primary);
        self.primary = Some(primary);
        self.primary_heard_at = self.now;
        self.elections_lost = 0;
        if matches!(self.role, Role::Candidate(_)) && is_news {
            self.end_campaign();
        }
        self.postpone_election();
        if is_news {
            self.takeover = None;
            // Whatever it failed at as somebody's follower: nothing is committed before its entries are fetched.
            self.avoided_sources.remove(&primary);
            self.reconsider_sync_source();
        }
    }

    /// The primary's process is gone.
    pub(crate) fn lose_primary(&mut self) {
        self.primary = None;
        self.takeover = None;
        self.elect_promptly();
    }

    /// The primary says that it is none any more. It may have told another one to stand, who must not find a rival.
    pub(crate) fn hear_resignation(&mut self) {
        self.primary = None;
        self.takeover = None;
        self.leave_to_another();
        self.elect_promptly();
    }

    pub(crate) fn leave_to_another(&mut self) {
        self.courtesy_until = self.now + COURTESY;
    }

    fn elect_promptly(&mut self) {
        if self.election_is_prompt || !matches!(self.role, Role::Follower) {
            return;
        }
        self.election_is_prompt = true;
        let at = self.now.max(self.courtesy_until) + self.prompt_delay();
        self.election_at = self.election_at.min(at);
    }

    /// A candidate was refused because its log ends before this member's. Where a primary is about to be elected, it is this member's
    /// turn, but for a candidate of higher priority: that one fetches what it lacks.
    pub(crate) fn stand_in_place_of(&mut self, candidate: MemberId) {
        let (Some(configuration), Some(me)) = (&self.configuration, self.me) else { return };
        if configuration.priority_rank(me) <= configuration.priority_rank(candidate) {
            self.take_turn();
        }
    }

    /// What this member was refused for may be over.
    pub(crate) fn settle_refusal(&mut self) {
        if self.refused_below != OpTime::ZERO && self.position.written >= self.refused_below {
            self.refused_below = OpTime::ZERO;
            self.take_turn();
        }
    }

    /// Stands sooner than chance would have it, where a prompt election is waited for.
    fn take_turn(&mut self) {
        if self.election_is_prompt {
            let at = self.now.max(self.courtesy_until) + self.random_part(TURN_CHANCE);
            self.election_at = self.election_at.min(at);
        }
    }

    fn prompt_delay(&mut self) -> Duration {
        let (Some(configuration), Some(me)) = (&self.configuration, self.me) else { return COURTESY };
        let timeout = self.election_timeout();
        let behind = self.peers.iter().any(|(id, peer)| {
            peer.position.written > self.position.written
                && peer.is_alive(self.now, timeout)
                && configuration.member(*id).is_some_and(crate::configuration::Member::is_electable)
        });
        let steps = configuration.priority_rank(me) as u32 + u32::from(behind);
        PROMPT_STEP * steps + self.random_part(PROMPT_CHANCE)
    }

    /// Waits for the election timeout anew.
    pub(crate) fn postpone_election(&mut self) {
        self.election_is_prompt = false;
        self.election_is_put_off = false;
        self.refused_below = OpTime::ZERO;
        let timeout = self.election_timeout();
        let rank = match (&self.configuration, self.me) {
            (Some(configuration), Some(me)) => {
                configuration.priority_rank(me) as f64 / configuration.members.len() as f64
            }
            _ => 0.0,
        };
        let offset = timeout.mul_f64(OFFSET_FRACTION * rank) + self.random_part(timeout.mul_f64(OFFSET_FRACTION));
        self.election_at = self.now + timeout + offset;
    }

    pub(crate) fn election_deadline(&self) -> Option<Moment> {
        match &self.role {
            Role::Candidate(campaign) => Some(campaign.deadline),
            Role::Follower if self.can_stand() => {
                let takeover = self.takeover.map(|(_, at)| at);
                Some(takeover.map_or(self.election_at, |at| at.min(self.election_at)))
            }
            Role::Follower => (self.frozen_until > self.now).then_some(self.frozen_until),
            Role::Leader(_) => None,
        }
    }

    /// Gives up a campaign that takes too long; stands when it is time.
    pub(crate) fn settle_elections(&mut self) {
        if let Role::Candidate(campaign) = &self.role
            && campaign.deadline <= self.now
        {
            self.lose_election();
        }
        if !matches!(self.role, Role::Follower) || !self.can_stand() {
            self.takeover = None;
            return;
        }
        if self.is_only_voter() {
            self.stand(ElectionReason::SingleMember, false, false);
            return;
        }
        if self.primary.is_none() && self.majority_knows_of_no_primary() {
            self.elect_promptly();
        }
        self.settle_putting_off();
        if self.election_at <= self.now {
            if let Some(until) = self.leaves_standing_until() {
                self.election_at = until;
                self.election_is_put_off = true;
                return;
            }
            self.primary = None;
            self.stand(ElectionReason::ElectionTimeout, true, false);
            return;
        }
        self.settle_takeover();
    }

    /// Until when standing is the others' matter, if it is.
    fn leaves_standing_until(&self) -> Option<Moment> {
        let until = match self.is_mutant(Mutant::LeavesStandingForEver) {
            true => Moment::MAX,
            false => self.primary_heard_at.max(self.began_at) + 2 * self.election_timeout(),
        };
        (self.occupation.stands_last && until > self.now && self.others_can_stand()).then_some(until)
    }

    /// Whether anybody else who lives might stand and is in no heavy work, as far as is known.
    fn others_can_stand(&self) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let (timeout, is_electable) = (self.election_timeout(), crate::configuration::Member::is_electable);
        self.peers.iter().any(|(id, peer)| {
            configuration.member(*id).is_some_and(is_electable)
                && peer.is_alive(self.now, timeout)
                && peer.state() == MemberState::Secondary
                && !self.busy.contains(id)
        })
    }

    pub(crate) fn take_occupation(&mut self, occupation: Occupation) {
        self.occupation = occupation;
        self.settle_putting_off();
    }

    /// What an election was put off for may be over.
    fn settle_putting_off(&mut self) {
        if self.election_is_put_off && self.leaves_standing_until().is_none() {
            self.election_is_put_off = false;
            self.election_is_prompt = false;
            self.elect_promptly();
        }
    }

    fn is_only_voter(&self) -> bool {
        self.configuration.as_ref().is_some_and(|c| c.voters().all(|member| Some(member.id) == self.me))
    }

    /// Whether enough members to elect somebody have said lately that they know of no primary.
    fn majority_knows_of_no_primary(&self) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let lately = self.heartbeat_interval() * 2;
        let agreeing = configuration.voters().filter(|member| match self.peers.get(&member.id) {
            Some(peer) => {
                peer.is_alive(self.now, lately)
                    && peer.gossip.as_ref().is_some_and(|g| g.primary.is_none() && g.state != MemberState::Primary)
            }
            None => true,
        });
        agreeing.count() >= configuration.majority_of_votes()
    }

    fn settle_takeover(&mut self) {
        let Some(reason) = self.takeover_reason().filter(|reason| self.may_take_over(*reason)) else {
            self.takeover = None;
            return;
        };
        match self.takeover {
            Some((planned, at)) if planned == reason => {
                if at <= self.now {
                    self.takeover = None;
                    self.stand(reason, true, false);
                }
            }
            _ => {
                let delay = self.takeover_delay(reason);
                self.takeover = Some((reason, self.now + delay));
            }
        }
    }

    /// A primary that waits for entries that only this member has may wait for ever: even heavy work only puts that takeover off.
    fn may_take_over(&self, reason: ElectionReason) -> bool {
        !self.occupation.leaves_primary_alone || reason == ElectionReason::CatchUpTakeover
    }

    fn takeover_reason(&self) -> Option<ElectionReason> {
        let configuration = self.configuration.as_ref()?;
        let (primary, peer) = self.primary.and_then(|id| Some((configuration.member(id)?, self.peers.get(&id)?)))?;
        let theirs = peer.position.written;
        let mine = self.position.written;
        if mine > theirs && theirs.term < self.term && configuration.settings.catch_up_takeover_delay.is_some() {
            return Some(ElectionReason::CatchUpTakeover);
        }
        let lag_secs = theirs.timestamp.seconds.saturating_sub(mine.timestamp.seconds);
        let has_begun = theirs.term == self.term;
        (self.my_member()?.priority > primary.priority && has_begun && lag_secs <= TAKEOVER_LAG_SECS_MAX)
            .then_some(ElectionReason::PriorityTakeover)
    }

    fn takeover_delay(&mut self, reason: ElectionReason) -> Duration {
        let timeout = self.election_timeout();
        let (Some(configuration), Some(me)) = (&self.configuration, self.me) else { return timeout };
        match reason {
            ElectionReason::CatchUpTakeover => {
                let delay = configuration.settings.catch_up_takeover_delay.unwrap_or(timeout);
                if self.occupation.leaves_primary_alone { delay + 2 * timeout } else { delay }
            }
            _ => {
                let rank = configuration.priority_rank(me) as u32;
                timeout * (rank + 1) + self.random_part(timeout.mul_f64(OFFSET_FRACTION))
            }
        }
    }

    pub(crate) fn freeze(&mut self, duration: Duration) {
        self.frozen_until = self.now + duration;
        if duration.is_zero() {
            self.postpone_election();
        }
    }

    // ---- standing ----

    /// An operator's wish.
    pub(crate) fn stand_on_request(&mut self, dry_run: bool) {
        if matches!(self.role, Role::Leader(_)) {
            self.effects.push(Effect::Stood(Ok(())));
        } else if matches!(self.role, Role::Candidate(_)) || !self.can_stand() {
            let error =
                Error::new(ErrorCode::CommandFailed, "Election failed: this member may not stand for election now.");
            self.effects.push(Effect::Stood(Err(error)));
        } else {
            self.stand(ElectionReason::StepUpRequest, dry_run, true);
        }
    }

    pub(crate) fn answer_step_up(&mut self, id: RequestId, term: Term, last_written: OpTime) {
        self.adopt_term(term);
        // The sender resigned in our favour: a freeze of ours is not about this, a lack of data is.
        if term == self.term && matches!(self.role, Role::Follower) && self.can_lead() {
            self.stand(ElectionReason::Handoff, false, false);
            if let Role::Candidate(campaign) = &mut self.role {
                campaign.is_heir = self.position.written >= last_written;
            }
        }
        self.effects.push(Effect::Respond { id, response: Ok(Response::StepUp { term: self.term }) });
    }

    fn stand(&mut self, reason: ElectionReason, dry_run: bool, asked: bool) {
        let Some(me) = self.me else { return };
        let term = if dry_run { self.term } else { self.term + 1 };
        let timeout = CAMPAIGN_TIMEOUT.min(self.election_timeout());
        self.election_is_prompt = false;
        self.takeover = None;
        if !dry_run {
            self.term = term;
            self.primary = None;
            self.effects.push(Effect::TermAdopted(term));
        }
        let granted = if dry_run { BTreeSet::from([me]) } else { BTreeSet::new() };
        let deadline = self.now + timeout;
        self.role = Role::Candidate(Campaign {
            dry_run,
            term,
            reason,
            granted,
            refused: BTreeSet::new(),
            deadline,
            asked,
            is_heir: false,
        });
        if !dry_run {
            self.vote = LastVote { term, candidate: Some(me) };
        }
        self.request_votes();
        if dry_run {
            self.count_votes();
        } else {
            self.effects.push(Effect::PersistVote(self.vote));
        }
    }

    fn request_votes(&mut self) {
        let (Some(configuration), Role::Candidate(campaign), Some(me)) = (&self.configuration, &self.role, self.me)
        else {
            return;
        };
        let request = VoteRequest {
            set_id: self.set_id(),
            set_name: configuration.set_name.clone(),
            dry_run: campaign.dry_run,
            term: campaign.term,
            candidate: me,
            last_written: self.position.written,
            configuration_version: configuration.version,
            reason: campaign.reason,
        };
        let voters: Vec<MemberId> = configuration.voters().map(|member| member.id).filter(|id| *id != me).collect();
        for to in voters {
            self.effects.push(Effect::Send { to, request: Request::RequestVotes(request.clone()) });
        }
    }

    pub(crate) fn take_vote_response(&mut self, from: MemberId, vote: &VoteResponse) {
        self.adopt_term(vote.term);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.hear(self.now);
            peer.position.written = peer.position.written.max(vote.last_written);
        }
        if !vote.granted && vote.last_written > self.position.written {
            self.refused_below = self.refused_below.max(vote.last_written);
        }
        let Role::Candidate(campaign) = &mut self.role else { return };
        // What was said in a dry run does not count in the election that follows it, nor does a vote of another term.
        if vote.dry_run != campaign.dry_run || (vote.granted && !vote.dry_run && vote.term != campaign.term) {
            return;
        }
        let votes = if vote.granted { &mut campaign.granted } else { &mut campaign.refused };
        votes.insert(from);
        self.count_votes();
    }

    pub(crate) fn take_lost_vote(&mut self, to: MemberId) {
        if let Role::Candidate(campaign) = &mut self.role {
            campaign.refused.insert(to);
            self.count_votes();
        }
    }

    /// A vote of this member is on disk. It counts, if it is for its own election.
    pub(crate) fn take_own_vote(&mut self, vote: LastVote) {
        let Some(me) = self.me else { return };
        let Role::Candidate(campaign) = &mut self.role else { return };
        if !campaign.dry_run && campaign.term == vote.term && vote.candidate == Some(me) && campaign.granted.insert(me)
        {
            self.count_votes();
        }
    }

    fn count_votes(&mut self) {
        let (Some(configuration), Role::Candidate(campaign), Some(me)) = (&self.configuration, &self.role, self.me)
        else {
            return;
        };
        let majority = configuration.majority_of_votes();
        let is_voter = |id: &&MemberId| configuration.member(**id).is_some_and(crate::configuration::Member::is_voter);
        let granted = campaign.granted.iter().filter(is_voter).count();
        let refused = campaign.refused.iter().filter(is_voter).filter(|id| !campaign.granted.contains(id)).count();
        let (reason, asked, dry_run, is_heir) = (campaign.reason, campaign.asked, campaign.dry_run, campaign.is_heir);
        let has_own = campaign.granted.contains(&me) || self.is_mutant(Mutant::WinsWithoutOwnVote);
        if granted >= majority {
            if dry_run {
                self.stand(reason, false, asked);
            } else if has_own {
                self.win(reason, asked, is_heir);
            }
        } else if configuration.voters().count() - refused < majority {
            self.lose_election();
        }
    }

    fn win(&mut self, reason: ElectionReason, asked: bool, is_heir: bool) {
        let catch_up_until = if is_heir { Some(self.now) } else { self.catch_up_deadline() };
        self.role = Role::Leader(Leadership::new(self.now, catch_up_until));
        self.primary = self.me;
        self.elections_lost = 0;
        for peer in self.peers.values_mut() {
            peer.answered_since_win = false;
            // What is on its way was sent before the win; the one that announces it must not wait for that.
            peer.heartbeat_in_flight = false;
        }
        self.announce();
        self.set_sync_source(None);
        self.effects.push(Effect::Won { term: self.term, reason });
        if asked {
            self.effects.push(Effect::Stood(Ok(())));
        }
        self.send_due_heartbeats();
    }

    /// A candidate becomes a follower, whatever ended its campaign; who asked for it is told.
    pub(crate) fn end_campaign(&mut self) {
        let Role::Candidate(campaign) = &self.role else { return };
        if campaign.asked {
            let error = Error::new(ErrorCode::CommandFailed, "Election failed.");
            self.effects.push(Effect::Stood(Err(error)));
        }
        self.role = Role::Follower;
    }

    fn lose_election(&mut self) {
        if !matches!(self.role, Role::Candidate(_)) {
            return;
        }
        self.end_campaign();
        self.elections_lost = self.elections_lost.saturating_add(1);
        if self.primary.is_some() {
            self.postpone_election();
            return;
        }
        // Nobody won, as far as we know: again, after a wait that grows and that chance spreads, never beyond the timeout.
        let spread = PROMPT_CHANCE * 2_u32.saturating_pow(self.elections_lost.min(10));
        let wait = (PROMPT_STEP + self.random_part(spread)).min(self.election_timeout());
        self.election_is_prompt = true;
        self.election_at = self.now + wait;
    }
}

#[cfg(test)]
mod tests;
