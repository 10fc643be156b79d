//! The network of a world: messages late, lost, repeated, out of order; links that are cut one way or both.

use super::configuration::host;
use super::event::Event;
use super::{ToldVote, World};
use baton_consensus::{Input, MemberId, Moment, Request, RequestId, RequestKind, Response};
use baton_types::Error;
use rand::Rng;
use std::time::Duration;

/// A request that a member has not answered: who is to be told.
pub(super) struct Unanswered {
    id: RequestId,
    asker: MemberId,
    boot: u64,
    sent: Moment,
    kind: RequestKind,
    /// Of one for a vote: who stands.
    candidate: Option<MemberId>,
}

impl World {
    pub(super) fn network_delay(&mut self) -> Duration {
        let usual = self.random.random_range(0..=self.delay_ms_max * 1000);
        // Now and then a message is overtaken by many later ones.
        let stray = if self.random.random_bool(self.stray()) { self.random.random_range(0..2_000_000) } else { 0 };
        Duration::from_micros(usual + if self.healed { 0 } else { stray })
    }

    pub(super) fn is_lost(&mut self, from: MemberId, to: MemberId) -> bool {
        self.cut.contains(&(from, to)) || (self.loss > 0.0 && self.random.random_bool(self.loss))
    }

    pub(super) fn send(&mut self, from: MemberId, to: MemberId, request: Request) {
        let kind = request.kind();
        let boot = self.members[&from].boot;
        let sent = self.now;
        if self.members.get(&to).is_none() {
            return;
        }
        let timeout_ms = self.random.random_range(300..1500);
        if self.members[&to].consensus.is_none() && !self.cut.contains(&(from, to)) {
            let wait = self.network_delay();
            self.schedule(wait, Event::Unreachable { to: from, boot, member: to, gone: true, kind });
            return;
        }
        // Asked again after a while; an answer that comes later still arrives.
        if self.is_lost(from, to) {
            self.schedule_ms(timeout_ms, Event::Unreachable { to: from, boot, member: to, gone: false, kind });
            return;
        }
        let repeated = !self.healed && self.random.random_bool(0.02);
        let wait = self.network_delay();
        let event = Event::Request { to, asker: from, asker_boot: boot, sent, request };
        if repeated {
            let later = self.network_delay();
            self.schedule(later, event.clone());
        }
        self.schedule(wait, event);
    }

    pub(super) fn receive(&mut self, to: MemberId, asker: MemberId, asker_boot: u64, sent: Moment, request: Request) {
        let kind = request.kind();
        if self.members[&to].consensus.is_none() {
            self.schedule_ms(1, Event::Unreachable { to: asker, boot: asker_boot, member: to, gone: false, kind });
            return;
        }
        self.next_request += 1;
        let id = self.next_request;
        if let Some(member) = self.members.get_mut(&to) {
            let candidate = match &request {
                Request::RequestVotes(asked) => Some(asked.candidate),
                Request::Heartbeat(_) | Request::UpdatePosition(_) | Request::StepUp { .. } => None,
            };
            member.unanswered.push(Unanswered { id, asker, boot: asker_boot, sent, kind, candidate });
        }
        self.deliver(to, Input::Request { id, request });
    }

    pub(super) fn respond(&mut self, from: MemberId, id: RequestId, response: Result<Response, Error>) {
        let Some(unanswered) = self.members.get_mut(&from).map(|member| &mut member.unanswered) else { return };
        let Some(place) = unanswered.iter().position(|asked| asked.id == id) else { return };
        let Unanswered { asker: to, boot, sent, kind, candidate, .. } = unanswered.swap_remove(place);
        if let (Ok(Response::RequestVotes(vote)), Some(candidate)) = (&response, candidate)
            && vote.granted
            && !vote.dry_run
        {
            self.touch(from);
            self.told.push(ToldVote { voter: from, term: vote.term, candidate });
        }
        let lost = self.is_lost(from, to);
        let wait = self.network_delay();
        match response {
            Ok(response) if !lost => self.schedule(wait, Event::Response { to, boot, from, sent, response }),
            _ => self.schedule_ms(700, Event::Unreachable { to, boot, member: from, gone: false, kind }),
        }
    }

    pub(super) fn fetch_configuration(&mut self, id: MemberId, at: &str) {
        let Some(from) = self.members.ids().find(|other| host(*other) == at) else { return };
        if self.is_lost(id, from) || self.is_lost(from, id) {
            return;
        }
        if let Some(configuration) = self.disk(from).configuration.clone() {
            self.deliver(id, Input::ConfigurationFetched(Box::new(configuration)));
        }
    }
}
