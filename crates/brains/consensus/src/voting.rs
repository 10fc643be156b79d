//! Voting for another's election, and an own vote's way to disk. (Standing is [`crate::election`].)
//!
//! Invariants:
//! - A vote is on disk before it is told, one's own too. One vote a term.
//! - A dry run changes nobody's term and nobody's vote.
//! - A vote goes only to a candidate whose log ends no earlier and whose configuration is no older than the voter's.
//! - A member without its data does not vote. One in the midst of a rollback does: by the log that it had, of which what is committed is
//!   all that remains for certain.

use crate::configuration::{Configuration, MemberId};
use crate::consensus::Consensus;
use crate::message::{ElectionReason, Response, VoteRequest, VoteResponse};
use crate::mutant::Mutant;
use crate::step::{DataState, Effect, LastVote, RequestId};

impl Consensus {
    pub(crate) fn answer_vote_request(&mut self, id: RequestId, request: VoteRequest) {
        if self.foreign_set(request.set_id).is_some() {
            self.answer_vote(id, request.dry_run, Some("candidate's set ID differs from mine".to_owned()));
            return;
        }
        if self.refuses(request.candidate) {
            let reason = "candidate speaks another version of the protocol between members".to_owned();
            self.answer_vote(id, request.dry_run, Some(reason));
            return;
        }
        if !request.dry_run {
            self.adopt_term(request.term);
        }
        let refusal = self.refusal(&request);
        if let Some(reason) = refusal {
            self.answer_vote(id, request.dry_run, Some(reason));
            if request.last_written < self.position.written {
                self.stand_in_place_of(request.candidate);
            }
            return;
        }
        self.leave_to_another();
        self.election_at = self.election_at.max(self.courtesy_until);
        if request.dry_run {
            self.answer_vote(id, true, None);
            return;
        }
        self.postpone_election();
        let vote = LastVote { term: request.term, candidate: Some(request.candidate) };
        let is_repeated = self.vote == vote && !self.unpersisted_votes.iter().any(|(pending, _)| *pending == vote);
        if is_repeated {
            self.answer_vote(id, false, None);
            return;
        }
        self.vote = vote;
        self.unpersisted_votes.push((vote, id));
        self.effects.push(Effect::PersistVote(vote));
    }

    fn answer_vote(&mut self, id: RequestId, dry_run: bool, refusal: Option<String>) {
        let granted = refusal.is_none();
        let response = VoteResponse {
            term: self.term,
            dry_run,
            granted,
            reason: refusal.unwrap_or_default(),
            last_written: self.position.written,
        };
        self.effects.push(Effect::Respond { id, response: Ok(Response::RequestVotes(response)) });
    }

    /// Why this member would not vote for a candidate.
    fn refusal(&self, request: &VoteRequest) -> Option<String> {
        let configuration = self.configuration.as_ref().filter(|mine| mine.set_name == request.set_name);
        let Some(configuration) = configuration else {
            return Some("candidate's set name differs from mine".to_owned());
        };
        if configuration.set_name != self.set_name {
            return Some("this member was started for another set".to_owned());
        }
        if request.term < self.term {
            return Some(format!("candidate's term ({}) is lower than mine ({})", request.term, self.term));
        }
        if self.configuration_version().is_newer_than(request.configuration_version) {
            return Some("candidate's config is older than mine".to_owned());
        }
        if request.last_written < self.position.written && !self.is_mutant(Mutant::VoteForStaleLogs) {
            return Some(format!(
                "candidate's data is staler than mine. candidate's last applied OpTime: {}, my last applied OpTime: {}",
                request.last_written, self.position.written
            ));
        }
        if !request.dry_run
            && self.vote.term == request.term
            && self.vote.candidate != Some(request.candidate)
            && !self.is_mutant(Mutant::VoteTwice)
        {
            return Some(format!("already voted for another candidate this term ({})", self.vote.term));
        }
        if self.data == DataState::InitialSync && !self.my_member().is_some_and(|me| me.arbiter) {
            return Some("this member has no data to judge the candidate by".to_owned());
        }
        self.refusal_for_the_primary(request, configuration)
    }

    /// A primary that works is not replaced by a candidate that merely does not hear it.
    fn refusal_for_the_primary(&self, request: &VoteRequest, configuration: &Configuration) -> Option<String> {
        let primary = self.primary.filter(|primary| *primary != request.candidate)?;
        let lives = Some(primary) == self.me
            || self.peers.get(&primary).is_some_and(|peer| {
                !peer.gone && self.now.saturating_sub(self.primary_heard_at) < self.election_timeout()
            });
        if !lives {
            return None;
        }
        let priority = |id: MemberId| configuration.member(id).map_or(0.0, |member| member.priority);
        if self.my_member().is_some_and(|me| me.arbiter)
            && !matches!(request.reason, ElectionReason::Handoff)
            && priority(primary) >= priority(request.candidate)
        {
            return Some("can see a healthy primary of equal or greater priority".to_owned());
        }
        (request.dry_run && !request.reason.replaces_a_primary())
            .then(|| "can see a healthy primary, and the candidate does not mean to replace it".to_owned())
    }

    /// A fault: as if a vote were on disk as soon as that is asked for.
    pub(crate) fn take_votes_as_persisted(&mut self) {
        let asked = |effect: &Effect| if let Effect::PersistVote(vote) = effect { Some(*vote) } else { None };
        let votes: Vec<LastVote> = self.effects.iter().filter_map(asked).collect();
        votes.into_iter().for_each(|vote| self.take_persisted_vote(vote));
    }

    pub(crate) fn take_persisted_vote(&mut self, vote: LastVote) {
        let (written, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unpersisted_votes).into_iter().partition(|(pending, _)| pending.term <= vote.term);
        self.unpersisted_votes = waiting;
        for (pending, id) in written {
            let stands = pending == vote && self.term == vote.term;
            self.answer_vote(id, false, (!stands).then(|| "the vote was overtaken by a later term".to_owned()));
        }
        self.take_own_vote(vote);
    }
}
