//! The set: its members, what is under way between them, and one step of a machine with all that follows from it on its own host.

use crate::member::{Disk, Member, Write};
use crate::network::{Content, Message, Network, Unanswered};
use crate::print::{Status, show_effect, show_request, show_response};
use crate::words::{Link, name, show};
use baton_consensus::{Effect, Input, MemberId, Moment, Request, RequestId, RequestKind, Response};
use baton_types::{Error, OpTime, Term, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// More rounds than any script needs: whoever takes so many goes in a circle.
const ROUNDS_MAX: usize = 1000;
const EVERYWHERE: Link = Link { from: None, to: None };

#[derive(Default)]
pub struct World {
    pub now: Moment,
    pub members: BTreeMap<MemberId, Member>,
    pub network: Network,
    /// What is written below the present line.
    pub told: Vec<String>,
    /// Tells nothing: before the story.
    pub is_quiet: bool,
    /// Every line told says when.
    tells_time: bool,
    /// Heartbeats are told.
    tells_heartbeats: bool,
    /// What members learn next, each by the process that was there when it was said.
    due: VecDeque<(MemberId, u32, Input)>,
}

impl World {
    pub fn tell(&mut self, line: String) {
        if !self.is_quiet {
            let time = self.tells_time.then(|| format!("{:.3} ", self.now.as_secs_f64()));
            self.told.push(time.unwrap_or_default() + &line);
        }
    }

    pub fn disk(&mut self, id: MemberId) -> &mut Disk {
        &mut self.member(id).disk
    }

    pub fn member(&mut self, id: MemberId) -> &mut Member {
        self.members.get_mut(&id).unwrap_or_else(|| unreachable!("{} is not there", name(id)))
    }

    fn up(&self) -> Vec<MemberId> {
        self.members.values().filter(|member| member.is_up()).map(|member| member.id).collect()
    }

    /// A member takes an input, and everybody what follows from it.
    pub fn input(&mut self, id: MemberId, input: Input) {
        let boot = self.member(id).boot;
        self.due.push_back((id, boot, input));
        self.due_now();
    }

    /// Everybody takes what is due.
    pub fn due_now(&mut self) {
        loop {
            self.lose();
            let Some((id, boot, input)) = self.due.pop_front() else { return };
            if self.members[&id].boot == boot && self.members[&id].is_up() {
                self.step(id, input);
            }
        }
    }

    fn step(&mut self, id: MemberId, input: Input) {
        let now = self.now;
        let Some(machine) = &mut self.member(id).machine else { return };
        let before = Status::of(machine);
        let effects = machine.step(now, input);
        let after = Status::of(machine);
        if let Some(line) = before.before_effects(&after) {
            self.tell(format!("{}: {line}", name(id)));
        }
        let is_slow = self.member(id).is_slow;
        for (place, effect) in effects.iter().enumerate() {
            // What goes to several members is told once.
            if let Effect::Send { request, .. } = effect
                && !effects[..place]
                    .iter()
                    .any(|before| matches!(before, Effect::Send { request: r, .. } if r == request))
            {
                self.tell_request(id, request, &effects[place..]);
            }
            if let Some(line) = show_effect(effect, is_slow) {
                self.tell(format!("{}: {line}", name(id)));
            }
            self.carry_out(id, effect);
        }
        for line in before.after_effects(&after, &effects) {
            self.tell(format!("{}: {line}", name(id)));
        }
    }

    fn carry_out(&mut self, id: MemberId, effect: &Effect) {
        match effect {
            Effect::Send { to, request } => self.send(id, *to, request),
            Effect::Respond { id: request, response } => self.respond(id, *request, response),
            Effect::PersistVote(vote) => self.write(id, Write::Vote(*vote)),
            Effect::PersistConfiguration(configuration) => {
                self.write(id, Write::Configuration(configuration.clone()));
            }
            Effect::FetchConfiguration { host } => {
                let asked = self.members.values().find(|other| Member::host(other.id) == *host);
                if let Some(configuration) = asked.and_then(|other| other.disk.configuration.clone()) {
                    self.then(id, Input::ConfigurationFetched(Box::new(configuration)));
                }
            }
            Effect::BeginTerm(term) => self.begin_term(id, *term),
            Effect::BlockWrites => {
                let position = self.disk(id).position();
                self.then(id, Input::WritesBlocked(position));
            }
            Effect::Committed(optime) => self.disk(id).commit_point = *optime,
            Effect::TermAdopted(_)
            | Effect::Won { .. }
            | Effect::UnblockWrites
            | Effect::Resign { .. }
            | Effect::SteppedDown(_)
            | Effect::Reconfigured(_)
            | Effect::Stood(_)
            | Effect::SyncSource(_)
            | Effect::RefusedMember { .. }
            | Effect::Heard { .. }
            | Effect::TopologyChanged => {}
        }
    }

    fn then(&mut self, id: MemberId, input: Input) {
        let boot = self.member(id).boot;
        self.due.push_back((id, boot, input));
    }

    // ---- the disk ----

    fn write(&mut self, id: MemberId, write: Write) {
        self.member(id).unwritten.push(write);
        if !self.member(id).is_slow {
            self.sync(id);
        }
    }

    /// What was written is on disk.
    pub fn sync(&mut self, id: MemberId) {
        let written = std::mem::take(&mut self.member(id).unwritten);
        for write in written {
            let input = match write {
                Write::Vote(vote) => {
                    self.disk(id).vote = vote;
                    Input::VotePersisted(vote)
                }
                Write::Configuration(configuration) => {
                    let version = configuration.version;
                    self.disk(id).configuration = Some(*configuration);
                    Input::ConfigurationPersisted(version)
                }
                Write::Log => {
                    let disk = self.disk(id);
                    disk.durable = disk.log.len();
                    Input::Log(disk.position())
                }
            };
            self.then(id, input);
        }
    }

    fn begin_term(&mut self, id: MemberId, term: Term) {
        let entry = self.append(id, term, None);
        self.tell(format!("{}: writes {}, its term's first entry", name(id), show(entry)));
        self.then(id, Input::TermBegun(term));
    }

    /// Adds an entry to a member's log: at the next second, if none is given.
    pub fn append(&mut self, id: MemberId, term: Term, seconds: Option<u32>) -> OpTime {
        let seconds = seconds.unwrap_or(self.disk(id).last().timestamp.seconds + 1);
        let entry = OpTime { term, timestamp: Timestamp { seconds, increment: 1 } };
        self.extend(id, &[entry]);
        entry
    }

    /// Adds entries to a member's log.
    pub fn extend(&mut self, id: MemberId, entries: &[OpTime]) {
        self.disk(id).log.extend(entries);
        if self.member(id).is_slow {
            let position = self.disk(id).position();
            self.then(id, Input::Log(position));
        }
        self.write(id, Write::Log);
    }

    // ---- the network ----

    fn tell_request(&mut self, from: MemberId, request: &Request, effects: &[Effect]) {
        if request.kind() == RequestKind::Heartbeat {
            return;
        }
        let receivers: Vec<MemberId> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send { to, request: sent } if sent == request => Some(*to),
                _ => None,
            })
            .collect();
        let known = receivers.first().and_then(|to| self.members[to].machine.as_ref()).map(|it| (it.me(), it.view()));
        let line = show_request(request, known.as_ref());
        let receivers: Vec<String> = receivers.iter().map(|to| name(*to).to_string()).collect();
        self.tell(format!("{} -> {}: {line}", name(from), receivers.join(" ")));
    }

    fn send(&mut self, from: MemberId, to: MemberId, request: &Request) {
        let boot = self.member(from).boot;
        self.network.put(Message { from, to, boot, content: Content::Request(request.clone()) });
    }

    fn respond(&mut self, from: MemberId, id: RequestId, response: &Result<Response, Error>) {
        let Some(Unanswered { asker, boot, kind }) = self.network.unanswered.remove(&(from, id)) else { return };
        let told = match response {
            Ok(response) => show_response(response),
            Err(error) => format!("{:?}: {}", error.code, error.message),
        };
        let is_told = match kind {
            RequestKind::Heartbeat => self.tells_heartbeats,
            RequestKind::RequestVotes => true,
            RequestKind::UpdatePosition | RequestKind::StepUp => false,
        };
        if is_told || response.is_err() {
            self.tell(format!("{} -> {}: {told}", name(from), name(asker)));
        }
        match response {
            Ok(response) if kind == RequestKind::RequestVotes => {
                let content = Content::Response(response.clone());
                self.network.put(Message { from, to: asker, boot, content });
            }
            Ok(response) if !self.network.is_cut(from, asker) => {
                let round_trip = self.network.distance(from, asker);
                self.due.push_back((asker, boot, Input::Response { from, response: response.clone(), round_trip }));
            }
            _ => self.due.push_back((asker, boot, Input::Unreachable { to: from, gone: false, request: kind })),
        }
    }

    /// What can arrive no more is lost; who waits for an answer learns that none comes.
    fn lose(&mut self) {
        let down: Vec<MemberId> = self.members.values().filter(|it| !it.is_up()).map(|member| member.id).collect();
        for message in self.network.take_lost(|id| down.contains(&id)) {
            self.drop_message(&message);
        }
    }

    pub fn drop_message(&mut self, message: &Message) {
        let (asker, asked) = (message.asker(), message.asked());
        let gone = !self.members[&asked].is_up() && !self.network.is_cut(asker, asked);
        if !message.is_heartbeat() && self.members[&asker].is_up() {
            self.tell(format!("{}: gets no answer from {}", name(asker), name(asked)));
        }
        self.due.push_back((asker, message.boot, Input::Unreachable { to: asked, gone, request: message.kind() }));
    }

    /// Brings what a line means to its receivers.
    pub fn deliver(&mut self, link: Link, heartbeats: bool) -> bool {
        let messages = self.network.take(link, heartbeats);
        let has_some = !messages.is_empty();
        for message in messages {
            self.arrive(message);
        }
        has_some
    }

    fn arrive(&mut self, message: Message) {
        let Message { from, to, boot, content } = message;
        match content {
            Content::Request(request) => {
                let id = self.network.next_id();
                let kind = request.kind();
                if kind == RequestKind::Heartbeat && self.tells_heartbeats {
                    self.tell(format!("{} -> {}: {}", name(from), name(to), show_request(&request, None)));
                }
                self.network.unanswered.insert((to, id), Unanswered { asker: from, boot, kind });
                self.input(to, Input::Request { id, request });
            }
            Content::Response(response) => {
                let round_trip = self.network.distance(from, to);
                self.due.push_back((to, boot, Input::Response { from, response, round_trip }));
                self.due_now();
            }
        }
    }

    /// Loses what a line means.
    pub fn drop_messages(&mut self, link: Link) -> bool {
        let messages = self.network.take(link, false);
        messages.iter().for_each(|message| self.drop_message(message));
        self.due_now();
        !messages.is_empty()
    }

    /// One heartbeat goes there and its answer back, and both are told.
    pub fn heartbeat(&mut self, link: Link) -> bool {
        self.tells_heartbeats = true;
        let has_some = self.deliver(link, true);
        self.tells_heartbeats = false;
        has_some
    }

    /// All heartbeats that are under way, and those that they give occasion to.
    pub fn heartbeats(&mut self) -> bool {
        let mut has_some = false;
        for _ in 0..ROUNDS_MAX {
            if !self.deliver(EVERYWHERE, true) {
                return has_some;
            }
            has_some = true;
        }
        unreachable!("heartbeats do not end")
    }

    // ---- time ----

    pub fn tick(&mut self, who: Option<MemberId>) {
        for id in who.map_or_else(|| self.up(), |id| vec![id]) {
            self.input(id, Input::Tick);
        }
    }

    /// Time passes: each machine looks when it asked to, and heartbeats arrive. Nothing else does.
    pub fn pass(&mut self, until: Moment) {
        self.tells_time = true;
        let deadline = |world: &Self, id: &MemberId| world.members[id].machine().next_deadline();
        while let Some(next) = self.up().iter().map(|id| deadline(self, id)).min().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            for id in self.up() {
                if deadline(self, &id) <= self.now {
                    self.input(id, Input::Tick);
                }
            }
            self.heartbeats();
        }
        self.tells_time = false;
        self.now = until;
    }

    /// Everything arrives, and everybody fetches, until there is nothing left to do.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut goes_on = self.deliver(EVERYWHERE, false) | self.heartbeats();
            for id in self.up() {
                goes_on |= self.fetch_if_useful(id);
            }
            if !goes_on {
                return;
            }
        }
        unreachable!("the set does not come to rest")
    }

    pub fn crash(&mut self, id: MemberId) {
        self.member(id).crash();
        // Whoever waits for an answer sees the connection end.
        let unanswered = std::mem::take(&mut self.network.unanswered);
        for ((asked, request), waiting) in unanswered {
            if asked == id {
                let input = Input::Unreachable { to: id, gone: true, request: waiting.kind };
                self.due.push_back((waiting.asker, waiting.boot, input));
            } else {
                self.network.unanswered.insert((asked, request), waiting);
            }
        }
        self.due_now();
    }

    pub fn start(&mut self, id: MemberId) {
        let now = self.now;
        self.member(id).start(now);
        self.input(id, Input::Tick);
    }
}

/// Seconds as a line has them.
pub fn secs(word: &str) -> Option<Duration> {
    word.parse().ok().map(Duration::from_secs_f64)
}
