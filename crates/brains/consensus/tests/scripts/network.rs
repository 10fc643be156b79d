//! What is under way between the members.
//!
//! Votes, their answers, reports of positions and requests to stand wait here for a line that delivers or drops them. A heartbeat
//! waits too, in a row of its own; its answer comes back with it, as that of a report and of a request to stand does.

use crate::words::Link;
use baton_consensus::{MemberId, Moment, Request, RequestId, RequestKind, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time from request to answer, unless a line says otherwise.
const ROUND_TRIP: Duration = Duration::from_millis(1);

#[derive(Clone)]
pub enum Content {
    Request(Request),
    Response(Response),
}

#[derive(Clone)]
pub struct Message {
    pub from: MemberId,
    pub to: MemberId,
    /// Which process of the asker's asked: another one gets no answer.
    pub boot: u32,
    pub content: Content,
}

impl Message {
    pub fn kind(&self) -> RequestKind {
        match &self.content {
            Content::Request(request) => request.kind(),
            Content::Response(response) => response.kind(),
        }
    }

    pub fn is_heartbeat(&self) -> bool {
        self.kind() == RequestKind::Heartbeat
    }

    /// Who waits for an answer.
    pub fn asker(&self) -> MemberId {
        match self.content {
            Content::Request(_) => self.from,
            Content::Response(_) => self.to,
        }
    }

    /// And from whom.
    pub fn asked(&self) -> MemberId {
        match self.content {
            Content::Request(_) => self.to,
            Content::Response(_) => self.from,
        }
    }
}

/// A request that a member has not answered yet.
pub struct Unanswered {
    pub asker: MemberId,
    pub boot: u32,
    pub kind: RequestKind,
}

#[derive(Default)]
pub struct Network {
    under_way: Vec<Message>,
    pub unanswered: BTreeMap<(MemberId, RequestId), Unanswered>,
    cut: BTreeSet<(MemberId, MemberId)>,
    distances: BTreeMap<(MemberId, MemberId), Duration>,
    next_id: RequestId,
}

impl Network {
    pub fn next_id(&mut self) -> RequestId {
        self.next_id += 1;
        self.next_id
    }

    pub fn put(&mut self, message: Message) {
        self.under_way.push(message);
    }

    /// The places of the messages that a line means: the oldest of one link, or all that are under way.
    fn places(&self, link: Link, heartbeats: bool) -> Vec<usize> {
        let fits = |message: &Message| link.has(message.from, message.to) && message.is_heartbeat() == heartbeats;
        let places = (0..self.under_way.len()).filter(|place| fits(&self.under_way[*place]));
        if link.is_single() { places.take(1).collect() } else { places.collect() }
    }

    /// Takes what a line means off the network, in the order of sending.
    pub fn take(&mut self, link: Link, heartbeats: bool) -> Vec<Message> {
        let places = self.places(link, heartbeats);
        let mut taken: Vec<Message> = places.into_iter().rev().map(|place| self.under_way.remove(place)).collect();
        taken.reverse();
        taken
    }

    /// Has what a line means arrive twice: the second time at the end of the row.
    pub fn duplicate(&mut self, link: Link) -> bool {
        let copies: Vec<Message> =
            self.places(link, false).into_iter().map(|place| self.under_way[place].clone()).collect();
        let has_some = !copies.is_empty();
        self.under_way.extend(copies);
        has_some
    }

    /// The newest message of a link overtakes the others.
    pub fn overtake(&mut self, link: Link) {
        if let Some(last) = self.under_way.iter().rposition(|message| link.has(message.from, message.to)) {
            let message = self.under_way.remove(last);
            self.under_way.insert(0, message);
        }
    }

    /// Takes everything off the network that can arrive no more: over links that are cut, or to a member that is down.
    pub fn take_lost(&mut self, is_down: impl Fn(MemberId) -> bool) -> Vec<Message> {
        let (lost, kept) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|message| self.is_cut(message.from, message.to) || is_down(message.to) || is_down(message.from));
        self.under_way = kept;
        lost
    }

    pub fn cut(&mut self, from: MemberId, to: MemberId) {
        self.cut.insert((from, to));
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    pub fn is_cut(&self, from: MemberId, to: MemberId) -> bool {
        self.cut.contains(&(from, to))
    }

    pub fn set_distance(&mut self, one: MemberId, other: MemberId, round_trip: Moment) {
        self.distances.insert((one.min(other), one.max(other)), round_trip);
    }

    pub fn distance(&self, one: MemberId, other: MemberId) -> Duration {
        self.distances.get(&(one.min(other), one.max(other))).copied().unwrap_or(ROUND_TRIP)
    }
}
